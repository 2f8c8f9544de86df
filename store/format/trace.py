"""A recorded trace: what arrived, was taken and was settled, without names, headers or bodies.

    header | block | block | ...        a block: number, length, crc of both and of its events, events

An event is four numbers of variable length (seven bits a byte, lowest first): kind and lane, where it begins as the
distance from where the last event of that kind and lane ended, how many messages, and one more number that the kind
explains. Most events are 4 to 7 bytes. A process that dies leaves a last block that does not verify: a reader goes as
far as blocks do, and says how many bytes are left. No input is trusted: lengths are checked before anything is read.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..disk.disk import File
from ..errors import SettingsError

MAGIC: Final = b"FBTRACE1"
VERSION: Final = 1
HEADER: Final = struct.Struct("<8sHHIQQI")
"""Magic, version, flags, reserved, memory limit, index cache (0: it follows from the limit), crc."""
BLOCK_HEADER: Final = struct.Struct("<III")
BLOCK_BYTES_MAX: Final = 1 << 16
FULL_BYTES: Final = 1 << 14
"""A block of this size is written. Readers accept larger ones, which earlier versions wrote."""
TRACE_BYTES: Final = 3 * FULL_BYTES
"""Memory for recording: the block that is filled, and two copies of it while it is finished."""
LANES_MAX: Final = 1 << 20
NUMBER_MAX: Final = 1 << 62
INDEX_IN_RAM: Final = 1
"""Flag: the store ran with persistent_index=False."""

TICK: Final = 0
"""first: milliseconds since the recording began. At a tick watermarks were measured."""
WAITING: Final = 1
"""Messages are pending and not in RAM: they were there at open, or came by a large commit. extra: total bytes."""
ARRIVE: Final = 2
"""Messages were stored and are in RAM. extra: content bytes of each."""
LIST: Final = 3
"""A list over the lane began. extra: twice its number, plus 1 if it has a selector."""
UNLIST: Final = 4
"""A list ended. extra: its number."""
TAKE: Final = 5
"""Messages were delivered. extra: number of the list."""
ACK: Final = 6
"""Messages were acknowledged: settled and gone."""
RELEASED: Final = 7
"""Messages were settled without an ack (AMQP 1.0 calls that released) and are still pending."""
OFFER: Final = 8
"""Messages are free again, in their places. extra: 1 if they are in RAM, else 0."""
GONE: Final = 9
"""Messages were removed without having been taken."""
KINDS: Final = 10

Event = tuple[int, int, int, int, int]
"""(kind, lane, first, count, extra). Lanes are numbered as they appear; first is a sequence."""


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """The settings that decide about memory."""

    memory_limit_bytes: int
    index_cache_bytes: int
    """0: it follows the limit."""
    has_index_in_ram: bool

    def encode(self) -> bytes:
        flags = INDEX_IN_RAM if self.has_index_in_ram else 0
        fields = (MAGIC, VERSION, flags, 0, self.memory_limit_bytes, self.index_cache_bytes)
        return HEADER.pack(*fields, zlib.crc32(HEADER.pack(*fields, 0)[:-4]))


class Encoder:
    """Encodes events, which are taken out as one block."""

    def __init__(self) -> None:
        # Kind and lane -> where the last event of these ended.
        self._ends: dict[int, int] = {}
        self._payload = bytearray()
        self._number = 0
        self.is_full = False

    def put(self, kind: int, lane_number: int, first: int, count: int, extra: int) -> None:
        """Add one event. Takes about 1 µs."""
        head = lane_number << 4 | kind
        distance = first - self._ends.get(head, 0)
        self._ends[head] = first + count
        payload = self._payload
        for number in (head, distance << 1 if distance >= 0 else ~distance << 1 | 1, count, extra):
            while number > 127:
                payload.append(number & 127 | 128)
                number >>= 7
            payload.append(number)
        self.is_full = len(payload) >= FULL_BYTES

    def block(self) -> bytes:
        """Return the events since the last block, ready to be written; empty if there are none."""
        payload = bytes(self._payload)
        if not payload:
            return b""
        self._payload.clear()
        self.is_full = False
        number, self._number = self._number, self._number + 1
        return BLOCK_HEADER.pack(number, len(payload), _crc(number, payload)) + payload


class TraceReader:
    """Reads a recorded file forward in blocks, in constant memory."""

    def __init__(self, file: File) -> None:
        """Open a trace. SettingsError: it is not a trace of this version."""
        self._file = file
        raw = file.read(0, HEADER.size)
        if len(raw) < HEADER.size or raw[:8] != MAGIC:
            raise SettingsError("it is not a trace that record_trace wrote")
        _, version, flags, _, limit_bytes, index_bytes, crc = HEADER.unpack(raw)
        if version != VERSION:
            raise SettingsError(f"it is a trace of version {version}, and this library reads version {VERSION}")
        if crc != zlib.crc32(raw[:-4]):
            raise SettingsError("the header of the trace is damaged")
        self.header = TraceHeader(limit_bytes, index_bytes, bool(flags & INDEX_IN_RAM))
        # Bytes behind the last block that verifies, once all events were read.
        self.unread_bytes = 0

    def events(self) -> Iterator[Event]:
        """Yield all events in order, up to the first block that does not verify."""
        ends: dict[int, int] = {}
        at, number, size = HEADER.size, 0, self._file.size()
        while (payload := self._payload(at, number)) is not None:
            events = _decoded(payload, ends)
            if events is None:
                break
            yield from events
            at += BLOCK_HEADER.size + len(payload)
            number += 1
        self.unread_bytes = size - at

    def _payload(self, at: int, number: int) -> bytes | None:
        """Return the block there. None: there is none, or it is torn."""
        raw = self._file.read(at, BLOCK_HEADER.size)
        if len(raw) < BLOCK_HEADER.size:
            return None
        found, length, crc = BLOCK_HEADER.unpack(raw)
        if found != number or not 0 < length <= BLOCK_BYTES_MAX:
            return None
        payload = self._file.read(at + BLOCK_HEADER.size, length)
        return payload if len(payload) == length and crc == _crc(number, payload) else None


def _crc(number: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<II", number, len(payload))))


def _decoded(payload: bytes, ends: dict[int, int]) -> list[Event] | None:
    """Return the events of a block. None: they are not valid."""
    events: list[Event] = []
    numbers: list[int] = []
    number = shift = 0
    for byte in payload:
        if byte > 127:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                return None
            continue
        numbers.append(number | byte << shift)
        number = shift = 0
    if shift or len(numbers) % 4:
        return None
    rest = iter(numbers)
    for head, distance, count, extra in zip(rest, rest, rest, rest, strict=True):
        first = ends.get(head, 0) + (~(distance >> 1) if distance & 1 else distance >> 1)
        kind, lane = head & 15, head >> 4
        if kind >= KINDS or lane >= LANES_MAX or not 0 <= first < NUMBER_MAX or max(count, extra) >= NUMBER_MAX:
            return None
        ends[head] = first + count
        events.append((kind, lane, first, count, extra))
    return events
