"""A topic retains what its policy says beyond all acks, in no RAM, and never against the store's limit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from compiled import interpreted
from delivering import bodies
from simulated_bay import SimulatedBay
from staged_stores import newest, roll, small_bay

from forebay import DestinationPolicy, Message, SettingsError, StoreFull, Topic
from forebay.store.environment.locks import OwnedLock
from forebay.store.index.topic_lane import SubscriptionLane
from forebay.store.maintenance.trimmer import RetentionRule, Trimmer

HOUR = 3600.0


def retaining(bay_fields: dict[str, Any] | None = None, **policy: Any) -> SimulatedBay:
    return small_bay(policies={"prices": DestinationPolicy(**policy)}, **(bay_fields or {}))


def send(topic: Topic, *numbers: int, size: int = 0) -> None:
    for number in numbers:
        topic.send(b"%d" % number + bytes(size))


def retained(bay: SimulatedBay) -> int:
    return bay.bay.topic("prices").statistics().retained_messages


def lanes(bay: SimulatedBay) -> list[SubscriptionLane]:
    """Of what stands for the messages that the topic retains."""
    retention = bay.store.subscriptions.retention(1)
    return [lane for lane in retention.lanes if lane is not None] if retention is not None else []


def test_message_that_everybody_acknowledged_stays_until_it_is_too_old() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        send(topic, 1, 2)
        consumer.ack(consumer.take(10))
        bay.clock.advance(HOUR - 60)
        send(topic, 3)
        consumer.ack(consumer.take(10))
        bay.bay.step()
        assert retained(bay) == 3
        bay.clock.advance(120)
        bay.bay.step()
        assert retained(bay) == 1
        bay.clock.advance(HOUR)
        bay.bay.step()
        assert retained(bay) == 0
    bay.check()


def test_only_the_newest_bytes_stay_whatever_their_priority() -> None:
    bay = retaining(retain_bytes=1000)
    topic = bay.bay.topic("prices")
    for number in range(30):
        topic.send(bytes(100), priority=number % 3)
        bay.clock.advance(1)
    bay.bay.step()
    statistics = topic.statistics()
    assert (statistics.retained_messages, statistics.retained_bytes) == (10, 1000)
    assert sorted(lane.pending_messages for lane in lanes(bay)) == [3, 3, 4]
    bay.check()


def test_whichever_comes_first_ends_it() -> None:
    bay = retaining(retain_seconds=HOUR, retain_bytes=500)
    topic = bay.bay.topic("prices")
    send(topic, *range(10), size=99)
    bay.bay.step()
    assert retained(bay) == 5
    bay.clock.advance(2 * HOUR)
    send(topic, 1)
    bay.bay.step()
    assert retained(bay) == 1


def test_retained_messages_survive_a_restart_a_kill_and_a_lost_index() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        send(topic, *range(700))
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
    bay.reopen()
    assert retained(bay) == 700
    bay.crash()
    assert retained(bay) == 700
    bay.crash(is_index_lost=True)
    assert retained(bay) == 700 and bay.bay.topic("prices").statistics().subscriptions["audit"].depth == 0
    bay.clock.advance(2 * HOUR)
    bay.bay.step()
    bay.crash(is_index_lost=True)
    assert retained(bay) == 0
    bay.check()


def test_data_logs_stay_as_long_as_what_they_hold_is_retained_and_explain_says_so() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        for number in range(3):
            send(topic, number)
            consumer.ack(consumer.take(1))
            roll(bay)
        first = min(bay.bay.cleanup().remaining)
        explained = bay.bay.explain(first)
        assert [(cause.reason, cause.holder, cause.messages) for cause in explained.causes] == [
            ("retention", "retention of 1:prices", 1)
        ]
        assert "the policy of 1:prices retains 1 message of 1 byte" in explained.sentence
        assert "retain_seconds" in explained.causes[0].frees
        whole = bay.bay.explain()
        assert "retention" in {cause.reason for cause in whole.causes} and " 0 pending messages" in whole.sentence
        bay.clock.advance(2 * HOUR)
        assert set(bay.bay.cleanup().remaining) == {newest(bay)}


def test_what_is_pending_and_retained_is_told_of_the_subscription_first() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    send(topic, 1)
    [pending, kept] = bay.bay.explain(newest(bay)).causes[:2]
    assert (pending.reason, pending.holder) == ("pending_message", "1:prices/audit") and kept.reason == "retention"


def test_limit_of_the_store_outranks_retention_and_no_send_is_refused() -> None:
    bay = retaining({"store_limit": 1 << 20}, retain_bytes="1GiB")
    topic = bay.bay.topic("prices")
    for _ in range(60):
        topic.send_many(Message(bytes(1000)) for _ in range(60))
        assert bay.bay.statistics().store.journal_bytes <= 1 << 20
    assert 0 < retained(bay) < 3600
    bay.check()


def test_what_a_subscription_needs_is_not_given_up_for_the_limit() -> None:
    bay = retaining({"store_limit": 1 << 20}, retain_bytes="1GiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            topic.send(b"%d" % sent + bytes(1000))
            sent += 1
    assert topic.statistics().subscriptions["audit"].depth == sent
    with topic.subscribe(durable="audit") as consumer:
        seen = 0
        while deliveries := consumer.take(100):
            consumer.ack(deliveries)
            seen += len(deliveries)
    assert seen == sent


def test_limit_of_the_topic_counts_what_subscriptions_need_alone() -> None:
    bay = retaining(retain_seconds=HOUR, max_messages=3, when_full="fail")
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        for number in range(10):
            send(topic, number)
            consumer.ack(consumer.take(1))
        send(topic, 1, 2, 3)
        with pytest.raises(StoreFull, match="max_messages=3"):
            send(topic, 4)


def test_retained_messages_cost_no_memory_each() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    topic.send_many(Message(b"1") for _ in range(1000))
    bay.bay.checkpoint()
    (lane,) = lanes(bay)
    lane.catch_up()
    before = lane.pending.blocks.run_count, len(lane.pending._masks)
    topic.send_many(Message(b"1") for _ in range(20_000))
    bay.bay.checkpoint()
    lane.catch_up()
    assert (lane.pending.blocks.run_count, len(lane.pending._masks)) == before == (1, 1)


def test_policy_that_is_gone_ends_what_was_retained() -> None:
    bay = retaining(retain_seconds=HOUR)
    send(bay.bay.topic("prices"), 1)
    charged = bay.bay.statistics().memory.holders["destinations"]
    bay.settings_given = small_bay().settings_given
    bay.reopen()
    assert retained(bay) == 0
    assert bay.bay.statistics().memory.holders["destinations"] < charged
    send(bay.bay.topic("prices"), 2)
    bay.bay.checkpoint()
    assert bay.bay.statistics().store.pending_messages == 0
    bay.check()


def test_nobody_sees_what_retains_as_a_subscription() -> None:
    bay = retaining(retain_seconds=HOUR)
    topic = bay.bay.topic("prices")
    send(topic, 1)
    bay.reopen()
    topic = bay.bay.topic("prices")
    assert topic.subscriptions() == [] and topic.statistics().subscriptions == {}
    with topic.subscribe(durable="retention") as consumer:
        send(topic, 2)
        assert bodies(consumer.take(10)) == [b"2"]
    topic.unsubscribe("retention")
    assert retained(bay) == 2
    topic.delete()
    assert not bay.store.cleanup.trimmer.is_retaining
    bay.bay.checkpoint()
    assert bay.bay.statistics().store.pending_messages == 0
    bay.check()


@pytest.mark.parametrize(
    "fields", [{"retain_seconds": 0}, {"retain_seconds": "1"}, {"retain_bytes": 0}, {"retain_bytes": "much"}]
)
def test_policy_that_retains_nothing_sensible_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises((SettingsError, TypeError), match="retain_"):
        DestinationPolicy(**fields)


def test_topic_that_retains_messages_is_not_inactive() -> None:
    bay = retaining(retain_seconds=HOUR, inactive_seconds=60.0)
    send(bay.bay.topic("prices"), 1)
    for _ in range(10):
        bay.clock.advance(30)
        bay.bay.step()
    assert bay.bay.topics() == ["prices"] and retained(bay) == 1
    bay.clock.advance(HOUR)
    for _ in range(10):
        bay.clock.advance(30)
        bay.bay.step()
    assert bay.bay.topics() == []
    bay.check()


def test_what_lies_in_the_data_log_that_is_written_to_is_not_given_up_in_vain() -> None:
    policies = {"prices": DestinationPolicy(retain_bytes="1GiB")}
    bay = SimulatedBay(max_file_length="1MiB", store_limit="1536KiB", policies=policies)
    bay.queue().send(bytes(700_000))
    send(bay.bay.topic("prices"), 1, 2)
    assert bay.journal.fullness.is_short_of_space
    bay.bay.cleanup()
    assert retained(bay) == 2


class VanishingLane:
    """Has a message the first time that somebody asks, and then none. Only the holder of the lock may ask."""

    number = 1
    topic = None

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock
        self._depths = [(1, 100)]

    @property
    def depth(self) -> tuple[int, int]:
        assert self._lock.is_owned()
        return self._depths.pop() if self._depths else (0, 0)

    def pending_run(self, sequence: int, most: int) -> tuple[int, int] | None:
        assert self._lock.is_owned()
        return (0, 0) if self._depths else None


@interpreted("has a lane of its own in the place of a compiled one")
def test_what_others_remove_while_bytes_are_counted_is_no_error() -> None:
    lock, retention, unused = OwnedLock(), SimpleNamespace(), SimpleNamespace()
    lane = VanishingLane(lock)
    retention.lanes = [lane]
    subscriptions: Any = SimpleNamespace(retention=lambda topic: retention)
    trimmer = Trimmer(subscriptions, cast("Any", unused), lock, lambda *_: 1, lambda: 1)
    trimmer.set_rule(1, RetentionRule(None, 10))
    assert trimmer.trim(0) == 0
