"""Return records: deliveries of one lane that did not end with an ack, with their delivery counts so far.

    return     number u32; runs of (first u64, messages u32, delivery count u16)
    with times number u32, the store's time u64; runs of (first u64, messages u32, delivery count u16, due u64)

The number is that of the destination or of the subscription. A record with the flag TIMED has times: some of its runs
are offered again later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..numbering import LANE_SHIFT
from .record import HEADER_BYTES, NUMBER, TIME_MAX, TIMED, Header, RecordDamaged, check_run

RETURNED: Final = struct.Struct("<QIH")
_RETURNED_LATER: Final = struct.Struct("<QIHQ")
_NUMBER_AND_TIME: Final = struct.Struct("<IQ")


class ReturnedRun(NamedTuple):
    """A run of sequences of one lane that were delivered `delivery_count` times so far."""

    first: int
    messages: int
    delivery_count: int
    due_at: int = 0
    """When they are offered again, in ms since 1970 of the store's SteadyClock. 0: at once."""


class ReturnRecord(NamedTuple):
    """A return record: these deliveries of one lane did not end with an ack."""

    number: int
    """Number of the destination, or of the subscription, to which they were delivered."""
    priority: int
    runs: list[ReturnedRun]
    now_ms: int
    """The store's time if one of them is delayed; otherwise 0."""


def returns_payload(number: int, runs: Iterable[ReturnedRun]) -> bytes:
    """Encode runs that are offered again at once."""
    return NUMBER.pack(number) + b"".join([RETURNED.pack(*run[:3]) for run in runs])


def delayed_returns_payload(number: int, now_ms: int, runs: Iterable[ReturnedRun]) -> bytes:
    """Encode runs, some of which are offered again later. now_ms: the store's time, which never goes back behind it."""
    return _NUMBER_AND_TIME.pack(number, now_ms) + b"".join([_RETURNED_LATER.pack(*run) for run in runs])


def decode_return(header: Header, head: bytes | memoryview) -> ReturnRecord:
    """Decode the payload of a verified return record. RecordDamaged: it says what is not possible."""
    is_timed = bool(header.flags & TIMED)
    fields, form = (_NUMBER_AND_TIME, _RETURNED_LATER) if is_timed else (NUMBER, RETURNED)
    begin = HEADER_BYTES + fields.size
    if header.length != begin + form.size * header.entries or len(head) < header.length:
        raise RecordDamaged("the runs of a return record do not add up to its length")
    number, now_ms = (*fields.unpack_from(head, HEADER_BYTES), 0)[:2]
    runs = [ReturnedRun(*run) for run in form.iter_unpack(head[begin : header.length])]
    if not all(run.messages and run.delivery_count for run in runs):
        raise RecordDamaged("a return record counts nothing")
    if now_ms > TIME_MAX or any(run.due_at > TIME_MAX for run in runs):
        raise RecordDamaged("a return record tells a time that cannot be")
    for run in runs:
        check_run(number << LANE_SHIFT, run.first, run.messages)
    return ReturnRecord(number, header.priority, runs, now_ms)
