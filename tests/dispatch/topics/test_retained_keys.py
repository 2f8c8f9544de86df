"""Retained messages by a header: a topic keeps the last one for each of its values, and new subscriptions get all."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from delivering import drain_retained
from simulated_bay import SimulatedBay

import forebay.aio
from forebay import (
    ArgumentError,
    DestinationPolicy,
    PropertiesFull,
    SettingsError,
    StoreFailed,
    StoreFull,
    Topic,
    codecs,
)
from forebay.store.format.retained import RETAIN_KEY_BYTES_MAX
from forebay.store.message import HeaderValue
from forebay.store.state.property_table import PropertyTable

KIB = 1024


@pytest.fixture(params=["never", "always"])
def simulated(request: pytest.FixtureRequest) -> Iterator[SimulatedBay]:
    simulated = SimulatedBay(sync=request.param)
    yield simulated
    simulated.check()
    simulated.store.subscriptions._check()
    simulated.store.host_properties._check()


def topic(simulated: SimulatedBay) -> Topic:
    return simulated.bay.topic("prices")


def keep(simulated: SimulatedBay, symbol: HeaderValue, body: bytes, **fields: Any) -> str:
    """Send a price that is retained by its symbol."""
    return topic(simulated).send(body, headers={"symbol": symbol}, retain="symbol", **fields)


def given(simulated: SimulatedBay, **fields: Any) -> list[bytes]:
    """The bodies that a new subscription is given, all of them as retained."""
    with topic(simulated).subscribe(**fields) as consumer:
        found = drain_retained(consumer)
    assert all(is_retained for _, is_retained in found)
    return [body for body, _ in found]


# Which are kept, and who gets them.


def test_the_last_one_of_each_value_is_kept_and_they_come_in_the_order_of_sending(simulated: SimulatedBay) -> None:
    for symbol, body in (("ACME", b"1"), ("TEA", b"2"), ("RICE", b"3"), ("ACME", b"4")):
        keep(simulated, symbol, body)
    live = topic(simulated).subscribe()
    topic(simulated).send(b"5", headers={"symbol": "TEA"})
    assert drain_retained(live) == [(b"2", True), (b"3", True), (b"4", True), (b"5", False)]
    assert given(simulated) == given(simulated, durable="audit") == [b"2", b"3", b"4"]
    assert given(simulated, durable="audit") == []


def test_who_has_subscribed_gets_each_as_any_message(simulated: SimulatedBay) -> None:
    live = topic(simulated).subscribe()
    keep(simulated, "ACME", b"1")
    keep(simulated, "ACME", b"2")
    assert drain_retained(live) == [(b"1", False), (b"2", False)]


def test_values_of_different_types_are_different_values(simulated: SimulatedBay) -> None:
    values: tuple[HeaderValue, ...] = (1, 1.0, True, "1", b"1", "", b"", 10**30, "\N{SNOWMAN}/")
    for number, value in enumerate(values):
        keep(simulated, value, b"old")
        keep(simulated, value, b"%d" % number)
    assert given(simulated) == [b"%d" % number for number in range(len(values))]


def test_names_and_values_that_read_alike_together_are_told_apart(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"1", headers={"a": "b/sc"}, retain="a")
    topic(simulated).send(b"2", headers={"a/sb": "c"}, retain="a/sb")
    assert given(simulated) == [b"1", b"2"]


def test_one_is_kept_for_the_topic_and_for_each_header_beside_them(simulated: SimulatedBay) -> None:
    topic(simulated).send(b"all", retain=True)
    keep(simulated, "ACME", b"1")
    topic(simulated).send(b"eu", headers={"region": "eu", "symbol": "ACME"}, retain="region")
    topic(simulated).send(b"all again", retain=True)
    assert given(simulated) == [b"1", b"eu", b"all again"]


def test_an_empty_body_is_delivered_and_leaves_none_of_that_value(simulated: SimulatedBay) -> None:
    for symbol in ("ACME", "TEA"):
        keep(simulated, symbol, symbol.encode())
    live = topic(simulated).subscribe(selector="symbol = 'ACME'")
    keep(simulated, "ACME", b"")
    keep(simulated, "RICE", b"")
    assert drain_retained(live) == [(b"ACME", True), (b"", False)]
    assert given(simulated) == [b"TEA"]
    keep(simulated, "TEA", b"")
    assert given(simulated) == [] and simulated.store.host_properties.held_bytes == 0


def test_they_come_by_priority_and_with_the_id_and_headers_that_they_were_sent_with(simulated: SimulatedBay) -> None:
    low, high = keep(simulated, "ACME", b"1", priority=2), keep(simulated, "TEA", b"2", priority=8)
    consumer = topic(simulated).subscribe()
    first, second = *consumer.take(1), *consumer.take(1)
    assert [(each.id, each.priority, each.headers) for each in (first, second)] == [
        (high, 8, {"symbol": "TEA"}),
        (low, 2, {"symbol": "ACME"}),
    ]
    assert first.retained and second.retained


def test_a_selector_decides_about_each(simulated: SimulatedBay) -> None:
    for symbol in ("ACME", "TEA", "RICE"):
        keep(simulated, symbol, symbol.encode())
    assert given(simulated, selector="symbol <> 'TEA'") == [b"ACME", b"RICE"]


def test_those_that_have_expired_are_given_to_nobody(simulated: SimulatedBay) -> None:
    keep(simulated, "ACME", b"1", expires_in=60)
    keep(simulated, "TEA", b"2")
    keep(simulated, "RICE", b"3", expires_in=90)
    assert given(simulated) == [b"1", b"2", b"3"]
    simulated.clock.advance(61)
    assert given(simulated) == given(simulated, durable="audit") == [b"2", b"3"]
    audit = topic(simulated).statistics().subscriptions["audit"]
    assert (audit.enqueued, audit.expired) == (2, 0)  # it took no room there


def test_one_that_expires_after_it_was_given_and_before_it_was_taken_is_not_taken(simulated: SimulatedBay) -> None:
    keep(simulated, "ACME", b"1", expires_in=60)
    keep(simulated, "TEA", b"2")
    consumer = topic(simulated).subscribe()
    simulated.clock.advance(61)
    simulated.bay.step()
    assert drain_retained(consumer) == [(b"2", True)]


def test_a_pattern_is_given_those_of_each_topic(simulated: SimulatedBay) -> None:
    for name in ("prices.eu", "prices.us", "news"):
        for symbol in ("ACME", "TEA"):
            simulated.bay.topic(name).send(
                f"{name} {symbol}".encode(), headers={"symbol": symbol}, retain="symbol", persistent=symbol == "TEA"
            )
    consumer = simulated.bay.topic("prices.*").subscribe()
    found = [body for body, is_retained in drain_retained(consumer) if is_retained]
    assert sorted(found) == [b"prices.eu ACME", b"prices.eu TEA", b"prices.us ACME", b"prices.us TEA"]


def test_what_is_given_back_is_retained_still(simulated: SimulatedBay) -> None:
    for symbol in ("ACME", "TEA", "RICE"):
        keep(simulated, symbol, symbol.encode())
    consumer = topic(simulated).subscribe()
    consumer.nack(consumer.take(2))
    topic(simulated).send(b"live", persistent=False)
    assert drain_retained(consumer) == [(b"ACME", True), (b"TEA", True), (b"RICE", True), (b"live", False)]


# How long they are kept.


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_they_survive_a_close_and_a_kill_in_their_order(simulated: SimulatedBay, is_index_lost: bool) -> None:
    for symbol, body in (("ACME", b"1"), ("TEA", b"2"), ("ACME", b"3")):
        keep(simulated, symbol, body)
    simulated.reopen()
    assert given(simulated) == [b"2", b"3"]
    keep(simulated, "RICE", b"4")
    keep(simulated, "TEA", b"5")
    simulated.crash(is_index_lost=is_index_lost)
    assert given(simulated) == [b"3", b"4", b"5"]
    keep(simulated, "RICE", b"")
    simulated.crash(is_index_lost=is_index_lost)
    assert given(simulated) == [b"3", b"5"]


def test_they_outlive_the_data_log_in_which_they_were_sent() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    for symbol in ("ACME", "TEA"):
        keep(simulated, symbol, symbol.encode())
    for _ in range(20):
        simulated.queue().send(bytes(8 * KIB))
    simulated.queue().purge()
    assert simulated.bay.cleanup().deleted
    simulated.crash(is_index_lost=True)
    assert given(simulated) == [b"ACME", b"TEA"]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_they_end_with_their_topic_and_no_other(simulated: SimulatedBay, is_index_lost: bool) -> None:
    for symbol in ("ACME", "TEA"):
        keep(simulated, symbol, symbol.encode())
    simulated.bay.topic("news").send(b"headline", headers={"symbol": "ACME"}, retain="symbol")
    topic(simulated).delete()
    simulated.crash(is_index_lost=is_index_lost)
    assert given(simulated) == []
    assert drain_retained(simulated.bay.topic("news").subscribe()) == [(b"headline", True)]


def test_a_topic_that_has_one_is_in_use() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(inactive_seconds=60)})
    keep(simulated, "ACME", b"1")
    for _ in range(30):
        simulated.clock.advance(10)
        simulated.bay.step()
    assert given(simulated) == [b"1"]


def test_a_name_of_a_later_version_is_kept() -> None:
    table = PropertyTable()
    names = {"\0retained/7/1/a/sb": b"1", "\0lease/7": b"2", "host": b"3"}
    table.restore(names)
    table.charge()
    assert table.describe() == names and list(table.values) == ["host"] and len(table.retained(7)) == 1
    table.forget_retained(7)
    assert set(table.describe()) == {"\0lease/7", "host"}
    table._check()


# What is refused, and what it takes.


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (None, "has no header 'symbol'"),
        ({"region": "eu"}, "has no header 'symbol'"),
        ({"symbol": None}, "has no header 'symbol'"),
        ({"symbol": ["ACME"]}, "is a list, which tells no retained messages apart"),
        ({"symbol": {"name": "ACME"}}, "is a dict, which tells no retained messages apart"),
        ({"symbol": "A" * RETAIN_KEY_BYTES_MAX}, r"'symbol' and its value take 518 bytes, and at most 512"),
        ({"symbol": "\N{SNOWMAN}" * 200}, "take 606 bytes"),
        ({"symbol": bytes(256)}, "take 518 bytes"),
        ({"symbol": 1 << 2000}, "take 609 bytes"),
        ({"symbol": "\ud800"}, "surrogate"),
    ],
)
@pytest.mark.parametrize("body", [b"1", b""])
def test_a_message_that_cannot_be_told_apart_is_refused_and_not_sent(
    simulated: SimulatedBay, headers: dict[str, HeaderValue] | None, said: str, body: bytes
) -> None:
    live = topic(simulated).subscribe()
    before = simulated.store.journal.end
    with pytest.raises(SettingsError, match=said):
        topic(simulated).send(body, headers=headers, retain="symbol")
    assert simulated.store.journal.end == before
    assert drain_retained(live) == [] and given(simulated) == []


def test_where_retain_is_refused_the_name_of_a_header_is_too(simulated: SimulatedBay) -> None:
    headers = {"symbol": "ACME"}
    with pytest.raises(SettingsError, match="is a queue, which retains no message"):
        simulated.queue().send(b"1", headers=headers, retain="symbol")
    with pytest.raises(SettingsError, match="can't have a delay"):
        keep(simulated, "ACME", b"1", delay=1.0)
    with simulated.bay.transaction() as transaction, pytest.raises(SettingsError, match="transaction of its own"):
        keep(simulated, "ACME", b"1", transaction=transaction)
    with pytest.raises(SettingsError, match="is a pattern"):
        simulated.bay.topic("prices.*").send(b"1", headers=headers, retain="symbol")
    with pytest.raises(SettingsError, match="has no header ''"):
        topic(simulated).send(b"1", headers=headers, retain="")
    for wrong in (b"symbol", 1, None):
        with pytest.raises(ArgumentError, match="or the name of a header"):
            topic(simulated).send(b"1", headers=headers, retain=wrong)  # type: ignore[arg-type]
    assert given(simulated) == []


def fill(simulated: SimulatedBay, **fields: Any) -> int:
    """Keep ever more values until there is no room; return of how many."""
    for number in range(100_000):
        try:
            keep(simulated, number, bytes(100), **fields)
        except PropertiesFull:
            return number
    raise AssertionError("it never ends")


def test_how_many_values_are_kept_is_bounded_and_what_finds_no_room_is_not_sent() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    values = fill(simulated)
    assert 20 < values < 32  # in a quarter of 64 KiB
    assert simulated.store.host_properties.held_bytes <= 16 * KIB
    live = topic(simulated).subscribe(selector="symbol < 0")
    with pytest.raises(PropertiesFull):
        keep(simulated, -1, bytes(100))
    assert drain_retained(live) == [] and len(given(simulated)) == values
    keep(simulated, 0, b"")
    keep(simulated, -1, bytes(100))
    assert len(given(simulated)) == values
    simulated.store.host_properties._check()
    simulated.check()


def test_those_that_have_expired_give_way_to_others_and_to_properties() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    for _ in range(2):
        values = fill(simulated, expires_in=60)
        simulated.clock.advance(61)
    simulated.bay.properties["cursor"] = bytes(8 * KIB)
    assert len(simulated.store.host_properties.retained(simulated.topic_state("prices").number)) == 0
    assert 20 < values < 32 and given(simulated) == []
    simulated.crash(is_index_lost=True)
    assert simulated.store.host_properties.held_bytes < 9 * KIB
    simulated.check()


def test_a_thousand_values_are_given_as_they_were_kept(simulated: SimulatedBay) -> None:
    for number in range(1_000):
        keep(simulated, number, b"%d" % number)
    assert given(simulated) == [b"%d" % number for number in range(1_000)]


def test_a_subscription_without_room_for_all_is_refused_and_not_made() -> None:
    simulated = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    for number in range(100):
        keep(simulated, number, bytes(4 * KIB))
    with pytest.raises(StoreFull):
        while True:
            simulated.queue().send(bytes(KIB), persistent=False)
    for durable in ("audit", None):
        with pytest.raises(StoreFull):
            topic(simulated).subscribe(durable=durable)
    assert topic(simulated).subscriptions() == [] and not simulated.topic_state("prices").online
    simulated.queue().purge()
    assert len(given(simulated, durable="audit")) == 100
    simulated.check()


def test_a_duplicate_that_is_not_stored_again_replaces_nothing() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(duplicate_window=10)})
    for number in (1, 2, 1):
        keep(simulated, "ACME", b"%d" % number, message_id=f"tea-{number}", producer="shop")
    assert given(simulated) == [b"2"]


@pytest.mark.parametrize("is_memory_full", [False, True])
def test_a_duplicate_of_what_deleted_a_message_deletes_no_later_one(is_memory_full: bool) -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(duplicate_window=10)})
    for body, own_id in ((b"1", "tea-1"), (b"", "tea-2"), (b"3", "tea-3")):
        keep(simulated, "ACME", body, message_id=own_id, producer="shop")
    others, free_bytes = simulated.budget.holder("others"), simulated.budget.free_bytes if is_memory_full else 0
    assert others.reserve(free_bytes)
    keep(simulated, "ACME", b"", message_id="tea-2", producer="shop")
    others.release(free_bytes)
    assert given(simulated) == [b"3"]


def test_a_deletion_that_a_crash_cut_short_while_memory_was_full_is_complete_when_it_is_repeated() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(duplicate_window=10)})
    topic(simulated).subscribe(durable="audit").close()
    keep(simulated, "ACME", b"1")
    others = simulated.budget.holder("others")
    for _ in range(2):  # what a transaction could take from caches goes with the first
        assert others.reserve(simulated.budget.free_bytes)
        keep(simulated, "TEA", b"")
    assert others.reserve(simulated.budget.free_bytes)
    simulated.disk.fail("write", 2, errno.EIO)
    with pytest.raises(StoreFailed):
        keep(simulated, "ACME", b"", message_id="tea-2", producer="shop")
    simulated.crash()
    keep(simulated, "ACME", b"", message_id="tea-2", producer="shop")
    assert given(simulated) == []
    assert [body for body, _ in drain_retained(topic(simulated).subscribe(durable="audit"))] == [b"1", b"", b"", b""]


# Values, and an event loop.


def test_a_topic_of_values_keeps_them_by_header_too(simulated: SimulatedBay) -> None:
    prices = simulated.bay.topic("prices", codec=codecs.JSON)
    for symbol, price in (("ACME", 1), ("TEA", 2), ("ACME", 3)):
        prices.send(price, headers={"symbol": symbol}, retain="symbol")
    with prices.subscribe() as consumer:
        assert [delivery.value for delivery in consumer.take(10)] == [2, 3]


def test_an_event_loop_keeps_them_by_header_and_is_given_them_too(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as bay:
            prices = await bay.topic("prices")
            for symbol, body in (("ACME", b"1"), ("TEA", b"2"), ("ACME", b"3"), ("TEA", b"")):
                await prices.send(body, headers={"symbol": symbol}, retain="symbol")
            with pytest.raises(SettingsError, match="has no header"):
                await prices.send(b"4", retain="symbol")
            async with prices.subscribe() as consumer:
                assert [(each.body, each.retained) for each in await consumer.take(10)] == [(b"3", True)]

    asyncio.run(use())
