"""Shared durable subscriptions: several consumers compete for one, as those of a queue do."""

from __future__ import annotations

import asyncio

import pytest
from delivering import bodies, numbered_messages
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import ArgumentError, Consumer, DestinationPolicy, Message, SettingsError, SubscriptionInUse, Topic


def shared(topic: Topic, **options: object) -> Consumer:
    return topic.subscribe(durable="audit", shared=True, **options)  # type: ignore[arg-type]


def test_consumers_of_a_shared_subscription_get_each_message_once(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    first, second, alone = shared(topic), shared(topic), topic.subscribe()
    topic.send_many(numbered_messages(100))
    taken = [*bodies(first.take(30)), *bodies(second.take(30)), *bodies(first.take(100))]
    assert taken == bodies(alone.take(1000)) and len(taken) == 100
    assert topic.statistics().consumers == 3
    bay.check()


def test_what_a_closed_consumer_held_goes_to_the_others(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    first, second = shared(topic), shared(topic)
    topic.send_many(numbered_messages(10))
    held = first.take(6)
    second.ack(second.take(2))
    first.ack(held[:2])
    first.close()
    assert sorted(bodies(second.take(100))) == [b"2", b"3", b"4", b"5", b"8", b"9"]
    with pytest.raises(SubscriptionInUse):
        topic.unsubscribe("audit")
    bay.check()


def test_last_close_leaves_the_subscription_offline_with_what_was_not_acknowledged(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    consumers = [shared(topic) for _ in range(3)]
    topic.send_many(numbered_messages(9))
    for consumer in consumers:
        held = consumer.take(3)
        consumer.ack(held[:1])
        consumer.close()
    topic.send(b"9")
    bay.reopen()
    topic = bay.bay.topic("prices")
    assert topic.statistics().subscriptions["audit"].depth == 7
    with topic.subscribe(durable="audit") as consumer:
        assert bodies(consumer.take(100)) == [b"%d" % n for n in range(3, 10)]
    topic.unsubscribe("audit")
    bay.check()


def test_kill_brings_back_what_no_consumer_had_acknowledged(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    first, second = shared(topic), shared(topic)
    topic.send_many(numbered_messages(10))
    first.take(5)
    second.ack(second.take(5))
    bay.crash()
    consumers = [shared(bay.bay.topic("prices")) for _ in range(2)]
    assert bodies(consumers[0].take(2)) + bodies(consumers[1].take(9)) == [b"%d" % n for n in range(5)]
    bay.check()


def test_shared_and_unshared_consumers_of_one_subscription_are_refused_in_words(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    with shared(topic), pytest.raises(SubscriptionInUse, match="they share it: subscribe with shared=True"):
        topic.subscribe(durable="audit")
    with topic.subscribe(durable="audit"):
        with pytest.raises(SubscriptionInUse, match="that consumer's alone"):
            shared(topic)
        with pytest.raises(SubscriptionInUse, match="close that one first, or let both"):
            topic.subscribe(durable="audit")
    with shared(topic), shared(topic):
        pass
    with pytest.raises(SettingsError, match="give durable too"):
        topic.subscribe(shared=True)
    with pytest.raises(ArgumentError, match="shared must be"):
        topic.subscribe(durable="audit", shared=1)  # type: ignore[arg-type]
    bay.check()


def test_shared_subscription_has_one_selector(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    first = shared(topic, selector="n > 4")
    with pytest.raises(SettingsError, match="another selector"):
        shared(topic)
    second = shared(topic, selector="n > 4")
    topic.send_many(numbered_messages(10))
    assert bodies(first.take(2)) + bodies(second.take(10)) == [b"5", b"6", b"7", b"8", b"9"]
    bay.bay.step()
    bay.check()


def test_non_persistent_messages_are_shared_too(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    first, second = shared(topic), shared(topic)
    for n in range(6):
        topic.send(b"%d" % n, persistent=bool(n % 2))
    assert bodies(first.take(2)) + bodies(second.take(10)) == [b"%d" % n for n in range(6)]
    bay.check()


def test_exclusive_consumer_of_a_shared_subscription_gets_all_until_it_closes(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices")
    other, only, heir = shared(topic), shared(topic, exclusive=True), shared(topic, exclusive=True)
    topic.send_many(numbered_messages(10))
    assert not other.take(10) and not heir.take(10)
    assert len(only.take(4)) == 4
    only.close()
    assert not other.take(10) and len(heir.take(100)) == 10
    heir.close()
    assert len(other.take(100)) == 10
    bay.check()


@pytest.mark.parametrize("selector", [None, "n >= 0"])
def test_consumer_of_higher_priority_comes_first_while_it_has_credit(bay: SimulatedBay, selector: str | None) -> None:
    topic = bay.bay.topic("prices")
    low = shared(topic, priority=-1, selector=selector)
    high = shared(topic, priority=5, prefetch=3, selector=selector)
    topic.send_many(Message(b"%d" % n, {"n": n}, group="all") for n in range(10))
    bay.bay.step()
    held = high.take(10)
    assert len(held) == 3
    rest = low.take(100)
    assert len(rest) == 7, "its credit is used up"
    low.close()
    high.ack(held)
    assert len(high.take(10)) == 3
    bay.bay.step()
    bay.check()
    high.close()
    assert topic.statistics().subscriptions["audit"].depth == 7


def test_slow_consumer_of_a_subscription_is_told_of() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(slow_consumer_seconds=5)})
    topic = bay.bay.topic("prices")
    told: list[Consumer] = []
    consumers = [shared(topic, on_slow=told.append), topic.subscribe(on_slow=told.append)]
    topic.send_many(numbered_messages(4))
    for consumer in consumers:
        assert consumer.take(1)
    for _ in range(3):
        bay.clock.advance(4.0)
        bay.bay.step()
    assert sorted(map(id, told)) == sorted(map(id, consumers)) and consumers[0].is_slow
    bay.check()


@pytest.mark.parametrize("options", [{"exclusive": 1}, {"priority": 200}, {"priority": "high"}, {"on_slow": 3}])
def test_options_that_cannot_be_are_refused(bay: SimulatedBay, options: dict[str, object]) -> None:
    topic = bay.bay.topic("prices")
    with pytest.raises(SettingsError):
        topic.subscribe(**options)  # type: ignore[arg-type]
    with pytest.raises(SettingsError):
        bay.queue().subscribe(**options)  # type: ignore[arg-type]
    assert topic.statistics().consumers == 0


def test_in_a_loop_consumers_share_a_subscription() -> None:
    async def main() -> None:
        bay = LoopBay(policies={">": DestinationPolicy(slow_consumer_seconds=5)})
        topic = await bay.aio.topic("prices")
        slow: list[object] = []
        async with (
            topic.subscribe(durable="audit", shared=True, on_slow=slow.append) as first,
            topic.subscribe(durable="audit", shared=True, priority=3, prefetch=2) as second,
        ):
            await topic.send_many(numbered_messages(5))
            assert bodies(await second.take(5)) == [b"0", b"1"]
            assert bodies(await first.take(5)) == [b"2", b"3", b"4"]
            for _ in range(3):
                bay.clock.advance(4.0)
                await bay.aio.step()
                await asyncio.sleep(0)
            assert slow == [first]
        bay.check()

    asyncio.run(main())
