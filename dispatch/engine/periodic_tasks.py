"""PeriodicTask: one piece of background work. Each task fails alone, and is tried again less and less often.

A task that goes on failing (no descriptor left, no readable /proc, a full disk) does not stop the others. It is logged
once for each cause, and shown in the statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from ...store.environment.late_log import LateLogger, emit_late
from ...store.errors import Closed, ForebayError, StoreFailed

logger = LateLogger("forebay.dispatch")

FIRST_PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 10.0
SAME_CAUSE_SECONDS: Final = 600.0
"""A cause is not logged again for this long, even if the task worked in between."""


@dataclass(frozen=True, slots=True)
class FailingTask:
    """A piece of background work that fails again and again."""

    since: float
    """When the work first failed, in seconds since 1970."""
    tries: int
    """How often the work was tried since then."""
    problem: str
    """The problem of the last attempt."""


class PeriodicTask:
    """One piece of background work. Only one thread at a time may use a task, but any thread may read `failing`."""

    def __init__(self, name: str, work: Callable[[], int]) -> None:
        """Make a task.

        name: as logs and statistics show it.
        work: does what is due; returns how many things were done.
        """
        self.name = name
        # None while the task works.
        self.failing: FailingTask | None = None
        self._work = work
        self._retry_at = 0.0
        self._pause_seconds = 0.0
        self._logged: str | None = None
        self._logged_at = 0.0

    def run_if_due(self, now: float, time_ms: int, *, is_due: bool = True, is_closed: Callable[[], bool] = bool) -> int:
        """Do the work if it is due, or if it failed and must be tried again; return how many things were done.

        now: monotonic seconds. time_ms: since 1970. is_closed: returns whether the store is closed. If it is, a task
            that ends with Closed has not failed: the close came while it worked.

        StoreFailed is raised, because it ends all background work. Any other error is kept and logged. Requires: no
        lock.
        """
        if self.failing is None:
            if not is_due:
                return 0
        elif now < self._retry_at:
            return 0
        try:
            done = self._work()
        except StoreFailed:
            raise
        except Exception as error:
            if not (isinstance(error, Closed) and is_closed()):
                self._fail(error, now, time_ms)
            return 0
        finally:
            emit_late()
        if self.failing is not None:
            logger.info(
                "background work: %s is done again after %d tries in vain",
                self.name,
                self.failing.tries,
                event="background_work_recovered",
            )
            self.failing = None
            self._pause_seconds = 0.0
        return done

    def collect_requests(self, now: float) -> None:
        """Take note of what others have asked of this task since the last call. It may be due earlier then.

        now: monotonic seconds. Requires: no lock. Default: nobody asks.
        """

    def is_due(self, now: float) -> bool:
        """Return whether the work is due. Work that has no time of its own is always due and checks for itself.

        now: monotonic seconds. Requires: no lock.
        """
        return True

    def due_at(self, now: float) -> float:
        """Return when the task is due, or tried again if it fails, in monotonic seconds; infinity: it has no time."""
        return self.next_at(inf)

    def next_at(self, at: float) -> float:
        """Return when to check the task again. at: when it is due if it does not fail, in monotonic seconds."""
        return at if self.failing is None else self._retry_at

    def _fail(self, error: Exception, now: float, time_ms: int) -> None:
        known = isinstance(error, ForebayError)
        problem = str(error) if known else f"{type(error).__name__}: {error}"
        failing = self.failing
        self.failing = FailingTask(
            time_ms / 1000 if failing is None else failing.since, 1 if failing is None else failing.tries + 1, problem
        )
        self._retry_at = now + self._pause_seconds  # a problem that passes at once is tried again at once
        self._pause_seconds = min(max(2 * self._pause_seconds, FIRST_PAUSE_SECONDS), PAUSE_SECONDS_MAX)
        if problem == self._logged and now - self._logged_at < SAME_CAUSE_SECONDS:
            return
        self._logged, self._logged_at = problem, now
        if known:
            logger.warning("background work: %s: %s", self.name, error, event="background_work_failing")
        else:
            logger.error(
                "background work failed: %s: %s", self.name, problem, exc_info=error, event="background_work_failing"
            )
