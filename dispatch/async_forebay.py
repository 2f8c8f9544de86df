"""AsyncForebay: one open directory in one event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from ..store.cleaner import CleanupReport
from ..store.files import PathArgument
from ..store.recovery import RecoveryReport
from .async_consumer import AsyncConsumer, WaitingLines
from .async_limited_queue import AsyncLimitedQueue, AsyncLimitedTopic
from .async_queue import AsyncQueue, AsyncTopic
from .async_transaction import AsyncTransaction
from .explain import Explanation
from .forebay import Forebay, open_forebay
from .limited_queue import LimitedQueue, LimitedTopic
from .loop_engine import WORKERS, LoopEngine, finished
from .opening import Opening
from .resizing import ResizeReport
from .sender import check_name
from .settings import Settings
from .statistics import Statistics
from .waiting_line import Bell


class AsyncForebay:
    """Made by `forebay.aio.open`, or in a running loop from a Forebay that is open. An async context manager.

    It and all that is made from it belong to that loop. `synchronous` is the
    same directory for threads, and for other loops, at the same time.
    """

    def __init__(self, bay: Forebay, *, workers: Executor | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._synchronous = bay
        self._workers = workers or _new_workers()
        self._engine = LoopEngine(bay._engine, loop, self._workers)
        self._bay = Forebay(self._engine, None)
        self.bell = Bell(loop)
        self.lines = WaitingLines()

    @property
    def synchronous(self) -> Forebay:
        """The same store with the interface for threads. A loop that calls it waits for its syncs and reads."""
        return self._synchronous

    @property
    def settings(self) -> Settings:
        return self._bay.settings

    @property
    def recovery(self) -> RecoveryReport:
        """What opening did."""
        return self._bay.recovery

    async def queue(self, name: str) -> AsyncQueue:
        """The queue of that name, which begins to exist with this call. SettingsError for a name that can't be."""
        queue = self._bay.queue(name)
        if self._engine.owed:
            await self._engine.confirm()
        if isinstance(queue, LimitedQueue):
            return AsyncLimitedQueue(self, self._engine, queue._area)
        return AsyncQueue(self, self._engine, queue)

    async def topic(self, name: str) -> AsyncTopic:
        """The topic of that name, which begins to exist with this call. A queue may have the same name."""
        if check_name(name) not in self._engine.topics.areas:
            await self._engine.call(self._synchronous.topic, name)
        topic = self._bay.topic(name)
        if isinstance(topic, LimitedTopic):
            return AsyncLimitedTopic(self, self._engine, topic._topic)
        return AsyncTopic(self, self._engine, topic)

    def destinations(self) -> list[str]:
        """Names of all queues, sorted."""
        return self._bay.destinations()

    def topics(self) -> list[str]:
        """Names of all topics, sorted."""
        return self._bay.topics()

    def transaction(self) -> AsyncTransaction:
        """Begin a transaction, over any queues of this store. StoreFull when memory_limit has no room for it."""
        return AsyncTransaction(self._engine, self._bay.transaction())

    def prepared(self) -> list[AsyncTransaction]:
        """Transactions that are prepared and wait for their outcome, those included that survived a crash."""
        return [AsyncTransaction(self._engine, transaction) for transaction in self._bay.prepared()]

    async def statistics(self) -> Statistics:
        """A snapshot. O(destinations + data logs), no disk; in another thread."""
        return await asyncio.to_thread(self._synchronous.statistics)

    async def checkpoint(self) -> None:
        """Bring the index on disk up to now, so that the next open has nothing to replay."""
        await asyncio.to_thread(self._synchronous.checkpoint)

    async def cleanup(self) -> CleanupReport:
        """Delete or archive the data logs that nothing needs any more, now instead of at the next interval."""
        return await asyncio.to_thread(self._synchronous.cleanup)

    async def explain(self, subject: int | AsyncQueue | AsyncConsumer | None = None) -> Explanation:
        """As Forebay.explain, of queues and consumers of this loop."""
        inner: Any = subject
        if isinstance(subject, AsyncQueue):
            inner = subject._sender
        elif isinstance(subject, AsyncConsumer):
            inner = subject._consumer
        return await asyncio.to_thread(self._synchronous.explain, inner)

    async def resize(self, memory_limit: int | str | None) -> ResizeReport:
        """Another memory_limit from now on, until the next open. As Forebay.resize."""
        return await asyncio.to_thread(self._synchronous.resize, memory_limit)

    async def step(self) -> int:
        """Do the background work that is due; how many things were done. For background=False.

        Without it, nothing that was parked by a delay comes back then.
        """
        return await asyncio.to_thread(self._synchronous.step)

    async def close(self, timeout: float | None = None) -> None:
        """Stop, write a checkpoint, leave the mark of a clean shutdown, let the directory go. Twice is once.

        Waiting takes end with Closed. It goes on to its end if it is
        cancelled. timeout: seconds to wait for each background thread.
        """
        try:
            submitted = self._workers.submit(self._synchronous.close, timeout)
        except RuntimeError:
            return  # closed already
        try:
            await finished(self._workers, submitted)
        finally:
            self._workers.shutdown(wait=False)  # what was submitted is done all the same

    async def __aenter__(self) -> AsyncForebay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _new_workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(WORKERS, thread_name_prefix="forebay-aio")


def open_in_loop(directory: PathArgument, settings: Settings | None = None, **fields: Any) -> Opening[AsyncForebay]:
    """Open a directory in the running loop, making it if it is not there, and recover what a crash left.

    Await it, or enter it with `async with`. As forebay.open, in another thread.
    """

    async def open_it() -> AsyncForebay:
        workers = _new_workers()
        try:
            submitted = workers.submit(lambda: open_forebay(directory, settings, **fields))
            return AsyncForebay(await finished(workers, submitted, Forebay.close), workers=workers)
        except BaseException:
            workers.shutdown(wait=False)
            raise

    return Opening(open_it)
