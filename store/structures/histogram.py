"""DurationHistogram: how many operations took how long, in buckets whose bounds double.

Recording takes a few additions, so every wait for a disk can afford it. The counts begin with the object and never
fall; they are not stored.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

_PER_SECOND: Final = 62_500
"""The bound of the first bucket, 16 microseconds, as a part of a second."""
BOUNDS_SECONDS: Final = tuple((1 << at) / _PER_SECOND for at in range(23))
"""The longest duration of each bucket, from 16 microseconds to 67 seconds. One more bucket counts longer ones."""


@dataclass(frozen=True, slots=True)
class DurationStatistics:
    """How many operations took how long since the directory was opened."""

    count: int
    total_seconds: float
    max_seconds: float
    buckets: tuple[int, ...]
    """Number of durations in each bucket of BOUNDS_SECONDS: above the previous bound and up to its own.

    Last: longer ones.
    """

    def quantile_seconds(self, share: float) -> float:
        """Return a duration that this share of all did not exceed, at most twice the true one; 0.0 if there are none.

        share: from 0 to 1; 0.99 for the 99th percentile.
        """
        left = share * self.count
        for found, bound in zip(self.buckets, BOUNDS_SECONDS, strict=False):
            left -= found
            if left <= 0:
                return min(bound, self.max_seconds)
        return self.max_seconds


class DurationHistogram:
    """Counts durations. The state lock guards it, so one thread writes at a time."""

    __slots__ = ("_buckets", "_total_seconds", "_max_seconds")

    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS_SECONDS) + 1)
        self._total_seconds = 0.0
        self._max_seconds = 0.0

    @property
    def count(self) -> int:
        """Number of recorded durations."""
        return sum(self._buckets)

    def record(self, seconds: float) -> None:
        """Record one duration. O(1)."""
        self._buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self._total_seconds += seconds
        if seconds > self._max_seconds:
            self._max_seconds = seconds

    def statistics(self) -> DurationStatistics:
        """Return the counts so far."""
        buckets = tuple(self._buckets)
        return DurationStatistics(sum(buckets), self._total_seconds, self._max_seconds, buckets)
