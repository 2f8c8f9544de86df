"""SpilledMessage: the bytes of a message in a file of tmp-storage. Files are never synced.

Each message is a head of 28 bytes, its properties and its body. The file does not say where messages are: their places
are in RAM, and the next process deletes the file unread. The numbers of the head are little-endian: crc u32 over
everything behind it, started with the file's salt; properties u32 bytes; body u32 bytes; sequence u64; timestamp u64 in
milliseconds since 1970.

The salt is random for each file, and only in RAM. So neither older bytes on the device nor a body that imitates a
message verifies.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ..format.record import crc32
from ..journal.regions import PIECE_BYTES, ReadableFile, read_verified
from ..stored_message import StoredMessage

HEAD: Final = struct.Struct("<IIIQQ")
HEAD_BYTES: Final = HEAD.size
_CRC: Final = struct.Struct("<I")
_CRC_BYTES: Final = _CRC.size
_REST: Final = struct.Struct("<IIQQ")
# Typed for the reason of `_unpack_one` in store/journal/regions.py. Nothing computes with crc and timestamp, so both
# stay objects.
_unpack_head: Final[Callable[[bytes, int], tuple[Any, int, int, int, Any]]] = HEAD.unpack_from
_pack_crc: Final = _CRC.pack
_pack_rest: Final = _REST.pack
# Under another name and without types, so that machine code passes the checksum on as the object that crc32 returned.
_checksum: Final[Callable[..., Any]] = crc32

SpilledMessage = tuple[int, bytes, bytes, int]
"""(sequence, properties, body, timestamp in ms)."""


class TmpRegion(NamedTuple):
    """A read from offset on, and the messages in it. It is valid without any lock."""

    file: ReadableFile | None
    """The open file. None: it could not be opened, and `problem` says why."""
    problem: str
    file_number: int
    salt: int
    offset: int
    messages: list[tuple[int, int, int]]
    """(sequence, offset in the region, bytes with the head) in the order of the file; at least one."""

    @property
    def length(self) -> int:
        """Number of bytes to read."""
        _, last_at, last_bytes = self.messages[-1]
        return last_at + last_bytes


def message_bytes(message: SpilledMessage) -> int:
    """Return the bytes that a message takes in a file."""
    return HEAD_BYTES + len(message[1]) + len(message[2])


def encode(salt: Any, messages: Iterable[SpilledMessage]) -> list[bytes]:
    """Return the pieces to join for a write. The last piece is the body of the last message, not copied."""
    parts: list[bytes] = []
    for sequence, properties, body, timestamp in messages:
        rest = _pack_rest(len(properties), len(body), sequence, timestamp)
        crc = _checksum(rest, salt)
        if properties:
            parts += (_pack_crc(_checksum(body, _checksum(properties, crc))), rest, properties, body)
        else:
            parts += (_pack_crc(_checksum(body, crc)), rest, body)
    return parts


def read_regions(regions: Sequence[TmpRegion]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
    """Return the messages in planned order, and (sequence, problem) of those that can't be read.

    One read per region.
    """
    messages: list[StoredMessage] = []
    unreadable: list[tuple[int, str]] = []
    for region in regions:
        data, problem = _read(region)
        if problem:
            unreadable += [(sequence, problem) for sequence, _, _ in region.messages]
            continue
        salt: Any = region.salt
        view = memoryview(data)
        for sequence, at, length in region.messages:
            crc, properties_bytes, body_bytes, found, timestamp = _unpack_head(data, at)
            body_at = at + HEAD_BYTES + properties_bytes
            end = at + length
            if (
                found == sequence
                and body_at + body_bytes == end
                and _checksum(view[at + _CRC_BYTES : end], salt) == crc  # one call for both, without a copy
            ):
                properties = data[at + HEAD_BYTES : body_at] if properties_bytes else b""
                messages.append((sequence, properties, data[body_at:end], timestamp))
                continue
            place = f"tmp-{region.file_number}.dat at {region.offset + at}"
            unreadable.append((sequence, f"{place}: the checksum of the message does not match"))
    return messages, unreadable


def read_headers(region: TmpRegion, pay: Callable[[int], None]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
    """Return the only message of a region with an empty body, as journal.regions does, or why it can't be read.

    pay: see journal.regions.read_headers.
    """
    ((sequence, at, length),) = region.messages
    pay(PIECE_BYTES)
    if region.file is None:
        return [], [(sequence, region.problem)]
    begin = region.offset + at
    try:
        head = region.file.read(begin, HEAD_BYTES)
        crc, properties_bytes, body_bytes, found, timestamp = HEAD.unpack(head)
        if found == sequence and HEAD_BYTES + properties_bytes + body_bytes == length:
            content_bytes = properties_bytes + body_bytes
            started = crc32(head[_CRC_BYTES:], region.salt)
            properties = read_verified(
                region.file, begin + HEAD_BYTES, content_bytes, properties_bytes, crc, pay, started=started
            )
            if properties is not None:
                return [(sequence, properties, b"", timestamp)], []
    except OSError as error:
        return [], [(sequence, f"tmp-{region.file_number}.dat: the read failed ({error.strerror})")]
    except struct.error:
        return [], [(sequence, f"tmp-{region.file_number}.dat ends before it")]
    place = f"tmp-{region.file_number}.dat at {begin}"
    return [], [(sequence, f"{place}: the checksum of the message does not match")]


def _read(region: TmpRegion) -> tuple[bytes, str]:
    """Return the bytes of a region, or the problem."""
    if region.file is None:
        return b"", region.problem
    length = region.length
    try:
        data = region.file.read(region.offset, length)
    except OSError as error:
        return b"", f"tmp-{region.file_number}.dat: the read failed ({error.strerror})"
    return data, "" if len(data) == length else f"tmp-{region.file_number}.dat ends before it"
