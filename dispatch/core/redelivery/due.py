"""DueMessages: when the next message becomes due, asked by takes and by maintenance."""

from __future__ import annotations

from math import inf

from ..monitor import Monitor
from .deadlines import AckDeadlines
from .delays import DelayedRedelivery, TimedLanes


class DueMessages:
    """All messages that come back, become due or are late, behind one question: when the next of them is due."""

    def __init__(
        self, monitor: Monitor, delayed: DelayedRedelivery, timed: TimedLanes, deadlines: AckDeadlines
    ) -> None:
        self._monitor = monitor
        self._delayed = delayed
        self._timed = timed
        self._deadlines = deadlines

    @property
    def next_due(self) -> float | None:
        """When the next message is due, in monotonic seconds. None: no message waits."""
        seconds = [found for found in (self._timed.due_seconds, self._delayed.due_seconds) if found is not None]
        late_at = self._deadlines.next_due
        if not seconds:
            return late_at if late_at < inf else None
        return min(self._monitor.monotonic() + min(seconds), late_at)

    @property
    def next_look(self) -> float:
        """When the background has to act next, in monotonic seconds. inf: never."""
        due = self.next_due
        return self._deadlines.next_look if due is None else min(due, self._deadlines.next_look)

    def release_due(self) -> int:
        """Offer the messages whose time has come; return how many runs and messages they were. Requires: the lock."""
        return self._deadlines.release_due() + self._timed.release_due() + self._delayed.release_due()
