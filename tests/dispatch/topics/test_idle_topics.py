"""Topics that nobody uses are rows: they are opened by whoever uses them, and closed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from delivering import bodies
from simulated_bay import SimulatedBay

from forebay import Closed, DestinationPolicy, Message, SettingsError, StoreFull
from forebay.dispatch.core.destinations.overhead import CLOSED_TOPIC_BYTES

MANY = 5_000


def let_pass(bay: SimulatedBay, looks: int = 3) -> None:
    for _ in range(looks):
        bay.clock.advance(6.0)
        bay.bay.step()


def test_thousands_of_topics_live_under_four_mebibytes_and_any_of_them_can_be_used() -> None:
    bay = SimulatedBay()
    for number in range(MANY):
        topic = bay.bay.topic(f"prices.{number}")
        if number % 10 == 0:
            topic.send(b"heard by nobody")
    bay.check()
    bay.reopen()
    assert bay.open_topics() == [] and not bay.index.lanes and len(bay.bay.topics()) == MANY
    assert len(bay.bay.statistics().topics) == MANY
    for number in range(0, MANY, 250):
        with bay.bay.topic(f"prices.{number}").subscribe() as consumer:
            bay.bay.topic(f"prices.{number}").send(b"x")
            assert bodies(consumer.take()) == [b"x"]
    bay.crash(is_index_lost=True)
    assert bay.open_topics() == [] and len(bay.bay.topics()) == MANY
    bay.check()


@pytest.mark.parametrize(
    "use",
    [
        lambda bay: bay.bay.topic("orders").subscribe(),
        lambda bay: bay.bay.topic("orders").subscribe(durable="audit").close(),
        lambda bay: (bay.bay.topic("orders"), bay.bay.topic("*").subscribe()),
        lambda bay: bay.bay.topic("orders").reader("begin"),
        lambda bay: bay.bay.topic("orders").send(b"undecided", transaction=bay.bay.transaction()),
        lambda bay: bay.bay.topic("kept.1").send(b"kept"),
        lambda bay: bay.bay.temporary_topic(),
    ],
    ids=["consumer", "durable", "pattern", "reader", "transaction", "retention", "temporary"],
)
def test_what_is_in_use_stays_open(use: Callable[[SimulatedBay], object]) -> None:
    bay = SimulatedBay(policies={"kept.>": DestinationPolicy(retain_seconds=1_000)})
    kept = use(bay)
    let_pass(bay, looks=10)
    assert len(bay.open_topics()) == 1, kept
    bay.check()


USES: dict[str, Callable[[Any, SimulatedBay], object]] = {
    "send": lambda topic, bay: topic.send(b"x"),
    "send a volatile one": lambda topic, bay: topic.send(b"x", persistent=False),
    "send a retained one": lambda topic, bay: topic.send(b"x", retain=True),
    "send many": lambda topic, bay: topic.send_many([Message(b"x"), Message(b"y", priority=7)]),
    "subscribe": lambda topic, bay: topic.subscribe(),
    "subscribe durably": lambda topic, bay: topic.subscribe(durable="audit").close(),
    "read": lambda topic, bay: topic.reader("begin"),
    "a pattern": lambda topic, bay: bay.bay.topic("*").subscribe(),
    "delete": lambda topic, bay: topic.delete(),
}


@pytest.mark.parametrize("most", [None, 5])
@pytest.mark.parametrize("name", USES)
def test_whoever_holds_a_topic_that_was_closed_notices_nothing(name: str, most: int | None) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_messages=most)})
    topic = bay.bay.topic("orders")
    let_pass(bay)
    assert bay.open_topics() == []
    kept = USES[name](topic, bay)
    assert topic.subscriptions() == (["audit"] if name == "subscribe durably" else [])
    assert bay.bay.topics() == ([] if name == "delete" else ["orders"])
    if name in ("subscribe", "subscribe durably", "read", "a pattern"):
        topic.send(b"y")
        consumer: Any = topic.subscribe(durable="audit") if name == "subscribe durably" else kept
        assert bodies(consumer.take(1, timeout=0)) == [b"y"]
    bay.check()
    bay.crash()
    assert bay.bay.topics() == ([] if name == "delete" else ["orders"])
    bay.check()


def test_what_a_closed_topic_reports_is_what_the_open_one_did_and_no_id_is_given_twice() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    ids: list[str] = []
    for _ in range(4):
        with topic.subscribe() as consumer:
            ids += [topic.send(b"1"), topic.send(b"23", persistent=False)]
            assert len(consumer.take(5)) == 2
        ids += [topic.send(b"heard by nobody"), topic.send(b"nor this", persistent=False)]
        before = topic.statistics()
        bay.bay.checkpoint()
        let_pass(bay, looks=4)
        bay.bay.checkpoint()
        assert bay.open_topics() == [] and not bay.index.lanes
        assert topic.statistics() == before == bay.bay.statistics().topics["prices"]
        assert bay.bay.explain(topic).sentence and bay.bay.explain("prices").sentence
        assert bay.open_topics() == []
        bay.check()
    assert before.enqueued == len(set(ids)) == len(ids) == 16


def test_what_a_closed_topic_retained_is_given_to_who_subscribes_later() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    topic.send(b"newest", retain=True)
    let_pass(bay)
    assert bay.open_topics() == []
    with topic.subscribe() as consumer:
        assert bodies(consumer.take()) == [b"newest"]
    bay.check()


def test_a_topic_that_somebody_else_has_deleted_stays_deleted_for_whoever_holds_it() -> None:
    bay = SimulatedBay()
    topic, handle = bay.bay.topic("prices"), bay.bay.topic("prices").subscription("audit")
    let_pass(bay)
    bay.bay.topic("prices").delete()
    for use in (lambda: topic.send(b"x"), topic.subscribe, lambda: topic.send(b"x", persistent=False)):
        with pytest.raises(Closed):
            use()
    with pytest.raises(Closed):
        handle.seek("end")
    assert bay.bay.topics() == []
    bay.check()


def test_a_handle_of_a_subscription_finds_what_was_made_since_its_topic_was_closed() -> None:
    bay = SimulatedBay()
    handle = bay.bay.topic("prices").subscription("audit")
    let_pass(bay)
    with pytest.raises(SettingsError, match="audit"):
        handle.seek("end")
    let_pass(bay)
    bay.bay.topic("prices").subscribe(durable="audit").close()
    bay.bay.topic("prices").send(b"x")
    assert handle.seek("end").messages == 0
    bay.check()


def test_topics_that_were_closed_are_deleted_for_want_of_use_and_begin_anew() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60)})
    topic = bay.bay.topic("prices")
    let_pass(bay, looks=3)
    assert bay.open_topics() == [] and bay.bay.topics() == ["prices"]
    let_pass(bay, looks=20)
    assert bay.bay.topics() == [] and bay.bay.statistics().memory.holders["destinations"] == CLOSED_TOPIC_BYTES
    with topic.subscribe() as consumer:
        bay.bay.topic("prices").send(b"x")
        assert bodies(consumer.take()) == [b"x"]
    bay.check()


def test_where_memory_is_short_a_pattern_gets_all_topics_that_match_or_is_refused() -> None:
    bay = SimulatedBay()
    for number in range(1_500):
        bay.bay.topic(f"prices.{number % 300}.{number}")
    assert len(bay.open_topics()) < 600
    with bay.bay.topic("prices.7.*").subscribe() as consumer:
        for number in (7, 307, 607, 907, 1_207):
            bay.bay.topic(f"prices.7.{number}").send(b"x")
        assert len(consumer.take(10)) == 5
    with pytest.raises(StoreFull):
        bay.bay.topic("prices.>").subscribe()
    bay.check()
    with bay.bay.topic("prices.8.>").subscribe() as consumer:
        bay.bay.topic("prices.8.8").send(b"x")
        assert len(consumer.take(10)) == 1
    bay.check()


def test_where_memory_is_short_a_subscriber_keeps_the_topic_open_that_it_needs() -> None:
    bay = SimulatedBay()
    for number in range(1_000):
        bay.bay.topic(f"prices.{number}")
    consumers, sent = [], 0
    with pytest.raises(StoreFull):
        for number in range(1_000):
            topic = bay.bay.topic(f"prices.{number}")
            consumers.append(topic.subscribe())
            topic.send(b"x")  # refused too, where there is no room for the lists that it needs
            sent += 1
    assert sent > 80
    assert [bodies(consumer.take()) for consumer in consumers[:sent]] == [[b"x"]] * sent
    bay.check()
