"""Counters of destinations: the depth, and the messages that came and left since the directory was opened.

Each lane counts for itself, and a DestinationLifecycle adds up its lanes and its `earlier` counts from before it was
closed. Counters live as long as the process: of a closed queue, 108 bytes remain in CountedRows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, NamedTuple


class DestinationTotals(NamedTuple):
    """Depth and bytes of a destination, and what came and left since the directory was opened.

    See DestinationLifecycle.
    """

    depth: int
    depth_bytes: int
    enqueued: int
    enqueued_bytes: int
    dequeued_bytes: int


class EarlierCounts(NamedTuple):
    """The counts of a queue or topic since the directory was opened. See DestinationStatistics."""

    enqueued: int = 0
    enqueued_bytes: int = 0
    dequeued_bytes: int = 0
    acknowledged: int = 0
    redelivered: int = 0
    unreadable: int = 0
    expired: int = 0
    delivered: int = 0
    misses: int = 0
    dead_lettered: int = 0
    dropped: int = 0
    evicted: int = 0
    """Only topics evict."""
    blocked_sends: int = 0
    blocked_seconds: float = 0.0


NOTHING_COUNTED: Final = EarlierCounts()


_COLUMNS: Final = len(EarlierCounts._fields)


class CountedRows:
    """The counters of closed queues and topics, by number. One that has counted nothing is left out.

    The state lock guards it.
    """

    __slots__ = ("_numbers", "_figures")

    def __init__(self) -> None:
        # The numbers of the queues, sorted.
        self._numbers = array("I")
        # The counters of the queues in the same order. A double is exact up to 2**53.
        self._figures = array("d")

    def __len__(self) -> int:
        return len(self._numbers)

    def find(self, destination_number: int) -> EarlierCounts:
        """Return the counters of a queue from before it was closed; zeros if nothing is known. O(log queues)."""
        at = bisect_left(self._numbers, destination_number)
        if at == len(self._numbers) or self._numbers[at] != destination_number:
            return NOTHING_COUNTED
        begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
        figures = self._figures[begin:end]
        blocked_seconds = figures.pop()
        return EarlierCounts(*map(int, figures))._replace(blocked_seconds=blocked_seconds)

    def put(self, destination_number: int, counted: EarlierCounts) -> bool:
        """Keep the counters of a closed queue; return False if it has counted nothing. Requires: the queue is not here
        yet.
        """
        if counted == NOTHING_COUNTED:
            return False
        at = bisect_left(self._numbers, destination_number)
        begin = at * _COLUMNS
        self._numbers.insert(at, destination_number)
        self._figures[begin:begin] = array("d", map(float, counted))
        return True

    def take(self, destination_number: int) -> EarlierCounts:
        """Return the counters of a queue and forget them: from now on the open queue counts."""
        counts, at = self.find(destination_number), bisect_left(self._numbers, destination_number)
        if at < len(self._numbers) and self._numbers[at] == destination_number:
            begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
            del self._numbers[at], self._figures[begin:end]
        return counts

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert len(self._figures) == _COLUMNS * len(self._numbers)
