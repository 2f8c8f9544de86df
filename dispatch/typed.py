"""Queues and topics of values: a codec translates between a host's values and the bytes of messages.

Each object here wraps another one (`queue`, `topic`, `consumer`, `delivery`), which does the work and also has the
methods that need no codec. So hosts without a codec pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, cast

from ..store.errors import ArgumentError, DecodeError, Empty
from ..store.message import Headers, HeaderValue, Message
from .codecs import Codec
from .config.checks import AT_ONCE, check_bounds
from .config.redelivery_delays import REJECTED
from .consumer.consumer import Consumer
from .consumer.processing import ExceptionTypes
from .core.model.delivery import Delivery
from .producer.sender import Sender
from .queue import Queue
from .topic import Topic
from .transactions.transaction import Transaction

T = TypeVar("T")

_UNDECODED: Final = object()


class SendKeywords(TypedDict, total=False):
    """The keywords of Queue.send, for type checkers."""

    headers: Headers | None
    priority: int
    message_id: str | None
    transaction: Transaction | None
    persistent: bool
    group: str | None
    expires_in: float | None
    delay: float
    producer: str | None
    timeout: float | None
    retain: bool | str


class Decoder(Generic[T]):
    """The value of one body, decoded when it is first read."""

    __slots__ = ("_codec", "_value")

    def __init__(self, codec: Codec[T]) -> None:
        self._codec = codec
        self._value: object = _UNDECODED

    def value(self, delivery: Any) -> T:
        """Return the value of a delivery's body. DecodeError: the codec can't decode it."""
        if self._value is _UNDECODED:
            body = delivery.body
            try:
                self._value = self._codec.decode(body)
            except Exception as error:
                raise DecodeError(delivery.destination, delivery.id, type(error).__name__) from error
        return cast(T, self._value)


class TypedDelivery(Generic[T]):
    """A delivery with a `value`, returned by `TypedConsumer.take`. Settle it once, like a Delivery."""

    __slots__ = ("_decoder", "delivery")

    def __init__(self, delivery: Delivery, codec: Codec[T]) -> None:
        # The delivery itself, with all its members.
        self.delivery = delivery
        self._decoder = Decoder(codec)

    @property
    def value(self) -> T:
        """The value that was sent. It is decoded once, when it is first read.

        DecodeError: the codec can't decode the body. The delivery is unchanged: `body` has the bytes, and it must be
        settled, perhaps by `reject`.
        """
        return self._decoder.value(self.delivery)

    @property
    def body(self) -> bytes:
        """The bytes of the value. As Delivery.body."""
        return self.delivery.body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers, as a new dict each time. As Delivery.headers."""
        return self.delivery.headers

    @property
    def id(self) -> str:
        """The message id that send returned."""
        return self.delivery.id

    @property
    def attempts(self) -> int:
        """Which delivery of the message it is; 1: the first."""
        return self.delivery.attempts

    def ack(self, transaction: Transaction | None = None) -> None:
        """Settle it as processed. As Delivery.ack."""
        self.delivery.ack(transaction)

    def nack(self, delay: float = 0.0) -> None:
        """Give it back as a failed attempt. As Delivery.nack."""
        self.delivery.nack(delay)

    def release(self) -> None:
        """Give it back as not tried. As Delivery.release."""
        self.delivery.release()

    def reject(self, reason: str = REJECTED, transaction: Transaction | None = None) -> None:
        """Make it a dead letter. As Delivery.reject."""
        self.delivery.reject(reason, transaction)

    def __enter__(self) -> TypedDelivery[T]:
        """Settle it at the end of the block: `ack`, or `nack` if the block raises."""
        self.delivery.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self.delivery.__exit__(*raised)

    def __repr__(self) -> str:
        return repr(self.delivery)


class TypedConsumer(Generic[T]):
    """A consumer whose deliveries have a `value`, made by `subscribe` of a queue or topic with a codec."""

    def __init__(self, consumer: Consumer, codec: Codec[T]) -> None:
        # The consumer itself, with all its members.
        self.consumer = consumer
        self._codec = codec

    def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> list[TypedDelivery[T]]:
        """Return up to max_messages deliveries. As Consumer.take."""
        return self._typed(self.consumer.take(max_messages, timeout=timeout, max_bytes=max_bytes))

    def __iter__(self) -> Iterator[TypedDelivery[T]]:
        return (TypedDelivery(delivery, self._codec) for delivery in self.consumer)

    def batches(self, max_messages: int, timeout: float | None = None) -> Iterator[list[TypedDelivery[T]]]:
        """Yield lists of up to max_messages deliveries. As Consumer.batches."""
        return map(self._typed, self.consumer.batches(max_messages, timeout))

    def process(
        self,
        handler: Callable[[TypedDelivery[T]], object],
        concurrency: int = 1,
        *,
        reject_on: ExceptionTypes = (),
    ) -> None:
        """Call the handler for each message and settle it. As Consumer.process.

        With reject_on=DecodeError, a body that can't be decoded becomes a dead letter when the handler reads `value`.
        """
        checked: Any = handler
        if callable(handler):
            checked = lambda delivery: handler(TypedDelivery(delivery, self._codec))  # noqa: E731
        self.consumer.process(checked, concurrency, reject_on=reject_on)

    def ack(
        self, deliveries: TypedDelivery[T] | Sequence[TypedDelivery[T]], *, transaction: Transaction | None = None
    ) -> None:
        """Settle deliveries as processed. As Consumer.ack."""
        self.consumer.ack(inner_deliveries(deliveries), transaction=transaction)

    def nack(self, deliveries: TypedDelivery[T] | Sequence[TypedDelivery[T]], delay: float = 0.0) -> None:
        """Give deliveries back as failed attempts. As Consumer.nack."""
        self.consumer.nack(inner_deliveries(deliveries), delay)

    def close(self) -> None:
        """Close the consumer and give its deliveries back. As Consumer.close."""
        self.consumer.close()

    def _typed(self, deliveries: Iterable[Delivery]) -> list[TypedDelivery[T]]:
        return [TypedDelivery(delivery, self._codec) for delivery in deliveries]

    def __enter__(self) -> TypedConsumer[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self.consumer)


class TypedSender(Generic[T]):
    """The common base of queues and topics with a codec, to which values are sent."""

    def __init__(self, sender: Sender, codec: Codec[T]) -> None:
        self._sender = sender
        self.codec = codec

    @property
    def name(self) -> str:
        return self._sender.name

    def send(self, value: T, **keywords: Unpack[SendKeywords]) -> str:
        """Store one value as a message and return its id. As Queue.send; ArgumentError if the codec can't encode it."""
        return self._sender.send(encoded(self.codec, value), **keywords)

    def send_many(
        self, values: Iterable[T | Message], *, transaction: Transaction | None = None, timeout: float | None = None
    ) -> list[str]:
        """Store values in order and return their ids. As Queue.send_many.

        A Message among them is sent unchanged: its body is bytes already. Values are encoded as their slices are
        written. If the codec can't encode one, the attribute `stored` of the ArgumentError says how many of the first
        are stored.
        """
        return self._sender.send_many(messages_of(self.codec, values), transaction=transaction, timeout=timeout)

    def __repr__(self) -> str:
        return repr(self._sender)


class TypedQueue(TypedSender[T]):
    """A queue of values, made by `Forebay.queue(name, codec=…)`. Holding it costs next to nothing."""

    def __init__(self, queue: Queue, codec: Codec[T]) -> None:
        super().__init__(queue, codec)
        # The queue itself, with all its members; its messages are bytes.
        self.queue = queue

    def subscribe(self, **keywords: Any) -> TypedConsumer[T]:
        """Return a consumer of values. Keywords as in Queue.subscribe."""
        return TypedConsumer(self.queue.subscribe(**keywords), self.codec)

    def get(self, timeout: float | None = None) -> T:
        """Take the next value for good, as Queue.get.

        DecodeError: the body can't be decoded, and is a dead letter now.
        """
        check_bounds(timeout, None)
        with self.subscribe(prefetch=1, ack_deadline_seconds=0) as consumer:
            deliveries = consumer.take(1, timeout=timeout)
            if not deliveries:
                raise Empty(self.name, timeout or 0.0)
            [delivery] = deliveries
            try:
                value = delivery.value
            except DecodeError as refused:
                delivery.reject(f"can't be decoded ({refused.problem})")
                raise rejected(refused) from refused.__cause__
            delivery.ack()
        return value


class TypedTopic(TypedSender[T]):
    """A topic of values, made by `Forebay.topic(name, codec=…)`. Holding it costs next to nothing."""

    def __init__(self, topic: Topic, codec: Codec[T]) -> None:
        super().__init__(topic, codec)
        # The topic itself, with all its members; its messages are bytes.
        self.topic = topic

    def subscribe(self, **keywords: Any) -> TypedConsumer[T]:
        """Return a consumer of values that are sent from now on. Keywords as in Topic.subscribe."""
        return TypedConsumer(self.topic.subscribe(**keywords), self.codec)


def rejected(refused: DecodeError) -> DecodeError:
    """Return the error of a `get` whose message became a dead letter."""
    return DecodeError(refused.destination, refused.message_id, refused.problem, is_rejected=True)


def encoded(codec: Codec[T], value: T) -> bytes:
    """Return the body of a value. ArgumentError: the codec can't encode it."""
    try:
        return codec.encode(value)
    except Exception as error:
        problem = f"the codec refuses a value of type {type(value).__name__} ({type(error).__name__})"
        raise ArgumentError(f"{problem}: send what it can encode") from error


def messages_of(codec: Codec[T], values: Iterable[T | Message]) -> Iterable[Message]:
    """Return the messages for some values, made on demand."""
    if not isinstance(values, Iterable):
        return values  # the send refuses it
    return (value if isinstance(value, Message) else Message(encoded(codec, value)) for value in values)


def inner_deliveries(deliveries: Any) -> Any:
    """Return the deliveries inside typed ones; the consumer refuses anything else itself."""
    if isinstance(deliveries, list | tuple):
        return [getattr(delivery, "delivery", delivery) for delivery in deliveries]
    return getattr(deliveries, "delivery", deliveries)
