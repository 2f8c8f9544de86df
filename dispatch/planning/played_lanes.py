"""PlayedLane: one lane of a replay. PlayedSelectorGroup: who takes from it.

A trace has no headers. So a selector group with a selector wants the messages that it took when the trace was recorded.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...store.environment.account import Unlimited
from ...store.index.destination_lane import DestinationLane
from ...store.message import HeaderValue
from ...store.numbering import BLOCK_MASK
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..core.destinations.queue_state import QueueState
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.model.delivery import DeliveryLane
from ..core.model.destination import DestinationStateParts, SelectorGroup
from ..core.model.lane_scan import FULL_SCAN, LaneScan
from ..selectors.selector import Selector


class PlayedLaneState(PersistentLaneState):
    """Dispatch's state of a played lane. Its messages have lengths and no places, as in tmp-storage: no index has them.

    It is never closed, so it is not charged for that.
    """

    __slots__ = ()
    state_bytes = 0

    def scan(self) -> LaneScan:
        """Return a scan that skips nothing, because a trace has no headers."""
        return FULL_SCAN


class PlayedLane:
    """One lane of the trace: dispatch's state of it, the store's lane, and the sequence at which the lane begins."""

    __slots__ = ("lane", "pending_lane", "base", "is_new")

    def __init__(self, parts: DestinationStateParts, empty_lane: DestinationLane, lane_number: int) -> None:
        """Make a lane without messages. empty_lane: as in PlayedStore."""
        self.base = 0
        # Whether the lane has only what it had when the store was opened.
        self.is_new = True
        self.pending_lane = NonPersistentLane(Unlimited(), lane_number, 0)
        queue = QueueState(parts, lane_number, str(lane_number))
        self.lane = PlayedLaneState(queue, empty_lane, "", self.pending_lane)
        queue.put_lane(0, self.lane)

    def grow(self, first: int, lengths: Iterable[int]) -> range:
        """Store messages of these lengths behind holes up to `first`, and return their sequences in the lane."""
        pending_lane = self.pending_lane
        if not pending_lane.next_sequence:
            self.base = first
        begin = max(first - self.base, pending_lane.next_sequence)
        # Blocks of only holes are not made.
        pending_lane.next_sequence = max(pending_lane.next_sequence, begin & ~BLOCK_MASK)
        holes = pending_lane.next_sequence
        while pending_lane.next_sequence < begin:
            pending_lane.add(0)
        if holes < begin:
            pending_lane.remove(holes, begin - 1)
        for length in lengths:
            pending_lane.add(length)
        return range(begin, pending_lane.next_sequence)


class PlayedSelectorGroup(SelectorGroup):
    """A selector group that wants what it took in the trace, or everything if it has no selector."""

    __slots__ = ("taken", "played")

    def __init__(self, selector: Selector | None, taken: SequenceSet, played: PlayedLane) -> None:
        super().__init__(selector)
        self.taken = taken
        self.played = played

    def wants(self, lane: DeliveryLane, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        return self.selector is None or message[0] + self.played.base in self.taken
