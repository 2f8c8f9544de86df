"""Rejections: make deliveries dead letters at once, because their consumer rejects them, or in a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import ForebayError
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..config.policies import Policies
from ..core.areas.dispatch_area import DispatchArea
from ..core.confirmer import Confirmer
from ..core.destinations.dead_letter_queues import DeadLetterQueues
from ..core.model.delivery import Delivery, HeldCheck, content_of, is_lazy
from ..core.model.destination import LaneState, lane_of
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from ..transactions.transaction import Transaction
from .dead_letter_writer import BATCH_MESSAGES, DeadLetterWriter
from .transfer import BATCH_BLOCKS

READ_BYTES: Final = 1 << 20
"""Bytes of rejected messages that are read at a time, if they are not in RAM. One message alone may be larger."""


class Rejections:
    """Rejects deliveries of consumers. The state lock guards what it changes."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        dispatch_area: DispatchArea,
        confirmer: Confirmer,
        removals: Removals,
        queues: DeadLetterQueues,
        writer: DeadLetterWriter,
        policies: Policies,
    ) -> None:
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._dispatch_area = dispatch_area
        self._confirmer = confirmer
        self._removals = removals
        self._queues = queues
        self._writer = writer
        self._policies = policies

    def reject(
        self,
        deliveries: Sequence[Delivery],
        reason: str,
        transaction: Transaction | None,
        check: HeldCheck,
    ) -> None:
        """Make deliveries dead letters now, or remove them if there is no dead-letter queue.

        check: raises if a delivery is settled; called under the lock. StoreFull, or StoreFailed if a message can't be
            read: deliveries of earlier batches are dead letters, the rest is still held. Requires: no lock.
        """
        if transaction is not None:
            for delivery in deliveries:
                self._reject_in(transaction, delivery, content_of(delivery), reason, check)
            return
        remaining = list(deliveries)
        while remaining:
            lane, batch = lane_of(remaining[0]), _read_batch(remaining)
            self._checkpointer.require_index_room(BATCH_BLOCKS)
            try:
                with self._monitor.lock, self._monitor.while_open:
                    check(remaining)
                    self._reject(lane, sorted(batch.items(), key=lambda item: item[0].sequence), reason)
                    journal_end = self._confirmer.journal_end
            except ForebayError:
                self._monitor.run_deferred()  # consumers have credit again for those that are gone
                raise
            self._confirmer.confirm(journal_end)
            self._monitor.run_deferred()
            remaining = [held for held in remaining if held not in batch]

    def _reject(
        self,
        lane: LaneState,
        rejected: list[tuple[Delivery, StoredMessage]],
        reason: str,
    ) -> None:
        """Reject deliveries of one lane. Requires: the lock; they are in flight, in order."""
        to = self._rejected_to(lane)
        stamped = [self._writer.stamped(lane, message, reason, held.attempts) for held, message in rejected]
        held = [delivery for delivery, _ in rejected]
        for delivery in held:
            del lane.deliveries[delivery.sequence]  # no consumer holds the delivery while its message moves
        try:
            if to is not None:
                self._writer.write(lane, to, stamped)
            else:
                self._remove(lane, held)
        finally:
            for delivery in held:
                lane.deliveries[delivery.sequence] = delivery
            gone_ones = [delivery for delivery in held if not lane.pending_lane.is_pending(delivery.sequence)]
            for delivery in gone_ones:
                self._dispatch_area.settle(delivery)
            for delivery in gone_ones:
                lane.distribution.settled(lane, delivery.sequence, 1)
            lane.destination.counters.dead_lettered += len(gone_ones)
            for delivery in gone_ones:
                delivery.consumer.resume_if_credit()

    def _remove(self, lane: LaneState, held: Sequence[Delivery]) -> None:
        """Remove rejected messages of one lane that no queue takes. Requires: the lock."""
        gone = SequenceSet()
        try:
            for delivery in held:
                lane.backing_store.acknowledge_one(lane.pending_lane, delivery.sequence)
                gone.add(delivery.sequence, delivery.sequence)
        finally:
            self._removals.forget(lane, gone)

    def _rejected_to(self, lane: LaneState) -> str | None:
        """Return the queue for rejected messages of a lane. None: they are removed, as from a dead-letter queue."""
        name = lane.destination.name
        if self._policies.is_dead_letter_queue(name):
            return None
        return self._policies.redelivery(name).dead_letter_queue

    def _reject_in(
        self, transaction: Transaction, delivery: Delivery, message: StoredMessage, reason: str, check: HeldCheck
    ) -> None:
        """Reject in a transaction: it sends a dead letter and acknowledges the message. Requires: no lock."""
        lane = lane_of(delivery)
        to = self._rejected_to(lane)
        with self._monitor.lock, self._monitor.while_open:
            check((delivery,))
            target = non_persistent_target = None
            if to is not None:
                priority, has_message_groups = lane.pending_lane.priority, lane.destination.has_message_groups
                if lane.is_persistent:
                    target = self._queues.lane(to, priority, has_message_groups=has_message_groups)
                else:
                    non_persistent_target = self._queues.non_persistent_lane_state(
                        to, priority, has_message_groups=has_message_groups
                    )
            stamped = self._writer.stamped(lane, message, reason, delivery.attempts)
            transaction.hold_rejected(delivery, target, non_persistent_target, stamped)


def _read_batch(deliveries: Sequence[Delivery]) -> dict[Delivery, StoredMessage]:
    """Return the next deliveries of one lane with their contents, as many as a bounded read allows.

    Requires: no lock.
    """
    lane, read_bytes = lane_of(deliveries[0]), 0
    batch: dict[Delivery, StoredMessage] = {}
    for delivery in islice((held for held in deliveries if lane_of(held) is lane), BATCH_MESSAGES):
        if read_bytes >= READ_BYTES:
            break
        batch[delivery] = message = content_of(delivery)
        if is_lazy(delivery):
            read_bytes += len(message[1]) + len(message[2] or b"")
    return batch
