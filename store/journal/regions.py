"""Read messages back: a few large reads for many messages, each of which is verified by itself.

A *region* is one read: neighbouring records with the bytes between them, up to 256 KiB. So hundreds of messages take
one call and one copy. Damage to a message makes only that message unreadable.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any, Final, NamedTuple, Protocol

from ..disk.disk import File
from ..disk.thrifty_disk import NO_DESCRIPTOR
from ..errors import TooManyFiles
from ..format.places import Extent, SingleRecords
from ..format.record import (
    ENTRY_BYTES,
    FLAGS_OFFSET,
    ONE_BYTES,
    SLICE_BYTES,
    TRANSACTIONAL,
    Header,
    MessageRecord,
    RecordDamaged,
    checksum_object,
    crc32,
    decode_header,
    decode_slice,
    verify_head,
)
from ..stored_message import StoredMessage, properties_of, sequence_of

REGION_BYTES_MAX: Final = 256 * 1024
PIECE_BYTES: Final = 64 * 1024
"""Most bytes of a message that are in RAM at a time if only its headers are wanted. The whole message is verified."""
GAP_BYTES_MAX: Final = 8 * 1024
"""Most bytes of other records between two wanted ones. They are read too, because a second read costs more.

Between the single records of one run, a region may have as many unwanted bytes as wanted ones.
"""

_ONE: Final = struct.Struct("<I32xQQIII")
"""The fields of a record of one message: crc, sequence, timestamp, crc of the message, length, properties length."""
_unpack_one: Final[Callable[[bytes, int], tuple[int, int, Any, int, int, int]]] = _ONE.unpack_from
"""Typed for machine code: to compare an int with an untyped value, it would make an object of the int. The timestamp is
only passed on, so it stays an object.
"""
assert _ONE.size == ONE_BYTES


Judge = Callable[[Sequence[int], Sequence[bytes]], list[bool]]
"""Tells which messages of a record are wanted. It gets their sequences, in order, and the properties of each."""


class ReadableFile(Protocol):
    """The part of a `File` that a region needs."""

    def read(self, offset: int, length: int) -> bytes: ...


class UnopenedDataLog:
    """Stands in for a data log that could not be opened, so that only messages of this data log are unreadable."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    def read(self, offset: int, length: int) -> bytes:
        if self._error.errno in NO_DESCRIPTOR:
            raise TooManyFiles from self._error  # the messages themselves are intact
        raise self._error.with_traceback(None)  # the traceback would grow with each read, and keep its frames


def sent_at(file: ReadableFile, salt: int, offset: int, messages: int) -> int:
    """Return when the messages of a record were sent, in ms since 1970. One small read.

    messages: how many the record has. OSError: the read failed. RecordDamaged: the head does not verify.
    """
    head = file.read(offset, SLICE_BYTES + ENTRY_BYTES * messages)
    header = decode_header(head)
    verify_head(header, head, salt)
    return decode_slice(header, head).timestamp


class Region(NamedTuple):
    """One read of `length` bytes at offset, and the extents in it."""

    file: ReadableFile
    salt: int
    data_log: int
    offset: int
    length: int
    extents: list[Extent | SingleRecords]


def plan_regions(extents: Iterable[Extent | SingleRecords], reader: Callable[[int], tuple[File, int]]) -> list[Region]:
    """Gather extents, in their order, into regions. A record larger than a region is a region of its own.

    reader: returns the open file of a data log, and its salt.
    """
    regions: list[Region] = []
    gathered: list[Extent | SingleRecords] = []
    data_log = begin = end = -1
    for extent in chain.from_iterable(_halved(extent) for extent in extents):
        offset = extent.offset
        extent_end = offset + extent.record_bytes
        if (
            extent.data_log != data_log
            or not end <= offset <= end + GAP_BYTES_MAX
            or extent_end - begin > REGION_BYTES_MAX
        ):
            if extent.data_log == data_log and gathered and offset == gathered[-1].offset:
                gathered.append(extent)  # another run of the same record
                continue
            if gathered:
                regions.append(Region(*_opened(reader, data_log), data_log, begin, end - begin, gathered))
            gathered, data_log, begin = [], extent.data_log, offset
        gathered.append(extent)
        end = extent_end
    if gathered:
        regions.append(Region(*_opened(reader, data_log), data_log, begin, end - begin, gathered))
    return regions


def _halved(extent: Extent | SingleRecords) -> Iterator[Extent | SingleRecords]:
    """Split single records in halves until each part fits into one region and lies close together; yield the parts."""
    if isinstance(extent, SingleRecords) and extent.messages > 1:
        wanted_bytes = sum(extent.lengths) + ONE_BYTES * extent.messages
        if extent.record_bytes > min(REGION_BYTES_MAX, wanted_bytes + max(wanted_bytes, GAP_BYTES_MAX)):
            middle = extent.messages // 2
            yield from _halved(extent.part(0, middle))
            yield from _halved(extent.part(middle, extent.messages))
            return
    yield extent


def _opened(reader: Callable[[int], tuple[File, int]], data_log: int) -> tuple[ReadableFile, int]:
    try:
        return reader(data_log)
    except OSError as error:
        return UnopenedDataLog(error), 0
    except RecordDamaged as damage:
        return UnopenedDataLog(OSError(errno.EIO, str(damage))), 0


def read_regions(
    regions: Sequence[Region], judge: Judge | None = None
) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
    """Return the wanted messages in order, and (sequence, problem) of each that can't be read. One read per region.

    If the read of a region fails, each of its records is read by itself, so only messages in bad places are lost.
    judge: says which messages are wanted; the others are verified and left out. None: all are wanted.
    """
    messages: list[StoredMessage] = []
    unreadable: list[tuple[int, str]] = []
    for region in regions:
        data = b""  # free the previous bytes first: memory was reserved for one region
        try:
            data = region.file.read(region.offset, region.length)
        except OSError as error:
            _read_each_record(region, judge, error, messages, unreadable)
            continue
        for extent in region.extents:
            found = messages if judge is None else []
            if isinstance(extent, SingleRecords):
                _read_singles(extent, data, region.offset, region.salt, found, unreadable)
            else:
                try:
                    at = extent.offset - region.offset
                    if judge is not None and _scan_slice(extent, data, at, region.salt, judge, messages):
                        continue
                    _read_slice(extent, data, at, region.salt, found, unreadable)
                except (RecordDamaged, struct.error) as damage:
                    _unreadable(extent, str(damage), unreadable)
            if judge is not None and found:
                wanted = judge(list(map(sequence_of, found)), list(map(properties_of, found)))
                messages += compress(found, wanted)
    return messages, unreadable


def _read_each_record(
    region: Region,
    judge: Judge | None,
    error: OSError,
    messages: list[StoredMessage],
    unreadable: list[tuple[int, str]],
) -> None:
    """Read a region record by record, because reading all of it failed with that error."""
    records = _records_of(region)
    if len(records) > 1:
        found, not_found = read_regions(records, judge)
        messages += found
        unreadable += not_found
    else:
        _unreadable(region.extents[0], f"the read failed ({error.strerror})", unreadable)


def read_headers(region: Region, pay: Callable[[int], None]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
    """Return the only wanted message of a region with an empty body, or why it can't be read.

    The body is verified in pieces. pay: called before more bytes are in RAM, with their number: that of a piece, or of
        headers that are larger than a piece.
    """
    (extent,) = region.extents
    place = f"data-{extent.data_log}.log at {extent.offset}"
    if isinstance(extent, SingleRecords):
        record_bytes = ONE_BYTES + extent.lengths[0]
        extent = Extent(extent.data_log, extent.offset, record_bytes, 1, 0, extent.first_sequence, 1)
    sequence, file = extent.first_sequence, region.file
    pay(PIECE_BYTES)
    try:
        head = file.read(extent.offset, SLICE_BYTES + ENTRY_BYTES * extent.record_messages)
        header, part = _verified_head(extent, head, 0, region.salt)
        at = 3 * extent.skip
        crc, length, properties_bytes = part.table[at : at + 3]
        begin = extent.offset + header.head_bytes + sum(part.table[1:at:3])
        if properties_bytes <= length:
            properties = read_verified(file, begin, length, properties_bytes, crc, pay)
            if properties is not None:
                return [(sequence, properties, b"", part.timestamp)], []
    except OSError as error:
        return [], [(sequence, f"{place}: the read failed ({error.strerror})")]
    except (RecordDamaged, struct.error) as damage:
        return [], [(sequence, f"{place}: {damage}")]
    return [], [(sequence, f"{place}: the checksum of the message does not match")]


def read_verified(
    file: ReadableFile,
    begin: int,
    length: int,
    properties_bytes: int,
    crc: int,
    pay: Callable[[int], None],
    *,
    started: int = 0,
) -> bytes | None:
    """Read a content in pieces and return its properties. None: its checksum is wrong. OSError.

    started: the value from which the checksum continues. pay: as in read_headers; the caller has paid for one piece
    already.
    """
    if properties_bytes > PIECE_BYTES:
        pay(properties_bytes)
    properties = file.read(begin, properties_bytes) if properties_bytes else b""
    found, end = crc32(properties, started), begin + length
    for at in range(begin + properties_bytes, end, PIECE_BYTES):
        found = crc32(file.read(at, min(PIECE_BYTES, end - at)), found)
    return properties if found == crc else None


def _records_of(region: Region) -> list[Region]:
    """Return a region for each record; the whole region if its file is not open."""
    if isinstance(region.file, UnopenedDataLog):
        return [region._replace(extents=[extent]) for extent in region.extents]
    extents: list[Extent | SingleRecords] = []
    for extent in region.extents:
        if isinstance(extent, SingleRecords):
            extents += [extent.part(n, n + 1) for n in range(extent.messages)]
        else:
            extents.append(extent)
    return [region._replace(offset=extent.offset, length=extent.record_bytes, extents=[extent]) for extent in extents]


def _unreadable(extent: Extent | SingleRecords, problem: str, unreadable: list[tuple[int, str]]) -> None:
    if isinstance(extent, SingleRecords):
        unreadable += [
            (extent.first_sequence + n, f"data-{extent.data_log}.log at {offset}: {problem}")
            for n, offset in enumerate(extent.offsets)
        ]
    else:
        place = f"data-{extent.data_log}.log at {extent.offset}: {problem}"
        unreadable += [(extent.first_sequence + n, place) for n in range(extent.messages)]


def _read_singles(
    extent: SingleRecords,
    data: bytes,
    base: int,
    salt: Any,
    messages: list[StoredMessage],
    unreadable: list[tuple[int, str]],
) -> None:
    """Read records of one message each. The loop is flat because every backlog is read through it.

    salt: an int, kept as an object, because machine code would make a new object for each checksum.
    """
    unpack, checksum, sequence = _unpack_one, crc32, extent.first_sequence - 1
    assert len(extent.offsets) == len(extent.lengths)
    for offset, length in zip(extent.offsets, extent.lengths):  # noqa: B905 machine code would make a tuple for each
        sequence += 1
        at = offset - base
        begin = at + ONE_BYTES
        end = begin + length
        try:
            head_crc, found, timestamp, crc, content_bytes, properties_bytes = unpack(data, at)
        except struct.error:
            problem = "it does not lie there whole"
        else:
            if checksum(data[at + 4 : begin], salt) != head_crc:
                problem = "the record's checksum does not match"
            elif (
                (found != sequence and not data[at + FLAGS_OFFSET] & TRANSACTIONAL)
                or content_bytes != length
                or properties_bytes > length
            ):
                problem = "another record lies there"
            else:
                middle = begin + properties_bytes
                properties, body = data[begin:middle] if properties_bytes else b"", data[middle:end]
                if (checksum(body, checksum_object(properties)) if properties else checksum(body)) == crc:
                    messages.append((sequence, properties, body, timestamp))
                    continue
                problem = "the checksum of the message does not match"
        unreadable.append((sequence, f"data-{extent.data_log}.log at {offset}: {problem}"))


def _verified_head(extent: Extent, data: bytes, at: int, salt: int) -> tuple[Header, MessageRecord]:
    """Return header and table of a record, verified. RecordDamaged: they are damaged, or another record is there."""
    header = decode_header(data, at)
    verify_head(header, data[at : at + header.head_bytes], salt)
    if header.length != extent.record_bytes or header.entries != extent.record_messages:
        raise RecordDamaged("another record lies there")
    part = decode_slice(header, data, at)
    if part.first_sequence + extent.skip != extent.first_sequence and not header.is_transactional:
        raise RecordDamaged("another record lies there")
    return header, part


def _read_slice(
    extent: Extent, data: bytes, at: int, salt: int, messages: list[StoredMessage], unreadable: list[tuple[int, str]]
) -> None:
    """Read messages of a slice by columns, so that what all messages share is looked up and made only once."""
    header, part = _verified_head(extent, data, at, salt)
    begin = at + header.head_bytes + sum(part.table[1 : 3 * extent.skip : 3])
    wanted = part.table[3 * extent.skip : 3 * (extent.skip + extent.messages)]
    crcs, lengths, properties_lengths = wanted[::3], wanted[1::3], wanted[2::3]
    of_each: list[bytes] = []
    bodies: list[bytes] = []
    fit = True
    if any(properties_lengths):
        for index, length in enumerate(lengths):  # machine code would make a tuple for each step of a strict zip
            properties_bytes: int = properties_lengths[index]
            fit = fit and properties_bytes <= length
            middle = begin + properties_bytes
            of_each.append(data[begin:middle])
            begin += length
            bodies.append(data[middle:begin])
        found = tuple(map(crc32, bodies, map(crc32, of_each)))
    else:
        of_each = [b""] * len(lengths)
        for length in lengths:
            bodies.append(data[begin : begin + length])
            begin += length
        found = tuple(map(crc32, bodies))
    first = extent.first_sequence
    rows = zip(range(first, first + len(lengths)), of_each, bodies, repeat(part.timestamp))
    if fit and found == crcs:
        messages += rows
        return
    place = f"data-{extent.data_log}.log at {extent.offset}: the checksum of the message does not match"
    for row, is_whole in zip(rows, map(_is_whole, found, crcs, lengths, properties_lengths), strict=True):
        if is_whole:
            messages.append(row)
        else:
            unreadable.append((row[0], place))


def _scan_slice(extent: Extent, data: bytes, at: int, salt: int, judge: Judge, messages: list[StoredMessage]) -> bool:
    """Read the messages of a slice that a judge wants, and make no objects for the others. False: a message is damaged,
    and none was read.

    Each content is copied only for its checksum, into memory that is free again for the next content.
    """
    header, part = _verified_head(extent, data, at, salt)
    begin = at + header.head_bytes + sum(part.table[1 : 3 * extent.skip : 3])
    table = part.table[3 * extent.skip : 3 * (extent.skip + extent.messages)]
    crcs: tuple[Any, ...] = table[::3]  # each is compared as the object that it is
    lengths, properties_lengths = table[1::3], table[2::3]
    of_each: list[bytes] = []
    end = begin
    for index, length in enumerate(lengths):
        properties_bytes: int = properties_lengths[index]
        of_each.append(data[end : end + properties_bytes])
        if properties_bytes > length or checksum_object(data[end : end + length]) != crcs[index]:
            return False
        end += length
    first = extent.first_sequence
    for index, is_wanted in enumerate(judge(range(first, first + len(lengths)), of_each)):
        length = lengths[index]
        if is_wanted:
            properties = of_each[index]
            body = data[begin + len(properties) : begin + length]
            messages.append((first + index, properties, body, part.timestamp))
        begin += length
    return True


def _is_whole(found: int, crc: int, length: int, properties_bytes: int) -> bool:
    return found == crc and properties_bytes <= length
