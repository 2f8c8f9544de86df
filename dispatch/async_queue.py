"""AsyncQueue and AsyncTopic: send messages in an event loop, and make its consumers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ..store.errors import ForebayError
from ..store.message import DEFAULT_PRIORITY, Headers, Message
from .async_consumer import AsyncConsumer, ConsumerBell
from .async_transaction import AsyncTransaction, inner_transaction
from .consumer import Consumer
from .loop_engine import LoopEngine
from .opening import Opening
from .queue import Queue, Sender
from .statistics import TopicStatistics
from .topic import Topic

if TYPE_CHECKING:
    from .async_forebay import AsyncForebay

PART_MESSAGES_MAX: Final = 2048
PART_BYTES_MAX: Final = 1 << 21
"""So much of a batch is written before other tasks run; with sync "always" that much waits in RAM for its sync."""


class AsyncSender:
    """What queue and topic have in common: messages are sent there."""

    def __init__(self, bay: AsyncForebay, engine: LoopEngine, sender: Sender) -> None:
        self._bay = bay
        self._engine = engine
        self._sender = sender

    @property
    def name(self) -> str:
        return self._sender.name

    async def send(
        self,
        body: bytes,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: AsyncTransaction | None = None,
        persistent: bool = True,
        producer: str | None = None,
    ) -> str:
        """Store one message and return its id. When it returns the message is safe as `sync` promises.

        As Queue.send. Sends of one tick of the loop share one sync. One that
        is cancelled may be stored or not.
        """
        engine = self._engine
        if engine.ends_turn():
            await asyncio.sleep(0)
        own_id = self._sender.send(
            body,
            headers=headers,
            priority=priority,
            message_id=message_id,
            transaction=inner_transaction(transaction),
            persistent=persistent,
            producer=producer,
        )
        if engine.owed:
            await engine.confirm()
        return own_id

    async def send_many(self, messages: Iterable[Message], *, transaction: AsyncTransaction | None = None) -> list[str]:
        """Store messages in order and return their ids.

        As Queue.send_many. After every 2,048 messages or 2 MiB of bodies it
        waits for the sync, if there is one, and other tasks run. O(messages).
        """
        if not isinstance(messages, Iterable):
            return self._sender.send_many(messages)  # which refuses it
        engine = self._engine
        ids: list[str] = []
        parts = _Parts(messages)
        while not parts.is_at_end:
            if ids or engine.ends_turn():
                await asyncio.sleep(0)
            try:
                ids += self._sender.send_many(parts, transaction=inner_transaction(transaction))
            except ForebayError as error:
                error.stored = len(ids) + getattr(error, "stored", 0)  # type: ignore[attr-defined]
                raise
            finally:
                if engine.owed:
                    await engine.confirm()
        return ids

    def _subscribe(self, subscribe: Callable[[ConsumerBell], Consumer]) -> AsyncConsumer:
        bell = ConsumerBell(self._bay.bell)
        return self._adopt(subscribe(bell), bell)

    def _adopt(self, consumer: Consumer, bell: ConsumerBell) -> AsyncConsumer:
        return AsyncConsumer(self._engine, consumer, self._bay.lines, bell)

    def __repr__(self) -> str:
        return repr(self._sender)


class AsyncQueue(AsyncSender):
    """Made by `Forebay.queue`. Belongs to its loop. Costs nothing to hold and nothing to make again."""

    _sender: Queue

    def subscribe(self, *, selector: str | None = None, prefetch: int | None = None) -> Opening[AsyncConsumer]:
        """A consumer that competes with the others of this queue for the messages its selector matches.

        Await it, or enter it with `async with`. As Queue.subscribe; there is
        no on_ready, because a task can wait in `take`.
        """

        async def subscribe() -> AsyncConsumer:
            return self._subscribe(
                lambda bell: self._sender.subscribe(selector=selector, prefetch=prefetch, on_ready=bell)
            )

        return Opening(subscribe)

    @property
    def _synchronous(self) -> Queue:
        """Of the engine that waits, for worker threads."""
        return Queue(self._bay.synchronous._engine, self._sender._area)

    async def browse(self, selector: str | None = None) -> AsyncGenerator[Message, None]:
        """Every pending message that matches, in order, with its id. As Queue.browse; read by other threads."""
        messages = self._synchronous.browse(selector)
        try:
            while found := await self._engine.call(_next, messages):
                yield found
        finally:
            await self._engine.call(messages.close)

    async def find(self, message_id: str) -> Message | None:
        """The pending message with this id; None: there is none. As Queue.find."""
        return await asyncio.to_thread(self._synchronous.find, message_id)

    async def purge(self) -> int:
        """Remove everything that is pending and not in flight; returns how many messages. They never come again."""
        return await asyncio.to_thread(self._synchronous.purge)

    async def move(self, to: AsyncQueue | str, selector: str | None = None, limit: int | None = None) -> int:
        """Move what is pending and matches to another queue of this store, in order; returns how many messages.

        As Queue.move. Cancelled, it goes on to its end.
        """
        target = to._synchronous if isinstance(to, AsyncQueue) else to
        return await asyncio.to_thread(self._synchronous.move, target, selector, limit)

    async def delete(self) -> None:
        """The queue is gone with everything in it; its consumers are closed. As Queue.delete."""
        await asyncio.to_thread(self._synchronous.delete)

    def pause(self) -> None:
        """Hand out nothing until `resume`: takes wait. As Queue.pause."""
        self._sender.pause()

    def resume(self) -> None:
        """Hand out again, and wake who waits."""
        self._sender.resume()

    @property
    def is_paused(self) -> bool:
        return self._sender.is_paused

    @property
    def depth(self) -> int:
        """Messages that are not acknowledged, those in flight included. O(1)."""
        return self._sender.depth

    @property
    def depth_bytes(self) -> int:
        """Their bodies and headers, in bytes. O(1)."""
        return self._sender.depth_bytes


class AsyncTopic(AsyncSender):
    """Made by `Forebay.topic`. Belongs to its loop. Costs nothing to hold and nothing to make again."""

    _sender: Topic

    def subscribe(
        self, *, durable: str | None = None, selector: str | None = None, prefetch: int | None = None
    ) -> Opening[AsyncConsumer]:
        """A consumer of what is sent from now on. Await it, or enter it with `async with`. As Topic.subscribe."""

        async def subscribe() -> AsyncConsumer:
            bell = ConsumerBell(self._bay.bell)

            def in_thread() -> Consumer:
                return self._sender.subscribe(durable=durable, selector=selector, prefetch=prefetch, on_ready=bell)

            return self._adopt(await self._engine.call(in_thread, undo=Consumer.close), bell)

        return Opening(subscribe)

    async def unsubscribe(self, durable: str) -> None:
        """End a durable subscription: what only it had not acknowledged is gone, and frees its data logs."""
        await self._engine.call(self._sender.unsubscribe, durable)

    def subscriptions(self) -> list[str]:
        """Names of the durable subscriptions, sorted."""
        return self._sender.subscriptions()

    def statistics(self) -> TopicStatistics:
        """A snapshot, with the depth of each durable subscription. O(subscriptions), no disk."""
        return self._sender.statistics()


def _next(messages: Iterator[Message]) -> Message | None:
    return next(messages, None)


class _Parts:
    """A batch that can be iterated again and again, a part each time, until all of it was seen."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = iter(messages)
        self.is_at_end = False

    def __iter__(self) -> Iterator[Message]:
        part_bytes = 0
        for count, message in enumerate(self._messages, 1):
            yield message
            part_bytes += len(message.body)
            if count >= PART_MESSAGES_MAX or part_bytes >= PART_BYTES_MAX:
                return
        self.is_at_end = True
