"""AsyncQueue and AsyncTopic: send messages in an event loop, and make consumers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Self, TypeVar

from ...store.errors import Empty, ForebayError
from ...store.message import DEFAULT_PRIORITY, Headers, Message, body_bytes
from ..config.checks import check_bounds, deadline_after
from ..consumer.consumer import Consumer
from ..consumer.options import compiled
from ..engine.statistics import DestinationStatistics, TopicStatistics
from ..producer.encoding import as_bytes
from ..producer.sender import Sender
from ..queue import JOIN_POLL_SECONDS, Queue, TemporaryQueue
from ..topic import TemporaryTopic, Topic, TopicSubscription
from ..topics.subscriptions.cursors import Edge, Landing, Moment, parse_target
from .async_consumer import AsyncConsumer, ConsumerCallbacks, LoopContext
from .async_reader import AsyncTopicReader
from .async_transaction import AsyncTransaction, inner_transaction
from .awaited_opening import Opening
from .awaiting import asynchronous, awaited
from .loop import WORK_OF_A_MESSAGE_OF_MANY, WORK_OF_A_SENT_MESSAGE, LoopConfirmer, MustAwait

T = TypeVar("T")

PART_MESSAGES_MAX: Final = 2048
PART_BYTES_MAX: Final = 1 << 21
"""Bytes that a batch writes before other tasks run. With sync "always" so many bytes wait in RAM for their sync."""


class AsyncSender:
    """The common base of AsyncQueue and AsyncTopic, to which messages are sent."""

    def __init__(self, context: LoopContext, sender: Sender) -> None:
        caller = context.confirmer
        self._context = context
        self._caller = caller
        self._monitor = caller.monitor
        self._sender = sender
        self._order = context.order
        self._held = context.order.held

    @property
    def name(self) -> str:
        return self._sender.name

    async def send(
        self,
        body: bytes | bytearray | memoryview,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: AsyncTransaction | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = 0.0,
        producer: str | None = None,
        timeout: float | None = None,
        retain: bool | str = False,
    ) -> str:
        """Store one message and return its id. When it returns, the message is as safe as `sync` promises.

        As Queue.send. Sends of one tick of the loop share one sync. A cancelled send may be stored or not; if it was
        waiting for room, it is not. A worker thread sends a message with retain, so that one is stored even if it is
        cancelled.
        """
        inner = None if transaction is None else inner_transaction(transaction)
        if retain is not False or (self._held and self._sender.destination in self._held):
            content = body if type(body) is bytes else as_bytes(body)
            message = Message(content, headers, priority, message_id, persistent, group, expires_in, delay, producer)
            if retain is not False:
                return await self._caller.call(self._for_threads().send_message, message, retain, inner, timeout)
            deadline = deadline_after(timeout, self._monitor.monotonic())
            async with self._turn(deadline):
                own_id = await self._caller.drive(self._sender.send_steps(message, inner, deadline))
        else:
            try:
                own_id = self._sender.send(
                    body,
                    headers=headers,
                    priority=priority,
                    message_id=message_id,
                    transaction=inner,
                    persistent=persistent,
                    group=group,
                    expires_in=expires_in,
                    delay=delay,
                    producer=producer,
                    timeout=timeout,
                )
            except MustAwait as must:
                async with self._turn(None):  # at once, because no other send to this destination is under way
                    own_id = await self._caller.drive(must.steps, must.wait)
        # The task first waits here, after the write: another task's later send must not be stored before this one.
        if self._caller.owed:
            await self._caller.confirmed()
        elif self._caller.ends_turn(WORK_OF_A_SENT_MESSAGE):
            await asyncio.sleep(0)
        return own_id

    def _for_threads(self) -> Sender:
        """Return a sender to the same destination for a worker thread."""
        return self._sender

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        transaction: AsyncTransaction | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Store messages in order and return their ids.

        As Queue.send_many. At the latest after 2,048 messages or 2 MiB of bodies it waits for the sync, if there is
        one, and other tasks run. O(messages).
        """
        if not isinstance(messages, Iterable):
            return self._sender.send_many(messages)  # raises ArgumentError
        deadline = deadline_after(timeout, self._monitor.monotonic())
        if transaction is not None:
            self._sender.checked_transaction(inner_transaction(transaction))
        ids: list[str] = []
        async with self._turn(deadline):
            for part in _parts(messages):
                if ids:
                    await asyncio.sleep(0)
                await self._send_part(part, ids, transaction, deadline)
        self._caller.work += WORK_OF_A_MESSAGE_OF_MANY * len(ids)
        if self._caller.ends_turn():
            await asyncio.sleep(0)
        return ids

    def _turn(self, deadline: float | None) -> AbstractAsyncContextManager[None]:
        """Hold the destination in the block, once earlier sends to it have finished."""
        timeout = None if deadline is None else deadline - self._monitor.monotonic()
        return self._order.turn(self._sender.destination, timeout)

    async def _send_part(
        self, part: list[Message], ids: list[str], transaction: AsyncTransaction | None, deadline: float | None
    ) -> None:
        inner = inner_transaction(transaction)
        try:
            await self._caller.drive(self._sender.send_many_steps(part, ids, inner, deadline))
        except ForebayError as error:
            error.stored = len(ids)
            raise
        finally:
            if self._caller.owed:
                await self._caller.confirmed()

    def _adopt(
        self, consumer: Consumer, callbacks: ConsumerCallbacks, on_slow: Callable[[AsyncConsumer], None] | None
    ) -> AsyncConsumer:
        """Return the AsyncConsumer of a new Consumer. callbacks: those with which the Consumer was made."""
        adopted = AsyncConsumer(self._caller, consumer, self._context.lines, callbacks)
        if on_slow is not None:
            callbacks.on_slow = partial(on_slow, adopted)
        return adopted

    def __repr__(self) -> str:
        return repr(self._sender)


class AsyncQueue(AsyncSender):
    """A queue, made by `Forebay.queue`. It belongs to its loop. Holding it costs next to nothing."""

    _sender: Queue

    def subscribe(
        self,
        *,
        selector: str | None = None,
        prefetch: int | None = None,
        exclusive: bool = False,
        priority: int = 0,
        on_slow: Callable[[AsyncConsumer], None] | None = None,
        ack_deadline_seconds: float | None = None,
    ) -> Opening[AsyncConsumer]:
        """Return a consumer, which competes with the others of this queue for the messages that its selector matches.

        Await it, or enter it with `async with`. As Queue.subscribe, without on_ready, because a task can wait in
        `take`. on_slow is called in the loop's thread.
        """

        async def subscribe() -> AsyncConsumer:
            callbacks = ConsumerCallbacks(self._context.inbox)
            consumer = self._sender.subscribe(
                selector=selector,
                prefetch=prefetch,
                exclusive=exclusive,
                priority=priority,
                on_ready=callbacks,
                on_slow=_told_slow(callbacks, on_slow),
                ack_deadline_seconds=ack_deadline_seconds,
            )
            return self._adopt(consumer, callbacks, on_slow)

        return Opening(subscribe, "queue.subscribe()")

    @property
    def _synchronous(self) -> Queue:
        """A Queue of the same destination for worker threads, where calls may wait."""
        return self._sender.for_threads()

    async def browse(self, selector: str | None = None) -> AsyncGenerator[Message, None]:
        """Yield every pending message that matches, in order, with its id. As Queue.browse; other threads read.

        Messages are read, and their headers decoded, up to 512 messages or 1 MiB at a time, with one hop to a thread.
        """
        chosen = compiled(selector)
        self._monitor.raise_if_closed()
        windows = self._sender.windows(chosen)
        lock = threading.Lock()  # if the task is cancelled, `close` must wait for a read that goes on

        def read() -> list[Message] | None:
            with lock:
                return next(windows, None)

        def close() -> None:
            with lock:
                windows.close()

        try:
            while (window := await self._caller.call(read)) is not None:
                for message in window:
                    yield message
        finally:
            await self._caller.call(close)

    @awaited("queue.get()")
    async def get(self, timeout: float | None = None) -> Message:
        """Take the next message for good: it is acknowledged before this returns. As Queue.get.

        A cancelled get has taken nothing; or only its answer is lost, if its ack had begun.
        """
        check_bounds(timeout, None)
        async with self.subscribe(prefetch=1, ack_deadline_seconds=0) as consumer:
            deliveries = await consumer.take(1, timeout=timeout)
            if not deliveries:
                raise Empty(self.name, timeout or 0.0)
            message = await deliveries[0].read()
            await consumer.ack(deliveries)
        return message

    @awaited("queue.peek()")
    async def peek(self) -> Message | None:
        """Return the first message of `browse`, which may be in flight. None: the queue is empty."""
        return await asyncio.to_thread(self._synchronous.peek)

    async def join(self, timeout: float | None = None) -> bool:
        """Wait until every message is acknowledged, expired or otherwise gone; return whether the queue is empty.

        As Queue.join; other tasks run meanwhile.
        """
        check_bounds(timeout, None)
        monitor = self._monitor
        deadline = None if timeout is None else monitor.monotonic() + timeout
        while True:
            monitor.raise_if_closed()
            if not self.depth:
                return True
            left_seconds = JOIN_POLL_SECONDS if deadline is None else deadline - monitor.monotonic()
            if left_seconds <= 0:
                return False
            await asyncio.sleep(min(left_seconds, JOIN_POLL_SECONDS))

    @awaited("queue.find(message_id)")
    async def find(self, message_id: str) -> Message | None:
        """Return the pending message with this id. None: there is none. As Queue.find."""
        return await asyncio.to_thread(self._synchronous.find, message_id)

    async def purge(self) -> int:
        """Remove all pending messages that are not in flight; return how many. They never come again."""
        return await asyncio.to_thread(self._synchronous.purge)

    async def move(self, to: AsyncQueue | str, selector: str | None = None, limit: int | None = None) -> int:
        """Move pending messages that match to another queue of this store, in order; return how many.

        As Queue.move. If it is cancelled once it has begun, it still goes on to its end.
        """
        target = to._synchronous if isinstance(to, AsyncQueue) else to
        return await asyncio.to_thread(self._synchronous.move, target, selector, limit)

    async def delete(self) -> None:
        """Delete the queue with everything in it, and close its consumers. As Queue.delete."""
        await asyncio.to_thread(self._sender.delete)

    def pause(self) -> None:
        """Hand out nothing until `resume`: takes wait. As Queue.pause."""
        self._sender.pause()

    def resume(self) -> None:
        """Hand out again, and wake waiting takes."""
        self._sender.resume()

    @property
    def is_paused(self) -> bool:
        return self._sender.is_paused

    @property
    def depth(self) -> int:
        """Number of messages that are not acknowledged, including those in flight. O(1)."""
        return self._sender.depth

    @property
    def depth_bytes(self) -> int:
        """Bytes of the pending messages' bodies and headers. O(1)."""
        return self._sender.depth_bytes

    def __len__(self) -> int:
        """Return the depth."""
        return self.depth

    def __bool__(self) -> bool:
        """Return True, with or without messages. To ask whether there are any, use `depth`."""
        return True

    def statistics(self) -> DestinationStatistics:
        """Return a snapshot: the part of Forebay.statistics for this queue. O(consumers), no disk."""
        return self._sender.statistics()


class AsyncTopicSubscription:
    """A durable subscription, made by `AsyncTopic.subscription`. It belongs to its loop."""

    def __init__(self, caller: LoopConfirmer, subscription: TopicSubscription) -> None:
        self._caller = caller
        self._subscription = subscription

    @property
    def name(self) -> str:
        return self._subscription.name

    async def seek(
        self,
        to: Edge | None = None,
        *,
        sequence: int | None = None,
        time: Moment | float | None = None,
        priority: int = DEFAULT_PRIORITY,
    ) -> Landing:
        """Move the cursor, back or forward. As TopicSubscription.seek, in another thread.

        A cancelled one may have happened.
        """
        seek = self._subscription.seek
        return await self._caller.call(partial(seek, to, sequence=sequence, time=time, priority=priority))

    def __repr__(self) -> str:
        return repr(self._subscription)


class AsyncTopic(AsyncSender):
    """A topic, made by `Forebay.topic`. It belongs to its loop. Holding it costs next to nothing."""

    _sender: Topic

    def _for_threads(self) -> Sender:
        """Return a Topic that sends to the same topic from a worker thread."""
        return self._sender.for_threads()

    def subscribe(
        self,
        *,
        durable: str | None = None,
        shared: bool = False,
        selector: str | None = None,
        prefetch: int | None = None,
        exclusive: bool = False,
        priority: int = 0,
        on_slow: Callable[[AsyncConsumer], None] | None = None,
        ack_deadline_seconds: float | None = None,
    ) -> Opening[AsyncConsumer]:
        """Return a consumer of messages that are sent from now on. Await it, or enter it with `async with`.

        As Topic.subscribe, without on_ready. on_slow is called in the loop's thread.
        """

        async def subscribe() -> AsyncConsumer:
            callbacks = ConsumerCallbacks(self._context.inbox)

            def in_thread() -> Consumer:
                return self._sender.subscribe(
                    durable=durable,
                    shared=shared,
                    selector=selector,
                    prefetch=prefetch,
                    exclusive=exclusive,
                    priority=priority,
                    on_ready=callbacks,
                    on_slow=_told_slow(callbacks, on_slow),
                    ack_deadline_seconds=ack_deadline_seconds,
                )

            return self._adopt(await self._caller.call(in_thread, undo=Consumer.close), callbacks, on_slow)

        return Opening(subscribe, "topic.subscribe()")

    async def unsubscribe(self, durable: str) -> None:
        """End a durable subscription.

        Messages that only it had not acknowledged are deleted, which frees their data logs.
        """
        await self._caller.call(self._sender.unsubscribe, durable)

    def reader(
        self,
        from_: Edge | None = None,
        *,
        sequence: int | None = None,
        time: Moment | float | None = None,
        priority: int = DEFAULT_PRIORITY,
        selector: str | None = None,
    ) -> Opening[AsyncTopicReader]:
        """Return a reader of existing messages from a place on, and then of new ones. As Topic.reader.

        Await it, or enter it with `async with`.
        """

        async def read() -> AsyncTopicReader:
            target = parse_target(from_, sequence, time, priority, "from_")
            callbacks = ConsumerCallbacks(self._context.inbox)
            call = partial(self._sender.read_from, target, selector, callbacks)
            return AsyncTopicReader(self._adopt(await self._caller.call(call, undo=Consumer.close), callbacks, None))

        return Opening(read, "topic.reader()")

    def subscription(self, name: str) -> AsyncTopicSubscription:
        """Return a handle of a durable subscription, to move its cursor. This costs nothing and checks nothing."""
        return AsyncTopicSubscription(self._caller, self._sender.subscription(name))

    async def delete(self) -> None:
        """Delete the topic with all its subscriptions, and close its consumers. As Topic.delete."""
        await asyncio.to_thread(self._sender.delete)

    def subscriptions(self) -> list[str]:
        """Return the names of the durable subscriptions, sorted."""
        return self._sender.subscriptions()

    def statistics(self) -> TopicStatistics:
        """Return a snapshot, with the depth of each durable subscription. O(subscriptions), no disk."""
        return self._sender.statistics()


@asynchronous("a temporary destination of forebay.aio", block="async with bay.temporary_queue() as replies:")
class _AsyncTemporary(AsyncSender):
    """The common part of temporary queues and topics, which end with their handle."""

    _sender: TemporaryQueue | TemporaryTopic

    async def close(self) -> None:
        """Delete the destination with everything in it.

        As TemporaryQueue.close; if it is cancelled, it goes on to its end.
        """
        if not self._monitor.is_closed:
            await self._caller.call(self._sender.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTemporaryQueue(_AsyncTemporary, AsyncQueue):
    """A temporary queue, made by `Forebay.temporary_queue`.

    An async context manager, which deletes the queue at its end.
    """

    _sender: TemporaryQueue


class AsyncTemporaryTopic(_AsyncTemporary, AsyncTopic):
    """A temporary topic, made by `Forebay.temporary_topic`.

    An async context manager, which deletes the topic at its end.
    """

    _sender: TemporaryTopic


def _told_slow(callbacks: ConsumerCallbacks, on_slow: Any) -> Any:
    """Return the on_slow for the inner Consumer. An on_slow that can't be called stays, and `subscribe` refuses it."""
    return callbacks.tell_slow if callable(on_slow) else on_slow


def _parts(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Split messages into parts of at most PART_MESSAGES_MAX messages and about PART_BYTES_MAX bytes.

    A part also ends before a message that needs no sync if the message before needs one: the first would overtake the
    second. If the iterable raises, the messages before are a part of their own.
    """
    part: list[Message] = []
    part_bytes = 0
    needed_sync = False
    try:
        for message in messages:
            is_message = isinstance(message, Message)  # the send of the part refuses anything else
            needs_sync = not is_message or message.persistent is not False
            if needed_sync and not needs_sync and part:
                yield part
                part, part_bytes = [], 0
            needed_sync = needs_sync
            part.append(message)
            if is_message:
                body = message.body
                part_bytes += len(body) if type(body) is bytes else body_bytes(body)
            if len(part) >= PART_MESSAGES_MAX or part_bytes >= PART_BYTES_MAX:
                yield part
                part, part_bytes = [], 0
    except Exception:
        if part:
            yield part
        raise
    if part:
        yield part
