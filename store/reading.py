"""Reading messages back: extents gathered into few large reads, each message verified on its own.

Neighbouring records come in one read, with what lies between them, up to
256 KiB: one call and one copy for hundreds of messages. A message that does
not verify costs that message alone.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from .block import Extent
from .disk import File
from .record import (
    ENTRY_BYTES,
    SLICE_BYTES,
    RecordDamaged,
    crc32,
    decode_header,
    decode_slice,
    verify_head,
)

REGION_BYTES_MAX: Final = 256 * 1024
GAP_BYTES_MAX: Final = 8 * 1024
"""Bytes of other records between two wanted ones that are cheaper to read than to skip."""

StoredMessage = tuple[int, bytes, bytes | None, int]
"""(sequence, properties, body, timestamp in ms). A plain tuple: the collector soon stops tracking it.
A body of None is still to be read, when somebody looks at it."""

_ONE: Final = struct.Struct("<IIBBHQIQIQQIII")
_ONE_BYTES: Final = SLICE_BYTES + ENTRY_BYTES


class Readable(Protocol):
    """As much of a `File` as a region needs."""

    def read(self, offset: int, length: int) -> bytes: ...


class _Unopened:
    """Stands for a data log that could not be opened: its messages are unreadable, the others are not."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def read(self, offset: int, length: int) -> bytes:
        raise self._error


class Region(NamedTuple):
    """One read: length bytes at offset, and the extents that lie in it."""

    file: Readable
    salt: int
    data_log: int
    offset: int
    length: int
    extents: list[Extent]


def plan_regions(extents: Iterable[Extent], reader: Callable[[int], tuple[File, int]]) -> list[Region]:
    """Gather extents, in the order given, into regions. A record larger than a region is a region of its own.

    reader: the open file of a data log, and its salt.
    """
    regions: list[Region] = []
    gathered: list[Extent] = []
    data_log = begin = end = -1
    for extent in extents:
        extent_end = extent.offset + extent.record_bytes
        if (
            extent.data_log != data_log
            or not end <= extent.offset <= end + GAP_BYTES_MAX
            or extent_end - begin > REGION_BYTES_MAX
        ):
            if extent.data_log == data_log and gathered and extent.offset == gathered[-1].offset:
                gathered.append(extent)  # another run of the same record
                continue
            if gathered:
                regions.append(Region(*_opened(reader, data_log), data_log, begin, end - begin, gathered))
            gathered, data_log, begin = [], extent.data_log, extent.offset
        gathered.append(extent)
        end = extent_end
    if gathered:
        regions.append(Region(*_opened(reader, data_log), data_log, begin, end - begin, gathered))
    return regions


def _opened(reader: Callable[[int], tuple[File, int]], data_log: int) -> tuple[Readable, int]:
    try:
        return reader(data_log)
    except OSError as error:
        return _Unopened(error), 0
    except RecordDamaged as damage:
        return _Unopened(OSError(errno.EIO, str(damage))), 0


def read_regions(regions: Sequence[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
    """The wanted messages in order, and (sequence, problem) of those that can't be read. One read a region."""
    messages: list[StoredMessage] = []
    unreadable: list[tuple[int, str]] = []
    for region in regions:
        try:
            data = region.file.read(region.offset, region.length)
        except OSError as error:
            data = b""
            problem = f"the read failed ({error.strerror})"
        else:
            problem = "" if len(data) == region.length else "the data log ends before it"
        for extent in region.extents:
            if problem:
                _unreadable(extent, problem, unreadable)
                continue
            at = extent.offset - region.offset
            try:
                if extent.record_messages == 1:
                    messages.append(_read_one(extent, data, at, region.salt))
                else:
                    _read_slice(extent, data, at, region.salt, messages, unreadable)
            except (RecordDamaged, struct.error) as damage:
                _unreadable(extent, str(damage), unreadable)
    return messages, unreadable


def _unreadable(extent: Extent, problem: str, unreadable: list[tuple[int, str]]) -> None:
    place = f"data-{extent.data_log}.log at {extent.offset}: {problem}"
    unreadable += [(extent.first_sequence + n, place) for n in range(extent.messages)]


def _read_one(extent: Extent, data: bytes, at: int, salt: int) -> StoredMessage:
    """A record of one message: header, table and place unpacked in one go, because drains are made of this."""
    fields = _ONE.unpack_from(data, at)
    if crc32(data[at + 4 : at + _ONE_BYTES], salt) != fields[0]:
        raise RecordDamaged("the record's checksum does not match")
    crc, length, properties_bytes = fields[11:]
    begin = at + _ONE_BYTES
    if fields[9] != extent.first_sequence or length != extent.record_bytes - _ONE_BYTES or properties_bytes > length:
        raise RecordDamaged("another record lies there")
    if properties_bytes:
        content = data[begin : begin + length]
        if crc32(content) != crc:
            raise RecordDamaged("the checksum of the message does not match")
        return extent.first_sequence, content[:properties_bytes], content[properties_bytes:], fields[10]
    body = data[begin : begin + length]
    if crc32(body) != crc:
        raise RecordDamaged("the checksum of the message does not match")
    return extent.first_sequence, b"", body, fields[10]


def _read_slice(
    extent: Extent, data: bytes, at: int, salt: int, messages: list[StoredMessage], unreadable: list[tuple[int, str]]
) -> None:
    header = decode_header(data, at)
    verify_head(header, data[at : at + header.head_bytes], salt)
    if header.length != extent.record_bytes or header.entries != extent.record_messages:
        raise RecordDamaged("another record lies there")
    part = decode_slice(header, data, at)
    if part.first_sequence + extent.skip != extent.first_sequence:
        raise RecordDamaged("another record lies there")
    table = part.table
    begin = at + header.head_bytes + sum(table[1 : 3 * extent.skip : 3])
    sequence = extent.first_sequence
    timestamp = part.timestamp
    for index in range(3 * extent.skip, 3 * (extent.skip + extent.messages), 3):
        crc, length, properties_bytes = table[index : index + 3]
        content = data[begin : begin + length]
        if crc32(content) != crc or properties_bytes > length:
            place = f"data-{extent.data_log}.log at {extent.offset}: the checksum of the message does not match"
            unreadable.append((sequence, place))
        elif properties_bytes:
            messages.append((sequence, content[:properties_bytes], content[properties_bytes:], timestamp))
        else:
            messages.append((sequence, b"", content, timestamp))
        begin += length
        sequence += 1
