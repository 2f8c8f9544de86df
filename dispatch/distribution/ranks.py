"""Ranks: how much a consumer may take beside those of higher priority.

Messages that nobody owns belong to the consumers of the highest priority as
far as their credit goes; the lower ones get what is left. Who is slow has no
precedence until it takes or settles something again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..core.queue_area import QueueArea

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from .grouped import GroupAssigner
    from .stock import UnassignedMessages

UNLIMITED: Final = 1 << 62


def credit(queue: QueueArea, consumer: Consumer) -> int:
    """How many messages it could take. One that pulls (prefetch 0) could take one, while it waits for it."""
    return 0 if queue.holds_up(consumer) else _own_credit(consumer)


def _own_credit(consumer: Consumer) -> int:
    prefetch = consumer._prefetch
    return prefetch - consumer.in_flight if prefetch else int(consumer.consumer_group.is_awaited)


def above(dealer: GroupAssigner, priority: int) -> Iterator[Consumer]:
    """Those of higher priority that could take something now, the highest first. O(those that could or could not)."""
    if dealer.queue.exclusive is not None:
        return
    for other in dealer.ranked:
        if other.priority <= priority:
            return
        # Whose prefetch is used up is passed over without a call: with many consumers those are most.
        if (not other._prefetch or other.in_flight < other._prefetch) and not other.is_slow and _own_credit(other) > 0:
            yield other


def left(dealer: GroupAssigner, stock: UnassignedMessages, priority: int) -> int:
    """How many messages of a stock those of higher priority have no credit for.

    With a selector only those count that are known to match. O(lanes + consumers of higher priority).
    """
    available: int | None = None
    for other in above(dealer, priority):
        if dealer.hands[other].stock is stock:
            if available is None:
                available = _available(dealer, stock)
            available -= _own_credit(other)
            if available <= 0:
                return 0
    return UNLIMITED if available is None else available


def _available(dealer: GroupAssigner, stock: UnassignedMessages) -> int:
    if stock.selector is not None:
        return sum(len(list_.direct) + list_.returned.count + list_.references.count for list_ in stock.lists)
    available = 0
    for area in dealer.queue.lane_areas():
        taken = len(area.in_flight) + len(area.parked)
        unpublished = max(area.lane.next_sequence - area.published, 0)
        available += area.lane.pending_messages - taken - unpublished
    if dealer.groups.has_owners:
        for hand in dealer.hands.values():
            available -= sum(len(own.direct) + own.returned.count for own in hand.lists)
    return available
