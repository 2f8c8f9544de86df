"""The order in which a selector group takes from its lists.

Lists are ordered by priority, then by destination. A persistent and a non-persistent list of one priority and
destination are counterparts: from the two together, messages are taken in order of arrival.
"""

from __future__ import annotations

from itertools import pairwise

from ....store.numbering import BEHIND_ALL
from ..lanes.non_persistent_lane_state import NonPersistentLaneState
from ..model.destination import SelectorGroup, TargetList


def arrange(selector_group: SelectorGroup) -> None:
    """Sort the lists of a selector group into the order in which they are taken from, and pair counterparts."""
    selector_group.lists.sort(
        key=lambda target: (
            -target.lane.priority,
            target.lane.destination.number,
            not target.lane.is_persistent,
        )
    )
    pair(selector_group)


def pair(selector_group: SelectorGroup) -> None:
    """Pair the lists of a selector group that have the same priority and destination."""
    for target, following in pairwise(selector_group.lists):
        one, other = target.lane, following.lane
        if one.priority == other.priority and one.destination is other.destination:
            target.pair(following)
            following.pair(target)


def next_by_arrival(target: TargetList) -> tuple[TargetList, int]:
    """Return the list or its counterpart, whichever has the message that arrived first, and where it must stop.

    It must stop before the sequence returned, because the other list comes next there. If only one of the two has
    messages, return it without a bound. O(log turns).
    """
    counterpart = target.counterpart
    assert counterpart is not None
    persistent, non_persistent = (target, counterpart) if target.lane.is_persistent else (counterpart, target)
    next_persistent = _next_to_hand_out(persistent)
    next_non_persistent = _next_to_hand_out(non_persistent)
    if next_non_persistent is None:
        return persistent, BEHIND_ALL
    if next_persistent is None:
        return non_persistent, BEHIND_ALL
    lane = non_persistent.lane
    assert isinstance(lane, NonPersistentLaneState)
    before = lane.non_persistent_lane.next_persistent(next_non_persistent)
    if next_persistent < before:
        return persistent, before
    return non_persistent, lane.non_persistent_lane.next_non_persistent(next_persistent)


def _next_to_hand_out(target: TargetList) -> int | None:
    """Return the lowest sequence that a list may still hand out, returned messages included. None: it has no more."""
    first = target.direct[0][0] if target.direct else None
    if first is None and target.references:
        first = target.references.first
    if first is None and target.frontier < target.lane.published_end:
        first = target.frontier
    if target.returned and (first is None or target.returned.first < first):
        first = target.returned.first
    return first
