"""A part of an import set: messages for queues by name, gathered by one writer, in a file like a data log.

The header is that of a data log, with the id of the set in place of the store's, and the number of the part + 1 in
place of the data log's. Records follow: destination records give queues a number in this part; the first sequence of a
slice is the place of its first message in the part. A directory record ends the part; without it the part is
unfinished. Readers trust nothing: they check a length before they read so many bytes, and a checksum before they use
the bytes. One record is in RAM at a time, and is charged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ..disk.disk import Disk, File
from ..disk.layout import import_part_name
from ..environment.account import Account
from ..format.contents import Contents
from ..format.message_properties import decode_properties, encode_properties, group_of
from ..format.record import (
    DESTINATION,
    DIRECTORY,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    MESSAGE,
    SLICE_BYTES,
    SLICE_CONTENT_BYTES_MAX,
    SLICE_MESSAGES_MAX,
    WORD_SHIFT,
    Header,
    RecordDamaged,
    crc32,
    decode_header,
    decode_slice,
    encode,
    encode_slice,
    verify_head,
)
from ..format.state_record import NAME_BYTES_MAX, QUEUE, Destination, decode_destination, encode_destination
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    RECORDS_MAX,
    DataLogHeader,
    UnknownVersion,
    decode_data_log_header,
    directory_payload,
    encode_header,
)

PART_BYTES_MAX: Final = 256 << 20
"""A part is ended at this size; one message may exceed it."""

GATHERED_BYTES_MAX: Final = 1 << 20
"""Bytes that a writer holds until slices are full, with 200 bytes for each message."""

DESTINATIONS_MAX: Final = 16_384
"""Most queues of one part."""

TIMESTAMP_MAX: Final = (1 << 53) - 1
PRIORITY_MAX: Final = 9

_MESSAGE_OVERHEAD_BYTES: Final = 200
_DESTINATION_BYTES_MAX: Final = HEADER_BYTES + 6 + NAME_BYTES_MAX
_EPOCH: Final = 1


class PartFacts(NamedTuple):
    """What a manifest says of a part. number: its place in the set. nonce: names the attempt that wrote it."""

    number: int
    nonce: int
    salt: int
    size_bytes: int
    messages: int


class ImportedSlice(NamedTuple):
    """Messages of one lane."""

    destination: str
    priority: int
    timestamp: int
    contents: Contents


class PartsWriter:
    """Writes the messages of one task, in order for each lane, into as many parts as needed.

    If it is killed, no manifest names its parts.
    """

    def __init__(
        self,
        disk: Disk,
        set_id: bytes,
        first_number: int,
        *,
        now_ms: int,
        random_bytes: Callable[[int], bytes],
        part_bytes_max: int = PART_BYTES_MAX,
    ) -> None:
        """Make a writer. first_number: that of the first part; the others count up. import/ must exist."""
        self._disk = disk
        self._set_id = set_id
        self._number = first_number
        self._now_ms = now_ms
        self._random_bytes = random_bytes
        self._part_bytes_max = part_bytes_max
        self._done: list[PartFacts] = []
        self._gathered: dict[tuple[str, int], _Gathered] = {}
        self._gathered_bytes = 0
        self._file: File | None = None
        self._begin_numbers()

    def _begin_numbers(self) -> None:
        self._nonce = self._salt = self._offset = self._messages = 0
        self._offsets = array("I")
        self._destinations: dict[str, int] = {}

    def add(self, destination: str, priority: int, timestamp: int, properties: bytes, body: bytes) -> None:
        """Add one message, which the caller has checked. OSError: the disk refused it."""
        size = len(properties) + len(body)
        lane = destination, priority
        gathered = self._gathered.get(lane)
        if gathered is not None and not gathered.admits(timestamp, size):
            self._write(lane, self._gathered.pop(lane))
            gathered = None
        if gathered is None:
            gathered = self._gathered[lane] = _Gathered(timestamp)
        gathered.add(properties, body)
        self._gathered_bytes += size + _MESSAGE_OVERHEAD_BYTES
        if self._gathered_bytes >= GATHERED_BYTES_MAX:
            self._flush()

    def finish(self) -> list[PartFacts]:
        """Write the rest, and make everything durable except the names, which `manifest.publish` does."""
        self._flush()
        self._end_part()
        return self._done

    def abandon(self) -> None:
        """Close open files. Written parts stay until `remove_unnamed_parts`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _flush(self) -> None:
        for lane, gathered in self._gathered.items():
            self._write(lane, gathered)
        self._gathered.clear()
        self._gathered_bytes = 0

    def _write(self, lane: tuple[str, int], gathered: _Gathered) -> None:
        destination, priority = lane
        self._gathered_bytes -= gathered.size_bytes + _MESSAGE_OVERHEAD_BYTES * len(gathered.contents)
        size = SLICE_BYTES + ENTRY_BYTES * len(gathered.contents) + gathered.size_bytes
        is_full = self._offset + size > self._part_bytes_max or len(self._offsets) + 2 > RECORDS_MAX
        is_full |= destination not in self._destinations and len(self._destinations) >= DESTINATIONS_MAX
        if self._messages and is_full:
            self._end_part()
        if self._file is None:
            self._begin_part()
        number = self._destinations.get(destination)
        if number is None:
            number = self._destinations[destination] = len(self._destinations) + 1
            payload = encode_destination(Destination(number, QUEUE, destination))
            self._append(encode(self._salt, self._sequence_word, _EPOCH, 0, DESTINATION, 0, 1, payload))
        data = encode_slice(
            self._salt,
            self._sequence_word,
            _EPOCH,
            0,
            priority,
            number,
            self._messages,
            gathered.timestamp,
            gathered.contents,
            gathered.contents.lengths(),
        )
        self._append(data)
        self._messages += len(gathered.contents)

    @property
    def _sequence_word(self) -> int:
        return len(self._offsets) << WORD_SHIFT | MAGIC

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        self._file.append(data)
        self._offsets.append(self._offset)
        self._offset += len(data)

    def _begin_part(self) -> None:
        self._nonce = int.from_bytes(self._random_bytes(8), "little")
        self._salt = int.from_bytes(self._random_bytes(4), "little")
        self._file = self._disk.open(import_part_name(self._set_id, self._number, self._nonce), create=True)
        header = DataLogHeader(self._salt, self._set_id, self._number + 1, _EPOCH, 0, self._now_ms)
        self._file.append(encode_header(header))
        self._offset = DATA_LOG_HEADER_BYTES

    def _end_part(self) -> None:
        if self._file is None:
            return
        payload = directory_payload(self._offsets, self._offset)
        self._append(encode(self._salt, self._sequence_word, _EPOCH, 0, DIRECTORY, 0, 0, payload))
        self._file.sync()
        self._file.close()
        self._file = None
        self._done.append(PartFacts(self._number, self._nonce, self._salt, self._offset, self._messages))
        self._number += 1
        self._begin_numbers()


class _Gathered:
    """The slice to which the next messages of a lane are added."""

    __slots__ = ("contents", "size_bytes", "timestamp")

    def __init__(self, timestamp: int) -> None:
        self.timestamp = timestamp
        self.contents = Contents([], [])
        self.size_bytes = 0

    def admits(self, timestamp: int, size: int) -> bool:
        return (
            timestamp == self.timestamp
            and len(self.contents) < SLICE_MESSAGES_MAX
            and self.size_bytes + size <= SLICE_CONTENT_BYTES_MAX
        )

    def add(self, properties: bytes, body: bytes) -> None:
        self.contents.append(properties, body)
        self.size_bytes += len(properties) + len(body)


class PartDamaged(Exception):
    """A part is not what its manifest says. Internal: the ingestion reports it."""


class NoRoomForPart(Exception):
    """Memory has no room to read a part. Internal: the ingestion waits for the next open."""


class PartReader:
    """Reads one part from front to back. Its charge is that of one record, and of the names of its queues."""

    def __init__(
        self, disk: Disk, set_id: bytes, facts: PartFacts, *, account: Account, message_bytes_max: int
    ) -> None:
        """Open a part. account: the caller takes its lock. message_bytes_max: a limit for the content."""
        self._disk = disk
        self._set_id = set_id
        self._facts = facts
        self._account = account
        self._message_bytes_max = message_bytes_max
        self._names: dict[int, str] = {}
        self._charge = 0

    def __iter__(self) -> Iterator[ImportedSlice]:
        """Yield all slices, each whole and verified. PartDamaged names the place. OSError: the disk could not read."""
        place = 0
        number = self._facts.number
        try:
            file = self._disk.open_for_reading(import_part_name(self._set_id, number, self._facts.nonce))
        except FileNotFoundError:
            raise PartDamaged(f"part {number} is missing") from None
        try:
            self._check_header(file)
            records = messages = 0
            place = DATA_LOG_HEADER_BYTES
            while True:
                header = self._header(file, place, records)
                if header.kind == DIRECTORY:
                    break
                self._reserve_record(file, place, header)
                try:
                    data = file.read(place, header.length)
                    verify_head(header, data, self._facts.salt)
                    if header.kind == DESTINATION:
                        self._name(data)
                    else:
                        found = self._slice(header, data, messages)
                        yield found
                        messages += len(found.contents)
                finally:
                    self._release(header.length)
                place += header.length
                records += 1
            self._check_end(file, header, place, records, messages)
        except (RecordDamaged, UnknownVersion) as damage:
            raise PartDamaged(f"part {number} at offset {place}: {damage}") from None
        finally:
            file.close()
            self._release(self._charge)

    def _reserve_record(self, file: File, place: int, header: Header) -> None:
        """Reserve memory for a record. If there is none, tell one that is too long from one whose length is damaged."""
        try:
            self._reserve(header.length)
        except NoRoomForPart:
            self._reserve(header.head_bytes)
            try:
                head = file.read(place, header.head_bytes)
                verify_head(header, head, self._facts.salt)
                if header.kind == MESSAGE:
                    decode_slice(header, head)
            finally:
                self._release(header.head_bytes)
            raise

    def _reserve(self, size: int) -> None:
        if not self._account.reserve(size):
            raise NoRoomForPart(f"memory_limit has no room for {size:,} bytes of part {self._facts.number}: raise it")
        self._charge += size

    def _release(self, size: int) -> None:
        self._account.release(size)
        self._charge -= size

    def _check_header(self, file: File) -> None:
        facts = self._facts
        if file.size() != facts.size_bytes:
            raise RecordDamaged(f"{file.size():,} bytes where the manifest says {facts.size_bytes:,}")
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        if (header.store_id, header.data_log, header.salt) != (self._set_id, facts.number + 1, facts.salt):
            raise RecordDamaged("it belongs to another set or attempt")

    def _header(self, file: File, place: int, records: int) -> Header:
        """Return the next record's header, which is checked only as far as reading needs."""
        header = decode_header(file.read(place, HEADER_BYTES))
        if header.kind == MESSAGE:
            if not 0 < header.entries <= SLICE_MESSAGES_MAX:
                raise RecordDamaged(f"a slice of {header.entries} messages cannot be")
            content_max = self._message_bytes_max
            if header.entries > 1:
                content_max = min(SLICE_CONTENT_BYTES_MAX, SLICE_MESSAGES_MAX * self._message_bytes_max)
            most = SLICE_BYTES + ENTRY_BYTES * SLICE_MESSAGES_MAX + content_max
        elif header.kind == DESTINATION:
            most = _DESTINATION_BYTES_MAX
        elif header.kind == DIRECTORY:
            most = HEADER_BYTES + 4 * records + 12
        else:
            raise RecordDamaged(f"a record of kind {header.kind} has no place in a part")
        if header.length > min(most, self._facts.size_bytes - place):
            raise RecordDamaged(f"a record of {header.length:,} bytes is longer than it may be")
        if header.log_sequence != records or header.epoch != _EPOCH:
            raise RecordDamaged(f"record {header.log_sequence} where {records} was due")
        return header

    def _name(self, data: bytes) -> None:
        destination = decode_destination(data[HEADER_BYTES:])
        if destination.kind != QUEUE or not len(self._names) + 1 == destination.number <= DESTINATIONS_MAX:
            raise RecordDamaged("a destination that cannot be")
        self._reserve(len(data) + _MESSAGE_OVERHEAD_BYTES)
        self._names[destination.number] = destination.name

    def _slice(self, header: Header, data: bytes, messages: int) -> ImportedSlice:
        part = decode_slice(header, data)
        name = self._names.get(part.destination_number)
        if name is None or header.flags > PRIORITY_MAX or part.first_sequence != messages:
            raise RecordDamaged("a slice that cannot be")
        if part.timestamp > TIMESTAMP_MAX:
            raise RecordDamaged(f"a timestamp of {part.timestamp}")
        contents = Contents([], [])
        at = header.head_bytes
        for index in range(0, len(part.table), 3):
            crc, length, properties_bytes = part.table[index : index + 3]
            if length > self._message_bytes_max:
                raise RecordDamaged(f"a message of {length:,} bytes is above max_message_bytes or memory_limit")
            if properties_bytes > length or crc32(data[at : at + length]) != crc:
                raise RecordDamaged(f"message {index // 3} of a slice does not verify")
            properties, body = data[at : at + properties_bytes], data[at + properties_bytes : at + length]
            if encode_properties(*decode_properties(properties), group_of(properties)) != properties:
                raise RecordDamaged(f"message {index // 3} of a slice has more than headers, an id and a group")
            contents.append(properties, body)
            at += length
        return ImportedSlice(name, part.priority, part.timestamp, contents)

    def _check_end(self, file: File, header: Header, place: int, records: int, messages: int) -> None:
        if header.length != HEADER_BYTES + 4 * records + 12 or place + header.length != self._facts.size_bytes:
            raise RecordDamaged("it does not end with its seal")
        self._reserve(header.length)
        verify_head(header, file.read(place, header.length), self._facts.salt)
        if messages != self._facts.messages:
            raise RecordDamaged(f"{messages:,} messages where the manifest says {self._facts.messages:,}")
