"""Rebalancing: take groups from an owner for other consumers.

An owner keeps its groups until it closes or drains, or an exclusive consumer comes. If the queue's policy has
`group_rebalance`, it also loses groups when it is slow, or when another consumer of the selector group has nothing to
do and owns less than its share. Then its messages that are not handed out yet are unassigned. It keeps a group of
which it holds messages until these are settled.
"""

from __future__ import annotations

from ...store.numbering import UNLIMITED
from ..core.model.destination import CoreConsumer
from .assignments import Assignments, OwnSelectorGroup
from .message_groups import bucket_of


class Rebalancing:
    """Moves message groups of one queue from consumer to consumer. The state lock guards it."""

    __slots__ = ("_assignments", "_queue", "_message_groups", "_rebalances")

    def __init__(self, assignments: Assignments, *, rebalances: bool) -> None:
        self._assignments = assignments
        self._queue = assignments.queue
        self._message_groups = assignments.message_groups
        self._rebalances = rebalances

    def level(self, assigned: OwnSelectorGroup) -> bool:
        """Free groups for a consumer that has nothing to do and owns less than its share; return whether any was freed.

        Owners of more than their share give up groups of which they hold no message.
        """
        if not self._rebalances or not self._message_groups.has_owners:
            return False
        consumers = [other for other in assigned.common_selector_group.consumers if not self._queue.holds_up(other)]
        counts = {other: self._message_groups.owned(other) for other in consumers}
        part = -(-sum(counts.values()) // max(len(consumers), 1))
        if len(counts) < 2 or counts.get(assigned.owner, 0) >= sum(counts.values()) // len(counts):
            return False
        # A list and no generator, so that `any` asks each owner.
        return any([self._release(other, count - part) for other, count in counts.items() if count > part])

    def release_all(self, consumer: CoreConsumer) -> None:
        """Free all groups of a consumer of which it holds no message, and unassign all its messages."""
        self._release(consumer, UNLIMITED)

    def _release(self, consumer: CoreConsumer, most: int) -> bool:
        """Free up to `most` groups of a consumer of which it holds no message; return whether anything was freed."""
        assigned = self._assignments.assigned_by_consumer[consumer]
        in_use = self._in_use(consumer)
        idle = [bucket for bucket in self._message_groups.buckets(consumer) if bucket not in in_use][:most]
        if not idle and (most < UNLIMITED or not any(own.direct or own.has_supply for own in assigned.lists)):
            return False
        if idle:
            self._message_groups.disown(consumer, idle)
            assigned.idle.recount(consumer)
        self._assignments.empty(assigned)
        self._assignments.reoffer_withheld(consumer)
        return True

    def _in_use(self, consumer: CoreConsumer) -> set[int]:
        """Return the buckets of which a consumer holds a message. O(in flight)."""
        held = [delivery for lane in self._queue.all_lanes() for delivery in lane.deliveries.values()]
        held += consumer.held_in_transactions()
        names = self._assignments.message_group_names
        groups = (names.of_delivery(delivery) for delivery in held if delivery.consumer is consumer)
        return {bucket_of(group) for group in groups if group is not None}
