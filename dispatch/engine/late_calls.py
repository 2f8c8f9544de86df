"""LateCalls: how an owner calls one that is made after it. All circles among the owners of a store are here.

A constructor names everything that its object can reach, so owners are made from below to above and call downwards. A
few must call upwards as well: a list that meets an expired message tells the timetable, which was made with the lists.
Each such call is a method here. The Engine passes the method to the constructor below, before the owner above exists.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ...store.numbering import LANE_MASK, LANE_SHIFT, NON_PERSISTENT
from ..admin.dead_letters import Check, DeadLetterMover
from ..core.areas.list_events import ListEvents
from ..core.areas.target_area import TargetArea
from ..core.deliveries.delivery import Delivery
from ..core.destinations.destinations import Destinations
from ..core.model import LaneState, TargetList
from ..core.settling.delays import TimedLanes
from ..loading.warmer import CacheWarmer
from ..topics.registry import Topics
from ..transactions.transaction import Transaction
from .reports import Reports


class LateCalls(ListEvents):
    """The Engine sets each owner as soon as it is made.

    A call before that raises AttributeError, or AssertionError if it is for the TargetArea; `make_room` does nothing.
    """

    target_area: TargetArea | None = None
    timed: TimedLanes
    destinations: Destinations
    warmer: CacheWarmer
    topics: Topics
    dead_letters: DeadLetterMover
    reports: Reports

    def make_room(self, wanted_bytes: int) -> None:
        """For all charges: take memory from lists and caches. Requires: the lock.

        While the store opens there are no lists and caches yet, so it does nothing.
        """
        if self.target_area is not None:
            self.target_area.make_room(wanted_bytes, None)

    def expired(self, lane: LaneState, sequence: int) -> None:
        """For DispatchArea: remove an expired message that a list passed over. Requires: the lock."""
        self.timed.remove_expired(lane, sequence)

    def sampled(self, target: TargetList) -> None:
        """For DispatchArea: let the curve sample a list from which enough was taken. Requires: the lock."""
        assert self.target_area is not None, "a list was taken from"
        self.target_area.watch.sample(target)

    def unread(self, lane: LaneState) -> None:
        """For TargetArea: fill the HeadQueueCache for a lane that nobody reads any more. Requires: the lock."""
        self.warmer.begin(lane)

    def gone(self, lane: LaneState) -> None:
        """For TargetArea: stop warming a lane that is gone. Requires: the lock."""
        self.warmer.forget(lane)

    def lane(self, number: int) -> LaneState | None:
        """For DelayedRedelivery: return the lane of a number, of a queue or subscription, if it is open.

        Requires: the lock.
        """
        destination_number = (number & ~NON_PERSISTENT) >> LANE_SHIFT
        destinations, topics = self.destinations, self.topics
        found = destinations.by_number.get(destination_number) or topics.subscription(destination_number)
        if found is None:
            return None
        return (found.non_persistent_lanes if number & NON_PERSISTENT else found.lanes)[number & LANE_MASK]

    def close_some(self) -> None:
        """For DestinationOverhead: close some destinations that nobody uses, to free their memory.

        Requires: the lock.
        """
        self.destinations.close_some()

    def close_topic(self, name: str, undecided: Container[int]) -> bool:
        """For Destinations: close a topic that nobody uses; return whether it was closed. Requires: the lock."""
        return self.topics.close_named(name, undecided)

    def reject(
        self,
        deliveries: Sequence[Delivery],
        reason: str,
        transaction: Transaction | None,
        check: Check,
    ) -> None:
        """For consumers: make deliveries dead letters. Raises and requires: see DeadLetterMover."""
        self.dead_letters.reject(deliveries, reason, transaction, check)

    def status_of_the_whole(self) -> dict[str, Any]:
        """For StatusReporter: return the status without queues, topics and consumers. Requires: no lock."""
        return self.reports.of_the_whole()
