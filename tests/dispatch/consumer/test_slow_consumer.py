"""A slow consumer is noticed, told to whoever asked, and stops nobody."""

from __future__ import annotations

import logging

import pytest
from delivering import numbers
from simulated_bay import SimulatedBay

from forebay import Consumer, DestinationPolicy, Message, Queue, SettingsError


def send(queue: Queue, count: int, group: str | None = None) -> None:
    queue.send_many(Message(b"%d" % number, group=group) for number in range(count))


def wait(bay: SimulatedBay, seconds: int) -> None:
    for _ in range(seconds):
        bay.clock.advance(1.0)
        bay.bay.step()


def is_slow(bay: SimulatedBay, consumer: Consumer) -> bool:
    [found] = bay.bay.statistics().destinations.values()
    assert found.slow_consumers == consumer.statistics().is_slow
    return consumer.statistics().is_slow


def test_one_that_holds_messages_and_settles_none_becomes_slow(bay: SimulatedBay, queue: Queue) -> None:
    told: list[Consumer] = []
    consumer = queue.subscribe(on_slow=told.append)
    send(queue, 2)
    held = consumer.take(2)
    wait(bay, 29)
    assert not is_slow(bay, consumer)
    wait(bay, 3)
    assert is_slow(bay, consumer) and told == [consumer]
    wait(bay, 60)
    assert told == [consumer]
    consumer.ack(held[0])
    wait(bay, 1)
    assert not is_slow(bay, consumer)
    wait(bay, 31)
    assert told == [consumer, consumer]


def test_one_that_does_not_take_what_is_there_becomes_slow(bay: SimulatedBay, queue: Queue) -> None:
    consumer = queue.subscribe()
    wait(bay, 100)
    assert not is_slow(bay, consumer)  # there is nothing to take
    send(queue, 1)
    wait(bay, 32)
    assert is_slow(bay, consumer)
    consumer.ack(consumer.take())
    wait(bay, 100)
    assert not is_slow(bay, consumer)


def test_one_that_goes_on_however_slowly_is_not_slow(bay: SimulatedBay, queue: Queue) -> None:
    consumer = queue.subscribe()
    send(queue, 10)
    for _ in range(10):
        consumer.ack(consumer.take())
        wait(bay, 25)
        assert not is_slow(bay, consumer)


def test_one_that_is_kept_from_taking_is_not_slow(bay: SimulatedBay, queue: Queue) -> None:
    consumer, exclusive = queue.subscribe(), queue.subscribe(exclusive=True)
    send(queue, 1)
    wait(bay, 100)
    assert not consumer.statistics().is_slow and exclusive.statistics().is_slow


def test_the_log_says_it(bay: SimulatedBay, queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    consumer = queue.subscribe()
    send(queue, 3)
    consumer.take(3)
    with caplog.at_level(logging.WARNING, "forebay.dispatch"):
        wait(bay, 100)
    [record] = caplog.records
    assert "'orders'" in record.message and "30 s" in record.message and "3 messages" in record.message


def test_the_policy_says_how_long() -> None:
    policies = {
        "fast": DestinationPolicy(slow_consumer_seconds=2),
        "never": DestinationPolicy(slow_consumer_seconds=None),
    }
    bay = SimulatedBay(policies=policies)
    fast, never, usual = (bay.queue(name).subscribe() for name in ("fast", "never", "usual"))
    for name in ("fast", "never", "usual"):
        send(bay.queue(name), 1)
    wait(bay, 4)
    assert [consumer.statistics().is_slow for consumer in (fast, never, usual)] == [True, False, False]
    wait(bay, 1000)
    assert [consumer.statistics().is_slow for consumer in (fast, never, usual)] == [True, False, True]


@pytest.mark.parametrize("seconds", [0, -1, True, "30", float("nan"), 1e9])
def test_what_is_no_time_is_refused(seconds: object) -> None:
    with pytest.raises(SettingsError):
        DestinationPolicy(slow_consumer_seconds=seconds)  # type: ignore[arg-type]


def test_a_callback_that_raises_hurts_nobody(bay: SimulatedBay, queue: Queue) -> None:
    def fail(consumer: Consumer) -> None:
        raise ValueError

    told: list[Consumer] = []
    first, second = queue.subscribe(on_slow=fail), queue.subscribe(on_slow=told.append)
    send(queue, 2)
    first.take()
    second.take()
    wait(bay, 32)
    assert told == [second]


def test_it_may_be_closed_by_the_callback_and_others_go_on(bay: SimulatedBay, queue: Queue) -> None:
    stuck = queue.subscribe(on_slow=lambda consumer: consumer.close())
    send(queue, 3)
    assert numbers(stuck.take(2)) == [0, 1]
    other = queue.subscribe()
    assert numbers(other.take(10)) == [2]
    for _ in range(32):
        other.nack(other.take(1)) if other.in_flight < 2 else None
        wait(bay, 1)
    assert numbers(other.take(10)) == [0, 1]


@pytest.mark.parametrize("rebalances", [False, True])
def test_groups_of_a_slow_one_that_it_holds_nothing_of_go_to_others_where_the_policy_says_so(rebalances: bool) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(group_rebalance=rebalances)})
    queue = bay.queue()
    stuck, other = queue.subscribe(), queue.subscribe()
    send(queue, 1, "held")
    stuck.take()
    send(queue, 1, "idle")
    stuck.ack(stuck.take())
    for name in "xyz":
        send(queue, 1, name)
        other.ack(other.take())
    send(queue, 2, "held")
    send(queue, 2, "idle")
    assert other.take(10) == []
    wait(bay, 40)
    assert stuck.statistics().is_slow
    idle = ["idle", "idle"]
    assert [delivery.group for delivery in other.take(10)] == (idle if rebalances else [])
    assert [delivery.group for delivery in stuck.take(10)] == ["held", "held"] + (idle if not rebalances else [])
    bay.check()


def test_a_slow_reader_of_a_topic_is_noticed_too(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(durable="audit")
    topic.send(b"x")
    wait(bay, 32)
    assert consumer.statistics().is_slow
    assert topic.statistics().subscriptions["audit"].slow_consumers == 1


def test_on_slow_is_something_to_call(queue: Queue) -> None:
    with pytest.raises(SettingsError):
        queue.subscribe(on_slow="mail")  # type: ignore[arg-type]
