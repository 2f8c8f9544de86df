"""CountedRows: what queues have counted that are not open, in columns.

Counters live as long as the process. While a queue is open its own objects
count; here is what remains of them when they go: 108 bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from .counters import NOTHING_COUNTED, EarlierCounts

_COLUMNS: Final = len(EarlierCounts._fields)


class CountedRows:
    """Number of a queue -> what it has counted, where that is anything. The state lock guards it."""

    __slots__ = ("_numbers", "_figures")

    def __init__(self) -> None:
        self._numbers = array("I")
        """The numbers of the queues, in order."""
        self._figures = array("d")
        """The counters of each queue, one behind the other: exact up to 2**53."""

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, number: int) -> EarlierCounts:
        """Return what a queue had counted when it was closed; nothing where nothing is known. O(log queues)."""
        at = bisect_left(self._numbers, number)
        if at == len(self._numbers) or self._numbers[at] != number:
            return NOTHING_COUNTED
        begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
        figures = self._figures[begin:end]
        blocked_seconds = figures.pop()
        return EarlierCounts(*map(int, figures))._replace(blocked_seconds=blocked_seconds)

    def put(self, number: int, counted: EarlierCounts) -> bool:
        """Keep what a queue has counted; return False where that is nothing. Requires: it is not here."""
        if counted == NOTHING_COUNTED:
            return False
        at = bisect_left(self._numbers, number)
        begin = at * _COLUMNS
        self._numbers.insert(at, number)
        self._figures[begin:begin] = array("d", map(float, counted))
        return True

    def take(self, number: int) -> EarlierCounts:
        """Return what a queue had counted, and forget it: it counts itself from now on."""
        found, at = self.find(number), bisect_left(self._numbers, number)
        if at < len(self._numbers) and self._numbers[at] == number:
            begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
            del self._numbers[at], self._figures[begin:end]
        return found

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert len(self._figures) == _COLUMNS * len(self._numbers)
