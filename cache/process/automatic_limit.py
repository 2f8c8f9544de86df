"""AutomaticLimit: the memory limit that fits what the machine has left.

The rule: the limit falls at once by what is missing to a tenth of the RAM that should stay available, or by a quarter
while tasks wait for memory, and grows by a sixteenth of its top after each ten seconds in which nothing was missing,
between its floor and its top, a quarter of the RAM.
"""

from __future__ import annotations

from typing import Final

from .shortage import MemoryFigures

TOP_SHARE: Final = 0.25
"""Of the RAM of the machine, or of the smallest limit of a control group: the most that the limit becomes."""
FLOOR_SHARE: Final = 1 / 16
"""Of the top: the least that it becomes, unless the settings need more."""
AVAILABLE_SHARE: Final = 0.1
"""Of the RAM of the machine, and of each group, that should stay available."""
STALLED_SHARE: Final = 0.1
"""Of the time since the last look: longer waits of tasks for memory are a shortage."""
STALLED_CUT: Final = 0.25
GROWTH_SHARE: Final = 1 / 16
GROWTH_SECONDS: Final = 10.0


class AutomaticLimit:
    """Decides, and does nothing. Requires: one thread at a time."""

    def __init__(self) -> None:
        self._short_at: float | None = None
        """When memory was short last, or the limit grew last; None before the first look."""
        self._looked_at = 0.0
        self._stalled_seconds: float | None = None

    def decide(self, now: float, figures: MemoryFigures, limit_bytes: int, floor_bytes: int) -> int:
        """Return what the limit should be. now: monotonic seconds. limit_bytes: what it is. O(control groups)."""
        top_bytes = max(self.top_bytes(figures), floor_bytes)
        missing_bytes = max(int(room.total_bytes * AVAILABLE_SHARE) - room.available_bytes for room in figures.rooms)
        if self._is_stalled(now, figures):
            missing_bytes = max(missing_bytes, int(limit_bytes * STALLED_CUT))
        if self._short_at is None or missing_bytes > 0:
            self._short_at = now
        if missing_bytes > 0:
            wanted_bytes = limit_bytes - missing_bytes
        elif now - self._short_at >= GROWTH_SECONDS:
            self._short_at = now
            spare_bytes = -missing_bytes  # what it grows by is taken from what is available
            wanted_bytes = limit_bytes + min(int(top_bytes * GROWTH_SHARE), spare_bytes)
        else:
            wanted_bytes = limit_bytes
        return max(min(wanted_bytes, top_bytes), floor_bytes)

    @staticmethod
    def top_bytes(figures: MemoryFigures) -> int:
        """Return the most that the limit becomes, but for a floor that is higher."""
        return int(min(room.total_bytes for room in figures.rooms) * TOP_SHARE)

    def _is_stalled(self, now: float, figures: MemoryFigures) -> bool:
        """Tell whether tasks waited for memory too long since the last look."""
        before, since = self._stalled_seconds, self._looked_at
        self._stalled_seconds, self._looked_at = figures.stalled_seconds, now
        if before is None or figures.stalled_seconds is None or now <= since:
            return False
        return figures.stalled_seconds - before > (now - since) * STALLED_SHARE
