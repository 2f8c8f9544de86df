"""What closing one of many consumers costs, in calls of functions: not more than closing one of few."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from compiled import interpreted
from counting import counted_calls
from simulated_bay import SimulatedBay

from forebay import Consumer, Message

Maker = Callable[[SimulatedBay, int], list[Consumer]]


def equal(bay: SimulatedBay, count: int) -> list[Consumer]:
    return [bay.queue().subscribe() for _ in range(count)]


def called(bay: SimulatedBay, count: int) -> list[Consumer]:
    return [bay.queue().subscribe(on_ready=lambda: None) for _ in range(count)]


def holding(bay: SimulatedBay, count: int) -> list[Consumer]:
    consumers = [bay.queue().subscribe(prefetch=2) for _ in range(count)]
    bay.queue().send_many(Message(b"x") for _ in range(2 * count))
    assert all(len(consumer.take(2)) == 2 for consumer in consumers)
    return consumers


def with_groups(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send(b"x", group="g")
    return equal(bay, count)


def by_priority(bay: SimulatedBay, count: int) -> list[Consumer]:
    return [bay.queue().subscribe(priority=number % 10) for number in range(count)]


def exclusive(bay: SimulatedBay, count: int) -> list[Consumer]:
    return [bay.queue().subscribe(exclusive=True) for _ in range(count)]


def with_selectors(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send(b"x")
    return [bay.queue().subscribe(selector=f"n = {number}") for number in range(count)]


def of_a_topic(bay: SimulatedBay, count: int) -> list[Consumer]:
    return [bay.bay.topic("prices").subscribe() for _ in range(count)]


def close_each(bay: SimulatedBay, consumers: list[Consumer]) -> None:
    for consumer in consumers:
        consumer.close()


def close_store(bay: SimulatedBay, consumers: list[Consumer]) -> None:
    bay.bay.close()


@interpreted("counts calls of Python functions")
@pytest.mark.parametrize("close", [close_each, close_store])
@pytest.mark.parametrize(
    "make", [equal, called, holding, with_groups, by_priority, exclusive, with_selectors, of_a_topic]
)
def test_closing_costs_the_same_for_each_of_few_and_of_many_consumers(
    make: Maker, close: Callable[[SimulatedBay, list[Consumer]], None]
) -> None:
    def calls(count: int) -> int:
        bay = SimulatedBay(memory_limit="16MiB")
        consumers = make(bay, count)
        with counted_calls() as counted:
            close(bay, consumers)
        return counted.total()

    assert calls(400) < 2.5 * calls(200)


def test_what_closing_consumers_held_is_there_for_those_who_stay_in_order() -> None:
    bay = SimulatedBay()
    consumers = holding(bay, 30)
    Random(3).shuffle(consumers)
    for consumer in consumers[1:]:
        consumer.close()
        bay.check()
    last = consumers[0]
    last.prefetch = 100
    assert len(last.take(100)) == 58
    assert sorted(bay.queue_state().lanes[4].deliveries) == list(range(60))  # type: ignore[union-attr]
    bay.check()


def test_exclusive_consumers_take_over_by_priority_then_by_arrival() -> None:
    random = Random(7)
    bay = SimulatedBay()
    queue = bay.queue()
    first = queue.subscribe(exclusive=True, priority=9)
    waiting = [queue.subscribe(exclusive=True, priority=random.randrange(5)) for _ in range(40)]
    for consumer in random.sample(waiting, 25):
        waiting.remove(consumer)
        consumer.close()
    waiting += [queue.subscribe(exclusive=True, priority=random.randrange(5)) for _ in range(5)]
    heirs = sorted(waiting, key=lambda consumer: -consumer.priority)
    first.close()
    for at, heir in enumerate(heirs):
        queue.send(b"x")
        assert not any(consumer.take(1) for consumer in heirs[at + 1 :])
        heir.ack(heir.take(1))
        assert not queue.depth
        heir.close()
    bay.check()
