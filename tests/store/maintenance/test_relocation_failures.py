"""Relocation where disk, memory or store fail: nothing is lost, and it goes on when they are back."""

from __future__ import annotations

import errno

import pytest
from compiled import interpreted
from journals import all_records
from message_stores import OpenStore
from relocating import (
    assert_bounded,
    fill_data_log,
    name_survivors,
    opened_on,
    relocate,
    sequences_of,
    steps,
    with_stuck_messages,
)
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay.cache.accounting.budget import Budget
from forebay.store.disk.layout import data_log_name
from forebay.store.environment.late_log import emit_late
from forebay.store.errors import StoreFailed
from forebay.store.format.record import SURVIVORS
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.maintenance import relocation, relocation_work, survivor_naming

MEMORY_OF_A_STEP = relocation.STEP_CHARGE_BYTES


def reopened_with_stuck_messages(disk: SimulatedDisk, count: int) -> tuple[OpenStore, list[int]]:
    """A store that has no data log open but its newest."""
    metadata = SimulatedMetadataStore()
    stuck = with_stuck_messages(opened_on(disk, metadata), count)
    return opened_on(disk, metadata), stuck


@pytest.mark.parametrize("is_damaged", [False, True])
def test_data_log_that_cannot_be_opened_stays_and_is_named(is_damaged: bool, caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    opened, stuck = reopened_with_stuck_messages(disk, 8)
    homes = sorted(data_log for data_log, use in opened.store.index.data_log_uses.items() if use.pending_messages)
    if is_damaged:
        for home in homes:
            disk.flip_bit(data_log_name(home), 3, 1)
    else:
        disk.fail("open", 1, errno.EIO, sticky=True)
    assert opened.store.cleanup.run().relocated_messages == 0
    disk.cure()
    assert f"data-{homes[0]}.log stays as it is: it cannot be opened" in caplog.text
    if not is_damaged:
        assert sequences_of(opened) == stuck
    opened.check()


def test_failed_store_relocates_nothing() -> None:
    opened = opened_on(SimulatedDisk())
    with_stuck_messages(opened, 8)
    with opened.lock:
        opened.store.journal.fail("as the test says")
        goal = opened.store.cleanup.relocation.thorough_goal()
    with pytest.raises(StoreFailed):
        opened.store.cleanup.relocation.step(goal)


def test_without_memory_for_a_step_nothing_is_done_and_nothing_held() -> None:
    disk = SimulatedDisk()
    budget = Budget(MEMORY_OF_A_STEP)
    holder, other = budget.holder("relocation"), budget.holder("other")
    assert other.reserve(1)
    opened = opened_on(disk, relocation_account=holder)
    stuck = with_stuck_messages(opened, 8)
    assert opened.store.cleanup.run().relocated_messages == 0 and holder.held_bytes == 0
    other.release(1)
    assert opened.store.cleanup.run().relocated_messages and holder.held_bytes == 0
    assert sequences_of(opened) == stuck
    assert_bounded(opened, disk)


def test_full_disk_ends_a_round_without_loss_and_a_later_one_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Copies may use no space of the reserve: they only add, until a cleanup has deleted the originals."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    stuck = with_stuck_messages(opened, 12)
    opened.store.checkpointer.checkpoint()
    with opened.lock:
        room = opened.store.journal.fullness.capacity - opened.store.journal.offset
    while room > 3000:
        opened.add(bytes(1500), lane=opened.lane("filler"))
        room -= 1564
    full = disk.capacity_bytes
    disk.capacity_bytes = sum(len(content) for content in disk.image().values())
    opened.store.cleanup.relocation.run(opened.store.checkpointer.checkpoint)
    emit_late()
    assert "relocation waits for space" in caplog.text
    assert sequences_of(opened) == stuck
    disk.capacity_bytes = full
    opened.store.cleanup.run()
    assert sequences_of(opened) == stuck
    opened.check()


def test_crowded_index_ends_a_step_and_a_checkpoint_lets_it_go_on() -> None:
    """A copy makes its block dirty: none is written for which the index has no room."""
    disk = SimulatedDisk()
    opened = opened_on(disk, index_cache_bytes=0)
    lanes = [opened.lane(f"lane {n}") for n in range(30)]
    home = opened.store.journal.data_log
    for lane in lanes:
        opened.add(b"stuck in " + str(lane.owner_number).encode(), lane=lane)
        if opened.store.index.is_crowded:
            opened.store.checkpointer.checkpoint()
    fill_data_log(opened)
    opened.store.checkpointer.checkpoint()
    before = [opened.bodies(lane) for lane in lanes]
    work = opened.store.cleanup.relocation
    done = 0
    for _ in steps(work, opened.lock, home, is_naming=False):
        opened.store.index._check()
        opened.store.checkpointer.checkpoint()
        done += 1
    assert done > 2 and work.messages == 30
    assert [opened.bodies(lane) for lane in lanes] == before
    opened.check()


def test_survivors_that_would_cost_as_much_as_they_free_are_not_named() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    home = opened.store.journal.data_log
    fill_data_log(opened)
    work = opened.store.cleanup.relocation
    for _ in steps(work, opened.lock, home + 1, is_naming=True, freed_bytes=10):
        pass
    assert work.left.unnameable == {home + 1: 10}
    assert SURVIVORS not in {found.header.kind for _, found in all_records(disk)}


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("limit", ["ranges", "memory"])
def test_survivors_in_too_many_runs_are_not_named(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    room_bytes = MEMORY_OF_A_STEP + (5 if limit == "memory" else 10_000) * relocation_work.RANGE_CHARGE_BYTES
    holder = Budget(room_bytes).holder("relocation")
    opened = opened_on(disk, relocation_account=holder)
    sequences = fill_data_log(opened)
    home = next(opened.lane().extents(sequences[0], sequences[0])).data_log
    for sequence in sequences[::2]:
        opened.remove(sequence)
    if limit == "ranges":
        monkeypatch.setattr(survivor_naming, "SURVIVOR_RANGES_MAX", 5)
    name_survivors(opened, home)
    assert home in opened.store.cleanup.relocation.left.unnameable and holder.held_bytes == 0
    assert SURVIVORS not in {found.header.kind for _, found in all_records(disk)}


def test_index_that_knows_of_messages_which_the_data_log_does_not_have_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Naming the others would undo these."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    sequences = fill_data_log(opened)
    home = next(opened.lane().extents(sequences[0], sequences[0])).data_log
    opened.store.index.data_log_uses[home].pending_messages += 1
    for attempt in (relocate, name_survivors):
        opened.store.cleanup.relocation.left.kept.clear()
        caplog.clear()
        attempt(opened, home)
        emit_late()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "1 live messages were not found in it" in caplog.text
        if attempt is relocate:
            opened.store.index.data_log_uses[home].pending_messages += len(sequences)
    assert DATA_LOG_HEADER_BYTES and SURVIVORS not in {found.header.kind for _, found in all_records(disk)}
