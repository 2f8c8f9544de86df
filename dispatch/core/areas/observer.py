"""AreaUpcalls, which tell owners above the areas what to act on, and TrafficObserver, for traces of what lists get.

A message that arrives in a list and is handed out from it is not reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ..model.destination import CoreDestination, LaneState, TargetList


class AreaUpcalls:
    """Calls of the areas to owners above them, which act. This class does nothing, for a store that is only played.

    Every method requires the state lock.
    """

    def expired(self, lane: LaneState, sequence: int) -> None:
        """Remove a message that a list skipped because its time is over."""

    def sampled(self, target: TargetList) -> None:
        """Look at a list that reached its `sample_at_bytes`."""

    def unread(self, lane: LaneState) -> None:
        """Note a lane that no consumer reads any more, and of which RAM has not all."""

    def gone(self, lane: LaneState) -> None:
        """Note a lane that has ended."""


class TrafficObserver:
    """An observer of traffic that does nothing, for stores that record no trace.

    Every method requires the state lock.
    """

    def subscribes(self, destination: CoreDestination) -> None:
        """Observe that a destination is about to get a consumer."""

    def lane_added(self, lane: LaneState) -> None:
        """Observe a new lane, which has its lists."""

    def list_added(self, target: TargetList) -> None:
        """Observe the new list of a selector group."""

    def list_ends(self, target: TargetList) -> None:
        """Observe that the list of a selector group is about to end."""

    def measures(self, seconds: float) -> None:
        """Observe that so many seconds have passed."""

    def arrives_unloaded(self, lane: LaneState, end: int) -> None:
        """Observe that everything before `end` is about to be published, and that RAM has none of the new messages."""

    def reoffers_returned(self, lane: LaneState, message: StoredMessage) -> None:
        """Observe that a message that was handed out is free again."""

    def reoffers_delayed(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Observe that messages are due whose delay has ended."""

    def forgets(self, lane: LaneState, gone: SequenceSet) -> None:
        """Observe that messages were removed that are not in flight."""

    def lane_gone(self, lane: LaneState) -> None:
        """Observe that a lane has ended."""
