"""Single messages that wait for a sync are written together, where their space is sure: what is on disk is always a
beginning of the journal, and a sync makes all of it durable.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from journals import all_bodies, append_one, journal_on, power_cut, syncer_of
from simulated_disk import SimulatedDisk

from forebay.store.disk.disk import File
from forebay.store.errors import StoreFailed, StoreFull
from forebay.store.format.contents import Contents
from forebay.store.format.record import ATTEST
from forebay.store.journal.journal import GATHERED_BYTES_MAX, Journal
from forebay.store.journal.journal_syncer import JournalSyncer

FILE_BYTES = 1 << 17


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(fills=True)


@pytest.fixture
def journal(disk: SimulatedDisk) -> Journal:
    return gathering_on(disk)


@pytest.fixture
def syncer(disk: SimulatedDisk, journal: Journal) -> JournalSyncer:
    return syncer_of(journal, disk)


def gathering_on(disk: SimulatedDisk) -> Journal:
    """Return a journal in which every message waits for a sync."""
    journal = journal_on(disk, max_file_bytes=FILE_BYTES)
    journal.gather_messages()
    return journal


def send(journal: Journal, body: bytes) -> int:
    return append_one(journal, 4, 1, 0, 5, b"", body)


def test_messages_that_wait_for_a_sync_are_one_write(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    writes = disk.calls["write"]
    for body in (b"one", b"two", b"three"):
        send(journal, body)
    assert disk.calls["write"] == writes and all_bodies(disk) == []
    syncer.sync()
    assert disk.calls["write"] == writes + 1
    assert all_bodies(power_cut(disk)) == [b"one", b"two", b"three"]


def test_a_sync_at_a_standstill_makes_them_durable(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    send(journal, b"one")
    syncer.sync_at_standstill()
    assert all_bodies(power_cut(disk)) == [b"one"] and journal.durable_end == journal.end


OTHERS: dict[str, Callable[[Journal], object]] = {
    "slice": lambda journal: journal.append_slice(4, 1, 1, 5, Contents.of([(b"", b"x"), (b"", b"y")])),
    "ack": lambda journal: journal.append_ack(4, 1, 0, 1),
    "another record": lambda journal: journal.append(ATTEST, 0, 0, b""),
    "large message": lambda journal: send(journal, b"x" * GATHERED_BYTES_MAX),
    "seal": lambda journal: journal.roll(),
    "read": lambda journal: journal.reader(1),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_whatever_else_is_appended_or_read_comes_behind_them(
    disk: SimulatedDisk, journal: Journal, other: Callable[[Journal], object]
) -> None:
    send(journal, b"one")
    other(journal)
    assert all_bodies(disk.crash_process())[0] == b"one"


def test_more_than_a_small_write_does_not_wait(disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer) -> None:
    bodies = [bytes([number]) * 1000 for number in range(2 * GATHERED_BYTES_MAX // 1000)]
    for body in bodies:
        send(journal, body)
    written = all_bodies(disk)
    assert bodies[: len(written)] == written and len(bodies) - len(written) <= GATHERED_BYTES_MAX // 1000
    syncer.sync()
    assert all_bodies(power_cut(disk)) == bodies


def test_a_full_disk_that_refuses_the_next_data_log_leaves_no_hole_before_them(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    """A refused write puts the file where the journal ends, so they are written before that."""
    while journal.offset < FILE_BYTES - 20_000:
        send(journal, b"x" * 1000)
    syncer.sync()
    confirmed = all_bodies(power_cut(disk))
    send(journal, b"one")
    disk.capacity_bytes -= disk.free_bytes()
    with pytest.raises(StoreFull):
        send(journal, b"x" * 30_000)
    send(journal, b"two")
    syncer.sync()
    assert journal.durable_end == journal.end and all_bodies(power_cut(disk)) == [*confirmed, b"one", b"two"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_write_of_them_that_fails_ends_the_journal(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer, error: int
) -> None:
    """Each has a place behind which others count on it."""
    send(journal, b"one")
    disk.fail("write", 1, error)
    with pytest.raises(StoreFailed):
        syncer.sync()
    with pytest.raises(StoreFailed):
        send(journal, b"two")
    assert not journal.durable_end and all_bodies(disk.crash_process()) == []


class PlainFile:
    """What a host hands in: the methods of a File, and nothing else."""

    def __init__(self, file: File) -> None:
        for name in ("append", "seek", "read", "read_into", "sync", "truncate", "preallocate", "size", "close"):
            setattr(self, name, getattr(file, name))


class PlainDisk(SimulatedDisk):
    def open(self, name: str, *, create: bool = False) -> File:  # type: ignore[override]
        return PlainFile(super().open(name, create=create))  # type: ignore[return-value]


def test_a_file_that_says_nothing_of_its_space_gets_each_message_at_once() -> None:
    disk = PlainDisk(fills=True)
    send(gathering_on(disk), b"one")
    assert all_bodies(disk) == [b"one"]


def test_where_filling_ends_because_the_disk_is_full_a_message_is_refused_and_the_store_goes_on(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    disk.filled_bytes = 20_000
    disk.fail("write", 2, errno.ENOSPC)  # the first write is of what is gathered, in filled space
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            send(journal, b"x" * 1000)
            sent += 1
    assert journal.offset > disk.filled_bytes - 1100
    syncer.sync()
    assert journal.durable_end == journal.end and len(all_bodies(power_cut(disk))) == sent
    send(journal, b"y" * 1000)
    assert all_bodies(disk)[sent:] == [b"y" * 1000], "what has no filled space is written at once"


def test_behind_a_message_that_was_written_at_once_messages_are_gathered_in_what_is_filled_now(
    disk: SimulatedDisk, journal: Journal, syncer: JournalSyncer
) -> None:
    disk.filled_bytes = 20_000
    while journal.offset < disk.filled_bytes:
        send(journal, b"x" * 1000)
    written = len(all_bodies(disk))
    disk.filled_bytes = FILE_BYTES
    for body in (b"one", b"two"):
        send(journal, body)
    assert len(all_bodies(disk)) == written
    syncer.sync()
    assert all_bodies(power_cut(disk))[written:] == [b"one", b"two"]


def test_where_messages_need_not_wait_for_a_sync_each_is_written_at_once(disk: SimulatedDisk) -> None:
    send(journal_on(disk, max_file_bytes=FILE_BYTES), b"one")
    assert all_bodies(disk) == [b"one"]
