"""SendPipeline: store a batch, persistent or not, with waits wherever there is no room.

The steps of a pipeline never block. They are generators that yield a Wait, and a Confirmer runs them: one for threads,
another one for an event loop. A plain send that finds room at once does not come here. If a caller is cancelled or
interrupted, its steps are closed at a wait: they give back their place in line and their reservation, and the messages
that waited are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import suppress

from ...cache.accounting.charge import charge_of_slice
from ...store.errors import StoreFailed, StoreFull, argument_error
from ...store.format.times import has_times, times_of_each
from ...store.numbering import PRIORITIES
from ..admission.limits import DestinationLimits, Reservation, Wait
from ..core.confirmer import Confirmer
from ..core.destinations.destination_state import NamedDestinationState
from ..core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..topics.state.fan_out import FanOut
from .batching import Batch
from .sender_parts import SenderParts
from .slice_writer import ids_of


class SendPipeline:
    """Stores batches in one queue or topic, in this order: admit, store, wait for space, confirm."""

    def __init__(
        self,
        parts: SenderParts,
        destination: NamedDestinationState,
        confirmer: Confirmer,
        open_non_persistent: Callable[[NamedDestinationState, int], NonPersistentLaneState | FanOut],
    ) -> None:
        """open_non_persistent: returns where non-persistent messages of a destination and a priority go."""
        self._parts = parts
        self._destination = destination
        self._confirmer = confirmer
        self._open_non_persistent = open_non_persistent

    # ------------------------------------------------------------------ with waits

    def confirm(self, batch: Batch) -> str:
        """Confirm one stored message and return its id."""
        if batch.transaction is None:
            self._confirmer.confirm_written()
        return batch.ids[0]

    def store(self, batch: Batch, full: StoreFull | None = None) -> Generator[Wait, None, None]:
        """Store a batch within the limits of its destination, part by part as there is room.

        Messages that the duplicate window knows need no room. In a transaction all messages are stored or none, and no
        message is diverted or dropped. StoreFull: the batch knows how many messages are stored.

        full: the disk had just no room for the batch. The reservation in a limited destination was given back, so
            admission begins again.
        """
        limits = self._destination.limits
        if limits is None:
            if full is None:
                full = self._try_to_store(batch)
            if full is not None:
                yield from self._wait_for_space(batch, full)
            return
        while (begin := batch.stored) < len(batch.sizes):
            self._parts.monitor.raise_if_closed()  # in the child of a fork nobody would ever make room
            end = begin + self._count_fresh(batch, begin)
            if end == begin:
                stored_id = batch.own_ids[begin]
                assert stored_id is not None
                batch.ids.append(stored_id)
            else:
                yield from self._store_admitted(limits, batch, batch.sizes[begin:end])

    def _store_admitted(
        self, limits: DestinationLimits, batch: Batch, sizes: Sequence[int]
    ) -> Generator[Wait, None, None]:
        """Store as many of the next messages as have room. If none has, divert or drop the first one.

        sizes: those of the next messages.
        """
        reservation = Reservation()
        try:
            admitted = yield from self._admit(limits, sizes, reservation, batch)
            if admitted:
                yield from self._store_reserved(limits, reservation, batch.next_part(admitted))
            else:
                batch.ids.append(self._divert_or_drop(limits, batch.next_part(1)))
        finally:
            with suppress(StoreFailed):  # the error of the send matters more than an error of the release
                limits.give_back(reservation)

    def is_known(self, batch: Batch) -> bool:
        """Return whether the first message of a batch is stored already. Requires: no lock."""
        return not self._count_fresh(batch, 0)

    def _count_fresh(self, batch: Batch, begin: int) -> int:
        """Return how many messages from `begin` on need room, up to a duplicate; 0: the first one is a duplicate.

        For a batch of a transaction all messages count, because the transaction looks for duplicates itself.
        """
        if not self._destination.has_duplicate_window or batch.transaction is not None:
            return len(batch.contents) - begin
        return self._parts.slices.fresh(self._destination, batch.contents.part(begin))

    def _admit(
        self, limits: DestinationLimits, sizes: Sequence[int], reservation: Reservation, batch: Batch
    ) -> Generator[Wait, None, int]:
        """Reserve room for as many messages as possible, at least one; return how many.

        0: the first one is diverted or dropped.
        """
        if limits.drops and batch.transaction is None:
            return limits.admit_or_drop(sizes, reservation, self._drop_oldest)
        admitted = limits.admit_now(sizes, reservation, batch.deadline)
        if not admitted:
            # Publish first, because a sender may wait for its own messages to be acknowledged.
            self._confirmer.confirm_written()
            admitted = yield from limits.wait_for_room(sizes, reservation, self._confirmer.waker(), batch.deadline)
        return admitted

    def _store_reserved(
        self, limits: DestinationLimits, reservation: Reservation, batch: Batch
    ) -> Generator[Wait, None, None]:
        """Store the admitted messages. In a transaction, the reservation lasts until its outcome."""
        full = self._try_to_store(batch)
        if full is not None:
            yield from self._wait_for_space(batch, full)
        if batch.transaction is not None:
            batch.transaction.keep_room(limits, reservation)

    def _try_to_store(self, batch: Batch) -> StoreFull | None:
        """Store a batch at once, or return the error if the disk has no room. The batch knows how many are stored."""
        try:
            self.store_now(batch)
        except StoreFull as full:
            return full
        return None

    def _wait_for_space(self, batch: Batch, full: StoreFull) -> Generator[Wait, None, None]:
        """Store the rest of a batch as soon as the disk has room for it, or raise the error if it never has."""
        rest, space = batch.rest(), self._parts.space

        def attempt() -> StoreFull | None:
            return self._try_to_store(batch.rest())

        line = space.line(batch.persistent is True)
        yield from space.retry(
            line,
            self._destination,
            rest.sizes,
            full,
            deadline=batch.deadline,
            attempt=attempt,
            confirmer=self._confirmer,
        )

    # ------------------------------------------------------------------ at once

    def store_now(self, batch: Batch) -> None:
        """Write the batch as one slice, or as two at the end of a block; or add it to its transaction.

        Requires: nothing of the batch is stored yet. StoreFull: the batch knows how many messages are stored.
        """
        parts = self._parts
        if batch.persistent is not True:
            self._store_non_persistent(batch)
            return
        lane = self.ensure_lane(batch.priority)
        timestamp = parts.clock_ms()
        contents, own_ids, ids = batch.contents, batch.own_ids, batch.ids
        if batch.transaction is not None:
            batch.transaction.add(lane, timestamp, contents, own_ids, ids)
            return
        if self._destination.has_duplicate_window:
            parts.slices.store_once(lane, timestamp, contents, own_ids, ids)
        elif has_times(contents.properties[0]):
            parts.slices.store_timed(lane, contents, batch.sizes, own_ids, ids)
        else:
            self._store_slices(lane, timestamp, batch)
        is_sync_wanted = parts.syncs_always and parts.publisher.is_holding_too_many
        if is_sync_wanted or parts.checkpointer.is_urgent:
            self._confirmer.confirm_written()

    def _store_slices(self, lane: PersistentLaneState, timestamp: int, batch: Batch) -> None:
        parts = self._parts
        contents, sizes, own_ids, ids = batch.contents, batch.sizes, batch.own_ids, batch.ids
        begin = 0
        with parts.monitor.lock, parts.monitor.all_or_broken:
            destination_lane = lane.destination_lane  # under the lock, because the queue may be deleted before
            while begin < len(contents):
                end = begin + destination_lane.slice_capacity
                part, lengths, own = contents.part(begin, end), sizes[begin:end], own_ids[begin:end]
                before_bytes = destination_lane.added_bytes
                first = parts.message_store.append_slice(destination_lane, timestamp, part, lengths=lengths)
                charge = charge_of_slice(len(part), destination_lane.added_bytes - before_bytes)
                parts.publisher.publish_when_durable(lane, part.arrived(first, timestamp), charge)
                ids += ids_of(lane.id_prefix, first, own)
                begin += len(part)

    def _store_non_persistent(self, batch: Batch) -> None:
        """Add non-persistent messages one by one. StoreFull: the batch knows how many messages are stored."""
        parts, ids = self._parts, batch.ids
        lane = self._lane_of_non_persistent(batch)
        timestamp = parts.clock_ms()
        prefix = lane.id_prefix
        if batch.transaction is not None:
            batch.transaction.add_non_persistent(lane, timestamp, batch.contents, batch.own_ids, ids)
            return
        with parts.monitor.lock, parts.monitor.while_open:
            if self._destination.has_duplicate_window:
                parts.slices.keep_once(lane, timestamp, batch.contents, batch.own_ids, ids)
                return
            properties_of_each = batch.contents.properties
            times = times_of_each(properties_of_each) if has_times(properties_of_each[0]) else []
            for at, ((properties, body), own) in enumerate(zip(batch.contents.pairs(), batch.own_ids, strict=True)):
                if times:
                    sequence = lane.add_timed(timestamp, properties, body, times[at])
                else:
                    sequence = lane.add(timestamp, properties, body)
                ids.append(own if own is not None else f"{prefix}{sequence}")

    # ------------------------------------------------------------------ no room, and no wait

    def _drop_oldest(self, messages: int, size_bytes: int) -> int:
        """Remove the oldest messages, as FullPolicy.drop_oldest does; return how many. Requires: the lock."""
        return self._parts.full_policy.drop_oldest(self._destination, messages, size_bytes)

    def _divert_or_drop(self, limits: DestinationLimits, batch: Batch) -> str:
        """Make the one message of a batch a dead letter, or drop it, as the policy says; return its id."""
        lane = self.ensure_lane(batch.priority)
        is_persistent = batch.persistent is True
        if not is_persistent:
            self._lane_of_non_persistent(batch)
        own_id = batch.own_ids[0]
        if limits.diverts:
            priority, contents = lane.pending_lane.priority, batch.contents
            full_policy = self._parts.full_policy
            stored_id = full_policy.dead_letter(
                self._destination, priority, is_persistent, contents.properties[0], contents.bodies[0]
            )
            if stored_id is not None:
                return stored_id
        if own_id is not None:
            return own_id
        return self._parts.full_policy.dropped_id(lane.id_prefix)

    # ------------------------------------------------------------------ lanes

    def _lane_of_non_persistent(self, batch: Batch) -> NonPersistentLaneState | FanOut:
        """Return where the messages of a batch that is not persistent go. ArgumentError, SettingsError."""
        priority = checked_non_persistent(batch.persistent, batch.priority)
        return self._open_non_persistent(self._destination, priority)

    def ensure_lane(self, priority: object) -> PersistentLaneState:
        """Return the lane of a priority, made if needed. ArgumentError, SettingsError."""
        checked = checked_priority(priority)
        lane = self._destination.lanes[checked]
        return lane if lane is not None else self._parts.lanes.create(self._destination, checked)


def checked_priority(priority: object) -> int:
    """Return the priority argument of a send. ArgumentError, SettingsError."""
    if type(priority) is not int or priority < 0 or priority >= PRIORITIES:
        raise argument_error(f"priority must be an int from 0 to 9, not {priority!r}", priority, int)
    return priority


def checked_non_persistent(persistent: object, priority: object) -> int:
    """Return the priority of a send that is not persistent. ArgumentError, SettingsError."""
    if persistent is not False:
        raise argument_error(f"persistent must be True or False, not {persistent!r}", persistent, bool)
    return checked_priority(priority)
