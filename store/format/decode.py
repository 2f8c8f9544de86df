"""Decoding of records: the payload of each kind as a value of its own type.

All code that reads whole journals matches over these types: replay, dump, and the facts for offline queries.
"""

from __future__ import annotations

from typing import NamedTuple

from .branch import Branch, Commit, decode_branch, decode_commit, decode_rollback
from .host_properties import PropertyChanges, decode_properties_record
from .imports import ImportMark, decode_import
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
    Header,
    Range,
    Returned,
    Slice,
    Survivors,
    decode_needs,
    decode_ranges,
    decode_returns,
    decode_seek,
    decode_slice,
    decode_survivors,
)
from .state_record import (
    Destination,
    State,
    Subscription,
    decode_delete,
    decode_destination,
    decode_state,
    decode_subscription,
    decode_unsubscribe,
)


class Acked(NamedTuple):
    """An ack: these messages of one lane are removed."""

    number: int
    """Number of the destination, or of the subscription that acknowledged."""
    priority: int
    ranges: list[Range]
    """(first sequence, messages) of each run."""


class Counted(NamedTuple):
    """A return record: these deliveries of one lane did not end with an ack."""

    number: int
    """Number of the destination, or of the subscription, to which they were delivered."""
    priority: int
    runs: list[Returned]
    now_ms: int
    """The store's time if something is put off; otherwise 0."""


class Deleted(NamedTuple):
    """A delete record: the queue or topic is deleted with all its messages."""

    number: int
    """The number of the queue or topic."""


class Unsubscribed(NamedTuple):
    """An unsubscribe record: the durable subscription has ended."""

    number: int
    """The number of the subscription."""


class Sought(NamedTuple):
    """A seek record: for a durable subscription, messages from there on are pending, and none before."""

    number: int
    """The number of the subscription."""
    firsts: list[tuple[int, int]]
    """(priority, sequence) of each lane that was moved."""


class Dropped(NamedTuple):
    """A drop record: nothing needs these data logs any more."""

    data_logs: list[int]
    """Their ids."""


class Lost(NamedTuple):
    """A lost record: a repair gave up records that were here."""


class Attested(NamedTuple):
    """An attest record: everything before that position is durable."""

    position: int


class RolledBack(NamedTuple):
    """A rollback record: the transaction's messages are deleted."""

    number: int
    """The number of the transaction."""


class Survived(NamedTuple):
    """A survivors record: nothing else is left of a data log."""

    data_log: int
    """Id of the data log that is about to be deleted, with everything else in it."""
    ranges: list[Survivors]
    """Its live messages."""


class Needed(NamedTuple):
    """A needs record: tells which subscriptions need some messages of a topic's lane."""

    run: Survivors
    """The messages, in one block of the lane."""
    needs: list[Survivors]
    """The part of the run that each subscription needs. `lane` is the number of a subscription."""


class Sealed(NamedTuple):
    """A directory record: it ends a data log, and says where the records before it are."""


class Unknown(NamedTuple):
    """A record of a kind that only a newer version knows."""


Payload = (
    Slice
    | Acked
    | Counted
    | Destination
    | State
    | Attested
    | Dropped
    | Commit
    | Branch
    | RolledBack
    | Survived
    | Subscription
    | Unsubscribed
    | Sought
    | Lost
    | Deleted
    | ImportMark
    | Needed
    | PropertyChanges
    | Sealed
    | Unknown
)
"""The payload of a record.

These kinds have classes with another name: MESSAGE is a Slice, RETURN is Counted, PREPARE is a Branch, DIRECTORY is
Sealed, IMPORT is an ImportMark, PROPERTIES is PropertyChanges and SUBSCRIBE is a Subscription.
"""


def decode(header: Header, head: bytes) -> Payload:
    """Return the payload of a record whose head was verified. RecordDamaged: it says what is not possible."""
    kind = header.kind
    if kind == MESSAGE:
        return decode_slice(header, head)
    if kind == ACK:
        number, ranges = decode_ranges(header, head)
        return Acked(number, header.priority, ranges)
    if kind == RETURN:
        number, runs, now_ms = decode_returns(header, head)
        return Counted(number, header.priority, runs, now_ms)
    if kind == SURVIVORS:
        return Survived(*decode_survivors(header, head))
    if kind == NEEDS:
        return Needed(*decode_needs(header, head))
    if kind == SEEK:
        return Sought(*decode_seek(header, head))
    if kind == ATTEST:
        return Attested(header.durable)
    if kind == LOST:
        return Lost()
    return _decode_payload(kind, head[HEADER_BYTES:])


def _decode_payload(kind: int, payload: bytes) -> Payload:
    """Return the payload of a record whose kind alone tells how to read it."""
    if kind == STATE:
        return decode_state(payload)
    if kind == DROP:
        return Dropped(decode_state(payload).data_logs)
    if kind == COMMIT:
        return decode_commit(payload)
    if kind == PREPARE:
        return decode_branch(payload)[0]
    if kind == ROLLBACK:
        return RolledBack(decode_rollback(payload))
    if kind == DESTINATION:
        return decode_destination(payload)
    if kind == DELETE:
        return Deleted(decode_delete(payload))
    if kind == SUBSCRIBE:
        return decode_subscription(payload)
    if kind == UNSUBSCRIBE:
        return Unsubscribed(decode_unsubscribe(payload))
    if kind == IMPORT:
        return decode_import(payload)[0]
    if kind == PROPERTIES:
        return decode_properties_record(payload)
    if kind == DIRECTORY:
        return Sealed()
    assert kind not in KIND_NAMES, "a record kind without a payload"
    return Unknown()
