"""`forebay.open(on_progress=...)`: how far the replay of the journal is, for whoever waits for it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import forebay
import forebay.aio
from forebay import ArgumentError, JournalCorrupt, Message
from forebay.store.disk.layout import JOURNAL, data_log_name
from forebay.store.disk.memory_disk import MemoryDisk
from forebay.store.inspect.read_only import open_read_only

FIELDS = {"memory_limit": "8MiB", "sync": "never", "max_file_length": "64KiB", "background": False}

Told = list[tuple[int, int]]


@pytest.fixture
def without_index(tmp_path: Path) -> Path:
    """A store of several data logs whose index is lost."""
    with forebay.open(tmp_path, **FIELDS) as bay:  # type: ignore[arg-type]
        bay.queue("orders").send_many(Message(bytes(1000)) for _ in range(300))
    shutil.rmtree(tmp_path / "localhost" / "kr-store")
    return tmp_path


def journal_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in (directory / "localhost" / JOURNAL).glob("data-*.log"))


def check_told(told: Told, total_bytes: int, data_logs: int) -> None:
    done = [done for done, _ in told]
    assert done[0] == 0 and done == sorted(done) and done[-1] == total_bytes
    assert {total for _, total in told} == {total_bytes} and len(told) == data_logs + 1


def test_rebuild_tells_behind_each_data_log_how_far_it_is(without_index: Path) -> None:
    total_bytes = journal_bytes(without_index)
    data_logs = len(list((without_index / "localhost" / JOURNAL).glob("data-*.log")))
    assert data_logs > 2
    told: Told = []
    with forebay.open(without_index, on_progress=lambda *said: told.append(said), **FIELDS) as bay:  # type: ignore[arg-type]
        assert bay.recovery.index_rebuilt and bay.queue("orders").depth == 300
    check_told(told, total_bytes, data_logs)


def test_clean_open_has_next_to_nothing_to_read(tmp_path: Path) -> None:
    with forebay.open(tmp_path, **FIELDS) as bay:  # type: ignore[arg-type]
        bay.queue("orders").send_many(Message(bytes(1000)) for _ in range(300))
    told: Told = []
    forebay.open(tmp_path, on_progress=lambda *said: told.append(said), **FIELDS).close()  # type: ignore[arg-type]
    assert told[-1][1] <= 64 << 10 and len(told) == 2


def test_reading_without_owning_tells_the_same(without_index: Path) -> None:
    from forebay.store.disk.disk import OsDisk

    told: Told = []
    open_read_only(OsDisk(str(without_index / "localhost")), 0, lambda *said: told.append(said))
    check_told(told, journal_bytes(without_index), len(told) - 1)


def test_what_it_raises_ends_the_opening_and_the_next_one_loses_nothing(without_index: Path) -> None:
    calls = 0

    def stop(done_bytes: int, total_bytes: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forebay.open(without_index, on_progress=stop, **FIELDS)  # type: ignore[arg-type]
    with forebay.open(without_index, **FIELDS) as bay:  # type: ignore[arg-type]
        assert bay.queue("orders").depth == 300


def test_repair_tells_of_both_of_its_replays(without_index: Path) -> None:
    path = without_index / "localhost" / data_log_name(2)
    image = bytearray(path.read_bytes())
    image[2000] ^= 1
    path.write_bytes(image)
    told: Told = []
    with pytest.raises(JournalCorrupt):
        forebay.open(without_index, **FIELDS)  # type: ignore[arg-type]
    forebay.open(
        without_index,
        on_progress=lambda *said: told.append(said),
        on_missing_data_log="report",
        **FIELDS,  # type: ignore[arg-type]
    ).close()
    assert [done for done, _ in told].count(0) == 2 and told[-1][0] == told[-1][1]


def test_disk_of_the_caller_and_a_loop_tell_too(without_index: Path) -> None:
    disk = MemoryDisk()
    told: Told = []
    for _ in range(2):
        with forebay.open(disk=disk, on_progress=lambda *said: told.append(said), **FIELDS) as bay:  # type: ignore[arg-type]
            bay.queue("orders").send(b"x")
    assert told and told[-1][0] == told[-1][1] > 0

    async def open_it() -> None:
        async with forebay.aio.open(without_index, on_progress=lambda *said: told.append(said), **FIELDS):  # type: ignore[arg-type]
            pass

    told.clear()
    asyncio.run(open_it())
    assert told[-1][0] == told[-1][1] > 0


def test_what_cannot_be_called_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="on_progress"):
        forebay.open(tmp_path, on_progress=3, **FIELDS)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
