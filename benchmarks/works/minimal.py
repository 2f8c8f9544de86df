"""The least programs: each keeps the promises that cost most, in a screen of interpreted Python, and no others.

They keep no index, no limit of memory, no order of priorities, no statistics
and no way back after a crash. What forebay takes beside them is the price of
all that. They append as forebay does, so writing costs both the same.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from itertools import cycle, islice
from pathlib import Path
from typing import Final, TypedDict

from msgspec.msgpack import Decoder, Encoder

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.os_file import OsFile
from forebay.store.format.record import crc32
from forebay.store.message import HeaderValue

from .host import BATCH_MESSAGES, bodies

Message = tuple[int, bytes, int]
"""Sequence, body, timestamp."""

_HEAD: Final = struct.Struct("<IQQI")
_HEAD_BYTES: Final = 4 + _HEAD.size


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
        """Write that a message is done."""
        with self._lock:
            del self._in_flight[message[0]]
            head = _HEAD.pack(0, message[0], 0, 0)
            self._file.append(crc32(head).to_bytes(4, "little") + head)


class SharedSyncs:
    """Sends of tasks that are durable when they return: one write each, one sync for all that wait."""

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


class Part(TypedDict):
    """The one header that the selector of a scan names; msgspec passes over the others."""

    part: int


class MinimalSlices:
    """Slices of messages, written with one call and read back with one; each message has a checksum of its own."""

    def __init__(self, file: OsFile) -> None:
        self._file = file
        self._offset = 0
        self._encode = Encoder().encode
        self._decode = Decoder(dict[str, str | int | float | bool | None]).decode
        self._decode_part = Decoder(Part).decode
        self._slices: list[tuple[int, int, list[tuple[int, int, int]]]] = []

    def send(self, sent: Sequence[bytes]) -> None:
        """Write messages without headers."""
        self._append(sent, [(crc32(body), 0, len(body)) for body in sent])

    def send_with_headers(self, sent: Sequence[bytes], headers: Sequence[dict[str, HeaderValue]]) -> None:
        """Write messages with headers, which stand before the body and under its checksum."""
        parts: list[bytes] = []
        table: list[tuple[int, int, int]] = []
        for body, values in zip(sent, headers, strict=True):
            properties = self._encode(values)
            parts += properties, body
            table.append((crc32(body, crc32(properties)), len(properties), len(properties) + len(body)))
        self._append(parts, table)

    def _append(self, parts: Sequence[bytes], table: list[tuple[int, int, int]]) -> None:
        data = b"".join(parts)
        self._file.append(data)
        self._slices.append((self._offset, len(data), table))
        self._offset += len(data)

    def take(self) -> None:
        """Read all slices back, verify each message and hold those of one slice at a time."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[bytes] = []
            for crc, _, length in table:
                body = data[begin : begin + length]
                assert crc32(body) == crc
                taken.append(body)
                begin += length

    def take_with_headers(self) -> None:
        """Do the same, decode the headers of each message, and look two of them up."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[tuple[bytes, bytes]] = []
            for crc, properties_bytes, length in table:
                middle, end = begin + properties_bytes, begin + length
                properties, body = data[begin:middle], data[middle:end]
                assert crc32(body, crc32(properties)) == crc
                taken.append((properties, body))
                begin = end
            for properties, _ in taken:
                headers = self._decode(properties)
                headers["region"], headers["part"]

    def scan(self, wanted: int) -> None:
        """Do the same, but decode one header, and hold only messages where that has a value."""
        for offset, size, table in self._slices:
            data, begin = self._file.read(offset, size), 0
            taken: list[tuple[bytes, bytes]] = []
            for crc, properties_bytes, length in table:
                middle, end = begin + properties_bytes, begin + length
                properties, body = data[begin:middle], data[middle:end]
                assert crc32(body, crc32(properties)) == crc
                if self._decode_part(properties)["part"] == wanted:
                    taken.append((properties, body))
                begin = end


SENT: Final = "`send_many` of the least program, CPU"
TAKEN: Final = "`take` of a slice of the least program, CPU"
_PASSES: Final = 5


def slices_cpu_seconds(
    directory: Path, messages: int, body_bytes: int, headers: Sequence[dict[str, HeaderValue]], wanted: int
) -> dict[str, float]:
    """Return the CPU of messages that MinimalSlices sends and reads back, without headers, with them, and by a scan.

    It is the least of several passes that take turns, because what headers cost is the difference of two of them.
    """
    passes = [_slices_cpu_seconds(directory, messages, body_bytes, headers, wanted) for _ in range(_PASSES)]
    return {name: min(found[name] for found in passes) for name in passes[0]}


def with_headers(part: str) -> str:
    """Return the name of the same part of the least program with four headers."""
    return f"{part}; 4 headers"


def with_selector(part: str) -> str:
    """Return the name of the same part with four headers and a selector that names one."""
    return f"{with_headers(part)}, a selector for 1 %"


def _slices_cpu_seconds(
    directory: Path, messages: int, body_bytes: int, headers: Sequence[dict[str, HeaderValue]], wanted: int
) -> dict[str, float]:
    found: dict[str, float] = {}
    disk, shared, values = OsDisk(str(directory), maps=True), bodies(body_bytes, messages), cycle(headers)
    made = list(shared)
    with closing(_preallocated(disk, "plain", messages, body_bytes)) as file:
        slices, began = MinimalSlices(file), time.process_time()
        for at in range(0, messages, BATCH_MESSAGES):
            slices.send(made[at : at + BATCH_MESSAGES])
        sent = time.process_time()
        slices.take()
        found |= {SENT: sent - began, TAKEN: time.process_time() - sent}
    with closing(_preallocated(disk, "headers", messages, body_bytes)) as file:
        slices, began = MinimalSlices(file), time.process_time()
        for at in range(0, messages, BATCH_MESSAGES):
            batch = made[at : at + BATCH_MESSAGES]
            slices.send_with_headers(batch, list(islice(values, len(batch))))
        sent = time.process_time()
        slices.take_with_headers()
        taken = time.process_time()
        slices.scan(wanted)
        found |= {with_headers(SENT): sent - began, with_headers(TAKEN): taken - sent}
        found[with_selector(TAKEN)] = time.process_time() - taken
    disk.remove("plain")
    disk.remove("headers")
    return found


def path_cpu_seconds(directory: Path, messages: int, body_bytes: int) -> float:
    """Return the CPU that messages take which pass a MinimalQueue one by one."""
    with closing(_preallocated(OsDisk(str(directory), maps=True), "path", messages, body_bytes)) as file:
        queue = MinimalQueue(file)
        began = time.process_time()
        for body in bodies(body_bytes, messages):
            queue.send(body)
            queue.ack(queue.take())
        return time.process_time() - began


def durable_seconds(directory: Path, messages: int, body_bytes: int, producers: int) -> tuple[float, float]:
    """Return the time and the CPU that durable sends take by so many tasks, each of which awaits one at a time."""
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
    """Return a new file with room for so many messages and what is written beside their bodies."""
    file = disk.open(name, create=True)
    file.preallocate(messages * (body_bytes + 2 * _HEAD_BYTES))
    return file
