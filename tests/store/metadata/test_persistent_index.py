"""persistent_index=False: nothing of the index is on disk, each open replays, and its RAM is bounded."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from inside import inside, open_forebay
from message_stores import OpenStore
from metadata_stores import change_at, history_until
from simulated_disk import SimulatedDisk

import forebay
from forebay import Forebay, Message, StoreFailed, StoreFull
from forebay.dispatch.config.settings import Settings
from forebay.store.metadata.memory_store import ROW_BYTES, MemoryMetadataStore
from forebay.store.metadata.metadata_store import MetadataDamaged, MetadataFull
from forebay.testing import ManualClock

PLACES = "kr-store/data/places.db"


def opened(directory: Path, **fields: Any) -> Forebay:
    defaults: dict[str, Any] = {"memory_limit": "8MiB", "sync": "never", "background": False}
    return forebay.open(directory, **(defaults | fields))


def bodies(bay: Forebay) -> list[int]:
    consumer = bay.queue("orders").subscribe(prefetch=0)
    found: list[int] = []
    while taken := consumer.take(1000):
        found += [int(delivery.body) for delivery in taken]
        consumer.ack(taken)
    return found


def test_rows_are_what_was_put_and_their_bytes_are_counted() -> None:
    store = MemoryMetadataStore(1 << 20)
    assert store.load() is None
    for position in range(1, 60):
        change_at(position).commit_to(store)
        store._check()
        expected = history_until(position)
        assert {place: store.read_block(*place) for place in expected} == expected
        assert store.held_bytes == sum(len(packed) + ROW_BYTES for packed in expected.values())
    with pytest.raises(MetadataDamaged):
        store.read_block(99, 0)
    store.clear()
    assert store.held_bytes == 0


def test_a_checkpoint_above_the_capacity_changes_nothing() -> None:
    store = MemoryMetadataStore(10 * ROW_BYTES)
    store.commit(1, 0, b"", [(0, block, b"") for block in range(7)])
    assert not store.is_filling
    store.commit(1, 0, b"", [(0, 7, b"")])
    assert store.is_filling
    with pytest.raises(MetadataFull, match="persistent_index=True"):
        store.commit(2, 0, b"", [(0, block, b"x" * 2 * ROW_BYTES) for block in range(3)], [(0, 7)])
    assert store.read_block(0, 0) == b"" and store.read_block(0, 7) == b""
    store.commit(2, 0, b"", [], [(0, 7), (0, 6)])
    assert not store.is_filling
    store._check()


def test_every_open_replays_everything_and_no_index_is_on_disk(tmp_path: Path) -> None:
    for round_ in range(3):
        with opened(tmp_path, persistent_index=False) as bay:
            assert bay.recovery.index_rebuilt == (round_ > 0)
            assert bay.recovery.clean
            assert bay.recovery.replayed_records >= 4 * round_
            bay.queue("orders").send_many(Message(b"%d" % (round_ * 1000 + n)) for n in range(1000))
            bay.checkpoint()
            assert not (tmp_path / "localhost" / PLACES).exists()
    with opened(tmp_path, persistent_index=False) as bay:
        assert bodies(bay) == list(range(3000))
    with opened(tmp_path, persistent_index=False) as bay:
        assert bodies(bay) == []


def test_the_setting_may_change_at_each_open(tmp_path: Path) -> None:
    """What an older index on disk says is never taken up again."""
    expected: list[int] = []
    chosen = Random(4)
    for round_ in range(8):
        with opened(tmp_path, persistent_index=round_ % 2 == 0, max_file_length="64KiB") as bay:
            orders = bay.queue("orders")
            assert orders.depth == len(expected)
            numbers = range(round_ * 1000, round_ * 1000 + 700)
            orders.send_many(Message(b"%d" % n) for n in numbers)
            expected += numbers
            bay.checkpoint()
            gone = chosen.randrange(len(expected))
            with orders.subscribe(prefetch=0) as consumer:
                taken = consumer.take(gone) if gone else []
                while len(taken) < gone:
                    taken += consumer.take(gone - len(taken))
                assert [int(delivery.body) for delivery in taken] == expected[:gone]
                consumer.ack(taken)
            del expected[:gone]
            bay.cleanup()
    with opened(tmp_path) as bay:
        assert bodies(bay) == expected


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        try:
            bay = opened(tmp_path, persistent_index=False)
            bay.queue("orders").send_many(Message(b"%d" % n) for n in range(3000))
            with bay.queue("orders").subscribe(prefetch=0) as consumer:
                consumer.ack(consumer.take(1))
            bay.checkpoint()
            bay.queue("orders").send(b"3000")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with opened(tmp_path, persistent_index=False) as bay:
        assert bodies(bay) == list(range(1, 3001))


def test_its_rows_are_a_fixed_part_of_the_memory_limit(tmp_path: Path) -> None:
    with opened(tmp_path, persistent_index=False) as bay:
        memory = bay.statistics().memory
        assert memory.holders["metadata_store"] == 1 << 20
        assert memory.held_bytes <= memory.limit_bytes == 8 << 20


def small(disk: SimulatedDisk, capacity_bytes: int) -> tuple[OpenStore, MemoryMetadataStore]:
    rows = MemoryMetadataStore(capacity_bytes)
    return OpenStore(disk, rows, max_file_bytes=1 << 20), rows


def test_where_the_index_is_full_messages_are_refused_and_acks_make_room() -> None:
    store, rows = small(SimulatedDisk(), 6 * (1 << 10))
    lane = store.lane()
    sent = 0
    with pytest.raises(StoreFull, match="persistent_index=False"):
        while True:
            store.add(*[b""] * 32)
            sent += 32
            if sent % 256 == 0:
                store.store.checkpointer.checkpoint()
    assert sent > 1024
    with pytest.raises(StoreFull):
        store.add(b"one")
    random = Random(8)
    pending = list(range(sent))
    while rows.is_filling:
        for _ in range(100):
            store.remove(pending.pop(random.randrange(len(pending) // 2)))
        assert store.store.checkpointer.checkpoint()
        rows._check()
        store.check()
    store.add(b"one")
    assert [sequence for sequence, *_ in store.pending(lane)] == [*pending, sent]


def test_a_backlog_that_needs_more_index_than_there_may_be_is_refused_at_open_and_stays_whole() -> None:
    disk = SimulatedDisk()
    store, _ = small(disk, 1 << 20)
    for n in range(4000):
        store.add(*[b""] * 32)
        if n % 500 == 0:
            store.store.checkpointer.checkpoint()
    store.store.close()
    with pytest.raises(StoreFailed, match="persistent_index=True"):
        small(disk.crash_process(), 4 << 10)
    again, _ = small(disk.crash_process(), 1 << 20)
    assert len(again.pending()) == 4000 * 32


def test_a_backlog_of_which_only_the_rows_have_no_room_takes_acks_and_no_messages() -> None:
    disk = SimulatedDisk()
    store, _ = small(disk, 1 << 20)
    for _ in range(600):
        store.add(*[b""] * 32)
    store.store.close()
    again, rows = small(disk, 4 << 10)
    assert len(again.pending()) == 600 * 32
    with pytest.raises(StoreFull):
        again.add(b"one")
    with pytest.raises(StoreFull, match=r"persistent_index=False: .*, or raise memory_limit"):
        again.store.checkpointer.require_index_room(1 << 20)
    again.remove(0, 580 * 32)
    assert again.store.checkpointer.checkpoint()
    again.add(b"one")
    assert len(again.pending()) == 20 * 32
    rows._check()
    again.check()


def test_the_engine_survives_a_full_index_with_its_ledger_right() -> None:
    settings = Settings(persistent_index=False, memory_limit="4MiB", sync="never", background=False)
    bay = open_forebay(SimulatedDisk(), lambda _, capacity: MemoryMetadataStore(capacity), settings, ManualClock(1))
    orders = bay.queue("orders")
    with pytest.raises(StoreFull) as full:
        orders.send_many(Message(b"%d" % n, priority=n % 10) for n in range(10_000_000))
    assert full.value.stored == orders.depth > 10_000
    inside(bay).audit()
    consumer = orders.subscribe(prefetch=0)
    done = 0
    while taken := consumer.take(5000):
        consumer.ack(taken)
        done += len(taken)
    assert done == full.value.stored
    bay.checkpoint()
    orders.send(b"again")
    inside(bay).audit()


def test_where_the_index_is_full_a_transaction_sends_no_more_either_and_commits_what_it_has() -> None:
    settings = Settings(persistent_index=False, memory_limit="4MiB", sync="never", background=False)
    bay = open_forebay(SimulatedDisk(), lambda _, capacity: MemoryMetadataStore(capacity), settings, ManualClock(1))
    random, sent = Random(1), 0
    with pytest.raises(StoreFull, match="persistent_index=False"):
        while True:
            with bay.transaction() as transaction:
                messages = [Message(bytes(random.randrange(300)), priority=n % 10) for n in range(500)]
                bay.queue("orders").send_many(messages, transaction=transaction)
            sent += 500
    assert bay.queue("orders").depth == sent and inside(bay).store.checkpointer.checkpoint()
    assert bay.queue("orders").purge() == sent and inside(bay).store.checkpointer.checkpoint()
    with bay.transaction() as transaction:
        bay.queue("orders").send(b"again", transaction=transaction)
    assert bay.queue("orders").depth == 1
