"""SubscriptionWriter: subscriptions begin, move, acknowledge and end, with records if they are durable."""

from __future__ import annotations

import pytest
from message_stores import OpenStore
from writing import killed, number_of, refused_by_a_full_disk

from forebay.store.format.record import ACK, RANGES_MAX
from forebay.store.format.state_record import TOPIC
from forebay.store.index.subscriptions import Subscriber
from forebay.store.index.topic_lane import SubscriptionLane
from forebay.store.writers.subscription_writer import SubscriptionWriter


@pytest.fixture
def topic(opened: OpenStore) -> int:
    with opened.lock:
        return opened.store.destination_writer.create("prices", TOPIC).number


@pytest.fixture
def writer(opened: OpenStore) -> SubscriptionWriter:
    return opened.store.subscription_writer


def send(opened: OpenStore, topic: int, messages: int) -> None:
    with opened.lock:
        lane = opened.store.index.ensure_lane(topic, 4)
    for n in range(messages):
        opened.add(b"%d" % n, lane=lane)


def lane_of(subscriber: Subscriber | None) -> SubscriptionLane:
    assert subscriber is not None
    lane = subscriber.lanes[4]
    assert lane is not None
    return lane


def after_a_kill(opened: OpenStore, number: int) -> list[bytes | None]:
    """What a subscription has not acknowledged, once only the journal is left."""
    again = killed(opened)
    with again.lock:
        lane = lane_of(again.store.subscriptions.open_numbered(number))
    return again.bodies(lane)


def test_durable_subscription_gets_what_is_sent_from_then_on_also_after_a_kill(
    opened: OpenStore, topic: int, writer: SubscriptionWriter
) -> None:
    with opened.lock:
        writer.subscribe(topic, "early", None)
    send(opened, topic, 1)
    with opened.lock:
        audit = writer.subscribe(topic, "audit", "n > 1")
    send(opened, topic, 2)
    assert opened.bodies(lane_of(audit)) == after_a_kill(opened, audit.facts.number) == [b"0", b"1"]


def test_subscription_without_a_name_writes_nothing(opened: OpenStore, topic: int, writer: SubscriptionWriter) -> None:
    journal = opened.store.journal
    before = journal.next_log_sequence
    with opened.lock:
        subscriber = writer.subscribe(topic, None, None)
        writer.seek(subscriber, [(4, 0)])
        writer.unsubscribe(subscriber)
    assert journal.next_log_sequence == before and opened.store.subscriptions.numbers() == set()


def test_subscription_that_a_full_disk_refuses_is_not_there(
    opened: OpenStore, topic: int, writer: SubscriptionWriter
) -> None:
    with refused_by_a_full_disk(opened), opened.lock:
        writer.subscribe(topic, "audit", None)
    assert opened.store.subscriptions.numbers() == killed(opened).store.subscriptions.numbers() == set()


def test_what_only_an_ended_subscription_needed_is_needed_no_more(
    opened: OpenStore, topic: int, writer: SubscriptionWriter
) -> None:
    with opened.lock:
        audit = writer.subscribe(topic, "audit", None)
    send(opened, topic, 3)
    with opened.lock:
        writer.unsubscribe(audit)
        opened.store.subscriptions.remove_unneeded()
    again = killed(opened)
    for store in (opened, again):
        assert store.store.subscriptions.numbers() == set()
        assert sum(lane.pending_messages for lane in store.store.index.lanes.values()) == 0


def test_many_acknowledged_runs_are_in_few_records(opened: OpenStore, topic: int, writer: SubscriptionWriter) -> None:
    with opened.lock:
        audit = writer.subscribe(topic, "audit", None)
    send(opened, topic, 6)
    runs = [(0, 0), (2, 3), (5, 5)]
    with opened.lock:
        assert writer.acknowledge_runs(lane_of(audit), runs, is_durable=True) == 4
    assert number_of(ACK, opened) == 1
    assert opened.bodies(lane_of(audit)) == after_a_kill(opened, audit.facts.number) == [b"1", b"4"]
    absent = [(n, n) for n in range(10, 10 + RANGES_MAX)]
    with opened.lock:
        assert writer.acknowledge_runs(lane_of(audit), [(1, 1), *absent], is_durable=True) == 1
    assert number_of(ACK, opened) == 1 + 2


def test_a_seek_makes_acknowledged_messages_pending_and_earlier_ones_not(
    opened: OpenStore, topic: int, writer: SubscriptionWriter
) -> None:
    with opened.lock:
        writer.subscribe(topic, "other", None)
        audit = writer.subscribe(topic, "audit", None)
    send(opened, topic, 5)
    with opened.lock:
        writer.acknowledge_runs(lane_of(audit), [(0, 3)], is_durable=True)
        writer.seek(audit, [(4, 2)])
    assert opened.bodies(lane_of(audit)) == after_a_kill(opened, audit.facts.number) == [b"2", b"3", b"4"]


def test_retention_of_a_topic_begins_with_one_record_and_ends(
    opened: OpenStore, topic: int, writer: SubscriptionWriter
) -> None:
    before = opened.store.journal.next_log_sequence
    with opened.lock:
        writer.begin_retention(topic)
        writer.begin_retention(topic)
    assert opened.store.journal.next_log_sequence == before + 1
    assert opened.store.subscriptions.retention(topic) is not None
    assert len(killed(opened).store.subscriptions.numbers()) == 1
    with opened.lock:
        writer.end_retention(topic)
        writer.end_retention(topic)
    assert opened.store.subscriptions.retention(topic) is None
    assert opened.store.journal.next_log_sequence == before + 2
    assert killed(opened).store.subscriptions.numbers() == set()
