"""AsyncForebay: one open directory in one event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar, Unpack, overload

from ...store.disk.disk import Disk
from ...store.disk.layout import PathArgument
from ...store.environment.clock import Clock
from ...store.environment.progress import OnProgress
from ...store.errors import ArgumentError
from ...store.maintenance.data_log_remover import CleanupReport
from ...store.recovery.recovery import RecoveryReport
from ..codecs import Codec
from ..config.checks import check_codec, check_name, check_topic_name
from ..config.policy import is_pattern
from ..config.settings import Settings, SettingsFields
from ..engine.health import Health
from ..engine.resizing import ResizeReport
from ..engine.statistics import Statistics
from ..explain.cause import DataLogReport, Explanation
from ..forebay import Forebay, open_forebay
from ..queue import Queue, TemporaryQueue
from ..topic import TemporaryTopic, Topic, TopicPattern
from .async_consumer import AsyncConsumer, LoopContext
from .async_properties import AsyncProperties
from .async_queue import AsyncQueue, AsyncTemporaryQueue, AsyncTemporaryTopic, AsyncTopic
from .async_transaction import AsyncTransaction
from .async_typed import AsyncTypedQueue, AsyncTypedTopic
from .awaited_opening import Opening
from .awaiting import asynchronous, awaited
from .loop import WORKERS, LoopConfirmer, finished
from .loop_inbox import LoopInbox

T = TypeVar("T")


@asynchronous("a Forebay of forebay.aio", block="async with forebay.aio.open(…) as bay:")
class AsyncForebay:
    """An open store, made by `forebay.aio.open`, or in a running loop from an open Forebay. An async context manager.

    It and all objects made from it belong to that loop. `synchronous` is the same directory for threads, and for other
    loops, at the same time.
    """

    def __init__(self, bay: Forebay, *, workers: Executor | None = None) -> None:
        if not isinstance(bay, Forebay):
            raise ArgumentError(f"an open Forebay is expected, not {type(bay).__name__}")
        loop, engine = asyncio.get_running_loop(), bay._engine
        self._synchronous = bay
        self._workers = workers or _new_workers()
        # The close that is under way; None: there is none.
        self._closing: Future[None] | None = None
        inbox = LoopInbox(loop)
        self._caller = LoopConfirmer(engine.loop_parts, loop, self._workers, inbox)
        self._queue_parts, self._topic_parts = engine.queue_parts, engine.topic_parts
        self._context = LoopContext(self._caller, inbox)

    @property
    def synchronous(self) -> Forebay:
        """The same store with the interface for threads. A loop that calls it waits for its syncs and reads."""
        return self._synchronous

    @property
    def settings(self) -> Settings:
        return self._synchronous.settings

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or is being closed."""
        return self._synchronous.is_closed

    @property
    def recovery(self) -> RecoveryReport:
        """What opening the store did."""
        return self._synchronous.recovery

    @overload
    async def queue(self, name: str) -> AsyncQueue: ...

    @overload
    async def queue(self, name: str, *, codec: Codec[T]) -> AsyncTypedQueue[T]: ...

    @awaited("bay.queue(name)")
    async def queue(self, name: str, *, codec: Codec[T] | None = None) -> AsyncQueue | AsyncTypedQueue[T]:
        """Return the queue of a name. The first call with that name creates it. As Forebay.queue."""
        check_codec(codec)
        queue = self._queue_parts.queues.open_or_create(check_name(name), self._caller)
        if self._caller.owed:
            await self._caller.confirmed()
        queue_of_bytes = AsyncQueue(self._context, Queue(self._queue_parts, queue, self._caller))
        return queue_of_bytes if codec is None else AsyncTypedQueue(queue_of_bytes, codec)

    @overload
    async def topic(self, name: str) -> AsyncTopic: ...

    @overload
    async def topic(self, name: str, *, codec: Codec[T]) -> AsyncTypedTopic[T]: ...

    @awaited("bay.topic(name)")
    async def topic(self, name: str, *, codec: Codec[T] | None = None) -> AsyncTopic | AsyncTypedTopic[T]:
        """Return the topic of a name. The first call with that name creates it. As Forebay.topic."""
        check_codec(codec)
        self._topic_parts.monitor.raise_if_closed()
        topic = self._topic_parts.topics.by_name.get(check_topic_name(name))
        if topic is None and is_pattern(name) and not self._topic_parts.topics.exists(name):
            sender: Topic = TopicPattern(self._topic_parts, name, self._caller)
        else:
            if topic is None:
                topic = await self._caller.call(
                    self._topic_parts.topics.open_or_create, name, self._topic_parts.confirmer
                )
            sender = Topic(self._topic_parts, topic, self._caller)
        topic_of_bytes = AsyncTopic(self._context, sender)
        return topic_of_bytes if codec is None else AsyncTypedTopic(topic_of_bytes, codec)

    @property
    def properties(self) -> AsyncProperties:
        """The small values that the host keeps in the store. As Forebay.properties; changes are awaited."""
        return AsyncProperties(self._caller, self._synchronous.properties)

    def temporary_queue(self) -> Opening[AsyncTemporaryQueue]:
        """Make a queue for replies that ends with its `close`. Await it, or enter it with `async with`.

        As Forebay.temporary_queue.
        """

        async def make() -> AsyncTemporaryQueue:
            made = await self._caller.call(self._synchronous.temporary_queue, undo=TemporaryQueue.close)
            return AsyncTemporaryQueue(self._context, TemporaryQueue(self._queue_parts, made.current, self._caller))

        return Opening(make, "bay.temporary_queue()")

    def temporary_topic(self) -> Opening[AsyncTemporaryTopic]:
        """Make a topic that ends with its `close`. Await it, or enter it with `async with`.

        As Forebay.temporary_topic.
        """

        async def make() -> AsyncTemporaryTopic:
            made = await self._caller.call(self._synchronous.temporary_topic, undo=TemporaryTopic.close)
            return AsyncTemporaryTopic(self._context, TemporaryTopic(self._topic_parts, made.current, self._caller))

        return Opening(make, "bay.temporary_topic()")

    def destinations(self) -> list[str]:
        """Return the names of all queues, sorted. `topics` returns the names of topics."""
        return self._synchronous.destinations()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return self._synchronous.topics()

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction over any queues and topics of this store. StoreFull: memory_limit has no room for it."""
        return AsyncTransaction(self._caller, self._synchronous.transaction())

    def prepared(self) -> list[AsyncTransaction]:
        """Return the prepared transactions that wait for their outcome, including those that survived a crash."""
        return [AsyncTransaction(self._caller, transaction) for transaction in self._synchronous.prepared()]

    def health(self) -> Health:
        """Return whether the store does everything it should, and a sentence for each problem.

        O(1), no disk; never raises.
        """
        return self._synchronous.health()

    async def statistics(self) -> Statistics:
        """Return a snapshot. O(destinations + data logs), no disk; made in another thread."""
        return await asyncio.to_thread(self._synchronous.statistics)

    async def checkpoint(self) -> None:
        """Bring the index on disk up to now, so that the next open has nothing to replay."""
        await asyncio.to_thread(self._synchronous.checkpoint)

    async def cleanup(self) -> CleanupReport:
        """Relocate messages out of sparse data logs, and delete or archive data logs that nothing needs, now.

        As Forebay.cleanup.
        """
        return await asyncio.to_thread(self._synchronous.cleanup)

    async def explain(
        self, subject: int | str | bytes | AsyncQueue | AsyncTopic | AsyncConsumer | None = None
    ) -> Explanation:
        """Explain as Forebay.explain does, with queues, topics and consumers of this loop."""
        inner: Any = subject
        if isinstance(subject, AsyncQueue | AsyncTopic):
            inner = subject._sender
        elif isinstance(subject, AsyncConsumer):
            inner = subject._consumer
        return await asyncio.to_thread(self._synchronous.explain, inner)

    async def data_logs(self) -> list[DataLogReport]:
        """Return each data log of the journal, the oldest first, as Forebay.data_logs; in another thread."""
        return await asyncio.to_thread(self._synchronous.data_logs)

    async def resize(self, memory_limit: int | str | None) -> ResizeReport:
        """Set the memory_limit until the next open. As Forebay.resize."""
        return await asyncio.to_thread(self._synchronous.resize, memory_limit)

    async def step(self) -> int:
        """Do the background work that is due; return how many things were done. For background=False.

        With background=False, delayed messages only come back by this call.
        """
        return await asyncio.to_thread(self._synchronous.step)

    async def close(self, timeout: float | None = None) -> None:
        """Stop, write a checkpoint, leave the marker of a clean shutdown, release the directory.

        A second call waits for a close that is under way and ends as that close does, whatever its own timeout. If the
        store is closed, it does nothing.

        Waiting takes end with Closed. A cancelled close still goes on to its end. timeout: seconds to wait for each
        background thread.
        """
        if self._closing is None:
            try:
                self._closing = self._workers.submit(self._synchronous.close, timeout)
            except RuntimeError:
                return  # closed already
        closing = self._closing
        try:
            await finished(self._workers, closing)
        finally:
            self._workers.shutdown(wait=False)  # submitted work is done anyway
            if closing.done():
                self._closing = None

    def __repr__(self) -> str:
        return repr(self._synchronous)

    async def __aenter__(self) -> AsyncForebay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _new_workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="forebay-aio")


def open_in_loop(
    directory: PathArgument | None = None,
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
    on_progress: OnProgress | None = None,
    **fields: Unpack[SettingsFields],
) -> Opening[AsyncForebay]:
    """Open a directory in the running loop, make it if it does not exist, and recover what a crash left.

    Await it, or enter it with `async with`. As forebay.open, in another thread, which also calls on_progress.
    """

    async def open_it() -> AsyncForebay:
        workers = _new_workers()
        try:
            submitted = workers.submit(
                lambda: open_forebay(directory, settings, clock=clock, disk=disk, on_progress=on_progress, **fields)
            )
            bay = await finished(workers, submitted, Forebay.close)
            try:
                return AsyncForebay(bay, workers=workers)
            except BaseException:
                await finished(workers, workers.submit(bay.close))  # or nobody could open the directory again
                raise
        except BaseException:
            workers.shutdown(wait=False)
            raise

    return Opening(open_it, "forebay.aio.open(…)")
