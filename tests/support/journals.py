"""Helpers for tests of the journal: a journal on a simulated disk, and the records that a reader finds there."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from simulated_disk import PowerCut, SimulatedDisk

from forebay.store.disk.disk import Disk
from forebay.store.disk.layout import JOURNAL, data_log_id, data_log_name
from forebay.store.environment.locks import OwnedLock, StoreLocks
from forebay.store.format.record import MESSAGE, STATE, Header, decode_slice
from forebay.store.inspect.dump import Row, dump
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, RecordWalk, decode_data_log_header
from forebay.store.journal.journal import Journal
from forebay.store.journal.journal_syncer import JournalSyncer
from forebay.testing import ManualClock

STORE_ID = bytes(range(16))
FIRST_RECORD = (STATE, 0, b"first record of a data log")


def journal_on(
    disk: Disk,
    *,
    max_file_bytes: int = 4096,
    data_log: int = 1,
    next_log_sequence: int = 100,
    epoch: int = 7,
    seed: int = 0,
) -> Journal:
    """Return a journal that has begun a data log with this id."""
    disk.make_directory(JOURNAL)
    clock = ManualClock(seed)
    journal = Journal(
        disk,
        StoreLocks(OwnedLock(), OwnedLock(), OwnedLock()),
        STORE_ID,
        max_file_bytes=max_file_bytes,
        clock_ms=clock.time_ms,
        random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
        begin_data_log=lambda data_log: FIRST_RECORD,
    )
    journal.start(data_log, next_log_sequence, epoch)
    return journal


def syncer_of(journal: Journal, disk: Disk) -> JournalSyncer:
    """Return the one object that syncs a journal on this disk."""
    return JournalSyncer(journal, disk, ManualClock().monotonic)


def append_one(
    journal: Journal, flags: int, destination: int, sequence: int, timestamp: int, properties: bytes, body: bytes
) -> int:
    """Append a slice of one message; return its offset."""
    size = len(properties) + len(body)
    return journal.append_one(flags, destination, sequence, timestamp, properties, body, size)


class FoundRecord(NamedTuple):
    offset: int
    header: Header
    head: bytes


def power_cut(disk: SimulatedDisk) -> SimulatedDisk:
    """Return the disk after a power cut that loses everything unsynced."""
    return disk.crash_power(Random(0), PowerCut.SYNCED)


def data_logs(disk: Disk) -> list[int]:
    return sorted(filter(None, map(data_log_id, disk.list(JOURNAL))))


def data_log_header(disk: Disk, data_log: int) -> DataLogHeader:
    return decode_data_log_header(disk.open_for_reading(data_log_name(data_log)).read(0, DATA_LOG_HEADER_BYTES))


def walked(disk: Disk, data_log: int) -> tuple[RecordWalk, list[FoundRecord]]:
    """Return a finished walk over a whole data log that verified every body, and the records it found."""
    header = data_log_header(disk, data_log)
    file = disk.open_for_reading(data_log_name(data_log))
    walk = RecordWalk(file, header, DATA_LOG_HEADER_BYTES, next_log_sequence=header.first_log_sequence, verify_from=0)
    return walk, [FoundRecord(*found) for found in walk]


def all_records(disk: Disk) -> list[tuple[int, FoundRecord]]:
    """(data log, record) of the whole journal; every data log but the newest is whole and the next one follows it.

    One without a seal, for which a full disk had no space, ends with its last record.
    """
    found: list[tuple[int, FoundRecord]] = []
    before: RecordWalk | None = None
    is_whole = True
    for data_log in data_logs(disk):
        if before is not None:
            assert is_whole and before.next_log_sequence == data_log_header(disk, data_log).first_log_sequence
        before, records = walked(disk, data_log)
        is_whole = before.is_sealed or before.end == disk.open_for_reading(data_log_name(data_log)).size()
        found += [(data_log, record) for record in records]
    return found


def all_bodies(disk: Disk) -> list[bytes]:
    """Return the content of each message of the journal, in order."""
    bodies = []
    for data_log, (offset, header, head) in all_records(disk):
        if header.kind != MESSAGE:
            continue
        begin = offset + header.head_bytes
        for length in decode_slice(header, head).lengths:
            bodies.append(disk.open_for_reading(data_log_name(data_log)).read(begin, length))
            begin += length
    return bodies


def rows_of(disk: Disk, *, with_headers: bool = False, kind: str | None = None) -> list[Row]:
    return [row for row in dump(disk, with_headers=with_headers) if kind in (None, row["kind"])]
