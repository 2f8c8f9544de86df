"""DestinationLanes: make the lanes of queues, topics and subscriptions, and put them away.

A lane is made on first use, without a record in the journal. When its destination is closed, its next sequence is kept,
because no sequence may be used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....store.format.branch import Branch
from ....store.index.idle_lanes import IdleLanes
from ....store.message_store import MessageStore
from ....store.numbering import BLOCK_MASK, LANE_SHIFT, lanes_of
from ..areas.list_registry import ListRegistry
from ..lanes.non_persistent_lane_state import NON_PERSISTENT_LANE_BYTES, NonPersistentLaneState
from ..lanes.persistent_lane_state import PersistentLaneState
from ..memory.memory_owners import MemoryOwners
from ..model.destination import LaneState
from ..monitor import Monitor
from ..redelivery.removal import Removals
from ..redelivery.timed_lanes import TimedLanes
from .destination_state import DestinationState, NamedDestinationState
from .overhead import DestinationOverhead


class DestinationLanes:
    """Makes lanes, and remembers the next sequence of closed lanes. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        message_store: MessageStore,
        epoch: int,
        list_registry: ListRegistry,
        memory: MemoryOwners,
        overhead: DestinationOverhead,
        timed: TimedLanes,
        removals: Removals,
    ) -> None:
        """epoch: that of the journal, which begins a new one at each open."""
        self._monitor = monitor
        self._message_store = message_store
        self._epoch = epoch
        self._list_registry = list_registry
        self._overflow = memory.overflow
        self._overhead = overhead
        self._timed = timed
        self._removals = removals
        # Next sequences of closed lanes of non-persistent messages. The index has those of persistent messages.
        self._non_persistent = IdleLanes(memory.destination_memory)

    @property
    def idle_charge(self) -> int:
        """The charge for closed lanes of non-persistent messages."""
        return self._non_persistent.charge_bytes

    # ------------------------------------------------------------------ after an open

    def used_at_open(self, prepared: Iterable[Branch]) -> set[int]:
        """Return the numbers of queues and topics that have messages, or to which prepared transactions have sent.

        Requires: the lock. O(lanes + what was sent in prepared transactions).
        """
        used = {lane.owner_number for lane in self._message_store.lanes()}
        return used | {placed.lane_number >> LANE_SHIFT for branch in prepared for placed in branch}

    def restore(self, opened: Mapping[int, NamedDestinationState]) -> list[PersistentLaneState]:
        """Make the lanes of these queues or topics that opening the store found, and return them.

        opened: by number. Requires: the lock.
        """
        restored: list[PersistentLaneState] = []
        for pending_lane in self._message_store.lanes():
            destination = opened.get(pending_lane.owner_number)
            if destination is not None:
                lane = destination.make_lane(pending_lane.priority, self._message_store)
                destination.put_lane(pending_lane.priority, lane)
                restored.append(lane)
        return restored

    # ------------------------------------------------------------------ persistent messages

    def create(self, destination: NamedDestinationState, priority: int) -> PersistentLaneState:
        """Return the lane of a priority in a queue or topic, made if needed. Requires: no lock.

        Closed: the destination is deleted. StoreFull: memory has no room for the lists of its consumers.
        """
        with self._monitor.lock, self._monitor.all_or_broken:
            destination.raise_if_not_sendable()
            lane = destination.lanes[priority]
            if lane is None:
                self._overhead.require_lanes(destination, destination.lane_bytes)
                lane = self._add(destination, priority)
            return lane

    def ensure(self, destination: NamedDestinationState, priority: int) -> PersistentLaneState:
        """Return the lane of a priority in a queue or topic, made if needed. Requires: the lock."""
        return destination.lanes[priority] or self._add(destination, priority)

    def _add(self, destination: NamedDestinationState, priority: int) -> PersistentLaneState:
        lane = destination.make_lane(priority, self._message_store)
        destination.put_lane(priority, lane)
        self._list_registry.add_lane(lane)
        non_persistent = destination.non_persistent_lanes[priority]
        if non_persistent is not None:
            non_persistent.persistent_lane_state = lane
        return lane

    # ------------------------------------------------------------------ non-persistent messages

    def create_non_persistent(self, destination: NamedDestinationState, priority: int) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority. Requires: no lock. Closed: as in `create`."""
        with self._monitor.lock, self._monitor.all_or_broken:
            destination.raise_if_not_sendable()
            if destination.non_persistent_lanes[priority] is None:
                self._overhead.require_lanes(destination, NON_PERSISTENT_LANE_BYTES)
            return self.ensure_non_persistent(destination, priority)

    def ensure_non_persistent(
        self, destination: DestinationState, priority: int, pool: int | None = None, id_prefix: str | None = None
    ) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority, made on first use. Requires: the lock.

        pool, id_prefix: those of the topic, if the lane belongs to a subscription.
        """
        lane = destination.non_persistent_lanes[priority]
        if lane is None:
            memory = destination.memory
            caches = (memory.pending_cache, memory.head_queue_cache)
            pending_lane = self._overflow.lane(destination.number, priority, caches, pool, memory.places_holder)
            pending_lane.skip_to(self._non_persistent.take(pending_lane.number))
            prefix = id_prefix if id_prefix is not None else self.non_persistent_prefix(destination.number, priority)
            lane = NonPersistentLaneState(destination, pending_lane, prefix, self._overflow, self._timed.note)
            destination.put_non_persistent_lane(priority, lane)
            lane.persistent_lane_state = destination.lanes[priority]
            self._list_registry.add_lane(lane)
        return lane

    def non_persistent_prefix(self, destination: int, priority: int) -> str:
        """Return the beginning of the ids of non-persistent messages.

        It contains the epoch, because each open of the store counts from 0.
        """
        return f"{self._message_store.id_prefix(destination, priority)}e{self._epoch}-"

    def take_sequence(self, lane_number: int) -> int:
        """Return the next sequence of a closed lane of non-persistent messages, or of a topic's subscriptions.

        The stored sequence is forgotten, because the caller opens the lane.
        """
        return self._non_persistent.take(lane_number)

    # ------------------------------------------------------------------ the end

    def shrink_to_row(self, closed: DestinationState) -> None:
        """Put away the lanes of a queue or topic that is closed. Requires: the lock, and that they are empty."""
        for lane_number, next_sequence in closed.pools():
            self._non_persistent.put(lane_number, next_sequence)
        for lane in list(closed.all_lanes()):
            self._shrink_to_row(lane)

    def _shrink_to_row(self, lane: LaneState) -> None:
        lane_number, next_sequence = lane.pending_lane.number, lane.pending_lane.next_sequence
        self._removals.empty_lane(lane)
        if lane.is_persistent:
            self._message_store.shrink_to_row(lane_number)
        else:  # the next lane of this number begins with a new block, which takes no memory until it is used
            self._non_persistent.put(lane_number, (next_sequence + BLOCK_MASK) & ~BLOCK_MASK)

    def forget(self, destination_number: int) -> None:
        """Forget the closed lanes of a deleted queue or topic, whose number is never used again. Requires: the lock."""
        for lane_number in lanes_of(destination_number):
            self._non_persistent.take(lane_number)
