"""State: what the store must know besides its messages: destinations, next sequences, data logs, subscriptions.

The state record that opens each data log restates it, so that older data logs may be deleted. The root of the metadata
store has it too, with the counters with which a clean open need not read any message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from .branch import Branch, decode_branch, encode_branch
from .host_properties import decode_changes, encode_changes
from .identity import DIGEST_BYTES
from .imports import ImportRecord, decode_import, encode_import
from .record import NUMBERS, RecordDamaged, check_run

Row = TypeVar("Row")

QUEUE: Final = 0
TOPIC: Final = 1
NAME_BYTES_MAX: Final = 255

DESTINATION_HEAD: Final = struct.Struct("<IBB")
"""The beginning of a destination: its number, kind and flags, and the bytes of its name, which follows."""
_COUNT: Final = struct.Struct("<I")
_SEQUENCE: Final = struct.Struct("<Q")
_LANE: Final = struct.Struct("<QQ")
_COUNTED_LANE: Final = struct.Struct("<QQQQ")
_USE: Final = struct.Struct("<IQQII")
SUBSCRIPTION_HEAD: Final = struct.Struct("<IIBBH")
_NUMBERS: Final = struct.Struct("<II")
_BACKLOG: Final = struct.Struct("<QQII")
_MASKED_BLOCK: Final = struct.Struct("<Q64s")
_SECTION: Final = struct.Struct("<BI")
_COUNTED: Final = struct.Struct("<QI")
_COUNTED_RUN: Final = struct.Struct("<QQH")
_DURABLE: Final = 0
_RETENTION: Final = 1
_WINDOW: Final = struct.Struct(f"<I{DIGEST_BYTES}sI")
_DELIVERY_COUNTS_SECTION: Final = 1
_DUPLICATES_SECTION: Final = 2
_IMPORTS_SECTION: Final = 3
_PROPERTIES_SECTION: Final = 4
_HAS_MESSAGE_GROUPS: Final = 0x10
"""Flag beside the kind of a queue: messages with a group were sent to it."""
_IS_TEMPORARY: Final = 0x20
"""Flag beside the kind of a queue or topic: it is temporary."""


class Destination(NamedTuple):
    """The store's row of a queue or topic."""

    number: int
    kind: int
    name: str
    has_message_groups: bool = False
    """Whether a message with a group was ever sent there."""
    is_temporary: bool = False
    """Whether it ends at the latest with the process that made it."""


class DestinationRecord(NamedTuple):
    """A destination record: a queue or topic begins, or something new is known of it."""

    destination: Destination


class DeleteRecord(NamedTuple):
    """A delete record: the queue or topic is deleted with all its messages."""

    number: int
    """The number of the queue or topic."""


def encode_destination(destination: Destination) -> bytes:
    name = destination.name.encode()
    kind = destination.kind | (_HAS_MESSAGE_GROUPS if destination.has_message_groups else 0)
    kind |= _IS_TEMPORARY if destination.is_temporary else 0
    return DESTINATION_HEAD.pack(destination.number, kind, len(name)) + name


def kind_of(flags: int) -> int:
    """Return QUEUE, TOPIC, or an invalid kind, from the byte that has the flags too."""
    return flags & ~(_HAS_MESSAGE_GROUPS | _IS_TEMPORARY)


class Subscription(NamedTuple):
    """A durable subscription. Subscriptions and destinations share one numbering, and no number is used again."""

    number: int
    topic: int
    """Number of its topic."""
    name: str
    selector: str | None
    is_retention: bool = False
    """Whether it has no reader and stands for what the topic's policy keeps beyond all acks."""


class SubscribeRecord(NamedTuple):
    """A subscribe record: a durable subscription begins."""

    subscription: Subscription


class UnsubscribeRecord(NamedTuple):
    """An unsubscribe record: the durable subscription has ended."""

    number: int
    """The number of the subscription."""


def encode_subscription(subscription: Subscription) -> bytes:
    name, selector = subscription.name.encode(), (subscription.selector or "").encode()
    kind = _RETENTION if subscription.is_retention else _DURABLE
    head = SUBSCRIPTION_HEAD.pack(subscription.number, subscription.topic, kind, len(name), len(selector))
    return head + name + selector


class EncodedRows(Generic[Row]):
    """Destinations or subscriptions as a record has them. Each one becomes an object only when it is asked for."""

    __slots__ = ("encoded", "_count", "_decode")

    def __init__(self, count: int, encoded: bytes, decode: Callable[[_Reader], Row]) -> None:
        """Take over encoded rows. decode: takes the next row from a reader."""
        self.encoded = encoded
        self._count = count
        self._decode = decode

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        reader = _Reader(self.encoded)
        return (self._decode(reader) for _ in range(self._count))


def encoded_destinations(count: int, encoded: bytes) -> EncodedRows[Destination]:
    """Return so many destinations, from the joined results of `encode_destination`."""
    return EncodedRows(count, encoded, _Reader.destination)


def encoded_subscriptions(count: int, encoded: bytes) -> EncodedRows[Subscription]:
    """Return so many subscriptions, from the joined results of `encode_subscription`."""
    return EncodedRows(count, encoded, _Reader.subscription)


def encode_unsubscribe(subscription_number: int) -> bytes:
    return _COUNT.pack(subscription_number)


class WindowIds(NamedTuple):
    """A deduplication window in a state record: the joined digests of its ids, oldest first."""

    destination: int
    producer: bytes
    ids: bytes


class CountedRun(NamedTuple):
    """A run of sequences of a lane that were delivered `delivery_count` times."""

    first: int
    last: int
    delivery_count: int


@dataclass(slots=True)
class StateRecord:
    """The content of a state record.

    next_sequences: lane number -> next sequence. data_logs: existing ones, including the newest.
    """

    destinations: list[Destination] | EncodedRows[Destination] = field(default_factory=list)
    next_sequences: dict[int, int] = field(default_factory=dict)
    data_logs: list[int] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    """Prepared branches; in the root open ones too."""
    open_transactions: list[int] = field(default_factory=list)
    """Numbers of transactions that may still be committed, without prepared ones.

    Slices of all others have no effect.
    """
    next_log_sequence: int = 0
    """Log sequence of the record that follows the checkpoint; only in the root."""
    latest_ms: int = 0
    """The store's time at the checkpoint; only in the root."""
    subscriptions: list[Subscription] | EncodedRows[Subscription] = field(default_factory=list)
    """The existing durable subscriptions."""
    next_number: int = 0
    """A number above all that destinations and subscriptions ever had."""
    imports: list[ImportRecord] = field(default_factory=list)
    """Loads that were taken over; the present one is last."""
    duplicates: list[WindowIds] = field(default_factory=list)
    """The last ids of each producer. The producer that sent last is at the end."""
    delivery_counts: dict[int, list[CountedRun]] = field(default_factory=dict)
    """Lane -> delivery counts of returned messages."""
    properties: dict[str, bytes] = field(default_factory=dict)
    """The host's own named values."""


class DropRecord(NamedTuple):
    """A drop record: nothing needs these data logs any more."""

    data_logs: list[int]
    """Their ids."""


class LaneCounts(NamedTuple):
    lane_number: int
    next_sequence: int
    pending_messages: int
    pending_bytes: int


class UseCounts(NamedTuple):
    data_log: int
    pending_messages: int
    pending_bytes: int
    acked_data_logs: tuple[int, ...]
    committed_data_logs: tuple[int, ...] = ()


class SubscriptionBacklog(NamedTuple):
    """The messages of one lane that a durable subscription has not acknowledged, by blocks."""

    lane_number: int
    """subscription number << 4 | priority."""
    pending_bytes: int
    blocks: tuple[tuple[int, int], ...]
    """Runs of block numbers with a pending message."""
    masks: tuple[tuple[int, int], ...]
    """(block number, pending messages) of blocks of which not all are pending."""


def encode_state(state: StateRecord) -> bytes:
    return _encode_facts(state) + b"".join(_encode_sections(state))


def _encode_sections(state: StateRecord) -> Iterator[bytes]:
    """Yield the parts that most stores do not have, behind all others: tag u8, bytes u32, and the content."""
    if state.delivery_counts:
        lanes = [
            _COUNTED.pack(lane_number, len(runs)) + b"".join(_COUNTED_RUN.pack(*run) for run in runs)
            for lane_number, runs in state.delivery_counts.items()
        ]
        yield _SECTION.pack(_DELIVERY_COUNTS_SECTION, _COUNT.size + sum(map(len, lanes)))
        yield _COUNT.pack(len(lanes))
        yield from lanes
    if state.duplicates:
        windows = [
            _WINDOW.pack(window.destination, window.producer, len(window.ids) // DIGEST_BYTES) + window.ids
            for window in state.duplicates
        ]
        yield _SECTION.pack(_DUPLICATES_SECTION, sum(map(len, windows)))
        yield from windows
    if state.imports:
        marks = list(map(encode_import, state.imports))
        yield _SECTION.pack(_IMPORTS_SECTION, sum(map(len, marks)))
        yield from marks
    if state.properties:
        properties = encode_changes(state.properties)
        yield _SECTION.pack(_PROPERTIES_SECTION, len(properties))
        yield properties


def _encode_facts(state: StateRecord) -> bytes:
    return b"".join((*_encode_names(state), *_encode_transactions(state)))


def _encode_names(state: StateRecord) -> Iterator[bytes]:
    yield _COUNT.pack(len(state.destinations))
    if isinstance(state.destinations, EncodedRows):
        yield state.destinations.encoded
    else:
        yield from map(encode_destination, state.destinations)
    yield _COUNT.pack(len(state.next_sequences))
    for lane_number, sequence in state.next_sequences.items():
        yield _LANE.pack(lane_number, sequence)
    yield _COUNT.pack(len(state.data_logs))
    yield struct.pack(f"<{len(state.data_logs)}I", *state.data_logs)
    yield _NUMBERS.pack(state.next_number, len(state.subscriptions))
    if isinstance(state.subscriptions, EncodedRows):
        yield state.subscriptions.encoded
    else:
        yield from map(encode_subscription, state.subscriptions)


def _encode_transactions(state: StateRecord) -> Iterator[bytes]:
    yield _COUNT.pack(len(state.branches))
    yield from map(encode_branch, state.branches)
    yield _COUNT.pack(len(state.open_transactions))
    yield from map(_SEQUENCE.pack, state.open_transactions)


def encode_counts(state: StateRecord, lanes: Iterable[LaneCounts], uses: Iterable[UseCounts]) -> bytes:
    """Encode the parts of a root that go on to change: transactions, and counters. For `encode_root`."""
    packed_lanes = [_COUNTED_LANE.pack(*lane_number) for lane_number in lanes]
    packed_uses = [
        _USE.pack(
            use.data_log,
            use.pending_messages,
            use.pending_bytes,
            len(use.acked_data_logs),
            len(use.committed_data_logs),
        )
        + struct.pack(f"<{len(use.acked_data_logs)}I", *use.acked_data_logs)
        + struct.pack(f"<{len(use.committed_data_logs)}I", *use.committed_data_logs)
        for use in uses
    ]
    return b"".join(
        (
            *_encode_transactions(state),
            _SEQUENCE.pack(state.next_log_sequence),
            _SEQUENCE.pack(state.latest_ms),
            _COUNT.pack(len(packed_lanes)),
            *packed_lanes,
            _COUNT.pack(len(packed_uses)),
            *packed_uses,
        )
    )


def encode_root(state: StateRecord, counts: bytes, backlogs: Iterable[SubscriptionBacklog] = ()) -> bytes:
    """Encode what a checkpoint stores in addition to the blocks. counts: from `encode_counts` for the same state.

    It reads no part of the state that changes, so nobody has to wait for it.
    """
    return b"".join((*_encode_names(state), counts, *_encode_backlogs(list(backlogs)), *_encode_sections(state)))


def _encode_backlogs(backlogs: list[SubscriptionBacklog]) -> Iterator[bytes]:
    yield _COUNT.pack(len(backlogs))
    for backlog in backlogs:
        yield _BACKLOG.pack(backlog.lane_number, backlog.pending_bytes, len(backlog.blocks), len(backlog.masks))
        for run in backlog.blocks:
            yield _LANE.pack(*run)
        for number, mask in backlog.masks:
            yield _MASKED_BLOCK.pack(number, mask.to_bytes(64, "little"))


class _Reader:
    """A cursor over untrusted bytes: RecordDamaged instead of reading beyond them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise RecordDamaged("the state is incomplete")
        self._at += size
        return part

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        return form.unpack(self.take(form.size))

    def count(self) -> int:
        return self.numbers(_COUNT)[0]

    def ids(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.take(4 * count))

    def destination(self) -> Destination:
        number, flags, size = self.numbers(DESTINATION_HEAD)
        kind = kind_of(flags)
        if kind not in (QUEUE, TOPIC):
            raise RecordDamaged(f"a destination of kind {flags} cannot be")
        has_message_groups, is_temporary = bool(flags & _HAS_MESSAGE_GROUPS), bool(flags & _IS_TEMPORARY)
        return Destination(self.number(number), kind, self.name(size), has_message_groups, is_temporary)

    def number(self, number: int) -> int:
        """Read the number of a destination or subscription. RecordDamaged: it is not a valid one."""
        if number >= NUMBERS:
            raise RecordDamaged(f"a destination of number {number} cannot be")
        return number

    def name(self, size: int) -> str:
        """Read a name. RecordDamaged: it has characters that must not go to logs and terminals."""
        name = self.text(size)
        if not name or not name.isprintable():
            raise RecordDamaged("a name is empty or holds a control character")
        return name

    def text(self, size: int) -> str:
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise RecordDamaged("a name is not text") from None

    def subscription(self) -> Subscription:
        number, topic, kind, name_bytes, selector_bytes = self.numbers(SUBSCRIPTION_HEAD)
        if kind not in (_DURABLE, _RETENTION):
            raise RecordDamaged(f"a subscription of kind {kind} cannot be")
        name, selector = self.name(name_bytes), self.text(selector_bytes) or None
        return Subscription(self.number(number), self.number(topic), name, selector, kind == _RETENTION)

    def backlog(self) -> SubscriptionBacklog:
        lane_number, pending_bytes, runs, masks = self.numbers(_BACKLOG)
        blocks = tuple((first, last) for first, last in (self.numbers(_LANE) for _ in range(runs)))
        masked = (_MASKED_BLOCK.unpack(self.take(_MASKED_BLOCK.size)) for _ in range(masks))
        return SubscriptionBacklog(
            lane_number, pending_bytes, blocks, tuple((at, int.from_bytes(mask, "little")) for at, mask in masked)
        )

    def state(self) -> StateRecord:
        destinations = [self.destination() for _ in range(self.count())]
        next_sequences = {}
        for _ in range(self.count()):
            lane_number, sequence = self.numbers(_LANE)
            next_sequences[lane_number] = sequence
        state = StateRecord(destinations, next_sequences, list(self.ids(self.count())))
        next_number, subscriptions = self.numbers(_NUMBERS)
        state.next_number = self.number(next_number)
        state.subscriptions = [self.subscription() for _ in range(subscriptions)]
        state.branches = [self.branch() for _ in range(self.count())]
        state.open_transactions = [self.numbers(_SEQUENCE)[0] for _ in range(self.count())]
        return state

    def sections(self, state: StateRecord) -> None:
        """Read the optional parts up to the end, into the state."""
        while self._at < len(self._data):
            tag, size = self.numbers(_SECTION)
            end = self._at + size
            if tag not in (_DELIVERY_COUNTS_SECTION, _DUPLICATES_SECTION, _IMPORTS_SECTION, _PROPERTIES_SECTION):
                raise RecordDamaged(f"a part {tag} of the state is unknown")
            if tag == _DELIVERY_COUNTS_SECTION:
                state.delivery_counts = dict(self.counted() for _ in range(self.count()))
            while tag == _DUPLICATES_SECTION and self._at < end:
                destination, producer = self.count(), self.take(DIGEST_BYTES)
                state.duplicates.append(WindowIds(destination, producer, self.take(DIGEST_BYTES * self.count())))
            while tag == _IMPORTS_SECTION and self._at < end:
                record, self._at = decode_import(self._data, self._at)
                state.imports.append(record)
            if tag == _PROPERTIES_SECTION:
                state.properties = self.properties()
            if self._at != end:
                raise RecordDamaged("a part of the state has another length than it says")

    def counted(self) -> tuple[int, list[CountedRun]]:
        """Read a lane and the delivery counts of its messages."""
        lane_number, count = self.numbers(_COUNTED)
        data = self.take(_COUNTED_RUN.size * count)
        runs = [CountedRun(*run) for run in _COUNTED_RUN.iter_unpack(data)]
        if any(run.first > run.last or not run.delivery_count for run in runs):
            raise RecordDamaged("a run of returned messages cannot be")
        for run in runs:
            check_run(lane_number, run.first, run.last + 1 - run.first)
        return lane_number, runs

    def properties(self) -> dict[str, bytes]:
        changes, self._at = decode_changes(self._data, self._at)
        return {name: value for name, value in changes.items() if value is not None}

    def branch(self) -> Branch:
        branch, self._at = decode_branch(self._data, self._at)
        return branch


def decode_destination(data: bytes) -> Destination:
    return _Reader(data).destination()


def decode_subscription(data: bytes) -> Subscription:
    return _Reader(data).subscription()


def decode_unsubscribe(data: bytes) -> int:
    """Return the number of the subscription that has ended."""
    return _Reader(data).count()


def encode_delete(destination_number: int) -> bytes:
    return _COUNT.pack(destination_number)


def decode_delete(data: bytes) -> int:
    """Return the number of the queue or topic that was deleted."""
    return _Reader(data).count()


def decode_state(data: bytes) -> StateRecord:
    reader = _Reader(data)
    state = reader.state()
    reader.sections(state)
    return state


def decode_root(data: bytes) -> tuple[StateRecord, list[LaneCounts], list[UseCounts], list[SubscriptionBacklog]]:
    reader = _Reader(data)
    state = reader.state()
    (state.next_log_sequence,) = reader.numbers(_SEQUENCE)
    (state.latest_ms,) = reader.numbers(_SEQUENCE)
    lanes = [LaneCounts(*reader.numbers(_COUNTED_LANE)) for _ in range(reader.count())]
    uses = []
    for _ in range(reader.count()):
        data_log, messages, size, acked, committed = reader.numbers(_USE)
        uses.append(UseCounts(data_log, messages, size, reader.ids(acked), reader.ids(committed)))
    backlogs = [reader.backlog() for _ in range(reader.count())]
    reader.sections(state)
    return state, lanes, uses, backlogs
