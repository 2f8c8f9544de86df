"""AutomaticLimit: choose the memory limit by what the machine has left.

A tenth of the RAM should stay available. The limit falls at once by what is missing to that, or by a quarter while
tasks wait for memory. After each ten seconds without a shortage it grows by a sixteenth of its top. It stays between
its floor and its top, a quarter of the RAM.
"""

from __future__ import annotations

from typing import Final

from .shortage import MemoryFigures

TOP_SHARE: Final = 0.25
"""The top, as a share of the RAM of the machine or of the smallest limit of a control group."""
FLOOR_SHARE: Final = 1 / 16
"""The floor, as a share of the top, unless the settings need more."""
AVAILABLE_SHARE: Final = 0.1
"""Share of the RAM of the machine, and of each group, that should stay available."""
STALLED_SHARE: Final = 0.1
"""Tasks waiting for memory for a larger share of the time since the last look are a shortage."""
STALLED_CUT: Final = 0.25
GROWTH_SHARE: Final = 1 / 16
GROWTH_SECONDS: Final = 10.0


class AutomaticLimit:
    """Decides and does nothing else. Requires: one thread at a time."""

    def __init__(self) -> None:
        # When memory was last short, or the limit last grew. None: before the first look.
        self._short_at: float | None = None
        self._looked_at = 0.0
        self._stalled_seconds: float | None = None

    def decide(self, now: float, figures: MemoryFigures, limit_bytes: int, floor_bytes: int) -> int:
        """Return what the limit should be. now: monotonic seconds. limit_bytes: its present value.

        O(control groups).
        """
        top_bytes = max(self.top_bytes(figures), floor_bytes)
        missing_bytes = max(int(room.total_bytes * AVAILABLE_SHARE) - room.available_bytes for room in figures.rooms)
        if self._note_stalls(now, figures):
            missing_bytes = max(missing_bytes, int(limit_bytes * STALLED_CUT))
        if self._short_at is None or missing_bytes > 0:
            self._short_at = now
        if missing_bytes > 0:
            wanted_bytes = limit_bytes - missing_bytes
        elif now - self._short_at >= GROWTH_SECONDS:
            self._short_at = now
            spare_bytes = -missing_bytes  # growth is taken from what is available
            wanted_bytes = limit_bytes + min(int(top_bytes * GROWTH_SHARE), spare_bytes)
        else:
            wanted_bytes = limit_bytes
        return max(min(wanted_bytes, top_bytes), floor_bytes)

    @staticmethod
    def top_bytes(figures: MemoryFigures) -> int:
        """Return the highest limit, unless the floor is higher."""
        return int(min(room.total_bytes for room in figures.rooms) * TOP_SHARE)

    def _note_stalls(self, now: float, figures: MemoryFigures) -> bool:
        """Note how long tasks have waited for memory; return whether it was too long since the last look."""
        before, since = self._stalled_seconds, self._looked_at
        self._stalled_seconds, self._looked_at = figures.stalled_seconds, now
        if before is None or figures.stalled_seconds is None or now <= since:
            return False
        return figures.stalled_seconds - before > (now - since) * STALLED_SHARE
