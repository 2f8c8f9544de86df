"""The files of data logs: made with their space, read by id, open until they are synced."""

from __future__ import annotations

import errno

import pytest
from compiled import interpreted
from interrupting import interrupted
from journals import append_one, data_log_header, data_logs, journal_on, syncer_of
from simulated_disk import SimulatedDisk, SimulatedFile

from forebay.store.disk.layout import JOURNAL, data_log_name
from forebay.store.format.record import RecordDamaged
from forebay.store.journal.data_log import DATA_LOG_HEADER_BYTES
from forebay.store.journal.data_log_files import DataLogFiles
from forebay.store.journal.journal import Journal
from forebay.store.journal.open_data_logs import READERS_MAX
from forebay.store.journal.reserve import DiskReserve

FILE_BYTES = 64 * 1024


def files_on(disk: SimulatedDisk) -> tuple[DataLogFiles, DiskReserve]:
    disk.make_directory(JOURNAL)
    reserve = DiskReserve(disk, FILE_BYTES)
    return DataLogFiles(disk, reserve, FILE_BYTES), reserve


def send(journal: Journal, body: bytes) -> int:
    return append_one(journal, 4, 1, 0, 5, b"", body)


def test_a_full_disk_has_the_reserve_for_records_that_settle_alone() -> None:
    disk = SimulatedDisk()
    files, reserve = files_on(disk)
    files.create_first(1)
    assert reserve.fill()
    disk.fail("preallocate", 1, errno.ENOSPC, sticky=True)
    with pytest.raises(OSError):
        files.create_next(2, 100, is_adding=True)
    assert data_logs(disk) == [1], "the name is gone again"
    new = files.create_next(2, 100, is_adding=False)
    assert new.is_makeshift and new.capacity == FILE_BYTES and data_logs(disk) == [1, 2]


def test_a_record_above_the_size_of_a_data_log_gets_the_space_that_it_needs() -> None:
    disk = SimulatedDisk()
    files, _ = files_on(disk)
    files.create_first(1)
    new = files.create_next(2, 3 * FILE_BYTES, is_adding=True)
    assert disk.open_for_reading(data_log_name(2)).size() > 3 * FILE_BYTES
    assert new.capacity == FILE_BYTES and not new.is_makeshift


def test_reader_reads_any_data_log_and_keeps_few_open() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk, max_file_bytes=200)
    syncer = syncer_of(journal, disk)
    places = []
    for n in range(READERS_MAX + 20):
        offset = send(journal, b"%04d" % n)
        places.append((journal.data_log, offset))
    assert places[-1][0] > READERS_MAX
    syncer.sync()
    for n, (data_log, offset) in enumerate(places):
        file, salt = journal.open_data_logs.reader(data_log)
        assert salt == data_log_header(disk, data_log).salt
        assert file.read(offset + 64, 4) == b"%04d" % n
    assert journal.open_data_logs.give_up_readers() == READERS_MAX - 1, "all but the newest"


def test_reader_outlives_the_name_of_its_data_log() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    offset = send(journal, b"still here")
    journal.roll()
    file, _ = journal.open_data_logs.reader(1)
    journal.files.remove([1])
    journal.forget([1])
    assert file.read(offset + 64, 10) == b"still here"
    assert data_logs(disk) == [2]
    assert journal.journal_bytes == journal.offset


def test_the_newest_data_log_is_read_without_being_opened_again() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    disk.fail(None, 1, errno.EIO)
    assert journal.open_data_logs.give_up_readers() == 0, "it stays open for writing"
    file, salt = journal.open_data_logs.reader(1)
    disk.cure()
    assert salt == data_log_header(disk, 1).salt and file.size() > 0


def test_only_files_that_are_open_for_nothing_else_count_as_given_up() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    syncer = syncer_of(journal, disk)
    logs = journal.open_data_logs
    for _ in range(2):
        journal.roll()
    for data_log in (1, 2, 3):
        logs.reader(data_log)
    assert logs.give_up_readers() == 0, "a sync needs all three"
    syncer.sync()
    for data_log in (1, 2, 3):
        logs.reader(data_log)
    assert logs.give_up_readers() == 2
    assert logs.give_up_readers() == 0


class WatchedDisk(SimulatedDisk):
    """A disk that knows what was opened for reading."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[SimulatedFile] = []

    def open_for_reading(self, name: str) -> SimulatedFile:
        self.opened.append(super().open_for_reading(name))
        return self.opened[-1]


@pytest.mark.parametrize("is_unreadable", [False, True])
def test_a_data_log_without_a_header_does_not_stay_open(is_unreadable: bool) -> None:
    disk = WatchedDisk()
    journal = journal_on(disk)
    syncer = syncer_of(journal, disk)
    journal.roll()
    syncer.sync()
    journal.open_data_logs.give_up_readers()
    if is_unreadable:
        disk.fail("read", 1, errno.EIO)
    else:
        disk.open(data_log_name(1)).truncate(DATA_LOG_HEADER_BYTES - 1)
    with pytest.raises((RecordDamaged, OSError)):
        journal.open_data_logs.reader(1)
    (file,) = disk.opened
    with pytest.raises(OSError):
        file.size()


def test_what_begins_during_a_sync_is_left_for_the_next_one() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    journal.roll()
    unsynced = journal.open_data_logs.unsynced
    assert (len(unsynced.sealed), unsynced.names) == (1, 2)
    journal.roll()
    journal.open_data_logs.note_synced(unsynced)
    left = journal.open_data_logs.unsynced
    assert left.sealed == (unsynced.newest,) and left.names == 1


@interpreted("calls nothing that a profiler sees")
def test_an_interruption_behind_a_sync_leaves_no_later_data_log_unsynced() -> None:
    where, at = "", 0
    while where or not at:
        at += 1
        journal = journal_on(SimulatedDisk())
        journal.roll()
        logs = journal.open_data_logs
        unsynced = logs.unsynced
        where, _ = interrupted(lambda logs=logs, synced=unsynced: logs.note_synced(synced), at)  # type: ignore[misc]
        logs.note_synced(logs.unsynced)
        journal.roll()
        left = logs.unsynced
        assert (len(left.sealed), left.names) == (1, 1), where
