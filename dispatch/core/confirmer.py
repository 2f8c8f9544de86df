"""Confirmer: does what a write still owes before its caller may rely on it, like a publisher confirm of RabbitMQ.

With sync "always" this is a sync, which publishes what has become durable (`Publisher.publish_synced`); the Confirmer
publishes what was left. Then it makes a checkpoint if one is due.
Every sender and consumer has a Confirmer: that of threads, which waits, or that of its event loop, which does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TypeVar, cast

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.disk.disk import SyncSignal
from ...store.environment.locks import OwnedCondition, condition_of
from ...store.errors import Closed
from ...store.journal.journal import Journal
from ...store.journal.journal_syncer import JournalSyncer
from ..admission.limits import SenderWaker, Wait
from .monitor import Monitor
from .publisher import Publisher

T = TypeVar("T")


class Confirmer(ABC):
    """Confirms calls for a thread, which may wait, or for an event loop, which may not."""

    def __init__(self, monitor: Monitor, journal: Journal) -> None:
        self.monitor = monitor
        self._journal = journal

    @property
    def journal_end(self) -> int:
        """Where the journal ends after what a call has written, for `confirm`. Requires: the lock."""
        return self._journal.end

    @abstractmethod
    def confirm(self, journal_end: int) -> None:
        """Confirm the call after which the journal ended there. Requires: no lock.

        NOTHING_TO_SYNC: no power cut may undo the call, but a checkpoint may be due.
        """

    def confirm_written(self) -> None:
        """Confirm all that is written by now. Requires: no lock."""
        with self.monitor.lock:
            journal_end = self.journal_end
        self.confirm(journal_end)

    @abstractmethod
    def waker(self) -> SenderWaker:
        """Return what wakes a send of this Confirmer that waits in a line."""

    @abstractmethod
    def run(self, steps: Generator[Wait, None, T]) -> T:
        """Run the steps of a send to its end, waiting where they ask for it. Requires: no lock."""


class ThreadConfirmer(Confirmer):
    """Confirms for threads: the calling thread does what is owed, and waits."""

    def __init__(
        self,
        monitor: Monitor,
        journal: Journal,
        syncer: JournalSyncer,
        checkpointer: Checkpointer,
        publisher: Publisher,
        leave_checkpoint: Callable[[], bool],
    ) -> None:
        """leave_checkpoint: passes a due checkpoint on to another thread; returns False if no thread takes it."""
        super().__init__(monitor, journal)
        self._syncer = syncer
        self._checkpointer, self._checkpoint_need = checkpointer, checkpointer.need
        self._publisher = publisher
        self._syncs_always = publisher.syncs_always
        self.leave_checkpoint = leave_checkpoint
        # The entry that had waited longest for publication at the last `confirm_left`. If the next call finds the same,
        # an interrupted call has left it behind.
        self._first_seen: object = None

    def confirm(self, journal_end: int) -> None:
        """Make the journal durable up to that end if sync is "always", publish, and checkpoint if that is due.

        JournalSyncer.sync publishes: after a sync it calls its listener, `Publisher.publish_synced`. Requires: no lock.
        """
        if self._syncs_always:
            # If this thread syncs, publish_synced publishes as far as there is room.
            is_published = self._syncer.sync(journal_end)
            publisher = self._publisher
            # It reads the deques without a call, because each message passes here.
            if not is_published and (publisher.unpublished or publisher.unpublished_non_persistent):
                publisher.publish_left()
        # CheckpointNeed.is_due, written inline: each message passes here twice.
        need = self._checkpoint_need
        if (need.adds >= need.due_adds or need.is_index_filling) and not self.leave_checkpoint():
            with suppress(Closed):  # the store closes meanwhile, with what this call has written
                self._checkpointer.checkpoint()
        if self.monitor.deferred:
            self.monitor.run_deferred()

    def begin_confirm(self, journal_end: int, signal: SyncSignal | None) -> SyncSignal | None:
        """Begin what `confirm` does, if that is a sync and nothing more. Requires: no lock.

        Return what signals that the sync is made: call `try_end_confirm` then. None: call `confirm`, in a thread that
        may wait. signal: what an earlier call has returned to the same event loop.
        """
        # What a commit has not published yet may have to be written to tmp-storage.
        if self._publisher.unpublished_non_persistent:
            return None
        return self._syncer.begin_sync(journal_end, signal)

    @property
    def syncs_in_background(self) -> bool:
        """Whether `begin_confirm` may succeed."""
        return self._syncer.syncs_in_background

    def try_end_confirm(self, journal_end: int) -> bool:
        """End what `begin_confirm` has begun when the journal ended there. Requires: no lock.

        False: something is left that may wait, such as a checkpoint: call `confirm`, in a thread that may wait.
        """
        if not self._syncer.try_end_sync():
            if self._journal.durable_end < journal_end:
                return False
            self._publisher.publish_left()  # another thread has ended the sync
        if self._checkpoint_need.is_due and not self.leave_checkpoint():
            return False
        if self.monitor.deferred:
            self.monitor.run_deferred()
        return True

    def waker(self) -> SenderWaker:
        """Return a condition of the state lock."""
        return condition_of(self.monitor.lock)

    def run(self, steps: Generator[Wait, None, T]) -> T:
        """Run the steps of a send; the calling thread waits. Requires: no lock."""
        try:
            wait = next(steps)
            while True:
                try:
                    self._wait(wait)
                except BaseException as error:
                    wait = steps.throw(error)
                else:
                    wait = next(steps)
        except StopIteration as end:
            return cast(T, end.value)
        finally:
            steps.close()

    def _wait(self, wait: Wait) -> None:
        if wait.free is not None:
            wait.free()
        waker = cast(OwnedCondition, wait.waker)
        with self.monitor.lock:
            while True:
                with self.monitor.all_or_broken:
                    wait_seconds = wait.poll()
                if not wait_seconds:
                    return
                waker.wait(wait_seconds)

    def confirm_left(self) -> int:
        """Confirm what an interrupted call has written but not published; return 1 if there was something.

        No other call syncs for it. Requires: no lock.
        """
        first = self._publisher.oldest
        was_left = first is not None and first is self._first_seen
        self._first_seen = first
        if was_left:
            self.confirm_written()
            if not self._syncs_always:
                self._publisher.publish_left()  # memory or tmp-storage had no room for it
        return int(was_left)
