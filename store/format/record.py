"""The bytes of journal records: the header of all, slices and acks. This module knows neither files nor queues.

A record is a header of 32 bytes and a payload. All numbers are little-endian.

    crc        u32  over every other byte of the head, started with the data log's salt
    length     u32  of the whole record
    kind       u8
    flags      u8   low four bits: priority of the lane; 0x10: a copy; 0x20: of a transaction; 0x40: some messages
                    have times; 0x80: of the current import set. Return records have 0x40 too, the others only slices
    count      u16  messages, ranges or entries in the payload; highest bit of a slice's: duplicates are detected
    magic      u16  F0 BA, so that a search can find the next record behind damage
    sequence   u48  log sequence: one for each record, without gaps over the whole journal
    epoch      u32  one for each open (and one after each write without space)
    durable    u64  position known to be on the device when this was written

A *slice* carries 1 to 256 messages of one lane: destination u32, first sequence u64, timestamp u64 (ms), then a table
of (crc, length, properties length) per message, then each message's properties and body. The crc of the header covers
the table; the table's crcs cover the messages. So a bad body costs that message alone, and a single send has 64 bytes
of overhead. A slice whose flags have RELOCATED is a copy: its messages have the sequences and the timestamp that they
were sent with.

The salt is a random number in the data log's own header. So a record verifies only in the file it was written to:
neither remains of an older file nor a message body that imitates a record is ever taken for a record. Positions are
ints: data log id << 32 | offset.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

from ..numbering import LANE_MASK, LANE_SHIFT, PRIORITIES
from .contents import Contents

try:
    from zlib_ng.zlib_ng import crc32 as _crc32
except ImportError:  # a machine without a wheel for it: the same polynomial, five times slower
    from zlib import crc32 as _crc32

# Declared, so that machine code is the same whether or not zlib-ng is installed where it is compiled.
crc32: Final[Callable[..., int]] = _crc32

HEADER: Final = struct.Struct("<IIBBHQIQ")
HEADER_BYTES: Final = HEADER.size
SLICE: Final = struct.Struct("<IQQ")
ENTRY: Final = struct.Struct("<III")
RANGE: Final = struct.Struct("<QI")
NUMBER: Final = struct.Struct("<I")
"""The number of a destination, subscription or data log with which a payload begins."""
NUMBERED_BYTES: Final = HEADER_BYTES + NUMBER.size
LANE_RUN: Final = struct.Struct("<QQI")
"""A LaneRun: the number of a lane or subscription, first sequence, messages."""
MESSAGE_ONE: Final = struct.Struct("<IIIQIQIQ8xII4x")
"""A slice of one message as recovery reads it: kind, flags and count in one field, without timestamp and properties."""
ACK_ONE: Final = struct.Struct("<IIIQIQIQI")
"""An ack of one run, with kind, flags and count in one field."""
SLICE_BYTES: Final = HEADER_BYTES + SLICE.size
ENTRY_BYTES: Final = ENTRY.size
ONE_BYTES: Final = SLICE_BYTES + ENTRY_BYTES
"""Size of a slice of one message, without its content."""
ACK_BYTES: Final = ACK_ONE.size
"""Size of an ack of one run."""
RECORD_BYTES_MAX: Final = (1 << 30) + (1 << 20)
"""Longest record: a message has at most 1 GiB, and 1 MiB is ample for the bytes around it."""
SLICE_MESSAGES_MAX: Final = 256
SLICE_CONTENT_BYTES_MAX: Final = 256 * 1024
PROPERTIES_BYTES_MAX: Final = (1 << 24) - 1
RANGES_MAX: Final = 4096
RELOCATED: Final = 0x10
"""Flag of a slice: its messages were copied here from an older data log, and are here from now on."""
IMPORTED: Final = 0x80
"""Flag of a slice: its messages come from the present import set, and count as taken over from it."""
IDENTIFIED: Final = 1 << 23
"""Flag of a slice: the destination detects duplicates, so the messages' own ids count.

The byte of the flags has no bit left, so this is the highest bit of the count behind it.
"""
COUNT_MASK: Final = 0x7FFF
"""The bits of a slice's count that have the number of messages. The highest bit is IDENTIFIED."""
COUNT_MAX: Final = (1 << 16) - 1
PRIORITY_MASK: Final = 15
"""The bits of the flags that hold the lane's priority."""
FLAGS_SHIFT: Final = 8
COUNT_SHIFT: Final = 16
"""Where flags and count begin in the u32 whose lowest byte is the kind."""
MAGIC: Final = 0xBAF0
MAGIC_MASK: Final = (1 << 16) - 1
WORD_SHIFT: Final = 16
"""Magic and log sequence are one u64, the word of a record: the sequence is shifted left by so many bits."""
MAGIC_BYTES: Final = MAGIC.to_bytes(2, "little")
MAGIC_OFFSET: Final = 12
FLAGS_OFFSET: Final = 9
SEQUENCE_MAX: Final = (1 << 48) - 1
EPOCH_MAX: Final = (1 << 32) - 1
NUMBERS: Final = 1 << 31
"""Numbers of destinations and subscriptions are below this."""
TIME_MAX: Final = (1 << 62) - 1
"""No time of a message is above this."""
SEQUENCES: Final = 1 << 62
"""Sequences are below this, so that arithmetic with them fits 63 bits."""

_CRC: Final = struct.Struct("<I")
_HEADER_REST: Final = struct.Struct("<IBBHQIQ")
_SLICE_REST: Final = struct.Struct("<IIQIQIQQ")
_STAMP: Final = struct.Struct("<IQ")
_pack_crc: Final = _CRC.pack
_pack_one: Final = struct.Struct("<IIQ12sIQQIII").pack
_pack_ack: Final = struct.Struct("<IIQ12sIQI").pack
"""Methods on the path of single messages and their acks, looked up once."""

MESSAGE: Final = 1
ACK: Final = 2
RETURN: Final = 3
DESTINATION: Final = 4
STATE: Final = 5
ATTEST: Final = 6
DROP: Final = 7
DIRECTORY: Final = 8
COMMIT: Final = 9
PREPARE: Final = 10
ROLLBACK: Final = 11
SURVIVORS: Final = 12
SUBSCRIBE: Final = 13
UNSUBSCRIBE: Final = 14
LOST: Final = 15
DELETE: Final = 16
IMPORT: Final = 17
NEEDS: Final = 20  # no version ever wrote 18 or 19
PROPERTIES: Final = 21
SEEK: Final = 22
KIND_NAMES: Final = {
    MESSAGE: "message",
    ACK: "ack",
    RETURN: "return",
    DESTINATION: "destination",
    STATE: "state",
    ATTEST: "attest",
    DROP: "drop",
    DIRECTORY: "directory",
    COMMIT: "commit",
    PREPARE: "prepare",
    ROLLBACK: "rollback",
    SURVIVORS: "survivors",
    SUBSCRIBE: "subscribe",
    UNSUBSCRIBE: "unsubscribe",
    LOST: "lost",
    DELETE: "delete",
    IMPORT: "import",
    NEEDS: "needs",
    PROPERTIES: "properties",
    SEEK: "seek",
}
LOST_BYTES: Final = HEADER_BYTES + 8

TRANSACTIONAL: Final = 0x20
"""Flag of a slice of a transaction. Its messages take effect with the commit, which gives them sequences.

The field of the first sequence has the transaction's number.
"""

TIMED: Final = 0x40
"""Flag of a slice: properties of some of its messages say when they are due or expire.

Of a return record: it says for each run when it is offered again.
"""

NEVER_IDENTIFIED: Final = RELOCATED | TRANSACTIONAL | IMPORTED

PLAIN_MESSAGE: Final = 1 << COUNT_SHIFT | MESSAGE
"""Kind, flags and count of a slice of one message without flags, at priority 0."""
PLAIN_MESSAGES: Final = frozenset(PLAIN_MESSAGE | priority << FLAGS_SHIFT for priority in range(PRIORITIES))
"""The same for each priority."""
PLAIN_ACK: Final = 1 << COUNT_SHIFT | ACK
"""Kind, flags and count of an ack of one run, at priority 0."""
PLAIN_ACKS: Final = frozenset(PLAIN_ACK | priority << FLAGS_SHIFT for priority in range(PRIORITIES))
"""The same for each priority."""

# crc32 without types, so that machine code passes the checksum on as an object.
checksum_object: Final[Callable[..., Any]] = _crc32


class RecordDamaged(Exception):
    """The bytes are not a record of this data log. Internal: the journal decides what that means."""


class Header(NamedTuple):
    """The header of a record, checked only as far as its own bytes allow."""

    crc: int
    length: int
    kind: int
    flags: int
    entries: int
    """The field `count`, which is a method's name here."""
    log_sequence: int
    epoch: int
    durable: int

    @property
    def priority(self) -> int:
        return self.flags & PRIORITY_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.flags & TRANSACTIONAL)

    @property
    def is_identified(self) -> bool:
        return bool(self.flags & IDENTIFIED)

    @property
    def head_bytes(self) -> int:
        """Bytes from the beginning of the record that its crc covers."""
        if self.kind == MESSAGE:
            return SLICE_BYTES + ENTRY_BYTES * self.entries
        if self.kind == LOST:
            return LOST_BYTES if self.length >= LOST_BYTES else HEADER_BYTES
        return self.length


class MessageRecord(NamedTuple):
    """The head of a slice: the lane of its messages, and the table that finds and verifies each of them."""

    destination_number: int
    priority: int
    first_sequence: int
    timestamp: int
    table: tuple[int, ...]
    """crc, length, properties length of the first message, of the second, and so on."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Content bytes (properties and body) of each message."""
        return self.table[1::3]


class AckRange(NamedTuple):
    """A run of sequences of one lane, as an ack has it: the first one, and how many there are."""

    first: int
    messages: int


class AckRecord(NamedTuple):
    """An ack record: these messages of one lane are removed."""

    number: int
    """Number of the destination, or of the subscription that acknowledged."""
    priority: int
    ranges: list[AckRange]


class AttestRecord(NamedTuple):
    """An attest record: everything before that position is durable."""

    position: int


class LostRecord(NamedTuple):
    """A lost record: a repair gave up records that were here."""


class DirectoryRecord(NamedTuple):
    """A directory record: it ends a data log, and says where the records before it are."""


class LaneRun(NamedTuple):
    """A run of sequences, and the lane that has them."""

    lane_number: int
    first: int
    messages: int


def stamp(epoch: int, durable: int) -> bytes:
    """Encode the epoch and the durable position for a header.

    Both stay the same over many records, so the encoders of single records take these 12 bytes.
    """
    return _STAMP.pack(epoch, durable)


def encode_one(
    salt: Any,
    word: int,
    stamped: bytes,
    flags: int,
    destination_number: int,
    sequence: int,
    timestamp: int,
    properties: bytes,
    body: bytes,
    content_bytes: int,
) -> bytes:
    """Encode a slice of one message. Every single send passes here.

    word: log sequence << WORD_SHIFT | MAGIC. stamped: see `stamp`. flags: the priority and the other flags of a slice.
        content_bytes: properties and body together, which the caller knows. A body above SLICE_CONTENT_BYTES_MAX is
        left out: the caller writes it behind this, so that it is not copied.

    This function and encode_slice have ten parameters, because each send would have to make a parameter object. Their
    callers have each value at hand: the journal has those of the header, and the lane those of the messages.
    """
    rest = _pack_one(
        ONE_BYTES + content_bytes,
        PLAIN_MESSAGE | flags << FLAGS_SHIFT,
        word,
        stamped,
        destination_number,
        sequence,
        timestamp,
        checksum_object(body, checksum_object(properties)) if properties else checksum_object(body),
        content_bytes,
        len(properties),
    )
    head = _pack_crc(checksum_object(rest, salt)) + rest
    if content_bytes > SLICE_CONTENT_BYTES_MAX:
        return head + properties
    return head + properties + body if properties else head + body


def encode_slice(
    salt: int,
    word: int,
    epoch: int,
    durable: int,
    flags: int,
    destination_number: int,
    sequence: int,
    timestamp: int,
    contents: Contents,
    lengths: Sequence[int],
) -> bytes:
    """Encode a slice of contents whose lengths are `lengths`. It works by columns, for batches.

    word, flags, and why there are so many parameters: as in encode_one.
    """
    count = len(lengths)
    table = array("I", bytes(ENTRY_BYTES * count))
    table[1::3] = array("I", lengths)
    bodies, of_each = contents.bodies, contents.properties
    first, last = of_each[0], of_each[-1]
    has_any = any(of_each)
    if not has_any:
        crcs = map(crc32, bodies)
    elif first == last and of_each.count(first) == count:  # all have the same lifetime
        crcs = map(crc32, bodies, repeat(crc32(first)))
        table[2::3] = array("I", [len(first)]) * count
    else:
        crcs = map(crc32, bodies, map(crc32, of_each))
        table[2::3] = array("I", [len(properties) for properties in of_each])
    table[::3] = array("I", list(crcs))  # from an iterator it would be filled one by one
    if sys.byteorder == "big":
        table.byteswap()
    packed = table.tobytes()
    rest = _SLICE_REST.pack(
        SLICE_BYTES + len(packed) + sum(lengths),
        count << COUNT_SHIFT | flags << FLAGS_SHIFT | MESSAGE,
        word,
        epoch,
        durable,
        destination_number,
        sequence,
        timestamp,
    )
    parts = [_CRC.pack(crc32(packed, crc32(rest, salt))), rest, packed]
    if not has_any:
        return b"".join(parts + bodies)
    alternate = bodies + bodies  # only for its length: all places are replaced; an iterator over pairs takes longer
    alternate[::2], alternate[1::2] = of_each, bodies
    return b"".join(parts + alternate)


def encode_ack(
    salt: Any, word: int, stamped: bytes, priority: int, destination_number: int, first: int, count: int
) -> bytes:
    """Encode an ack of one run: ACK_BYTES, however long the run is. stamped: see `stamp`."""
    rest = _pack_ack(ACK_BYTES, PLAIN_ACK | priority << FLAGS_SHIFT, word, stamped, destination_number, first, count)
    return _pack_crc(checksum_object(rest, salt)) + rest


def encode(salt: int, word: int, epoch: int, durable: int, kind: int, flags: int, count: int, payload: bytes) -> bytes:
    """Encode a record of any kind but a slice."""
    rest = _HEADER_REST.pack(HEADER_BYTES + len(payload), kind, flags, count, word, epoch, durable) + payload
    return _CRC.pack(crc32(rest, salt)) + rest


def encode_lost(salt: int, log_sequence: int, epoch: int, records: int, length: int) -> bytes:
    """Encode the head of a lost record, which replaces `records` records and covers their `length` bytes.

    The number of records is in the payload, or in the count if there is no room for a payload.
    """
    payload = records.to_bytes(8, "little") if length >= LOST_BYTES else b""
    count = min(records, COUNT_MAX)
    rest = _HEADER_REST.pack(length, LOST, 0, count, log_sequence << WORD_SHIFT | MAGIC, epoch, 0) + payload
    return _CRC.pack(crc32(rest, salt)) + rest


def log_sequence_behind(header: Header, head: bytes | memoryview) -> int:
    """Return the log sequence of the record that follows this one. head: verified."""
    if header.kind != LOST:
        return header.log_sequence + 1
    if header.length < LOST_BYTES:
        return header.log_sequence + header.entries
    return header.log_sequence + int.from_bytes(head[HEADER_BYTES:LOST_BYTES], "little")


def ack_payload(number: int, ranges: Iterable[AckRange]) -> bytes:
    return NUMBER.pack(number) + b"".join([RANGE.pack(first, messages) for first, messages in ranges])


def decode_header(data: bytes | memoryview, offset: int = 0) -> Header:
    """Read 32 bytes at offset. RecordDamaged: no record can begin like that. The crc is not checked."""
    try:
        crc, length, kind, flags, count, word, epoch, durable = HEADER.unpack_from(data, offset)
    except struct.error:
        raise RecordDamaged("an incomplete record") from None
    if word & MAGIC_MASK != MAGIC:
        raise RecordDamaged("no record begins here")
    if count > COUNT_MASK and kind == MESSAGE:
        count, flags = count & COUNT_MASK, flags | IDENTIFIED
        if flags & NEVER_IDENTIFIED:
            raise RecordDamaged("a slice whose ids count once cannot be a copy, imported or of a transaction")
    if flags & PRIORITY_MASK >= PRIORITIES:
        raise RecordDamaged(f"a priority of {flags & PRIORITY_MASK} cannot be")
    header = Header(crc, length, kind, flags, count, word >> WORD_SHIFT, epoch, durable)
    if not HEADER_BYTES <= length <= RECORD_BYTES_MAX or header.head_bytes > length:
        raise RecordDamaged(f"a record of {length} bytes cannot be")
    return header


def check_run(lane_number: int, first: int, messages: int) -> None:
    """Raise RecordDamaged unless a lane can have such a run: a record with a right checksum may still be invalid."""
    if lane_number & LANE_MASK >= PRIORITIES or lane_number >> LANE_SHIFT >= NUMBERS or first + messages > SEQUENCES:
        raise RecordDamaged(f"sequences {first} to {first + messages - 1} of lane {lane_number:x} cannot be")


def verify_head(header: Header, head: bytes | memoryview, salt: int) -> None:
    """Raise RecordDamaged unless the checksum matches. head: the first header.head_bytes bytes of the record."""
    if crc32(head[_CRC.size : header.head_bytes], salt) != header.crc:
        raise RecordDamaged("the record's checksum does not match")
    if header.kind == LOST and log_sequence_behind(header, head) > SEQUENCE_MAX:
        raise RecordDamaged("more records than can be are said to be lost")


def decode_slice(header: Header, head: bytes | memoryview, offset: int = 0) -> MessageRecord:
    """Decode the table of a verified head at offset; check that the lengths add up to the record's own."""
    if not 0 < header.entries <= SLICE_MESSAGES_MAX:
        raise RecordDamaged(f"a slice of {header.entries} messages cannot be")
    try:
        destination_number, first_sequence, timestamp = SLICE.unpack_from(head, offset + HEADER_BYTES)
        table = struct.unpack_from(f"<{3 * header.entries}I", head, offset + SLICE_BYTES)
    except struct.error:
        raise RecordDamaged("an incomplete table of a slice") from None
    if header.head_bytes + sum(table[1::3]) != header.length:
        raise RecordDamaged("the table of a slice does not add up to its length")
    return MessageRecord(destination_number, header.flags & PRIORITY_MASK, first_sequence, timestamp, table)


def decode_ack(header: Header, head: bytes | memoryview) -> AckRecord:
    """Decode the runs of a verified ack. RecordDamaged: they do not fill the record."""
    if header.length != NUMBERED_BYTES + RANGE.size * header.entries or len(head) < header.length:
        raise RecordDamaged("the ranges of an ack do not add up to its length")
    (number,) = NUMBER.unpack_from(head, HEADER_BYTES)
    ranges = [AckRange(*RANGE.unpack_from(head, NUMBERED_BYTES + RANGE.size * n)) for n in range(header.entries)]
    return AckRecord(number, header.priority, ranges)
