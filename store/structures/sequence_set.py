"""SequenceSet: a set of whole numbers, such as sequences, as sorted runs that neither overlap nor touch.

A run takes sixteen bytes whatever its length, so ten million consecutive numbers cost as much as one. Lookups, adding
at the end, and making a run longer or shorter are O(log runs). A change that adds or removes a run, even the first one,
moves the runs behind it in the arrays, which is O(runs) of plain memory copy.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

RUN_BYTES: Final = 16

_NOTHING: Final = array("q")
"""The runs of all sets that are still empty. It always stays empty."""


class SequenceSet:
    """A set of integers from 0 to 2**63 - 1. Not thread-safe: the owner's lock guards it."""

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self) -> None:
        self._firsts = self._lasts = _NOTHING
        # How many numbers are in the set, not how many runs.
        self.count = 0

    def copy(self) -> SequenceSet:
        """Return a copy. O(runs)."""
        made = SequenceSet()
        made._firsts, made._lasts, made.count = self._firsts[:], self._lasts[:], self.count
        return made

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield each run as (first, last), in order."""
        return zip(self._firsts, self._lasts, strict=True)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    @property
    def run_count(self) -> int:
        return len(self._firsts)

    @property
    def first(self) -> int:
        return self._firsts[0]

    @property
    def last(self) -> int:
        return self._lasts[-1]

    @property
    def held_bytes(self) -> int:
        return RUN_BYTES * len(self._firsts)

    def clear(self) -> None:
        self._firsts = self._lasts = _NOTHING
        self.count = 0

    def add(self, first: int, last: int) -> None:
        """Add first..last; numbers that are in already stay."""
        assert first <= last
        firsts, lasts = self._firsts, self._lasts
        if firsts is _NOTHING:
            firsts, lasts = self._firsts, self._lasts = array("q"), array("q")
        if not firsts or first > lasts[-1] + 1:
            firsts.append(first)
            lasts.append(last)
            self.count += last - first + 1
            return
        low = bisect_right(lasts, first - 2)  # the first run that touches or lies behind
        high = bisect_right(firsts, last + 1)  # one past the last run that touches
        for at in range(low, high):
            self.count -= lasts[at] - firsts[at] + 1
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        firsts[low:high] = array("q", (first,))
        lasts[low:high] = array("q", (last,))
        self.count += last - first + 1

    def remove(self, first: int, last: int) -> None:
        """Remove first..last; numbers that are not in are ignored."""
        assert first <= last
        firsts, lasts = self._firsts, self._lasts
        low = bisect_right(lasts, first - 1)
        high = bisect_right(firsts, last)
        if low >= high:
            return
        kept_firsts, kept_lasts = array("q"), array("q")
        if firsts[low] < first:
            kept_firsts.append(firsts[low])
            kept_lasts.append(first - 1)
        if lasts[high - 1] > last:
            kept_firsts.append(last + 1)
            kept_lasts.append(lasts[high - 1])
        for at in range(low, high):
            self.count -= lasts[at] - firsts[at] + 1
        for at in range(len(kept_firsts)):
            self.count += kept_lasts[at] - kept_firsts[at] + 1
        firsts[low:high] = kept_firsts
        lasts[low:high] = kept_lasts

    def pop_first(self, most: int) -> tuple[int, int]:
        """Remove up to most numbers from the front of the first run, and return them as a run.

        O(1); O(runs) of memory copy if the whole run goes.
        """
        first, last = self._firsts[0], self._lasts[0]
        if last - first < most:
            del self._firsts[0], self._lasts[0]
        else:
            last = first + most - 1
            self._firsts[0] = last + 1
        self.count -= last - first + 1
        return first, last

    def next_from(self, number: int) -> tuple[int, int] | None:
        """Return the first run that reaches `number`, cut to the part from there on. None: there is none."""
        at = bisect_right(self._lasts, number - 1)
        if at == len(self._lasts):
            return None
        return max(number, self._firsts[at]), self._lasts[at]

    def last_up_to(self, number: int) -> int | None:
        """Return the last number that is not behind `number`; None where there is none."""
        at = bisect_right(self._firsts, number) - 1
        return min(number, self._lasts[at]) if at >= 0 else None

    def coarsen(self) -> None:
        """Fill the smaller half of the gaps: the set has half as many runs, and numbers that were not in.

        O(runs log runs).
        """
        gaps = sorted(map(int.__sub__, self._firsts[1:], self._lasts))
        if not gaps:
            return
        widest = gaps[len(gaps) // 2]
        left = len(gaps) // 2 + 1 - bisect_left(gaps, widest)  # how many of the gaps of that width belong to the half
        merged = SequenceSet()
        first, last = self._firsts[0], self._lasts[0]
        for next_first, next_last in zip(self._firsts[1:], self._lasts[1:], strict=True):
            gap = next_first - last
            if gap > widest or (gap == widest and not left):
                merged.add(first, last)
                first = next_first
            elif gap == widest:
                left -= 1
            last = next_last
        merged.add(first, last)
        self._firsts, self._lasts, self.count = merged._firsts, merged._lasts, merged.count

    def _check(self) -> None:
        assert len(self._firsts) == len(self._lasts)
        total = 0
        previous = -2
        for first, last in self:
            assert previous + 1 < first <= last
            total += last - first + 1
            previous = last
        assert total == self.count
