"""One data log file: its header, a walk over its records, and a search for records behind damage.

    magic "FOREBAY1"  version u16  header bytes u16  salt u32  store id 16 bytes
    data log id u32   epoch u32    first log sequence u64      created u64 (ms)   crc u32

The header has 64 bytes with padding; records follow. A sealed data log ends with a directory record: the offset of each
record (u32), then the directory's own offset, the number of records and a mark. A walk trusts nothing, and ends at the
first record that does not verify. Its caller decides whether that place is a torn tail or corruption.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from ..disk.disk import File
from ..format.record import (
    ACK,
    ACK_ONE,
    DIRECTORY,
    FLAGS_SHIFT,
    HEADER_BYTES,
    MAGIC,
    MAGIC_BYTES,
    MAGIC_OFFSET,
    MESSAGE,
    MESSAGE_ONE,
    NUMBERS,
    PLAIN_ACKS,
    PLAIN_MESSAGES,
    PRIORITY_MASK,
    SEQUENCE_MAX,
    SEQUENCES,
    WORD_SHIFT,
    Header,
    RecordDamaged,
    crc32,
    decode_header,
    decode_slice,
    log_sequence_behind,
    verify_head,
)
from ..numbering import LANE_SHIFT
from .forward_reader import ForwardReader

FORMAT_VERSION: Final = 3
"""The format of data logs that this version writes.

Raise it for everything that an older reader would misunderstand or skip with harm: other bytes of a kind, a new flag, a
new part of a state record, and each new kind unless the store is the same without its records. Replay skips a kind that
it does not know (`UnknownRecord`). A version that it does not know is refused before any record is read.
"""
VERSIONS_READ: Final = frozenset((2, 3))
"""Everything that version 2 wrote means the same in version 3, which added kinds and parts: one reader serves both."""
DATA_LOG_HEADER_BYTES: Final = 64
DIRECTORY_MARK: Final = 0x52494446
RECORDS_MAX: Final = 1 << 18
"""A data log is rolled at this many records, so the directory of the newest one never takes more than 1 MiB of RAM."""

_FILE_MAGIC: Final = b"FOREBAY1"
_FILE_HEADER: Final = struct.Struct("<8sHHI16sIIQQI4x")
_TRAILER: Final = struct.Struct("<III")
_CHUNK_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 4096
_ZEROS: Final = bytes(_PIECE_BYTES)
_HEAD_BYTES_MAX: Final = 1 << 21
"""Most bytes that a search behind damage reads at once: above the longest table, directory and state."""

# Typed for machine code, as `_unpack_one` in regions.py.
_unpack_message: Final[Callable[[bytes, int], tuple[int, int, int, int, int, int, int, int, int, int]]] = (
    MESSAGE_ONE.unpack_from
)
_unpack_ack: Final[Callable[[bytes, int], tuple[int, int, int, int, int, int, int, int, int]]] = ACK_ONE.unpack_from


class DataLogHeader(NamedTuple):
    salt: int
    store_id: bytes
    data_log: int
    epoch: int
    first_log_sequence: int
    created: int


class UnknownVersion(Exception):
    """A data log of a format that this library does not read, and leaves unchanged. Internal: the store names it."""


def encode_header(header: DataLogHeader) -> bytes:
    salt, *others = header
    data = _FILE_HEADER.pack(_FILE_MAGIC, FORMAT_VERSION, DATA_LOG_HEADER_BYTES, salt, *others, 0)
    return data[:56] + crc32(data[:56]).to_bytes(4, "little") + bytes(4)


def decode_data_log_header(data: bytes) -> DataLogHeader:
    """Return the header.

    RecordDamaged: these are not the first 64 bytes of a data log. UnknownVersion: its format is not read here.
    """
    if len(data) < DATA_LOG_HEADER_BYTES:
        raise RecordDamaged("the data log's header is incomplete")
    magic, version, size, salt, store_id, data_log, epoch, first, created, crc = _FILE_HEADER.unpack_from(data)
    if magic != _FILE_MAGIC or crc != crc32(data[:56]):
        raise RecordDamaged("the data log's header does not verify")
    if version not in VERSIONS_READ or size != DATA_LOG_HEADER_BYTES:
        known = " and ".join(map(str, sorted(VERSIONS_READ)))
        raise UnknownVersion(f"format version {version}; this library reads versions {known}")
    if any(data[60:DATA_LOG_HEADER_BYTES]):
        raise RecordDamaged("the data log's header does not end with zeros")
    if first > SEQUENCE_MAX:
        raise RecordDamaged(f"a first log sequence of {first} cannot be")
    return DataLogHeader(salt, store_id, data_log, epoch, first, created)


def directory_payload(offsets: array[int], directory_offset: int) -> bytes:
    """Encode a directory. offsets: those of all records before it, as array("I").

    O(1) objects, whatever their number.
    """
    if sys.byteorder == "big":
        offsets = offsets[:]
        offsets.byteswap()
    return offsets.tobytes() + _TRAILER.pack(directory_offset, len(offsets), DIRECTORY_MARK)


Plain = tuple[int, int, int, int, list[int], list[int]]
"""Either consecutive records of one message each in a lane, or one ack of one run. Most of a journal is such records.

Its fields: offset of the first record, number of the lane, first sequence; for an ack the number of messages, otherwise
0; for messages the offset of each record, and the content bytes of each, otherwise empty lists. It is a tuple because a
replay makes one for nearly every record.
"""


class RecordWalk:
    """A walk over the records of a data log. After the iteration, `end` and `problem` tell where and why it stopped."""

    def __init__(
        self,
        file: File,
        header: DataLogHeader,
        offset: int,
        *,
        next_log_sequence: int | None = None,
        verify_from: int | None = None,
    ) -> None:
        """Begin a walk. O(1): nothing is read yet.

        verify_from: offset from which bodies are verified too; None: only heads.
        """
        self._file = file
        self._salt = header.salt
        self._size = file.size()
        self._verify_from = verify_from
        self.end = offset
        self.next_log_sequence = next_log_sequence
        self.epoch = 0
        # The greatest durable end that an intact record contains.
        self.durable_end = 0
        self.is_sealed = False
        self.problem: str | None = None
        self._chunk = b""
        # Offset of the chunk in the file.
        self._base = offset

    def __iter__(self) -> Iterator[tuple[int, Header, bytes]]:
        """Yield (offset, header, head). The head is the whole record except a slice's messages."""
        while not self.is_sealed:
            chunk, at = self._chunk, self.end - self._base
            if at + HEADER_BYTES > len(chunk):
                chunk, at = self._read(_CHUNK_BYTES), 0
                if len(chunk) < HEADER_BYTES:
                    self.problem = "an incomplete record" if chunk.strip(b"\0") else None
                    return
            try:
                header = decode_header(chunk, at)
                if self.end + header.length > self._size:
                    raise RecordDamaged("the record reaches beyond the end of the file")
                wanted = header.length if self._is_verified() and header.length <= _CHUNK_BYTES else header.head_bytes
                if wanted > _CHUNK_BYTES:
                    # Before memory is allocated, because the length may be wrong.
                    self._verify_in_pieces(header)
                if at + wanted > len(chunk):
                    chunk, at = self._read(max(wanted, _CHUNK_BYTES)), 0
                head = chunk[at : at + header.head_bytes]
                verify_head(header, head, self._salt)
                if header.kind == MESSAGE:
                    self._verify_slice(header, head, chunk, at)
                self._follow(header, head)
            except RecordDamaged as damage:
                is_untouched = not chunk[at : at + HEADER_BYTES].strip(b"\0")
                self.problem = None if is_untouched else str(damage)
                return
            offset = self.end
            self.end = offset + header.length
            self.is_sealed = header.kind == DIRECTORY
            yield offset, header, head

    def gather(self, most: int) -> list[Plain]:
        """Return up to `most` plain records from here on, verified as in the iteration. The iteration goes on behind
        them.

        This stops at a record that is not plain or not intact, and at the end of the bytes in RAM: the iteration
        handles what follows. It is six times as fast, as one flat loop without objects for heads.
        """
        gathered: list[Plain] = []
        chunk, base, epoch = self._chunk, self._base, self.epoch
        salt: Any = self._salt  # kept as an object, as in regions.py
        at, behind = self.end - base, min(len(chunk), self._size - base)
        message_bytes, ack_bytes, step = MESSAGE_ONE.size, ACK_ONE.size, 1 << WORD_SHIFT
        verify_at = self._verify_from - base if self._verify_from is not None else behind
        sequence, durable_end = self.next_log_sequence, self.durable_end
        assert sequence is not None
        due, due_end = sequence << WORD_SHIFT | MAGIC, sequence + most << WORD_SHIFT
        offsets: list[int] = []
        lengths: list[int] = []
        kind_due = destination_due = first_due = -1
        last = behind - message_bytes
        while at <= last and due < due_end:
            if chunk[at + 8] == MESSAGE:
                head_crc, length, kind, word, found_epoch, found_durable, destination, first, crc, size = (
                    _unpack_message(chunk, at)
                )
                content, end = at + message_bytes, at + length
                if word != due or found_epoch != epoch or content + size != end or end > behind:
                    break
                if crc32(chunk[at + 4 : content], salt) != head_crc:
                    break
                if at >= verify_at and crc32(chunk[content:end]) != crc:
                    break
                if first != first_due or kind != kind_due or destination != destination_due:
                    if kind not in PLAIN_MESSAGES or first >= SEQUENCES - most or destination >= NUMBERS:
                        break
                    kind_due, destination_due, offsets, lengths = kind, destination, [], []
                    lane = destination << LANE_SHIFT | kind >> FLAGS_SHIFT & PRIORITY_MASK
                    gathered.append((base + at, lane, first, 0, offsets, lengths))
                offsets.append(base + at)
                lengths.append(size)
                first_due = first + 1
            elif chunk[at + 8] == ACK:
                head_crc, length, kind, word, found_epoch, found_durable, destination, first, messages = _unpack_ack(
                    chunk, at
                )
                end = at + ack_bytes
                if word != due or found_epoch != epoch or length != ack_bytes:
                    break
                if kind not in PLAIN_ACKS or not messages or destination >= NUMBERS:
                    break
                if crc32(chunk[at + 4 : end], salt) != head_crc:
                    break
                lane = destination << LANE_SHIFT | kind >> FLAGS_SHIFT & PRIORITY_MASK
                gathered.append((base + at, lane, first, messages, [], []))
                first_due = -1
            else:
                break
            if found_durable > durable_end:
                durable_end = found_durable
            due += step
            at = end
        self.end, self.next_log_sequence, self.durable_end = base + at, due >> WORD_SHIFT, durable_end
        return gathered

    def _read(self, size: int) -> bytes:
        self._chunk, self._base = self._file.read(self.end, size), self.end
        return self._chunk

    def _verify_in_pieces(self, header: Header) -> None:
        if crc_of(self._file, self.end + 4, header.head_bytes - 4, self._salt) != header.crc:
            raise RecordDamaged("the record's checksum does not match")

    def _is_verified(self) -> bool:
        return self._verify_from is not None and self.end >= self._verify_from

    def _follow(self, header: Header, head: bytes) -> None:
        if self.next_log_sequence is not None and header.log_sequence != self.next_log_sequence:
            raise RecordDamaged(f"log sequence {header.log_sequence} where {self.next_log_sequence} was due")
        if header.epoch < self.epoch:
            raise RecordDamaged(f"epoch {header.epoch} behind epoch {self.epoch}")
        self.next_log_sequence = log_sequence_behind(header, head)
        self.epoch = header.epoch
        self.durable_end = max(self.durable_end, header.durable)

    def _verify_slice(self, header: Header, head: bytes, chunk: bytes, at: int) -> None:
        table = decode_slice(header, head).table
        if not self._is_verified():
            return
        position = header.head_bytes
        view = memoryview(chunk)
        for index in range(0, len(table), 3):
            crc, length = table[index], table[index + 1]
            if at + position + length <= len(chunk):
                actual = crc32(view[at + position : at + position + length])
            else:
                actual = crc_of(self._file, self.end + position, length)
            if actual != crc:
                raise RecordDamaged(f"the checksum of message {index // 3} of a slice does not match")
            position += length


def find_records(file: File, header: DataLogHeader, offset: int) -> Iterator[tuple[int, Header]]:
    """Yield (offset, header) of each record with an intact head at or after offset, wherever it begins.

    The inside of a whole record is not searched. Cost: it reads the rest of the file once, the messages of whole
    records twice, and 2 KiB more for each place that looks like a header, whatever length it claims.
    """
    size = file.size()
    window = ForwardReader(file, offset)
    while window.read_up_to(offset + HEADER_BYTES):
        at = window.data.find(MAGIC_BYTES, offset + MAGIC_OFFSET - window.begin)
        place = window.begin + at - MAGIC_OFFSET if at >= 0 else window.end - MAGIC_OFFSET - 1
        offset = place + (at >= 0)
        record = _head_in(window, place, header.salt, size) if at >= 0 else None
        if record is not None:
            yield place, record
            if _is_whole(file, place, record):
                offset = place + record.length
        if offset >= window.end:
            window = ForwardReader(file, offset)
        elif offset - window.begin >= _CHUNK_BYTES:
            window.forget(offset)


def _head_in(window: ForwardReader, place: int, salt: int, size: int) -> Header | None:
    """Return the header of the record that begins at `place`. None: there is no record whose head verifies."""
    if not window.read_up_to(place + HEADER_BYTES):
        return None
    try:
        record = decode_header(window.data, place - window.begin)
    except RecordDamaged:
        return None
    head_end = place + record.head_bytes
    if place + record.length > size or record.head_bytes > _HEAD_BYTES_MAX or not window.read_up_to(head_end):
        return None
    return record if window.checksum(place + 4, head_end, salt) == record.crc else None


def _is_whole(file: File, offset: int, record: Header) -> bool:
    """Return whether the messages of a record verify. Requires: its head verifies."""
    if record.kind != MESSAGE:
        return True
    try:
        table = decode_slice(record, file.read(offset, record.head_bytes)).table
    except RecordDamaged:
        return False
    begin = offset + record.head_bytes
    for index in range(0, len(table), 3):
        crc, length = table[index], table[index + 1]
        if crc_of(file, begin, length) != crc:
            return False
        begin += length
    return True


def crc_of(file: File, offset: int, length: int, crc: int = 0) -> int:
    """Return the checksum of a range, read in pieces and continued from crc; -1 if the file ends before it."""
    while length > 0:
        part = file.read(offset, min(length, _CHUNK_BYTES))
        if not part:
            return -1
        crc = crc32(part, crc)
        offset += len(part)
        length -= len(part)
    return crc


def attested_behind(file: File, header: DataLogHeader, offset: int) -> int:
    """Return the greatest durable end in any intact record at or behind offset; 0: none.

    A walk stops at a torn tail and at corruption alike. If a later record knew the place to be durable, it is
    corruption. Cost: that of `find_records`.
    """
    return max((found.durable for _, found in find_records(file, header, offset)), default=0)


def record_at(file: File, header: DataLogHeader, offset: int) -> tuple[Header, bytes] | None:
    """Return the header and head of the record that begins there. None: there is no record whose head verifies."""
    try:
        record = decode_header(file.read(offset, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))
        if offset + record.length > file.size() or record.head_bytes > _HEAD_BYTES_MAX:
            return None
        head = file.read(offset, record.head_bytes)
        verify_head(record, head, header.salt)
    except RecordDamaged:
        return None
    return record, head


def seal_of(file: File, header: DataLogHeader) -> tuple[int, Header, bytes] | None:
    """Return (offset, header, head) of the directory at the end of a sealed data log. None: it ends otherwise.

    It makes two reads, and does not check that the records are where the directory says.
    """
    size = file.size()
    if size < DATA_LOG_HEADER_BYTES + HEADER_BYTES + _TRAILER.size:
        return None
    offset, records, mark = _TRAILER.unpack(file.read(size - _TRAILER.size, _TRAILER.size).ljust(_TRAILER.size, b"\0"))
    if mark != DIRECTORY_MARK or offset + HEADER_BYTES + 4 * records + _TRAILER.size != size:
        return None
    found = record_at(file, header, offset)
    if found is None or found[0].kind != DIRECTORY or found[0].length != size - offset:
        return None
    return offset, *found


def used_bytes(file: File, offset: int) -> int:
    """Return the bytes behind offset up to the last one that is not zero: preallocated space is no loss.

    It reads the file to its end.
    """
    used = 0
    base = offset
    while chunk := file.read(offset, _CHUNK_BYTES):
        chunk_used = _used(chunk)
        if chunk_used:
            used = offset - base + chunk_used
        offset += len(chunk)
    return used


def _used(chunk: bytes) -> int:
    """Return how many bytes there are up to the last one that is not zero.

    Zeros are compared in whole pieces, which is forty times as fast as stripping them.
    """
    end = len(chunk)
    while end >= _PIECE_BYTES and chunk[end - _PIECE_BYTES : end] == _ZEROS:
        end -= _PIECE_BYTES
    begin = max(end - _PIECE_BYTES, 0)
    return begin + len(chunk[begin:end].rstrip(b"\0"))
