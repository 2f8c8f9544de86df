"""Mover: move messages from one queue to another; after any crash each is in exactly one of them.

A walk brings the messages in order, a part of a block at a time. Each batch moves with one commit record. That record
makes the messages count in the new queue, and removes them from the old one. Messages in flight, or in an undecided
transaction, stay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import ForebayError, StoreFailed
from ...store.format.record import SLICE_MESSAGES_MAX
from ...store.format.times import MessageTimes, has_times, with_times
from ...store.numbering import NOTHING_TO_SYNC
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..admission.limits import Reservation
from ..core.confirmer import ThreadConfirmer
from ..core.destinations.queue_state import QueueState
from ..core.model.destination import LaneState
from ..core.monitor import Monitor
from ..core.owners import DestinationOwners
from ..core.redelivery.removal import Removals
from ..selectors.selector import Selector
from .browse import Browsers
from .transfer import BATCH_BLOCKS, LaneTransfer


class Mover:
    """Moves messages between queues."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        now_ms: Callable[[], int],
        confirmer: ThreadConfirmer,
        destinations: DestinationOwners,
        removals: Removals,
        browsers: Browsers,
        transfer: LaneTransfer,
    ) -> None:
        """now_ms: returns the store's time."""
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._now_ms = now_ms
        self._confirmer = confirmer
        self._queues = destinations.queues
        self._lanes = destinations.lanes
        self._message_group_queues = destinations.message_group_queues
        self._removals = removals
        self._browsers = browsers
        self._transfer = transfer

    def move(self, source: QueueState, to: QueueState, selector: Selector | None, limit: int | None) -> int:
        """Move up to `limit` messages that match a selector, for Queue.move; return how many. Requires: no lock."""
        with self._queues.held_open(to) as to:
            return self._move(source, to, selector, limit)

    def _move(self, source: QueueState, to: QueueState, selector: Selector | None, limit: int | None) -> int:
        moved = 0
        try:
            for lane, messages in self._browsers.walk(source, selector):
                begin = 0
                while begin < len(messages):
                    if moved == limit:
                        return moved
                    end = begin + SLICE_MESSAGES_MAX
                    if limit is not None:
                        end = min(end, begin + limit - moved)
                    considered, taken = self._move_admitted(lane, to, messages[begin:end])
                    begin += considered
                    moved += taken
        except ForebayError as error:
            error.stored += moved  # some errors say how much of the last batch was moved
            raise
        return moved

    def _move_admitted(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> tuple[int, int]:
        """Move as many messages of a batch as the new queue has room for; return (considered, moved).

        Messages that are not free stay, so they need no room in the new queue.
        """
        limits = to.limits  # read once: a deletion of the queue takes them from it, and ends waits for their room
        if limits is None:
            return len(batch), self._move_batch(lane, to, batch)
        free = self._free_of(lane, batch)
        if not free:
            return len(batch), 0
        sizes = [_content_bytes(message) for message in free]
        reservation = Reservation()
        try:
            admitted = limits.admit_now(sizes, reservation)
            if not admitted:
                self._confirmer.confirm_written()
                admitted = self._confirmer.run(limits.wait_for_room(sizes, reservation, self._confirmer.waker()))
            considered = len(batch) if admitted == len(free) else batch.index(free[admitted])
            return considered, self._move_batch(lane, to, free[:admitted])
        finally:
            with suppress(StoreFailed):
                limits.give_back(reservation)

    def _move_batch(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> int:
        """Move those messages of a batch that are still free; return how many."""
        if not lane.is_persistent:
            return self._move_non_persistent(lane, to, batch)
        target = to.lanes[lane.pending_lane.priority]
        if target is None:
            if not self._free_of(lane, batch):  # the new queue needs no lane
                return 0
            target = self._lanes.create(to, lane.pending_lane.priority)
        self._checkpointer.require_index_room(BATCH_BLOCKS)
        with self._monitor.lock, self._monitor.while_open:
            are_free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
            free = [self._with_times(lane, message) for message in batch if message[0] in are_free]
            if free:
                if lane.destination.has_message_groups:
                    self._message_group_queues.assign_by_message_group(to)
                self._transfer.commit(lane, target, free)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        return len(free)

    def _free_of(self, lane: LaneState, batch: list[StoredMessage]) -> list[StoredMessage]:
        """Return the messages of a batch that are free now."""
        with self._monitor.lock, self._monitor.while_open:
            free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
            return [message for message in batch if message[0] in free]

    def _with_times(self, lane: LaneState, message: StoredMessage) -> StoredMessage:
        """Return the message with its present times, so that a delay ends when it would have ended in the old queue."""
        sequence, properties, body, timestamp = message
        if not has_times(properties):
            return message
        return sequence, with_times(properties, self._times_left(lane, sequence)), body, timestamp

    def _times_left(self, lane: LaneState, sequence: int) -> MessageTimes:
        """Return the times with which a message arrives in the new queue."""
        return lane.pending_lane.times_of(sequence).left(self._now_ms())

    def _move_non_persistent(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> int:
        """Move non-persistent messages one by one. A crash leaves none of them, so it leaves no half of a batch."""
        priority = lane.pending_lane.priority
        target = to.non_persistent_lanes[priority]
        if target is None:
            if not self._free_of(lane, batch):  # the new queue needs no lane
                return 0
            target = self._lanes.create_non_persistent(to, priority)
        gone = SequenceSet()
        with self._monitor.lock, self._monitor.while_open:
            are_free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
            free = [
                (sequence, properties, body, timestamp)
                for sequence, properties, body, timestamp in batch
                if sequence in are_free and body is not None
            ]
            if free and lane.destination.has_message_groups:
                self._message_group_queues.assign_by_message_group(to)
            try:
                for sequence, properties, body, timestamp in free:
                    if has_times(properties):
                        target.add_timed(timestamp, properties, body, self._times_left(lane, sequence))
                    else:
                        target.add(timestamp, properties, body)
                    lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                    gone.add(sequence, sequence)
            except ForebayError as error:
                error.stored = gone.count
                self._removals.forget(lane, gone)
                raise
            self._removals.forget(lane, gone)
        self._confirmer.confirm(NOTHING_TO_SYNC)
        return gone.count


def _content_bytes(message: StoredMessage) -> int:
    return len(message[1]) + len(message[2] or b"")
