"""A send with a lifetime costs little more than one without, and stores what the way of batches stores."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from compiled import interpreted
from counting import opcodes
from simulated_bay import SimulatedBay

from forebay import Delivery, DestinationPolicy, Message, MessageTooLarge, SettingsError

HEADERS = pytest.mark.parametrize("headers", [None, {"region": "eu"}], ids=["no headers", "headers"])


@interpreted("counts the interpreter's instructions")
@HEADERS
def test_a_lifetime_adds_a_fifth_to_a_send_at_most(headers: Any) -> None:
    queue = SimulatedBay(sync="never").queue()

    def cost(**fields: Any) -> int:
        for _ in range(3):
            queue.send(b"x" * 1024, headers=headers, **fields)
        # The least of several: a finalizer of another test, or a checkpoint that is due, may come into one.
        return min(opcodes(lambda: queue.send(b"x" * 1024, headers=headers, **fields)) for _ in range(5))

    assert cost(expires_in=60.0) <= 1.2 * cost()


@interpreted("counts the interpreter's instructions")
@HEADERS
def test_a_lifetime_adds_a_fifth_to_a_send_of_a_list_at_most(headers: Any) -> None:
    queue = SimulatedBay(sync="never").queue()

    def cost(**fields: Any) -> int:
        messages = [Message(b"x" * 1024, headers=headers, **fields) for _ in range(200)]
        queue.send_many(messages)
        return min(opcodes(lambda: queue.send_many(messages)) for _ in range(5))

    assert cost(expires_in=60.0) <= 1.2 * cost()


def test_a_list_with_lifetimes_is_cut_into_slices_by_its_bytes() -> None:
    bay = SimulatedBay(memory_limit="64MiB")
    queue = bay.queue()
    sizes = [1024] * 300 + [100 * 1024] * 5 + [300 * 1024] * 2 + [10]
    messages = [Message(bytes([at % 251]) * size, expires_in=60.0) for at, size in enumerate(sizes)]
    assert len(set(queue.send_many(messages))) == len(sizes)
    consumer = queue.subscribe(prefetch=0)
    found: list[Delivery] = []
    while len(found) < len(sizes):
        found += consumer.take(len(sizes), timeout=0)
    assert [delivery.body for delivery in found] == [message.body for message in messages]
    assert {delivery.expires_at for delivery in found} != {None}
    bay.check()


@interpreted("counts the interpreter's instructions")
@pytest.mark.parametrize("persistent", [True, False])
def test_a_lifetime_adds_four_tenths_to_a_send_of_many_at_most(persistent: bool) -> None:
    queue = SimulatedBay(sync="never").queue()

    def cost(**fields: Any) -> int:
        messages = [Message(b"x" * 1024, headers={"region": "eu"}, persistent=persistent, **fields) for _ in range(50)]
        queue.send_many(messages)
        return min(opcodes(lambda: queue.send_many(messages)) for _ in range(5))

    assert cost(expires_in=60.0) <= 1.4 * cost()


def test_each_of_many_has_the_lifetime_it_was_sent_with() -> None:
    bay = SimulatedBay()
    queue, lifetimes = bay.queue(), [10.0, 10.0, 15, 15.0, 10.0, 60.0, 60.0, 17.5]

    def messages() -> Iterator[Message]:
        for lifetime in lifetimes:
            yield Message(b"x", expires_in=lifetime)
            bay.clock.advance(1.0)

    queue.send_many(messages())
    delays = [Message(b"x", delay=1.0, expires_in=60.0), Message(b"x", delay=0.0, expires_in=60.0)]
    queue.send_many(delays)
    found = [delivery.expires_at for delivery in queue.subscribe(prefetch=0).take(8)]
    begin = found[0]
    assert begin is not None
    expected = [begin + round(1000 * (at + lifetime - 10.0)) for at, lifetime in enumerate(lifetimes)]
    assert found == expected
    with pytest.raises(SettingsError):
        queue.send_many([Message(b"x", expires_in=1), Message(b"x", expires_in=True)])
    bay.check()


@pytest.mark.parametrize("sync", ["never", "always"])
@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("reopened", [False, True])
def test_one_that_expires_is_stored_as_a_batch_of_it_is(sync: Any, kind: str, reopened: bool) -> None:
    bay = SimulatedBay(sync=sync)

    def doors() -> tuple[Any, Any]:
        if kind == "queue":
            return bay.queue(), bay.queue()
        topic = bay.bay.topic("prices")
        return topic, topic

    to, _ = doors()
    if kind == "topic":
        to.subscribe(durable="audit").close()
    for n in range(600):
        body, headers = b"%d" % n, {"n": n}
        if n % 3 == 0:
            to.send(body, headers=headers, expires_in=10.0 + n % 2)
        elif n % 3 == 1:
            to.send_many([Message(body, headers=headers, expires_in=10.0 + n % 2)])
        else:
            to.send(body, headers=headers)
    if reopened:
        bay.crash(is_index_lost=True)
        to, _ = doors()
    bay.check()
    consumer = to.subscribe(prefetch=0) if kind == "queue" else to.subscribe(durable="audit", prefetch=0)
    first = consumer.take(6)
    assert [delivery.headers for delivery in first] == [{"n": n} for n in range(6)]
    assert [found.expires_at is None for found in first] == [False, False, True, False, False, True]
    consumer.ack(first)
    bay.clock.advance(10.5)
    bay.bay.step()
    left = []
    while deliveries := consumer.take(100):
        left += [int(delivery.body) for delivery in deliveries]
        consumer.ack(deliveries)
    assert left == [n for n in range(6, 600) if n % 3 == 2 or n % 2 == 1]
    bay.check()


@pytest.mark.parametrize("expires_in", [0, -1, float("nan"), "60", True, Decimal("sNaN")])
def test_a_lifetime_that_cannot_be_is_refused(expires_in: Any) -> None:
    queue = SimulatedBay().queue()
    for depth in range(2):  # also beside one that can be and began in the same millisecond
        with pytest.raises(SettingsError):
            queue.send(b"x", expires_in=expires_in)
        assert queue.depth == depth
        queue.send(b"x", expires_in=1.0)


def test_a_limited_queue_gives_the_room_of_one_that_expires_back_where_it_is_refused() -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=2)}, max_message_bytes="2KiB")
    queue = bay.queue()
    with pytest.raises(MessageTooLarge):
        queue.send(b"x" * 2040, expires_in=5.0)
    queue.send(b"1", expires_in=5.0)
    queue.send(b"2", expires_in=5.0)
    assert queue.depth == 2
    bay.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_a_message_whose_id_counts_once_has_its_lifetime(persistent: bool) -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(duplicate_window=10)})
    queue = bay.queue()
    for number in range(2):
        assert queue.send(b"x", message_id="1", expires_in=5.0, persistent=persistent) == "1", number
    consumer = queue.subscribe()
    (delivery,) = consumer.take(2)
    assert delivery.expires_at == bay.clock.time_ms() + 5_000
    consumer.release(delivery)
    bay.clock.advance(6.0)
    assert consumer.take(2) == []
    bay.check()
