"""With a ready consumer and a matching message something is delivered, whatever lies in front; and what that costs.

Costs are counted, in calls of functions, evaluations of selectors, bytes charged and reads, never timed.
"""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from compiled import interpreted
from counting import counted_calls
from simulated_bay import SimulatedBay

from forebay import Consumer, Message, Queue, StoreFull
from forebay.dispatch.selectors.selector import Selector

# ---------------------------------------------------------------------- whatever lies in front


@pytest.mark.slow
@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_a_message_behind_many_that_nobody_wants_is_delivered(count: int) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue = bay.queue()
    queue.send_many(Message(b"x", {"kind": "unwanted"}) for _ in range(count))
    queue.send(b"wanted", headers={"kind": "wanted"})
    reads = bay.reads
    with queue.subscribe(selector="kind = 'wanted'") as consumer:
        [delivery] = consumer.take(timeout=None)
        assert delivery.body == b"wanted"
        assert bay.reads - reads <= 2 * count / 512 + 10  # in large reads, each message once
        memory = bay.bay.statistics().memory
        assert memory.held_bytes_max <= memory.limit_bytes
        delivery.ack()
        reads = bay.reads
        queue.send(b"next", headers={"kind": "wanted"})
        assert consumer.take()[0].body == b"next"
        assert bay.reads == reads  # nothing is looked at twice


@pytest.mark.parametrize("group", [None, "mine"])
def test_a_consumer_that_holds_its_prefetch_stops_nobody(bay: SimulatedBay, group: str | None) -> None:
    queue = bay.queue()
    stuck, ready = queue.subscribe(prefetch=5), queue.subscribe()
    queue.send_many(Message(b"x", group=group) for _ in range(100))
    assert len(stuck.take(10)) == 5
    queue.send(b"next", group=None if group is None else "yours")
    got = 0
    while taken := ready.take(256):
        got += len(taken)
        last = taken[-1].body
        ready.ack(taken)
    assert last == b"next" and got == (1 if group else 96)


def test_full_windows_of_other_selectors_keep_nothing_from_a_consumer(bay: SimulatedBay) -> None:
    queue = bay.queue()
    queue.send_many(Message(bytes(50_000), {"kind": number % 5}) for number in range(200))  # more than twice the memory
    stuck = [queue.subscribe(selector=f"kind = {kind}", prefetch=1) for kind in range(4)]
    assert all(len(consumer.take(10, timeout=None)) == 1 for consumer in stuck)
    got = 0
    with queue.subscribe(selector="kind = 4", prefetch=8) as ready:
        while got < 40:
            taken = ready.take(8, timeout=1000.0)
            assert taken
            got += len(taken)
            ready.ack(taken)
    assert queue.depth == 160
    bay.check()


def test_at_full_memory_each_consumer_that_holds_nothing_is_served(bay: SimulatedBay) -> None:
    queue = bay.queue()
    hoarder = queue.subscribe(prefetch=0)
    queue.send_many(Message(b"x" * 2000) for _ in range(20_000))
    while hoarder.take(256):
        pass
    budget = bay.budget
    rest = budget.holder("host")
    while budget.free_bytes > 0 and rest.reserve(min(budget.free_bytes, 64)):
        pass
    bay.check()
    assert hoarder.in_flight and hoarder.take() == []
    for _ in range(20):
        with queue.subscribe() as consumer:
            [delivery] = consumer.take()
            assert delivery.body == b"x" * 2000
            delivery.ack()
        assert budget.held_bytes <= budget.limit_bytes


def test_at_full_memory_groups_are_served_too(bay: SimulatedBay) -> None:
    queue = bay.queue()
    hoarder, other = queue.subscribe(prefetch=0), queue.subscribe()
    queue.send_many(Message(b"x" * 2000, group="hoarded") for _ in range(5_000))
    while hoarder.take(256):
        pass
    queue.send_many(Message(b"y" * 2000, group="other") for _ in range(100))
    got = 0
    while taken := other.take():
        assert taken[0].body == b"y" * 2000
        other.ack(taken)
        got += 1
    assert got == 100
    bay.check()


def test_a_full_store_delivers_all_it_has() -> None:
    bay = SimulatedBay(store_limit="8MiB", max_file_length="1MiB")
    queue = bay.queue()
    with pytest.raises(StoreFull):
        while True:
            queue.send(b"x" * 10_000)
    depth = queue.depth
    assert depth > 100
    with queue.subscribe() as consumer:
        for _ in range(depth):
            consumer.ack(consumer.take())
    assert queue.depth == 0


# ---------------------------------------------------------------------- whose turn it is


@pytest.mark.parametrize("options", [{}, {"selector": "n >= 0"}, {"priority": 1}])
def test_no_ready_consumer_is_passed_over_more_than_twice_as_often_as_there_are_consumers(
    bay: SimulatedBay, options: dict[str, Any]
) -> None:
    queue, consumers, order = bay.queue(), 10, list[int]()

    def subscribe(number: int) -> None:
        def take() -> None:
            taken = ready[number].take()
            if taken:
                order.append(number)
                ready[number].ack(taken)
                ready[number].take()  # which finds nothing, so it is called again

        ready.append(queue.subscribe(on_ready=take, **options))
        ready[-1].take()

    ready: list[Consumer] = []
    for number in range(consumers):
        subscribe(number)
    for _ in range(500):
        queue.send(b"x", headers={"n": 1})
    assert len(order) == 500
    for number in range(consumers):
        turns = [-1, *(at for at, found in enumerate(order) if found == number), len(order)]
        assert max(after - before for before, after in zip(turns, turns[1:], strict=False)) <= 2 * consumers


# ---------------------------------------------------------------------- what many cost


def cost(consumers: int, messages: int, options: dict[str, Any], group: Callable[[int], str | None]) -> float:
    """Calls a message, of send, take and ack, taken in turn."""
    bay = SimulatedBay()
    queue = bay.queue()
    ready = [queue.subscribe(**options) for _ in range(consumers)]

    def work(count: int) -> None:
        for number in range(count):
            queue.send(b"x", headers={"n": number}, group=group(number))
        left, turn = count, 0
        while left:
            taken = ready[turn % consumers].take(16)
            ready[turn % consumers].ack(taken)
            left -= len(taken)
            turn += 1

    work(messages)
    with counted_calls() as calls:
        work(messages)
    return calls.total() / messages


@interpreted("calls nothing that a profiler sees")
@pytest.mark.parametrize("options", [{}, {"selector": "n >= 0"}, {"priority": 3}])
def test_a_hundred_equal_consumers_cost_less_than_twice_what_one_costs(options: dict[str, Any]) -> None:
    assert cost(100, 3200, options, lambda _: None) <= 2 * cost(1, 3200, options, lambda _: None)


@interpreted("calls nothing that a profiler sees")
def test_a_hundred_owners_of_groups_cost_less_than_twice_what_one_costs() -> None:
    def group(number: int) -> str:
        return f"customer {number % 1000}"

    assert cost(100, 6400, {}, group) <= 2 * cost(1, 6400, {}, group)


@interpreted("calls nothing that a profiler sees")
def test_a_hundred_consumers_of_two_priorities_cost_less_than_twice_what_two_cost() -> None:
    def calls_a_message(consumers: int) -> float:
        queue, messages = SimulatedBay().queue(), 1600
        ready = [queue.subscribe(priority=number % 2, prefetch=4) for number in range(consumers)]
        for _ in range(messages):
            queue.send(b"x")
        with counted_calls() as calls:
            for number in range(messages):
                queue.send(b"x")
                consumer = ready[number % consumers]
                consumer.ack(consumer.take())
        return calls.total() / messages

    assert calls_a_message(100) <= 2 * calls_a_message(2)


@interpreted("replaces what compiled code has linked")
def test_a_message_is_matched_once_for_a_hundred_consumers_with_one_selector(
    bay: SimulatedBay, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bay.queue()
    evaluated = count_evaluations(monkeypatch)
    for _ in range(100):
        queue.subscribe(selector="n > 0")
    for number in range(50):
        queue.send(b"x", headers={"n": number})
    assert evaluated == {"n>0": 50}


def count_evaluations(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each selector is evaluated."""
    evaluated: Counter[str] = Counter()
    original = Selector.__getattribute__

    def look(self: Selector, name: str) -> Any:
        found = original(self, name)
        if name in ("matches", "condition"):
            evaluated[original(self, "text")] += 1
        return found

    monkeypatch.setattr(Selector, "__getattribute__", look)
    return evaluated


@interpreted("replaces what compiled code has linked")
@pytest.mark.slow
@pytest.mark.parametrize("in_batches", [True, False])
def test_ten_thousand_selectors_of_a_topic_are_matched_without_evaluating_equal_ones_twice(
    monkeypatch: pytest.MonkeyPatch, in_batches: bool
) -> None:
    bay = SimulatedBay(memory_limit="256MiB")
    topic = bay.bay.topic("prices")
    readers = [
        topic.subscribe(selector=f"symbol = 'S{number % 100}' OR n = {number % 100}") for number in range(10_000)
    ]
    evaluated = count_evaluations(monkeypatch)
    messages = [Message(b"x", {"symbol": "S7", "n": 8}), Message(b"y", {"symbol": "S8", "n": 1000})]
    if in_batches:
        topic.send_many(messages)
    else:
        for message in messages:
            topic.send(message.body, headers=message.headers)
    assert len(evaluated) == 100 and set(evaluated.values()) == {2}
    assert [len(reader.take(10)) for reader in readers[:10]] == [0] * 7 + [1, 2, 0]


def test_an_idle_destination_costs_at_most_four_kib() -> None:
    bay = SimulatedBay(memory_limit="32MiB")
    count = 2_000

    def use(names: range) -> list[Queue]:
        queues = [bay.queue(f"tenant {name}") for name in names]
        for queue in queues:
            queue.send(b"x", persistent=True)
            with queue.subscribe() as consumer:
                consumer.ack(consumer.take())
        return queues

    use(range(100))
    bay.bay.checkpoint()
    held = bay.bay.statistics().memory.held_bytes
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        use(range(1000, 1000 + count))
        bay.bay.checkpoint()
        traced = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert traced / count <= 4096  # what the simulated disk keeps of them included
    assert bay.bay.statistics().memory.held_bytes - held <= 5120 * count  # blocks of the index included
