"""Relocation: live messages leave sparse data logs, so that the journal stays near what is live in it."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from journals import all_records, data_logs
from message_stores import OpenStore
from relocating import (
    BODY,
    FILE_BYTES,
    KIB,
    assert_bounded,
    assert_journal_tells_the_same,
    assert_same_places,
    begin_data_log,
    fill_data_log,
    name_survivors,
    opened_on,
    relocate,
    sequences_of,
    with_stuck_messages,
)
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk

from forebay import Message
from forebay.cache.accounting.budget import Budget
from forebay.store.disk.disk import File
from forebay.store.disk.layout import data_log_name
from forebay.store.format.contents import Contents
from forebay.store.format.record import MESSAGE, RELOCATED, SURVIVORS, decode_slice
from forebay.store.format.survivors_record import decode_survivors
from forebay.store.journal.regions import Region, read_regions
from forebay.store.maintenance import live_copying, relocation, relocation_scan
from forebay.store.stored_message import StoredMessage


def test_one_stuck_message_in_each_of_21_data_logs_keeps_none_of_them() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    stuck = with_stuck_messages(opened, 21)
    before = opened.pending()
    report = opened.store.cleanup.run()
    assert report.relocated_messages == 21 and len(report.remaining) <= 3
    assert len(data_logs(disk)) <= 3
    assert opened.pending() == before and sequences_of(opened) == stuck
    assert_bounded(opened, disk)
    opened.check()
    assert_journal_tells_the_same(opened, disk)


def chain_of_acks(opened: OpenStore, first: int, links: int) -> list[int]:
    """Data logs of which each holds messages, and the acks of all those that the one before holds. Returns ids.

    first: a message that the first of them acknowledges.
    """
    previous = range(first, first + 1)
    ids = []
    for _ in range(links):
        ids.append(begin_data_log(opened))
        opened.remove(previous[0], previous[-1])
        first = opened.lane().next_sequence
        while opened.store.journal.offset < FILE_BYTES - 3000:
            opened.add(BODY)
        previous = range(first, opened.lane().next_sequence)
    begin_data_log(opened)
    opened.remove(previous[0], previous[-1])
    return ids


def test_chain_of_acks_behind_one_stuck_message_collapses() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    stuck = opened.add(BODY, lane=opened.lane("other"))
    first = opened.add(BODY)
    ids = chain_of_acks(opened, first, 12)
    assert opened.store.cleanup.delete_data_logs().deleted == ()
    report = opened.store.cleanup.run()
    assert len(report.remaining) <= 3 and set(ids) <= set(report.deleted)
    assert sequences_of(opened, opened.lane("other")) == [stuck]
    assert_bounded(opened, disk)
    assert_journal_tells_the_same(opened, disk)


def test_chain_of_acks_behind_a_data_log_full_of_live_messages_collapses() -> None:
    """Copying it would free nothing; a survivors record takes the place of the acks."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    other = opened.lane("other")
    dense = begin_data_log(opened)
    while opened.store.journal.offset < FILE_BYTES - 3000:
        opened.add(BODY, lane=other)
    first = opened.add(BODY)
    ids = chain_of_acks(opened, first, 12)
    assert not set(ids) & set(opened.store.cleanup.delete_data_logs().deleted)
    report = opened.store.cleanup.run()
    assert report.relocated_messages == 0 and set(ids) <= set(report.deleted) and dense in report.remaining
    assert len(sequences_of(opened, other)) == other.next_sequence
    assert_bounded(opened, disk)
    assert_journal_tells_the_same(opened, disk)


def test_moved_message_that_was_acknowledged_stays_gone_while_its_first_data_log_is_kept_for_its_acks() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    dense = begin_data_log(opened)
    kept = opened.add(BODY), opened.add(BODY)
    original = begin_data_log(opened)
    opened.remove(kept[0])
    moved = opened.add(BODY)
    copy = begin_data_log(opened)
    opened.store.checkpointer.checkpoint()
    relocate(opened, original)
    ack = begin_data_log(opened)
    opened.remove(moved)
    begin_data_log(opened)
    assert not {dense, original, copy, ack} & set(opened.store.cleanup.delete_data_logs().deleted)
    assert_journal_tells_the_same(opened, disk)
    name_survivors(opened, original)
    begin_data_log(opened)
    assert {copy, ack} <= set(opened.store.cleanup.delete_data_logs().deleted)
    assert original in data_logs(disk) and sequences_of(opened) == [kept[1]]
    assert_journal_tells_the_same(opened, disk)
    name_survivors(opened, dense)
    assert original in opened.store.cleanup.delete_data_logs().deleted
    assert sequences_of(opened) == [kept[1]]
    assert_journal_tells_the_same(opened, disk)


def test_message_that_moved_twice_is_where_the_last_copy_lies_though_the_first_copy_is_gone() -> None:
    """The survivors record in between says that it is not in the first data log, which is still there."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    begin_data_log(opened)
    kept = opened.add(BODY), opened.add(BODY)
    original = begin_data_log(opened)
    opened.remove(kept[0])
    moved = [opened.add(BODY, BODY + b"1"), opened.add(b"single")]
    first_copy = begin_data_log(opened)
    opened.store.checkpointer.checkpoint()
    relocate(opened, original)
    begin_data_log(opened)
    name_survivors(opened, original)
    opened.store.checkpointer.checkpoint()
    begin_data_log(opened)
    relocate(opened, first_copy)
    begin_data_log(opened)
    assert first_copy in opened.store.cleanup.delete_data_logs().deleted and original in data_logs(disk)
    assert sequences_of(opened) == [kept[1], moved[0], moved[0] + 1, moved[1]]
    assert_journal_tells_the_same(opened, disk)


def test_survivors_record_stands_for_acks_that_are_gone() -> None:
    """Some messages of each slice are gone, the acks were in a data log that was deleted."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    dense = begin_data_log(opened)
    for n in range(20):
        opened.add(*(b"%d of %d" % (m, n) for m in range(32)))
    acks = begin_data_log(opened)
    for sequence in range(0, 640, 7):
        opened.remove(sequence, sequence + 2)
    begin_data_log(opened)
    assert acks not in opened.store.cleanup.delete_data_logs().deleted
    name_survivors(opened, dense)
    assert acks in opened.store.cleanup.delete_data_logs().deleted
    assert sequences_of(opened) == [n for n in range(640) if n % 7 > 2]
    assert_journal_tells_the_same(opened, disk)
    opened.remove(3, 4)
    relocate(opened, dense)
    assert dense in opened.store.cleanup.delete_data_logs().deleted
    assert sequences_of(opened) == [n for n in range(640) if n % 7 > 2 and n not in (3, 4)]
    assert_journal_tells_the_same(opened, disk)


def test_copies_keep_sequence_timestamp_headers_and_priority() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lanes = [opened.lane(name, priority) for name in ("orders", "prices") for priority in (0, 9)]
    for n in range(40):
        opened.clock.advance(n % 3)
        with opened.lock:
            contents = [(b"properties %d" % m, b"body %d of %d" % (m, n)) for m in range(n % 5)]
            together = Contents.of([(b"", b"%d" % n), *contents])
            opened.store.message_store.append_slice(lanes[n % 4], opened.clock.time_ms(), together)
    begin_data_log(opened)
    for lane in lanes:
        opened.remove(3, 5, lane)
        opened.remove(8, lane=lane)
    before = [opened.pending(lane) for lane in lanes]
    opened.store.checkpointer.checkpoint()
    relocate(opened, 1)
    assert opened.store.cleanup.delete_data_logs().deleted == (1,)
    assert [opened.pending(lane) for lane in lanes] == before
    assert_journal_tells_the_same(opened, disk)
    relocated = [found for _, found in all_records(disk) if found.header.flags & RELOCATED]
    assert {found.header.kind for found in relocated} == {MESSAGE}
    assert len(relocated) < sum(map(len, before)), "neighbours share a slice"


def test_neighbours_share_a_slice_while_their_timestamp_is_the_same_and_within_a_block() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    opened.add(b"so that looking at records in powers of two does not end where blocks do", lane=opened.lane("other"))
    for n in range(600):
        if n in (100, 550):
            opened.clock.advance(1)
        opened.add(b"%d" % n)
    begin_data_log(opened)
    opened.remove(120)
    before = opened.pending()
    opened.store.checkpointer.checkpoint()
    relocate(opened, 1)
    assert opened.store.cleanup.delete_data_logs().deleted == (1,)
    assert opened.pending() == before
    assert_journal_tells_the_same(opened, disk)
    copies = [decode_slice(*found[1:]) for _, found in all_records(disk) if found.header.flags & RELOCATED]
    assert {100, 121, 512, 550} <= {copy.first_sequence for copy in copies} and len(copies) < 20


def test_moved_messages_are_acknowledged_one_by_one() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    for n in range(8):
        opened.add(b"%d" % n)
    copies = begin_data_log(opened)
    opened.store.checkpointer.checkpoint()
    relocate(opened, 1)
    assert opened.store.cleanup.delete_data_logs().deleted == (1,)
    for sequence in (0, 7, 3, 4):
        assert opened.remove(sequence) == 1 and opened.remove(sequence) == 0
        assert_journal_tells_the_same(opened, disk)
    assert opened.store.index.data_log_uses[copies].pending_messages == 4 and sequences_of(opened) == [1, 2, 5, 6]


def test_large_messages_move() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    bodies = [Random(n).randbytes(size) for n, size in enumerate((10, 50 * KIB, 300 * KIB, 1 << 20, 20))]
    for body in bodies:
        opened.add(body)
    begin_data_log(opened)
    opened.store.checkpointer.checkpoint()
    originals = opened.store.cleanup.remover.relocatable()
    for data_log in sorted(originals):
        relocate(opened, data_log)
    assert set(opened.store.cleanup.delete_data_logs().deleted) == originals
    assert opened.bodies() == bodies
    assert_journal_tells_the_same(opened, disk)


def test_message_that_does_not_verify_stays_where_it_is_and_its_data_log_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    stuck = with_stuck_messages(opened, 12)
    lane = opened.lane()
    with opened.lock:
        (extent,) = lane.extents(stuck[5], stuck[5])
    file = disk.open(data_log_name(extent.data_log))
    file.seek(extent.offset + extent.record_bytes - 1)
    file.append(b"!")
    report = opened.store.cleanup.run()
    assert report.relocated_messages == 11 and extent.data_log in report.remaining
    assert len(report.remaining) <= 3
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert f"data-{extent.data_log}.log" in warning and f"sequence {stuck[5]}" in warning
    assert opened.store.cleanup.run().relocated_messages == 0, "it is not tried again and again"
    opened.check()


@pytest.mark.parametrize("is_dense", [False, True])
def test_data_log_that_cannot_be_walked_stays_as_it_is(is_dense: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It holds others for their acks; a cleanup ends all the same, and the next does not try again."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    other = opened.lane("other")
    damaged = begin_data_log(opened)
    offsets = []
    while opened.store.journal.offset < FILE_BYTES - 3000:
        offsets.append(opened.store.journal.offset)
        opened.add(BODY, lane=other)
    first = opened.add(BODY)
    opened.remove(0, 2 if is_dense else other.next_sequence - 3, other)
    chain_of_acks(opened, first, 8)
    file = disk.open(data_log_name(damaged))
    file.seek(offsets[5])
    file.append(bytes(32))
    pending = opened.store.disk_use.statistics().pending_messages
    for _ in range(2):
        report = opened.store.cleanup.run()
        assert report.relocated_messages == 0 and damaged in report.remaining
    assert opened.store.disk_use.statistics().pending_messages == pending
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    opened.check()


def test_nothing_is_copied_while_the_journal_is_small_enough() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    sequences = fill_data_log(opened)
    opened.remove(sequences[1], sequences[-1])
    begin_data_log(opened)
    assert opened.store.cleanup.run().relocated_messages == 0


@pytest.mark.parametrize(
    "messages, slice_messages, body_bytes, share",
    [(100_000, 32, 100, 0.5), (100_000, 32, 100, 0.95), (20_000, 1, 300, 0.5), (20_000, 1, 300, 0.1)],
)
def test_random_acks_leave_at_most_twice_what_is_live(
    messages: int, slice_messages: int, body_bytes: int, share: float
) -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk, max_checkpoint_adds=1 << 20)
    random = Random(messages + slice_messages)
    lane = opened.lane()
    for _ in range(messages // slice_messages):
        opened.add(*[random.randbytes(body_bytes) for _ in range(slice_messages)])
        if opened.store.index.is_filling:
            opened.store.checkpointer.checkpoint()
    doomed = random.sample(range(messages), int(messages * share))
    for sequence in doomed:
        opened.remove(sequence)
        if opened.store.index.is_filling:
            opened.store.checkpointer.checkpoint()
    begin_data_log(opened)
    opened.store.cleanup.run()
    assert sequences_of(opened, lane) == sorted(set(range(messages)) - set(doomed))
    assert_bounded(opened, disk)
    opened.check()
    opened.store.syncer.sync()
    again = opened_on(disk.crash_process())
    assert_same_places(again, opened)


def test_survivors_record_names_what_is_live() -> None:
    disk = SimulatedDisk()
    opened = opened_on(disk)
    other = opened.lane("other", 9)
    data_log = begin_data_log(opened)
    for _ in range(5):
        opened.add(b"orders")
        opened.add(b"a", b"b", b"c", lane=other)
    opened.remove(2, 3)
    opened.remove(0, 4, lane=other)
    begin_data_log(opened)
    opened.store.checkpointer.checkpoint()
    name_survivors(opened, data_log)
    ((_, found),) = [found for found in all_records(disk) if found[1].header.kind == SURVIVORS]
    named, ranges = decode_survivors(found.header, found.head)
    lane = opened.lane().number
    assert named == data_log and set(ranges) == {(lane, 0, 2), (lane, 4, 1), (other.number, 5, 10)}


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("is_naming", [False, True])
def test_message_acknowledged_while_it_is_read_stays_gone(is_naming: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading holds no lock; what is written is decided under the lock afterwards."""
    disk = SimulatedDisk()
    opened = opened_on(disk)
    lane = opened.lane()
    data_log = begin_data_log(opened)
    opened.add(*[BODY] * 10)
    for _ in range(10):
        opened.add(BODY)
    begin_data_log(opened)
    opened.store.checkpointer.checkpoint()

    def read_and_acknowledge(regions: list[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        found = read_regions(regions)
        gone = {4, 5, 13} & {sequence for sequence, *_ in found[0]}
        for sequence in gone:
            opened.remove(sequence, lane=lane)
        return found

    def look_through_and_acknowledge(file: File, offset: int, end: int) -> Any:
        piece = scan_piece(file, offset, end)
        if piece.behind == offset:
            opened.remove(4, 5, lane)
            opened.remove(13, lane=lane)
            begin_data_log(opened)
        return piece

    scan_piece = relocation_scan.scan_piece
    if is_naming:
        monkeypatch.setattr(relocation, "scan_piece", look_through_and_acknowledge)
        name_survivors(opened, data_log)
    else:
        monkeypatch.setattr(live_copying, "read_regions", read_and_acknowledge)
        relocate(opened, data_log)
    monkeypatch.undo()
    assert sequences_of(opened) == [n for n in range(20) if n not in (4, 5, 13)]
    assert_journal_tells_the_same(opened, disk)
    kinds = [found.header.kind for _, found in all_records(disk)]
    assert (SURVIVORS in kinds) == is_naming
    begin_data_log(opened)
    assert opened.store.cleanup.delete_data_logs().deleted, "with the acks, where a record names what is left"
    assert_journal_tells_the_same(opened, disk)


def test_relocation_gives_back_what_it_reserves_and_waits_where_there_is_no_memory() -> None:
    disk = SimulatedDisk()
    budget = Budget(1 << 20)
    holder = budget.holder("relocation", guaranteed_bytes=1 << 16)
    other = budget.holder("other")
    assert other.reserve(budget.free_bytes)
    opened = opened_on(disk, relocation_account=holder)
    lane = opened.lane("large")
    opened.add(bytes(200_000), lane=lane)
    with opened.lock:
        (large,) = [extent.data_log for extent in lane.extents(0, 0)]
    with_stuck_messages(opened, 12)
    report = opened.store.cleanup.run()
    assert report.relocated_messages and holder.held_bytes == 0
    opened.store.checkpointer.checkpoint()
    relocate(opened, large)
    assert large not in opened.store.cleanup.delete_data_logs().deleted, (
        "the large message needs more than is guaranteed"
    )
    other.release(other.held_bytes)
    with opened.lock:
        opened.store.cleanup.relocation._begin_round()
    relocate(opened, large)
    assert large in opened.store.cleanup.delete_data_logs().deleted and holder.held_bytes == 0
    budget._check()


def test_journal_stays_bounded_under_load_with_a_stuck_message_in_each_data_log() -> None:
    """Nobody calls cleanup; relocation takes its share beside the traffic."""
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")
    queue = store.queue()
    consumer = queue.subscribe(prefetch=1_000_000)
    stuck = []
    sizes = []
    for n in range(300):
        queue.send_many(Message(b"%d" % n + BODY) for _ in range(55))
        taken = consumer.take(55)
        assert len(taken) == 55
        stuck.append(taken.pop(20))
        consumer.ack(taken)
        store.clock.advance(1.1)
        store.bay.step()
        statistics = store.store.disk_use.statistics()
        sizes.append((statistics.journal_bytes - 3 * FILE_BYTES) / statistics.live_bytes)
    assert max(sizes[50:]) <= 3
    assert store.relocation.appended_bytes < store.journal.appended_bytes / 6
    store.check()
    consumer.ack(stuck[::2])
    store.reopen()
    consumer = store.queue().subscribe(prefetch=1_000_000)
    found = []
    while taken := consumer.take(1_000):
        found += taken
    assert [delivery.id for delivery in found] == [delivery.id for delivery in stuck[1::2]]


def test_idle_store_relocates_by_itself() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB", cleanup_interval_seconds=3600)
    queue = store.queue()
    consumer = queue.subscribe(prefetch=1_000_000)
    queue.send_many(Message(BODY) for _ in range(1500))
    taken = consumer.take(1500)
    consumer.ack([delivery for n, delivery in enumerate(taken) if n % 60 != 30])
    store.bay.checkpoint()
    for _ in range(8):
        store.clock.advance(1)
        store.bay.step()
    assert store.store.disk_use.statistics().data_logs <= 3
    assert store.relocation.messages >= 20
    assert not store.relocation.is_wanted


@pytest.mark.parametrize("is_busy", [True, False])
def test_beside_traffic_small_messages_are_not_packed_closer(is_busy: bool) -> None:
    """A data log half of acks is worth a copy; where bodies are far smaller than records, in idle time alone."""
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")
    queue = store.queue()
    consumer = queue.subscribe()
    for _ in range(12_000):
        queue.send(bytes(16))
    for _ in range(12):
        for _ in range(250):
            queue.send(bytes(16))
            consumer.ack(consumer.take(1)[0])
        store.clock.advance(1.1 if is_busy else 0.0)
        store.bay.step()
    if not is_busy:
        for _ in range(200):
            store.clock.advance(1.1)
            store.bay.step()
    assert bool(store.relocation.messages) is not is_busy
    store.check()


def test_what_is_due_beside_traffic_does_not_go_by_the_explicit_cleanup_before_it() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")
    queue = store.queue()
    consumer = queue.subscribe()
    store.bay.cleanup()
    for _ in range(12_000):
        queue.send(bytes(16))
    for _ in range(3_000):
        queue.send(bytes(16))
        consumer.ack(consumer.take(1)[0])
    store.clock.advance(1.1)
    store.bay.step()
    assert not store.relocation.messages, "small messages are packed closer in idle time alone"
