"""A sync in the background makes durable what was appended before it. Nobody trusts a later one before it has ended."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from journals import all_bodies, append_one, journal_on, power_cut, syncer_of
from simulated_disk import SimulatedDisk
from simulated_sync import SimulatedSync

from forebay import StoreFailed
from forebay.store.journal.journal_syncer import JournalSyncer


class Played:
    """A journal whose syncs in the background are made when a test says so."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(fills=True, in_background=True)
        self.disk.holds_background_syncs = True
        self.journal = journal_on(self.disk, max_file_bytes=1 << 17)
        self.syncer = syncer_of(self.journal, self.disk)
        self.told: list[int] = []
        self.syncer.tell_of_syncs(lambda: self.told.append(self.journal.durable_end))
        self.journal.gather_messages()
        self.syncer.sync()  # the name of the first data log
        self.told.clear()
        self._sequence = 0

    def send(self, body: bytes) -> int:
        append_one(self.journal, 4, 1, self._sequence, 5, b"", body)
        self._sequence += 1
        return self.journal.end

    def begin(self) -> bool:
        return self.syncer.begin_sync(self.journal.end, None) is not None

    def make(self) -> None:
        self.disk.background_syncs[0].make()

    @property
    def durable_bodies(self) -> list[bytes]:
        return all_bodies(power_cut(self.disk))


@pytest.fixture
def played() -> Played:
    return Played()


def test_what_was_appended_before_a_sync_in_the_background_is_durable_when_it_has_ended(played: Played) -> None:
    durable_end, end = played.journal.durable_end, played.send(b"before")
    assert played.begin() and not played.syncer.try_end_sync()
    assert played.journal.durable_end == durable_end and played.told == []
    played.make()
    assert played.journal.durable_end == durable_end, "nobody has ended it"
    assert played.syncer.try_end_sync()
    assert played.journal.durable_end == end and played.told == [end] and played.durable_bodies == [b"before"]
    assert not played.syncer.sync(end), "it is durable"


def test_what_is_appended_during_a_sync_in_the_background_is_not_durable_by_it(played: Played) -> None:
    end = played.send(b"before")
    assert played.begin()
    played.send(b"during")
    played.make()
    assert played.syncer.try_end_sync() and played.journal.durable_end == end
    assert played.begin()
    played.make()
    assert played.syncer.try_end_sync() and played.journal.durable_end == played.journal.end


def test_there_is_one_sync_in_the_background_at_a_time(played: Played) -> None:
    played.send(b"x")
    assert played.begin()
    played.send(b"y")
    assert not played.begin()


def test_what_is_durable_needs_no_sync_in_the_background(played: Played) -> None:
    end = played.send(b"x")
    played.syncer.sync()
    assert played.syncer.begin_sync(end, None) is None


def test_a_new_data_log_is_not_synced_in_the_background_because_its_name_must_be(played: Played) -> None:
    played.journal.roll()
    played.send(b"x")
    assert not played.begin()
    played.syncer.sync()
    assert played.durable_bodies == [b"x"]


def test_a_data_log_that_ends_during_a_sync_in_the_background_is_synced_again(played: Played) -> None:
    end = played.send(b"before")
    assert played.begin()
    played.journal.roll()
    played.send(b"in the next one")
    played.make()
    assert played.syncer.try_end_sync() and played.journal.durable_end == end
    assert not played.begin()
    played.syncer.sync()
    assert played.durable_bodies == [b"before", b"in the next one"]


SYNCS: dict[str, Callable[[JournalSyncer], object]] = {
    "sync": lambda syncer: syncer.sync(),
    "sync_at_standstill": lambda syncer: syncer.sync_at_standstill(),
}


@pytest.mark.parametrize("sync", SYNCS.values(), ids=SYNCS)
def test_another_sync_waits_for_that_in_the_background_and_ends_it(
    played: Played, sync: Callable[[JournalSyncer], object]
) -> None:
    played.send(b"before")
    assert played.begin()
    played.send(b"behind")
    sync(played.syncer)
    assert played.journal.durable_end == played.journal.end and played.durable_bodies == [b"before", b"behind"]
    told = len(played.told)
    assert not played.syncer.try_end_sync() and len(played.told) == told, "another thread has ended it"


@pytest.mark.parametrize("sync", SYNCS.values(), ids=SYNCS)
def test_an_error_of_a_sync_in_the_background_stops_the_journal_though_a_later_sync_would_succeed(
    played: Played, sync: Callable[[JournalSyncer], object]
) -> None:
    durable_end = played.journal.durable_end
    played.send(b"lost")
    played.disk.fail("sync", 1, errno.EIO)
    assert played.begin()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="a journal sync failed"):
            sync(played.syncer)
    assert played.journal.durable_end == durable_end and played.told == []


def test_an_error_of_a_sync_in_the_background_stops_the_journal_when_it_is_ended(played: Played) -> None:
    durable_end = played.journal.durable_end
    played.send(b"lost")
    played.disk.fail("sync", 1, errno.EIO)
    assert played.begin()
    played.make()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="a journal sync failed"):
            played.syncer.try_end_sync()
    with pytest.raises(StoreFailed):
        played.syncer.sync()
    with pytest.raises(StoreFailed):
        played.send(b"more")
    assert played.journal.durable_end == durable_end and played.told == []


def test_a_disk_that_takes_no_sync_in_the_background_is_not_asked_again(played: Played) -> None:
    played.send(b"x")
    played.disk.refuses_background_syncs = True
    assert not played.begin() and not played.syncer.syncs_in_background
    played.disk.refuses_background_syncs = False
    assert not played.begin()
    played.syncer.sync()
    assert played.durable_bodies == [b"x"]


def test_an_interruption_that_may_hide_an_error_of_a_sync_closes_the_journal(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    played.send(b"x")
    monkeypatch.setattr(SimulatedSync, "begin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        played.begin()
    with pytest.raises(StoreFailed, match="KeyboardInterrupt broke into"):
        played.syncer.sync()


def test_a_sync_that_the_one_in_the_background_covers_makes_no_other_one(played: Played) -> None:
    end = played.send(b"x")
    assert played.begin()
    syncs = played.disk.calls["sync"]
    assert played.syncer.sync(end) and played.told == [end]
    assert played.disk.calls["sync"] == syncs + 1


def test_a_sync_in_the_background_is_left_alone_while_another_thread_syncs(played: Played) -> None:
    played.send(b"x")
    with played.journal.locks.sync:
        assert not played.begin()
    assert played.begin()
    played.make()
    with played.journal.locks.sync:
        assert not played.syncer.try_end_sync()
    assert played.syncer.try_end_sync()
