"""The archive: what cleanup discards is kept whole, in one place or the other, whatever call the power cut follows."""

from __future__ import annotations

import errno
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import inside, open_forebay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

import forebay
from forebay import Message, NestedCall, SettingsError, StoreFull
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.forebay import Forebay
from forebay.store.disk.disk import Disk, File, OsDisk
from forebay.store.disk.layout import ARCHIVE, JOURNAL, data_log_id, data_log_name
from forebay.store.maintenance.archive import Archive
from forebay.testing import ManualClock

FILE_BYTES = 64 * 1024
STORE_ID = ManualClock().random_bytes(16)


class Archived:
    """A bay that archives, in its own disk or in another one."""

    def __init__(
        self, is_elsewhere: bool, disk: SimulatedDisk | None = None, elsewhere: SimulatedDisk | None = None
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.elsewhere = (elsewhere or SimulatedDisk()) if is_elsewhere else None
        self.metadata = SimulatedMetadataStore()
        self.open()

    def open(self, **fields: Any) -> None:
        settings = Settings(
            **{
                "background": False,
                "memory_limit": "4MiB",
                "max_file_length": FILE_BYTES,
                "archive_data_logs": True,
                **fields,
            }
        )
        self.bay = open_forebay(
            self.disk, lambda *_: self.metadata, settings, ManualClock(), archive_disk=self.elsewhere
        )
        self.queue = self.bay.queue("orders")

    def fill(self, count: int = 150) -> None:
        """61 messages fill a data log."""
        for _ in range(count):
            self.queue.send(bytes(1000))

    def settle(self, count: int = 1000) -> None:
        with self.queue.subscribe(prefetch=0) as consumer:
            while count and (batch := consumer.take(count)):
                consumer.ack(batch)
                count -= len(batch)

    @property
    def place(self) -> tuple[SimulatedDisk, str]:
        return (self.disk, f"{ARCHIVE}/") if self.elsewhere is None else (self.elsewhere, "")

    def journal(self) -> dict[int, bytes]:
        return data_logs_of(self.disk, f"{JOURNAL}/")

    def archive(self) -> dict[int, bytes]:
        return data_logs_of(*self.place)


def data_logs_of(disk: SimulatedDisk, folder: str) -> dict[int, bytes]:
    """Content by id."""
    found = {}
    for name, content in disk.image().items():
        data_log = data_log_id(name.removeprefix(folder))
        if name.startswith(folder) and data_log is not None:
            found[data_log] = content
    return found


both_places = pytest.mark.parametrize("is_elsewhere", [False, True], ids=["beside the journal", "elsewhere"])


@both_places
def test_discarded_data_logs_are_in_the_archive_as_they_were(is_elsewhere: bool) -> None:
    archived = Archived(is_elsewhere)
    archived.fill()
    archived.settle()
    archived.bay.checkpoint()
    before = archived.journal()
    report = archived.bay.cleanup()
    assert report.archived == (1, 2) and report.deleted == () and report.remaining == (3,)
    assert archived.archive() == {data_log: before[data_log] for data_log in (1, 2)}
    assert list(archived.journal()) == [3]
    assert archived.bay.cleanup().archived == ()


@both_places
def test_what_is_needed_stays_in_the_journal(is_elsewhere: bool) -> None:
    archived = Archived(is_elsewhere)
    archived.fill()
    assert archived.bay.cleanup().archived == () and archived.archive() == {}
    archived.bay.close()
    archived.open()
    assert archived.queue.depth == 150


def test_cleanup_inside_a_copy_of_the_same_thread_is_refused_and_does_not_wait_for_itself() -> None:
    """As from a signal handler that comes while a data log is copied."""
    archived = Archived(True)
    archived.fill()
    archived.settle()
    archived.bay.checkpoint()
    elsewhere, _ = archived.place
    found: list[object] = []

    def handler(call: str, name: str) -> None:
        if call == "write" and not found:
            found.append(call)
            try:
                archived.bay.cleanup()
            except NestedCall as error:
                found.append(error)

    elsewhere.on_call = handler
    thread = threading.Thread(target=lambda: found.append(archived.bay.cleanup().archived), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    assert [type(each) for each in found] == [str, NestedCall, tuple] and found[2] == (1, 2)


def test_without_archiving_they_are_deleted_and_the_archive_is_left_alone() -> None:
    archived = Archived(False)
    archived.fill()
    archived.settle()
    archived.bay.cleanup()
    archived.bay.close()
    archived.open(archive_data_logs=False)
    archived.fill()
    archived.settle()
    report = archived.bay.cleanup()
    assert report.archived == () and report.deleted == (3, 4, 5)
    assert list(archived.archive()) == [1, 2]


@both_places
def test_step_archives_when_it_is_due(is_elsewhere: bool) -> None:
    archived = Archived(is_elsewhere)
    archived.open(cleanup_interval_seconds=0.001)
    archived.fill()
    archived.settle()
    inside(archived.bay).set_monotonic(lambda: 1.0)
    assert archived.bay.step() >= 4
    assert list(archived.archive())[:2] == [1, 2]


@both_places
def test_power_cut_at_any_call_leaves_each_data_log_whole_in_one_place(is_elsewhere: bool) -> None:
    """And nothing comes back, nothing is lost, and the next cleanup ends what was begun."""
    archived = Archived(is_elsewhere)
    random = Random(5)
    archived.fill()
    archived.settle(149)
    archived.bay.checkpoint()
    contents = archived.journal()
    newest = max(contents)
    cuts = 0

    def crash(call: str, name: str) -> None:
        nonlocal cuts
        for mode in PowerCut:
            cuts += 1
            elsewhere = archived.elsewhere.crash_power(random, mode) if archived.elsewhere is not None else None
            left = Archived.__new__(Archived)
            left.disk, left.elsewhere = archived.disk.crash_power(random, mode), elsewhere
            left.metadata = archived.metadata.crash(random)
            kept = left.journal() | left.archive()
            assert {n: kept.get(n) for n in contents if n != newest} == {
                n: contents[n] for n in contents if n != newest
            }, (call, name, mode)
            left.open()
            assert left.queue.depth == 1
            left.bay.cleanup()
            assert set(left.archive()) >= {1, 2}
            assert not any(".part" in path or "probe" in path for path in left.place[0].image())
            assert set(left.archive()).isdisjoint(left.journal())

    disks = [archived.disk] + ([archived.elsewhere] if archived.elsewhere is not None else [])
    for disk in disks:
        disk.on_call = crash
    assert archived.bay.cleanup().archived == (1, 2)
    assert cuts >= 40


@pytest.mark.parametrize(
    ("is_elsewhere", "call"),
    [(False, "rename"), *((True, call) for call in ("create", "write", "sync", "rename", "sync_directory"))],
)
def test_archive_that_fails_keeps_the_data_logs_for_the_next_cleanup(
    is_elsewhere: bool, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    archived = Archived(is_elsewhere)
    archived.fill()
    archived.settle()
    archived.bay.checkpoint()
    archived.place[0].fail(call, 1, errno.ENOSPC, sticky=True)
    report = archived.bay.cleanup()
    archived.place[0].cure()
    assert report.archived == () and list(archived.journal()) == [1, 2, 3]
    assert "could not be archived" in caplog.text or "could not be discarded" in caplog.text
    assert archived.bay.cleanup().archived == (1, 2)
    assert list(archived.archive()) == [1, 2] and list(archived.journal()) == [3]


def test_copies_that_fail_leave_the_rest_for_the_next_cleanup() -> None:
    archived = Archived(True)
    archived.fill()
    archived.settle()
    assert archived.elsewhere is not None
    archived.elsewhere.fail("rename", 2, errno.ENOSPC)
    assert archived.bay.cleanup().archived == (1,)
    archived.elsewhere.cure()
    assert archived.bay.cleanup().archived == (2,)


@interpreted("replaces what compiled code has linked")
def test_no_ack_leaves_before_what_it_acknowledges(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 is in the archive and 1 is not; but 2 has acks for 1."""
    archived = Archived(True)
    archived.fill(100)
    archived.settle()
    archived.fill(60)
    archived.settle()
    store = inside(archived.bay).store
    assert 1 in store.index.data_log_uses[2].acked_data_logs
    with monkeypatch.context() as patch:
        patch.setattr(store.cleanup.remover.archive, "copy", lambda data_logs: ([2], None))
        assert archived.bay.cleanup().archived == ()
    assert archived.bay.cleanup().archived == (1, 2)


def test_leftover_of_a_drop_is_archived_by_the_next_open() -> None:
    archived = Archived(False)
    archived.fill()
    archived.settle()
    archived.bay.checkpoint()
    images: list[SimulatedDisk] = []

    def crash(call: str, name: str) -> None:
        if call == "rename":
            images.append(archived.disk.crash_process())

    archived.disk.on_call = crash
    archived.bay.cleanup()
    assert [sorted(data_logs_of(image, f"{ARCHIVE}/")) for image in images] == [[], [1]]
    for image in images:
        left = Archived(False, image)
        assert sorted(left.archive()) == [1, 2] and left.queue.depth == 0


# ------------------------------------------------------------------ what is refused


def prepared(disk: Disk, elsewhere: Disk | None = None, store_id: bytes = STORE_ID) -> None:
    Archive(disk, elsewhere).prepare(store_id)


def test_archive_of_another_store_is_refused_at_open() -> None:
    archived = Archived(True)
    archived.fill()
    archived.settle()
    archived.bay.cleanup()
    with pytest.raises(SettingsError, match="data logs of another store"):
        prepared(SimulatedDisk(), archived.elsewhere, b"another store id")


def test_archive_that_cannot_be_written_to_is_refused_at_open() -> None:
    elsewhere = SimulatedDisk()
    elsewhere.fail("create", 1, errno.EROFS)
    with pytest.raises(SettingsError, match="can't be used"):
        prepared(SimulatedDisk(), elsewhere)


def test_data_log_that_has_anothers_name_stays_in_the_journal(caplog: pytest.LogCaptureFixture) -> None:
    archived = Archived(True)
    archived.fill()
    archived.settle()
    assert archived.elsewhere is not None
    archived.elsewhere.open("data-1.log", create=True).append(b"whatever came here meanwhile")
    assert archived.bay.cleanup().archived == ()
    assert "another data log of that name" in caplog.text or "File exists" in caplog.text
    assert archived.archive()[1] == b"whatever came here meanwhile" and 1 in archived.journal()


def test_parts_that_a_crash_left_are_removed() -> None:
    elsewhere = SimulatedDisk()
    for name in ("data-7.log.part", "probe", "notes.part"):
        elsewhere.open(name, create=True)
    prepared(SimulatedDisk(), elsewhere)
    assert elsewhere.list("") == ["notes.part"]


def test_archive_of_which_nobody_can_tell_whose_it_is_is_refused_at_open() -> None:
    elsewhere = SimulatedDisk()
    elsewhere.open("data-3.log", create=True).append(b"no header of a data log")
    with pytest.raises(SettingsError, match="data logs of another store"):
        prepared(SimulatedDisk(), elsewhere)


@both_places
def test_what_was_archived_before_is_passed_over(is_elsewhere: bool) -> None:
    """As after a cleanup that another data log ended."""
    archived = Archived(is_elsewhere)
    archived.fill()
    before = archived.journal()[1]
    archive = inside(archived.bay).store.cleanup.remover.archive
    assert archive is not None
    archive.keep([1])
    if is_elsewhere:
        archived.disk.remove(data_log_name(1))
    archive.keep([1])
    assert archived.archive()[1] == before and 1 not in archived.journal()


def test_what_another_cleanup_has_archived_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    archived = Archived(True)
    archived.fill()
    archive = inside(archived.bay).store.cleanup.remover.archive
    assert archive is not None

    copy = archive.copy

    class Other:
        """Whoever waits for this lock finds that the other one is done."""

        def __enter__(self) -> None:
            monkeypatch.undo()
            copy([1])

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(archive, "_copying", Other())
    syncs = archived.place[0].calls["sync"]
    assert archive.copy([1]) == ([1], None)
    assert archived.archive() == {1: archived.journal()[1]}
    assert archived.place[0].calls["sync"] == syncs + 1, "copied once"


# ------------------------------------------------------------------ on a real file system


def worked(bay: Forebay) -> forebay.CleanupReport:
    queue = bay.queue("orders")
    queue.send_many(Message(bytes(1000)) for _ in range(200))
    with queue.subscribe(prefetch=0) as consumer:
        consumer.ack(consumer.take(200))
    return bay.cleanup()


FIELDS: dict[str, Any] = {
    "memory_limit": "8MiB",
    "max_file_length": "64KiB",
    "sync": "never",
    "background": False,
    "archive_data_logs": True,
}


def test_archive_is_a_folder_of_the_store(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "data", **FIELDS) as bay:
        report = worked(bay)
    assert report.archived
    names = sorted(path.name for path in (tmp_path / "data" / "localhost" / "archive").iterdir())
    assert names == sorted(f"data-{data_log}.log" for data_log in report.archived)


def test_archive_may_be_another_directory_of_several_brokers(tmp_path: Path) -> None:
    for broker in ("east", "west"):
        fields = FIELDS | {"archive_directory": str(tmp_path / "old"), "broker_name": broker}
        with forebay.open(tmp_path / "data", **fields) as bay:
            report = worked(bay)
        assert len(list((tmp_path / "old" / broker).iterdir())) == len(report.archived) > 0


@pytest.mark.parametrize("is_batch", [False, True])
def test_every_message_can_be_acknowledged_on_a_full_disk_whose_archive_is_elsewhere(is_batch: bool) -> None:
    """What earlier acks have freed is not deleted, but it leaves the full disk all the same."""
    archived = Archived(True, SimulatedDisk(16 * FILE_BYTES))
    queue, other = archived.queue, archived.bay.queue("other")
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            (queue, other)[sent % 2].send(b"x" * 150)
            sent += 1
    archived.disk.capacity_bytes -= archived.disk.free_bytes()
    consumers = [queue.subscribe(prefetch=sent), other.subscribe(prefetch=sent)]
    for _ in range(sent):
        for consumer in consumers:
            taken = consumer.take(7)
            if is_batch:
                consumer.ack(taken[::2])
                consumer.ack(taken[1::2])
            for delivery in () if is_batch else taken:
                delivery.ack()
    assert sent > 2000 and queue.depth == other.depth == 0 and archived.archive()
    assert archived.bay.cleanup().archived
    queue.send(b"again")


@pytest.mark.parametrize("place", ["data", "data/localhost/journal", "data/localhost/archive", "link"])
def test_archive_in_the_store_itself_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(SettingsError, match="lies in the store itself"):
        forebay.open(tmp_path / "data", **FIELDS, archive_directory=str(tmp_path / place))


def test_archive_that_is_a_file_is_refused_and_the_directory_is_free_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="can't be used"):
        forebay.open(tmp_path / "data", **FIELDS, archive_directory=str(tmp_path / "file"))
    forebay.open(tmp_path / "data", memory_limit="8MiB").close()


def test_directory_is_not_looked_at_without_archiving(tmp_path: Path) -> None:
    fields = FIELDS | {"archive_data_logs": False, "archive_directory": str(tmp_path / "nowhere")}
    with forebay.open(tmp_path / "data", **fields) as bay:
        assert worked(bay).deleted
    assert not (tmp_path / "nowhere").exists()


def test_reader_of_an_archived_data_log_reads_on(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path))
    disk.make_directory(JOURNAL)
    written = disk.open(data_log_name(1), create=True)
    written.append(b"content")
    archive = Archive(disk)
    archive.prepare(STORE_ID)
    reading: File = disk.open_for_reading(data_log_name(1))
    archive.keep([1])
    assert not disk.exists(data_log_name(1)) and reading.read(0, 7) == b"content"


@interpreted("measures Python objects")
def test_copying_to_another_directory_takes_the_two_pieces_that_it_is_charged(tmp_path: Path) -> None:
    settings = Settings(memory_limit="16MiB", max_file_length="4MiB", background=False, sync="never")
    with forebay.open(tmp_path / "plain", settings) as bay:
        assert bay.statistics().memory.holders["archive"] == 0
    settings = replace(settings, archive_data_logs=True, archive_directory=str(tmp_path / "archive"))
    with forebay.open(tmp_path / "store", settings) as bay:
        charged = bay.statistics().memory.holders["archive"]
        queue = bay.queue("orders")
        for _ in range(16):
            queue.send(bytes(500_000))
        source = OsDisk(str(tmp_path / "store" / "localhost"))
        archive = Archive(source, OsDisk(str(tmp_path / "archive")))
        tracemalloc.start()
        try:
            copied, error = archive.copy([1])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert copied == [1] and error is None
        (kept,) = (tmp_path / "archive").rglob("data-1.log*")
        assert kept.stat().st_size > 3_000_000
        assert charged // 3 < peak < charged + 4_096  # files and names beside the two pieces
