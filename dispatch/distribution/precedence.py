"""Precedence: which consumers of a queue come first, and what they leave to the others. Nothing here is stored.

It is about messages that nobody owns: of its own groups a consumer may take whatever its priority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...store.format.record import RecordDamaged
from ...store.numbering import UNLIMITED
from ...store.stored_message import StoredMessage
from ..core.model import ConsumerGroup, DestinationState, LaneState, Taker
from .message_groups import MessageGroups


class Precedence:
    """The order of a queue's consumers by priority, and what each leaves to those behind it.

    The state lock guards it.
    """

    __slots__ = ("_queue", "_groups", "_assigned", "_ranks", "_priorities", "_highest", "lowest")

    def __init__(self, queue: DestinationState, groups: MessageGroups, assigned: Collection[ConsumerGroup]) -> None:
        """assigned: a view of what each consumer of now has of its own."""
        self._queue = queue
        self._groups = groups
        self._assigned = assigned
        self._ranks: dict[int, dict[Taker, ConsumerGroup]] = {}
        """Its consumers by priority, each with the consumer group that it shares with others."""
        self._priorities: list[int] = []
        """The highest first."""
        self._highest = 0
        self.lowest = 0
        """The lowest priority of a consumer. Read-only for callers."""

    def join(self, consumer: Taker, shared: ConsumerGroup) -> None:
        """Take in a consumer of a group."""
        self._ranks.setdefault(consumer.priority, {})[consumer] = shared
        self._rank()

    def leave(self, consumer: Taker) -> None:
        """Let a consumer go."""
        rank = self._ranks[consumer.priority]
        del rank[consumer]
        if not rank:
            del self._ranks[consumer.priority]
        self._rank()

    def _rank(self) -> None:
        """Note which priorities there are. O(1) unless they are others now."""
        if len(self._priorities) != len(self._ranks):
            self._priorities = sorted(self._ranks, reverse=True)
            self._highest, self.lowest = (self._priorities[0], self._priorities[-1]) if self._ranks else (0, 0)

    def quota(self, shared: ConsumerGroup, priority: int) -> int:
        """Return how many messages without an owner a consumer of this priority may take beside the others."""
        return UNLIMITED if priority == self._highest else self._beyond_credit_above(shared, priority)

    def first_above(
        self, shared: ConsumerGroup, priority: int, lane: LaneState, message: StoredMessage
    ) -> Taker | None:
        """Return who of another consumer group comes before those of this one and wants the message."""
        if priority == self._highest or len(self._queue.consumer_groups) < 2:
            return None
        for other, others_shared, _ in self._above(priority):
            if others_shared is not shared and (message[2] is None or _matches(others_shared, lane, message)):
                return other
        return None

    def _above(self, priority: int) -> Iterator[tuple[Taker, ConsumerGroup, int]]:
        """Yield those of higher priority that could take something now, and how much. O(consumers above)."""
        if self._queue.exclusive is not None:
            return
        for rank in self._priorities:
            if rank <= priority:
                return
            for other, shared in self._ranks[rank].items():
                # Whose prefetch is used up is passed over without the call of `demand`: those are most, if many.
                if other.activity.is_slow or 0 < other.prefetch_limit <= other.in_flight:
                    continue
                demand = other.demand
                if demand > 0:
                    yield other, shared, demand

    def _beyond_credit_above(self, shared: ConsumerGroup, priority: int) -> int:
        """Return how many unassigned messages those of higher priority have no credit for.

        With a selector only those count that are known to match. O(lanes + consumers of higher priority), and
        O(consumers) where their credit does not do for all that is undelivered.
        """
        available: int | None = None
        for _, others_shared, demand in self._above(priority):
            if others_shared is shared:
                if available is None:
                    available = self._undelivered(shared)
                available -= demand
                if available <= 0:
                    return 0
        return UNLIMITED if available is None else max(available - self._count_assigned(shared), 0)

    def _undelivered(self, shared: ConsumerGroup) -> int:
        """Count unassigned messages and, where these have no selector, assigned ones too. O(lanes)."""
        if shared.selector is not None:
            return sum(len(list_.direct) + list_.returned.count + list_.references.count for list_ in shared.lists)
        return sum(lane.free_messages for lane in self._queue.all_lanes())

    def _count_assigned(self, shared: ConsumerGroup) -> int:
        """Count what of the undelivered messages is assigned to consumers. O(consumers)."""
        if shared.selector is not None or not self._groups.has_owners:
            return 0
        return sum(len(own.direct) + own.returned.count for assigned in self._assigned for own in assigned.lists)


def _matches(shared: ConsumerGroup, lane: LaneState, message: StoredMessage) -> bool:
    try:
        return shared.wants(lane, message)
    except RecordDamaged:
        return False


def demand_within(queue: DestinationState, consumer: Taker) -> int:
    """Return how many messages may be kept for a consumer: none where its queue gives it nothing."""
    return 0 if queue.holds_up(consumer) else consumer.demand
