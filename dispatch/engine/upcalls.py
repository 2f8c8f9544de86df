"""Upcalls: calls from an owner to an owner above it, which is made later.

A constructor names everything that its object can reach, so owners are made from below to above and call downwards. A
few owners must call upwards as well: a DispatchArea that meets an expired message tells TimedLanes, which are made
after it. Each such call is a method here, and says why the owner above can't be made first. The assembly hands a
method, or the whole object where several are needed, to the constructor of the owner below.

Some calls go upwards without this object. `ExplainFunctions` is handed in from outside the engine. `BackgroundRequests`
reach the background threads. Factories are handed to owners that make consumers, lists and lanes later.
`JournalSyncer.tell_of_syncs` sets a listener, because the Publisher, which listens, is made with the journal.
"""

from __future__ import annotations

from typing import Any

from ..core.areas.observer import AreaUpcalls
from ..core.memory.reclaim import Reclaim
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import LaneState, TargetList
from ..core.redelivery.timed_lanes import TimedLanes
from ..loading.warmer import CacheWarmer
from ..topics.numbered_lanes import NumberedLanes
from .reports import Reports


class Upcalls(AreaUpcalls):
    """The calls to owners above their caller. The assembly sets each owner as soon as it exists.

    Before an owner is set, a call for it raises AttributeError. `make_room` does nothing then.
    """

    reclaim: Reclaim | None = None
    watermarks: Watermarks
    timed: TimedLanes
    warmer: CacheWarmer
    numbered_lanes: NumberedLanes
    reports: Reports

    def make_room(self, wanted_bytes: int) -> None:
        """For all charges: take memory from lists and caches. Requires: the lock.

        While the store opens there are no lists and caches yet, so the call does nothing.
        """
        if self.reclaim is not None:
            self.reclaim.make_room(wanted_bytes, None)

    def expired(self, lane: LaneState, sequence: int) -> None:
        """For DispatchArea: have an expired message removed that a list skipped. Requires: the lock.

        TimedLanes remove a non-persistent message at once, and have a sweep remove others. They are made with the
        TargetArea, and that one with the DispatchArea.
        """
        self.timed.drop_or_sweep(lane, sequence)

    def sampled(self, target: TargetList) -> None:
        """For DispatchArea: let the curve sample a list from which enough was taken. Requires: the lock.

        The curve asks the DispatchArea how much is in flight, and the Watermarks bound that.
        """
        self.watermarks.live_curve.sample(target)

    def unread(self, lane: LaneState) -> None:
        """For the ListRegistry: fill the HeadQueueCache for a lane that nobody reads any more. Requires: the lock.

        The warmer knows the open queues, whose lists the ListRegistry makes.
        """
        self.warmer.begin(lane)

    def gone(self, lane: LaneState) -> None:
        """For the ListRegistry: stop warming a lane that is gone, as with `unread`. Requires: the lock."""
        self.warmer.forget(lane)

    def lane(self, lane_number: int) -> LaneState | None:
        """For DelayedRedelivery: return the lane of a number, of a queue or subscription, if it is open.

        Queues and topics remove messages, which cancels their delays. Requires: the lock.
        """
        return self.numbered_lanes.find(lane_number)

    def status_of_the_whole(self) -> dict[str, Any]:
        """For StatusReporter: return the status without queues, topics and consumers. Requires: no lock.

        The reports tell the health of the background work, and writing the status is a part of that work.
        """
        return self.reports.of_the_whole()
