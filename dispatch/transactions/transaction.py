"""Transactions: messages that are sent and acknowledged together, all or nothing, over any queues and topics.

Before the commit, no consumer gets the messages that a transaction sends, nor the messages that it acknowledges. The
commit is one record, however large the transaction is: after a crash either all of it has taken effect or nothing. A
prepared transaction survives a crash and waits for its outcome.

Non-persistent messages, and acks of a subscription without a name, have no records. They are in RAM until the commit,
and a crash loses them; so a transaction that has any of them can't be prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import (
    Closed,
    ForebayError,
    StoreFailed,
    StoreFull,
    TransactionError,
    argument_error,
)
from ...store.format.branch import XID_BYTES_MAX, Branch
from ...store.format.contents import Contents
from ...store.format.identity import Identity
from ...store.format.message_properties import encode_properties
from ...store.format.retained import RetainedMessage, encode_retained
from ...store.format.times import split_times
from ...store.journal.fullness import Fullness
from ...store.numbering import NOTHING_TO_SYNC
from ...store.state.branches import Branches
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ...store.writers.transaction_writer import TransactionWriter
from ..admission.duplicate_windows import DuplicateWindows, identity_of
from ..admission.limits import DestinationLimits, Reservation
from ..core.confirmer import Confirmer
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreDestination, LaneState
from ..core.monitor import Monitor
from ..host_properties import Properties
from .staged_acks import HELD_CHARGE_BYTES
from .staged_non_persistent import NonPersistentTarget
from .staged_slices import SLICE_CHARGE_BYTES
from .staging import PropertyStaging, Staging
from .transaction_memory import TransactionMemory

BRANCH_CHARGE_BYTES: Final = 3_072
"""Charged for a transaction without content: its objects and columns."""
IDENTITY_CHARGE_BYTES: Final = 448
"""Charged for a message with deduplication: digests, places here and among undecided ids, and records."""
OPEN: Final = "is open"
PREPARED: Final = "is prepared"
COMMITTED: Final = "was committed"
ROLLED_BACK: Final = "was rolled back"

PUBLIC: Final = ("commit", "is_open", "is_prepared", "prepare", "properties", "rollback", "xid")
"""The names that `dir` of a transaction shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionParts:
    """The parts of an open store that its transactions use."""

    monitor: Monitor
    fullness: Fullness
    checkpointer: Checkpointer
    transaction_writer: TransactionWriter
    branches: Branches
    confirmer: Confirmer
    windows: DuplicateWindows
    """Know which ids were sent, and which ids a transaction without an outcome sends."""
    memory: TransactionMemory
    staging: Staging
    properties: PropertyStaging


class Transaction:
    """A transaction, made by `Forebay.transaction` or found by `Forebay.prepared`. Thread-safe.

    As a context manager, it commits at the end of the block and rolls back if the block raises; a prepared transaction
    is left alone. A clean close of the store rolls back transactions that are open and not prepared. Until then, a
    forgotten transaction keeps its deliveries and data logs. Raises TransactionError if it is used after its end, or
    with another store.
    """

    def __init__(self, parts: TransactionParts, branch: Branch, on_end: Callable[[int], object]) -> None:
        """Make an open transaction. Requires: the lock, and the charge of an empty branch.

        on_end: called with the number of the branch once there is an outcome. Requires: the lock.
        """
        self.parts = parts
        self._branch = branch
        self._on_end = on_end
        self._state = PREPARED if branch.is_prepared else OPEN
        self._sent = 0
        staging = parts.staging
        self._slices = staging.slices(branch)
        self._non_persistent = staging.non_persistent(branch)
        self._acks = staging.acks(branch)
        # Whether the commit deletes a retained message. Even a full disk has room for the messages of such a commit.
        self._replaces = False
        # What the messages have reserved in destinations with limits, until the messages count there or are dropped.
        self._room: dict[DestinationLimits, Reservation] = {}

    @property
    def xid(self) -> bytes | None:
        """The name under which the transaction was prepared; None: it is not prepared."""
        return self._branch.xid or None

    @property
    def name(self) -> str:
        """The name in explanations: the xid, such as b'7', or the number of an open transaction in hexadecimal."""
        return repr(self._branch.xid) if self._branch.is_prepared else f"{self._branch.number:x}"

    @property
    def properties(self) -> Properties:
        """`Forebay.properties` as the commit would leave them.

        Changes here take effect with the commit; the last commit wins. They count under the limit at once. Nothing is
        written before the commit or `prepare`.
        """
        return Properties(self.parts.properties.of(self._branch, self._require_open))

    # ------------------------------------------------------------------ sending

    @property
    def sent(self) -> int:
        """Number of messages that the transaction sends, without duplicates and dropped messages."""
        return self._sent

    def retain(self, name: str, message: RetainedMessage) -> None:
        """Make a message the retained one of a name with the commit. A message without a body deletes the retained one.

        PropertiesFull or StoreFull: nothing has changed.
        """
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN)
            value = encode_retained(message) if message.body else None
            self._replaces |= self.parts.properties.stage_retained(self._branch, name, value)

    def add(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        contents: Contents,
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Add messages; append their ids to `ids`.

        StoreFull: `ids` has the ids of the first messages, which are added.
        """
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN)
            lane.destination.raise_if_not_open()
            for (properties, body), own_id in zip(contents.pairs(), own_ids, strict=True):
                if own_id is not None and lane.destination.has_duplicate_window:
                    self._add_once(lane, timestamp, properties, body)
                    ids.append(own_id)
                    continue
                if own_id is None:
                    own_id, properties = self._identified(lane.id_prefix, properties)
                self._slices.add(lane, timestamp, properties, body)
                self._sent += 1
                ids.append(own_id)

    def _add_once(self, lane: PersistentLaneState, timestamp: int, properties: bytes, body: bytes) -> None:
        """Add a message with deduplication, unless it is stored already or in this transaction."""
        branch = self._branch
        sent = identity_of(lane.destination.number, properties)
        assert sent is not None
        if self._is_known(sent):
            return
        with self.parts.memory.charged_sent(IDENTITY_CHARGE_BYTES):
            self._slices.add(lane, timestamp, properties, body)
        branch.identities.append(sent)
        self.parts.windows.persistent.hold_undecided((sent,), branch.number)
        self._sent += 1

    def _is_known(self, sent: Identity) -> bool:
        """Return whether a message with this identity is stored already, or in this transaction."""
        windows = self.parts.windows
        return windows.persistent.deciding_transaction(sent) == self._branch.number or windows.is_stored(sent)

    def add_non_persistent(
        self,
        target: NonPersistentTarget,
        timestamp: int,
        contents: Contents,
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Add non-persistent messages, as `add` does with persistent ones."""
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN)
            target.destination.raise_if_not_open()
            for (properties, body), own_id in zip(contents.pairs(), own_ids, strict=True):
                sent = None
                if own_id is not None and target.destination.has_duplicate_window:
                    sent = identity_of(target.destination.number, properties)
                    assert sent is not None
                    if self._is_known(sent):
                        ids.append(own_id)
                        continue
                if own_id is None:
                    own_id, properties = self._identified(target.id_prefix, properties)
                self._non_persistent.add(target, timestamp, properties, body, sent)
                self._sent += 1
                ids.append(own_id)

    def write_gathered(self) -> None:
        """Write messages that wait in RAM for a full slice. StoreFull: slices that are written stay written.

        Requires: the lock.
        """
        self._slices.write_all()

    def _identified(self, prefix: str, properties: bytes) -> tuple[str, bytes]:
        """Return a new id for a message, and its properties with that id.

        An ordinary id names the sequence, which is known only at the commit.
        """
        own_id = f"{prefix}{self._branch.number:x}.{self._sent}"
        times, properties = split_times(properties)
        return own_id, times + encode_properties(None, own_id) + properties

    def keep_room(self, limits: DestinationLimits, reservation: Reservation) -> None:
        """Take over the room that its messages have reserved in a destination, unless the transaction has ended."""
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            if self._state == OPEN:
                kept = self._room.setdefault(limits, Reservation())
                kept.messages += reservation.messages
                kept.size_bytes += reservation.size_bytes
                reservation.messages = reservation.size_bytes = 0

    # ------------------------------------------------------------------ acknowledging

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Hold deliveries that are acknowledged with the commit, and park them until then.

        Requires: the lock; they are in flight. For users they stay in flight.
        """
        self._require(OPEN)
        self.parts.memory.charge(HELD_CHARGE_BYTES * len(deliveries))
        self._acks.hold(deliveries)

    def hold_rejected(
        self,
        delivery: Delivery,
        target: PersistentLaneState | None,
        non_persistent_target: NonPersistentTarget | None,
        message: StoredMessage,
    ) -> None:
        """Hold a delivery that becomes a dead letter with the commit, and send the dead letter.

        StoreFull: neither is done. Deduplication does not check the id, because the message was sent before.

        target: where the dead letter goes if it is persistent, otherwise None.
        non_persistent_target: where it goes if it is not persistent, otherwise None.
        message: what is stored there, with its own timestamp.
        Requires: the lock, and that the delivery is in flight.
        """
        self._require(OPEN)
        _, properties, body, timestamp = message
        with self.parts.memory.charged(HELD_CHARGE_BYTES):
            if target is not None:
                self._slices.add(target, timestamp, properties, body or b"", 0)
            if non_persistent_target is not None:
                self._non_persistent.add(non_persistent_target, timestamp, properties, body or b"")
        self._acks.hold_rejected(delivery)

    def holds(self, delivery: Delivery) -> bool:
        """Return whether the outcome decides about this delivery. Requires: the lock."""
        return self._acks.holds(delivery)

    def acknowledged_in(self, lane_number: int) -> SequenceSet:
        """Return the sequences that the transaction acknowledges in a lane, recorded or not. Requires: the lock."""
        return self._acks.acknowledged_in(lane_number)

    def messages_by_destination(self) -> dict[CoreDestination, tuple[int, int]]:
        """Return how many messages the transaction sends and acknowledges, by destination. O(slices + lanes).

        Requires: the lock.
        """
        sent: dict[CoreDestination, int] = {}
        acknowledged: dict[CoreDestination, int] = {}
        for part in self._branch:
            destination = self._slices.lanes[part.lane_number].destination
            sent[destination] = sent.get(destination, 0) + part.messages
        for destination in self._non_persistent.destinations():
            sent[destination] = sent.get(destination, 0) + 1
        for number, lane in self._lanes().items():
            acknowledged[lane.destination] = acknowledged.get(lane.destination, 0) + self.acknowledged_in(number).count
        return {each: (sent.get(each, 0), acknowledged.get(each, 0)) for each in {**sent, **acknowledged}}

    def uses_destinations(self, numbers: Container[int]) -> bool:
        """Return whether the transaction sends to one of these destinations or acknowledges there.

        O(lanes + non-persistent messages).

        Requires: the lock.
        """
        return any(number in numbers for number in self.destination_numbers())

    def destination_numbers(self) -> Iterator[int]:
        """Yield the numbers of its destinations, some of them more than once. Requires: the lock."""
        for lane in (*self._slices.lanes.values(), *self._acks.lanes.values()):
            yield lane.destination.number
        for destination in self._non_persistent.destinations():
            yield destination.number

    def _lanes(self) -> dict[int, LaneState]:
        """Return the lanes of persistent messages that it sends, and all lanes in which it acknowledges, by number."""
        return {**self._slices.lanes, **self._acks.lanes}

    def recover(self, lane: Callable[[int], PersistentLaneState]) -> None:
        """Restore a prepared transaction after an open, and park the messages it acknowledges. Requires: the lock.

        lane: returns the lane of a number.
        """
        self._slices.lanes.update((placed.lane_number, lane(placed.lane_number)) for placed in self._branch)
        self._acks.lanes.update((number, lane(number)) for number in self._branch.acks)
        self._acks.park_again()

    # ------------------------------------------------------------------ outcomes

    def commit(self) -> None:
        """Make all changes take effect now. When the call returns, they are as safe as `sync` promises.

        The commit is one journal record. A transaction that is too large for the index stops all other work of the
        store until it is applied, for 0.3 µs per message. StoreFull: nothing has changed. StoreFailed: the outcome is
        unknown.
        """
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN, PREPARED)
            self._write_last()
            is_done = self.parts.transaction_writer.is_small(self._branch)
            if is_done:
                self._commit(is_large=False)
            journal_end = self.parts.confirmer.journal_end
        if not is_done:
            journal_end = self.parts.checkpointer.at_standstill(self._commit_large)
        self.parts.confirmer.confirm(journal_end)

    def _commit_large(self) -> int:
        """Commit in steps, and make room in the index before each; return the journal's end.

        Requires: what `Checkpointer.at_standstill` does.
        """
        self._require(OPEN, PREPARED)
        self._slices.write_all(keeps=True)
        self.parts.checkpointer.make_index_room_now()
        self._commit(is_large=True)
        return self.parts.confirmer.journal_end

    def _write_last(self) -> None:
        """Write the messages that are still in RAM. They stay in RAM, because they arrive next. Requires: the lock."""
        if self._replaces:
            with self.parts.fullness.accepting_replacements():
                self._slices.write_all(keeps=True)
        else:
            self._slices.write_all(keeps=True)

    def _commit(self, *, is_large: bool) -> None:
        """Write the commit record and apply it. Requires: the lock, and that an interruption breaks the lock."""
        branch = self._branch
        if branch.is_prepared or len(branch) or branch.acks or branch.properties:
            self.parts.transaction_writer.commit(
                branch, self._slices.written_lengths, self.parts.checkpointer.make_index_room if is_large else None
            )
        else:
            self.parts.branches.forget(branch.number)
        for number, holes in branch.holes.items():
            for receiving in self._slices.lanes[number].receiving_lanes():
                receiving.first_sequence += holes  # these sequences have no message, and must not count as enqueued
        self._slices.publish()
        self._acks.commit()
        self._non_persistent.publish()
        self._finish(COMMITTED)

    def rollback(self) -> None:
        """Undo the transaction: sent messages are deleted, and acknowledged messages go back to their places.

        StoreFull, which only the rollback of a prepared transaction raises: nothing has changed.
        """
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN, PREPARED)
            was_prepared = self._state == PREPARED
            any_delayed = False
            if was_prepared:
                self.parts.transaction_writer.rollback(self._branch)
                self._state = ROLLED_BACK
                journal_end = self.parts.confirmer.journal_end
            else:
                any_delayed = self.rollback_open()
        if was_prepared:
            try:
                # Synced before the messages go back to consumers: a power cut must not give them to the transaction.
                self.parts.confirmer.confirm(journal_end)
                with self.parts.monitor.lock:
                    self._acks.free()
                    self._finish(ROLLED_BACK)
            except BaseException as error:
                self.parts.monitor.lock.break_between(error)
                raise
        elif any_delayed:
            # The index has the times of delayed messages and may need a checkpoint.
            self.parts.confirmer.confirm(NOTHING_TO_SYNC)
        self.parts.monitor.run_deferred()

    def rollback_open(self) -> bool:
        """Roll back if not prepared; return whether messages may have been delayed. Requires: the lock."""
        branch = self._branch
        try:
            if len(branch):
                self.parts.transaction_writer.rollback(branch)
        except ForebayError:
            pass  # an open transaction without this record counts as rolled back after a crash
        self.parts.branches.forget(branch.number)
        self._slices.finish()
        self._non_persistent.let_ids_go()
        any_delayed = self._acks.take_back()
        self._finish(ROLLED_BACK)
        return any_delayed

    def prepare(self, xid: bytes) -> None:
        """Make the transaction survive a crash, until this object, or one of `prepared()`, commits it or rolls it back.

        When the call returns, the transaction is as safe as `sync` promises. Its consumers get their prefetch credit
        back. The acknowledged messages are delivered to nobody.

        Args:
            xid: 1 to 255 bytes, unique among the prepared transactions.

        Raises TransactionError if it has sent or acknowledged non-persistent messages, or acknowledged messages of a
        subscription without a name, because these would not survive; it is still open then. StoreFull, StoreFailed,
        Closed.
        """
        if type(xid) is not bytes or not 1 <= len(xid) <= XID_BYTES_MAX:
            raise argument_error(f"an xid must be 1 to {XID_BYTES_MAX} bytes, not {xid!r}", xid, bytes)
        with self.parts.monitor.lock, self.parts.monitor.all_or_broken:
            self._require(OPEN)
            if self.parts.branches.is_prepared(xid):
                raise TransactionError(f"a transaction is prepared as {xid!r} already: end that one, or choose another")
            if len(self._non_persistent) or self._branch.unrecorded_acks:
                raise TransactionError(
                    "a transaction that sends or acknowledges non-persistent messages, or acknowledges messages of a "
                    "subscription without a name, can't be prepared, because a restart would lose that part: "
                    "commit it without, or roll it back"
                )
            self.write_gathered()
            self._slices.leave_ram()
            self.parts.transaction_writer.prepare(self._branch, xid)
            self._state = PREPARED
            self._acks.prepare()
            journal_end = self.parts.confirmer.journal_end
        self.parts.confirmer.confirm(journal_end)

    def _require(self, *states: str) -> None:
        """Raise TransactionError unless it is in one of these states, or Closed. Requires: the lock."""
        if self.parts.monitor.is_closed:
            raise Closed("the store")
        if self._state not in states:
            raise TransactionError(f"the transaction {self._state}: begin another one")

    def _require_open(self) -> None:
        """Raise TransactionError unless the transaction is open. Requires: the lock."""
        self._require(OPEN)

    def _finish(self, outcome: str) -> None:
        """Release everything that the transaction holds, because it has an outcome. Requires: the lock."""
        self.parts.memory.release(self._branch_bytes)
        self._slices.finish()
        self._non_persistent.finish()
        self._acks.finish()
        self._state = outcome
        for limits, kept in self._room.items():
            limits.release(kept)
        self._room.clear()
        self._on_end(self._branch.number)

    # ------------------------------------------------------------------ memory and state

    @property
    def charge_bytes(self) -> int:
        """The charge of the transaction, without that of its deliveries. O(runs acknowledged).

        Requires: the lock.
        """
        return self._branch_bytes + self._slices.charge_bytes + self._non_persistent.charge_bytes

    @property
    def counted_bytes(self) -> int:
        """What `charge_bytes` should be, computed anew. O(messages in RAM). Requires: the lock."""
        return self._branch_bytes + self._slices.counted_bytes + self._non_persistent.counted_bytes

    @property
    def _branch_bytes(self) -> int:
        """The charge for slices in the journal, identities and acknowledged messages."""
        branch = self._branch
        parts = SLICE_CHARGE_BYTES * len(branch) + IDENTITY_CHARGE_BYTES * len(branch.identities)
        return BRANCH_CHARGE_BYTES + parts + HELD_CHARGE_BYTES * branch.acknowledged

    @property
    def held(self) -> list[Delivery]:
        """The deliveries that it acknowledges. They are parked while it is open. Requires: the lock."""
        return self._acks.deliveries

    @property
    def is_open(self) -> bool:
        return self._state == OPEN

    @property
    def is_prepared(self) -> bool:
        return self._state == PREPARED

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._state != OPEN:
            return
        if kind is not None:
            with suppress(StoreFailed):  # the error of the block matters more than an error of the rollback
                self.rollback()
            return
        try:
            self.commit()
        except StoreFull:
            self.rollback()  # the block has ended, so the host does not try again
            raise

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the engine."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"<Transaction {self.name} {self._state}>"
