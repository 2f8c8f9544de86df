"""LoopConfirmer: one event loop that calls an open store. Its calls never wait for the disk.

Queues and consumers write in the loop's thread, which is arithmetic and a write, as in any other thread. A call may
then owe a sync or an urgent checkpoint. A worker thread does these for a group of calls (see aio/group_commit.py). A
crash leaves the same as after calls of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, Final, TypeVar, cast

from ...store.errors import Closed
from ..admission.limits import SenderWaker, Wait
from ..core.confirmer import Confirmer
from ..core.lists.load import Load
from ..core.model.destination import TargetList
from ..engine.facade_parts import LoopParts
from .group_commit import GroupCommit
from .loop_inbox import LoopInbox

T = TypeVar("T")

WORKERS: Final = 2
"""One syncs, the other one loads."""
WORK_A_TURN: Final = 1024
"""Tasks that never wait let other tasks run after so much work together, about half a millisecond.

A message that is taken or settled counts 1.
"""
WORK_OF_A_CALL: Final = 6
"""What a call counts in addition to its messages."""
WORK_OF_A_SENT_MESSAGE: Final = 2 * (1 + WORK_OF_A_CALL)
"""What a message counts that is sent alone: as much as to take and to settle it, which takes as long.

So consumers keep up with producers. If a send counted less, the queue would grow as long as both never wait.
"""
WORK_OF_A_MESSAGE_OF_MANY: Final = 2
"""What each message of a `send_many` counts."""


class MustAwait(Exception):
    """A call has steps that wait: the caller must await `LoopConfirmer.drive` with them."""

    def __init__(self, steps: Generator[Wait, None, Any], wait: Wait) -> None:
        super().__init__()
        self.steps = steps
        self.wait = wait


class TaskWaker:
    """Wakes one task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, inbox: LoopInbox) -> None:
        self._loop = loop
        self._inbox = inbox
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake the task. Any thread may call it, with or without locks."""
        self._inbox.post(self._event.set)

    async def wait(self, seconds: float) -> None:
        """Wait until it is notified, or the time is over."""
        self._event.clear()
        timer = self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()


class LoopConfirmer(Confirmer):
    """One event loop that calls an open store. Only its thread may use it."""

    def __init__(self, parts: LoopParts, loop: asyncio.AbstractEventLoop, workers: Executor, inbox: LoopInbox) -> None:
        super().__init__(parts.monitor, parts.journal)
        self._publisher = parts.publisher
        self._thread_confirmer = parts.thread_confirmer
        self._syncs_always = parts.publisher.syncs_always
        self._checkpoint_need = parts.checkpoint_need
        self._loader = parts.loader
        self.loop = loop
        # The journal end that `confirmed` must confirm for the last call; 0: none.
        self.owed = 0
        # Work done in this turn of the loop. A call adds its messages when it has handled them.
        self.work = 0
        # How much of a turn one task may use.
        self._part = WORK_A_TURN
        # How much work is done when the present task must end its turn.
        self._turn_end = WORK_A_TURN
        # Number of tasks that ended their turn in this turn of the loop.
        self._ended = 0
        self._workers = workers
        self._inbox = inbox
        self._group_commit = GroupCommit(parts.monitor, parts.thread_confirmer, loop, workers)

    # ------------------------------------------------------------------ what a write owes

    def confirm(self, journal_end: int) -> None:
        """Do what needs no wait, and note the rest in `owed`."""
        # It reads the deque without a call, because each message passes here.
        if self._syncs_always and (self._publisher.unpublished or journal_end > self._journal.durable_end):
            owed = journal_end or 1  # 0 would say that nothing is owed
            if owed > self.owed:
                self.owed = owed
            return
        # CheckpointNeed.is_due, written inline: each message passes here twice.
        need = self._checkpoint_need
        if (need.adds >= need.due_adds or need.is_index_filling) and not self._thread_confirmer.leave_checkpoint():
            self.owed = max(self.owed, 1)
        if self.monitor.deferred:
            self.monitor.run_deferred()

    def confirmed(self) -> asyncio.Future[None]:
        """Return a future that ends once everything that this tick owes is done, or with what doing it raised."""
        owed, self.owed = self.owed, 0
        return self._group_commit.wait(owed)

    # ------------------------------------------------------------------ sends that wait

    def waker(self) -> SenderWaker:
        """Return what wakes one task."""
        return TaskWaker(self.loop, self._inbox)

    def run(self, steps: Generator[Wait, None, T]) -> T:
        """Run the steps of a send that need no wait. MustAwait: `drive` must run the rest."""
        try:
            wait = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        raise MustAwait(steps, wait)

    async def drive(self, steps: Generator[Wait, None, T], wait: Wait | None = None) -> T:
        """Run the steps of a send, awaiting what they wait for. wait: what they wait for already."""
        try:
            while True:
                if wait is None:
                    wait = next(steps)
                try:
                    await self._await(wait)
                except BaseException as error:
                    wait = steps.throw(error)
                else:
                    wait = None
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    async def _await(self, wait: Wait) -> None:
        if self.owed:
            await self.confirmed()  # a sender may wait for its own messages to be acknowledged
        if wait.free is not None:
            await self.call(wait.free)
        waker = cast(TaskWaker, wait.waker)
        while wait_seconds := self._poll(wait):
            await waker.wait(wait_seconds)

    def _poll(self, wait: Wait) -> float:
        with self.monitor.lock, self.monitor.all_or_broken:
            return wait.poll()

    # ------------------------------------------------------------------ turns and threads

    def ends_turn(self, work: int = WORK_OF_A_CALL) -> bool:
        """Count a call; return True if other tasks should run first, because this turn of the loop has done enough."""
        self.work += work
        if self.work < self._turn_end:
            return False
        self._turn_end = min(self.work + self._part, WORK_A_TURN)
        self._ended += 1
        if self._ended == 1:
            self.loop.call_soon(self._begin_turn)
        return True

    def _begin_turn(self) -> None:
        """Give as many tasks as ended the last turn equal parts of the next one; else the first would use all of it."""
        self._part = self._turn_end = WORK_A_TURN // self._ended
        self.work = self._ended = 0

    async def load(self, load: Load[TargetList], *, makes_room: bool) -> None:
        """Finish a load that a take began. It goes on if the take is cancelled. makes_room: see EagerLoader.finish."""
        if load.regions or load.target.selector_group.selector is not None:
            await self.call(partial(self._loader.finish, load, makes_room=makes_room))
        else:
            self._loader.finish(load)  # nothing of it is read from the disk

    async def call(
        self, function: Callable[..., T], *arguments: object, undo: Callable[[T], object] | None = None
    ) -> T:
        """Call a function in a worker thread. It is called even if the caller is cancelled; its result is undone then.

        Closed: the workers have ended.
        """
        try:
            submitted = self._workers.submit(function, *arguments)
        except RuntimeError:
            raise Closed("the store") from None
        return await finished(self._workers, submitted, undo)


async def finished(workers: Executor, submitted: Future[T], undo: Callable[[T], object] | None = None) -> T:
    """Return the result of a worker. If the caller is cancelled, the result is undone as soon as it is there."""
    try:
        return await asyncio.shield(asyncio.wrap_future(submitted))
    except asyncio.CancelledError:
        if undo is not None:
            try:
                workers.submit(lambda: undo(submitted.result()))
            except RuntimeError:  # close has shut them down: the worker that makes the result undoes it
                submitted.add_done_callback(lambda made: undo(made.result()) if made.exception() is None else None)
        raise
