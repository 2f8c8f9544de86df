"""DestinationLifecycle: whether a destination is open, paused or in use, what its policy says, and what it counts.

A destination object begins open and ends in one of three ways. A call that still has the object then does as follows:

    open ──> closed               its row in the store's table is left: the call opens it again by its number
         ──> deleted as inactive  nobody used it for long: the call makes a new one of its name
         ──> deleted              a caller deleted it: the call raises Closed

An object never becomes open again. A destination that is opened again gets a new object.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from enum import Enum

from ....store.errors import Closed
from ...admission.limits import DestinationLimits, LimitedDestination
from .counting import NOTHING_COUNTED, DestinationTotals, EarlierCounts
from .delivery import LaneMessages


class Lifecycle(Enum):
    """The states of a destination object; see the top of this module."""

    OPEN = "open"
    CLOSED = "closed"
    DELETED_AS_INACTIVE = "deleted as inactive"
    DELETED = "deleted"


class DestinationLifecycle(LimitedDestination):
    """A destination without its lanes and consumers. The state lock guards it.

    CoreDestination adds who takes from it, and DestinationState its lanes.
    """

    __slots__ = (
        "number",
        "limits",
        "has_message_groups",
        "is_paused",
        "lifecycle",
        "calls_under_way",
        "enqueued_when_idle",
        "inactive_seconds",
        "has_duplicate_window",
        "earlier",
        "misses",
        "delivered",
        "dead_lettered",
    )

    def __init__(self, number: int, name: str) -> None:
        super().__init__(name)
        self.number = number
        # The limits that the policy of a queue or topic sets. A subscription has those of its topic. None: no limits.
        self.limits: DestinationLimits | None = None
        # Whether a message with a group was ever sent here.
        self.has_message_groups = False
        # Whether nothing is handed out until it is resumed.
        self.is_paused = False
        self.lifecycle = Lifecycle.OPEN
        # Number of calls that use it and do not hold the lock now. While there are any, it is not closed.
        self.calls_under_way = 0
        # The value of `enqueued` when IdleDestinations last looked. None: it was not idle then.
        self.enqueued_when_idle: int | None = None
        # After how many seconds without use its policy deletes it. None: never.
        self.inactive_seconds: float | None = None
        # Whether its policy has a duplicate window.
        self.has_duplicate_window = False
        # What the destination had counted before this object was made.
        self.earlier = NOTHING_COUNTED
        # Misses of selector groups that have ended.
        self.misses = 0
        # Deliveries to consumers that are closed.
        self.delivered = 0
        # Messages that became dead letters: after their last attempt, rejected, expired, or diverted from a full queue.
        self.dead_lettered = 0

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor deleted, so that it may have lanes and consumers."""
        return self.lifecycle is Lifecycle.OPEN

    @property
    def is_reopenable(self) -> bool:
        """Whether a call that still has it can go on with a new object of its name."""
        return self.lifecycle is Lifecycle.CLOSED or self.lifecycle is Lifecycle.DELETED_AS_INACTIVE

    @property
    def subscription_name(self) -> str | None:
        """The name of a durable subscription. None: it is not one."""
        return None

    @property
    def is_limited(self) -> bool:
        """Whether senders may wait for room that acks of its consumers make."""
        return self.limits is not None

    def on_room_freed(self) -> None:
        """Serve senders that wait for room. Requires: the lock.

        Whatever removed messages calls it: an ack, Removals, TimedLanes, or a lane whose transaction has committed.
        """
        if self.limits is not None:
            self.limits.on_room_freed()

    def begin_call(self) -> None:
        """Keep it open for a call that uses it and releases the lock, until `end_call`. Requires: the lock."""
        self.calls_under_way += 1

    def end_call(self) -> None:
        """Let it be closed again, as far as the call of `begin_call` is concerned. Requires: the lock."""
        self.calls_under_way -= 1

    def follow_policy(
        self, limits: DestinationLimits | None, inactive_seconds: float | None, *, has_duplicate_window: bool
    ) -> None:
        """Take on what the policy says of it. Requires: it was just opened."""
        self.limits = limits
        self.inactive_seconds = inactive_seconds
        self.has_duplicate_window = has_duplicate_window

    def raise_if_not_open(self) -> None:
        """Raise Closed if it is not open any more. Requires: the lock."""
        if not self.is_open:
            raise Closed(f"the {self.noun}")

    def raise_if_not_sendable(self) -> None:
        """Raise Closed if a sender can get no lane, because the destination is not open. Requires: the lock."""
        self.raise_if_not_open()

    def catch_up(self) -> None:
        """Make the depth exact. A topic removes messages that no subscription needs only from time to time."""

    # ------------------------------------------------------------------ what it counts

    @abstractmethod
    def all_lanes(self) -> Iterator[LaneMessages]:
        """Yield the lanes that exist, highest priority first."""

    @property
    def counted(self) -> EarlierCounts:
        """The counts since the directory was opened. O(lanes).

        Requires: nobody takes from the destination.
        """
        lanes, earlier = list(self.all_lanes()), self.earlier
        totals = self.totals(lanes)
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
            earlier.evicted,
            self.blocked_sends,
            self.blocked_seconds,
        )

    def restore_counts(self, earlier: EarlierCounts) -> None:
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

    def totals(self, lanes: Sequence[LaneMessages]) -> DestinationTotals:
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
        return DestinationTotals(depth, depth_bytes, enqueued, enqueued_bytes, dequeued_bytes)

    @property
    def depth(self) -> int:
        return sum(lane.pending_lane.pending_messages for lane in self.all_lanes())

    @property
    def depth_bytes(self) -> int:
        return sum(lane.pending_lane.pending_bytes for lane in self.all_lanes())
