"""DestinationState: an open queue, topic, subscription or pattern with its lanes.

Its base class CoreDestination knows who takes from it and by which distribution. Lanes and consumers know it as that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ....cache.accounting.overdraft import LastingCharge
from ....store.index.index import INDEX_LANE_BYTES
from ....store.message_store import MessageStore
from ....store.numbering import PRIORITIES
from ...admission.limits import DestinationLimits
from ..lanes.non_persistent_lane_state import NonPersistentLaneState
from ..lanes.persistent_lane_state import PersistentLaneState
from ..model.counting import NOTHING_COUNTED, DestinationTotals, EarlierCounts
from ..model.delivery import AbstractConsumer, Delivery, DeliveryLane
from ..model.destination import LANE_STATE_BYTES, CoreDestination, DestinationStateParts, LaneState
from ..model.lifecycle import Lifecycle

NO_LANES: Final[tuple[None, ...]] = (None,) * PRIORITIES
"""The lanes of all queues and topics that have none, because they are new or gone."""


class DestinationState(CoreDestination):
    """A CoreDestination with its lanes: an open queue, topic, subscription or pattern. The state lock guards it.

    Lanes are made on first use. Consumers take from the lanes of a queue or a subscription. Messages that are sent to a
    topic go to the lanes of its subscriptions.
    """

    __slots__ = (
        "lanes",
        "non_persistent_lanes",
        "calls_under_way",
        "enqueued_when_idle",
        "inactive_seconds",
        "lasting_charge",
    )

    def __init__(self, parts: DestinationStateParts, number: int, name: str) -> None:
        super().__init__(parts, number, name)
        # By priority, the lanes of persistent messages: see `put_lane`.
        self.lanes: tuple[PersistentLaneState | None, ...] = NO_LANES
        # By priority, the lanes of non-persistent messages: see `put_non_persistent_lane`.
        self.non_persistent_lanes: tuple[NonPersistentLaneState | None, ...] = NO_LANES
        # Number of calls that use it and do not hold the lock now. While there are any, it is not closed.
        self.calls_under_way = 0
        # The value of `enqueued` when IdleDestinations last looked. None: it was not idle then.
        self.enqueued_when_idle: int | None = None
        # After how many seconds without use its policy deletes it. None: never.
        self.inactive_seconds: float | None = None
        # The charge for this object after the destination is closed or deleted, for as long as a Queue or Topic refers
        # to it. None: it is open.
        self.lasting_charge: LastingCharge | None = None

    # ------------------------------------------------------------------ whether it is open and in use

    @property
    def is_reopenable(self) -> bool:
        """Whether a call that still has it can go on with a new object of its name."""
        return self.lifecycle is Lifecycle.CLOSED or self.lifecycle is Lifecycle.DELETED_AS_INACTIVE

    def raise_if_not_sendable(self) -> None:
        """Raise Closed if a sender can get no lane, because the destination is not open. Requires: the lock."""
        self.raise_if_not_open()

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

    def end_admission(self) -> None:
        """Raise Closed in all senders that wait for room, and drop its limits, which refer to it.

        Requires: the lock.
        """
        if self.limits is not None:
            self.limits.close(f"the {self.noun}")
            self.limits = None

    # ------------------------------------------------------------------ what it counts

    def count_dropped(self, messages: int) -> None:
        """Count messages that the policy gave up for want of room."""
        self.counters.dropped += messages

    def count_blocked_send(self) -> None:
        """Count a send that begins to wait for room."""
        self.counters.blocked_sends += 1

    def count_blocked_seconds(self, seconds: float) -> None:
        """Count the time for which a send has waited for room, when its wait ends."""
        self.counters.blocked_seconds += seconds

    @property
    def counts_to_keep(self) -> EarlierCounts:
        """The counts since the directory was opened. O(lanes). Requires: nobody takes from the destination."""
        lanes = list(self.all_lanes())
        return self.counters.to_keep(lanes, self.totals(lanes))

    def totals(self, lanes: Sequence[DeliveryLane]) -> DestinationTotals:
        """Return the depth, and what came and left, from one walk over the lanes. Requires: the lock.

        lanes: all lanes of the destination, in any order.
        """
        return self.counters.totals(lanes)

    @property
    def enqueued(self) -> int:
        """Number of messages that came since the directory was opened."""
        return self.counters.earlier.enqueued + sum(lane.enqueued for lane in self.all_lanes())

    @property
    def enqueued_bytes(self) -> int:
        """Bytes of the bodies and headers of messages that came since the directory was opened."""
        return self.counters.earlier.enqueued_bytes + sum(lane.enqueued_bytes for lane in self.all_lanes())

    @property
    def dequeued_bytes(self) -> int:
        """Bytes of the bodies and headers of messages that left since the directory was opened, for any reason."""
        return self.counters.earlier.dequeued_bytes + sum(lane.dequeued_bytes for lane in self.all_lanes())

    @property
    def depth(self) -> int:
        return sum(lane.pending_lane.pending_messages for lane in self.all_lanes())

    @property
    def depth_bytes(self) -> int:
        return sum(lane.pending_lane.pending_bytes for lane in self.all_lanes())

    def catch_up(self) -> None:
        """Make the depth exact. A topic removes messages that no subscription needs only from time to time."""

    # ------------------------------------------------------------------ lanes

    def pools(self) -> Iterable[tuple[int, int]]:
        """Return number and next sequence of each pool that numbers non-persistent messages for several lanes.

        Only topics have such pools.
        """
        return ()

    def clear(self) -> None:
        """Forget everything, because it is deleted or closed. Requires: the lock."""
        self.clear_lanes()

    def clear_lanes(self) -> None:
        """Forget all lanes and selector groups, so that a sender that still has this object finds no lane.

        Requires: the lock, and that its consumers are closed.
        """
        self.lanes = self.non_persistent_lanes = NO_LANES
        self.selector_groups = {}
        self.counters.earlier = NOTHING_COUNTED

    def put_lane(self, priority: int, lane: PersistentLaneState) -> None:
        """Set the lane of persistent messages of a priority. Requires: the lock."""
        behind = priority + 1
        self.lanes = (*self.lanes[:priority], lane, *self.lanes[behind:])

    def put_non_persistent_lane(self, priority: int, lane: NonPersistentLaneState | None) -> None:
        """Set the lane of non-persistent messages of a priority; None: there is none any more. Requires: the lock."""
        lanes, behind = self.non_persistent_lanes, priority + 1
        self.non_persistent_lanes = (*lanes[:priority], lane, *lanes[behind:])

    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the existing lanes, highest priority first."""
        both = zip(reversed(self.lanes), reversed(self.non_persistent_lanes), strict=True)
        return (lane for pair in both for lane in pair if lane is not None)

    @property
    def total_misses(self) -> int:
        """Number of deliveries that had to be loaded first."""
        return self.counters.misses + sum(selector_group.misses for selector_group in self.all_selector_groups())

    def close_consumers(self) -> None:
        """Close all consumers, because the queue or the store ends. O(consumers + in flight). Requires: the lock."""
        held: dict[AbstractConsumer, list[Delivery]] = {consumer: [] for consumer in self.consumers()}
        for lane in self.all_lanes():
            for delivery in lane.deliveries.values():
                held[delivery.consumer].append(delivery)
        for consumer, deliveries in held.items():
            consumer.close_with_destination(deliveries)

    @property
    def lists_per_lane(self) -> int:
        """Number of lists that each new lane gets. O(consumers) if consumers have lists of their own."""
        return len(self.all_selector_groups())

    @property
    def first_lists(self) -> int:
        """Number of lists of a new lane that would be the first of their selector group."""
        return sum(not selector_group.lists for selector_group in self.selector_groups.values())

    @property
    def lane_bytes(self) -> int:
        """Charge of one more lane of persistent messages, without its lists."""
        return INDEX_LANE_BYTES + LANE_STATE_BYTES

    @property
    def is_unused(self) -> bool:
        """Whether it is empty, and no consumer and no call takes from it or waits for it. O(lanes)."""
        return (
            not self.depth and not self.calls_under_way and not self.is_paused and next(self.consumers(), None) is None
        )

    @property
    def is_idle(self) -> bool:
        """Whether it could be closed, because nothing but its counters would be lost. O(lanes)."""
        if self.selector_groups or self.distribution.keeps_open or self.is_paused or self.calls_under_way:
            return False
        if self.limits is not None and self.limits.has_senders:
            return False
        return all(lane.is_idle for lane in self.all_lanes())


class NamedDestinationState(DestinationState):
    """A DestinationState that a host can name: a queue, a topic, or a pattern of topics, to which it can't send."""

    __slots__ = ()

    @abstractmethod
    def make_lane(self, priority: int, message_store: MessageStore) -> PersistentLaneState:
        """Return a new lane of a priority for messages that are sent here."""
