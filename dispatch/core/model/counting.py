"""Counters of destinations: the depth, and the messages that came and left since the directory was opened.

Each lane counts for itself, and DestinationCounters has the rest, with what was counted before the destination was
closed. Counters live as long as the process: of a closed queue, 108 bytes remain in CountedRows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

from .delivery import DeliveryLane


class DestinationTotals(NamedTuple):
    """Depth and bytes of a destination, and what came and left since the directory was opened."""

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


class DestinationCounters:
    """What a destination has counted since the directory was opened, without what its open lanes count.

    The state lock guards it.
    """

    __slots__ = (
        "earlier",
        "misses",
        "delivered",
        "dead_lettered",
        "dropped",
        "evicted",
        "blocked_sends",
        "blocked_seconds",
    )

    def __init__(self) -> None:
        # What was counted before this object was made; of lanes, only this has what closed ones had counted.
        self.earlier = NOTHING_COUNTED
        # Misses of selector groups that have ended.
        self.misses = 0
        # Deliveries to consumers that are closed.
        self.delivered = 0
        # Messages that became dead letters: after their last attempt, rejected, expired, or diverted from a full queue.
        self.dead_lettered = 0
        # Messages that the policy gave up for want of room.
        self.dropped = 0
        # Messages of a topic that slow subscribers have lost, counted once for each subscriber.
        self.evicted = 0
        self.blocked_sends = 0
        # Time for which sends waited for room, counted when a wait ends.
        self.blocked_seconds = 0.0

    def restore(self, earlier: EarlierCounts) -> None:
        """Continue from these earlier counts. Requires: the destination was just made."""
        self.earlier = earlier
        self.misses, self.delivered, self.dead_lettered = earlier.misses, earlier.delivered, earlier.dead_lettered
        self.dropped, self.evicted = earlier.dropped, earlier.evicted
        self.blocked_sends, self.blocked_seconds = earlier.blocked_sends, earlier.blocked_seconds

    def totals(self, lanes: Sequence[DeliveryLane]) -> DestinationTotals:
        """Return the depth, and what came and left, from one walk over all lanes of the destination."""
        depth = depth_bytes = 0
        enqueued, enqueued_bytes, dequeued_bytes = self.earlier[:3]
        for lane in lanes:
            pending_lane = lane.pending_lane
            depth += pending_lane.pending_messages
            depth_bytes += pending_lane.pending_bytes
            enqueued += lane.enqueued
            enqueued_bytes += lane.enqueued_bytes
            dequeued_bytes += lane.dequeued_bytes
        return DestinationTotals(depth, depth_bytes, enqueued, enqueued_bytes, dequeued_bytes)

    def to_keep(self, lanes: Sequence[DeliveryLane], totals: DestinationTotals) -> EarlierCounts:
        """Return what must be kept when the destination is closed. Requires: nobody takes from it.

        lanes: all its lanes. totals: what came and left.
        """
        earlier = self.earlier
        return EarlierCounts(
            totals.enqueued,
            totals.enqueued_bytes,
            totals.dequeued_bytes,
            earlier.acknowledged + sum(lane.acknowledged for lane in lanes),
            earlier.redelivered + sum(lane.redelivered for lane in lanes),
            earlier.unreadable + sum(lane.unreadable for lane in lanes),
            earlier.expired + sum(lane.expired for lane in lanes),
            self.delivered,
            self.misses,
            self.dead_lettered,
            self.dropped,
            self.evicted,
            self.blocked_sends,
            self.blocked_seconds,
        )


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
