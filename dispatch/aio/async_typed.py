"""Queues and topics of values in an event loop, as dispatch/typed.py for threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from ...store.errors import DecodeError, Empty
from ...store.message import Headers, HeaderValue, Message
from ..codecs import Codec
from ..config.checks import AT_ONCE, check_bounds
from ..config.redelivery_delays import REJECTED
from ..consumer.processing import ExceptionTypes
from ..typed import Decoder, encoded, inner_deliveries, messages_of, rejected
from .async_consumer import AsyncConsumer, AsyncDelivery
from .async_queue import AsyncQueue, AsyncSender, AsyncTopic
from .async_transaction import AsyncTransaction
from .awaited_opening import Opening
from .awaiting import asynchronous, awaited

T = TypeVar("T")


class AsyncSendKeywords(TypedDict, total=False):
    """The keywords of AsyncQueue.send, for type checkers."""

    headers: Headers | None
    priority: int
    message_id: str | None
    transaction: AsyncTransaction | None
    persistent: bool
    group: str | None
    expires_in: float | None
    delay: float
    producer: str | None
    timeout: float | None
    retain: bool | str


@asynchronous("a delivery of forebay.aio", block="async with delivery:")
class AsyncTypedDelivery(Generic[T]):
    """A delivery with a `value`, returned by `AsyncTypedConsumer.take`. Settle it once."""

    __slots__ = ("_decoder", "delivery")

    def __init__(self, delivery: AsyncDelivery, codec: Codec[T]) -> None:
        # The delivery itself, with all its members.
        self.delivery = delivery
        self._decoder = Decoder(codec)

    @property
    def value(self) -> T:
        """The value that was sent, decoded once. As TypedDelivery.value.

        For a lazy delivery it reads the disk, as `body` does: await `read_value` then.
        """
        return self._decoder.value(self.delivery)

    async def read_value(self) -> T:
        """Return the value. For a lazy delivery, another thread reads and decodes it."""
        return await asyncio.to_thread(lambda: self.value) if self.delivery.is_lazy else self.value

    @property
    def body(self) -> bytes:
        """The bytes of the value."""
        return self.delivery.body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers, as a new dict each time."""
        return self.delivery.headers

    @property
    def id(self) -> str:
        """The message id that send returned."""
        return self.delivery.id

    @property
    def attempts(self) -> int:
        """Which delivery of the message it is; 1: the first."""
        return self.delivery.attempts

    async def ack(self, transaction: AsyncTransaction | None = None) -> None:
        """Settle it as processed."""
        await self.delivery.ack(transaction)

    async def nack(self, delay: float = 0.0) -> None:
        """Give it back as a failed attempt."""
        await self.delivery.nack(delay)

    async def release(self) -> None:
        """Give it back as not tried."""
        await self.delivery.release()

    async def reject(self, reason: str = REJECTED, transaction: AsyncTransaction | None = None) -> None:
        """Make it a dead letter."""
        await self.delivery.reject(reason, transaction)

    async def __aenter__(self) -> AsyncTypedDelivery[T]:
        """Settle it at the end of the block: `ack`, or `nack` if the block raises."""
        await self.delivery.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.delivery.__aexit__(*raised)

    def __repr__(self) -> str:
        return repr(self.delivery)


@asynchronous(
    "a consumer of forebay.aio",
    loop="async for delivery in consumer:",
    block="async with queue.subscribe() as consumer:",
)
class AsyncTypedConsumer(Generic[T]):
    """A consumer whose deliveries have a `value`, made by `subscribe` of a queue or topic with a codec."""

    def __init__(self, consumer: AsyncConsumer, codec: Codec[T]) -> None:
        # The consumer itself, with all its members.
        self.consumer = consumer
        self._codec = codec

    @awaited("consumer.take(…)")
    async def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> list[AsyncTypedDelivery[T]]:
        """Return up to max_messages deliveries. As AsyncConsumer.take."""
        return self._typed(await self.consumer.take(max_messages, timeout=timeout, max_bytes=max_bytes))

    async def __aiter__(self) -> AsyncIterator[AsyncTypedDelivery[T]]:
        async for delivery in self.consumer:
            yield AsyncTypedDelivery(delivery, self._codec)

    async def batches(
        self, max_messages: int, timeout: float | None = None
    ) -> AsyncIterator[list[AsyncTypedDelivery[T]]]:
        """Yield lists of up to max_messages deliveries. As AsyncConsumer.batches."""
        async for deliveries in self.consumer.batches(max_messages, timeout):
            yield self._typed(deliveries)

    async def process(
        self,
        handler: Callable[[AsyncTypedDelivery[T]], Awaitable[object]],
        concurrency: int = 1,
        *,
        reject_on: ExceptionTypes = (),
    ) -> None:
        """Call the handler for each message and settle it. As AsyncConsumer.process."""
        checked: Any = handler
        if callable(handler):
            checked = lambda delivery: handler(AsyncTypedDelivery(delivery, self._codec))  # noqa: E731
        await self.consumer.process(checked, concurrency, reject_on=reject_on)

    async def ack(
        self,
        deliveries: AsyncTypedDelivery[T] | Sequence[AsyncTypedDelivery[T]],
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Settle deliveries as processed."""
        await self.consumer.ack(inner_deliveries(deliveries), transaction=transaction)

    async def nack(
        self, deliveries: AsyncTypedDelivery[T] | Sequence[AsyncTypedDelivery[T]], delay: float = 0.0
    ) -> None:
        """Give deliveries back as failed attempts."""
        await self.consumer.nack(inner_deliveries(deliveries), delay)

    async def close(self) -> None:
        """Close the consumer and give its deliveries back."""
        await self.consumer.close()

    def _typed(self, deliveries: Iterable[AsyncDelivery]) -> list[AsyncTypedDelivery[T]]:
        return [AsyncTypedDelivery(delivery, self._codec) for delivery in deliveries]

    async def __aenter__(self) -> AsyncTypedConsumer[T]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return repr(self.consumer)


class AsyncTypedSender(Generic[T]):
    """The common base of queues and topics with a codec, to which values are sent."""

    def __init__(self, sender: AsyncSender, codec: Codec[T]) -> None:
        self._sender = sender
        self.codec = codec

    @property
    def name(self) -> str:
        return self._sender.name

    async def send(self, value: T, **keywords: Unpack[AsyncSendKeywords]) -> str:
        """Store one value as a message and return its id. As TypedQueue.send."""
        return await self._sender.send(encoded(self.codec, value), **keywords)

    async def send_many(
        self,
        values: Iterable[T | Message],
        *,
        transaction: AsyncTransaction | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Store values in order and return their ids. As TypedQueue.send_many."""
        messages = messages_of(self.codec, values)
        return await self._sender.send_many(messages, transaction=transaction, timeout=timeout)

    def __repr__(self) -> str:
        return repr(self._sender)


class AsyncTypedQueue(AsyncTypedSender[T]):
    """A queue of values, made by `await bay.queue(name, codec=…)`. It belongs to its loop."""

    def __init__(self, queue: AsyncQueue, codec: Codec[T]) -> None:
        super().__init__(queue, codec)
        # The queue itself, with all its members; its messages are bytes.
        self.queue = queue

    def subscribe(self, **keywords: Any) -> Opening[AsyncTypedConsumer[T]]:
        """Return a consumer of values: await it, or enter it with `async with`. Keywords as in AsyncQueue.subscribe."""

        async def subscribe() -> AsyncTypedConsumer[T]:
            return AsyncTypedConsumer(await self.queue.subscribe(**keywords), self.codec)

        return Opening(subscribe, "queue.subscribe()")

    @awaited("queue.get()")
    async def get(self, timeout: float | None = None) -> T:
        """Take the next value for good. DecodeError: it can't be decoded, and is a dead letter now. See TypedQueue."""
        check_bounds(timeout, None)
        async with self.subscribe(prefetch=1, ack_deadline_seconds=0) as consumer:
            deliveries = await consumer.take(1, timeout=timeout)
            if not deliveries:
                raise Empty(self.name, timeout or 0.0)
            [delivery] = deliveries
            try:
                value = await delivery.read_value()
            except DecodeError as refused:
                await delivery.reject(f"can't be decoded ({refused.problem})")
                raise rejected(refused) from refused.__cause__
            await delivery.ack()
        return value


class AsyncTypedTopic(AsyncTypedSender[T]):
    """A topic of values, made by `await bay.topic(name, codec=…)`. It belongs to its loop."""

    def __init__(self, topic: AsyncTopic, codec: Codec[T]) -> None:
        super().__init__(topic, codec)
        # The topic itself, with all its members; its messages are bytes.
        self.topic = topic

    def subscribe(self, **keywords: Any) -> Opening[AsyncTypedConsumer[T]]:
        """Return a consumer of values that are sent from now on. Keywords as in AsyncTopic.subscribe."""

        async def subscribe() -> AsyncTypedConsumer[T]:
            return AsyncTypedConsumer(await self.topic.subscribe(**keywords), self.codec)

        return Opening(subscribe, "topic.subscribe()")
