"""Ranks: how much a consumer may take beside those of higher priority.

Messages that nobody owns belong to the consumers of the highest priority as
far as their credit goes; the lower ones get what is left. Who is slow has no
precedence until it takes or settles something again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .queue_area import Interest, QueueArea

if TYPE_CHECKING:
    from .consumer import Consumer

UNLIMITED: Final = 1 << 62


def above(queue: QueueArea, consumer: Consumer) -> list[Consumer]:
    """Those of higher priority that could take something now."""
    return [
        other
        for other in queue.consumers()
        if other.priority > consumer.priority and not other.is_slow and credit(queue, other) > 0
    ]


def credit(queue: QueueArea, consumer: Consumer) -> int:
    """How many messages it could take. One that pulls (prefetch 0) could take one, while it waits for it."""
    if queue.holds_up(consumer):
        return 0
    if not consumer.prefetch:
        return int(consumer.interest.is_awaited)
    return consumer.prefetch - consumer.in_flight


def left(queue: QueueArea, interest: Interest, consumer: Consumer, higher: list[Consumer]) -> int:
    """How many of an interest's messages the higher ones have no credit for.

    With a selector only those count that are known to match. O(lanes).
    """
    wanted = sum(credit(queue, other) for other in higher)
    return max(_available(queue, interest) - wanted, 0) if wanted else UNLIMITED


def _available(queue: QueueArea, interest: Interest) -> int:
    if interest.selector is not None:
        return sum(len(list_.direct) + list_.returned.count + list_.references.count for list_ in interest.lists)
    available = 0
    for area in queue.lane_areas():
        taken = len(area.in_flight) + len(area.parked)
        unpublished = max(area.lane.next_sequence - area.published, 0)
        available += area.lane.pending_messages - taken - unpublished
    for consumer in queue.consumers():
        available -= sum(len(own.direct) + own.returned.count for own in consumer.interest.lists)
    return available
