"""Health: whether a store does everything that it should, and which problems it has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...store.journal.journal import Journal
from ..core.areas.dispatch_area import DispatchArea
from ..core.monitor import Monitor
from .background import Background
from .periodic_tasks import FailingTask
from .task_runner import TaskRunner


@dataclass(frozen=True, slots=True)
class Health:
    """The answer to a probe: a store is well if it has no problems."""

    ok: bool
    problems: tuple[str, ...]
    """A sentence for each problem, such as a full disk or failing background work."""


class HealthCheck:
    """Finds out the health of a store, open or closed. No method requires the lock."""

    def __init__(
        self,
        monitor: Monitor,
        journal: Journal,
        dispatch_area: DispatchArea,
        task_runner: TaskRunner,
        background: Background,
    ) -> None:
        self._monitor = monitor
        self._journal = journal
        self._dispatch_area = dispatch_area
        self._task_runner = task_runner
        self._background = background

    def health(self) -> Health:
        """Return whether the store does everything that it should. O(1), no disk."""
        problems = tuple(self._problems())
        return Health(not problems, problems)

    def failing(self) -> dict[str, FailingTask]:
        """Return failing background work by name."""
        return self._task_runner.failing() | self._background.failing()

    @property
    def is_broken(self) -> bool:
        """Whether nothing in RAM can be used any more, because a change was interrupted."""
        return self._monitor.lock.failure is not None

    def _problems(self) -> Iterator[str]:
        monitor, journal = self._monitor, self._journal
        if monitor.is_closed:
            yield "the store is closed"
            return
        if monitor.lock.failure is not None:
            yield str(monitor.lock.failure)
            return
        with monitor.lock:
            failure, is_full = journal.failure, journal.fullness.refuses_messages
            is_short = self._dispatch_area.is_short
        if failure is not None:
            yield str(failure)
        elif not self._background.is_alive:
            yield "the threads of the store have ended: close it and open it again"
        if is_full:
            yield "sends are refused because the disk or store_limit is full: consume, clean up, or raise the limit"
        if is_short:
            yield "what is in flight fills memory_limit: settle deliveries, lower prefetch, or raise the limit"
        for name, failing in sorted(self.failing().items()):
            yield f"{name} fails, {failing.tries} times so far: {failing.problem}"
