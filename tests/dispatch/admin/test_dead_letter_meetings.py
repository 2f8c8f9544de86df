"""Dead letters and back-off beside message groups and messages with times."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message


def failing(**policy: Any) -> SimulatedBay:
    """With queues whose messages are given up after two attempts."""
    return SimulatedBay(policies={">": DestinationPolicy(max_attempts=2, **policy)})


@pytest.mark.parametrize("persistent", [True, False])
def test_group_goes_on_as_soon_as_its_first_message_is_a_dead_letter(persistent: bool) -> None:
    simulated = failing()
    orders = simulated.queue()
    orders.send_many([Message(b"%d" % n, group="a", persistent=persistent) for n in range(3)])
    consumer, other = orders.subscribe(), orders.subscribe()
    for _ in range(2):
        (delivery,) = consumer.take(1)
        assert delivery.body == b"0"
        delivery.nack()
    assert [delivery.body for delivery in consumer.take(9)] == [b"1", b"2"]
    assert other.take(9) == []
    simulated.check()
    simulated.bay.step()
    (dead,) = simulated.queue("DLQ.orders").subscribe().take(9)
    assert (dead.body, dead.group) == (b"0", "a")
    simulated.check()


def test_back_off_halts_the_group_and_nothing_else() -> None:
    simulated = failing(redelivery_delay_seconds=5.0)
    orders = simulated.queue()
    orders.send_many([Message(b"a1", group="a"), Message(b"a2", group="a"), Message(b"none")])
    consumer = orders.subscribe()
    consumer.take(1)[0].nack()
    assert [delivery.body for delivery in consumer.take(9)] == [b"none"]
    simulated.clock.advance(5)
    simulated.bay.step()
    first, second = consumer.take(9)
    assert (first.body, first.attempts, second.body, second.attempts) == (b"a1", 2, b"a2", 1)
    first.nack()
    second.nack()
    simulated.bay.step()
    assert [message.body for message in simulated.queue("DLQ.orders").browse()] == [b"a1"]
    simulated.check()


def test_group_of_a_rolled_back_transaction_waits_for_its_back_off() -> None:
    simulated = failing(redelivery_delay_seconds=5.0)
    orders = simulated.queue()
    orders.send_many([Message(b"a1", group="a"), Message(b"a2", group="a")])
    consumer = orders.subscribe(prefetch=1)
    transaction = simulated.bay.transaction()
    consumer.ack(consumer.take(), transaction=transaction)
    transaction.rollback()
    assert consumer.take(9) == []
    simulated.clock.advance(5)
    simulated.bay.step()
    assert [(delivery.body, delivery.attempts) for delivery in consumer.take(1)] == [(b"a1", 2)]
    simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_dead_letter_does_not_expire(persistent: bool) -> None:
    simulated = failing()
    orders = simulated.queue()
    orders.send(b"1", expires_in=60, persistent=persistent)
    with orders.subscribe() as consumer:
        for _ in range(2):
            consumer.take()[0].nack()
    simulated.bay.step()
    simulated.clock.advance(600)
    simulated.bay.step()
    (dead,) = simulated.queue("DLQ.orders").subscribe().take(9)
    assert (dead.body, dead.headers["dead_letter_from"]) == (b"1", "orders")
    simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_what_came_back_and_then_expires_leaves_no_count(persistent: bool) -> None:
    simulated = failing()
    orders = simulated.queue()
    orders.send(b"1", expires_in=60, persistent=persistent)
    with orders.subscribe() as consumer:
        consumer.take()[0].nack()
        assert simulated.index.delivery_count_table.held_bytes > 0
        simulated.clock.advance(600)
        assert consumer.take(1) == []
        simulated.bay.step()
    assert orders.depth == 0 and simulated.index.delivery_count_table.held_bytes == 0
    simulated.check()


def test_message_that_was_sent_with_a_delay_is_given_up_like_any_other() -> None:
    simulated = failing()
    orders = simulated.queue()
    orders.send(b"late", delay=30)
    simulated.clock.advance(30)
    simulated.bay.step()
    with orders.subscribe() as consumer:
        for attempt in (1, 2):
            (delivery,) = consumer.take()
            assert delivery.attempts == attempt
            delivery.nack()
    simulated.bay.step()
    (dead,) = simulated.queue("DLQ.orders").subscribe().take(9)
    assert dead.body == b"late"
    simulated.check()


def test_group_goes_on_when_a_closed_consumer_s_transaction_gives_up_its_message() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(max_attempts=1)})
    orders = simulated.queue()
    orders.send_many([Message(b"a1", group="a"), Message(b"a2", group="a")])
    consumer, other = orders.subscribe(), orders.subscribe()
    transaction = simulated.bay.transaction()
    consumer.ack(consumer.take(1), transaction=transaction)
    consumer.close()
    assert other.take(9) == []
    transaction.rollback()
    assert [delivery.body for delivery in other.take(9)] == [b"a2"]
    simulated.check()
