"""DueMessages: when the next message becomes due. Takes that wait, and the housekeeper, ask it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from ....store.format.times import NEVER
from ....store.index.index import Index
from ..monitor import Monitor
from .deadlines import AckDeadlines
from .delayed_redelivery import DelayedRedelivery
from .timed_lanes import TimedLanes

CROWDED_SECONDS: Final = 0.05
"""How often a waiting take looks again while the index needs a checkpoint before it can release more messages."""


class DueMessages:
    """All messages that come back, become due or are late, behind one question: when the next of them is due."""

    def __init__(
        self,
        monitor: Monitor,
        index: Index,
        now_ms: Callable[[], int],
        delayed: DelayedRedelivery,
        timed: TimedLanes,
        deadlines: AckDeadlines,
    ) -> None:
        """now_ms: the store's time."""
        self._monitor = monitor
        self._index = index
        self._now_ms = now_ms
        self._delayed = delayed
        self._timed = timed
        self._deadlines = deadlines

    @property
    def next_due(self) -> float | None:
        """When the next message is due, in monotonic seconds. None: no message waits."""
        late_at = self._deadlines.next_due
        due_ms = min(self._timed.first_due_ms, self._delayed.first_due_ms)
        if due_ms == NEVER:
            return late_at if late_at < inf else None
        seconds = (due_ms - self._now_ms()) / 1000
        if seconds <= 0:
            seconds = CROWDED_SECONDS if self._index.is_crowded else 0.0
        return min(self._monitor.monotonic() + seconds, late_at)

    @property
    def next_look(self) -> float:
        """When the background has to act next, in monotonic seconds. inf: never."""
        due = self.next_due
        return self._deadlines.next_look if due is None else min(due, self._deadlines.next_look)

    def release_due(self) -> int:
        """Offer the messages whose time has come; return how many runs and messages they were. Requires: the lock."""
        return self._deadlines.release_due() + self._timed.release_due() + self._delayed.release_due()
