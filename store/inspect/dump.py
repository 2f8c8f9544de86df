"""Dump: a journal as rows of plain values for JSON, one row for each record and one for each message of a slice.

Bodies are never included, headers only on request. Bytes that do not verify become rows of their own. Nothing is
written, and a process may own the journal meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, assert_never

from ..disk.disk import Disk, File
from ..format.branch import CommitRecord, PrepareRecord, RollbackRecord
from ..format.decode import Payload, UnknownRecord, decode
from ..format.host_properties import Changes, PropertiesRecord
from ..format.imports import ImportRecord
from ..format.message_properties import decode_properties
from ..format.needs_record import NeedsRecord
from ..format.record import (
    KIND_NAMES,
    MESSAGE,
    RELOCATED,
    AckRecord,
    AttestRecord,
    DirectoryRecord,
    LaneRun,
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
from ..format.times import MessageTimes, times_of
from ..journal.data_log import DATA_LOG_HEADER_BYTES, UnknownVersion, decode_data_log_header
from ..journal.scan import Damage, FoundRecord, open_data_logs, scan
from ..journal.sync_mark import read_durable_end
from ..message import HeaderValue, id_prefix
from ..numbering import LANE_MASK, LANE_SHIFT, OFFSET_BITS, OFFSET_MASK, location_text
from .facts import plain_value

Row = dict[str, Any]
NamesByNumber = dict[int, str | Subscription]
"""Number -> the name of a destination, or a subscription."""

_PIECE_BYTES: Final = 1 << 20


def dump(disk: Disk, *, with_headers: bool = False) -> Iterator[Row]:
    """Yield every record in journal order.

    A `kind` of "damaged" has a `problem`; "torn" is a damaged end of the journal, as a crash or a live process may
    leave it; "unseen" is where the dump stopped because a live process kept writing. Offset and length are the
    record's; `bytes` is a message's share of it, headers and body. Destinations are names, or numbers if no earlier
    record has the name. A message that was moved has a row for each place where it still lies, all but the first with
    `relocated`. A message with times has `expires_at` and `due_at` in ms since 1970, or `delay_ms`, which counts from
    the commit of its transaction. Bytes in headers are {"base64": ...}, and floats that JSON has no number for
    {"float": "inf"}. Reads each data log once, and messages with headers a second time.
    """
    names: NamesByNumber = {}
    torn: list[Row] = []
    told, end, is_seen = read_durable_end(disk), 0, True  # read it first: then the journal has everything up to it
    for data_log, file in open_data_logs(disk):
        for row in _rows(data_log, file, names, with_headers):
            place = data_log << OFFSET_BITS | row["offset"]
            end, is_seen = place + row["length"], row["kind"] != "unseen"
            if row["kind"] == "torn" and place < told:
                row |= {"kind": "damaged", "problem": f"{row['problem']}, and was durable"}
                end = told
            if row["kind"] == "torn":
                torn.append(row)
                continue
            # It is not the end of the journal if something lies behind it. A data log that has not begun yet does not
            # count.
            yield from (found | {"kind": "damaged"} for found in torn)
            torn.clear()
            yield row
    yield from torn
    if is_seen and end < told:
        data_log, offset = told >> OFFSET_BITS, told & OFFSET_MASK
        is_there = end >> OFFSET_BITS == data_log
        problem = f"the data log {'ends' if is_there else 'is missing'}, and was durable up to offset {offset}"
        row = {"data_log": data_log, "offset": end & OFFSET_MASK if is_there else 0, "length": 0}
        yield row | {"kind": "damaged", "problem": problem}


def _rows(data_log: int, file: File | OSError, names: NamesByNumber, with_headers: bool) -> Iterator[Row]:
    try:
        if isinstance(file, OSError):
            raise file
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        unseen: list[int] = []
        for found in scan(file, header, on_unseen=unseen.append):
            row: Row = {"data_log": data_log, "offset": found.offset}
            if isinstance(found, Damage):
                kind = "torn" if found.is_tail else "damaged"
                yield row | {"length": found.length, "kind": kind, "problem": found.problem}
            else:
                yield from _record(row, file, found, header.store_id, names, with_headers)
        for offset in unseen:
            problem = "the process that owns it writes faster than it can be verified"
            yield {"data_log": data_log, "offset": offset, "length": 0, "kind": "unseen", "problem": problem}
    except RecordDamaged as damage:
        yield {"data_log": data_log, "offset": 0, "length": 0, "kind": "torn", "problem": str(damage)}
    except UnknownVersion as version:
        yield {"data_log": data_log, "offset": 0, "length": 0, "kind": "damaged", "problem": str(version)}
    except OSError as error:
        problem = f"the data log cannot be read ({error.strerror or error})"
        yield {"data_log": data_log, "offset": 0, "length": 0, "kind": "damaged", "problem": problem}


def _record(
    row: Row, file: File, found: FoundRecord, store_id: bytes, names: NamesByNumber, with_headers: bool
) -> Iterator[Row]:
    record = found.header
    row |= {"length": record.length, "kind": KIND_NAMES.get(record.kind, f"kind {record.kind}")}
    try:
        if record.kind == MESSAGE:
            yield from _messages(row, file, found, store_id, names, with_headers)
        else:
            yield row | _content(decode(record, found.head), names)
    except RecordDamaged as damage:
        yield row | {"kind": "damaged", "problem": str(damage)}


def _messages(
    row: Row, file: File, found: FoundRecord, store_id: bytes, names: NamesByNumber, with_headers: bool
) -> Iterator[Row]:
    part = decode_slice(found.header, found.head)
    row |= {"destination": names.get(part.destination_number, part.destination_number), "priority": part.priority}
    if found.header.flags & RELOCATED:
        row["relocated"] = True
    prefix = id_prefix(store_id, part.destination_number, part.priority)
    first = begin = found.offset + found.header.head_bytes
    content = file.read(first, min(sum(part.lengths), _PIECE_BYTES)) if any(part.table[2::3]) else b""
    for index in range(found.header.entries):
        sequence = part.first_sequence + index
        _, length, properties_bytes = part.table[3 * index : 3 * index + 3]
        message = row | {"sequence": sequence, "message_id": f"{prefix}{sequence}"}
        if found.header.is_transactional:  # the commit gives its sequence; it has an id of its own
            message |= {"sequence": None, "message_id": None, "transaction": f"{part.first_sequence:x}"}
        message |= {"timestamp": part.timestamp, "bytes": length}
        try:
            if index in found.bad_messages or properties_bytes > length:
                raise RecordDamaged("the message does not verify")
            properties = content[begin - first : begin - first + properties_bytes]
            if len(properties) < properties_bytes:
                properties = file.read(begin, properties_bytes)
            headers, own_id = decode_properties(properties)
            message |= _times(times_of(properties))
        except RecordDamaged as damage:
            yield message | {"kind": "damaged", "message_id": None, "problem": str(damage)}
        else:
            if own_id is not None:
                message["message_id"] = own_id
            yield message | {"headers": plain_headers(headers)} if with_headers else message
        begin += length


def _times(times: MessageTimes) -> Row:
    row: Row = {}
    if times.expires_at:
        row["expires_at"] = times.expires_at
    if times.due_at > 0:
        row["due_at"] = times.due_at
    elif times.due_at:
        row["delay_ms"] = -times.due_at
    return row


def plain_headers(headers: dict[str, HeaderValue]) -> Row:
    return {name: plain_value(value) for name, value in headers.items()}


def _content(payload: Payload, names: NamesByNumber) -> Row:
    """Return the columns of a record without messages; learn the names in it."""
    match payload:
        case AckRecord():
            runs = [[first, first + messages - 1] for first, messages in payload.ranges]
            return _named(payload.number, names) | {"priority": payload.priority, "ranges": runs}
        case ReturnRecord():
            counted = [[run.first, run.first + run.messages - 1, run.delivery_count] for run in payload.runs]
            row = _named(payload.number, names) | {"priority": payload.priority, "attempts": counted}
            return row | ({"due_at": [run.due_at or None for run in payload.runs]} if payload.now_ms else {})
        case DeleteRecord() | UnsubscribeRecord():
            return _named(payload.number, names)
        case SeekRecord():
            moved = [{"priority": priority, "first": first} for priority, first in payload.firsts]
            return _named(payload.number, names) | {"moved_to": moved}
        case SubscribeRecord():
            subscription = payload.subscription
            names[subscription.number] = subscription
            return _named(subscription.number, names) | {"selector": subscription.selector}
        case SurvivorsRecord():
            return {"survivors_of": payload.data_log, "survivors": _runs(payload.ranges, names)}
        case NeedsRecord():
            priority = payload.run.lane_number & LANE_MASK
            lanes = [LaneRun(need.subscription << LANE_SHIFT | priority, *need[1:]) for need in payload.needs]
            return {"needs_of": _runs([payload.run], names), "needs": _runs(lanes, names)}
        case DestinationRecord():
            destination = payload.destination
            names[destination.number] = destination.name
            return {"destination": destination.name}
        case StateRecord():
            names |= {destination.number: destination.name for destination in payload.destinations}
            names |= {subscription.number: subscription for subscription in payload.subscriptions}
            return {"data_logs": payload.data_logs} | _properties(payload.properties)
        case DropRecord():
            return {"data_logs": payload.data_logs}
        case CommitRecord():
            messages = sum(placed.messages for placed in payload.slices)
            row = {"transaction": f"{payload.number:x}", "messages": messages, "acks": _runs(payload.acks, names)}
            return row | _properties(payload.properties)
        case PrepareRecord():
            branch = payload.branch
            row = {"transaction": f"{branch.number:x}", "xid": branch.xid.hex(), "messages": branch.messages}
            return row | {"acks": _runs(branch.runs(), names)} | _properties(branch.properties)
        case RollbackRecord():
            return {"transaction": f"{payload.number:x}"}
        case ImportRecord():
            return {"load_id": payload.load_id, "messages": payload.messages, "taken": payload.taken}
        case PropertiesRecord():
            return _properties(payload.changes)
        case AttestRecord():
            return {"durable": location_text(payload.position)}
        case LostRecord() | DirectoryRecord() | UnknownRecord():
            return {}
        case MessageRecord():
            raise AssertionError("a slice is shown message by message")
        case _:
            assert_never(payload)


def _properties(changes: Changes) -> Row:
    """Return the column that names host properties, with the bytes of each; None: the property is deleted."""
    sizes = {name: None if value is None else len(value) for name, value in changes.items()}
    return {"properties": sizes} if sizes else {}


def _named(number: int, names: NamesByNumber) -> Row:
    """Return the columns that name a queue or topic, or a subscription and its topic."""
    name = names.get(number, number)
    if isinstance(name, Subscription):
        return {"destination": names.get(name.topic, name.topic), "subscription": name.name}
    return {"destination": name}


def _runs(runs: Iterable[LaneRun], names: NamesByNumber) -> list[Row]:
    return [
        _named(lane_number >> LANE_SHIFT, names)
        | {"priority": lane_number & LANE_MASK, "range": [first, first + messages - 1]}
        for lane_number, first, messages in runs
    ]
