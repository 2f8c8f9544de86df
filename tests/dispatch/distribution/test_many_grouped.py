"""The owner of a new group is found without asking every consumer of the queue."""

from __future__ import annotations

from typing import Any

import pytest
from compiled import interpreted
from counting import counted_calls
from simulated_bay import SimulatedBay

from forebay import Message


@interpreted("counts calls of functions")
@pytest.mark.parametrize("prefetch", [0, 10])
def test_a_new_group_is_given_away_in_as_many_steps_however_many_consumers_found_nothing(prefetch: int) -> None:
    def cost(consumers: int) -> int:
        bay = SimulatedBay(memory_limit="64MiB")
        queue = bay.queue()
        queue.send(b"x", group="first")
        those = [queue.subscribe(prefetch=prefetch) for _ in range(consumers)]
        those[0].ack(those[0].take(1))
        for consumer in those:
            assert not consumer.take(1)
        queue.send_many([Message(b"x", group=f"account {n}") for n in range(40)])
        those[0].take(1)  # those that do not wait are passed over once
        with counted_calls() as calls:
            for _ in range(30):
                those[0].take(1)
        bay.check()
        return calls["demand_within"] + calls["FlowControlledConsumer.demand"] + calls["IdleConsumers._eligible"]

    few, many = cost(20), cost(320)
    assert many <= few + 100


def test_a_consumer_that_found_nothing_gets_groups_in_turn_with_the_others() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"x", group="first")
    those = [queue.subscribe(prefetch=100) for _ in range(4)]
    those[0].ack(those[0].take(1))
    for consumer in those:
        assert not consumer.take(1)
    queue.send_many([Message(b"x", group=f"account {n}") for n in range(40)])
    had: list[Any] = [[] for _ in those]
    while any(taken := [consumer.take(100) for consumer in those]):
        for own, deliveries in zip(had, taken, strict=True):
            own += deliveries
    assert sum(map(len, had)) == 40
    assert all(deliveries for deliveries in had)
    bay.check()
