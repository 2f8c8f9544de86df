"""MessageTimes: when a message is due and when it expires, in its properties and as columns of a block.

All times are milliseconds since 1970 of the store's SteadyClock; 0 means that there is no such time. In the properties
of a message, the times are the first field, with a checksum of their own. So a replay reads 23 bytes of a message, and
no body. A block gets the columns with its first message that has a time.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final, NamedTuple

from ..disk.disk import File
from .record import MessageRecord, crc32

NEVER: Final = (1 << 63) - 1
TIMES_BLOCKS: Final = 2
"""A block with times counts as this many more blocks: two columns of 512 numbers of 8 bytes."""
TIME_TAG: Final = 10
TIMES_BYTES: Final = 23
DUE: Final = 0
EXPIRY: Final = 1
"""Index of the second of the two times. DUE is the index of the first."""
CONTENTS_READ_WHOLE: Final = 64 * 1024
"""Contents of a slice up to this size are read at once; of larger ones, the first bytes of each message."""

_TAG: Final = bytes((TIME_TAG,))
_FIELD: Final = struct.Struct("<BHqq")
_CRC: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<qqqqBB")


class MessageTimes(NamedTuple):
    """The times of one message.

    due_at: in a transaction that is not committed, a negative number: the delay after the commit, in ms.
    """

    expires_at: int
    due_at: int

    def committed(self, now_ms: int) -> MessageTimes:
        """Return these times for a transaction that is committed at this moment."""
        return self if self.due_at >= 0 else MessageTimes(self.expires_at, now_ms - self.due_at)

    def left(self, now_ms: int) -> MessageTimes:
        """Return the times for a new arrival of the message: without a due time that has passed."""
        return self if self.due_at > now_ms else MessageTimes(self.expires_at, 0)


NO_TIMES: Final = MessageTimes(0, 0)


def encode_times(expires_at: int, due_at: int) -> bytes:
    """Encode the field that comes before all other properties."""
    field = _FIELD.pack(TIME_TAG, 0, expires_at, due_at)
    return field + _CRC.pack(crc32(field))


def has_times(properties: bytes) -> bool:
    return properties[:1] == _TAG


def times_of(properties: bytes) -> MessageTimes:
    """Return the times in the first bytes of a message; no times if the field is missing or damaged."""
    if properties[:1] != _TAG or len(properties) < TIMES_BYTES:
        return NO_TIMES
    if crc32(properties[: _FIELD.size]) != _CRC.unpack_from(properties, _FIELD.size)[0]:
        return NO_TIMES
    _, _, expires_at, due_at = _FIELD.unpack_from(properties)
    return MessageTimes(expires_at, due_at) if expires_at >= 0 else NO_TIMES


def times_of_each(properties_of_each: Sequence[bytes]) -> list[MessageTimes]:
    """Return the times of each message. If a field equals the previous one, it is not decoded again."""
    first = properties_of_each[0]
    field = first[:TIMES_BYTES]
    if field and all([properties is first or properties.startswith(field) for properties in properties_of_each]):
        return [times_of(field)] * len(properties_of_each)
    each: list[MessageTimes] = []
    field, times = b"", NO_TIMES
    for properties in properties_of_each:
        if not field or not properties.startswith(field):
            field = properties[:TIMES_BYTES]
            times = times_of(properties)
        each.append(times)
    return each


def split_times(properties: bytes) -> tuple[bytes, bytes]:
    """Split properties into the field, which may be empty, and the rest."""
    behind = TIMES_BYTES if has_times(properties) else 0
    return properties[:behind], properties[behind:]


def with_times(properties: bytes, times: MessageTimes) -> bytes:
    """Return the same properties with these times, if they have any; the length stays the same."""
    return encode_times(*times) + properties[TIMES_BYTES:] if has_times(properties) else properties


def read_times(file: File, content_offset: int, part: MessageRecord) -> list[MessageTimes]:
    """Read the times of each message of a slice whose contents begin there. A torn or damaged body has no times."""
    lengths, with_properties = part.lengths, part.table[2::3]
    whole = file.read(content_offset, sum(lengths)) if sum(lengths) <= CONTENTS_READ_WHOLE else None
    times_of_all: list[MessageTimes] = []
    at = 0
    for length, properties_bytes in zip(lengths, with_properties, strict=True):
        times = NO_TIMES
        if TIMES_BYTES <= properties_bytes <= length:
            first = whole[at : at + TIMES_BYTES] if whole is not None else file.read(content_offset + at, TIMES_BYTES)
            times = times_of(first)
        times_of_all.append(times)
        at += length
    return times_of_all


class BlockTimes:
    """The times of the messages of one block. The state lock guards it."""

    __slots__ = ("columns", "not_due_bits", "earliest")

    def __init__(self) -> None:
        # DUE and EXPIRY of each message. The columns end with the last message that has a time.
        self.columns = (array("q"), array("q"))
        # A bit for each message that is not due yet.
        self.not_due_bits = 0
        # Lower bounds of the times at which a pending message is due, and expires.
        self.earliest = [NEVER, NEVER]

    def put(self, index: int, times: MessageTimes) -> None:
        """Set the times of the message with this index. O(1)."""
        for kind, value in ((DUE, times.due_at), (EXPIRY, times.expires_at)):
            column = self.columns[kind]
            if value > 0 and len(column) <= index:
                column.extend([0] * (index + 1 - len(column)))
            if len(column) > index:
                column[index] = value
            if value > 0:
                self.earliest[kind] = min(self.earliest[kind], value)
        self.not_due_bits &= ~(1 << index)
        if times.due_at > 0:
            self.not_due_bits |= 1 << index

    def put_each(self, index: int, each: Sequence[MessageTimes]) -> None:
        """Set the times of the messages from this index on. O(messages)."""
        column = self.columns[EXPIRY]
        expiries, dues = zip(*each, strict=True)
        if any(dues) or 0 in expiries or len(column) > index or len(self.columns[DUE]) > index:
            for at, times in enumerate(each, index):
                self.put(at, times)
            return
        # These have only lifetimes and are behind everything there: where neither column reaches, no bit waits either.
        column.extend([0] * (index - len(column)))
        column.extend(array("q", expiries))
        self.earliest[EXPIRY] = min(self.earliest[EXPIRY], min(expiries))

    def put_expiry(self, index: int, expires_at: int) -> bool:
        """Set when the last message expires, of which nothing is known yet. O(1).

        Return whether it is the first of all to expire.
        """
        column = self.columns[EXPIRY]
        if len(column) < index:
            column.extend([0] * (index - len(column)))
        column.append(expires_at)
        is_first = expires_at < self.earliest[EXPIRY]
        if is_first:
            self.earliest[EXPIRY] = expires_at
        return is_first

    def put_due(self, low: int, high: int, due_at: int) -> None:
        """Let the messages from index low to high wait until this time. O(messages)."""
        column = self.columns[DUE]
        if len(column) <= high:
            column.extend([0] * (high + 1 - len(column)))
        column[low : high + 1] = array("q", [due_at]) * (high - low + 1)
        self.earliest[DUE] = min(self.earliest[DUE], due_at)
        self.not_due_bits |= (1 << high + 1) - (1 << low)

    def forget_due(self, low: int, high: int) -> None:
        """Remove the due times of the messages from index low to high. O(512)."""
        column = self.columns[DUE]
        high = min(high, len(column) - 1)
        if low <= high:
            column[low : high + 1] = array("q", bytes(8 * (high - low + 1)))
            self.not_due_bits &= ~((1 << high + 1) - (1 << low))
            self.refresh(0)

    def of(self, index: int) -> MessageTimes:
        due, expiry = (column[index] if index < len(column) else 0 for column in self.columns)
        return MessageTimes(expiry, due)

    def expired(self, now_ms: int, gone: int) -> int:
        """Return a bit for each pending message that has expired. Updates the earliest time. O(512)."""
        return self._before(EXPIRY, now_ms, gone)

    def take_due(self, now_ms: int, gone: int) -> int:
        """Return a bit for each pending message that is due, and let it wait no longer. O(512)."""
        taken = self._before(DUE, now_ms, gone)
        column = self.columns[DUE]
        for index in range(len(column)):
            if 0 < column[index] <= now_ms:
                column[index] = 0
        self.not_due_bits = sum(1 << index for index, due in enumerate(column) if due)
        self.refresh(gone)
        return taken

    def refresh(self, gone: int) -> None:
        """Find the earliest times again, because some messages are gone. O(512)."""
        for kind in (DUE, EXPIRY):
            self.earliest[kind] = min(filter(None, _pending(self.columns[kind], gone)), default=NEVER)

    def _before(self, kind: int, now_ms: int, gone: int) -> int:
        found = 0
        for index, value in enumerate(self.columns[kind]):
            if 0 < value <= now_ms:
                found |= 1 << index
        self.refresh(gone)
        return found & ~gone

    def pack(self, messages: int, gone: int) -> bytes:
        """Pack the times for the end of a packed block; no bytes if no pending message has a time.

        Each column is its least value and the differences from that, in as many byte planes as needed.
        """
        self.refresh(gone)
        if self.earliest == [NEVER, NEVER]:
            return b""
        parts: list[bytes] = []
        leasts: list[int] = []
        counts: list[int] = []
        for column in self.columns:
            least = min(filter(None, column), default=0)
            packed = _above(column, least).ljust(8 * messages, b"\0") if least else b""
            planes = [packed[plane::8] for plane in range(8)]
            while planes and not planes[-1].strip(b"\0"):
                planes.pop()
            parts += planes
            leasts.append(least)
            counts.append(len(planes))
        return b"".join((*parts, _TAIL.pack(*self.earliest, *leasts, *counts)))

    @classmethod
    def unpack(cls, data: bytes, messages: int, gone: int) -> tuple[BlockTimes, int] | None:
        """Return the times at the end of these bytes, and where they begin. None: `pack` can't have made them."""
        if len(data) < _TAIL.size:
            return None
        due, expiry, *leasts, due_planes, expiry_planes = _TAIL.unpack_from(data, len(data) - _TAIL.size)
        begin = len(data) - _TAIL.size - messages * (due_planes + expiry_planes)
        if due_planes > 8 or expiry_planes > 8 or begin < 0 or any(least < 0 for least in leasts):
            return None
        times = cls()
        at = begin
        for column, least, planes in zip(times.columns, leasts, (due_planes, expiry_planes), strict=True):
            above = bytearray(8 * messages)
            for plane in range(planes):
                above[plane::8] = data[at : at + messages]
                at += messages
            values = [value + least - 1 if value else 0 for value in array("Q", bytes(above))]
            if values and max(values) > NEVER:
                return None
            column.extend(values)
        times.not_due_bits = sum(1 << index for index, value in enumerate(times.columns[DUE]) if value)
        times.refresh(gone)
        return (times, begin) if times.earliest == [due, expiry] else None


def _pending(column: array[int], gone: int) -> Iterable[int]:
    """Return the values of messages that are not gone."""
    if not gone:
        return column
    bits = f"{~gone & (1 << len(column)) - 1:0{len(column)}b}".encode()  # the last message first
    return compress(column, bits[::-1].replace(b"0", b"\0"))


def _above(column: array[int], least: int) -> bytes:
    """Return 8 bytes for each value: 0 for 0, and for others the difference from the least one, plus 1."""
    if 0 in column:
        return array("Q", [value - least + 1 if value else 0 for value in column]).tobytes()
    # One subtraction of long numbers. No value is below the least one, so none borrows from the next.
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * len(column), "little")
    above = int.from_bytes(column.tobytes(), "little") - (least - 1) * ones
    return above.to_bytes(8 * len(column), "little")


def packed_times(packed: bytes) -> tuple[int, int]:
    """Return when the first message of a packed block with times is due, and when the first one expires. 0: never."""
    if len(packed) < _TAIL.size:
        return 0, 0
    due, expiry, *_ = _TAIL.unpack_from(packed, len(packed) - _TAIL.size)
    return (due if 0 < due < NEVER else 0), (expiry if 0 < expiry < NEVER else 0)
