"""AutomaticLimit: the memory limit that fits the RAM that the machine has left.

A tenth of the RAM should stay available. If less is available, the limit falls at once by the missing bytes; while
tasks wait for memory, it falls by a quarter. After each ten seconds without a shortage it grows by a sixteenth of its
top. It stays between its floor and its top, which is a quarter of the RAM.
"""

from __future__ import annotations

from typing import Final

from .shortage import MemoryFigures

TOP_SHARE: Final = 0.25
"""The greatest limit, as a share of the machine's RAM or of the smallest limit of a control group."""
FLOOR_SHARE: Final = 1 / 16
"""The least limit, as a share of the greatest one, unless the settings need more."""
AVAILABLE_SHARE: Final = 0.1
"""Share of the RAM of the machine, and of each group, that should stay available."""
STALLED_SHARE: Final = 0.1
"""Share of the time since the last call. If tasks waited longer for memory, that is a shortage."""
STALLED_CUT: Final = 0.25
GROWTH_SHARE: Final = 1 / 16
GROWTH_SECONDS: Final = 10.0


class AutomaticLimit:
    """Decides the limit; it does not set it. Requires: one thread at a time."""

    def __init__(self) -> None:
        # When memory was last short, or the limit last grew. None before the first call.
        self._short_at: float | None = None
        self._looked_at = 0.0
        self._stalled_seconds: float | None = None

    def decide(self, now: float, figures: MemoryFigures, limit_bytes: int, floor_bytes: int) -> int:
        """Return the new limit. now: monotonic seconds. limit_bytes: the current limit. O(control groups)."""
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
            spare_bytes = -missing_bytes  # growth comes out of the available bytes
            wanted_bytes = limit_bytes + min(int(top_bytes * GROWTH_SHARE), spare_bytes)
        else:
            wanted_bytes = limit_bytes
        return max(min(wanted_bytes, top_bytes), floor_bytes)

    @staticmethod
    def top_bytes(figures: MemoryFigures) -> int:
        """Return the greatest limit, unless the floor is higher."""
        return int(min(room.total_bytes for room in figures.rooms) * TOP_SHARE)

    def _is_stalled(self, now: float, figures: MemoryFigures) -> bool:
        """Return whether tasks waited for memory too long since the last call."""
        before, since = self._stalled_seconds, self._looked_at
        self._stalled_seconds, self._looked_at = figures.stalled_seconds, now
        if before is None or figures.stalled_seconds is None or now <= since:
            return False
        return figures.stalled_seconds - before > (now - since) * STALLED_SHARE
