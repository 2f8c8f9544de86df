"""What statistics count since the open: bytes that came and left, and durations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from compiled import interpreted
from inside import open_forebay
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay.aio
from forebay import Forebay, Message, Queue, Settings
from forebay.dispatch.engine.statistics import DestinationStatistics, destination_statistics
from forebay.store.environment.locks import OwnedLock
from forebay.store.index.index import Index
from forebay.testing import ManualClock


def in_and_out(figures: DestinationStatistics) -> tuple[int, int]:
    assert figures.bytes == figures.enqueued_bytes - figures.dequeued_bytes
    return figures.enqueued_bytes, figures.dequeued_bytes


def test_bytes_come_with_what_is_sent_and_leave_with_what_is_acknowledged() -> None:
    bay = SimulatedBay().bay
    orders = bay.queue("orders")
    orders.send_many(Message(b"x" * 100, persistent=n % 2 == 0) for n in range(10))
    assert in_and_out(orders.statistics()) == (1_000, 0)
    consumer = orders.subscribe()
    for _ in range(4):
        consumer.ack(consumer.take(1))
    assert in_and_out(orders.statistics()) == (1_000, 400)
    consumer.nack(consumer.take(1))
    assert in_and_out(orders.statistics()) == (1_000, 400)
    assert bay.statistics().destinations["orders"].enqueued_bytes == 1_000


def leave_by_purge(queue: Queue) -> None:
    queue.purge()


def leave_by_move(queue: Queue) -> None:
    queue.move("elsewhere")


def leave_by_reject(queue: Queue) -> None:
    consumer = queue.subscribe()
    consumer.reject(consumer.take(10))


@pytest.mark.parametrize("leave", [leave_by_purge, leave_by_move, leave_by_reject])
@pytest.mark.parametrize("persistent", [True, False])
def test_bytes_leave_whatever_way_messages_leave(leave: Any, persistent: bool) -> None:
    bay = SimulatedBay().bay
    orders = bay.queue("orders")
    orders.send_many(Message(b"x" * 100, persistent=persistent) for _ in range(10))
    leave(orders)
    bay.step()
    assert in_and_out(orders.statistics()) == (1_000, 1_000)


def test_bytes_that_were_there_before_the_open_count_only_when_they_leave(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="8MiB", background=False) as bay:
        bay.queue("orders").send_many(Message(b"x" * 100) for _ in range(10))
    with forebay.open(tmp_path, memory_limit="8MiB", background=False) as bay:
        orders = bay.queue("orders")
        orders.send(b"x" * 50)
        consumer = orders.subscribe()
        consumer.ack(consumer.take(3))
        figures = orders.statistics()
        assert (figures.enqueued_bytes, figures.dequeued_bytes, figures.bytes) == (50, 300, 750)


def test_relocation_neither_brings_nor_takes_bytes() -> None:
    store = SimulatedBay(max_file_length="64KiB", memory_limit="8MiB")
    orders = store.bay.queue("orders")
    for _ in range(20):
        orders.send_many(Message(b"x" * 1_000) for _ in range(50))
    consumer = orders.subscribe(prefetch=0)
    while taken := consumer.take(50):
        consumer.ack(taken[1:])
    assert store.bay.cleanup().relocated_messages
    assert in_and_out(orders.statistics()) == (1_000_000, 1_000_000 - 1_000 * consumer.in_flight)


def test_topic_counts_bytes_once_and_each_subscription_from_where_it_began() -> None:
    bay = SimulatedBay().bay
    prices = bay.topic("prices")
    prices.send(b"x" * 100)  # nobody has subscribed
    first = prices.subscribe(durable="first")
    prices.send(b"x" * 10)
    prices.subscribe(durable="second").close()
    prices.send(b"x")
    prices.send(b"x" * 1_000, persistent=False)
    first.ack(first.take(1))
    figures = prices.statistics()
    assert figures.enqueued_bytes == 1_111
    assert in_and_out(figures.subscriptions["first"]) == (1_011, 10)
    second = prices.subscribe(durable="second")
    assert in_and_out(prices.statistics().subscriptions["second"]) == (1, 0)
    second.ack(second.take(1))
    assert in_and_out(prices.statistics().subscriptions["second"]) == (1, 1)


# Durations.


class TickingClock(ManualClock):
    """One on which a millisecond passes with each look."""

    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


class Timed:
    """A store by a clock that ticks."""

    def __init__(self, **fields: Any) -> None:
        defaults: dict[str, Any] = {"background": False, "memory_limit": "8MiB", "sync": "never"}
        settings = Settings(**(defaults | fields))
        clock = TickingClock(jumps=True)
        self.bay: Forebay = open_forebay(SimulatedDisk(), SimulatedMetadataStore(), settings, clock)
        self._before = self.bay.statistics().durations

    def new(self, kind: str) -> tuple[int, float]:
        """Return how many there are since the last question, or the open, and their seconds."""
        before, self._before = self._before, self.bay.statistics().durations
        found = self._before[kind]
        assert sum(found.buckets) == found.count
        return found.count - before[kind].count, round(found.total_seconds - before[kind].total_seconds, 6)


def test_what_an_undecided_transaction_acknowledged_is_in_flight() -> None:
    simulated = SimulatedBay()
    orders = simulated.queue()
    orders.send_many(Message(b"%d" % n) for n in range(3))
    consumer = orders.subscribe()
    held, acknowledged = consumer.take(2)
    transaction = simulated.bay.transaction()
    acknowledged.ack(transaction=transaction)
    assert where(orders) == (3, 1, 2)
    transaction.prepare(b"1")
    assert where(orders) == (3, 1, 2)
    consumer.close()
    simulated.crash()
    assert where(simulated.queue()) == (3, 2, 1)
    [branch] = simulated.bay.prepared()
    branch.commit()
    assert where(simulated.queue()) == (2, 2, 0)
    simulated.check()


@interpreted("replaces a property of the library")
def test_what_a_nack_delayed_is_not_in_flight_though_the_index_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = SimulatedBay()
    orders = simulated.queue()
    orders.send_many(Message(b"%d" % n) for n in range(3))
    with monkeypatch.context() as patch, orders.subscribe() as consumer:
        patch.setattr(Index, "is_nearly_full", True)
        first, second = consumer.take(2)
        first.nack(delay=10)
        second.nack(delay=10)
        assert where(orders) == (3, 1, 0)
        assert orders.purge() == 3
    orders.send(b"3")
    assert where(orders) == (1, 1, 0)
    with monkeypatch.context() as patch, orders.subscribe() as consumer:
        patch.setattr(Index, "is_nearly_full", True)
        [delivery] = consumer.take()
        delivery.nack(delay=10)
    for _ in range(2):
        simulated.bay.step()
        assert where(orders) == (1, 0, 0)
    simulated.clock.advance(11)
    simulated.bay.step()
    assert where(orders) == (1, 1, 0)
    simulated.check()


def where(queue: Queue) -> tuple[int, int, int]:
    found = queue.statistics()
    return found.depth, found.ready, found.in_flight


def test_each_sync_of_the_journal_is_measured() -> None:
    timed = Timed(sync="always")
    orders = timed.bay.queue("orders")
    timed.new("sync")
    orders.send(b"x")
    orders.send_many(Message(b"x") for _ in range(10))
    assert timed.new("sync") == (2, 0.002)


def test_checkpoint_that_has_nothing_to_store_is_not_measured() -> None:
    timed = Timed()
    timed.bay.queue("orders").send(b"x")
    timed.bay.checkpoint()
    count, seconds = timed.new("checkpoint")
    assert count == 1 and seconds >= 0.001
    timed.bay.checkpoint()
    assert timed.new("checkpoint") == (0, 0.0)


def test_loads_and_takes_that_wait_for_them_are_measured_and_takes_out_of_ram_are_not() -> None:
    timed = Timed()
    orders = timed.bay.queue("orders")
    orders.send_many(Message(b"x" * 1_000) for _ in range(30_000))
    consumer = orders.subscribe(prefetch=0)
    takes = taken = 0
    while taken < 30_000:
        messages = consumer.take(100)
        new_takes = timed.bay.statistics().durations["take"].count
        assert new_takes - takes in (0, 1)
        takes = new_takes
        taken += len(messages)
        consumer.ack(messages)
    loads = timed.bay.statistics().durations["load"].count
    assert 0 < takes < 300
    assert loads >= takes and timed.bay.statistics().durations["load"].max_seconds >= 0.001
    assert timed.bay.statistics().durations["take"].max_seconds >= 0.001


def test_take_that_gets_nothing_is_not_measured() -> None:
    timed = Timed()
    orders = timed.bay.queue("orders")
    consumer = orders.subscribe()
    assert consumer.take() == consumer.take(timeout=5.0) == []
    assert timed.new("take") == (0, 0.0)
    orders.send(b"x")
    assert len(consumer.take(timeout=5.0)) == 1
    assert timed.new("take") == (0, 0.0), "it was in RAM"


def test_take_of_a_loop_that_waited_is_measured(tmp_path: Path) -> None:
    async def wait() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="8MiB") as bay:
            orders = await bay.queue("orders")
            async with orders.subscribe() as consumer:
                waiting = asyncio.create_task(consumer.take(timeout=None))
                await asyncio.sleep(0)
                await orders.send(b"x")
                assert len(await waiting) == 1
                assert (await bay.statistics()).durations["take"].count == 1

    asyncio.run(wait())


@interpreted("replaces what enters the lock")
def test_statistics_of_a_topic_let_others_have_the_lock_between_its_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    topic = bay.bay.topic("prices")
    for n in range(1_000):
        topic.subscribe(durable=f"audit {n}").close()
    topic.send(b"tea 4.20")
    seen = most = 0

    def count(*arguments: Any) -> DestinationStatistics:
        nonlocal seen
        seen += 1
        return destination_statistics(*arguments)

    def entered(lock: OwnedLock) -> bool:
        nonlocal seen, most
        most, seen = max(most, seen), 0
        return enter(lock)

    enter = OwnedLock.__enter__
    monkeypatch.setattr("forebay.dispatch.engine.statistics.destination_statistics", count)
    monkeypatch.setattr(OwnedLock, "__enter__", entered)
    assert {figures.depth for figures in topic.statistics().subscriptions.values()} == {1}
    assert len(bay.bay.statistics().topics["prices"].subscriptions) == 1_000
    assert 0 < most <= 100


def test_an_offline_subscription_counts_the_bytes_of_lanes_that_began_while_nobody_read() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    prices.send(b"before")
    for name in ("new", "used"):
        with prices.subscribe(durable=name) as consumer:
            prices.send(b"12")
            consumer.ack(consumer.take(10) if name == "used" else ())
    prices.send(b"345", priority=9)
    found = prices.statistics().subscriptions
    assert (found["new"].enqueued, found["new"].enqueued_bytes, found["new"].depth) == (3, 7, 3)
    assert (found["used"].enqueued, found["used"].enqueued_bytes, found["used"].depth) == (2, 5, 1)
    assert found["used"].dequeued_bytes == 2
    with prices.subscribe(durable="used"), prices.subscribe(durable="new"):
        again = prices.statistics().subscriptions
        assert {name: (each.enqueued, each.enqueued_bytes) for name, each in again.items()} == {
            "new": (3, 7),
            "used": (2, 5),
        }
