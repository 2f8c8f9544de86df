"""In which order the lists of a consumer group are looked at.

By priority, then by destination. A persistent list and the one of the same priority and destination that is not are
counterparts: together they go by arrival.
"""

from __future__ import annotations

from itertools import pairwise

from ....store.numbering import BEHIND_ALL
from ..model import ConsumerGroup, NonPersistentLaneState, TargetList


def arrange(consumer_group: ConsumerGroup) -> None:
    """Put the lists of a consumer group in the order in which they are looked at, and pair them."""
    consumer_group.lists.sort(
        key=lambda target: (
            -target.lane.pending_lane.priority,
            target.lane.destination.number,
            not target.lane.is_persistent,
        )
    )
    pair(consumer_group)


def pair(consumer_group: ConsumerGroup) -> None:
    """Find the lists of a consumer group that have one priority of one destination."""
    for target, following in pairwise(consumer_group.lists):
        one, other = target.lane, following.lane
        if one.pending_lane.priority == other.pending_lane.priority and one.destination is other.destination:
            target.pair(following)
            following.pair(target)


def next_by_arrival(target: TargetList) -> tuple[TargetList, int]:
    """Return which of a list and its counterpart goes first, and the sequence of its own before which the other is due.

    Where only one has something, that one, as far as it goes. O(log turns).
    """
    counterpart = target.counterpart
    assert counterpart is not None
    persistent, non_persistent = (target, counterpart) if target.lane.is_persistent else (counterpart, target)
    next_persistent = persistent.next_sequence
    next_non_persistent = non_persistent.next_sequence
    if next_non_persistent is None:
        return persistent, BEHIND_ALL
    if next_persistent is None:
        return non_persistent, BEHIND_ALL
    lane = non_persistent.lane
    assert isinstance(lane, NonPersistentLaneState)
    before = lane.tmp_lane.before(next_non_persistent)
    if next_persistent < before:
        return persistent, before
    return non_persistent, lane.tmp_lane.behind(next_persistent)
