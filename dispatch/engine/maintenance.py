"""Maintenance: the background work of an engine besides loading, each task when it is due."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.monitor import Monitor
from .periodic_tasks import FailingTask, PeriodicTask


class Maintenance:
    """Runs the tasks. A thread of the store, or the host, calls `step` and then waits for `pause()` seconds."""

    def __init__(self, monitor: Monitor, tasks: Sequence[PeriodicTask]) -> None:
        """Make the maintenance of a store. tasks: in the order in which they are done."""
        self._monitor = monitor
        self._tasks = tasks

    def step(self) -> int:
        """Do what is due. Requires: no lock.

        A task that fails does not stop the others; a later step tries it again. StoreFailed ends all of them.
        """
        now, time_ms = self._monitor.monotonic(), self._monitor.clock_ms()
        return sum(
            task.run_if_due(now, time_ms, is_due=task.is_due(now), is_closed=self._is_closed) for task in self._tasks
        )

    def _is_closed(self) -> bool:
        return self._monitor.is_closed

    def failing(self) -> dict[str, FailingTask]:
        """Return the failing tasks by name."""
        return {task.name: task.failing for task in self._tasks if task.failing is not None}

    def pause(self) -> float:
        """Return the seconds until something is due or must be tried again; infinity: no task knows a time."""
        now = self._monitor.monotonic()
        return max(min(task.due_at(now) for task in self._tasks), now + 0.001) - now
