"""Decoding of records: the payload of each kind is a value of its own type, named after the kind.

So a `return` record is a ReturnRecord, a `survivors` record is a SurvivorsRecord, and so on for all of KIND_NAMES. A
kind has its type and bytes in the file of that name in this package, with these exceptions: commit, prepare and
rollback records are in branch.py; destination, delete, subscribe, unsubscribe and drop records are in state_record.py,
because a state record restates them; import records are in imports.py, properties records in host_properties.py; other
kinds without a file are in record.py. All code that reads whole journals matches over these types: replay, dump, and
the facts for offline queries.
"""

from __future__ import annotations

from typing import NamedTuple

from .branch import CommitRecord, PrepareRecord, RollbackRecord, decode_branch, decode_commit, decode_rollback
from .host_properties import PropertiesRecord, decode_properties_record
from .imports import ImportRecord, decode_import
from .needs_record import NeedsRecord, decode_needs
from .record import (
    ACK,
    ATTEST,
    COMMIT,
    DELETE,
    DESTINATION,
    DIRECTORY,
    DROP,
    HEADER_BYTES,
    IMPORT,
    KIND_NAMES,
    LOST,
    MESSAGE,
    NEEDS,
    PREPARE,
    PROPERTIES,
    RETURN,
    ROLLBACK,
    SEEK,
    STATE,
    SUBSCRIBE,
    SURVIVORS,
    UNSUBSCRIBE,
    AckRecord,
    AttestRecord,
    DirectoryRecord,
    Header,
    LostRecord,
    MessageRecord,
    decode_ack,
    decode_slice,
)
from .return_record import ReturnRecord, decode_return
from .seek_record import SeekRecord, decode_seek
from .state_record import (
    DeleteRecord,
    DestinationRecord,
    DropRecord,
    StateRecord,
    SubscribeRecord,
    UnsubscribeRecord,
    decode_delete,
    decode_destination,
    decode_state,
    decode_subscription,
    decode_unsubscribe,
)
from .survivors_record import SurvivorsRecord, decode_survivors


class UnknownRecord(NamedTuple):
    """A record of a kind that only a newer version knows."""


Payload = (
    MessageRecord
    | AckRecord
    | ReturnRecord
    | DestinationRecord
    | StateRecord
    | AttestRecord
    | DropRecord
    | CommitRecord
    | PrepareRecord
    | RollbackRecord
    | SurvivorsRecord
    | SubscribeRecord
    | UnsubscribeRecord
    | SeekRecord
    | LostRecord
    | DeleteRecord
    | ImportRecord
    | NeedsRecord
    | PropertiesRecord
    | DirectoryRecord
    | UnknownRecord
)
"""The payload of a record. The payload of a message record is called a slice in text."""


def decode(header: Header, head: bytes) -> Payload:
    """Return the payload of a record whose head was verified. RecordDamaged: it says what is not possible."""
    kind = header.kind
    if kind == MESSAGE:
        return decode_slice(header, head)
    if kind == ACK:
        return decode_ack(header, head)
    if kind == RETURN:
        return decode_return(header, head)
    if kind == SURVIVORS:
        return decode_survivors(header, head)
    if kind == NEEDS:
        return decode_needs(header, head)
    if kind == SEEK:
        return decode_seek(header, head)
    if kind == ATTEST:
        return AttestRecord(header.durable)
    if kind == LOST:
        return LostRecord()
    return _decode_payload(kind, head[HEADER_BYTES:])


def _decode_payload(kind: int, payload: bytes) -> Payload:
    """Return the payload of a record whose kind alone tells how to read it."""
    if kind == STATE:
        return decode_state(payload)
    if kind == DROP:
        return DropRecord(decode_state(payload).data_logs)
    if kind == COMMIT:
        return decode_commit(payload)
    if kind == PREPARE:
        return PrepareRecord(decode_branch(payload)[0])
    if kind == ROLLBACK:
        return RollbackRecord(decode_rollback(payload))
    if kind == DESTINATION:
        return DestinationRecord(decode_destination(payload))
    if kind == DELETE:
        return DeleteRecord(decode_delete(payload))
    if kind == SUBSCRIBE:
        return SubscribeRecord(decode_subscription(payload))
    if kind == UNSUBSCRIBE:
        return UnsubscribeRecord(decode_unsubscribe(payload))
    if kind == IMPORT:
        return decode_import(payload)[0]
    if kind == PROPERTIES:
        return decode_properties_record(payload)
    if kind == DIRECTORY:
        return DirectoryRecord()
    assert kind not in KIND_NAMES, "a record kind without a payload"
    return UnknownRecord()
