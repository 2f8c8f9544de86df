"""Filled space: in a file that is synced all the time, small appends go over zeros that were written before."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from appended import contents, preallocated

import forebay
from forebay.dispatch.config.settings import SyncMode
from forebay.store.disk import disk as disk_module
from forebay.store.disk import os_file
from forebay.store.disk.disk import OsDisk
from forebay.store.disk.os_file import CALLS_FIRST, FILL_BYTES, OsFile

PAGE = 4096
SPACE_BYTES = 2 * FILL_BYTES + 5000
FILLING = [PAGE] * (FILL_BYTES // PAGE)
PIECE = 16 * 1024
GROUP = 40_000
"""Bytes of a group of durable sends, which are one append."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OsDisk:
    """Fills whatever the file system of the tests is."""
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    return OsDisk(str(tmp_path), maps=True, fills=True)


@pytest.fixture
def file(disk: OsDisk) -> Iterator[OsFile]:
    with closing(preallocated(disk, SPACE_BYTES)) as file:
        yield file


def test_the_space_that_comes_next_is_filled_when_the_last_is_used_up(file: OsFile, calls: list[int]) -> None:
    for _ in range(FILL_BYTES // 1024):
        file.append(b"x" * 1024)
    assert calls == FILLING + [1024] * (FILL_BYTES // 1024)
    calls.clear()
    file.append(b"x" * 1024)
    assert calls == [*FILLING, 1024]


@pytest.mark.parametrize("last", [1, GROUP])
def test_behind_groups_space_is_filled_in_pieces_because_what_was_written_together_is_synced_together(
    file: OsFile, calls: list[int], last: int
) -> None:
    file.append(b"first")
    groups = FILL_BYTES // GROUP
    for _ in range(groups):
        file.append(b"g" * GROUP)
    rest = FILL_BYTES - groups * GROUP - 5
    for part in (b"r" * rest, b"l" * last):
        file.append(part)
    assert calls == [*FILLING, 5, *[GROUP] * groups, rest, *[PIECE] * (FILL_BYTES // PIECE), last]


def test_behind_single_messages_space_is_filled_by_pages_again(file: OsFile, calls: list[int]) -> None:
    file.append(b"g" * GROUP)
    for _ in range(2 * FILL_BYTES // 4000):
        file.append(b"x" * 4000)
    assert [size for size in calls if size not in {GROUP, 4000}] == [*FILLING, *[PIECE] * (FILL_BYTES // PIECE), PAGE]


def test_a_file_says_how_far_it_is_filled(file: OsFile) -> None:
    assert file.is_filled_ahead and file.filled_bytes == 0
    file.append(b"x")
    assert file.filled_bytes == FILL_BYTES
    file.append(b"l" * FILL_BYTES)
    assert file.filled_bytes == FILL_BYTES + 1


@pytest.mark.parametrize("size", [1000, GROUP])
def test_behind_what_was_appended_there_are_zeros_to_the_end_of_the_space(file: OsFile, size: int) -> None:
    parts = [bytes([1 + n % 250]) * size for n in range(SPACE_BYTES // size)]
    for part in parts:
        file.append(part)
    written = b"".join(parts)
    assert contents(file) == written + bytes(SPACE_BYTES - len(written))


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_was_ever_written_is_filled_over(file: OsFile, seed: int) -> None:
    random = Random(seed)
    expected = bytearray(SPACE_BYTES)
    position = 0
    for _ in range(120):
        if random.random() < 0.1:
            position = random.randrange(SPACE_BYTES)
            file.seek(position)
        data = random.randbytes(random.choice([0, 1, 48, 1100, 20_000, 32 * 1024, GROUP, 100_000]))
        file.append(data)
        expected[position : position + len(data)] = data
        expected.extend(bytes(max(0, position + len(data) - len(expected))))
        position += len(data)
    assert contents(file) == expected, f"seed {seed}"


def test_what_a_file_had_before_it_got_its_space_is_not_filled_over(disk: OsDisk) -> None:
    before = disk.open("log", create=True)
    before.append(b"before" * 1000)
    before.close()
    file = disk.open("log")
    file.seek(3)
    file.preallocate(SPACE_BYTES)
    file.append(b"after")
    file.seek(SPACE_BYTES // 2)
    file.append(b"far behind")
    assert contents(file)[:6000] == b"bef" + b"after" + (b"before" * 1000)[8:]
    file.close()


def test_beside_large_appends_nothing_is_filled(file: OsFile, calls: list[int]) -> None:
    parts = [b"l" * 100_000] + [bytes([n]) * 48 for n in range(CALLS_FIRST)]
    for part in parts:
        file.append(part)
    assert calls == [48] * CALLS_FIRST
    file.append(b"x" * 48)
    assert calls == [48] * CALLS_FIRST + FILLING + [48]
    written = b"".join(parts) + b"x" * 48
    assert file.read(0, len(written)) == written


def test_a_file_that_was_cut_is_not_filled_any_more(file: OsFile, calls: list[int]) -> None:
    file.truncate(6)
    file.append(b"x")
    assert calls == [1]
    assert file.size() == 6


def test_a_file_that_was_cut_is_filled_again_once_it_gets_space_anew(file: OsFile, calls: list[int]) -> None:
    file.append(b"x" * 100)
    file.truncate(0)
    file.seek(0)
    file.preallocate(SPACE_BYTES)
    calls.clear()
    file.append(b"y" * 100)
    assert calls == [*FILLING, 100]
    assert contents(file) == b"y" * 100 + bytes(SPACE_BYTES - 100)


def test_a_file_that_gets_more_space_is_filled_as_far(file: OsFile, calls: list[int]) -> None:
    file.seek(SPACE_BYTES // PAGE * PAGE)
    file.append(b"x" * 100)
    file.preallocate(4 * FILL_BYTES)
    calls.clear()
    file.append(b"y" * 5000)
    assert calls == [*FILLING, 5000]
    assert file.size() == 4 * FILL_BYTES


def test_where_zeros_cannot_be_written_the_append_says_whether_it_can(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def refuse(descriptor: int, data: bytes, length: int) -> int:
        tried.append(length)
        return -1

    monkeypatch.setattr(os_file, "_write", refuse)
    file.append(b"x" * 200)
    file.append(b"y" * 200)
    assert tried == [PAGE, 200, 200] and file.filled_bytes == 400
    assert file.read(0, 500) == b"x" * 200 + b"y" * 200 + bytes(100)


@pytest.mark.parametrize("written", [-1, 0, 1, 5])
def test_a_short_write_over_zeros_is_continued(file: OsFile, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    def write(descriptor: int, data: bytes, length: int) -> int:
        return os.write(descriptor, data[:written]) if written >= 0 else -1

    file.append(b"before")
    with monkeypatch.context() as patch:
        patch.setattr(os_file, "_write", write)
        file.append(b"0123456789")
    file.append(b"after")
    assert contents(file).rstrip(b"\0") == b"before0123456789after"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "planted")])
def test_what_ends_an_append_over_zeros_leaves_the_next_one_its_place(
    file: OsFile, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(descriptor: int, data: bytes, length: int) -> int:
        os.write(descriptor, data)
        raise error

    file.append(b"before")
    with monkeypatch.context() as patch:
        patch.setattr(os_file, "_write", broken)
        with pytest.raises(type(error)):
            file.append(b"XXXXX")
    file.append(b"after")
    assert contents(file).rstrip(b"\0") == b"beforeafter"


def test_where_each_write_is_a_copy_nothing_is_filled(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: False)
    file = OsDisk(str(tmp_path), fills=True).open("log", create=True)
    file.preallocate(SPACE_BYTES)
    file.append(b"x")
    assert calls == [1]
    file.close()


@pytest.mark.parametrize("sync", ["always", "interval", "never"])
def test_the_journal_is_filled_where_every_call_syncs(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch, sync: SyncMode
) -> None:
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    with forebay.open(tmp_path / "store", sync=sync) as bay:
        bay.queue("q").send(b"x")
        assert (calls.count(PAGE) >= len(FILLING)) is (sync == "always")
    with forebay.open(tmp_path / "store", sync=sync) as bay:
        assert bay.queue("q").depth == 1
