"""Helpers of the tests of verify and dump: stores to damage, and disks that change while they are read."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from simulated_bay import SimulatedBay
from simulated_disk import SimulatedDisk

from forebay import Message
from forebay.store.disk.disk import Disk, File
from forebay.store.disk.layout import data_log_name
from forebay.store.format.record import Header
from forebay.store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    RecordWalk,
    decode_data_log_header,
)
from forebay.store.recovery.verify import JournalFinding, Verdict, examine_all, judge


def verdict_of(disk: Disk) -> Verdict:
    return judge(list(examine_all(disk)))


def places(found: tuple[JournalFinding, ...]) -> list[tuple[int, int]]:
    return [(place.data_log, place.offset) for place in found]


def records(disk: Disk, data_log: int) -> list[tuple[int, Header]]:
    file = disk.open_for_reading(data_log_name(data_log))
    header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    return [(offset, record) for offset, record, _ in RecordWalk(file, header, DATA_LOG_HEADER_BYTES)]


def place_of(disk: Disk, data_log: int, kind: int, nth: int = 0) -> int:
    """Return the offset of the nth record of a kind."""
    return [offset for offset, record in records(disk, data_log) if record.kind == kind][nth]


def small_bay(seed: int = 0, **fields: Any) -> SimulatedBay:
    """Return a bay with small data logs, because these are preallocated and each test copies them often."""
    return SimulatedBay(seed, max_file_length="64KiB", **fields)


def two_data_logs() -> SimulatedDisk:
    """Return the disk of a store closed twice: messages 0 to 10 of a queue, of which 0 to 3 are acknowledged."""
    store = small_bay()
    queue = store.queue("orders")
    for first in (0, 3, 6):
        queue.send_many(Message(f"body {n}".encode(), {"n": n}) for n in range(first, first + 3))
    queue.send(b"body 9", headers={"n": 9})
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take(4))
    store.reopen()
    store.queue("orders").send(b"body 10", headers={"n": 10}, message_id="mine")
    store.bay.close()
    return store.disk


def rewrite(disk: SimulatedDisk, name: str, content: bytes) -> None:
    disk.remove(name)
    disk.open(name, create=True).append(content)


class GrowingFile:
    """A data log to which a process appends: each read sees more of it than the last one, with zeros behind."""

    def __init__(self, content: bytes, seen_bytes: int, random: Random) -> None:
        self._content = content
        self._seen_bytes = seen_bytes
        self._random = random

    def read(self, offset: int, length: int) -> bytes:
        seen = self._content[: self._seen_bytes].ljust(len(self._content), b"\0")
        self._seen_bytes += self._random.choice((0, 1, 20, 100, 500))
        return seen[offset : offset + length]

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None: ...


class GrowingDisk(SimulatedDisk):
    def __init__(self, content: bytes, seen_bytes: int, random: Random) -> None:
        super().__init__()
        self._file_that_grows: Any = GrowingFile(content, seen_bytes, random)

    def list(self, directory: str) -> list[str]:
        return ["data-1.log"]

    def open_for_reading(self, name: str) -> Any:
        return self._file_that_grows


class Beside:
    """The disk of a reader beside a live owner. Before each open of the reader, the owner does something."""

    def __init__(self, disk: SimulatedDisk, owner: Callable[[], object], phantom: str = "data-0.log") -> None:
        self._disk = disk
        self._owner = owner
        self._phantom = phantom
        self.exists = disk.exists
        self.listings = 0

    def list(self, directory: str) -> list[str]:
        self.listings += 1
        return [*self._disk.list(directory), self._phantom]

    def open_for_reading(self, name: str) -> File:
        self._owner()
        return self._disk.open_for_reading(name)
