"""Settlements: end deliveries for all consumers of a store: acks of several, nacks, releases, dead letters.

The ack of a single message is `Consumer.ack`, which is written inline for speed and calls this class for unusual cases.
When an ack or a nack returns, its record is in the journal; after a crash before that, the message comes again. A nack
succeeds also where its record can't be written: then the attempt is counted in RAM alone (`ReturnWriter.put`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import AckTooLate, ArgumentError, SettingsError, StateError, StoreFull
from ...store.maintenance.cleanup import Cleanup
from ...store.numbering import NOTHING_TO_SYNC
from ..core.areas.dispatch_area import DispatchArea
from ..core.confirmer import Confirmer
from ..core.model.delivery import Delivery, HeldCheck, is_in_flight, is_late
from ..core.model.destination import CoreConsumer, lane_of
from ..core.monitor import Monitor
from ..core.redelivery.deadlines import AckDeadlines
from ..core.redelivery.redelivery import Redelivery
from ..transactions.transaction import Transaction
from ..transactions.transaction_registry import TransactionRegistry

Reject = Callable[[Sequence[Delivery], str, Transaction | None, HeldCheck], None]
"""Gets deliveries, the reason, a transaction, and a check that is called under the lock before they are settled."""


class Settlements:
    """The settlements of an open store. Requires: no lock, unless a method says otherwise."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        cleanup: Cleanup,
        dispatch_area: DispatchArea,
        deadlines: AckDeadlines,
        redelivery: Redelivery,
        transactions: TransactionRegistry,
        reject: Reject,
    ) -> None:
        """reject: makes dead letters of deliveries. Requires: no lock."""
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._cleanup = cleanup
        self._dispatch_area = dispatch_area
        self._deadlines = deadlines
        self._redelivery = redelivery
        self._transactions = transactions
        self._reject = reject

    # ------------------------------------------------------------------ acknowledging

    def ack(
        self,
        consumer: CoreConsumer,
        deliveries: tuple[Delivery, ...],
        confirmer: Confirmer,
        *,
        up_to: Delivery | None = None,
    ) -> None:
        """Acknowledge deliveries run by run, in as many sections as the index and the disk need.

        up_to: the one delivery that the consumer must hold. Others that it holds no more when a section begins are left
            out. None: the consumer must hold all of them.
        """
        rest = deliveries
        while rest:
            batch = rest
            try:
                with self._monitor.lock, self._monitor.all_or_broken:
                    if up_to is not None:
                        batch = rest = tuple(one for one in rest if one is up_to or is_in_flight(one))
                    self.check_held(consumer, rest)
                    try:
                        settled, journal_end = self._ack_runs(rest, confirmer)
                        rest = rest[settled:]
                    finally:
                        self.after_ack(consumer, batch)  # also if an error leaves a rest that is not settled
            except StoreFull as full:
                self._monitor.run_deferred()
                self.make_disk_space(full)
                continue  # nothing of the rest is settled. A delivery that has gone back meanwhile is refused
            confirmer.confirm(journal_end)

    def ack_up_to(self, consumer: CoreConsumer, delivery: object, confirmer: Confirmer) -> None:
        """Acknowledge a delivery and all that its consumer took before it and still holds. O(in flight)."""
        with self._monitor.lock:
            self.check_held(consumer, (delivery,))
            assert isinstance(delivery, Delivery)
            number = delivery.number
            held = tuple(other for other in held_by(consumer) if other.number <= number)
        self.ack(consumer, held, confirmer, up_to=delivery)

    def _ack_runs(self, ordered: tuple[Delivery, ...], confirmer: Confirmer) -> tuple[int, int]:
        """Settle run by run; return how many deliveries, and the journal end that must become durable for them.

        It stops before the end if the index needs a checkpoint first, or the disk has no space for the next run.
        StoreFull: the disk has no space for the first run, and nothing is settled.
        """
        dispatch_area, checkpointer = self._dispatch_area, self._checkpointer
        begin, journal_end = 0, NOTHING_TO_SYNC
        while begin < len(ordered) and (not begin or not checkpointer.is_index_crowded):
            first = ordered[begin]
            end = begin + 1
            sequence = first.sequence
            while end < len(ordered) and ordered[end].sequence == sequence + 1 and ordered[end].lane is first.lane:
                sequence += 1
                end += 1
            lane = first.lane
            try:
                lane.acknowledged += lane.backing_store.acknowledge(lane.pending_lane, first.sequence, sequence)
            except StoreFull:
                if not begin:
                    raise
                break
            dispatch_area.settle_run(lane, ordered[begin:end])
            if lane.syncs:
                journal_end = confirmer.journal_end
            begin = end
        return begin, journal_end

    def after_ack(self, consumer: CoreConsumer, deliveries: Sequence[Delivery]) -> None:
        """Let takes of the consumer and waiting senders use the room that an ack made. Requires: the lock.

        deliveries: the batch of the ack. Some of it may not be settled.
        """
        consumer.resume_if_credit()
        destination = consumer.destination
        limits = destination.limits
        if limits is not None:
            limits.on_room_freed()
        elif destination.spans_others and destination.is_limited:
            for source in dict.fromkeys(lane_of(delivery).destination for delivery in deliveries):
                source.on_room_freed()

    def make_disk_space(self, full: StoreFull) -> None:
        """Delete the data logs that earlier acks have freed, because even the reserve of the disk is full.

        Raise `full` if there is no such data log.
        """
        if not self._cleanup.run().removed:
            raise full

    def ack_in(self, consumer: CoreConsumer, transaction: object, deliveries: object) -> None:
        """Add acks of deliveries to a transaction, which acknowledges them with its commit."""
        checked = self._transactions.checked(transaction)
        batch = batch_of(deliveries)
        with self._monitor.lock, self._monitor.all_or_broken:
            self.check_held(consumer, batch)
            checked.hold(batch)

    def held_in_transactions(self, consumer: CoreConsumer) -> list[Delivery]:
        """Return the deliveries of a consumer that open transactions hold. O(deliveries held). Requires: the lock."""
        return self._transactions.held_by(consumer)

    # ------------------------------------------------------------------ nack, release, reject, extend

    def nack(self, consumer: CoreConsumer, batch: Sequence[Delivery], delay: float, confirmer: Confirmer) -> None:
        """Return deliveries to their places with one more attempt."""
        with self._monitor.lock, self._monitor.all_or_broken:
            self._check_open_and_held(consumer, batch)
            any_delayed = self._redelivery.return_failed(batch, delay)
            consumer.resume_if_credit()
        if any_delayed:
            # The index has the times of delayed messages and may need a checkpoint.
            confirmer.confirm(NOTHING_TO_SYNC)
        self._monitor.run_deferred()

    def release(self, consumer: CoreConsumer, batch: Sequence[Delivery]) -> None:
        """Return deliveries to their places as not tried."""
        with self._monitor.lock, self._monitor.all_or_broken:
            self._check_open_and_held(consumer, batch)
            self._redelivery.return_untried(batch)
            consumer.resume_if_credit()

    def reject(self, consumer: CoreConsumer, deliveries: object, reason: str, transaction: object) -> None:
        """Make deliveries dead letters, now or with the commit of a transaction."""
        checked = None if transaction is None else self._transactions.checked(transaction)
        batch = batch_of(deliveries)
        with self._monitor.lock:
            self.check_held(consumer, batch)
        self._reject(batch, reason, checked, partial(self.check_held, consumer))

    def extend(self, consumer: CoreConsumer, batch: Sequence[Delivery], seconds: float) -> None:
        """Move the ack deadline of deliveries to so many seconds from now."""
        with self._monitor.lock, self._monitor.all_or_broken:
            self._check_open_and_held(consumer, batch)
            self._deadlines.extend(consumer, batch, seconds)

    def _check_open_and_held(self, consumer: CoreConsumer, batch: Sequence[Delivery]) -> None:
        """Check a batch before a change in RAM, which the journal does not refuse. Requires: the lock.

        Closed: this is the copy in a forked child. A store that was closed holds nothing, so there only an empty batch
        passes.
        """
        self.check_held(consumer, batch)
        if batch:
            self._monitor.raise_if_closed()

    def check_held(self, consumer: CoreConsumer, deliveries: Sequence[object]) -> None:
        """Raise what `ack` raises if one of these is not the consumer's to settle. Requires: the lock."""
        if _are_all_in_flight(consumer, deliveries):
            return
        last_number = -1
        is_ascending = True
        for delivery in deliveries:
            if type(delivery) is not Delivery:
                raise ArgumentError(f"a delivery is expected, not {type(delivery).__name__}")
            if delivery.consumer is not consumer:
                raise SettingsError("the delivery belongs to another consumer: settle it there")
            if delivery.lane.deliveries.get(delivery.sequence) is not delivery:
                if is_late(delivery):
                    deadline = consumer.ack_deadline_seconds or 0.0
                    raise AckTooLate(delivery.destination, delivery.sequence, delivery.attempts, deadline)
                self._transactions.raise_if_held(delivery)
                raise StateError("the delivery is settled already, or its consumer was closed")
            is_ascending = is_ascending and delivery.number > last_number
            last_number = delivery.number
        # Deliveries in the order of taking contain no duplicate, so no set is needed.
        if not is_ascending and len(set(map(id, deliveries))) < len(deliveries):
            raise SettingsError("the same delivery is in the batch twice")


def _are_all_in_flight(consumer: CoreConsumer, deliveries: Sequence[object]) -> bool:
    """Return whether a batch is all that is in flight of its lane, in the order of taking, and of this consumer.

    That is so where a sole consumer acknowledges everything that it took. Then no delivery has to be looked up.
    """
    first = deliveries[0] if deliveries else None
    if type(first) is not Delivery or len(first.lane.deliveries) != len(deliveries):
        return False
    for held, delivery in zip(first.lane.deliveries.values(), deliveries):  # noqa: B905 machine code would make tuples
        if held is not delivery or held.consumer is not consumer:
            return False
    return True


def batch_of(deliveries: object) -> tuple[Delivery, ...]:
    """Return one delivery, or a list or tuple of them, as a tuple, which the caller can't change. ArgumentError."""
    if type(deliveries) is Delivery:
        return (deliveries,)
    if not isinstance(deliveries, list | tuple):
        raise ArgumentError(f"a delivery or a list of deliveries is expected, not {type(deliveries).__name__}")
    return tuple(deliveries)


def held_by(consumer: CoreConsumer) -> list[Delivery]:
    """Return the deliveries that a consumer holds. O(in flight in its queue up to its last one). Requires: the lock."""
    held: list[Delivery] = []
    for target in consumer.selector_group.lists if consumer.in_flight else ():
        for delivery in target.lane.deliveries.values():
            if delivery.consumer is consumer:
                held.append(delivery)
                if len(held) == consumer.in_flight:
                    return held
    return held
