"""Destinations: the queues of a store and their lanes, by name and by number.

A new queue writes one record to the journal, a new lane none. Using a queue opens it: it gets a QueueState, and each
lane is made on first use. A queue that is empty and that nobody has used for a while is closed again; a row in the
store's table and its counters remain. After a restart the same queues exist, and those with messages are open.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final

from ....store.errors import Closed, StoreFailed
from ....store.format.destination_table import DestinationTable
from ....store.format.state import QUEUE, TOPIC
from ....store.index.idle_lanes import IdleLanes
from ....store.message_store import MessageStore
from ....store.numbering import BLOCK_MASK, LANE_MASK, LANE_SHIFT, lanes_of
from ....store.records.destination_records import DestinationRecords
from ....store.state.transactions import Branches
from ...admission.deduplication import DuplicateWindows
from ...admission.limits import DestinationLimits
from ...config.policies import Policies
from ...config.temporary import raise_if_temporary
from ..areas.memory_parts import MemoryParts
from ..areas.target_area import TargetArea
from ..confirmer import Confirmer
from ..counting.counted_rows import CountedRows
from ..counting.counters import EarlierCounts
from ..lanes.non_persistent import SpillingLaneState
from ..lifecycle import Lifecycle
from ..model import (
    NON_PERSISTENT_LANE_BYTES,
    DestinationState,
    DistributionKeeper,
    LaneState,
    NonPersistentLaneState,
    PersistentLaneState,
)
from ..monitor import Monitor
from ..publisher import Publisher
from ..settling.delays import TimedLanes
from ..settling.removal import Removals
from .overhead import (
    COUNTED_BYTES,
    GROUPS_BYTES,
    OPEN_QUEUE_BYTES,
    ROW_BYTES,
    DestinationOverhead,
    row_bytes,
)
from .queue_state import QueueState

CLOSED_AT_ONCE: Final = 64
"""Most queues and topics that are closed to make room in memory when another one is opened."""
LOOKED_AT_ONCE: Final = 256
"""Most queues and topics that are examined for that."""


class Destinations:
    """Makes, finds, opens, closes and forgets queues and lanes. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        records: DestinationRecords,
        rows: DestinationTable,
        branches: Branches,
        epoch: int,
        target_area: TargetArea,
        distributions: DistributionKeeper,
        memory: MemoryParts,
        publisher: Publisher,
        timed: TimedLanes,
        overhead: DestinationOverhead,
        removals: Removals,
        windows: DuplicateWindows,
        policies: Policies,
        undecided: Callable[[], Container[int]],
        close_topic: Callable[[str, Container[int]], bool],
    ) -> None:
        """rows: all queues and topics there are. epoch: of the journal, another one at each open.

        undecided: the numbers of queues that transactions without an outcome know. close_topic: closes the topic of
        that name if it has nothing, given these; returns whether it did. Both require the lock."""
        self._monitor = monitor
        self._store = store
        self._records = records
        self._branches = branches
        self._epoch = epoch
        # All queues and topics that exist, open or not.
        self._rows = rows
        self._target_area = target_area
        self._distributions = distributions
        self._overflow = memory.overflow
        self._publisher = publisher
        self._timed = timed
        self._overhead = overhead
        self._removals = removals
        self._windows = windows
        self._policies = policies
        self._undecided = undecided
        # By kind of destination: the function that closes the destination of a name if it is empty.
        self._closers = {QUEUE: self._close_named, TOPIC: close_topic}
        # Open queues and topics, in the order in which they are examined when others need their memory.
        self._in_turn: dict[DestinationState, None] = {}
        self._counted = CountedRows()
        # Next sequences of closed lanes of non-persistent messages, because no sequence may be used twice.
        self._non_persistent = IdleLanes(memory.destinations)
        # Open queues by name.
        self.queues: dict[str, QueueState] = {}
        # Open queues by number.
        self.by_number: dict[int, QueueState] = {}
        # Paused queues by number, in the order in which they were paused.
        self.paused: dict[int, QueueState] = {}

    # ------------------------------------------------------------------ queues

    def queue(self, name: str, confirmer: Confirmer) -> QueueState:
        """Return the queue of a name, open. A new queue is recorded in the journal. Requires: no lock.

        Closed: the store is closed, or a temporary queue of that name is gone. StoreFull: memory has no room for it.
        """
        self._monitor.raise_if_closed()
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            if self._rows.number_of(QUEUE, name) is None:
                raise_if_temporary(name)
            queue = self.queue_locked(name)
            position = self._store.position
        confirmer.confirm(position)
        return queue

    def queue_locked(self, name: str, *, is_temporary: bool = False) -> QueueState:
        """Return the queue of a name, open; a new one may not be synced yet. Requires: the lock. StoreFull."""
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        number = self._rows.number_of(QUEUE, name)
        if number is not None:
            return self.opened(number)
        self.require_row(name)
        charge_bytes = row_bytes(name) + OPEN_QUEUE_BYTES
        self.make_room(charge_bytes)
        with self._overhead.one_more(charge_bytes):
            destination = self._records.create(name, is_temporary=is_temporary)
            return self._add(destination.number, name)

    def require_row(self, name: str) -> None:
        """Check that a queue or topic of this name can be made. Requires: the lock. StoreFull."""
        destinations = self._rows
        self._overhead.require_row(ROW_BYTES * len(destinations) + destinations.name_bytes, row_bytes(name))

    def _add(self, number: int, name: str) -> QueueState:
        queue = self.queues[name] = self.by_number[number] = QueueState(self._target_area, number, name)
        self.apply_policy(queue)
        return queue

    def apply_policy(self, destination: DestinationState) -> None:
        """Set up the limits and the duplicate window that the policy of a queue or topic asks for.

        Requires: the lock.
        """
        self._in_turn[destination] = None
        destination.is_watched = self._windows.watch(destination.number, destination.name)
        policy = self._policies.of(destination.name)
        destination.rebalances_groups = policy.group_rebalance
        destination.inactive_seconds = self.inactive_seconds(destination.number, destination.name)
        if policy.is_limiting:
            destination.admission = DestinationLimits(destination, policy, self._monitor.lock, self._monitor.monotonic)

    def inactive_seconds(self, number: int, name: str) -> float | None:
        """Return after how many seconds without use a queue or topic is deleted. None: never. Requires: the lock."""
        policy = self._policies.of(name)
        is_kept = policy.duplicate_window or self._rows[number].is_temporary
        return None if is_kept else policy.inactive_seconds

    def use_groups(self, queue: DestinationState) -> None:
        """Prepare a queue for its first message with a group. Requires: no lock."""
        if queue.keeps_groups:
            with self._monitor.lock, self._monitor.whole:
                self._monitor.raise_if_closed()
                queue.raise_if_deleted()
                self.note_groups(queue)

    def note_groups(self, queue: DestinationState) -> None:
        """Assign the messages of a queue by group from now on, also after a restart.

        If memory or disk has no room, raise StoreFull; if the rule of the queue may not be replaced, StateError.
        Nothing has changed then. Requires: the lock.
        """
        if queue.has_groups:
            return
        self._distributions.require_assignable(queue)  # before the journal records that there are groups
        with self._overhead.one_more(GROUPS_BYTES):
            self._records.note_groups(queue.number)
            queue.has_groups = True
        self._distributions.begin_assigning(queue)

    def restore(self) -> list[QueueState]:
        """Open the queues that are in use after an open of the store; return those that have messages with groups.

        All existing queues are charged afterwards. Requires: the lock.
        """
        grouped: list[QueueState] = []
        used = self.used_at_open()
        for destination in self._rows.values():
            if destination.kind == QUEUE and (destination.has_groups or destination.number in used):
                queue = self._add(destination.number, destination.name)
                if destination.has_groups:
                    queue.has_groups = True
                    grouped.append(queue)
        return grouped

    def used_at_open(self) -> set[int]:
        """Return the numbers of queues and topics that have messages, or that prepared transactions have sent to.

        Requires: the lock. O(lanes + what was sent in prepared transactions).
        """
        used = {lane.destination_number for lane in self._store.lanes()}
        return used | {placed.lane_number >> LANE_SHIFT for branch in self._branches.prepared for placed in branch}

    def restore_lanes(self) -> list[PersistentLaneState]:
        """Take over the lanes of queues that opening the store found, and return them. Requires: the lock."""
        restored: list[PersistentLaneState] = []
        for pending_lane in self._store.lanes():
            queue = self.by_number.get(pending_lane.destination_number)
            if queue is not None:
                lane = queue.make_lane(pending_lane.priority, self._store)
                queue.put_lane(pending_lane.priority, lane)
                restored.append(lane)
        return restored

    def remove(self, queue: QueueState) -> None:
        """Forget a deleted queue, so that messages sent to it no longer arrive. Requires: the lock."""
        del self.queues[queue.name], self.by_number[queue.number]
        self.paused.pop(queue.number, None)
        self._overhead.closed(queue, row_bytes(queue.name) + OPEN_QUEUE_BYTES + GROUPS_BYTES * queue.has_groups)
        self.unregister(queue)

    def unregister(self, destination: DestinationState) -> None:
        """Forget the times, ids and senders' lanes of a deleted queue or topic. Requires: the lock."""
        self._in_turn.pop(destination, None)
        self._timed.forget(destination)
        for lane_number in lanes_of(destination.number):
            self._non_persistent.take(lane_number)
        self._windows.forget(destination.number)
        self._publisher.forget(destination)

    # ------------------------------------------------------------------ open and closed queues

    @property
    def count(self) -> int:
        """Number of queues, open or not."""
        return self._rows.count(QUEUE)

    @property
    def closed_counting(self) -> int:
        """Number of closed queues that have counted something."""
        return len(self._counted)

    @property
    def idle_charge(self) -> int:
        """Return the charge for closed lanes of non-persistent messages."""
        return self._non_persistent.charge_bytes

    def names(self) -> list[str]:
        """Return the names of all queues, sorted. Requires: the lock."""
        return self._rows.names(QUEUE)

    def numbers(self) -> list[int]:
        """Return the numbers of all queues, by name. Requires: the lock."""
        return self._rows.numbers(QUEUE)

    def opened(self, number: int) -> QueueState:
        """Return the existing queue of a number, open. Requires: the lock. StoreFull: memory has no room for it."""
        queue = self.by_number.get(number)
        if queue is None:
            name = self._rows[number].name
            self.make_room(OPEN_QUEUE_BYTES)
            with self._overhead.one_more(OPEN_QUEUE_BYTES):
                queue = self._add(number, name)
            self.count_on(queue)
        return queue

    def opened_to_delete(self, number: int) -> QueueState:
        """Return the existing queue of a number, open until the caller has deleted it. Requires: the lock.

        Full memory does not refuse this, because the deletion frees more than the queue takes.
        """
        queue = self.by_number.get(number)
        if queue is None:
            self._overhead.must_have(OPEN_QUEUE_BYTES)
            queue = self._add(number, self._rows[number].name)
            self.count_on(queue)
        return queue

    def count_on(self, opened: DestinationState) -> None:
        """Let a queue or topic that was just opened continue its earlier counts. Requires: the lock."""
        before = len(self._counted)
        opened.count_on(self._counted.take(opened.number))
        self._overhead.one_less(COUNTED_BYTES * (before - len(self._counted)))

    def counted(self, number: int) -> EarlierCounts:
        """Return the counts of a closed queue or topic. Requires: the lock."""
        return self._counted.find(number)

    def current(self, queue: QueueState) -> QueueState:
        """Return the open queue for a known one: the same, or opened again if it was closed. Requires: no lock.

        If the queue was deleted as inactive, return the queue that has its name now, if there is one. StoreFull.
        """
        if not queue.is_reopenable:
            return queue
        with self._monitor.lock, self._monitor.whole:
            number = self.number_now(queue)
            return queue if number is None else self.opened(number)

    @contextmanager
    def held_open(self, queue: QueueState, *, is_to_go: bool = False) -> Iterator[QueueState]:
        """Keep a known queue open while a call works with it. Requires: no lock. StoreFull.

        is_to_go: the call deletes the queue, so it needs no room in memory.
        """
        with self._monitor.lock, self._monitor.whole:
            number = self.number_now(queue) if queue.is_reopenable else None
            held = queue
            if number is not None:
                held = self.opened_to_delete(number) if is_to_go else self.opened(number)
            held.calls_under_way += 1
        with self.released(held):
            yield held

    @contextmanager
    def held_reopened(self, queue: QueueState, confirmer: Confirmer) -> Iterator[QueueState]:
        """Keep a queue open as held_open does; make it anew if it was deleted as inactive.

        Closed: a caller has deleted it. StoreFull. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            number = self.number_now(queue) if queue.is_reopenable else queue.number
            if number is None and queue.lifecycle is Lifecycle.CLOSED and queue.inactive_seconds is None:
                raise Closed("the queue")
            if number is None:
                raise_if_temporary(queue.name)
            held = queue
            if queue.is_reopenable:
                held = self.queue_locked(queue.name) if number is None else self.opened(number)
            held.calls_under_way += 1
            position = self._store.position
        with self.released(held):
            if number is None:
                confirmer.confirm(position)
            yield held

    @contextmanager
    def released(self, held: DestinationState) -> Iterator[None]:
        """Release a queue or topic that was held open when the block ends. Requires: no lock."""
        try:
            yield
        finally:
            # An error of the block matters more than one of its release.
            with suppress(StoreFailed), self._monitor.lock:
                held.calls_under_way -= 1

    def for_report(self, queue: QueueState) -> QueueState:
        """Return a queue with what a report shows of it. Requires: the lock."""
        if not queue.is_reopenable:
            return queue
        number = self.number_now(queue)
        return queue if number is None else self.numbered_for_report(number) or queue

    def number_now(self, known: DestinationState) -> int | None:
        """Return the number of the destination that now stands for one that was closed or deleted as inactive.

        None: there is none. Requires: the lock.
        """
        destinations = self._rows
        if known.lifecycle is Lifecycle.CLOSED and known.number in destinations:
            return known.number
        # A caller deleted it; it was not deleted as inactive.
        was_deleted = known.lifecycle is Lifecycle.CLOSED and known.inactive_seconds is None
        return None if was_deleted else destinations.number_of(known.kind, known.name)

    def find(self, name: str) -> QueueState | None:
        """Return the queue of a name with what a report shows of it; None if there is none. Requires: the lock."""
        number = self._rows.number_of(QUEUE, name)
        return None if number is None else self.numbered_for_report(number)

    def numbered_for_report(self, number: int) -> QueueState | None:
        """Return the queue of a number with what a report shows of it; None if it is deleted. Requires: the lock.

        For a closed queue this is a separate object, which only the report uses.
        """
        queue = self.by_number.get(number)
        if queue is None and (known := self._rows.get(number)) is not None:
            queue = QueueState(self._target_area, number, known.name)
            queue.count_on(self._counted.find(number))
            queue.inactive_seconds = self.inactive_seconds(number, known.name)
        return queue

    def closed(self) -> Iterator[QueueState]:
        """Yield each closed queue, by name, with what a report shows of it. Requires: the lock."""
        for number in self.numbers():
            if number not in self.by_number and (queue := self.numbered_for_report(number)) is not None:
                yield queue

    def close_idle(self, queue: QueueState, undecided: Container[int]) -> bool:
        """Close a queue if nothing but its counters would be lost; return whether it was closed.

        undecided: see the constructor. A temporary queue stays open, because it ends with its handle. Requires: the
            lock.
        """
        if not self.can_close(queue, undecided):
            return False
        del self.queues[queue.name], self.by_number[queue.number]
        self.close(queue, OPEN_QUEUE_BYTES)
        return True

    def _close_named(self, name: str, undecided: Container[int]) -> bool:
        return self.close_idle(self.queues[name], undecided)

    def can_close(self, opened: DestinationState, undecided: Container[int]) -> bool:
        """Return whether closing a queue or topic would lose nothing but its counters. Requires: the lock."""
        if not opened.is_open or not opened.is_idle or opened.number in undecided:
            return False
        is_temporary = self._rows[opened.number].is_temporary
        return not (is_temporary or self._publisher.is_to_publish(opened))

    def close(self, opened: DestinationState, charge_bytes: int) -> None:
        """Close a queue or topic, so that only its row remains. Requires: the lock, and that `can_close` is true.

        charge_bytes: what the open destination was charged.
        """
        counted, lanes = opened.counted, list(opened.all_lanes())
        opened.lifecycle = Lifecycle.CLOSED
        self._in_turn.pop(opened, None)
        self._timed.forget(opened)
        opened.end_admission()
        for lane in lanes:
            self._close_lane(lane)
        opened.drop_lanes()
        is_kept = self._counted.put(opened.number, counted)
        self._overhead.closed(opened, charge_bytes - COUNTED_BYTES * is_kept)

    def _close_lane(self, lane: LaneState) -> None:
        number, next_sequence = lane.pending_lane.number, lane.pending_lane.next_sequence
        self._removals.drop_lane(lane)
        if lane.is_persistent:
            self._store.put_away(number)
        else:  # it will continue with a new block, which takes no memory yet
            self.keep_non_persistent(number, (next_sequence + BLOCK_MASK) & ~BLOCK_MASK)

    def keep_non_persistent(self, number: int, next_sequence: int) -> None:
        """Record the next sequence of a closed lane of non-persistent messages, or of a topic's subscriptions."""
        self._non_persistent.put(number, next_sequence)

    def take_non_persistent(self, number: int) -> int:
        """Return the next sequence of a lane and forget it, because the caller opens the lane."""
        return self._non_persistent.take(number)

    def make_room(self, charge_bytes: int) -> None:
        """Close a few empty queues and topics if memory has no room for a charge. Those opened first are closed first.

        O(destinations examined): one in use goes to the end of the line. Requires: the lock.
        """
        if not self._overhead.has_room(charge_bytes):
            self.close_some()

    def close_some(self) -> None:
        """Close a few empty queues and topics, as make_room does. Requires: the lock."""
        undecided, closed = self._undecided(), 0
        for opened in list(islice(self._in_turn, LOOKED_AT_ONCE)):
            if self._closers[opened.kind](opened.name, undecided):
                closed += 1
                if closed == CLOSED_AT_ONCE:
                    return
            else:
                del self._in_turn[opened]
                self._in_turn[opened] = None

    # ------------------------------------------------------------------ lanes

    def create_lane(self, destination: DestinationState, priority: int) -> PersistentLaneState:
        """Return the lane of a priority in a queue or topic, made if needed. Requires: no lock.

        Closed: the destination is deleted. StoreFull: memory has no room for the lists of its consumers.
        """
        with self._monitor.lock, self._monitor.whole:
            destination.raise_if_not_sendable()
            lane = destination.lanes[priority]
            if lane is None:
                self._overhead.require_lanes(destination, destination.lane_bytes)
                lane = self._add_lane(destination, priority)
            return lane

    def _add_lane(self, destination: DestinationState, priority: int) -> PersistentLaneState:
        lane = destination.make_lane(priority, self._store)
        destination.put_lane(priority, lane)
        self._target_area.add_lane(lane)
        non_persistent = destination.non_persistent_lanes[priority]
        if non_persistent is not None:
            non_persistent.persistent_lane = lane
        return lane

    def lane(self, number: int) -> PersistentLaneState:
        """Return the lane of a number; its queue must exist. Requires: the lock."""
        return self.lane_of(self.opened(number >> LANE_SHIFT), number & LANE_MASK)

    def lane_of(self, destination: DestinationState, priority: int) -> PersistentLaneState:
        """Return the lane of a priority in a queue or topic, made if needed. Requires: the lock."""
        return destination.lanes[priority] or self._add_lane(destination, priority)

    def create_non_persistent_lane(self, destination: DestinationState, priority: int) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority. Requires: no lock. Closed: as in create_lane."""
        with self._monitor.lock, self._monitor.whole:
            destination.raise_if_not_sendable()
            if destination.non_persistent_lanes[priority] is None:
                self._overhead.require_lanes(destination, NON_PERSISTENT_LANE_BYTES)
            return self.non_persistent_lane(destination, priority)

    def non_persistent_lane(
        self, destination: DestinationState, priority: int, pool: int | None = None, id_prefix: str | None = None
    ) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority, made on first use. Requires: the lock.

        pool, id_prefix: those of the topic, if the lane belongs to a subscription.
        """
        lane = destination.non_persistent_lanes[priority]
        if lane is None:
            memory = destination.memory
            caches = (memory.pending_cache, memory.head_queue_cache)
            pending_lane = self._overflow.lane(destination.number, priority, caches, pool)
            pending_lane.skip_to(self._non_persistent.take(pending_lane.number))
            prefix = id_prefix if id_prefix is not None else self.non_persistent_prefix(destination.number, priority)
            lane = SpillingLaneState(destination, pending_lane, prefix, self._overflow, self._timed.note)
            destination.put_non_persistent_lane(priority, lane)
            lane.persistent_lane = destination.lanes[priority]
            self._target_area.add_lane(lane)
        return lane

    def non_persistent_prefix(self, destination: int, priority: int) -> str:
        """Return the beginning of the ids of non-persistent messages.

        It contains the epoch, because each open of the store counts from 0.
        """
        return f"{self._store.id_prefix(destination, priority)}e{self._epoch}-"
