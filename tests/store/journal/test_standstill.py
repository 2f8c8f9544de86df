"""A sync while everybody else stands still, as a commit too large for the index asks for it."""

from __future__ import annotations

import errno

import pytest
from journals import all_bodies, append_one, journal_on, power_cut, syncer_of
from simulated_disk import SimulatedDisk

from forebay import StoreFailed
from forebay.store.disk.layout import reserve_name
from forebay.store.journal.reserve import DiskReserve


def test_sync_at_standstill_makes_everything_durable() -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    syncer = syncer_of(journal, disk)
    append_one(journal, 4, 7, 0, 0, b"", b"in an older data log")
    journal.roll()
    append_one(journal, 4, 7, 1, 0, b"", b"in the newest")
    syncer.sync_at_standstill()
    assert journal.durable_end == journal.end
    assert all_bodies(power_cut(disk)) == [b"in an older data log", b"in the newest"]
    calls = disk.calls["sync"], disk.calls["sync_directory"]
    syncer.sync_at_standstill()
    assert (disk.calls["sync"], disk.calls["sync_directory"]) == (calls[0] + 1, calls[1]), "the newest one alone"


@pytest.mark.parametrize(("call", "nth"), [("sync", 1), ("sync_directory", 1), ("sync", 2)])
def test_sync_at_standstill_that_fails_stops_the_journal(call: str, nth: int) -> None:
    disk = SimulatedDisk()
    journal = journal_on(disk)
    syncer = syncer_of(journal, disk)
    append_one(journal, 4, 7, 0, 0, b"", b"body")
    journal.roll()
    durable = journal.durable_end
    disk.fail(call, nth, errno.EIO)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="sync failed"):
            syncer.sync_at_standstill()
    assert journal.durable_end == durable


def test_reserve_that_cannot_be_renamed_is_held_still() -> None:
    disk = SimulatedDisk()
    disk.make_directory("journal")
    reserve = DiskReserve(disk, 8192)
    assert reserve.fill()
    disk.fail("rename", 1, errno.EIO)
    with pytest.raises(OSError):
        reserve.take("journal/data-2.log", 100)
    assert reserve.missing_bytes == 0 and disk.exists(reserve_name(1))
    taken = reserve.take("journal/data-2.log", 100)
    assert taken is not None and taken[1] == 8192 and reserve.missing_bytes == 8192
