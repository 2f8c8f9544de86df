"""The order in which a selector group takes from its lists, and what a take would find there.

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
    next_persistent = _next_sequence(persistent)
    next_non_persistent = _next_sequence(non_persistent)
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


def list_to_load(selector_group: SelectorGroup) -> TargetList | None:
    """Return the list that must be loaded before anything can be taken. None: there is nothing to load."""
    for target in selector_group.in_turn():
        if target.counterpart is not None:
            target = next_by_arrival(target)[0]
        if target.is_ready:
            return None  # the message is in RAM and can't be taken now: a load would not help
        if target.has_supply:
            return target
    return None


def may_have_messages(selector_group: SelectorGroup) -> bool:
    """Return whether a take may find a message, now or after a load."""
    return any(target.direct or target.has_supply for target in selector_group.in_turn())


def _next_sequence(target: TargetList) -> int | None:
    """Return the lowest sequence that a list still has, returned messages included. None: it has no more."""
    first = target.direct[0][0] if target.direct else None
    if first is None and target.references:
        first = target.references.first
    if first is None and target.frontier < target.lane.published_end:
        first = target.frontier
    if target.returned and (first is None or target.returned.first < first):
        first = target.returned.first
    return first
