"""What explaining a queue with many consumers costs, in calls of functions: by their number, not by its square."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from compiled import interpreted
from counting import counted_calls
from simulated_bay import SimulatedBay

from forebay import Consumer, Message

Maker = Callable[[SimulatedBay, int], list[Consumer]]


def equal(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send_many(Message(b"x") for _ in range(2 * count))
    return [bay.queue().subscribe() for _ in range(count)]


def with_groups(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send_many(Message(b"x", group=f"g{n}") for n in range(2 * count))
    return [bay.queue().subscribe() for _ in range(count)]


def by_priority(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send_many(Message(b"x", group=f"g{n}") for n in range(2 * count))
    return [bay.queue().subscribe(priority=number % 3) for number in range(count)]


def with_selectors(bay: SimulatedBay, count: int) -> list[Consumer]:
    bay.queue().send_many(Message(b"x", headers={"n": n}) for n in range(2 * count))
    return [bay.queue().subscribe(selector=f"n = {n}") for n in range(count)]


def calls_of_explaining(maker: Maker, count: int) -> int:
    bay = SimulatedBay()
    consumers = maker(bay, count)
    for consumer in consumers:
        consumer.take(1)
    with counted_calls() as calls:
        causes = bay.bay.explain(bay.queue()).causes
    assert causes
    return sum(calls.values())


@interpreted("calls nothing that a profiler sees")
@pytest.mark.parametrize("maker", [equal, with_groups, by_priority, with_selectors])
def test_explaining_a_queue_of_many_consumers_costs_by_their_number(maker: Maker) -> None:
    few, many = (calls_of_explaining(maker, count) for count in (20, 80))
    assert many < 5 * few, (few, many)
