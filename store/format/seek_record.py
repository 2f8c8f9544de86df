"""Seek records: from where on messages are pending for a durable subscription.

seek       subscription u32; of each lane that is moved (priority u8, first sequence u64)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from ..numbering import LANE_SHIFT, PRIORITIES
from .record import HEADER_BYTES, NUMBER, NUMBERED_BYTES, Header, RecordDamaged, check_run

_CURSOR: Final = struct.Struct("<BQ")


class SeekRecord(NamedTuple):
    """A seek record: for a durable subscription, messages from there on are pending, and none before."""

    number: int
    """The number of the subscription."""
    firsts: list[tuple[int, int]]
    """(priority, sequence) of each lane that was moved."""


def seek_payload(subscription: int, firsts: Iterable[tuple[int, int]]) -> bytes:
    """Encode where lanes of a subscription go on: (priority, first sequence) of each lane that is moved."""
    return NUMBER.pack(subscription) + b"".join([_CURSOR.pack(*cursor) for cursor in firsts])


def decode_seek(header: Header, head: bytes | memoryview) -> SeekRecord:
    """Decode the payload of a verified seek record. RecordDamaged: it says what is not possible."""
    if header.length != NUMBERED_BYTES + _CURSOR.size * header.entries or len(head) < header.length:
        raise RecordDamaged("the cursors of a seek record do not add up to its length")
    (subscription,) = NUMBER.unpack_from(head, HEADER_BYTES)
    firsts = [(priority, first) for priority, first in _CURSOR.iter_unpack(head[NUMBERED_BYTES : header.length])]
    for priority, first in firsts:
        if priority >= PRIORITIES:
            raise RecordDamaged(f"a priority of {priority} cannot be")
        check_run(subscription << LANE_SHIFT | priority, first, 0)
    return SeekRecord(subscription, firsts)
