"""Transactions: messages sent and acknowledged as one, all or nothing, over any queues and topics of one store.

What it sends is in the journal soon and seen by nobody; what it acknowledges
stays in flight. The commit is one record, however large the transaction:
after a crash either all of it counts or nothing. A prepared transaction
survives and waits for its outcome.

What is not persistent, and what a subscription without a name acknowledges,
is in no record. It stays in RAM until the commit, and no crash leaves any of
it; so a transaction with such a part is not prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Protocol

from ...cache.budget import Holder
from ...cache.charge import OVERHEAD_BYTES
from ...store.errors import (
    ArgumentError,
    Closed,
    ForebayError,
    SettingsError,
    StoreFailed,
    StoreFull,
    TransactionError,
    argument_error,
)
from ...store.format.branch import XID_BYTES_MAX, Branch
from ...store.format.identity import Identity
from ...store.format.properties import encode_properties
from ...store.format.record import SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX
from ...store.format.retained import Retained, encode_retained
from ...store.format.times import Times, has_times, split_times, times_of, with_times
from ...store.locks import require_outside
from ...store.message_store import MessageStore
from ...store.sequence_set import SequenceSet
from ...store.stored_message import StoredMessage
from ..admission.deduplication import DuplicateWindows, identity_of
from ..admission.limits import DestinationLimits, Reservation
from ..core.delays import TimedLanes
from ..core.delivery import Delivery, content_bytes
from ..core.host_properties import Properties
from ..core.lists import TargetArea
from ..core.model import DestinationState, LaneState, PersistentLaneState, Taker, consumer_of, lane_of
from ..core.monitor import Monitor
from ..core.publisher import Postponed, Publisher
from ..core.redelivery import Redelivery
from .staged_properties import StagedProperties

BRANCH_CHARGE_BYTES: Final = 3_072
"""A transaction without content: its objects and columns."""
SLICE_CHARGE_BYTES: Final = 192
"""A slice's place, and its part of the commit record while that is written."""
HELD_CHARGE_BYTES: Final = 112
"""An acknowledged delivery beside its own charge: a number in a set, and in a run of its own at worst. Below a third
of that charge, so that all that may be in flight can be acknowledged in transactions."""
IDENTITY_CHARGE_BYTES: Final = 448
"""A message whose id counts once: its digests, its places here and among the undecided, its part of the records."""
GATHERED_CHARGE_BYTES: Final = 192
"""A message that waits for its slice, beside its content: the tuple, the headers of its parts, a slot."""
KEPT_CHARGE_BYTES: Final = 448
"""A non-persistent message beside its content: the objects around it, its number, and its id if that counts once."""
GATHERED_BYTES_MAX: Final = 1 << 20
"""The most that one transaction gathers in RAM. Beyond it slices are written before they are full."""
ROOM_BYTES: Final = 1 << 16
"""The caches are asked for so much at a time."""
TIMESTAMP_SPREAD_MS: Final = 1_000
"""The messages of a slice have one timestamp: of the first."""

OPEN: Final = "is open"
PREPARED: Final = "is prepared"
COMMITTED: Final = "was committed"
ROLLED_BACK: Final = "was rolled back"

PUBLIC: Final = ("commit", "is_open", "is_prepared", "prepare", "properties", "rollback", "xid")
"""What a transaction has for users."""


class _Gathered:
    """Messages of one lane that become one slice."""

    __slots__ = ("lane", "timestamp", "contents", "content_bytes", "position", "lengths", "is_timed")

    def __init__(self, lane: PersistentLaneState, timestamp: int) -> None:
        self.lane = lane
        self.timestamp = timestamp
        self.contents: list[tuple[bytes, bytes]] = []
        self.content_bytes = 0
        self.position = 0
        """Where the slice lies, once it is written."""
        self.lengths: list[int] = []
        self.is_timed = False
        """Some are due later, or expire."""

    @property
    def charge_bytes(self) -> int:
        return self.content_bytes + GATHERED_CHARGE_BYTES * len(self.contents)


class NonPersistentTarget(Protocol):
    """What takes non-persistent messages: a lane of a queue, or a fan-out of a topic."""

    @property
    def destination(self) -> DestinationState: ...

    @property
    def id_prefix(self) -> str: ...

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int: ...

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: Times) -> int: ...


class _Kept(Postponed):
    """A non-persistent message of a transaction, in RAM until that is committed."""

    def __init__(
        self,
        registry: TransactionRegistry,
        target: NonPersistentTarget,
        timestamp: int,
        properties: bytes,
        body: bytes,
        found: Identity | None,
    ) -> None:
        """found: what of it must not be stored twice."""
        self._registry = registry
        self._target = target
        self.destination = target.destination
        self._timestamp = timestamp
        self._properties = properties
        self._body = body
        self.found = found
        self.charge_bytes = len(properties) + len(body) + KEPT_CHARGE_BYTES

    def commit(self, time_ms: int) -> None:
        """Let its delay and its id count from now on."""
        times = times_of(self._properties)
        self._properties = with_times(self._properties, times.committed(time_ms))
        if self.found is not None:
            self._registry.windows.non_persistent.note(self.found)

    def give(self) -> None:
        """See Postponed."""
        if has_times(self._properties):
            self._target.add_timed(self._timestamp, self._properties, self._body, times_of(self._properties))
        else:
            self._target.add(self._timestamp, self._properties, self._body)

    def release(self) -> None:
        """See Postponed."""
        self._registry.holder.release(self.charge_bytes)

    def reserve_again(self) -> None:
        """See Postponed."""
        if not self._registry.holder.reserve_again(self.charge_bytes):
            self.charge_bytes = 0  # a lane's block has it, which other messages share


class Transaction:
    """Made by `Forebay.transaction`, or found by `Forebay.prepared`. Thread-safe.

    A context manager: it commits when the block ends, rolls back when the
    block raises, and does neither when it was prepared. A clean close of the
    store rolls back what is open and not prepared; until then a forgotten one
    keeps its deliveries and its data logs. TransactionError when it is used
    after its end, or with another store.
    """

    def __init__(self, registry: TransactionRegistry, branch: Branch) -> None:
        """Requires: the lock, and the charge of an empty branch."""
        self.registry = registry
        self._monitor = registry.monitor
        self._store = registry.store
        self._holder = registry.holder
        self._publisher = registry.publisher
        self._redelivery = registry.redelivery
        self._branch = branch
        self._state = PREPARED if branch.is_prepared else OPEN
        self._sent = 0
        self._gathered: dict[PersistentLaneState, _Gathered] = {}
        self._gathered_bytes = 0
        self._written: list[_Gathered] = []
        """Written by a commit, and still in RAM because it is about to arrive."""
        self._held: dict[LaneState, dict[int, Delivery]] = {}
        """Deliveries that are acknowledged with the commit."""
        self._lanes: dict[int, LaneState] = {}
        """Every lane to which it sends or in which it acknowledges, by number."""
        self._kept: list[_Kept] = []
        """The non-persistent messages that it sends."""
        self._kept_bytes = 0
        self._rejected: dict[LaneState, int] = {}
        """How many of what it acknowledges are dead letters then."""
        self._replaces = False
        """What it sends takes the place of a retained message that it deletes: a full disk has room for that."""
        self._room: dict[DestinationLimits, Reservation] = {}
        """(messages, bytes) reserved in queues with limits, until they count as depth or never will."""

    @property
    def xid(self) -> bytes | None:
        """The name that it was prepared under."""
        return self._branch.xid or None

    @property
    def name(self) -> str:
        """What it is called where it is explained: its xid as b'7', or the hexadecimal number of one that is open."""
        return repr(self._branch.xid) if self._branch.is_prepared else f"{self._branch.number:x}"

    @property
    def properties(self) -> Properties:
        """Return `Forebay.properties` as the commit would leave them.

        What is set or deleted here counts with the commit; the last commit wins. Nothing is written before the commit
        or `prepare`, and it counts under the limit at once.
        """
        return Properties(StagedProperties(self._monitor, self._store, self._branch, self._require_open))

    # ------------------------------------------------------------------ sending

    @property
    def sent(self) -> int:
        """Return how many messages it sends, without those that were known or given up."""
        return self._sent

    def retain(self, name: str, message: Retained) -> None:
        """Let a message be the retained one of that name from the commit on; one without a body: none is.

        PropertiesFull, StoreFull: it will not be.
        """
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN)
            value = encode_retained(message) if message.body else None
            self._store.property_records.stage(self._branch, {name: value})
            self._replaces = value is None and self._store.host_properties.is_retained(name)

    def add(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        contents: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Take (properties, body) pairs in; ids gets those of all. StoreFull: ids says how many of the first are in."""
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN)
            lane.destination.raise_if_deleted()
            for (properties, body), own_id in zip(contents, own_ids, strict=True):
                if own_id is not None and lane.destination.is_watched:
                    self._add_once(lane, timestamp, properties, body)
                    ids.append(own_id)
                    continue
                if own_id is None:
                    own_id, properties = self._identified(lane.id_prefix, properties)
                self._gather(lane, timestamp, properties, body)
                self._sent += 1
                ids.append(own_id)

    def _add_once(self, lane: PersistentLaneState, timestamp: int, properties: bytes, body: bytes) -> None:
        """Unless it is stored already, or of this transaction."""
        branch = self._branch
        found = identity_of(lane.destination.number, properties)
        assert found is not None
        duplicates = self._store.duplicates
        if duplicates.decides(found) == branch.number or self.registry.windows.is_stored(found):
            return
        self.registry.charge(IDENTITY_CHARGE_BYTES)
        try:
            self._gather(lane, timestamp, properties, body)
        except BaseException:
            self._holder.release(IDENTITY_CHARGE_BYTES)
            raise
        branch.identities.append(found)
        duplicates.hold((found,), branch.number)
        self._sent += 1

    def add_non_persistent(
        self,
        target: NonPersistentTarget,
        timestamp: int,
        contents: Sequence[tuple[bytes, bytes]],
        own_ids: Sequence[str | None],
        ids: list[str],
    ) -> None:
        """Take in messages that are not persistent; otherwise as `add`."""
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN)
            target.destination.raise_if_deleted()
            for (properties, body), own_id in zip(contents, own_ids, strict=True):
                found = None
                if own_id is not None and target.destination.is_watched:
                    found = identity_of(target.destination.number, properties)
                    assert found is not None
                    is_own = self._store.duplicates.decides(found) == self._branch.number
                    if is_own or self.registry.windows.is_stored(found):
                        ids.append(own_id)
                        continue
                if own_id is None:
                    own_id, properties = self._identified(target.id_prefix, properties)
                self._keep(target, timestamp, properties, body, found)
                self._sent += 1
                ids.append(own_id)

    def _keep(
        self, target: NonPersistentTarget, timestamp: int, properties: bytes, body: bytes, found: Identity | None = None
    ) -> None:
        kept = _Kept(self.registry, target, timestamp, properties, body, found)
        self.registry.charge(kept.charge_bytes)
        self._kept.append(kept)
        self._kept_bytes += kept.charge_bytes
        if found is not None:
            self._store.duplicates.hold((found,), self._branch.number)

    def _identified(self, prefix: str, properties: bytes) -> tuple[str, bytes]:
        """Return an id for a message, and its properties with that: its sequence comes with the commit."""
        own_id = f"{prefix}{self._branch.number:x}.{self._sent}"
        times, properties = split_times(properties)
        return own_id, times + encode_properties(None, own_id) + properties

    def keep_room(self, admission: DestinationLimits, reservation: Reservation) -> None:
        """Take the reservation of what was just sent, so that it ends with the transaction, if that has not ended."""
        with self._monitor.lock, self._monitor.whole:
            if self._state == OPEN:
                kept = self._room.setdefault(admission, Reservation())
                kept.messages += reservation.messages
                kept.size_bytes += reservation.size_bytes
                reservation.messages = reservation.size_bytes = 0

    def _gather(
        self,
        lane: PersistentLaneState,
        timestamp: int,
        properties: bytes,
        body: bytes,
        spread_ms: int = TIMESTAMP_SPREAD_MS,
    ) -> None:
        """spread_ms: the message may have a timestamp so much older than its own."""
        size = len(properties) + len(body)
        self._lanes[lane.pending_lane.number] = lane
        gathered = self._gathered.get(lane)
        if gathered is not None and (
            len(gathered.contents) >= SLICE_MESSAGES_MAX
            or gathered.content_bytes + size > SLICE_CONTENT_BYTES_MAX
            or not 0 <= timestamp - gathered.timestamp <= spread_ms
        ):
            self._write(gathered)
            gathered = None
        charge = size + GATHERED_CHARGE_BYTES
        if self._gathered_bytes + charge > GATHERED_BYTES_MAX or not self.registry.reserve(charge):
            # No room to wait for others: what came before goes first.
            self._write_all()
            alone = _Gathered(lane, timestamp)
            alone.contents.append((properties, body))
            alone.is_timed = has_times(properties)
            self._write_slice(alone)
            return
        if gathered is None:
            gathered = self._gathered[lane] = _Gathered(lane, timestamp)
        gathered.contents.append((properties, body))
        gathered.is_timed = gathered.is_timed or has_times(properties)
        gathered.content_bytes += size
        self._gathered_bytes += charge

    def _write_all(self, *, keeps: bool = False) -> None:
        """keeps: their messages stay in RAM, because they arrive next."""
        for gathered in list(self._gathered.values()):
            self._write(gathered, keeps=keeps)

    def _write(self, gathered: _Gathered, *, keeps: bool = False) -> None:
        self._write_slice(gathered)
        del self._gathered[gathered.lane]
        if keeps:
            self._written.append(gathered)
        else:
            self._let_go(gathered)

    def _let_go(self, gathered: _Gathered) -> None:
        self._holder.release(gathered.charge_bytes)
        self._gathered_bytes -= gathered.charge_bytes

    def _write_slice(self, gathered: _Gathered) -> None:
        branch = self._branch
        self.registry.charge(SLICE_CHARGE_BYTES)
        try:
            gathered.lengths = self._store.transactions.append_slice(
                branch,
                gathered.lane.destination_lane,
                gathered.timestamp,
                gathered.contents,
                is_timed=gathered.is_timed,
            )
        except BaseException:
            self._holder.release(SLICE_CHARGE_BYTES)
            raise
        gathered.position = branch.last_position

    # ------------------------------------------------------------------ acknowledging

    def hold(self, deliveries: Sequence[Delivery]) -> None:
        """Hold deliveries that are acknowledged with the commit, and in flight until then.

        Requires: the lock; they are in flight.
        """
        self._require(OPEN)
        self.registry.charge(HELD_CHARGE_BYTES * len(deliveries))
        self._hold(deliveries)

    def hold_rejected(
        self,
        delivery: Delivery,
        target: PersistentLaneState | None,
        non_persistent_target: NonPersistentTarget | None,
        message: StoredMessage,
    ) -> None:
        """Hold a delivery that is a dead letter from the commit on, and send that; StoreFull: neither.

        target, non_persistent_target: where dead letters go that are persistent, and that are not; and message: what is
        stored there, with its own timestamp. It is a message that was sent before, so no id is looked up. Requires:
        the lock; the delivery is in flight.
        """
        self._require(OPEN)
        self.registry.charge(HELD_CHARGE_BYTES)
        _, properties, body, timestamp = message
        try:
            if target is not None:
                self._gather(target, timestamp, properties, body or b"", 0)
            if non_persistent_target is not None:
                self._keep(non_persistent_target, timestamp, properties, body or b"")
        except BaseException:
            self._holder.release(HELD_CHARGE_BYTES)
            raise
        self._hold((delivery,))
        self._rejected[lane_of(delivery)] = self._rejected.get(lane_of(delivery), 0) + 1

    def _hold(self, deliveries: Sequence[Delivery]) -> None:
        """Requires: they are charged."""
        for delivery in deliveries:
            lane, sequence = lane_of(delivery), delivery.sequence
            del lane.in_flight[sequence]
            lane.parked.add(sequence, sequence)
            self._held.setdefault(lane, {})[sequence] = delivery
            self._lanes[lane.pending_lane.number] = lane
            self._branch.acknowledge(lane.pending_lane.number, sequence, sequence, is_recorded=lane.is_recorded)

    def holds(self, delivery: Delivery) -> bool:
        """Return whether its outcome decides about this delivery. Requires: the lock."""
        return self._branch.acknowledges(lane_of(delivery).pending_lane.number, delivery.sequence)

    def acknowledged_in(self, lane_number: int) -> SequenceSet:
        """Return what it acknowledges in a lane, recorded or not. Requires: the lock."""
        branch = self._branch
        return branch.acks.get(lane_number) or branch.unrecorded_acks.get(lane_number) or SequenceSet()

    def messages_by_destination(self) -> dict[DestinationState, tuple[int, int]]:
        """Return how many messages it sent to each destination, and how many it acknowledges there. O(slices + lanes).

        Requires: the lock.
        """
        sent: dict[DestinationState, int] = {}
        acknowledged: dict[DestinationState, int] = {}
        for part in self._branch:
            queue = self._lanes[part.lane_number].destination
            sent[queue] = sent.get(queue, 0) + part.messages
        for kept in self._kept:
            sent[kept.destination] = sent.get(kept.destination, 0) + 1
        for number, lane in self._lanes.items():
            acknowledged[lane.destination] = acknowledged.get(lane.destination, 0) + self.acknowledged_in(number).count
        return {queue: (sent.get(queue, 0), acknowledged.get(queue, 0)) for queue in {**sent, **acknowledged}}

    def concerns(self, numbers: Container[int]) -> bool:
        """Return whether it sent to one of these, or acknowledged there. O(lanes + what is not persistent).

        Requires: the lock.
        """
        return any(number in numbers for number in self.destination_numbers())

    def destination_numbers(self) -> Iterator[int]:
        """Yield the numbers of those to which it sent, or where it acknowledged; some twice. Requires: the lock."""
        for lane in self._lanes.values():
            yield lane.destination.number
        for kept in self._kept:
            yield kept.destination.number

    def add_lanes(self, lanes: Iterable[LaneState]) -> None:
        """Learn of lanes in which it sends or acknowledges: it is found again after a restart. Requires: the lock."""
        self._lanes.update((lane.pending_lane.number, lane) for lane in lanes)

    def _take_back(self, delivery: Delivery) -> None:
        """Take a delivery back: it is in flight as if nothing had been."""
        lane_of(delivery).parked.remove(delivery.sequence, delivery.sequence)
        lane_of(delivery).in_flight[delivery.sequence] = delivery

    def _settle_held(self) -> None:
        """Take the deliveries from their consumers with their charge."""
        dispatch_area = self.registry.target_area.dispatch_area
        for held in self._held.values():
            for delivery in held.values():
                lane_of(delivery).in_flight[delivery.sequence] = delivery
                dispatch_area.settle(delivery)
                consumer_of(delivery).on_credit()

    # ------------------------------------------------------------------ outcomes

    def commit(self) -> None:
        """Make all of it count from now on; as safe as `sync` promises when this returns.

        One journal record. A transaction too large for the index at once
        stops all other work of the store until it is in: 0.3 µs a message.
        StoreFull: it is as it was. StoreFailed: the outcome is unknown.
        """
        store = self._store
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN, PREPARED)
            self._write_last()
            is_done = store.transactions.is_small(self._branch)
            if is_done:
                self._commit(is_large=False)
            position = store.position
        if not is_done:
            require_outside(self._monitor.lock, store.sync_lock)
            with store.checkpoint_lock, store.sync_lock, self._monitor.lock, self._monitor.whole:
                self._require(OPEN, PREPARED)
                self._write_all(keeps=True)
                store.make_index_room(store.position, store.next_sequence)
                self._commit(is_large=True)
                position = store.position
        self._publisher.confirm(position)

    def _write_last(self) -> None:
        """Write what is still in RAM, and keep it there, because it arrives next. Requires: the lock."""
        if self._replaces:
            with self._store.journal.accepting_replacements():
                self._write_all(keeps=True)
        else:
            self._write_all(keeps=True)

    def _commit(self, *, is_large: bool) -> None:
        """Let all of it count. Requires: the lock, and that what breaks in breaks the lock."""
        branch = self._branch
        store = self._store
        if branch.is_prepared or len(branch) or branch.acks or branch.properties:
            lengths = {written.position: written.lengths for written in self._written}
            store.transactions.commit(branch, lengths, store.make_index_room if is_large else None)
        else:
            store.branches.forget(branch.number)
        store.adds += branch.messages
        for number, holes in branch.holes.items():
            for reader in self._lanes[number].readers():
                reader.first_sequence += holes  # nobody enqueued them
        self._arrive()
        self._count_acks()
        self._settle_held()
        self._give_kept()
        self._end(COMMITTED)

    def _count_acks(self) -> None:
        """Let what it acknowledges be acknowledged: in lanes, distributions and limits, which did not know it yet."""
        branch = self._branch
        for number, first, messages in branch.unrecorded_runs():
            lane = self._lanes[number]
            lane.backing_store.acknowledge(lane.pending_lane, first, first + messages - 1)
        for number, first, messages in (*branch.runs(), *branch.unrecorded_runs()):
            lane = self._lanes[number]
            lane.acknowledged += messages
            lane.parked.remove(first, first + messages - 1)
            lane.destination.distribution.settled(lane, first, messages)
            if lane.delivery_counts is not None:
                lane.forget_attempts(first, first + messages - 1)
            if lane.destination.admission is not None:
                lane.destination.admission.room_came()
        for rejected_from, rejected in self._rejected.items():
            rejected_from.acknowledged -= rejected
            rejected_from.destination.dead_lettered += rejected

    def _give_kept(self) -> None:
        """Hand over what is not persistent, with its charge."""
        time_ms = self._store.steady.now_ms() if self._kept else 0
        self._let_ids_go()
        for kept in self._kept:
            kept.commit(time_ms)
        given, self._kept, self._kept_bytes = self._kept, [], 0
        self._publisher.give(given)

    def _let_ids_go(self) -> None:
        self._store.duplicates.let_go([kept.found for kept in self._kept if kept.found is not None])

    def _arrive(self) -> None:
        """Let the transaction's messages be dispatched.

        Those still in RAM arrive as if just sent, the others as places in the journal.
        """
        written = {gathered.position: gathered for gathered in self._written}
        unloaded: dict[LaneState, range] = {}
        lane: LaneState | None = None
        for number, first, position, messages, is_timed in self._branch.committed():
            if lane is None or lane.pending_lane.number != number:
                lane = self._lanes[number]
            gathered = written.get(position)
            if is_timed:
                self.registry.timed.note(lane)
                if gathered is not None:
                    self._let_go(gathered)
            if gathered is None or is_timed:
                known = unloaded.get(lane)
                unloaded[lane] = range(first if known is None else known.start, first + messages)
                continue
            if lane in unloaded:
                self._publisher.publish_when_durable(lane, unloaded.pop(lane))
            self._let_go(gathered)
            timestamp = gathered.timestamp
            self._publisher.publish_when_durable(
                lane,
                [
                    (sequence, properties, body, timestamp)
                    for sequence, (properties, body) in enumerate(gathered.contents, first)
                ],
            )
        for lane, sequences in unloaded.items():
            self._publisher.publish_when_durable(lane, sequences)
        self._written.clear()

    def rollback(self) -> None:
        """Undo all of it: what it sent is gone, what it acknowledged goes back to its place.

        Never fails for want of space, but when it was prepared: then StoreFull leaves it as it was.
        """
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN, PREPARED)
            was_prepared = self._state == PREPARED
            is_put_off = False
            if was_prepared:
                self._store.transactions.rollback(self._branch)
                self._state = ROLLED_BACK
                position = self._store.position
            else:
                is_put_off = self.rollback_open()
        if was_prepared:
            try:
                # What comes back to the consumers must not be a transaction's again after a power cut.
                self._publisher.confirm(position)
                with self._monitor.lock:
                    self._release_acks()
                    self._end(ROLLED_BACK)
            except BaseException as error:
                self._monitor.lock.break_between(error)
                raise
        elif is_put_off:
            self._publisher.confirm(0)  # what waits for its time is in the index, which may want a checkpoint
        self._monitor.run_deferred()

    def rollback_open(self) -> bool:
        """Return whether something may have been put off. Requires: the lock; it is not prepared."""
        branch = self._branch
        try:
            if len(branch):
                self._store.transactions.rollback(branch)
        except ForebayError:
            pass  # a crash would leave no more of it than this does
        self._store.branches.forget(branch.number)
        for gathered in [*self._gathered.values(), *self._written]:
            self._let_go(gathered)
        self._let_ids_go()
        returned = self.held
        for delivery in returned:
            self._take_back(delivery)
        is_put_off = self._redelivery.take_back(returned, 0.0)
        for delivery in returned:
            consumer_of(delivery).on_credit()
        self._end(ROLLED_BACK)
        return is_put_off

    def _release_acks(self) -> None:
        """Free the messages again that a prepared branch wanted gone."""
        for number, first, messages in self._branch.runs():
            lane = self._lanes[number]
            lane.parked.remove(first, first + messages - 1)
            self._redelivery.release(lane, first, first + messages - 1)

    def prepare(self, xid: bytes) -> None:
        """Make it survive whatever comes, until somebody commits it or rolls it back: this object, or `prepared()`.

        xid: 1 to 255 bytes, unique among the prepared ones. Its consumers
        have their prefetch credit back; nobody is delivered what it
        acknowledged. As safe as `sync` promises when this returns.
        TransactionError, and it is still open, where it has sent or
        acknowledged what is not persistent, or acknowledged what a
        subscription without a name got: no restart would leave that.
        """
        if type(xid) is not bytes or not 1 <= len(xid) <= XID_BYTES_MAX:
            raise argument_error(f"an xid must be 1 to {XID_BYTES_MAX} bytes, not {xid!r}", xid, bytes)
        with self._monitor.lock, self._monitor.whole:
            self._require(OPEN)
            if self._store.branches.is_prepared(xid):
                raise TransactionError(f"a transaction is prepared as {xid!r} already: end that one, or choose another")
            if self._kept or self._branch.unrecorded_acks:
                raise TransactionError(
                    "a transaction that sends or acknowledges non-persistent messages, or acknowledges messages of a "
                    "subscription without a name, can't be prepared, because a restart would lose that part: "
                    "commit it without, or roll it back"
                )
            self._write_all()
            for written in self._written:
                self._let_go(written)
            self._written.clear()
            self._store.transactions.prepare(self._branch, xid)
            self._state = PREPARED
            self._redelivery.count(self.held)
            self._settle_held()
            self._held.clear()
            position = self._store.position
        self._publisher.confirm(position)

    def _require(self, *states: str) -> None:
        """Requires: the lock."""
        if self._monitor.is_closed:
            raise Closed("the store")
        if self._state not in states:
            raise TransactionError(f"the transaction {self._state}: begin another one")

    def _require_open(self) -> None:
        """Requires: the lock."""
        self._require(OPEN)

    def _end(self, state: str) -> None:
        self._holder.release(self.charge_bytes)
        self._state = state
        self._kept.clear()
        self._kept_bytes = 0
        self._gathered.clear()
        self._written.clear()
        self._held.clear()
        self._lanes.clear()
        self._rejected.clear()
        for admission, kept in self._room.items():
            admission.release(kept)
        self._room.clear()
        del self.registry.undecided[self._branch.number]

    # ------------------------------------------------------------------ the rest

    @property
    def charge_bytes(self) -> int:
        """Return what the transaction holds of the budget, but for what is in flight. O(runs acknowledged).

        Requires: the lock.
        """
        return self._branch_bytes + self._gathered_bytes + self._kept_bytes

    @property
    def counted_bytes(self) -> int:
        """Return what `charge_bytes` should be, from the messages that are in RAM. O(those). Requires: the lock."""
        contents = [content for found in [*self._gathered.values(), *self._written] for content in found.contents]
        gathered_bytes = sum(len(properties) + len(body) for properties, body in contents)
        kept_bytes = sum(kept.charge_bytes for kept in self._kept)
        return self._branch_bytes + gathered_bytes + GATHERED_CHARGE_BYTES * len(contents) + kept_bytes

    @property
    def _branch_bytes(self) -> int:
        """What is charged for what is in the journal of it, or is acknowledged."""
        branch = self._branch
        parts = SLICE_CHARGE_BYTES * len(branch) + IDENTITY_CHARGE_BYTES * len(branch.identities)
        return BRANCH_CHARGE_BYTES + parts + HELD_CHARGE_BYTES * branch.acknowledged

    @property
    def held(self) -> list[Delivery]:
        """In flight for as long as it is open. Requires: the lock."""
        return [delivery for held in self._held.values() for delivery in held.values()]

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
            with suppress(StoreFailed):  # what was raised counts
                self.rollback()
            return
        try:
            self.commit()
        except StoreFull:
            self.rollback()  # nobody holds it any more who could try again
            raise

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the engine."""
        return list(PUBLIC)

    def __repr__(self) -> str:
        return f"<Transaction {self.name} {self._state}>"


class TransactionRegistry:
    """The state lock guards it; every method but `begin` requires it held."""

    def __init__(
        self,
        monitor: Monitor,
        store: MessageStore,
        target_area: TargetArea,
        publisher: Publisher,
        redelivery: Redelivery,
        timed: TimedLanes,
        windows: DuplicateWindows,
        holder: Holder,
    ) -> None:
        self.monitor = monitor
        self.store = store
        self.target_area = target_area
        self.publisher = publisher
        self.redelivery = redelivery
        self.timed = timed
        self.windows = windows
        self.holder = holder
        self.undecided: dict[int, Transaction] = {}
        """By number, in the order in which they were begun."""

    def begin(self) -> Transaction:
        """Begin a transaction. StoreFull when memory_limit has no room for another."""
        with self.monitor.lock, self.monitor.whole:
            self.monitor.raise_if_closed()
            self.charge(BRANCH_CHARGE_BYTES)
            return self._add(self.store.transactions.begin())

    def _add(self, branch: Branch) -> Transaction:
        transaction = self.undecided[branch.number] = Transaction(self, branch)
        return transaction

    def recover(self, lane: Callable[[int], LaneState]) -> None:
        """Take up the branches that survived; what they acknowledged is delivered to nobody until their outcome.

        lane: of a queue, topic, or durable subscription, by its number. SettingsError when memory_limit is smaller
        than they need.
        """
        for branch in self.store.branches.prepared:
            transaction = self._add(branch)
            charge = transaction.charge_bytes
            if not self.holder.reserve(charge):
                raise SettingsError(
                    f"memory_limit has no room for the {charge} bytes of a prepared transaction: raise it"
                )
            transaction.add_lanes(lane(number) for number in {*branch.acks, *(placed.lane_number for placed in branch)})
            for number, first, messages in branch.runs():
                lane(number).parked.add(first, first + messages - 1)

    def reserve(self, charge_bytes: int) -> bool:
        """Reserve from what the caches have if need be: a larger slice costs less than many small ones."""
        if self.holder.reserve(charge_bytes):
            return True
        self.target_area.make_room(max(charge_bytes, ROOM_BYTES), None)
        return self.holder.reserve(charge_bytes)

    def charge(self, charge_bytes: int) -> None:
        """Reserve, or raise StoreFull. Also while the limit falls: what is in flight may end with a transaction."""
        if not self.reserve(charge_bytes) and not self.holder.reserve_last(charge_bytes):
            raise StoreFull(charge_bytes, max(self.target_area.budget.free_bytes, 0), "memory_limit")

    def checked(self, transaction: object) -> Transaction:
        """Return what a call was given as its transaction. ArgumentError, TransactionError. The lock may be free."""
        if type(transaction) is not Transaction:
            raise ArgumentError(f"a transaction is expected, not {type(transaction).__name__}")
        if transaction.registry is not self:
            raise TransactionError("the transaction belongs to another store")
        return transaction

    def concern(self, numbers: Container[int]) -> bool:
        """Return whether one without an outcome sent to one of these, or acknowledged there. O(transactions)."""
        return any(transaction.concerns(numbers) for transaction in self.undecided.values())

    def destination_numbers(self) -> set[int]:
        """Return the numbers of those to which one without an outcome sent, or where it acknowledged."""
        return {number for transaction in self.undecided.values() for number in transaction.destination_numbers()}

    def raise_if_held(self, delivery: Delivery) -> None:
        """TransactionError when the message was acknowledged in a transaction."""
        if any(transaction.holds(delivery) for transaction in self.undecided.values()):
            raise TransactionError("the message was acknowledged in a transaction, which decides about it")

    def held_by(self, consumer: Taker) -> list[Delivery]:
        """Return the deliveries of a consumer that open transactions hold. O(held)."""
        return [
            delivery
            for transaction in self.undecided.values()
            for delivery in transaction.held
            if consumer_of(delivery) is consumer
        ]

    def prepared(self) -> list[Transaction]:
        return [transaction for transaction in self.undecided.values() if transaction.is_prepared]

    def close(self) -> None:
        """Roll back all that are not prepared."""
        for transaction in list(self.undecided.values()):
            if transaction.is_open:
                transaction.rollback_open()

    def audit(self) -> tuple[int, int]:
        """(charge of the transactions, charge of the deliveries that are in flight with them), from the live ones."""
        held = [delivery for transaction in self.undecided.values() for delivery in transaction.held]
        bodies = sum(map(content_bytes, held))
        own = sum(message.charge_bytes for _, message in self.publisher.postponed)
        own += sum(transaction.counted_bytes for transaction in self.undecided.values())
        return own, bodies + OVERHEAD_BYTES * len(held)
