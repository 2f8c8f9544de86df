"""Decodes the heads of many records at once, so that reading a journal is as fast as its checksums.

A sealed data log ends with the offsets of its records, so no walk is needed. A region is read at once, the 64 bytes at
each offset are gathered into columns, and each head is verified by its checksum. A record that is unusual raises
`NotVectorizable`, and the reader continues from there with the store's own scan. Bodies are skipped unless requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...store.disk.disk import File
from ...store.format.record import (
    ACK,
    COUNT_MASK,
    ENTRY_BYTES,
    HEADER_BYTES,
    LOST,
    MAGIC,
    MESSAGE,
    NEVER_IDENTIFIED,
    SLICE_BYTES,
    SLICE_MESSAGES_MAX,
    crc32,
)
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, seal_of
from ...store.numbering import OFFSET_BITS
from .checksums import checksums

REGION_BYTES: Final = 8 << 20
_HEAD_BYTES: Final = 64
_ACK_BYTES: Final = HEADER_BYTES + 16
_CRC_BYTES: Final = 4
_TRAILER_BYTES: Final = 12
_USUAL_HEADS: Final = (_HEAD_BYTES, _ACK_BYTES)

_HEAD: Final = np.dtype(
    {
        "names": [
            "crc", "length", "kind", "flags", "count", "word", "epoch", "durable",
            "destination", "first", "timestamp", "messages", "message_crc", "content", "properties",
        ],
        "formats": [
            "<u4", "<u4", "u1", "u1", "<u2", "<u8", "<u4", "<u8",
            "<u4", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4",
        ],
        "offsets": [0, 4, 8, 9, 10, 12, 20, 24, 32, 36, 44, 44, 52, 56, 60],
        "itemsize": _HEAD_BYTES,
    }
)  # fmt: skip
"""A slice of one message. The fields of an ack of one run overlap it."""
_BYTES: Final = np.dtype((np.void, _HEAD_BYTES))
"""The same bytes without fields, because these are copied at once and not field by field."""


class NotVectorizable(Exception):
    """Something that a sealed, undamaged data log does not normally have. Internal."""


@dataclass(slots=True)
class Heads:
    """Consecutive verified records. `region` begins at the first, and reaches to the end of the last."""

    begin: int
    """Offset of the first in its data log."""
    region: memoryview
    """Its bytes are valid until the next heads are requested."""
    at: NDArray[np.int64]
    """The offset in the region at which each record begins."""
    head: NDArray[Any]
    """The fields of each record. Fields that its kind does not have are meaningless."""
    head_bytes: NDArray[np.int64]
    slices: NDArray[np.int64]
    """Indexes of the records that have messages."""
    runs: NDArray[np.int64]
    """Indexes of the acks of one run, the only other frequent records."""
    rare: NDArray[np.int64]
    """Indexes of all other records."""
    next_log_sequence: int
    """Log sequence of the record behind the last."""


def directory_of(file: File, header: DataLogHeader, *, is_newest: bool = False) -> NDArray[np.int64] | None:
    """Return the offset of each record of a sealed data log; its directory's is the last.

    None if it is not sealed, or in doubt.

    is_newest: a data log whose seal does not know all records before it to be durable is in doubt, too.
    """
    seal = seal_of(file, header)
    if seal is None:
        return None
    offset, record, head = seal
    records = (len(head) - HEADER_BYTES - _TRAILER_BYTES) // 4
    if is_newest and record.durable < header.data_log << OFFSET_BITS | offset:
        return None
    if record.log_sequence != header.first_log_sequence + records:
        return None  # a repair gave up some of its records
    offsets = np.frombuffer(head, "<u4", records, HEADER_BYTES).astype(np.int64)
    offsets = np.append(offsets, offset)
    if not records or offsets[0] != DATA_LOG_HEADER_BYTES or (np.diff(offsets) < HEADER_BYTES).any():
        return None
    return offsets


def heads_of(file: File, header: DataLogHeader, offsets: NDArray[np.int64]) -> Iterator[Heads]:
    """Yield the records of a sealed data log without its directory. Raises NotVectorizable: scan from there on.

    offsets: from directory_of. Takes 8 MiB of RAM, more if a record is larger.
    """
    epoch = 0
    buffer = np.empty(min(REGION_BYTES, int(offsets[-1] - offsets[0])) + _HEAD_BYTES, np.uint8)
    at, last = 0, len(offsets) - 1
    while at < last:
        begin = int(offsets[at])
        behind = int(np.searchsorted(offsets, begin + REGION_BYTES, "right")) - 1
        behind = min(max(behind, at + 1), last)
        end = int(offsets[behind])
        # A short record at the end needs bytes behind it to be gathered like the others. Their values do not matter.
        if len(buffer) < end - begin + _HEAD_BYTES:
            buffer = np.empty(end - begin + _HEAD_BYTES, np.uint8)
        if file.read_into(begin, buffer[: end - begin].data) < end - begin:
            raise NotVectorizable
        heads = _gathered(header, offsets[at : behind + 1] - begin, buffer, begin, header.first_log_sequence + at)
        if int(heads.head["epoch"][0]) < epoch:
            raise NotVectorizable
        epoch = int(heads.head["epoch"][-1])
        yield heads
        at = behind


def _gathered(
    header: DataLogHeader, bounds: NDArray[np.int64], buffer: NDArray[np.uint8], begin: int, sequence: int
) -> Heads:
    at, lengths = bounds[:-1], np.diff(bounds)
    records = len(at)
    region = buffer[: int(bounds[-1])].data
    anywhere = np.ndarray(len(buffer) - _HEAD_BYTES + 1, _BYTES, buffer, strides=(1,))
    gathered = anywhere[at]
    head = gathered.view(_HEAD)
    kind, stored = head["kind"], head["count"]
    is_message = kind == MESSAGE
    slices, others = np.flatnonzero(is_message), np.flatnonzero(~is_message)
    count = stored & COUNT_MASK
    is_marked = count != stored
    head_bytes = SLICE_BYTES + ENTRY_BYTES * count.astype(np.int64)
    if len(others):
        count[others], head_bytes[others], is_marked[others] = stored[others], lengths[others], False
    words = (np.arange(sequence, sequence + records, dtype=np.uint64) << np.uint64(16)) | np.uint64(MAGIC)
    epochs = head["epoch"]
    if (
        (head["length"] != lengths).any()
        or (head["word"] != words).any()
        or (epochs[1:] < epochs[:-1]).any()
        or (head_bytes > lengths).any()
        or (kind[others] == LOST).any()
        or (is_marked.any() and (head["flags"][is_marked] & NEVER_IDENTIFIED).any())
        or (is_message & ((count == 0) | (count > SLICE_MESSAGES_MAX))).any()
    ):
        raise NotVectorizable
    if (_checksums(header.salt, gathered, region, at, head_bytes) != head["crc"]).any():
        raise NotVectorizable
    head["count"] = count
    is_run = (kind[others] == ACK) & (count[others] == 1) & (lengths[others] == _ACK_BYTES)
    return Heads(begin, region, at, head, head_bytes, slices, others[is_run], others[~is_run], sequence + records)


def _checksums(
    salt: int, gathered: NDArray[Any], region: memoryview, at: NDArray[np.int64], head_bytes: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Return the checksum of each head. Those of the usual lengths are computed together."""
    if (head_bytes == _HEAD_BYTES).all():
        return checksums(_rows(gathered), _CRC_BYTES, salt)
    found = np.empty(len(at), np.uint32)
    is_left = np.ones(len(at), np.bool_)
    for usual in _USUAL_HEADS:
        is_usual = head_bytes == usual
        if is_usual.any():
            found[is_usual] = checksums(_rows(gathered[is_usual])[:, :usual], _CRC_BYTES, salt)
            is_left &= ~is_usual
    for record in np.flatnonzero(is_left).tolist():
        begin = int(at[record])
        found[record] = crc32(region[begin + 4 : begin + int(head_bytes[record])], salt)
    return found


def _rows(gathered: NDArray[Any]) -> NDArray[np.uint8]:
    return gathered.view(np.uint8).reshape(len(gathered), _HEAD_BYTES)


@dataclass(slots=True)
class Messages:
    """The messages of some heads, one row each."""

    record: NDArray[np.int64]
    """The index among the heads of each message's record."""
    place: NDArray[np.int64]
    """The index of each message in its slice, from 0."""
    begin: NDArray[np.int64]
    """The offset in the region at which its content begins."""
    crc: NDArray[np.uint32]
    content: NDArray[np.int64]
    """Bytes of its properties and body."""
    properties: NDArray[np.int64]


def messages_of(heads: Heads, records: NDArray[np.int64]) -> Messages:
    """Return the messages of the heads that are slices, in order. Raises NotVectorizable for an inconsistent table."""
    # Not heads.head[records]: numpy copies structured records field by field.
    chosen = slice(None) if len(records) == len(heads.at) else records
    head, head_bytes = heads.head, heads.head_bytes[chosen]
    starts = heads.at[chosen] + head_bytes
    count = head["count"][chosen].astype(np.int64)
    crc = head["message_crc"][chosen]
    content = head["content"][chosen].astype(np.int64)
    properties = head["properties"][chosen].astype(np.int64)
    record, place, begin = records, np.zeros(len(records), np.int64), starts
    if len(count) and int(count.max()) > 1:
        rows = int(count.sum())
        firsts = np.cumsum(count) - count
        record = np.repeat(records, count)
        place = np.arange(rows) - np.repeat(firsts, count)
        table = np.empty((rows, 3), np.uint32)
        table[firsts] = np.stack((crc, content, properties), axis=1)
        many = np.flatnonzero(count > 1)
        for row, entries, at in zip(
            firsts[many].tolist(), count[many].tolist(), heads.at[records[many]].tolist(), strict=True
        ):
            table[row : row + entries] = np.frombuffer(heads.region, "<u4", 3 * entries, at + SLICE_BYTES).reshape(
                entries, 3
            )
        crc, content, properties = table[:, 0], table[:, 1].astype(np.int64), table[:, 2].astype(np.int64)
        total = np.cumsum(content)
        begin = np.repeat(starts, count) + total - content - np.repeat((total - content)[firsts], count)
        sums = np.add.reduceat(content, firsts)
    else:
        sums = content
    if (sums + head_bytes != head["length"][chosen]).any() or (properties > content).any():
        raise NotVectorizable
    return Messages(record, place, begin, crc, content, properties)


def verify_messages(heads: Heads, messages: Messages) -> None:
    """Raise NotVectorizable unless the content of each message verifies."""
    view = heads.region
    ends = (messages.begin + messages.content).tolist()
    crcs = [crc32(view[begin:end]) for begin, end in zip(messages.begin.tolist(), ends, strict=True)]
    if (np.array(crcs, np.uint32) != messages.crc).any():
        raise NotVectorizable
