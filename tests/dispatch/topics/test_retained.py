"""Retained messages: the last one that a topic was told to keep is given first to each new subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled import interpreted
from delivering import drain_retained
from simulated_bay import SimulatedBay

import forebay.aio
from forebay import DestinationPolicy, PropertiesFull, SettingsError, StoreFull, Topic
from forebay.dispatch.core.monitor import Monitor
from forebay.store.format.retained import retained_name

KIB = 1024


@pytest.fixture(params=["never", "always"])
def simulated(request: pytest.FixtureRequest) -> Iterator[SimulatedBay]:
    simulated = SimulatedBay(sync=request.param)
    yield simulated
    simulated.check()
    simulated.store.subscriptions._check()


def topic(simulated: SimulatedBay) -> Topic:
    return simulated.bay.topic("prices")


# Who gets it.


def test_who_has_subscribed_gets_it_as_any_message_and_who_subscribes_later_gets_it_first(
    simulated: SimulatedBay,
) -> None:
    live = topic(simulated).subscribe()
    topic(simulated).send(b"1.20", retain=True)
    late, durable = topic(simulated).subscribe(), topic(simulated).subscribe(durable="audit")
    topic(simulated).send(b"1.25")
    assert drain_retained(live) == [(b"1.20", False), (b"1.25", False)]
    assert drain_retained(late) == drain_retained(durable) == [(b"1.20", True), (b"1.25", False)]


def test_it_comes_with_the_id_headers_priority_group_and_timestamp_that_it_was_sent_with(
    simulated: SimulatedBay,
) -> None:
    live = topic(simulated).subscribe()
    own_id = topic(simulated).send(b"1.20", retain=True, headers={"symbol": "TEA"}, priority=7, group="tea")
    (sent,) = live.take(10)
    simulated.clock.advance(60)
    (kept,) = topic(simulated).subscribe().take(10)
    for delivery in (sent, kept):
        assert (delivery.id, delivery.headers, delivery.priority) == (own_id, {"symbol": "TEA"}, 7)
        assert delivery.group == "tea" and delivery.timestamp == sent.timestamp


def test_a_message_id_of_its_sender_is_kept(simulated: SimulatedBay) -> None:
    assert topic(simulated).send(b"1.20", retain=True, message_id="tea-1") == "tea-1"
    (kept,) = topic(simulated).subscribe().take(10)
    assert kept.id == "tea-1" and kept.retained


def test_a_later_one_replaces_it(simulated: SimulatedBay) -> None:
    for body in (b"1", b"2", b"3"):
        topic(simulated).send(body, retain=True)
    topic(simulated).send(b"4")
    assert drain_retained(topic(simulated).subscribe()) == [(b"3", True)]


def test_an_empty_body_is_delivered_and_leaves_none(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True)
    live = topic(simulated).subscribe()
    topic(simulated).send(b"", retain=True)
    assert drain_retained(live) == [(b"1.20", True), (b"", False)]
    assert drain_retained(topic(simulated).subscribe()) == []
    assert simulated.store.host_properties.held_bytes == 0


def test_a_durable_subscription_that_comes_back_is_not_given_it_again(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True)
    with topic(simulated).subscribe(durable="audit") as audit:
        assert drain_retained(audit) == [(b"1.20", True)]
    assert drain_retained(topic(simulated).subscribe(durable="audit")) == []


def test_who_joins_a_shared_subscription_is_not_given_it_again(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True)
    first = topic(simulated).subscribe(durable="audit", shared=True)
    second = topic(simulated).subscribe(durable="audit", shared=True)
    assert drain_retained(first) + drain_retained(second) == [(b"1.20", True)]


def test_what_is_given_back_is_retained_still(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True)
    consumer = topic(simulated).subscribe()
    consumer.nack(consumer.take(1))
    assert drain_retained(consumer) == [(b"1.20", True)]


def test_a_selector_decides_about_it_too(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True, headers={"symbol": "TEA"})
    assert drain_retained(topic(simulated).subscribe(selector="symbol = 'TEA'")) == [(b"1.20", True)]
    assert drain_retained(topic(simulated).subscribe(selector="symbol = 'RICE'")) == []


def test_a_pattern_is_given_that_of_each_topic(simulated: SimulatedBay) -> None:
    for name in ("prices.tea", "prices.rice", "news"):
        simulated.bay.topic(name).send(name.encode(), retain=True)
    consumer = simulated.bay.topic("prices.*").subscribe()
    assert sorted(drain_retained(consumer)) == [(b"prices.rice", True), (b"prices.tea", True)]


def test_one_that_has_expired_is_given_to_nobody(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1.20", retain=True, expires_in=60)
    assert drain_retained(topic(simulated).subscribe()) == [(b"1.20", True)]
    simulated.clock.advance(61)
    assert drain_retained(topic(simulated).subscribe()) == []


def test_one_that_was_sent_without_persistence_is_kept_all_the_same(simulated: SimulatedBay) -> None:
    live = topic(simulated).subscribe()
    topic(simulated).send(b"1.20", retain=True, persistent=False)
    assert drain_retained(live) == [(b"1.20", False)]
    simulated.reopen()
    assert drain_retained(topic(simulated).subscribe()) == [(b"1.20", True)]


@pytest.mark.parametrize("name", ["prices.tea", "prices.*"])
def test_who_subscribes_is_called_for_it(simulated: SimulatedBay, name: str) -> None:
    simulated.bay.topic("prices.tea").send(b"1.20", retain=True)
    called: list[int] = []
    consumer = simulated.bay.topic(name).subscribe(on_ready=lambda: called.append(1))
    simulated.bay.step()
    assert called and drain_retained(consumer) == [(b"1.20", True)]


def test_statistics_count_it_once_for_the_topic_and_for_each_subscription_that_it_was_given_to(
    simulated: SimulatedBay,
) -> None:
    topic(simulated).send(b"1.20", retain=True)
    consumers = [topic(simulated).subscribe() for _ in range(3)]
    assert topic(simulated).statistics().enqueued == 1
    assert [drain_retained(consumer) for consumer in consumers] == [[(b"1.20", True)]] * 3


# How long it is kept.


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_it_survives_a_close_and_a_kill_with_and_without_an_index(simulated: SimulatedBay, is_index_lost: bool) -> None:
    topic(simulated).send(b"1.20", retain=True)
    simulated.reopen()
    simulated.crash(is_index_lost=is_index_lost)
    assert drain_retained(topic(simulated).subscribe()) == [(b"1.20", True)]


def test_it_outlives_the_data_log_in_which_it_was_sent() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    topic(simulated).send(b"1.20", retain=True)
    queue = simulated.queue()
    for _ in range(20):
        queue.send(bytes(8 * KIB))
    queue.purge()
    assert simulated.bay.cleanup().deleted
    simulated.crash(is_index_lost=True)
    assert drain_retained(topic(simulated).subscribe()) == [(b"1.20", True)]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_it_ends_with_its_topic(simulated: SimulatedBay, is_index_lost: bool) -> None:
    topic(simulated).send(b"1.20", retain=True)
    topic(simulated).delete()
    assert simulated.store.host_properties.held_bytes == 0
    assert drain_retained(topic(simulated).subscribe()) == []
    simulated.crash(is_index_lost=is_index_lost)
    assert simulated.store.host_properties.held_bytes == 0
    assert drain_retained(topic(simulated).subscribe()) == []


def test_a_topic_that_has_one_is_in_use() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60)})
    kept, other = simulated.bay.topic("kept"), simulated.bay.topic("other")
    kept.send(b"1.20", retain=True)
    other.send(b"1.20")
    for _ in range(30):
        simulated.clock.advance(10)
        simulated.bay.step()
    assert list(simulated.bay.topics()) == ["kept"]
    assert drain_retained(kept.subscribe()) == [(b"1.20", True)]


# What is refused, and what it takes.


def test_what_cannot_be_retained_is_refused_and_not_sent(simulated: SimulatedBay) -> None:
    live = topic(simulated).subscribe()
    with pytest.raises(SettingsError, match="is a queue, which retains no message"):
        simulated.queue().send(b"1.20", retain=True)
    with pytest.raises(SettingsError, match="can't have a delay"):
        topic(simulated).send(b"1.20", retain=True, delay=1.0)
    with simulated.bay.transaction() as transaction, pytest.raises(SettingsError, match="transaction of its own"):
        topic(simulated).send(b"1.20", retain=True, transaction=transaction)
    with pytest.raises(SettingsError, match="retain must be True, False, or the name of a header"):
        topic(simulated).send(b"1.20", retain=1)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="is a pattern"):
        simulated.bay.topic("prices.*").send(b"1.20", retain=True)
    assert drain_retained(live) == [] and drain_retained(topic(simulated).subscribe()) == []


def test_one_that_is_too_large_to_be_kept_is_not_sent_either() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    topic(simulated).send(b"1.20", retain=True)
    live = topic(simulated).subscribe()
    with pytest.raises(PropertiesFull):
        topic(simulated).send(bytes(17 * KIB), retain=True)
    assert drain_retained(live) == drain_retained(topic(simulated).subscribe()) == [(b"1.20", True)]
    simulated.check()


def test_it_is_charged_as_a_property_and_the_host_does_not_see_it(simulated: SimulatedBay) -> None:
    bay = simulated.bay
    bay.properties["cursor"] = b"1042"
    before = simulated.store.host_properties.held_bytes
    topic(simulated).send(bytes(KIB), retain=True)
    assert KIB < simulated.store.host_properties.held_bytes - before < 2 * KIB
    assert dict(bay.properties) == {"cursor": b"1042"}
    with bay.transaction() as transaction:
        assert dict(transaction.properties) == {"cursor": b"1042"}
    bay.properties.clear()
    assert drain_retained(topic(simulated).subscribe()) == [(bytes(KIB), True)]


def test_a_name_of_the_store_is_refused_to_the_host(simulated: SimulatedBay) -> None:
    with pytest.raises(SettingsError, match="zero byte"):
        simulated.bay.properties["\0retained/1"] = b""


def test_a_duplicate_that_is_not_stored_again_replaces_nothing() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(duplicate_window=10)})
    for number in (1, 2, 1):
        topic(simulated).send(b"%d" % number, retain=True, message_id=f"tea-{number}", producer="shop")
    assert drain_retained(topic(simulated).subscribe()) == [(b"2", True)]


@pytest.mark.parametrize("value", [b"?", bytes(8) + b"\x0a" + bytes(4), bytes(9) + b"\xff" * 4])
def test_one_that_makes_no_sense_is_given_to_nobody_and_logged(
    simulated: SimulatedBay, caplog: pytest.LogCaptureFixture, value: bytes
) -> None:
    topic(simulated)
    number = simulated.topic_state("prices").number
    with simulated.lock:
        simulated.store.property_writer.change({retained_name(number): value})
    assert drain_retained(topic(simulated).subscribe()) == []
    assert [getattr(record, "event", None) for record in caplog.records] == ["retained_message_unusable"]


def test_a_subscription_without_room_for_it_is_refused_and_not_made() -> None:
    simulated = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    topic(simulated).send(bytes(100 * KIB), retain=True)
    with pytest.raises(StoreFull):
        while True:
            simulated.queue().send(bytes(KIB), persistent=False)
    for durable in ("audit", None):
        with pytest.raises(StoreFull):
            topic(simulated).subscribe(durable=durable)
    with pytest.raises(StoreFull):
        simulated.bay.topic("prices.>").subscribe()
    assert topic(simulated).subscriptions() == [] and not simulated.topic_state("prices").online
    simulated.queue().purge()
    assert drain_retained(topic(simulated).subscribe(durable="audit")) == [(bytes(100 * KIB), True)]
    simulated.check()


def test_a_deletion_in_a_pattern_is_refused_as_such_in_full_memory_too() -> None:
    simulated = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    pattern = simulated.bay.topic("prices.*")
    begun = []
    with pytest.raises(StoreFull):
        while True:
            begun.append(simulated.bay.transaction())
    with pytest.raises(SettingsError, match="is a pattern"):
        pattern.send(b"", retain=True)
    simulated.check()


@interpreted("replaces what compiled code has linked")
def test_a_subscription_that_is_refused_for_want_of_room_is_gone_before_another_consumer_may_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    topic(simulated).send(bytes(100 * KIB), retain=True)
    with pytest.raises(StoreFull):
        while True:
            simulated.queue().send(bytes(KIB), persistent=False)
    found: list[list[str]] = []
    run_deferred = Monitor.run_deferred

    def come(monitor: Monitor) -> None:
        found.append(simulated.topic_state("prices").durable_names)
        run_deferred(monitor)

    with monkeypatch.context() as patch, pytest.raises(StoreFull):
        patch.setattr(Monitor, "run_deferred", come)
        topic(simulated).subscribe(durable="audit")
    assert not any(found)
    assert topic(simulated).subscriptions() == []
    simulated.check()


# In an event loop.


def test_an_event_loop_retains_and_is_given_it_too(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as bay:
            prices = await bay.topic("prices")
            own_id = await prices.send(b"1.20", retain=True)
            async with prices.subscribe() as consumer:
                (kept,) = await consumer.take(10)
                assert (kept.id, kept.body, kept.retained) == (own_id, b"1.20", True)
                await consumer.ack(kept)
            with pytest.raises(SettingsError, match="is a queue"):
                await (await bay.queue("orders")).send(b"1.20", retain=True)

    asyncio.run(use())
