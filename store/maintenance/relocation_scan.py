"""The scan of a data log for relocation: the heads of its slices, and its live messages in batches to copy.

It takes no lock and makes no decision. Heads are not verified, because they only say where to ask the index. Messages
are verified when they are read to be copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..disk.disk import File
from ..format.places import Extent, SingleRecords
from ..format.record import (
    COUNT_MASK,
    DIRECTORY,
    HEADER_BYTES,
    MAGIC,
    MESSAGE,
    PRIORITY_MASK,
    RECORD_BYTES_MAX,
    SLICE_BYTES,
    SLICE_CONTENT_BYTES_MAX,
    SLICE_MESSAGES_MAX,
    TRANSACTIONAL,
    RecordDamaged,
)
from ..index.destination_lane import DestinationLane
from ..numbering import BLOCK_MASK, BLOCK_SHIFT, LANE_SHIFT
from ..stored_message import StoredMessage

PIECE_BYTES: Final = 16 * 1024
BATCH_BYTES: Final = 12 * 1024
"""Records that are read at once. A larger record is a batch of its own, and reserves more."""

_HEAD: Final = struct.Struct("<4xIBBHQ12xIQ8x")
"""The fields of a slice: length, kind, flags, count, word, destination, first sequence.

The last two have no meaning in other records.
"""
assert _HEAD.size == SLICE_BYTES


class ScannedPiece(NamedTuple):
    """A part of a data log, as its unverified heads describe it."""

    behind: int
    """Offset of the next piece."""
    sequences: dict[tuple[int, int], tuple[int, int]]
    """The lowest and the highest sequence of slices in this piece, by (lane, block)."""
    has_transactional: bool


class LiveMessages(NamedTuple):
    """Pending messages in the data log that is relocated."""

    lane: DestinationLane
    extent: Extent | SingleRecords


def batches(live: list[LiveMessages]) -> Iterator[list[LiveMessages]]:
    """Yield the messages in order, in batches of about BATCH_BYTES of records, or of one record."""
    batch: list[LiveMessages] = []
    size = 0
    for lane, whole in live:
        for extent in _cut(whole):
            is_same_record = bool(batch) and extent.offset == batch[-1].extent.offset
            if batch and not is_same_record and size + extent.record_bytes > BATCH_BYTES:
                yield batch
                batch, size = [], 0
            size += 0 if is_same_record else extent.record_bytes
            batch.append(LiveMessages(lane, extent))
    if batch:
        yield batch


def _cut(extent: Extent | SingleRecords) -> Iterator[Extent | SingleRecords]:
    """Yield single records in parts of up to BATCH_BYTES, counting the bytes between the records too."""
    if isinstance(extent, SingleRecords) and extent.messages > 1 and extent.record_bytes > BATCH_BYTES:
        middle = extent.messages // 2
        yield from _cut(extent.part(0, middle))
        yield from _cut(extent.part(middle, extent.messages))
    else:
        yield extent


def scan_piece(file: File, offset: int, end: int) -> ScannedPiece:
    """Return the piece with the records that begin in the next PIECE_BYTES. One read.

    RecordDamaged: no record can begin where one should.
    """
    sequences: dict[tuple[int, int], tuple[int, int]] = {}
    has_transactional = False
    data = file.read(offset, min(PIECE_BYTES, end - offset))
    end_at = len(data) if offset + len(data) < end else end - offset
    if offset + len(data) == end:
        data += bytes(SLICE_BYTES)  # the last record may be shorter than the head of a slice
    at = 0
    while at < end_at and at + SLICE_BYTES <= len(data):
        length, kind, flags, count, word, destination, first = _HEAD.unpack_from(data, at)
        if word & 0xFFFF != MAGIC or not HEADER_BYTES <= length <= RECORD_BYTES_MAX:
            raise RecordDamaged("no record begins here")
        if kind == MESSAGE:
            if flags & TRANSACTIONAL:
                has_transactional = True
            else:
                last = first + (count & COUNT_MASK) - 1
                place = destination << LANE_SHIFT | flags & PRIORITY_MASK, first >> BLOCK_SHIFT
                low, high = sequences.get(place, (first, last))
                sequences[place] = min(low, first), max(high, last)
        elif kind == DIRECTORY:
            break
        at += length
    return ScannedPiece(offset + at, sequences, has_transactional)


def content_bytes(message: StoredMessage) -> int:
    return len(message[1]) + len(message[2] or b"")


def follows(gathered: list[StoredMessage], gathered_bytes: int, message: StoredMessage) -> bool:
    """Return whether a message may follow the gathered ones in their slice."""
    sequence, _, _, timestamp = message
    return (
        sequence == gathered[-1][0] + 1
        and sequence & BLOCK_MASK != 0
        and timestamp == gathered[0][3]
        and len(gathered) < SLICE_MESSAGES_MAX
        and gathered_bytes + content_bytes(message) <= SLICE_CONTENT_BYTES_MAX
    )
