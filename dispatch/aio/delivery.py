"""AsyncDelivery: one message handed out to one consumer of an event loop, until it is acknowledged or goes back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...store.message import HeaderValue, Message
from ..core.model import Delivery

if TYPE_CHECKING:
    from .consumer import AsyncConsumer
    from .transaction import AsyncTransaction


class AsyncDelivery:
    """What `take` returns. Settle it once, with `ack` or `nack`.

    As Delivery; where that is lazy, `body`, `headers`, `id`, `group` and
    `timestamp` read the journal in the loop's thread. `read` does not.
    """

    __slots__ = ("_consumer", "_delivery")

    def __init__(self, consumer: AsyncConsumer, delivery: Delivery) -> None:
        self._consumer = consumer
        self._delivery = delivery

    @property
    def body(self) -> bytes:
        """O(1); one read of the journal when the delivery is lazy. StoreFailed when that read fails."""
        return self._delivery.body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """A new dict each time; decoded now. O(bytes of the headers)."""
        return self._delivery.headers

    @property
    def id(self) -> str:
        """The message id that send returned."""
        return self._delivery.id

    @property
    def group(self) -> str | None:
        """The group it was sent with."""
        return self._delivery.group

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970 (UTC)."""
        return self._delivery.timestamp

    @property
    def expires_at(self) -> int | None:
        """From when on nobody is handed it any more, in ms since 1970 (UTC); None: never."""
        return self._delivery.expires_at

    @property
    def priority(self) -> int:
        return self._delivery.priority

    @property
    def persistent(self) -> bool:
        return self._delivery.persistent

    @property
    def destination(self) -> str:
        return self._delivery.destination

    @property
    def sequence(self) -> int:
        """Place in its lane, that is among the messages of this priority in this destination."""
        return self._delivery.sequence

    @property
    def attempts(self) -> int:
        """1 at the first delivery."""
        return self._delivery.attempts

    @property
    def is_lazy(self) -> bool:
        """Its body is not in RAM: `read` it."""
        return self._delivery._body is None

    async def read(self) -> Message:
        """Body, headers, priority and id as one. The loop goes on while a lazy one is read; nothing is kept."""
        return await asyncio.to_thread(self._read) if self.is_lazy else self._read()

    def _read(self) -> Message:
        delivery = self._delivery
        return Message(delivery.body, delivery.headers, delivery.priority, delivery.id, group=delivery.group)

    async def ack(self, transaction: AsyncTransaction | None = None) -> None:
        """Done with it: after this returns, or the transaction commits, it is never delivered again."""
        await self._consumer.ack(self, transaction=transaction)

    async def nack(self, delay: float = 0.0) -> None:
        """Not done: it goes back to its place, to be delivered again after delay seconds."""
        await self._consumer.nack(self, delay=delay)

    def __repr__(self) -> str:
        return repr(self._delivery)
