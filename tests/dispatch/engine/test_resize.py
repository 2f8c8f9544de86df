"""Another memory limit while everything goes on: what it moves at once, what it waits for, and what it says of that."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import Closed, Consumer, Delivery, Message, MessageTooLarge, SettingsError
from forebay.dispatch.engine import resizing
from forebay.dispatch.engine.curve_watch import LIMIT_BYTES, TRACK_BYTES
from forebay.store.metadata.memory_store import MemoryMetadataStore
from forebay.store.metadata.sqlite import SqliteMetadataStore

KIB, MIB = 1024, 1024 * 1024


def fill(bay: SimulatedBay, name: str, messages: int, size: int = KIB) -> None:
    body = bytes(size)
    bay.queue(name).send_many(Message(body) for _ in range(messages))


def limit_of(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.limit_bytes


def in_flight(bay: SimulatedBay, wanted_bytes: int, size: int = KIB) -> tuple[Consumer, list[Delivery]]:
    """A consumer that holds so much."""
    consumer = bay.queue("held").subscribe(prefetch=0)
    deliveries: list[Delivery] = []
    while bay.dispatch_area.dispatch_holder.held_bytes < wanted_bytes:
        fill(bay, "held", 1000, size)
        deliveries += consumer.take(1000)
        bay.bay.step()
    return consumer, deliveries


# What moves with the limit.


def test_everything_that_follows_from_the_limit_is_as_if_the_store_had_been_opened_with_it() -> None:
    bay, fresh = SimulatedBay(memory_limit="64MiB"), SimulatedBay(memory_limit="8MiB")
    for limit in ("8MiB", "64MiB", "8MiB"):
        assert bay.bay.resize(limit).is_settled
    for store in (bay, fresh):
        store.queue().send(b"x")
        store.queue().subscribe()
    assert bay.bay.settings == fresh.bay.settings
    assert bay.watermarks.shares == fresh.watermarks.shares
    assert bay.message_limit == fresh.message_limit
    assert bay.watermarks.shares.large_message_bytes == fresh.watermarks.shares.large_message_bytes
    for name in ("dispatch_bytes_max", "in_flight_bytes_max"):
        assert getattr(bay.dispatch_area, name) == getattr(fresh.dispatch_area, name), name
    assert bay.memories.common.head_queue_cache.share_bytes == fresh.memories.common.head_queue_cache.share_bytes
    assert bay.memories.common.pending_cache.share_bytes == fresh.memories.common.pending_cache.share_bytes
    assert bay.windows.persistent.limit_bytes == fresh.windows.persistent.limit_bytes
    assert bay.index.cache._capacity_blocks == fresh.index.cache._capacity_blocks
    # The curve goes on with the limits around the one at the open, and takes memory for each of them.
    curve_bytes = [
        TRACK_BYTES + LIMIT_BYTES * len(store.bay.statistics().memory.curve.points) for store in (bay, fresh)
    ]
    assert bay.budget.free_bytes + curve_bytes[0] == fresh.budget.free_bytes + curve_bytes[1]
    for name, holder in bay.budget.holders.items():
        same = fresh.budget.holders[name]
        held_bytes = [holder.held_bytes, same.held_bytes]
        assert held_bytes == curve_bytes if name == "curve" else held_bytes[0] == held_bytes[1], name
        assert holder.guaranteed_bytes == same.guaranteed_bytes, name
    assert bay.lists()[0].high_watermark_bytes == fresh.lists()[0].high_watermark_bytes


@pytest.mark.parametrize("limit", ["3MiB", 4 * MIB - 1, "much", -1, 4.0, True, b"8MiB"])
def test_what_settings_refuses_is_refused_and_changes_nothing(limit: Any) -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    with pytest.raises(SettingsError, match="memory_limit"):
        bay.bay.resize(limit)
    assert limit_of(bay) == bay.bay.settings.memory_limit_bytes == 8 * MIB


def test_a_limit_below_twice_the_index_cache_that_was_asked_for_is_refused() -> None:
    bay = SimulatedBay(memory_limit="64MiB", index_cache_size="8MiB")
    with pytest.raises(SettingsError, match="index_cache_size"):
        bay.bay.resize("12MiB")
    assert bay.bay.resize("16MiB").is_settled


def test_a_closed_store_says_so() -> None:
    bay = SimulatedBay()
    bay.bay.close()
    with pytest.raises(Closed):
        bay.bay.resize("8MiB")


def test_the_next_open_has_the_limit_of_its_settings() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    bay.bay.resize("16MiB")
    bay.reopen()
    assert limit_of(bay) == 8 * MIB


def test_a_message_above_the_new_limit_is_refused_by_a_queue_that_was_made_before() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send(bytes(6 * MIB))
    bay.bay.resize("4MiB")
    for send in (queue.send, lambda body: queue.send_many([Message(body)])):
        with pytest.raises(MessageTooLarge) as caught:
            send(bytes(4 * MIB + 1))
        assert (caught.value.limit, caught.value.limit_bytes) == ("memory_limit", 4 * MIB)
    bay.bay.resize("16MiB")
    queue.send(bytes(4 * MIB + 1))


def test_messages_larger_than_the_new_limit_stay_deliverable() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    bodies = [bytes([number]) * (7 * MIB) for number in range(3)]
    consumer = bay.queue().subscribe()
    for body in bodies:
        bay.queue().send(body)
    assert bay.lists()[0].direct_bytes > 4 * MIB
    report = bay.bay.resize("4MiB")
    assert report.is_settled and report.held_bytes <= 4 * MIB
    for body in bodies:
        (delivery,) = consumer.take()
        assert delivery.body == body
        delivery.ack()
    bay.check()


def test_a_larger_limit_is_used() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    consumer = bay.queue().subscribe()
    fill(bay, "orders", 12_000)
    bay.bay.step()
    before = consumer.statistics().watermark_bytes
    bay.bay.resize("64MiB")
    bay.bay.step()
    assert before < 4 * MIB < 10 * MIB < consumer.statistics().watermark_bytes
    bay.check()


def test_a_larger_limit_lets_those_take_whom_memory_kept_waiting() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    fill(bay, "orders", 20_000, 100)
    calls: list[int] = []
    consumer = bay.queue().subscribe(prefetch=0, on_ready=lambda: calls.append(1))
    while consumer.take(1000):
        bay.bay.step()
    assert bay.dispatch_area.is_short
    calls.clear()
    bay.bay.resize("8MiB")
    assert calls
    assert consumer.take(1000)


# Giving back.


def full_caches(**fields: Any) -> SimulatedBay:
    """A list at its watermark, the PendingCache behind it, the head of a queue without a consumer."""
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB", **fields)
    fill(bay, "unread", 20_000)
    bay.queue().subscribe()
    fill(bay, "orders", 32_000)
    holders = bay.bay.statistics().memory.holders
    assert all(holders[name] > 10 * MIB for name in ("target_lists", "pending_cache", "head_queue_cache"))
    return bay


def test_full_caches_are_given_back_at_once() -> None:
    bay = full_caches()
    report = bay.bay.resize("8MiB")
    assert report.is_settled and not report.awaited
    assert report.limit_bytes == limit_of(bay) == 8 * MIB >= report.held_bytes
    holders = bay.bay.statistics().memory.holders
    shares = bay.watermarks.shares
    assert holders["pending_cache"] <= shares.pending_cache_bytes
    assert holders["head_queue_cache"] <= shares.head_queue_cache_bytes <= 2 * MIB
    assert holders["target_lists"] <= 3 * MIB
    bay.check()


def test_the_head_queue_cache_gives_before_the_pending_cache_and_that_before_the_lists() -> None:
    bay = full_caches()
    order = ("head_queue_cache", "pending_cache", "target_lists")
    budget = bay.budget
    while budget.holders["target_lists"].held_bytes > 2 * KIB:
        before = [budget.holders[name].held_bytes for name in order]
        budget.resize(budget.committed_bytes - MIB)
        bay.reclaim.make_room(0, None)
        after = [budget.holders[name].held_bytes for name in order]
        assert budget.free_bytes >= 0 or not any(after[:2])
        for giver, later in ((0, 1), (1, 2)):
            assert after[giver] == 0 or after[later] == before[later], f"{order[later]} gave before {order[giver]}"


def test_nothing_is_lost_and_the_order_stays() -> None:
    bay = SimulatedBay(memory_limit="32MiB", max_file_length="8MiB")
    consumer = bay.queue().subscribe(prefetch=0)
    bay.queue().send_many(Message(b"%6d" % number + bytes(KIB)) for number in range(20_000))
    numbers: list[int] = []
    for limit in ("8MiB", "4MiB", "64MiB", "4MiB", "16MiB"):
        for _ in range(15):
            deliveries = consumer.take(256)
            numbers += [int(delivery.body[:6]) for delivery in deliveries]
            consumer.ack(deliveries)
            bay.bay.step()
        bay.bay.resize(limit)
        bay.check()
    while deliveries := consumer.take(256):
        numbers += [int(delivery.body[:6]) for delivery in deliveries]
        consumer.ack(deliveries)
    assert numbers == list(range(20_000))


# What must be awaited.


def test_what_is_in_flight_is_awaited_and_the_limit_falls_as_it_is_settled() -> None:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    consumer, deliveries = in_flight(bay, 24 * MIB)
    report = bay.bay.resize("8MiB")
    assert not report.is_settled
    assert set(report.awaited) == {"dispatch_area"}
    assert report.awaited["dispatch_area"] == bay.dispatch_area.dispatch_holder.held_bytes > 24 * MIB
    assert report.held_bytes <= report.limit_bytes <= report.held_bytes + 2 * MIB
    limits = [report.limit_bytes]
    for begin in range(0, len(deliveries), 1000):
        consumer.ack(deliveries[begin : begin + 1000])
        memory = bay.bay.statistics().memory
        assert memory.held_bytes <= memory.limit_bytes
        limits.append(memory.limit_bytes)
        bay.check()
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == 8 * MIB and len(set(limits)) > 10
    bay.bay.step()
    assert not bay.resizing.is_under_way


def test_while_it_is_awaited_nobody_is_without_a_delivery_and_nothing_else_is_charged() -> None:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    _, deliveries = in_flight(bay, 24 * MIB)
    fill(bay, "orders", 2000)
    bay.bay.resize("8MiB")
    bay.bay.statistics()
    others = [bay.queue().subscribe() for _ in range(40)]
    held = [other.take(10) for other in others]
    assert all(len(mine) == 1 for mine in held)
    assert not any(other.take(1) for other in others)
    for mine in held:
        assert mine[0].body == bytes(KIB)
        mine[0].ack()
    assert others[0].take(1)
    fill(bay, "orders", 100)
    memory = bay.bay.statistics().memory
    assert memory.held_bytes <= memory.limit_bytes
    assert memory.holders["pending_cache"] == memory.holders["head_queue_cache"] == 0
    bay.check()
    assert deliveries


def test_it_can_be_settled_in_a_transaction() -> None:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    consumer, deliveries = in_flight(bay, 24 * MIB)
    assert not bay.bay.resize("8MiB").is_settled
    for begin in range(0, len(deliveries), 500):
        with bay.bay.transaction() as transaction:
            consumer.ack(deliveries[begin : begin + 500], transaction=transaction)
        bay.bay.statistics()
    assert limit_of(bay) == 8 * MIB
    bay.check()


@pytest.mark.parametrize("is_disk_full", [False, True])
def test_non_persistent_messages_that_come_back_while_the_limit_falls_are_kept(is_disk_full: bool) -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    consumer = bay.queue().subscribe(prefetch=0)
    sent = 16_000
    bay.queue().send_many(Message(b"%05d" % number + bytes(KIB), persistent=False) for number in range(sent))
    deliveries = consumer.take(sent)
    assert len(deliveries) == sent
    if is_disk_full:
        bay.disk.capacity_bytes = 0
    report = bay.bay.resize("8MiB")
    assert not report.is_settled
    consumer.nack(deliveries[::2])
    bay.check()
    bay.bay.step()
    memory = bay.bay.statistics().memory
    assert memory.held_bytes <= memory.limit_bytes
    assert (memory.holders["spill_buffer"] > 4 * MIB) == is_disk_full
    bay.disk.capacity_bytes = 1 << 40
    consumer.ack(deliveries[1::2])
    bay.bay.step()
    bay.bay.step()
    assert limit_of(bay) == 8 * MIB and not bay.resizing.is_under_way
    numbers = []
    while deliveries := consumer.take(256):
        numbers += [int(delivery.body[:5]) for delivery in deliveries]
        consumer.ack(deliveries)
    assert numbers == list(range(0, sent, 2))
    bay.check()


def test_destinations_above_what_the_new_limit_has_room_for_are_awaited() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queues = [bay.queue(f"q{number}") for number in range(4000)]
    for queue in queues[::100]:
        queue.send(bytes(100))
    report = bay.bay.resize("4MiB")
    held = bay.budget.holders["destinations"].held_bytes
    assert not report.is_settled and report.awaited == {"destinations": held}
    while len(queues) > 500:
        queues.pop().delete()  # a handle that is kept is charged
    bay.clock.advance(1.0)
    bay.bay.step()
    assert not bay.resizing.is_under_way and limit_of(bay) == 4 * MIB
    bay.check()


def test_a_larger_limit_ends_what_a_smaller_one_awaits() -> None:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    in_flight(bay, 24 * MIB)
    assert not bay.bay.resize("8MiB").is_settled
    report = bay.bay.resize("64MiB")
    assert report.is_settled and not report.awaited and report.limit_bytes == 64 * MIB
    assert bay.bay.resize("40MiB").is_settled
    bay.check()


def test_a_load_under_way_is_awaited_and_what_it_brings_is_given_back() -> None:
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    fill(bay, "orders", 30_000)
    consumer = bay.queue().subscribe()
    bay.memories.common.head_queue_cache.give_back(64 * MIB)
    in_flight(bay, 5 * MIB)
    target = consumer.selector_group.lists[0]
    with bay.lock:
        load = bay.loader.begin(target, is_needed=False)
    assert load is not None and load.regions
    bay.clock.jumps = True
    report = bay.bay.resize("4MiB")
    assert not report.is_settled and {"target_lists", "read_buffers"} <= set(report.awaited)
    assert report.seconds == pytest.approx(resizing.PAUSES_MAX * resizing.PAUSE_SECONDS), "of the store's clock"
    bay.loader.finish(load)
    bay.bay.step()
    assert bay.dispatch_area.lists_holder.held_bytes < 2 * MIB
    bay.check()


# The index.


def spread(bay: SimulatedBay, queues: int) -> None:
    """Dirty blocks: one for each queue and priority."""
    for number in range(queues):
        for priority in range(10):
            bay.queue(f"q{number}").send(b"x", priority=priority)


def test_dirty_blocks_are_written_and_leave() -> None:
    bay = SimulatedBay(memory_limit="256MiB", max_checkpoint_adds=1_000_000)
    spread(bay, 30)
    index = bay.index
    assert len(index.cache.dirty) == 300 > MIB // 4 // 5632
    report = bay.bay.resize("4MiB")
    assert report.is_settled and limit_of(bay) == 4 * MIB
    assert index.held_bytes <= 4 * MIB // 16
    assert bay.budget.holders["index"].guaranteed_bytes == 4 * MIB // 8 * 3 // 4
    bay.check()
    for number in range(30):
        with bay.queue(f"q{number}").subscribe() as consumer:
            assert [consumer.take()[0].priority for _ in range(10)] == list(range(9, -1, -1))


def test_an_index_that_finds_no_disk_is_awaited_and_acks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.store.metadata.metadata_store import MetadataFull

    bay = SimulatedBay(memory_limit="256MiB", max_checkpoint_adds=1_000_000)
    spread(bay, 30)
    metadata = bay.metadata_store
    commit = metadata.commit

    def fail(*_: Any, **__: Any) -> None:
        raise MetadataFull("no room")

    monkeypatch.setattr(metadata, "commit", fail)
    report = bay.bay.resize("4MiB")
    assert not report.is_settled
    assert report.awaited["index"] == bay.index.held_bytes > MIB
    for number in range(30):
        with bay.queue(f"q{number}").subscribe() as consumer:
            consumer.ack(consumer.take(5))
    bay.check()
    monkeypatch.setattr(metadata, "commit", commit)
    bay.bay.checkpoint()
    bay.bay.step()
    assert limit_of(bay) == 4 * MIB and not bay.resizing.is_under_way
    bay.check()


def test_sqlite_lets_its_pages_go(tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path), bytes(16), 4096, 8 * MIB)
    assert store.load() is None
    store.commit(0, 1, b"root", [(1, number, bytes(3000)) for number in range(500)])
    assert store.resize_cache(MIB) == MIB
    for connection in (store._writer, store._reader):
        assert isinstance(connection, sqlite3.Connection)
        assert connection.execute("PRAGMA cache_size").fetchone() == (-512,)
    assert store.read_block(1, 499) == bytes(3000)
    store.commit(1, 1, b"root", [(1, 7, b"new")])
    assert store.read_block(1, 7) == b"new"
    store.close()
    assert store.resize_cache(2 * MIB) == 2 * MIB


def test_rows_in_ram_keep_the_room_that_acks_need() -> None:
    store = MemoryMetadataStore(100_000)
    store.commit(0, 1, b"", [(1, number, bytes(744)) for number in range(30)])
    assert store.held_bytes == 30_000
    assert store.resize_cache(10_000) == 60_000
    assert store.resize_cache(80_000) == 80_000
    store.commit(1, 1, b"", [], [(1, number) for number in range(30)])
    assert store.resize_cache(10_000) == 10_000


def test_an_index_in_ram_alone_gives_back_what_its_rows_do_not_need(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"persistent_index": False, "sync": "never", "background": False}
    with forebay.open(tmp_path, memory_limit="64MiB", **fields) as bay:
        queue = bay.queue("orders")
        queue.send_many(Message(b"x") for _ in range(300_000))
        bay.checkpoint()
        report = bay.resize("4MiB")
        holders = bay.statistics().memory.holders
        assert holders["metadata_store"] <= 2 * MIB
        queue.purge()
        bay.checkpoint()
        bay.step()
        assert report.held_bytes <= report.limit_bytes
        assert bay.statistics().memory.holders["metadata_store"] == MIB // 2
        assert bay.statistics().memory.limit_bytes == 4 * MIB
        inside(bay).audit()


# The system.


@interpreted("replaces what compiled code has linked")
def test_memory_goes_back_to_the_system_after_a_smaller_limit_and_once_more_when_it_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(resizing, "return_free_memory", lambda: calls.append(1))
    bay = SimulatedBay(memory_limit="64MiB", max_file_length="8MiB")
    bay.bay.resize("128MiB")
    assert not calls
    consumer, deliveries = in_flight(bay, 24 * MIB)
    bay.bay.resize("8MiB")
    assert len(calls) == 1
    bay.bay.step()
    assert len(calls) == 1
    consumer.ack(deliveries)
    bay.bay.step()
    assert len(calls) == 2
    bay.bay.step()
    assert len(calls) == 2


def test_a_c_library_without_a_way_to_give_back_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    from forebay.cache.process.process_memory import return_free_memory

    def fail(*_: object) -> None:
        raise OSError("no such library")

    return_free_memory()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    return_free_memory()
    monkeypatch.setattr(ctypes, "CDLL", fail)
    return_free_memory()


# Threads.


def together(*work: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"


def test_up_and_down_under_traffic(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"sync": "never", "max_file_length": "1MiB", "max_checkpoint_adds": 500}
    with forebay.open(tmp_path, memory_limit="4MiB", **fields) as bay:
        is_over = threading.Event()
        seen: list[int] = []

        def produce() -> None:
            for number in range(6000):
                bay.queue("orders").send(b"%6d" % number + bytes(number % 3000))

        def consume() -> None:
            try:
                consumer = bay.queue("orders").subscribe(prefetch=500)
                while len(seen) < 6000:
                    deliveries = consumer.take(50, timeout=None)
                    seen.extend(int(delivery.body[:6]) for delivery in deliveries)
                    consumer.ack(deliveries)
            finally:
                is_over.set()

        def resize(seed: int) -> None:
            random = Random(seed)
            while not is_over.is_set():
                report = bay.resize(random.choice(("4MiB", "6MiB", "16MiB", "64MiB")))
                memory = bay.statistics().memory
                assert memory.held_bytes <= memory.limit_bytes and report.held_bytes <= report.limit_bytes
                with inside(bay).lock:
                    inside(bay).budget._check()

        together(produce, consume, lambda: resize(1), lambda: resize(2))
        assert seen == list(range(6000))
        assert bay.resize("4MiB").is_settled
        assert bay.statistics().memory.limit_bytes == 4 * MIB
        assert inside(bay).watermarks.shares.limit_bytes == 4 * MIB
        inside(bay).index._check()
        inside(bay).audit()


@pytest.mark.parametrize("round_", range(5))
def test_a_close_in_the_middle_of_it(tmp_path: Path, round_: int) -> None:
    bay = forebay.open(tmp_path, memory_limit="64MiB", sync="never")
    bay.queue("orders").subscribe()
    bay.queue("orders").send_many(Message(bytes(KIB)) for _ in range(2000))
    is_under_way = threading.Event()

    def resize() -> None:
        try:
            while True:
                bay.resize("4MiB")
                is_under_way.set()
                bay.resize("64MiB")
        except Closed:
            pass

    def close() -> None:
        is_under_way.wait(10)
        bay.close()

    together(resize, resize, close)
    with forebay.open(tmp_path) as bay:
        assert bay.recovery.clean
        assert bay.queue("orders").depth == 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_childs_copy_refuses(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", background=False) as bay:
        child = os.fork()
        if not child:
            try:
                bay.resize("4MiB")
            except Closed:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert bay.resize("4MiB").is_settled
