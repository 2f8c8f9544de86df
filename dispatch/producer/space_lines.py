"""SpaceLines: senders that wait for disk space, whatever destination they send to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial

from ...cache.spill.overflow import Overflow
from ...store.errors import StoreFailed, StoreFull
from ...store.maintenance.cleanup import Cleanup
from ..admission.limits import LimitedDestination, Wait
from ..admission.space_line import SpaceLine
from ..core.confirmer import Confirmer
from ..core.monitor import Monitor


class SpaceLines:
    """Both lines of an open store: senders that wait for the journal, and senders that wait for tmp-storage."""

    def __init__(
        self,
        monitor: Monitor,
        cleanup: Cleanup,
        overflow: Overflow,
        ask_for_cleanup: Callable[[], bool],
        *,
        journal: SpaceLine,
        tmp_storage: SpaceLine,
    ) -> None:
        """ask_for_cleanup: makes the background thread clean up now; returns False if there is none."""
        self._monitor = monitor
        self._cleanup = cleanup
        self._overflow = overflow
        self._ask_for_cleanup = ask_for_cleanup
        self.journal = journal
        self.tmp_storage = tmp_storage

    def line(self, persistent: bool) -> SpaceLine:
        """Return the line of senders that wait for the space that their messages need."""
        return self.journal if persistent else self.tmp_storage

    def free(self) -> None:
        """Have the background clean up, or clean up here if there is no background. Requires: no lock."""
        if not self._ask_for_cleanup():
            self._cleanup.delete_data_logs()
            with self._monitor.lock, self._monitor.all_or_broken:
                self._overflow.compact()

    def _trim_retention(self) -> None:
        """Delete messages that only the retention of topics keeps. Requires: no lock."""
        self._cleanup.delete_data_logs()

    def retry(
        self,
        line: SpaceLine,
        destination: LimitedDestination,
        sizes: Sequence[int],
        full: StoreFull,
        *,
        deadline: float | None,
        attempt: Callable[[], StoreFull | None],
        confirmer: Confirmer,
    ) -> Generator[Wait, None, None]:
        """Repeat an attempt until the disk has room for it, waiting in line before each time.

        attempt: returns None, or the error if the disk has no room.
        Requires: no lock. Raises `full` when the time is up, or at once if the policy does not wait; Closed.
        """
        waker = confirmer.waker()
        if line is self.journal and self._cleanup.wants_retained_space:
            yield Wait(waker, _at_once, self._trim_retention)
            again = attempt()
            if again is None:
                return
            full = again
        gives_up_at = line.deadline(destination, full, deadline)
        # Publish first, because a sender may wait for its own messages to be acknowledged.
        confirmer.confirm_written()
        waiting = line.new_waiter(destination, sizes, full, gives_up_at, waker)
        try:
            with self._monitor.lock, self._monitor.all_or_broken:
                line.line_up(waiting)
            while True:
                yield Wait(waker, partial(line.poll, waiting), self.free)
                again = attempt()
                if again is None:
                    return
                with self._monitor.lock, self._monitor.all_or_broken:
                    line.refused(waiting, again)
        finally:
            # An error of the attempt matters more than one of leaving.
            with suppress(StoreFailed), self._monitor.lock, self._monitor.all_or_broken:
                line.leave(waiting)

    def on_space_freed(self) -> None:
        """Let waiting senders try again. Requires: the lock."""
        self.journal.on_space_freed()
        self.tmp_storage.on_space_freed()

    def close(self) -> None:
        """Raise Closed in all waiting senders. Requires: the lock."""
        self.journal.close()
        self.tmp_storage.close()


def _at_once() -> float:
    """Return 0: nothing is left to wait for."""
    return 0.0
