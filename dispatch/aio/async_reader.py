"""AsyncTopicReader: a TopicReader in an event loop."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from ...store.errors import Closed
from ..config.checks import AT_ONCE
from ..topics.reader import ITERATED_MESSAGES
from .async_consumer import AsyncConsumer, AsyncDelivery
from .awaiting import asynchronous


@asynchronous(
    "a reader of forebay.aio",
    loop="async for message in reader:",
    block="async with topic.reader(…) as reader:",
)
class AsyncTopicReader:
    """A reader, made by `AsyncTopic.reader`. It belongs to its loop, and to one task at a time. As TopicReader."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._taken: list[AsyncDelivery] = []
        # Messages that an iteration took and has not yielded yet; the next one is last.
        self._ahead: list[AsyncDelivery] = []

    async def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> list[AsyncDelivery]:
        """Return up to max_messages that come next, at least one if there is one; [] after timeout seconds.

        As TopicReader.take. A cancelled take has taken nothing.
        """
        await self._settle()
        self._taken = await self._consumer.take(max_messages, timeout=timeout, max_bytes=max_bytes)
        return list(self._taken)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        """Return the next message and wait for it; the iteration ends when reader or store is closed."""
        if not self._ahead:
            try:
                taken = await self.take(ITERATED_MESSAGES, timeout=None)
            except Closed:
                raise StopAsyncIteration from None
            self._ahead = taken[::-1]
        return self._ahead.pop()

    async def _settle(self) -> None:
        """Settle what the last take returned. What a cancelled call has not settled, the next one settles."""
        taken, self._taken = self._taken, []  # a close may come while the ack waits, and must not make it again
        held = [delivery for delivery in taken if delivery.is_owed]
        try:
            if held:
                await self._consumer.ack(held)
        except BaseException:
            self._taken = taken
            raise

    async def close(self) -> None:
        """End the reader, so that the store keeps nothing for it. A second call does nothing."""
        self._ahead = []
        try:
            with suppress(Closed):
                await self._settle()
        finally:
            await self._consumer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncTopicReader over {self._consumer!r}>"
