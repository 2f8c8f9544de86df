"""TaskRunner: runs the periodic tasks of an engine, each when it is due. Loading is the only other background work."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.monitor import Monitor
from .periodic_tasks import FailingTask, PeriodicTask


class TaskRunner:
    """Runs the tasks. A thread of the store, or the host, calls `step` and then waits for `pause()` seconds."""

    def __init__(self, monitor: Monitor, tasks: Sequence[PeriodicTask]) -> None:
        """Make the runner of a store. tasks: in the order in which they are done."""
        self._monitor = monitor
        self._tasks = tasks

    def step(self) -> int:
        """Do what is due. Requires: no lock.

        A task that fails does not stop the others; a later step tries it again. StoreFailed ends all of them.
        """
        now, time_ms = self._monitor.monotonic(), self._monitor.clock_ms()
        done = 0
        for task in self._tasks:
            task.collect_requests(now)
            done += task.run_if_due(now, time_ms, is_due=task.is_due(now), is_closed=self._is_closed)
        return done

    def _is_closed(self) -> bool:
        return self._monitor.is_closed

    def failing(self) -> dict[str, FailingTask]:
        """Return the failing tasks by name."""
        return {task.name: task.failing for task in self._tasks if task.failing is not None}

    def pause(self) -> float:
        """Return the seconds until something is due or must be tried again; infinity: no task knows a time."""
        now = self._monitor.monotonic()
        return max(min(task.due_at(now) for task in self._tasks), now + 0.001) - now
