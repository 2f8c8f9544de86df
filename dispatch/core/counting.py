"""Counters of destinations: the depth, and the messages that came and left since the directory was opened.

Each lane counts for itself, and a CountedDestination adds its lanes up. `earlier` holds the counts from before it was
closed and opened again. Counters live as long as the process: of a closed queue 108 bytes remain in CountedRows.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..admission.limits import LimitedDestination
from .deliveries.delivery import LaneMessages


class Volume(NamedTuple):
    """Depth and bytes of a destination, and what came and left since the directory was opened.

    See CountedDestination.
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


class CountedDestination(LimitedDestination):
    """A destination with its counters. The state lock guards it."""

    __slots__ = ("earlier", "misses", "delivered", "dead_lettered")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # What the destination had counted before it was opened last.
        self.earlier = NOTHING_COUNTED
        # Misses of selector groups that have ended.
        self.misses = 0
        # Deliveries to consumers that are closed.
        self.delivered = 0
        # Messages that became dead letters after their last attempt.
        self.dead_lettered = 0

    @abstractmethod
    def all_lanes(self) -> Iterator[LaneMessages]:
        """Yield the lanes that exist, highest priority first."""

    @property
    def counted(self) -> EarlierCounts:
        """Return the counts since the directory was opened. O(lanes).

        Requires: nobody takes from the destination.
        """
        lanes, earlier = list(self.all_lanes()), self.earlier
        volume = self.volume(lanes)
        return EarlierCounts(
            volume.enqueued,
            volume.enqueued_bytes,
            volume.dequeued_bytes,
            earlier.acknowledged + sum(lane.acknowledged for lane in lanes),
            earlier.redelivered + sum(lane.redelivered for lane in lanes),
            earlier.unreadable + sum(lane.unreadable for lane in lanes),
            earlier.expired + sum(lane.expired for lane in lanes),
            self.delivered,
            self.misses,
            self.dead_lettered,
            self.dropped,
            earlier.evicted,
            self.blocked_sends,
            self.blocked_seconds,
        )

    def count_on(self, earlier: EarlierCounts) -> None:
        """Continue from these earlier counts. Requires: the destination was just made."""
        self.earlier = earlier
        self.delivered, self.misses, self.dead_lettered = earlier.delivered, earlier.misses, earlier.dead_lettered
        self.dropped, self.blocked_sends = earlier.dropped, earlier.blocked_sends
        self.blocked_seconds = earlier.blocked_seconds

    @property
    def enqueued(self) -> int:
        """Number of messages that came since the directory was opened."""
        return self.earlier.enqueued + sum(lane.enqueued for lane in self.all_lanes())

    @property
    def enqueued_bytes(self) -> int:
        """Bytes of the bodies and headers of messages that came since the directory was opened."""
        return self.earlier.enqueued_bytes + sum(lane.enqueued_bytes for lane in self.all_lanes())

    @property
    def dequeued_bytes(self) -> int:
        """Bytes of the bodies and headers of messages that left since the directory was opened, for any reason."""
        return self.earlier.dequeued_bytes + sum(lane.dequeued_bytes for lane in self.all_lanes())

    def volume(self, lanes: Sequence[LaneMessages]) -> Volume:
        """Return the depth, and what came and left, from one walk over the lanes. Requires: the lock.

        lanes: all lanes of the destination, in any order.
        """
        depth = depth_bytes = 0
        enqueued, enqueued_bytes, dequeued_bytes = self.earlier[:3]
        for lane in lanes:
            store_lane = lane.store_lane
            depth += store_lane.pending_messages
            depth_bytes += store_lane.pending_bytes
            enqueued += lane.enqueued
            enqueued_bytes += lane.enqueued_bytes
            dequeued_bytes += lane.dequeued_bytes
        return Volume(depth, depth_bytes, enqueued, enqueued_bytes, dequeued_bytes)

    @property
    def depth(self) -> int:
        return sum(lane.store_lane.pending_messages for lane in self.all_lanes())

    @property
    def depth_bytes(self) -> int:
        return sum(lane.store_lane.pending_bytes for lane in self.all_lanes())


_COLUMNS: Final = len(EarlierCounts._fields)


class CountedRows:
    """The counters of closed queues by the number of the queue; a queue that has counted nothing is left out.

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

    def find(self, number: int) -> EarlierCounts:
        """Return the counters of a queue from before it was closed; zeros if nothing is known. O(log queues)."""
        at = bisect_left(self._numbers, number)
        if at == len(self._numbers) or self._numbers[at] != number:
            return NOTHING_COUNTED
        begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
        figures = self._figures[begin:end]
        blocked_seconds = figures.pop()
        return EarlierCounts(*map(int, figures))._replace(blocked_seconds=blocked_seconds)

    def put(self, number: int, counted: EarlierCounts) -> bool:
        """Keep the counters of a closed queue; return False if it has counted nothing. Requires: the queue is not here
        yet.
        """
        if counted == NOTHING_COUNTED:
            return False
        at = bisect_left(self._numbers, number)
        begin = at * _COLUMNS
        self._numbers.insert(at, number)
        self._figures[begin:begin] = array("d", map(float, counted))
        return True

    def take(self, number: int) -> EarlierCounts:
        """Return the counters of a queue and forget them: from now on the open queue counts."""
        found, at = self.find(number), bisect_left(self._numbers, number)
        if at < len(self._numbers) and self._numbers[at] == number:
            begin, end = at * _COLUMNS, (at + 1) * _COLUMNS
            del self._numbers[at], self._figures[begin:end]
        return found

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert len(self._figures) == _COLUMNS * len(self._numbers)
