"""The least programs: short Python programs that keep only the promises that cost most.

They have no index, no memory limit, no priorities, no statistics and no recovery. The time that forebay needs in
addition to theirs is the price of these features. They append to files as forebay does, so writing costs both the same.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Final, TypedDict

from msgspec.msgpack import Decoder, Encoder

import forebay
from forebay.store.disk.disk import OsDisk
from forebay.store.disk.os_file import OsFile
from forebay.store.format.record import crc32
from forebay.store.message import HeaderValue

from .headers import HEADERS, RARE
from .host import BATCH_MESSAGES, bodies

Message = tuple[int, bytes, int]
"""Sequence, body, timestamp."""
Made = tuple[bytes, dict[str, HeaderValue] | None]
"""Body and headers of a message that is to be sent."""
Kept = tuple[int, bytes, bytes, int]
"""Sequence, encoded headers, body, timestamp."""

_HEAD: Final = struct.Struct("<IQQI")
_HEAD_BYTES: Final = 4 + _HEAD.size
_ROW_BYTES: Final = 12
"""Bytes that a batch has for each message beside its content: checksum, size, size of the headers."""
_HEADERS_BYTES: Final = 80
"""Room for encoded headers, more than any of HEADERS needs."""
_PASSES: Final = 5

_encode: Final = Encoder().encode
_decode: Final = Decoder(dict[str, str | int | float | bool | None]).decode


class Part(TypedDict):
    """The one header that a selector names. The decoder skips other headers."""

    part: int


_decode_part: Final = Decoder(Part).decode


class MinimalQueue:
    """Messages that a kill does not lose, handed out in order, each until it is acknowledged."""

    def __init__(self, file: OsFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._ready: deque[Message] = deque()
        self._in_flight: dict[int, Message] = {}
        self._sequence = 0

    def send(self, body: bytes) -> str:
        """Write one record with a checksum over all of it; return the message's id."""
        timestamp = time.time_ns() // 1_000_000
        with self._lock:
            sequence = self._sequence = self._sequence + 1
            head = _HEAD.pack(len(body), sequence, timestamp, crc32(body))
            self._file.append(crc32(head).to_bytes(4, "little") + head + body)
            self._ready.append((sequence, body, timestamp))
        return f"minimal-{sequence}"

    def take(self) -> Message:
        """Hand out the next message. IndexError: there is none."""
        with self._lock:
            message = self._ready.popleft()
            self._in_flight[message[0]] = message
        return message

    def ack(self, message: Message) -> None:
        """Write one record that acknowledges a message."""
        with self._lock:
            del self._in_flight[message[0]]
            head = _HEAD.pack(0, message[0], 0, 0)
            self._file.append(crc32(head).to_bytes(4, "little") + head)


class MinimalBatches:
    """Messages that are sent, handed out and acknowledged in batches. A batch is one record with a table of them.

    is_selective: only messages in which the one header is RARE are handed out. Each is judged when it is sent.
    """

    def __init__(self, file: OsFile, *, is_selective: bool = False) -> None:
        self._file = file
        self._is_selective = is_selective
        self._lock = threading.Lock()
        self._ready: deque[Kept] = deque()
        self._in_flight: dict[int, Kept] = {}
        self._sequence = 0

    def send_many(self, bodies: list[bytes]) -> list[str]:
        """Write one record with a checksum of each body; return their ids."""
        return self._write([(b"", body) for body in bodies])

    def send_messages(self, messages: list[forebay.Message]) -> list[str]:
        """Write one record with a checksum of each message; return their ids. The headers are not checked."""
        return self._write([(_encode(message.headers), message.body) for message in messages])

    def _write(self, contents: list[tuple[bytes, bytes]]) -> list[str]:
        timestamp = time.time_ns() // 1_000_000
        table: list[int] = []
        for properties, body in contents:
            checksum = crc32(body, crc32(properties)) if properties else crc32(body)
            table += checksum, len(properties) + len(body), len(properties)
        with self._lock:
            first = self._sequence
            self._sequence += len(contents)
            rows = struct.pack(f"<{len(table)}I", *table)
            head = _HEAD.pack(len(rows), first, timestamp, crc32(rows))
            parts = [crc32(head).to_bytes(4, "little"), head, rows]
            for content in contents:
                parts += content
            self._file.append(b"".join(parts))
            kept: Iterable[tuple[int, tuple[bytes, bytes]]] = enumerate(contents, first)
            if self._is_selective:
                kept = [each for each in kept if _decode_part(each[1][0])["part"] == RARE]
            self._ready.extend([(sequence, properties, body, timestamp) for sequence, (properties, body) in kept])
        return [f"minimal-{sequence}" for sequence in range(first, first + len(contents))]

    def take(self, most: int) -> list[Kept]:
        """Hand out the next messages, at most `most`."""
        with self._lock:
            popleft = self._ready.popleft
            taken = [popleft() for _ in range(min(most, len(self._ready)))]
            self._in_flight.update({message[0]: message for message in taken})
        return taken

    def ack(self, taken: list[Kept]) -> None:
        """Write one record that acknowledges consecutive messages."""
        with self._lock:
            for message in taken:
                del self._in_flight[message[0]]
            head = _HEAD.pack(0, taken[0][0], len(taken), 0)
            self._file.append(crc32(head).to_bytes(4, "little") + head)


class MinimalSlices:
    """Slices that lie in a file. Each is read with one call, and each message has a checksum of its own."""

    def __init__(self, file: OsFile) -> None:
        self._file = file
        self._end = 0
        # By slice: offset, size, and of each message the checksum, the bytes of its headers, and those of headers and
        # body.
        self._slices: list[tuple[int, int, list[tuple[int, int, int]]]] = []

    def append(self, messages: list[Made]) -> None:
        """Write one slice."""
        parts: list[bytes] = []
        table: list[tuple[int, int, int]] = []
        for body, headers in messages:
            properties = _encode(headers) if headers is not None else b""
            parts += properties, body
            checksum = crc32(body, crc32(properties)) if properties else crc32(body)
            table.append((checksum, len(properties), len(properties) + len(body)))
        data = b"".join(parts)
        self._file.append(data)
        self._slices.append((self._end, len(data), table))
        self._end += len(data)

    def read(self) -> None:
        """Read messages without headers; verify each, and hold those of one slice at a time."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[bytes] = []
            for checksum, _, length in table:
                body = data[begin : begin + length]
                assert crc32(body) == checksum
                taken.append(body)
                begin += length

    def read_with_headers(self) -> None:
        """Read messages as `read` does, decode the headers of each, and look two of them up."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[tuple[bytes, bytes]] = []
            for checksum, properties_bytes, length in table:
                middle, end = begin + properties_bytes, begin + length
                properties, body = data[begin:middle], data[middle:end]
                assert crc32(body, crc32(properties)) == checksum
                taken.append((properties, body))
                begin = end
            for properties, _ in taken:
                headers = _decode(properties)
                headers["region"], headers["part"]

    def scan(self) -> None:
        """Read messages as `read` does, but decode one header, and hold only messages in which it is RARE."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[tuple[bytes, bytes]] = []
            for checksum, properties_bytes, length in table:
                middle, end = begin + properties_bytes, begin + length
                properties, body = data[begin:middle], data[middle:end]
                assert crc32(body, crc32(properties)) == checksum
                if _decode_part(properties)["part"] == RARE:
                    taken.append((properties, body))
                begin = end


class SharedSyncs:
    """Sends of tasks that are durable when they return. Each is one write; one sync serves all that wait."""

    def __init__(self, file: OsFile, loop: asyncio.AbstractEventLoop, worker: Executor) -> None:
        self._file = file
        self._loop = loop
        self._worker = worker
        self._waiting: list[asyncio.Future[None]] = []
        self._is_busy = False

    async def send(self, body: bytes) -> None:
        """Write one body and wait for a sync that began behind the write."""
        self._file.append(body)
        future = self._loop.create_future()
        self._waiting.append(future)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._begin)
        await future

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._worker.submit(self._sync, waiting)

    def _sync(self, waiting: list[asyncio.Future[None]]) -> None:
        self._file.sync()
        self._loop.call_soon_threadsafe(self._end, waiting)

    def _end(self, waiting: list[asyncio.Future[None]]) -> None:
        for future in waiting:
            future.set_result(None)
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            self._loop.call_soon(self._begin)


def path_cpu_seconds(directory: Path, messages: int, body_bytes: int) -> float:
    """Return the CPU seconds of messages that pass a MinimalQueue one by one."""
    with closing(_preallocated(OsDisk(str(directory), maps=True), "path", messages, body_bytes)) as file:
        queue = MinimalQueue(file)
        began = time.process_time()
        for body in bodies(body_bytes, messages):
            queue.send(body)
            queue.ack(queue.take())
        return time.process_time() - began


def batches_cpu_seconds(directory: Path, messages: int, body_bytes: int) -> list[tuple[float, float]]:
    """Return the CPU seconds of messages that pass MinimalBatches: of sending alone, and of the whole.

    First bodies without headers, then Messages with four of which the consumer reads two, then with a selector besides.
    The Messages are made while the clock runs, as a host makes them: they are how headers come into `send_many`. Each
    is the least of several passes that take turns, because what headers cost is the difference of two of them.
    """
    ways = [(False, False), (True, False), (True, True)]
    few = -(-messages // _PASSES)
    found = [[_batches_cpu_seconds(directory, few, body_bytes, *way) for way in ways] for _ in range(_PASSES)]
    least = [tuple(map(min, *times)) for times in zip(*found, strict=True)]
    return [(sending * messages / few, whole * messages / few) for sending, whole in least]


def _batches_cpu_seconds(
    directory: Path, messages: int, body_bytes: int, has_headers: bool, is_selective: bool
) -> tuple[float, float]:
    room = body_bytes + _ROW_BYTES + _HEADERS_BYTES
    with closing(_preallocated(OsDisk(str(directory), maps=True), "batches", messages, room)) as file:
        queue = MinimalBatches(file, is_selective=is_selective)
        made: Iterator[Made] = zip(
            bodies(body_bytes, messages), cycle(HEADERS if has_headers else [None]), strict=False
        )
        sending, began = 0.0, time.process_time()
        while part := list(islice(made, BATCH_MESSAGES)):
            sending -= time.process_time()
            if has_headers:
                queue.send_messages([forebay.Message(body, headers) for body, headers in part])
            else:
                queue.send_many([body for body, _ in part])
            sending += time.process_time()
            taken = queue.take(len(part))
            for _, properties, _, _ in taken:
                if has_headers:
                    headers = _decode(properties)
                    headers["region"], headers["part"]
            if taken:
                queue.ack(taken)
        whole = time.process_time() - began
    (directory / "batches").unlink()
    return sending, whole


def slices_cpu_seconds(directory: Path, messages: int, body_bytes: int) -> tuple[float, float, float]:
    """Return the CPU of reading MinimalSlices: without headers, with them, and by a scan for one message in a hundred.

    Each is the least of several passes that take turns, because what headers cost is the difference of two of them.
    """
    disk = OsDisk(str(directory), maps=True)
    with (
        closing(_preallocated(disk, "plain", messages, body_bytes)) as plain_file,
        closing(_preallocated(disk, "headers", messages, body_bytes + _HEADERS_BYTES)) as file,
    ):
        plain, slices = MinimalSlices(plain_file), MinimalSlices(file)
        for written, headers in ((plain, [None]), (slices, HEADERS)):
            made: Iterator[Made] = zip(bodies(body_bytes, messages), cycle(headers), strict=False)
            while part := list(islice(made, BATCH_MESSAGES)):
                written.append(part)
        ways = (plain.read, slices.read_with_headers, slices.scan)
        found = [[_cpu_seconds(way) for way in ways] for _ in range(_PASSES)]
    without, read, scanned = (min(times) for times in zip(*found, strict=True))
    return without, read, scanned


def _cpu_seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def durable_seconds(directory: Path, messages: int, body_bytes: int, producers: int) -> tuple[float, float]:
    """Return the time and the CPU seconds of durable sends by tasks that each await one send at a time."""
    disk = OsDisk(str(directory), fills=True)
    with closing(_preallocated(disk, "durable", messages, body_bytes)) as file, ThreadPoolExecutor(1) as worker:
        return asyncio.run(_durable_seconds(file, worker, bodies(body_bytes, messages), producers))


async def _durable_seconds(
    file: OsFile, worker: Executor, shared: Iterator[bytes], producers: int
) -> tuple[float, float]:
    journal = SharedSyncs(file, asyncio.get_running_loop(), worker)

    async def produce() -> None:
        for body in shared:
            await journal.send(body)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(produce() for _ in range(producers)))
    return time.perf_counter() - wall, time.process_time() - cpu


def _preallocated(disk: OsDisk, name: str, messages: int, body_bytes: int) -> OsFile:
    """Return a new file with room for these messages, including the heads of their records and acks."""
    file = disk.open(name, create=True)
    file.preallocate(messages * (body_bytes + 2 * _HEAD_BYTES))
    return file
