"""Maintenance: the background work of an engine besides loading, each duty when it is due."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.monitor import Monitor
from .duties import Duty, FailingDuty


class Maintenance:
    """Runs the duties. A thread of the store, or the host, calls `step` and then waits for `pause()` seconds."""

    def __init__(self, monitor: Monitor, duties: Sequence[Duty]) -> None:
        """Make the maintenance of a store. duties: in the order in which they are done."""
        self._monitor = monitor
        self._duties = duties

    def step(self) -> int:
        """Do what is due. Requires: no lock.

        A duty that fails does not stop the others; a later step tries it again. StoreFailed ends all of them.
        """
        now, time_ms = self._monitor.monotonic(), self._monitor.clock_ms()
        return sum(duty.do(now, time_ms, is_due=duty.is_due(now)) for duty in self._duties)

    def failing(self) -> dict[str, FailingDuty]:
        """Return the failing duties by name."""
        return {duty.name: duty.failing for duty in self._duties if duty.failing is not None}

    def pause(self) -> float:
        """Return the seconds until something is due or must be tried again."""
        now = self._monitor.monotonic()
        return max(min(duty.due_at(now) for duty in self._duties), now + 0.001) - now
