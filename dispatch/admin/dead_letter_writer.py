"""DeadLetterWriter: move messages to a dead-letter queue, with headers that say where they come from and why.

One record removes a message from its destination and adds it to the dead-letter queue, as for a moved message. So after
any crash exactly one of the two has the message. A dead letter keeps its id, headers, body, priority and timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import SettingsError
from ...store.format.message_properties import decode_properties, encode_properties, group_of, message_id_of
from ...store.format.record import RecordDamaged
from ...store.format.times import split_times
from ...store.journal.fullness import Fullness
from ...store.message import HeaderValue
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..config.redelivery_delays import ATTEMPTS, FROM, REASON, SUBSCRIPTION, TIME, dead_letter_headers
from ..core.confirmer import Confirmer
from ..core.destinations.dead_letter_queues import DeadLetterQueues
from ..core.model.destination import LaneState
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from .transfer import BATCH_BLOCKS, LaneTransfer

BATCH_MESSAGES: Final = 256


class DeadLetterWriter:
    """Moves messages to dead-letter queues, or removes messages that have none.

    The state lock guards it. `batch_messages` alone may be read and set without the lock: it only decides how large the
    next batches are.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        fullness: Fullness,
        checkpointer: Checkpointer,
        confirmer: Confirmer,
        removals: Removals,
        queues: DeadLetterQueues,
        transfer: LaneTransfer,
    ) -> None:
        self._monitor = monitor
        self._fullness, self._checkpointer = fullness, checkpointer
        self._confirmer = confirmer
        self._removals = removals
        self._queues = queues
        self._transfer = transfer
        # Messages of a batch. The number falls when there is little disk space, because a small batch may still fit.
        self.batch_messages = BATCH_MESSAGES

    def discard(self, lane: LaneState, first: int, last: int) -> None:
        """Remove dead letters first to last of a lane, which have no dead-letter queue. Requires: no lock."""
        gone = SequenceSet()
        with self._monitor.lock, self._monitor.while_open:
            free = SequenceSet()
            for sequence in self._removals.free_sequences(lane, first, last):
                free.add(sequence, sequence)
            try:
                for run in free:
                    lane.backing_store.acknowledge(lane.pending_lane, *run)
                    gone.add(*run)
            finally:
                lane.destination.counters.dead_lettered += gone.count
                self._removals.forget(lane, gone)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)

    def move(self, lane: LaneState, to: str, messages: list[StoredMessage], reason: str) -> Iterator[int]:
        """Move the free ones among messages of one block to a dead-letter queue; yield how many after each batch.

        StoreFull: nothing of this batch was moved, except that some non-persistent messages may have been. The batches
        before it stay moved. Requires: no lock.
        """
        batch_messages = self.batch_messages  # read once, because a step in another thread may set it meanwhile
        for begin in range(0, len(messages), batch_messages):
            batch = messages[begin : begin + batch_messages]
            self._checkpointer.require_index_room(BATCH_BLOCKS)
            with self._monitor.lock, self._monitor.while_open:
                free = set(self._removals.free_sequences(lane, batch[0][0], batch[-1][0]))
                stamped = [
                    self.stamped(lane, message, reason, self._attempts(lane, message[0]))
                    for message in batch
                    if message[0] in free
                ]
                if stamped:
                    try:
                        self.write(lane, to, stamped)
                    finally:  # even of a batch that failed, non-persistent messages may have left
                        left = sum([not lane.pending_lane.is_pending(message[0]) for message in stamped])
                        lane.destination.counters.dead_lettered += left
                journal_end = self._confirmer.journal_end
            self._confirmer.confirm(journal_end)
            yield len(stamped)

    def write(self, lane: LaneState, to: str, messages: list[StoredMessage]) -> None:
        """Move messages that `stamped` returned, even while sends are refused. Requires: the lock."""
        with self._fullness.accepting_replacements():
            if lane.is_persistent:
                target = self._queues.lane(
                    to, lane.pending_lane.priority, has_message_groups=lane.destination.has_message_groups
                )
                self._transfer.commit(lane, target, messages)
            else:
                self._write_non_persistent(lane, to, messages)

    def _write_non_persistent(self, lane: LaneState, to: str, messages: list[StoredMessage]) -> None:
        """Move non-persistent dead letters one by one, into the queue for them: a crash leaves nothing of either."""
        target = self._queues.non_persistent_lane_state(
            to, lane.pending_lane.priority, has_message_groups=lane.destination.has_message_groups
        )
        gone = SequenceSet()
        try:
            for sequence, properties, body, timestamp in messages:
                target.add(timestamp, properties, body or b"")
                lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
                gone.add(sequence, sequence)
        finally:
            self._removals.forget(lane, gone)

    def _attempts(self, lane: LaneState, sequence: int) -> int:
        known = lane.delivery_counts
        return known.get(sequence) if known is not None else 0

    def stamped(self, lane: LaneState, message: StoredMessage, reason: str, attempts: int) -> StoredMessage:
        """Return the message with its id, without times, and with headers that tell why it is a dead letter."""
        sequence, properties, body, timestamp = message
        _, properties = split_times(properties)
        added: dict[str, HeaderValue] = {
            FROM: lane.destination.name,
            REASON: reason,
            ATTEMPTS: attempts,
            TIME: self._monitor.clock_ms(),
        }
        subscription_name = lane.destination.subscription_name
        if subscription_name is not None:
            added[SUBSCRIPTION] = subscription_name
        try:
            if message_id_of(properties) is None:
                properties = encode_properties(None, f"{lane.id_prefix}{sequence}") + properties
            headers, message_id = decode_properties(properties)
            properties = encode_properties(dead_letter_headers(headers, added), message_id, group_of(properties))
        except (RecordDamaged, SettingsError):
            # Undecodable, or without room for more headers: it keeps its own, and loses its times, or it would expire
            # again. The limit is one of headers: an id fits in any case.
            pass
        return sequence, properties, body, timestamp
