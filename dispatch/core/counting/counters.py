"""Counters: the depth of a destination, and the messages that came and left since its directory was opened.

Each lane counts for itself, and this module adds the lanes up. `earlier` holds the counts from before a destination was
closed and opened again. Counters live as long as the process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ...admission.limits import LimitedDestination
from ..deliveries.delivery import LaneMessages


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
            pending_lane = lane.pending_lane
            depth += pending_lane.pending_messages
            depth_bytes += pending_lane.pending_bytes
            enqueued += lane.enqueued
            enqueued_bytes += lane.enqueued_bytes
            dequeued_bytes += lane.dequeued_bytes
        return Volume(depth, depth_bytes, enqueued, enqueued_bytes, dequeued_bytes)

    @property
    def depth(self) -> int:
        return sum(lane.pending_lane.pending_messages for lane in self.all_lanes())

    @property
    def depth_bytes(self) -> int:
        return sum(lane.pending_lane.pending_bytes for lane in self.all_lanes())
