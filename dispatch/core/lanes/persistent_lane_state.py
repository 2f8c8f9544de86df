"""PersistentLaneState: a LaneState whose messages are in the journal, and how a stored message arrives in it.

A lane has a sole list if it has just one list, without a selector and with the ordinary distribution. Then an arrival
goes to that list, or to the PendingCache behind it. Otherwise TargetArea.offer_arrival offers it to the lists. A
message for which RAM has no room stays in the journal alone, where the loader finds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of_all
from ....store.index.destination_lane import DeletedLane, DestinationLane
from ....store.index.journaled_lane import JournaledLane
from ....store.index.pending_lane import PendingLane
from ....store.stored_message import StoredMessage
from ..model.destination import CoreDestination, LaneState
from ..model.lane_scan import FingerprintScan, LaneScan


class PersistentLaneState(LaneState):
    """A LaneState whose messages are in the journal and the index. A queue has this class.

    Two classes inherit from it. Consumers take from a SubscriptionLaneState as from the lane of a queue. A
    TopicLaneState passes its arrivals on, so it has its own `arrive` and `arrive_many`.

    The lane of a queue or topic is one object in the index: `pending_lane` and `destination_lane` are the same. A
    subscription has two: it acknowledges in its own `pending_lane`, and the `destination_lane` of its topic knows where
    the messages are. The state lock guards it.
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

        destination_lane: the store's lane of the queue or topic.
        pending_lane: the store's lane of a subscription. None: messages are pending in `destination_lane`.
        """
        super().__init__(destination, destination_lane if pending_lane is None else pending_lane, id_prefix)
        # The store's lane of the queue or topic. Records add messages to it.
        self.destination_lane = destination_lane

    # ------------------------------------------------------------------ arrivals

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Let a published slice arrive: as a whole if the sole list has room for it, else message by message.

        charge: that of the messages; None: compute it. This never waits for memory. A message without room in RAM is
        read from the journal later.
        """
        sole = self.sole_list
        if sole is None:
            if self.destination.selector_groups:
                self.target_area.offer_slice(self, messages)
            elif len(messages) > 1 and self.memory.head_queue_cache.is_stopped(self.pending_lane.number):
                self.published_end = messages[-1][0] + 1  # behind the cached head, they stay in the journal alone
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
            self.published_end = messages[-1][0] + 1  # they stay in the journal alone until the list reaches them
        else:
            for message in messages:
                self.arrive(message)
            return
        sole.selector_group.wake_for(len(messages), self.destination.monitor.deferred)

    def arrive(self, message: StoredMessage) -> None:
        """Let one published message arrive."""
        sequence = message[0]
        behind = self.published_end = sequence + 1
        sole = self.sole_list
        if sole is None:
            self.target_area.offer_arrival(self, message)
            return
        if sole.frontier == sequence and not sole.references.count:
            # An inline copy of ListSupply.admit and of charge_of: each message that waits for no sync passes here.
            # `LaneState.use_sole_list` has given the list a deque of its own, for which `admit` would look.
            body = message[2]
            charge = len(message[1]) + OVERHEAD_BYTES + (len(body) if body is not None else 0)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = behind
            else:
                self.pending_cache.admit(self.pending_lane.number, message, is_near=True)
        else:
            # If little is pending, the loader soon reads the messages before this one, and the list has caught up.
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
        """Return False: only lanes of non-persistent messages have messages that the topic retained."""
        return False

    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, as MessageStore.quarantine does. Requires: no lock."""
        pending_lane = self.pending_lane
        assert isinstance(pending_lane, JournaledLane)
        return self.destination.parts.message_store.quarantine(pending_lane, sequence)

    def scan(self) -> LaneScan:
        """Return a scan that skips blocks by the fingerprints of the index."""
        parts = self.destination.parts
        return FingerprintScan(parts.fingerprints, parts.make_fingerprint_room, self.destination_lane)

    def lose_unreadable(self, sequence: int) -> None:
        """Hand over a message that can't be read to the TargetArea, so that it is recorded as lost."""
        self.target_area.pass_unreadable(self, sequence)

    def on_lane_ended(self) -> None:
        """Stand for a DeletedLane, which refuses sends and has nothing. The destination's record drops the messages."""
        self.pending_lane = self.destination_lane = DeletedLane(self.destination_lane)
