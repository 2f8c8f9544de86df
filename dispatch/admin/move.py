"""Mover: move messages from one queue to another; after any crash each is in exactly one of them.

A walk brings the messages in order, a part of a block at a time, and each batch moves with one commit record. With that
record the messages in the new queue take effect and those in the old one are gone. Messages in flight, or in an
undecided transaction, stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from ...store.errors import ForebayError, StoreFailed
from ...store.format.branch import Branch
from ...store.format.record import SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX
from ...store.format.times import Times, has_times, with_times
from ...store.index.delivery_counts import DeliveryCountTable
from ...store.journal.journal import Journal
from ...store.message_store import MessageStore
from ...store.numbering import BLOCK_MESSAGES
from ...store.state.transactions import Branches, Transactions
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..admission.limits import Reservation
from ..core.confirmer import ThreadConfirmer
from ..core.destinations.destinations import Destinations
from ..core.destinations.queue_state import QueueState
from ..core.model import LaneState, PersistentLaneState
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.settling.delays import TimedLanes
from ..core.settling.removal import Removals
from ..selectors.selector import Selector
from .browse import Browsers

BATCH_BLOCKS: Final = 3
"""Most blocks of the index that a batch makes dirty: one in the old queue, two in the new one."""


class Mover:
    """Moves messages between queues, and to dead-letter queues."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        journal: Journal,
        transactions: Transactions,
        branches: Branches,
        delivery_count_table: DeliveryCountTable,
        now_ms: Callable[[], int],
        publisher: Publisher,
        confirmer: ThreadConfirmer,
        destinations: Destinations,
        removals: Removals,
        timed: TimedLanes,
        browsers: Browsers,
        slice_messages_max: int,
    ) -> None:
        """Make the one PropertyRecords of a store. now_ms: the store's time."""
        self._monitor = monitor
        self._store = store
        self._journal = journal
        self._transactions = transactions
        self._branches = branches
        self._delivery_count_table = delivery_count_table
        self._now_ms = now_ms
        self._publisher = publisher
        self._confirmer = confirmer
        self._destinations = destinations
        self._removals = removals
        self._timed = timed
        self._browsers = browsers
        self._slice_messages_max = slice_messages_max

    def move(self, source: QueueState, to: QueueState, selector: Selector | None, limit: int | None) -> int:
        """Move messages as Queue.move does. Requires: no lock."""
        with self._destinations.held_open(to) as to:
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
            error.stored = moved + getattr(error, "stored", 0)  # type: ignore[attr-defined]
            raise
        return moved

    def _move_admitted(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> tuple[int, int]:
        """Move as many messages of a batch as the new queue has room for; return (considered, moved)."""
        if to.admission is None:
            return len(batch), self._move_batch(lane, to, batch)
        sizes = [_content_bytes(message) for message in batch]
        reservation = Reservation()
        try:
            admitted = to.admission.admit_now(sizes, reservation)
            if not admitted:
                self._confirmer.confirm(self._confirmer.position())
                admitted = self._confirmer.run(to.admission.room(sizes, reservation, self._confirmer.wakeable()))
            return admitted, self._move_batch(lane, to, batch[:admitted])
        finally:
            with suppress(StoreFailed):
                to.admission.give_back(reservation)

    def _move_batch(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> int:
        """Move those messages of a batch that are still free; return how many."""
        if not lane.is_persistent:
            return self._move_non_persistent(lane, to, batch)
        store = self._store
        target = to.lanes[lane.pending_lane.priority] or self._destinations.create_lane(to, lane.pending_lane.priority)
        store.require_index_room(BATCH_BLOCKS)
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            are_free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
            free = [self._with_times(lane, message) for message in batch if message[0] in are_free]
            if free:
                if lane.destination.has_groups:
                    self._destinations.note_groups(to)
                with self._journal.whole:
                    self.commit(lane, target, free)
            position = store.position
        self._confirmer.confirm(position)
        return len(free)

    def _with_times(self, lane: LaneState, message: StoredMessage) -> StoredMessage:
        """Give the message its present times: a delay that began with a transaction ends when it would have ended."""
        sequence, properties, body, timestamp = message
        if not has_times(properties):
            return message
        return sequence, with_times(properties, self._times_left(lane, sequence)), body, timestamp

    def _times_left(self, lane: LaneState, sequence: int) -> Times:
        """Return the times with which a message arrives in the new queue."""
        return lane.pending_lane.times_of(sequence).left(self._now_ms())

    def _move_non_persistent(self, lane: LaneState, to: QueueState, batch: list[StoredMessage]) -> int:
        """Move message by message, because a crash leaves none of them."""
        priority = lane.pending_lane.priority
        target = to.non_persistent_lanes[priority] or self._destinations.create_non_persistent_lane(to, priority)
        gone = SequenceSet()
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            if lane.destination.has_groups:
                self._destinations.note_groups(to)
            try:
                for sequence, properties, body, timestamp in batch:
                    if sequence not in lane.in_flight and lane.pending_lane.is_pending(sequence) and body is not None:
                        if has_times(properties):
                            target.add_timed(timestamp, properties, body, self._times_left(lane, sequence))
                        else:
                            target.add(timestamp, properties, body)
                        lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                        gone.add(sequence, sequence)
            except ForebayError as error:
                error.stored = gone.count  # type: ignore[attr-defined]
                self._removals.forget(lane, gone)
                raise
            self._removals.forget(lane, gone)
        self._confirmer.confirm(0)
        return gone.count

    def commit(self, lane: LaneState, target: PersistentLaneState, messages: list[StoredMessage]) -> None:
        """Move all of them, or none. Requires: the lock."""
        transactions = self._transactions
        gone = _runs_of(messages)
        is_recorded = self._delivery_count_table.is_recorded(lane.pending_lane.number)
        branch = transactions.begin()
        try:
            written = self._write(branch, target, messages)
            for first, last in gone if is_recorded else ():
                branch.acknowledge(lane.pending_lane.number, first, last)
            transactions.commit(branch, {position: lengths for position, lengths, _ in written})
        except ForebayError:
            with suppress(ForebayError):  # a crash would leave the same
                transactions.rollback(branch)
            self._branches.forget(branch.number)
            raise
        self._store.count_adds(branch.messages)
        for first, last in gone if not is_recorded else ():
            # The lane is that of a subscription without a name, which has no records.
            lane.backing_store.acknowledge(lane.pending_lane, first, last)
        self._removals.forget(lane, gone)
        for placed, (_, _, part) in zip(branch.committed(), written, strict=True):
            if placed.is_timed:
                self._timed.note(target)
                self._publisher.publish_when_durable(target, range(placed.first, placed.first + placed.messages))
            else:
                self._publisher.publish_when_durable(
                    target, [(sequence, *message[1:]) for sequence, message in enumerate(part, placed.first)]
                )

    def _write(
        self, branch: Branch, target: PersistentLaneState, messages: list[StoredMessage]
    ) -> list[tuple[int, list[int], list[StoredMessage]]]:
        """Write the messages as slices that count with the commit; return position, lengths and messages of each."""
        written: list[tuple[int, list[int], list[StoredMessage]]] = []
        for part in _slices(messages, target.destination_lane.slice_room, self._slice_messages_max):
            contents = [(properties, body or b"") for _, properties, body, _ in part]
            is_timed = any(has_times(properties) for properties, _ in contents)
            lengths = self._transactions.append_slice(
                branch, target.destination_lane, part[0][3], contents, is_timed=is_timed
            )
            written.append((branch.last_position, lengths, part))
        return written


def _runs_of(messages: list[StoredMessage]) -> SequenceSet:
    runs = SequenceSet()
    first = last = messages[0][0]
    for message in messages:
        if message[0] > last + 1:
            runs.add(first, last)
            first = message[0]
        last = message[0]
    runs.add(first, last)
    return runs


def _slices(messages: list[StoredMessage], room: int, most: int) -> Iterator[list[StoredMessage]]:
    """Yield parts with one timestamp each that cross no block. room: that of the first block."""
    part: list[StoredMessage] = []
    size = 0
    for message in messages:
        if part and (
            message[3] != part[0][3]
            or len(part) >= min(room, most)
            or size + _content_bytes(message) > SLICE_CONTENT_BYTES_MAX
        ):
            yield part
            room = room - len(part) or BLOCK_MESSAGES
            part, size = [], 0
        part.append(message)
        size += _content_bytes(message)
    if part:
        yield part


def _content_bytes(message: StoredMessage) -> int:
    return len(message[1]) + len(message[2] or b"")
