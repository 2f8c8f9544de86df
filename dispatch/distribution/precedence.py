"""Precedence: the order of a queue's consumers by priority, and how many messages the higher ones leave to the others.

Only messages whose group has no owner are shared out by priority. A consumer takes those of its own groups in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...store.format.record import RecordDamaged
from ...store.numbering import UNLIMITED
from ...store.stored_message import StoredMessage
from ..core.model.destination import CoreConsumer, CoreDestination, LaneState, SelectorGroup
from .message_groups import MessageGroups


class Precedence:
    """The order of a queue's consumers by priority, and what the higher ones leave to the others.

    The state lock guards it.
    """

    __slots__ = ("_queue", "_message_groups", "_assigned", "_ranks", "_priorities", "_highest", "lowest")

    def __init__(
        self, queue: CoreDestination, message_groups: MessageGroups, assigned: Collection[SelectorGroup]
    ) -> None:
        """Make the order of a queue.

        assigned: a view of the selector group of each consumer's assigned messages.
        """
        self._queue = queue
        self._message_groups = message_groups
        self._assigned = assigned
        # The queue's consumers by priority, each with the selector group that it shares with others.
        self._ranks: dict[int, dict[CoreConsumer, SelectorGroup]] = {}
        # The priorities, highest first.
        self._priorities: list[int] = []
        self._highest = 0
        # The lowest priority of a consumer. Read-only for callers.
        self.lowest = 0

    def join(self, consumer: CoreConsumer, common: SelectorGroup) -> None:
        """Add a consumer of a common selector group."""
        self._ranks.setdefault(consumer.priority, {})[consumer] = common
        self._rank()

    def leave(self, consumer: CoreConsumer) -> None:
        """Remove a consumer."""
        rank = self._ranks[consumer.priority]
        del rank[consumer]
        if not rank:
            del self._ranks[consumer.priority]
        self._rank()

    def _rank(self) -> None:
        """Note which priorities exist. O(1) unless they have changed."""
        if len(self._priorities) != len(self._ranks):
            self._priorities = sorted(self._ranks, reverse=True)
            self._highest, self.lowest = (self._priorities[0], self._priorities[-1]) if self._ranks else (0, 0)

    def quota(self, common: SelectorGroup, priority: int) -> int:
        """Return how many messages without an owner consumers of higher priority leave to one of this priority."""
        return UNLIMITED if priority == self._highest else self._beyond_demand_above(common, priority)

    def first_above(
        self, common: SelectorGroup, priority: int, lane: LaneState, message: StoredMessage
    ) -> CoreConsumer | None:
        """Return a consumer of another selector group that comes before this priority and wants the message."""
        if priority == self._highest or len(self._queue.selector_groups) < 2:
            return None
        for other, others_common, _ in self._above(priority):
            if others_common is not common and (message[2] is None or _matches(others_common, lane, message)):
                return other
        return None

    def _above(self, priority: int) -> Iterator[tuple[CoreConsumer, SelectorGroup, int]]:
        """Yield consumers of higher priority that could take now, and how many messages. O(consumers above)."""
        if self._queue.exclusive is not None:
            return
        for rank in self._priorities:
            if rank <= priority:
                return
            for other, common in self._ranks[rank].items():
                # `credit <= 0`, written inline: among many consumers most have used up their prefetch, and these cost
                # no call.
                if other.activity.is_slow or 0 < other.prefetch_limit <= other.in_flight:
                    continue
                demand = other.demand
                if demand > 0:
                    yield other, common, demand

    def _beyond_demand_above(self, common: SelectorGroup, priority: int) -> int:
        """Return how many unassigned messages are left once consumers of higher priority have what they demand.

        If the selector group has a selector, only messages that are known to match count. O(lanes + consumers of higher
        priority), and O(consumers) if their demand does not cover all undelivered messages.
        """
        available: int | None = None
        for _, others_common, demand in self._above(priority):
            if others_common is common:
                if available is None:
                    available = self._undelivered(common)
                available -= demand
                if available <= 0:
                    return 0
        return UNLIMITED if available is None else max(available - self._count_assigned(common), 0)

    def _undelivered(self, common: SelectorGroup) -> int:
        """Count the free messages, assigned ones included. With a selector, count only unassigned ones. O(lanes)."""
        if common.selector is not None:
            lists = common.lists
            return sum(len(target.direct) + target.returned.count + target.references.count for target in lists)
        return sum(lane.free_messages for lane in self._queue.all_lanes())

    def _count_assigned(self, common: SelectorGroup) -> int:
        """Count the assigned messages among those that `_undelivered` counts. O(consumers)."""
        if common.selector is not None or not self._message_groups.has_owners:
            return 0
        targets = (target for assigned in self._assigned for target in assigned.lists)
        return sum(len(target.direct) + target.returned.count for target in targets)


def _matches(common: SelectorGroup, lane: LaneState, message: StoredMessage) -> bool:
    try:
        return common.wants(lane, message)
    except RecordDamaged:
        return False


def demand_within(queue: CoreDestination, consumer: CoreConsumer) -> int:
    """Return how many messages may be kept for a consumer: none if its queue gives it nothing."""
    return 0 if queue.holds_up(consumer) else consumer.demand
