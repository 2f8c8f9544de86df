"""NonPersistentLaneState: a LaneState whose messages are in RAM, or in tmp-storage once RAM has no room for them.

It differs from a PersistentLaneState in two points. A message that leaves RAM is written to tmp-storage, because no
journal has it, and an ack writes nothing. The same code decides which messages stay in RAM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of
from ....cache.spill.overflow import Overflow
from ....store.errors import Closed
from ....store.format.times import MessageTimes
from ....store.stored_message import StoredMessage
from ....store.tmp.non_persistent_lane import NonPersistentLane
from ....store.tmp.spilled_message import TmpRegion
from ..lists.load import Load
from ..lists.pager import Pager
from ..model.contracts import BackingStore
from ..model.delivery import Delivery, is_lazy, message_of
from ..model.destination import CoreDestination, LaneState, TargetList

NON_PERSISTENT_LANE_BYTES: Final = 3072
"""Charged for an open lane of non-persistent messages, with its part of tmp-storage.

Measured with tracemalloc over 1,000 lanes, each used once.
"""


class NonPersistentLaneState(LaneState):
    """A LaneState whose messages are in RAM or tmp-storage, and are gone after a crash. The state lock guards it."""

    __slots__ = ("non_persistent_lane", "persistent_lane_state", "retained", "overflow", "note_times")
    state_bytes = NON_PERSISTENT_LANE_BYTES
    is_persistent = False
    delivery_mode = "NON_PERSISTENT"

    def __init__(
        self,
        destination: CoreDestination,
        pending_lane: NonPersistentLane,
        id_prefix: str,
        overflow: Overflow,
        note_times: Callable[[LaneState], None],
    ) -> None:
        """Make the state of a lane.

        note_times: registers a lane that got messages with a delay or an expiry.
        """
        super().__init__(destination, pending_lane, id_prefix)
        # `pending_lane` with its exact type.
        self.non_persistent_lane = pending_lane
        # The lane of the persistent messages of the same queue and priority. None: there is none yet.
        self.persistent_lane_state: LaneState | None = None
        self.syncs = False
        # Sequences of the retained messages that the topic gave to a new subscription; empty in other lanes.
        self.retained = range(0)
        self.overflow = overflow
        self.note_times = note_times
        store: BackingStore[NonPersistentLane, TmpRegion] = overflow
        self.backing_store = store
        self.caches = overflow.caches_of(pending_lane)
        self.pager = TmpPager(pending_lane, overflow, self.deliveries)
        for cache in (self.memory.pending_cache, self.memory.head_queue_cache):
            cache.register_keeper(pending_lane.number, self.pager.page_out_at_once)

    def is_retained(self, sequence: int) -> bool:
        """Return whether the topic retained this message and gave it to a new subscription."""
        return sequence in self.retained

    def on_lane_ended(self) -> None:
        """Drop all messages, in RAM and in tmp-storage."""
        self.overflow.remove_lane(self.non_persistent_lane)

    # ------------------------------------------------------------------ arrivals

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Add one message and return its sequence. StoreFull or SpillFailed: nothing has changed."""
        non_persistent_lane = self.non_persistent_lane
        persistent_lane_state = self.persistent_lane_state
        if persistent_lane_state is not None and persistent_lane_state.published_end != non_persistent_lane.newest_turn:
            non_persistent_lane.take_turn(persistent_lane_state.published_end)
        length = len(properties) + len(body)
        sequence = non_persistent_lane.add(length)
        message = (sequence, properties, body, timestamp)
        sole = self.sole_list
        if sole is not None and sole.frontier == sequence and not sole.references.count:
            # An inline copy of ListSupply.admit and of charge_of_size.
            charge = length + OVERHEAD_BYTES
            behind = sequence + 1
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = behind
                self.published_end = behind
                selector_group = sole.selector_group  # SelectorGroup.wake_for one message, written inline
                if selector_group.waiting:
                    selector_group.arrived.notify()
                if selector_group.is_armed:
                    selector_group.call_armed(self.destination.monitor.deferred)
                return sequence
        is_spilled = False
        try:
            if sole is not None:
                self._cache_or_spill(sole, message)
            else:
                is_spilled = self.overflow.ensure_room(non_persistent_lane, message, length + OVERHEAD_BYTES)
        except BaseException:
            non_persistent_lane.retract()
            raise
        self.published_end = sequence + 1
        if sole is None:
            self._offer(message, is_spilled=is_spilled)
        elif sole.selector_group.is_awaited:
            sole.selector_group.wake_for(1, self.destination.monitor.deferred)
        return sequence

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: MessageTimes) -> int:
        """Add a message that has a delay, an expiry, or both. No list gets it before it is due."""
        non_persistent_lane = self.non_persistent_lane
        non_persistent_lane.admit_times()
        if not times.due_at:
            sequence = self.add(timestamp, properties, body)
            non_persistent_lane.put_times(sequence, times)
            self.note_times(self)
            return sequence
        persistent_lane_state = self.persistent_lane_state
        before = (
            non_persistent_lane.newest_turn if persistent_lane_state is None else persistent_lane_state.published_end
        )
        if before != non_persistent_lane.newest_turn:
            non_persistent_lane.take_turn(before)
        sequence = non_persistent_lane.add(len(properties) + len(body))
        try:
            self.overflow.take_in(non_persistent_lane, (sequence, properties, body, timestamp))
        except BaseException:
            non_persistent_lane.retract()
            raise
        non_persistent_lane.put_times(sequence, times)
        self.note_times(self)
        self.arrive_unloaded(sequence + 1)
        return sequence

    def skip_to(self, sequence: int) -> None:
        """Give the next message this sequence; other lanes have the lower ones. StoreFull: see NonPersistentLane."""
        non_persistent_lane = self.non_persistent_lane
        first = non_persistent_lane.next_sequence
        if first < sequence:
            try:
                non_persistent_lane.skip_to(sequence)
            finally:
                self.first_sequence += non_persistent_lane.next_sequence - first  # nobody enqueued these sequences
                self.target_area.pass_holes(self, non_persistent_lane.next_sequence)

    def uncount(self, message: StoredMessage) -> None:
        """Take a message out of the statistics that was added and removed again, because another lane refused it."""
        size_bytes = len(message[1]) + len(message[2] or b"")
        self.first_sequence += 1
        self.first_sent_bytes += size_bytes
        self.first_removed_bytes += size_bytes

    def _cache_or_spill(self, sole: TargetList, message: StoredMessage) -> None:
        """Keep a message that the sole list did not admit: in the PendingCache if it has room, else in tmp-storage."""
        number = self.pending_lane.number
        is_near = sole.frontier == message[0] and not sole.references
        if not self.memory.pending_cache.admit(number, message, is_near=is_near):
            self.overflow.take_in(self.non_persistent_lane, message)

    def _offer(self, message: StoredMessage, *, is_spilled: bool) -> None:
        """Offer a message to the lists or the HeadQueueCache, and keep it for lists that reach it later."""
        sequence, pending_lane, target_area = message[0], self.non_persistent_lane, self.target_area
        if target_area.offer_arrival(self, message) or is_spilled:
            return
        if not self.overflow.buffer.put(pending_lane.number, message):
            # Memory has no room for another charge of the message. The lists that took it give it up, so that it is
            # kept where each list finds it that reaches it later.
            for target in self.destination.lists_over(self):
                if target.direct and target.direct[-1][0] == sequence:
                    target.release(charge_of(target.evict_last()))
            self.overflow.keep(pending_lane, (message,))

    # ------------------------------------------------------------------ reading, and what can't be read

    def quarantine(self, sequence: int) -> bool:
        """Return False: tmp-storage is not quarantined, because a crash forgets it."""
        return False

    def lose_unreadable(self, sequence: int) -> None:
        """Acknowledge a message that can no longer be read, unless it is in flight."""
        if sequence not in self.deliveries:
            self.overflow.acknowledge(self.non_persistent_lane, sequence, sequence)

    def peek(self, sequence: int) -> StoredMessage | None:
        if self.overflow.is_closed:
            raise Closed("the store")
        for cache in self.caches:
            message = cache.peek(self.pending_lane.number, sequence)
            if message is not None:
                return message
        delivery = self.deliveries.get(sequence)
        if delivery is not None and not is_lazy(delivery):
            return message_of(delivery)
        # A message that came back may be in a list only.
        copies = (target.peek(sequence) for target in self.destination.lists_over(self))
        return next((message for message in copies if message is not None), None)


class TmpPager(Pager):
    """Moves messages of a non-persistent lane from RAM to tmp-storage. The state lock guards it."""

    __slots__ = ("_pending_lane", "_overflow", "_deliveries")

    def __init__(self, pending_lane: NonPersistentLane, overflow: Overflow, deliveries: Mapping[int, Delivery]) -> None:
        """Make the pager of a lane.

        deliveries: those of the lane that are in flight, by sequence.
        """
        self._pending_lane = pending_lane
        self._overflow = overflow
        self._deliveries = deliveries

    def page_out(self, messages: Sequence[StoredMessage]) -> None:
        """Put messages into the SpillBuffer, which writes them to tmp-storage."""
        self._overflow.keep(self._pending_lane, messages)

    def page_out_at_once(self, messages: Sequence[StoredMessage]) -> None:
        """Put messages into the SpillBuffer, and write it at once if that frees memory."""
        self._overflow.keep(self._pending_lane, messages)
        self._overflow.spill_waiting(self._pending_lane)

    def spill(self, messages: Sequence[StoredMessage]) -> None:
        """Put messages into the SpillBuffer, and write it at once if tmp-storage takes them."""
        self._overflow.keep(self._pending_lane, messages)
        self._overflow.spill(self._pending_lane)

    def page_out_body(self, message: StoredMessage) -> bool:
        """Spill a message, or put it into the SpillBuffer. False: neither memory nor tmp-storage has room for it."""
        pending_lane, overflow = self._pending_lane, self._overflow
        if pending_lane.is_spilled(message[0]):
            return True
        if not overflow.buffer.put(pending_lane.number, message):
            overflow.spill_all()
            if not overflow.buffer.put(pending_lane.number, message):
                return False
        if overflow.buffer.is_batch(pending_lane.pool_number):
            overflow.spill(pending_lane)
        return True

    def cut_load(self, load: Load[Any]) -> Sequence[int]:
        """Return the chosen messages that can't be read because only a delivery has them. They become lazy.

        If another list is loading the only copy of a message, the load ends before that message.
        """
        in_flight: list[int] = []
        for at, (first, last) in enumerate(load.runs):
            missing = self._pending_lane.unspilled(first, last)
            while missing:
                sequence = first + (missing & -missing).bit_length() - 1
                missing &= missing - 1
                if sequence in load.held:
                    continue
                if sequence in self._deliveries:
                    in_flight.append(sequence)
                    self._pending_lane.is_copied = True
                    continue
                load.last = sequence - 1
                load.runs[at:] = [(first, load.last)] if first <= load.last else []
                return in_flight
        return in_flight
