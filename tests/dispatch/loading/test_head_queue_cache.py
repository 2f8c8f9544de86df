"""HeadQueueCache: what a consumer or a browser that comes late is served from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from compiled import interpreted
from delivering import fill
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import Consumer, Message
from forebay.cache.messages.head_queue_cache import HeadQueueCache
from forebay.store.journal.regions import Region
from forebay.store.message_store import MessageStore
from forebay.store.stored_message import StoredMessage

KIB = 1024
MANY = 1000


def held_bytes(bay: SimulatedBay, holder: str = "head_queue_cache") -> int:
    return bay.bay.statistics().memory.holders[holder]


def served(bay: SimulatedBay) -> int:
    return bay.bay.statistics().caches["head_queue_cache"].served


def take(consumer: Consumer, count: int) -> list[str]:
    """The next ones, acknowledged; asked for in small batches."""
    ids: list[str] = []
    while len(ids) < count and (deliveries := consumer.take(min(50, count - len(ids)))):
        ids += [delivery.id for delivery in deliveries]
        consumer.ack(deliveries)
    return ids


# It fills.


def test_the_head_of_a_queue_without_a_consumer_stays_in_ram() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 3 * MANY)
    assert held_bytes(bay) > MANY * 600
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert take(consumer, MANY) == ids[:MANY]
        assert consumer.statistics().misses == 0
    assert bay.reads == reads, "the first 1,000 deliveries of a late consumer without a disk read"


def test_it_fills_at_start_up_from_the_head_of_the_queue() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 6 * MANY)
    bay.reopen()
    assert held_bytes(bay) == 0, "opening reads no message"
    bay.bay.step()
    share = bay.bay.statistics().caches["head_queue_cache"].share_bytes
    assert share * 0.9 < held_bytes(bay) <= share == 4096 * KIB
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert take(consumer, MANY) == ids[:MANY]
    assert bay.reads == reads
    assert served(bay) >= MANY
    bay.check()


@pytest.mark.parametrize("share_bytes", [None, 0])
def test_without_it_a_late_consumer_waits_for_the_disk(share_bytes: int | None) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, MANY)
    bay.reopen()
    if share_bytes is not None:
        bay.memories.common.head_queue_cache.resize(share_bytes)
    bay.bay.step()
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert len(take(consumer, MANY)) == MANY
    assert (bay.reads > reads) == (share_bytes == 0)


def test_each_queue_gets_its_part_and_the_priorities_of_a_queue_too() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    for number in range(20):
        fill(bay, 2 * MANY, f"q{number}")
    bay.queue("q0").send_many(Message(bytes(600), priority=9) for _ in range(10))
    bay.reopen()
    bay.bay.step()
    reads = bay.reads
    for number in range(20):
        with bay.queue(f"q{number}").subscribe() as consumer:
            assert len(take(consumer, 100)) == 100
            assert consumer.statistics().misses == 0
    bay.check()
    assert bay.reads == reads


def test_more_queues_than_it_has_room_for() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    for number in range(60):
        fill(bay, 2, f"q{number}", 25 * KIB)
    bay.reopen()
    bay.bay.step()
    share = bay.bay.statistics().caches["head_queue_cache"].share_bytes
    assert share - 26 * KIB < held_bytes(bay) <= share
    bay.check()


def test_a_message_too_large_to_be_held_does_not_stop_it() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    bay.queue().send(bytes(700 * KIB))
    ids = fill(bay, 100)
    bay.reopen()
    bay.bay.step()
    with bay.queue().subscribe() as consumer:
        consumer.take()[0].ack()
        reads = bay.reads
        assert take(consumer, 100) == ids
        assert bay.reads == reads


def test_it_takes_no_memory_from_anybody() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 3 * MANY)
    bay.reopen()
    host = bay.budget.holder("host")
    host.reserve(bay.budget.free_bytes - 100 * KIB)
    names = {*bay.budget.holders} - {"head_queue_cache", "index"}
    before = [held_bytes(bay, name) for name in names]
    bay.bay.step()
    assert 0 < held_bytes(bay) <= 100 * KIB
    assert [held_bytes(bay, name) for name in names] == before
    host.release(host.held_bytes)
    bay.check()


def test_what_arrives_after_start_up_goes_on_behind_the_head_and_leaves_no_gap() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 100)
    bay.reopen()
    ids += fill(bay, 100)
    bay.bay.step()
    ids += fill(bay, 100)
    assert bay.bay.statistics().caches["head_queue_cache"].messages == 300
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert take(consumer, 300) == ids
    assert bay.reads == reads


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("what", ["subscribe", "purge", "delete"])
def test_whatever_happens_while_it_reads(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 100)
    bay.reopen()
    consumers: list[Consumer] = []
    read = bay.store.message_store.read

    def interrupted(regions: object) -> object:
        monkeypatch.undo()
        if what == "subscribe":
            consumers.append(bay.queue().subscribe())
        elif what == "purge":
            bay.queue().purge()
        else:
            bay.queue().delete()
        return read(regions)  # type: ignore[arg-type]

    monkeypatch.setattr(bay.store.message_store, "read", interrupted)
    assert bay.warmer.step()
    bay.bay.step()
    bay.check()
    assert held_bytes(bay) == 0
    if consumers:
        assert take(consumers[0], 100) == ids


@interpreted("replaces what compiled code has linked")
@pytest.mark.parametrize("taken", [0, 5])
def test_a_subscription_may_end_while_its_head_is_read(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    bay.bay.topic("prices").subscribe(durable="ledger")
    bay.bay.topic("prices").send_many([Message(bytes(600)) for _ in range(1_000)])
    bay.reopen()
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="ledger") as consumer:
        assert len(take(consumer, taken)) == taken
    read = bay.store.message_store.read

    def interrupted(regions: Sequence[Region]) -> object:
        monkeypatch.undo()
        topic.unsubscribe("ledger")
        return read(regions)

    monkeypatch.setattr(bay.store.message_store, "read", interrupted)
    bay.warmer.step()
    assert held_bytes(bay) == 0
    bay.check()


@interpreted("replaces what compiled code has linked")
def test_who_needs_memory_while_its_first_messages_are_read_is_told_that_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 100)
    bay.reopen()
    budget, read = bay.budget, bay.store.message_store.read

    def interrupted(regions: object) -> object:
        assert held_bytes(bay) > 0, "what is being read is charged"
        bay.reclaim.make_room(budget.free_bytes + 1, None)
        return read(regions)  # type: ignore[arg-type]

    monkeypatch.setattr(bay.store.message_store, "read", interrupted)
    assert bay.warmer.step()
    assert held_bytes(bay) > 0
    bay.check()


@interpreted("replaces what compiled code has linked")
def test_a_read_that_fails_leaves_no_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 100)
    bay.reopen()

    def failing(regions: object) -> object:
        raise MemoryError

    monkeypatch.setattr(bay.store.message_store, "read", failing)
    with pytest.raises(MemoryError):
        bay.warmer.step()
    bay.check()
    assert held_bytes(bay) == held_bytes(bay, "read_buffers") == 0


def test_threads_fill_it(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="16MiB", sync="never") as bay:
        bay.queue("orders").send_many(Message(bytes(600)) for _ in range(MANY))
    with forebay.open(tmp_path, memory_limit="16MiB", sync="never") as bay:
        parts = inside(bay)
        # The loader's thread has nothing else to do: what it has not done when it is stopped was never begun.
        parts.stop_loading()
        while parts.warmer.step():
            pass
        assert bay.statistics().caches["head_queue_cache"].messages == MANY


# Whom it serves.


def test_a_browser_is_served_from_it() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, MANY)
    bay.reopen()
    bay.bay.step()
    reads = bay.reads
    assert [message.message_id for message in bay.queue().browse()] == ids
    assert bay.reads == reads
    assert served(bay) == MANY
    assert bay.bay.statistics().caches["head_queue_cache"].messages == MANY, "a browser takes nothing away"


# It shrinks, and returns.


def test_it_shrinks_to_nothing_under_sufficient_dispatching() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 8 * MANY)
    bay.reopen()
    bay.bay.step()
    levels = [held_bytes(bay)]
    with bay.queue().subscribe() as consumer:
        while take(consumer, 500):
            fill(bay, 400)
            bay.bay.step()
            levels.append(held_bytes(bay))
            if len(levels) > 20:
                break
        assert levels[0] > MANY * 600
        assert levels == sorted(levels, reverse=True)
        assert levels[-1] == 0, "deliveries took over"


def test_it_shrinks_as_the_pending_cache_grows() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    fill(bay, 5 * MANY, "idle")
    head = held_bytes(bay)
    host = bay.budget.holder("host")
    bay.queue().send(b"")
    with bay.queue().subscribe() as consumer:
        bay.bay.step()
        target = bay.lists()[0]
        while target.direct_bytes + 2 * KIB < target.high_watermark_bytes:
            fill(bay, 1)
        host.reserve(bay.budget.free_bytes)
        fill(bay, 500)
        pending = held_bytes(bay, "pending_cache")
        assert pending >= 500 * 600
        assert head - held_bytes(bay) >= pending
        assert consumer.statistics().direct_entries
    host.release(host.held_bytes)
    bay.check()


def test_the_newest_of_it_is_given_back_first() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 2 * MANY)
    bay.reopen()
    bay.bay.step()
    cache = bay.memories.common.head_queue_cache
    cache.give_back(held_bytes(bay) // 2)
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert take(consumer, 900) == ids[:900]
        assert bay.reads == reads


def test_it_returns_when_the_last_consumer_has_gone_for_the_next_one_that_comes() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    ids = fill(bay, 20 * MANY)
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        take(consumer, 10 * MANY)
        assert held_bytes(bay) == 0
    bay.bay.step()
    assert held_bytes(bay) > 3 * MANY * 600
    reads = bay.reads
    with bay.queue().subscribe() as consumer:
        assert take(consumer, MANY) == ids[10 * MANY : 11 * MANY]
    assert bay.reads == reads


def test_it_returns_when_memory_is_plentiful_again_and_not_before() -> None:
    # No checkpoint falls into it: what lists the destinations behind one reads the oldest message.
    bay = SimulatedBay(memory_limit="16MiB", checkpoint_interval_seconds=600.0)
    ids = fill(bay, 2 * MANY)
    host = bay.budget.holder("host")
    bay.reclaim.make_room(bay.budget.limit_bytes, None)
    assert held_bytes(bay) == 0
    host.reserve(bay.budget.free_bytes * 3 // 4)
    for _ in range(3):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert held_bytes(bay) == 0, "what is filled now would be given back at once"
    host.release(host.held_bytes)
    bay.clock.advance(1.0)
    bay.bay.step()
    assert held_bytes(bay) > MANY * 600
    reads = bay.reads
    for _ in range(3):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert bay.reads == reads, "nothing more to fill"
    with bay.queue().subscribe() as consumer:
        assert take(consumer, MANY) == ids[:MANY]


def test_a_cache_of_size_zero_never_has_anything() -> None:
    bay = SimulatedBay()
    cache = HeadQueueCache(bay.budget.holder("zero"), 0)
    assert not cache.fill(64, (0, b"", b"x", 0))
    assert not cache.put(64, (0, b"", b"x", 0))
    assert len(cache) == 0


def test_what_is_on_its_way_from_the_disk_is_in_the_ledger_and_in_its_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    fill(bay, 4 * MANY)
    bay.reopen()
    read = MessageStore.read
    audited: list[int] = []

    def audited_read(
        store: MessageStore, regions: Sequence[Region]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        bay.audit()
        audited.append(held_bytes(bay) + held_bytes(bay, "target_lists"))
        return read(store, regions)

    monkeypatch.setattr(MessageStore, "read", audited_read)
    bay.bay.step()
    assert audited and min(audited) > 0
    audited.clear()
    with bay.queue().subscribe() as consumer:
        assert len(take(consumer, 4 * MANY)) == 4 * MANY
    assert audited and min(audited) > 0
