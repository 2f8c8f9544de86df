"""What a reader of JMS looks for first, each in one small program: see docs/guide/jms.md."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Message, SubscriptionInUse


@pytest.fixture
def bay() -> SimulatedBay:
    return SimulatedBay()


def test_timestamp_is_the_time_of_the_send_and_not_of_the_delivery(bay: SimulatedBay) -> None:
    queue = bay.queue()
    sent_ms = bay.clock.time_ms()
    queue.send(b"tea")
    bay.clock.advance(60.0)
    with queue.subscribe() as consumer:
        [delivery] = consumer.take()
        assert delivery.timestamp == sent_ms
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        [delivery] = consumer.take()
        assert delivery.timestamp == sent_ms


def test_browse_changes_nothing(bay: SimulatedBay) -> None:
    queue = bay.queue()
    queue.send_many(Message(b"%d" % number) for number in range(100))
    before = queue.statistics()
    assert [int(message.body) for message in queue.browse()] == list(range(100))
    assert queue.statistics() == before
    with queue.subscribe() as consumer:
        assert [(int(each.body), each.attempts) for each in consumer.take(100)] == [(n, 1) for n in range(100)]
    bay.check()


def test_a_group_is_one_consumer_s_in_order_until_that_one_closes(bay: SimulatedBay) -> None:
    queue = bay.queue()
    queue.send_many(Message(b"%d" % number, group="tea") for number in range(6))
    first, second = queue.subscribe(prefetch=2), queue.subscribe(prefetch=2)
    for number in (0, 1):
        [delivery] = first.take(1)
        assert int(delivery.body) == number and not second.take(1, timeout=0)
        delivery.ack()
    first.close()
    assert [int(delivery.body) for delivery in second.take(2)] == [2, 3]
    second.close()
    bay.check()


def test_unsubscribe_is_refused_while_a_consumer_is_there_and_ends_the_subscription_after(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        topic.send(b"tea")
        with pytest.raises(SubscriptionInUse):
            topic.unsubscribe("audit")
        assert [delivery.body for delivery in consumer.take()] == [b"tea"]
    topic.unsubscribe("audit")
    assert "audit" not in topic.subscriptions()
    bay.check()
