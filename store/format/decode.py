"""Decoding of records: the payload of each kind is a value of its own type, named after the kind.

So a `return` record is a ReturnRecord, a `survivors` record is a SurvivorsRecord, and so on for all of KIND_NAMES. A
kind has its type and bytes in the file of that name in this package, with these exceptions: commit, prepare and
rollback records are in branch.py; destination, delete, subscribe, unsubscribe and drop records are in state_record.py,
because a state record restates them; import records are in imports.py, properties records in host_properties.py; other
kinds without a file are in record.py. All code that reads whole journals matches over these types: replay, dump, and
the facts for offline queries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

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


_OF_RECORD: Final[dict[int, Callable[[Header, bytes], Payload]]] = {
    RETURN: decode_return,
    SURVIVORS: decode_survivors,
    NEEDS: decode_needs,
    SEEK: decode_seek,
    ATTEST: lambda header, head: AttestRecord(header.durable),
    LOST: lambda header, head: LostRecord(),
}
"""The decoders of kinds whose header tells a part of what the record says."""

_OF_PAYLOAD: Final[dict[int, Callable[[bytes], Payload]]] = {
    STATE: decode_state,
    DROP: lambda payload: DropRecord(decode_state(payload).data_logs),
    COMMIT: decode_commit,
    PREPARE: lambda payload: PrepareRecord(decode_branch(payload)[0]),
    ROLLBACK: lambda payload: RollbackRecord(decode_rollback(payload)),
    DESTINATION: lambda payload: DestinationRecord(decode_destination(payload)),
    DELETE: lambda payload: DeleteRecord(decode_delete(payload)),
    SUBSCRIBE: lambda payload: SubscribeRecord(decode_subscription(payload)),
    UNSUBSCRIBE: lambda payload: UnsubscribeRecord(decode_unsubscribe(payload)),
    IMPORT: lambda payload: decode_import(payload)[0],
    PROPERTIES: decode_properties_record,
    DIRECTORY: lambda payload: DirectoryRecord(),
}
"""The decoders of kinds whose payload tells all."""


def decode(header: Header, head: bytes) -> Payload:
    """Return the payload of a record whose head was verified. RecordDamaged: it says what is not possible."""
    kind = header.kind
    if kind == MESSAGE:  # most records of a journal are of these two kinds, so they are called directly
        return decode_slice(header, head)
    if kind == ACK:
        return decode_ack(header, head)
    if (of_record := _OF_RECORD.get(kind)) is not None:
        return of_record(header, head)
    if (of_payload := _OF_PAYLOAD.get(kind)) is not None:
        return of_payload(head[HEADER_BYTES:])
    return UnknownRecord()
