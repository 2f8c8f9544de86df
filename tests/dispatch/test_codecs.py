"""Queues and topics with a codec send and take values; what is no value says which message it is, and stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import forebay.aio
from forebay import ArgumentError, DecodeError, Empty, Message, Queue, TypedQueue
from forebay.dispatch.codecs import BYTES, JSON, MESSAGEPACK, TEXT, Codec, json_of, messagepack_of
from forebay.testing import MemoryForebay


@pytest.fixture
def bay() -> Iterator[MemoryForebay]:
    with MemoryForebay() as opened:
        yield opened


@dataclass
class Order:
    item: str
    kg: int


class Counting:
    """A host's own codec."""

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, value: int, /) -> bytes:
        return b"%d" % value

    def decode(self, body: bytes, /) -> int:
        self.decoded += 1
        return int(body)


@pytest.mark.parametrize(
    ("codec", "value", "body"),
    [
        (JSON, {"item": "tea", "kg": [1, None]}, b'{"item":"tea","kg":[1,null]}'),
        (MESSAGEPACK, {"raw": b"\xff"}, b"\x81\xa3raw\xc4\x01\xff"),
        (TEXT, "ß", "ß".encode()),
        (BYTES, b"as it is", b"as it is"),
        (json_of(Order), Order("tea", 1), b'{"item":"tea","kg":1}'),
        (messagepack_of(Order), Order("tea", 1), b"\x82\xa4item\xa3tea\xa2kg\x01"),
        (Counting(), 7, b"7"),
    ],
)
def test_value_comes_back_as_it_was_sent(bay: MemoryForebay, codec: Codec[Any], value: object, body: bytes) -> None:
    orders = bay.queue("orders", codec=codec)
    own_id = orders.send(value, headers={"region": "eu"}, priority=7)
    with orders.subscribe(selector="region = 'eu'") as consumer:
        [delivery] = consumer.take()
        assert (delivery.value, delivery.body, delivery.id) == (value, body, own_id)
        assert delivery.headers == {"region": "eu"} and delivery.attempts == 1 and delivery.delivery.priority == 7
        delivery.ack()
    assert orders.queue.depth == 0
    orders.send(value)
    assert orders.get(timeout=0.0) == value


def test_batch_has_values_and_messages_whose_bodies_are_encoded_already(bay: MemoryForebay) -> None:
    orders = bay.queue("orders", codec=JSON)
    ids = orders.send_many([{"n": 1}, Message(b'{"n":2}', {"own": True}), 3])
    with orders.subscribe() as consumer:
        [batch] = [next(consumer.batches(3))]
        assert [delivery.value for delivery in batch] == [{"n": 1}, {"n": 2}, 3]
        assert [delivery.id for delivery in batch] == ids and batch[1].headers == {"own": True}
        consumer.nack(batch[0])
        consumer.ack(batch[1:])
        assert [delivery.value for delivery in consumer.take(5)] == [{"n": 1}]


def test_value_is_decoded_when_it_is_read_and_once(bay: MemoryForebay) -> None:
    codec = Counting()
    orders = bay.queue("orders", codec=codec)
    orders.send(7)
    with orders.subscribe() as consumer:
        [delivery] = consumer.take()
        assert delivery.body == b"7" and codec.decoded == 0
        assert (delivery.value, delivery.value, codec.decoded) == (7, 7, 1)


def test_body_that_is_no_value_says_which_message_it_is_and_leaves_the_delivery_usable(
    bay: MemoryForebay,
) -> None:
    orders = bay.queue("orders", codec=json_of(Order))
    own_id = orders.queue.send(b'{"item": "secret"}')
    with orders.subscribe() as consumer:
        [delivery] = consumer.take()
        for _ in range(2):
            with pytest.raises(DecodeError, match="its body is still there") as error:
                _ = delivery.value
        assert (error.value.destination, error.value.message_id) == ("orders", own_id)
        assert "secret" not in str(error.value) and error.value.__cause__ is not None
        assert delivery.body == b'{"item": "secret"}'
        delivery.ack()
    assert orders.queue.depth == 0


def test_handler_that_meets_no_value_makes_a_dead_letter_of_it(bay: MemoryForebay) -> None:
    orders = bay.queue("orders", codec=JSON)
    orders.send_many([1, Message(b"{"), 3])
    values = []
    with orders.subscribe() as consumer:

        def handle(delivery: forebay.TypedDelivery[Any]) -> None:
            values.append(delivery.value)
            if delivery.value == 3:
                consumer.consumer.begin_drain()

        consumer.process(handle, reject_on=DecodeError)
    bay.step()
    assert values == [1, 3] and orders.queue.depth == 0 and orders.queue.statistics().dead_lettered == 1


def test_get_that_meets_no_value_loses_no_message(bay: MemoryForebay) -> None:
    orders = bay.queue("orders", codec=JSON)
    own_id = orders.queue.send(b"{")
    orders.send(2)
    with pytest.raises(DecodeError, match="it was rejected") as error:
        orders.get(timeout=0)
    assert error.value.is_rejected and error.value.__cause__ is not None
    assert orders.get(timeout=0) == 2 and orders.queue.depth == 0
    with pytest.raises(Empty):
        orders.get(timeout=0)
    bay.step()
    dead = bay.queue("DLQ.orders").find(own_id)
    assert dead is not None and dead.body == b"{"
    assert dead.headers is not None and dead.headers["dead_letter_reason"] == "can't be decoded (DecodeError)"


def test_value_that_the_codec_refuses_is_an_argument_error_and_its_slice_is_not_stored(
    bay: MemoryForebay,
) -> None:
    orders = bay.queue("orders", codec=JSON)
    with pytest.raises(ArgumentError, match="refuses a value of type object"):
        orders.send(object())
    with pytest.raises(ArgumentError) as error:
        orders.send_many([*range(300), object(), 4])
    assert error.value.stored == orders.queue.depth == 256


@pytest.mark.parametrize("make", [lambda opened: opened.queue, lambda opened: opened.topic])
def test_codec_without_both_methods_is_refused(bay: MemoryForebay, make: Callable[[Any], Any]) -> None:
    with pytest.raises(ArgumentError, match="codec must have the methods encode, decode"):
        make(bay)("orders", codec=object())


def test_without_a_codec_a_queue_is_a_queue(bay: MemoryForebay) -> None:
    assert type(bay.queue("orders")) is Queue and type(bay.queue("orders", codec=forebay.codecs.JSON)) is TypedQueue


def test_topic_with_a_codec_gives_values_to_its_subscriptions(bay: MemoryForebay) -> None:
    prices = bay.topic("prices", codec=TEXT)
    with prices.subscribe(durable="audit") as audit, prices.subscribe() as other:
        prices.send("1.50 €")
        for consumer in (audit, other):
            with consumer.take()[0] as delivery:
                assert delivery.value == "1.50 €"
    assert prices.topic.statistics().subscriptions["audit"].depth == 0


def test_get_in_an_event_loop_loses_no_message(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as opened:
            orders = await opened.queue("orders", codec=JSON)
            await orders.send_many([Message(b"{"), 2])
            with pytest.raises(DecodeError, match="it was rejected"):
                await orders.get(timeout=10)
            assert await orders.get(timeout=10) == 2
            with pytest.raises(Empty):
                await orders.get(timeout=0)
            dead = await (await opened.queue("DLQ.orders")).get(timeout=10)
            assert dead.body == b"{"

    asyncio.run(use())


def test_values_in_an_event_loop(tmp_path: Path) -> None:
    async def use() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB") as opened:
            orders, prices = await opened.queue("orders", codec=JSON), await opened.topic("prices", codec=TEXT)
            await orders.send({"n": 1}, headers={"own": True})
            await orders.send_many([2, Message(b"{")])
            async with orders.subscribe() as consumer:
                first, second, broken = await consumer.take(3)
                assert first.value == {"n": 1} and await second.read_value() == 2
                with pytest.raises(DecodeError):
                    _ = broken.value
                await consumer.ack([first, second])
                async with broken:
                    assert broken.body == b"{"
            assert orders.queue.depth == 0
            async with prices.subscribe() as subscriber:
                await prices.send("ß")
                async for delivery in subscriber:
                    assert delivery.value == "ß"
                    await delivery.ack()
                    break
            await orders.send(4)
            assert await orders.get() == 4

    asyncio.run(use())
