"""Whose turn it is: two lists of one consumer group and priority, one of persistent messages and one of the others.

Each kind is numbered in a lane of its own. A non-persistent message knows
before which persistent one it came, so both are handed out by arrival.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, cast

from ...store.numbering import NOWHERE
from .target_list import TargetList

if TYPE_CHECKING:
    from .non_persistent import NonPersistentLaneState
    from .queue_area import ConsumerGroup


def pair(consumer_group: ConsumerGroup) -> None:
    """Find the lists of a consumer group that have one priority."""
    for target, following in pairwise(consumer_group.lists):
        if target.area.lane.priority == following.area.lane.priority:
            target.pair(following)
            following.pair(target)


def turn(target: TargetList) -> tuple[TargetList, int]:
    """Which of a list and its twin goes first, and before which of its own sequences the other one is due.

    Where only one has something, that one, as far as it goes. O(log turns).
    """
    twin = target.twin
    assert twin is not None
    persistent, volatile = (target, twin) if target.area.is_persistent else (twin, target)
    next_persistent = persistent.next_sequence
    next_volatile = volatile.next_sequence
    if next_volatile is None:
        return persistent, NOWHERE
    if next_persistent is None:
        return volatile, NOWHERE
    lane = cast("NonPersistentLaneState", volatile.area).store_lane
    before = lane.before(next_volatile)
    if next_persistent < before:
        return persistent, before
    return volatile, lane.behind(next_persistent)
