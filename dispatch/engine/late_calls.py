"""LateCalls: lets an owner call one that is made after it. All circles among the owners of a store are here.

A constructor names all that its object can reach, so owners are made from the lowest to the highest, and call
downwards. A few must call upwards as well: a list that meets an expired message tells the timetable, which is made from
the lists. Each such call is a method here. The Engine passes it to the lower constructor before the upper owner exists.
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
    """Passes calls on to owners, which the Engine sets as soon as they are made.

    A call before that raises AttributeError.
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
        """For DispatchArea: remove an expired message that a list skipped. Requires: the lock."""
        self.timed.remove_expired(lane, sequence)

    def sampled(self, target: TargetList) -> None:
        """For DispatchArea: let the curve sample a list from which many bytes were taken. Requires: the lock."""
        assert self.target_area is not None, "a list was taken from"
        self.target_area.watch.sample(target)

    def unread(self, lane: LaneState) -> None:
        """For TargetArea: fill the HeadQueueCache for a lane that nobody reads any more. Requires: the lock."""
        self.warmer.begin(lane)

    def gone(self, lane: LaneState) -> None:
        """For TargetArea: stop warming a lane that is gone. Requires: the lock."""
        self.warmer.forget(lane)

    def lane(self, number: int) -> LaneState | None:
        """For DelayedRedelivery: return the open lane of that number, of a queue or subscription; else None.

        Requires: the lock.
        """
        destination_number = (number & ~NON_PERSISTENT) >> LANE_SHIFT
        destinations, topics = self.destinations, self.topics
        found = destinations.by_number.get(destination_number) or topics.subscription(destination_number)
        if found is None:
            return None
        return (found.non_persistent_lanes if number & NON_PERSISTENT else found.lanes)[number & LANE_MASK]

    def close_some(self) -> None:
        """For DestinationOverhead: close some unused destinations to free their memory. Requires: the lock."""
        self.destinations.close_some()

    def close_topic(self, name: str, undecided: Container[int]) -> bool:
        """For Destinations: close an unused topic, and return whether it was closed. Requires: the lock."""
        return self.topics.close_named(name, undecided)

    def reject(
        self,
        deliveries: Sequence[Delivery],
        reason: str,
        transaction: Transaction | None,
        check: Check,
    ) -> None:
        """For consumers: make dead letters of messages that they hold. Errors and locks: as DeadLetterMover.reject."""
        self.dead_letters.reject(deliveries, reason, transaction, check)

    def status_of_the_whole(self) -> dict[str, Any]:
        """For StatusReporter: return the figures besides queues, topics and consumers. Requires: no lock."""
        return self.reports.of_the_whole()
