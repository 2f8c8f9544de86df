"""Facts: what each record of a journal says, as plain rows: one per message, per run of sequences, or per record.

All questions about whole journals are answered from these rows. Bodies are included only on request. The rows come from
the data logs alone, and each data log is sufficient by itself, because it begins with the names of everything that
exists.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Final, NamedTuple, assert_never

from ..disk.disk import File
from ..format.branch import CommitRecord, PrepareRecord, RollbackRecord
from ..format.decode import UnknownRecord, decode
from ..format.host_properties import PropertiesRecord
from ..format.imports import ImportRecord
from ..format.message_properties import decode_properties, own_identity
from ..format.needs_record import NeedsRecord
from ..format.record import (
    ACK,
    DESTINATION,
    KIND_NAMES,
    MESSAGE,
    RELOCATED,
    STATE,
    SUBSCRIBE,
    AckRecord,
    AttestRecord,
    DirectoryRecord,
    Header,
    LostRecord,
    MessageRecord,
    RecordDamaged,
    decode_slice,
)
from ..format.return_record import ReturnRecord
from ..format.seek_record import SeekRecord
from ..format.state_record import (
    DeleteRecord,
    DestinationRecord,
    DropRecord,
    StateRecord,
    SubscribeRecord,
    Subscription,
    UnsubscribeRecord,
)
from ..format.survivors_record import SurvivorsRecord
from ..format.times import times_of
from ..journal.data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, attested_behind
from ..journal.scan import Damage, FoundRecord, scan
from ..message import Headers, HeaderValue, id_prefix
from ..numbering import LANE_MASK, LANE_SHIFT, OFFSET_BITS

STANDS_FOR_ANOTHER: Final = frozenset(("base64", "float", "object"))
"""Keys that mark a JSON object as a value for which JSON has no form; see plain_value."""
RELOCATE: Final = "relocate"
"""Kind of the rows of a copy, whose messages were in an older data log before."""


class Fact(NamedTuple):
    """A row. None: the record does not say it."""

    offset: int
    """Offset of the record. Several rows may share it."""
    length: int
    """Bytes of the whole record."""
    kind: str
    destination: str | None = None
    sequence: int | None = None
    """Sequence of the message, or the first one of the run.

    None in a transaction: the rows of its commit give sequences to its slices.
    """
    message_id: str | None = None
    timestamp: int | None = None
    """When it was sent, in ms since 1970."""
    priority: int | None = None
    expires_at: int | None = None
    transaction: str | None = None
    subscription: str | None = None
    producer: str | None = None
    messages: int | None = None
    """Number of messages for which the row stands."""
    content_bytes: int | None = None
    """Bytes of the message: headers and body."""
    headers: str | None = None
    """Headers on request, as a JSON object: {} if there are none."""
    body: bytes | None = None
    """Body on request."""


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """A part of a data log without rows, because it does not verify or is missing."""

    offset: int
    length: int
    problem: str


_NAMING_KINDS: Final = frozenset((DESTINATION, SUBSCRIBE, STATE))


class DestinationNames:
    """The names of destinations and subscriptions by number, as far as a data log says."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._subscriptions: dict[int, Subscription] = {}

    def add_from(self, record: Header, head: bytes) -> None:
        """Take names from a verified record of any kind. RecordDamaged: it says what is not possible."""
        if record.kind not in _NAMING_KINDS:
            return
        match decode(record, head):
            case DestinationRecord(destination):
                self._names[destination.number] = destination.name
            case SubscribeRecord(subscription):
                self._subscriptions[subscription.number] = subscription
            case StateRecord() as state:
                self._names |= {destination.number: destination.name for destination in state.destinations}
                self._subscriptions |= {subscription.number: subscription for subscription in state.subscriptions}

    def of(self, number: int) -> tuple[str, str | None]:
        """Return (destination, subscription or None); the number itself if there is no name."""
        subscription = self._subscriptions.get(number)
        if subscription is not None:
            return self._names.get(subscription.topic, str(subscription.topic)), subscription.name
        return self._names.get(number, str(number)), None


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """The columns and rows that are wanted."""

    bodies: bool = False
    """Whether rows include headers and bodies; their checksums are then verified."""
    relocated: bool = False
    """Whether copies of relocated messages have rows too; one message has several rows then."""


def facts_of(
    file: File,
    header: DataLogHeader,
    wanted: ScanOptions,
    names: DestinationNames | None = None,
    *,
    offset: int | None = None,
    next_log_sequence: int | None = None,
    is_newest: bool = True,
) -> Iterator[Fact | UnreadableRange]:
    """Yield the rows of one data log in order, and each part without rows. Every byte is verified.

    is_newest: the journal ends in it; if bytes do not verify and no record knew them to be durable, an open would cut
        there. offset, next_log_sequence: begin at that record instead of the first. If bodies are wanted, a message
        whose body does not verify has no row.
    """
    names = DestinationNames() if names is None else names
    durable_end: int | None = None
    for found in scan(file, header, offset=offset, next_log_sequence=next_log_sequence):
        if is_newest and (isinstance(found, Damage) or found.bad_messages):
            if durable_end is None:
                durable_end = attested_behind(file, header, DATA_LOG_HEADER_BYTES)
            if header.data_log << OFFSET_BITS | found.offset >= durable_end:
                return
        if isinstance(found, Damage):
            yield UnreadableRange(found.offset, found.length, found.problem)
            continue
        try:
            names.add_from(found.header, found.head)
            yield from rows_of(found, file, header.store_id, names, wanted)
        except RecordDamaged as damage:
            yield UnreadableRange(found.offset, found.header.length, str(damage))


def rows_of(
    found: FoundRecord, file: File, store_id: bytes, names: DestinationNames, wanted: ScanOptions
) -> Iterator[Fact | UnreadableRange]:
    """Yield the rows of one record whose head verifies. RecordDamaged: it says what is not possible."""
    record = found.header
    if record.kind == MESSAGE:
        if wanted.relocated or not record.flags & RELOCATED:
            yield from _messages(found, file, store_id, names, wanted)
    else:
        yield from _others(found, names)


def _messages(
    found: FoundRecord, file: File, store_id: bytes, names: DestinationNames, wanted: ScanOptions
) -> Iterator[Fact | UnreadableRange]:
    record = found.header
    part = decode_slice(record, found.head)
    destination, _ = names.of(part.destination_number)
    kind = RELOCATE if record.flags & RELOCATED else KIND_NAMES[MESSAGE]
    prefix = id_prefix(store_id, part.destination_number, part.priority)
    transaction = f"{part.first_sequence:x}" if record.is_transactional else None
    begin = found.offset + record.head_bytes
    for index in range(record.entries):
        _, length, properties_bytes = part.table[3 * index : 3 * index + 3]
        if (wanted.bodies and index in found.bad_messages) or properties_bytes > length:
            yield UnreadableRange(found.offset, record.length, f"message {index} of a slice does not verify")
            begin += length
            continue
        content = file.read(begin, length if wanted.bodies else properties_bytes)
        own = decoded_properties(content[:properties_bytes])
        sequence = None if transaction is not None else part.first_sequence + index
        message_id = own.message_id
        if message_id is None and sequence is not None:
            message_id = f"{prefix}{sequence}"
        yield Fact(
            found.offset,
            record.length,
            kind,
            destination,
            sequence,
            message_id,
            part.timestamp,
            part.priority,
            own.expires_at,
            transaction,
            None,
            own.producer,
            1,
            length,
            headers_text(own.headers) if wanted.bodies else None,
            content[properties_bytes:] if wanted.bodies else None,
        )
        begin += length


class DecodedProperties(NamedTuple):
    """The properties of a message, decoded."""

    headers: Headers
    message_id: str | None
    expires_at: int | None = None
    producer: str | None = None


def decoded_properties(properties: bytes) -> DecodedProperties:
    """Return properties decoded. RecordDamaged: the bytes are no properties."""
    headers, message_id = decode_properties(properties)
    expires_at = times_of(properties).expires_at or None
    named = own_identity(properties)
    return DecodedProperties(headers, message_id, expires_at, named[0].decode() or None if named is not None else None)


def headers_text(headers: Headers) -> str:
    """Return headers as a JSON object. Bytes are {"base64": ...}; floats without a JSON number are {"float": "inf"}."""
    return json.dumps({name: plain_value(value) for name, value in headers.items()}, ensure_ascii=False)


def plain_value(value: HeaderValue) -> object:
    """Return a header's value for JSON, without any loss.

    A dict that looks like such a replacement for bytes or a float is wrapped: {"object": {"base64": ...}}.
    """
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        plain = {name: plain_value(item) for name, item in value.items()}
        return {"object": plain} if len(plain) == 1 and not STANDS_FOR_ANOTHER.isdisjoint(plain) else plain
    return value


def _others(found: FoundRecord, names: DestinationNames) -> Iterator[Fact]:
    """Yield the rows of a record without messages: one per run, or one for the record."""
    record = found.header
    kind = KIND_NAMES.get(record.kind, f"kind {record.kind}")
    row = Fact(found.offset, record.length, kind)
    rows: list[Fact] = []
    payload = decode(record, found.head)
    match payload:
        case AckRecord(number, priority, ranges):
            rows = [_run(row, names, number << LANE_SHIFT | priority, *run) for run in ranges]
        case ReturnRecord(number, priority, runs):
            rows = [_run(row, names, number << LANE_SHIFT | priority, run.first, run.messages) for run in runs]
        case CommitRecord() as commit:
            row = row._replace(transaction=f"{commit.number:x}")
            rows = [_run(row, names, placed.lane_number, placed.first, placed.messages) for placed in commit.slices]
            rows += [_run(row._replace(kind=KIND_NAMES[ACK]), names, *run) for run in commit.acks]
        case SurvivorsRecord(_, survivors):
            rows = [_run(row, names, *run) for run in survivors]
        case NeedsRecord(run, _):
            rows = [_run(row, names, *run)]
        case PrepareRecord(branch):
            row = row._replace(transaction=f"{branch.number:x}", messages=branch.messages)
        case RollbackRecord(number):
            row = row._replace(transaction=f"{number:x}")
        case DestinationRecord(named) | SubscribeRecord(named):
            row = _named(row, names, named.number)
        case DeleteRecord(number) | UnsubscribeRecord(number) | SeekRecord(number):
            row = _named(row, names, number)
        case (
            StateRecord()
            | DropRecord()
            | AttestRecord()
            | LostRecord()
            | ImportRecord()
            | PropertiesRecord()
            | DirectoryRecord()
            | UnknownRecord()
        ):
            pass  # it concerns no destination, and no message follows from it
        case MessageRecord():
            raise AssertionError("a slice has a row for each message")
        case _:
            assert_never(payload)
    yield from rows or [row]


def _named(row: Fact, names: DestinationNames, number: int) -> Fact:
    destination, subscription = names.of(number)
    return row._replace(destination=destination, subscription=subscription)


def _run(row: Fact, names: DestinationNames, lane_number: int, first: int, messages: int) -> Fact:
    named = _named(row, names, lane_number >> LANE_SHIFT)
    return named._replace(priority=lane_number & LANE_MASK, sequence=first, messages=messages)
