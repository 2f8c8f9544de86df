"""A consumer that holds nothing gets a message, whatever fills memory."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Delivery

KIB = 1024


def be_idle(bay: SimulatedBay) -> None:
    """Let the loader and maintenance do what they can for now."""
    for _ in range(300):
        if not bay.step():
            break
    bay.let_pass(1.0)
    bay.housekeep()


@pytest.mark.parametrize("greedy", [50, 80])
def test_a_consumer_that_holds_nothing_gets_a_message_where_others_and_their_charges_fill_memory(greedy: int) -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=f"subscription {number}") for number in range(100)]
    for _ in range(20):
        topic.send(bytes(64 * KIB))
    held: list[Delivery] = []
    taken = -1
    while len(held) > taken:
        taken = len(held)
        for consumer in consumers[:greedy]:
            held += consumer.take(10)
        be_idle(bay)
    for consumer in consumers[greedy:]:
        assert len(consumer.take(10)) == 1, "before anybody settles one"
        bay.check()
    assert bay.dispatch_area.is_short
    assert consumers[0].take() == []
    for consumer in consumers[greedy:]:
        assert consumer.take() == [], "who holds one must settle it"
    memory = bay.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes


def test_a_consumer_that_holds_nothing_gets_a_message_as_often_as_it_settles_one() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=f"subscription {number}") for number in range(100)]
    for _ in range(20):
        topic.send(bytes(64 * KIB))
    last = consumers.pop()
    with bay.full_memory():
        for _ in range(20):
            for consumer in consumers[:50]:
                consumer.take(10)
            (delivery,) = last.take(10)
            assert last.take() == []
            last.ack(delivery)
            bay.check()
