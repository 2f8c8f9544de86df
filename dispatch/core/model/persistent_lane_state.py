"""PersistentLaneState: a lane of messages in the journal and the index, and how a stored message arrives there.

If the lane has just one list, without a selector and with the ordinary distribution, an arrival goes to that list, or
to the PendingCache behind it. Otherwise TargetArea.offer_arrival offers it to the lists. If nobody has room, it stays
in the journal, where the loader finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of_all
from ....store.index.destination_lane import DeletedLane, DestinationLane
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate, has_fingerprints
from ....store.index.journaled_lane import JournaledLane
from ....store.index.pending_lane import PendingLane
from ....store.stored_message import StoredMessage
from ...selectors.selector import Selector
from .destination import CoreDestination, LaneState
from .matching import NO_NAMES


class PersistentLaneState(LaneState):
    """Dispatch's state of a lane of persistent messages: that of a queue as it stands.

    Those of a subscription and of a topic inherit from it. Consumers take from a subscription's as from a queue's. At a
    topic's a message arrives to be passed on, so its class has its own `arrive` and `arrive_many`.

    In the index the lane of a queue or topic is one: `pending_lane` is `destination_lane`. The lane of a subscription
    is two: its own, in which it acknowledges, and the topic's, which knows the messages and where they are. The state
    lock guards it.
    """

    __slots__ = ("destination_lane",)

    def __init__(
        self,
        destination: CoreDestination,
        destination_lane: DestinationLane,
        id_prefix: str,
        pending_lane: PendingLane | None = None,
    ) -> None:
        """Make the state of a lane.

        destination_lane: the lane of the queue or topic.
        pending_lane: in which messages are pending, if that is another one, as in a subscription to that topic.
        """
        super().__init__(destination, destination_lane if pending_lane is None else pending_lane, id_prefix)
        # The lane of the queue or topic to which records add messages.
        self.destination_lane = destination_lane

    # ------------------------------------------------------------------ arrivals

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Let a slice that is published arrive, as a whole if the only list of the lane has room for it.

        charge: that of the messages; None: compute it. This never waits for memory: at worst messages stay references.
        """
        sole = self.sole_list
        if sole is None:
            if self.destination.selector_groups:
                self.target_area.offer_slice(self, messages)
            elif len(messages) > 1 and self.memory.head_queue_cache.is_stopped(self.pending_lane.number):
                self.published_end = messages[-1][0] + 1  # behind the head of the queue: they stay in the journal alone
            else:
                for message in messages:
                    self.arrive(message)
            return
        first = messages[0][0]
        is_next = sole.frontier == first and not sole.references
        is_far = sole.frontier < first and not sole.is_near
        if is_next and sole.admit(messages, charge_of_all(messages) if charge is None else charge):
            self.published_end = sole.frontier
        elif is_far and not self.pending_cache.has(self.pending_lane.number):
            self.published_end = messages[-1][0] + 1  # they stay references until the list reaches them
        else:
            for message in messages:
                self.arrive(message)
            return
        sole.selector_group.wake_for(len(messages), self.destination.monitor.deferred)

    def arrive(self, message: StoredMessage) -> None:
        """Let a message that is published arrive. What waited for a sync comes by `arrive_many` first."""
        sequence = message[0]
        behind = self.published_end = sequence + 1
        sole = self.sole_list
        if sole is None:
            self.target_area.offer_arrival(self, message)
            return
        if sole.frontier == sequence and not sole.references.count:
            # An inline copy of ListSupply.admit and of charge_of: all that waits for no sync passes here.
            body = message[2]
            charge = len(message[1]) + OVERHEAD_BYTES + (len(body) if body is not None else 0)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = behind
            else:
                self.pending_cache.admit(self.pending_lane.number, message, is_near=True)
        else:
            # Where little waits, the loader soon reads what it missed, and has caught up.
            self.pending_cache.admit(self.pending_lane.number, message, is_near=sole.is_near)
        selector_group = sole.selector_group  # its wake_for one message, written inline
        if selector_group.waiting:
            selector_group.arrived.notify()
        if selector_group.is_armed:
            selector_group.call_armed(self.destination.monitor.deferred)

    # ------------------------------------------------------------------ reading, and what can't be read

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return None, because the journal has every message."""
        return None

    def is_retained(self, sequence: int) -> bool:
        """Return whether the topic retained this message; only lanes of non-persistent messages can hold such."""
        return False

    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, as MessageStore.quarantine does. Requires: no lock."""
        pending_lane = self.pending_lane
        assert isinstance(pending_lane, JournaledLane)
        return self.lane_state_parts.message_store.quarantine(pending_lane, sequence)

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers that the selector names if the index can keep fingerprints of them; else none."""
        names = NO_NAMES if selector is None else selector.header_names
        return names if has_fingerprints(names) else NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches, by the fingerprints of the index."""
        if not names:
            return Candidate(sequence, NO_NAMES)
        message_store = self.lane_state_parts.message_store
        return message_store.next_candidate(self.destination_lane, names, sequence, selector.may_match)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Let the index keep fingerprints of the headers that were examined."""
        self.lane_state_parts.message_store.note_survey(self.destination_lane, survey)

    def make_survey_room(self) -> None:
        """Let the index store its fingerprints if RAM has no room for more. Requires: no lock."""
        self.lane_state_parts.message_store.make_fingerprint_room()

    def lose_unreadable(self, sequence: int) -> None:
        """Hand a message that can't be read to the TargetArea, which has it recorded as lost."""
        self.target_area.pass_unreadable(self, sequence)

    def on_lane_ended(self) -> None:
        """Become a lane that refuses and has nothing. What the journal has goes with the destination's record."""
        self.pending_lane = self.destination_lane = DeletedLane(self.destination_lane)
