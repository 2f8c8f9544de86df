"""Backlog: the messages behind a list as runs of bytes, oldest first, and how much of each is in RAM.

The live curve (curve.py) keeps one for each list and memory limit.
"""

from __future__ import annotations

from array import array
from typing import Final

RUNS_MAX: Final = 8
"""Most runs. With more, the newest two become one, because those that are handed out next must be exact."""
BYTES_MIN: Final = 1.0
"""A smaller difference comes from rounding only."""


class Backlog:
    """Runs of messages, the oldest first: the bytes of each, and how many of them are in RAM, evenly spread."""

    __slots__ = ("waiting", "kept", "_sizes", "_kept")

    def __init__(self) -> None:
        self.waiting = 0.0
        """Bytes of all runs."""
        self.kept = 0.0
        """How many of them are in RAM."""
        self._sizes, self._kept = array("d"), array("d")

    @property
    def is_front_kept(self) -> bool:
        """Whether all of the oldest run is in RAM. Requires: something waits."""
        return self._kept[0] >= self._sizes[0] - BYTES_MIN

    @property
    def is_newest_kept(self) -> bool:
        """Whether all of the newest run is in RAM, or nothing waits."""
        return self.waiting - self.kept < BYTES_MIN or self._kept[-1] >= self._sizes[-1] - BYTES_MIN

    def append(self, size: float, kept: float) -> None:
        """Add the newest run."""
        if size <= 0:
            return
        sizes, parts = self._sizes, self._kept
        self.waiting += size
        self.kept += kept
        is_same = bool(sizes) and (kept >= size and self.is_newest_kept or not kept and not parts[-1])
        if is_same or len(sizes) == RUNS_MAX:
            sizes[-1] += size
            parts[-1] += kept
        else:
            sizes.append(size)
            parts.append(kept)

    def put_back(self, size: float, kept: float) -> None:
        """Add a run before all others. Its oldest `kept` bytes are in RAM."""
        for part, inside in ((size - kept, 0.0), (kept, kept)):
            if part > 0:
                self._sizes.insert(0, part)
                self._kept.insert(0, inside)
                self.waiting += part
                self.kept += inside
        while len(self._sizes) > RUNS_MAX:
            size, inside = self._sizes.pop(), self._kept.pop()
            self._sizes[-1] += size
            self._kept[-1] += inside

    def take(self, wanted: float) -> tuple[float, float]:
        """Take up to so many bytes of the oldest run; return how many, and how many of them were in RAM."""
        size, kept = self._sizes[0], self._kept[0]
        if wanted < size:
            part = kept * wanted / size
            self._sizes[0], self._kept[0] = size - wanted, kept - part
            size, kept = wanted, part
        else:
            del self._sizes[0], self._kept[0]
        self._subtract(size, kept)
        return size, kept

    def evict(self, wanted: float) -> float:
        """Drop up to so many bytes from RAM, the newest first; return how many. O(runs)."""
        released = 0.0
        for at in range(len(self._sizes) - 1, -1, -1):
            part = min(self._kept[at], wanted - released)
            self._kept[at] -= part
            released += part
        self.kept -= released
        return released

    def cut(self, surplus: float) -> float:
        """Remove up to so many of the newest bytes, which were counted by mistake; return how many. O(runs)."""
        forgotten = 0.0
        while self._sizes and surplus - forgotten > 0:
            size, kept = self._sizes.pop(), self._kept.pop()
            part = min(size, surplus - forgotten)
            forgotten += part
            rest = kept * (size - part) / size
            if size > part:
                self._sizes.append(size - part)
                self._kept.append(rest)
            self._subtract(part, kept - rest)
        return forgotten

    def _subtract(self, size: float, kept: float) -> None:
        self.waiting -= size
        self.kept -= kept
        if not self._sizes:
            self.waiting = self.kept = 0.0

    def _check(self) -> None:
        assert len(self._sizes) == len(self._kept) <= RUNS_MAX
        assert abs(self.waiting - sum(self._sizes)) < BYTES_MIN and abs(self.kept - sum(self._kept)) < BYTES_MIN
        assert all(-BYTES_MIN < kept < size + BYTES_MIN for size, kept in zip(self._sizes, self._kept, strict=True))
