"""The write window: small appends to preallocated space are copies into mapped memory, wherever that is safe."""

from __future__ import annotations

import errno
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest
from appended import contents, preallocated

import forebay
from forebay.store.disk import disk as disk_module
from forebay.store.disk.disk import OsDisk
from forebay.store.disk.os_file import CALLS_FIRST, OsFile
from forebay.store.disk.write_window import FIRST_WINDOW_BYTES, WINDOW_BYTES, keeps_space

SPACE_BYTES = 2 * WINDOW_BYTES + 5000


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OsDisk:
    """Maps whatever the file system of the tests is."""
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    return OsDisk(str(tmp_path), maps=True)


@pytest.fixture
def file(disk: OsDisk) -> Iterator[OsFile]:
    with closing(preallocated(disk, SPACE_BYTES)) as file:
        yield file


def test_small_appends_to_preallocated_space_are_no_system_calls(file: OsFile, calls: list[int]) -> None:
    parts = [bytes([n % 251]) * 1000 for n in range(SPACE_BYTES // 1000)]
    for part in parts:
        file.append(part)
    written = b"".join(parts)
    assert not calls
    assert contents(file) == written + bytes(SPACE_BYTES - len(written))


def test_between_large_appends_a_window_would_not_be_filled(file: OsFile, calls: list[int]) -> None:
    file.append(bytes(100_000))
    for n in range(100):
        file.append(bytes([n]) * 48)
    assert calls == [48] * CALLS_FIRST
    assert file.read(100_000, 4800) == b"".join(bytes([n]) * 48 for n in range(100))


def test_what_goes_beyond_the_space_is_written_behind_what_was_copied(file: OsFile, calls: list[int]) -> None:
    parts = [bytes([n % 251]) * 30_000 for n in range(SPACE_BYTES // 30_000 + 3)]
    for part in parts:
        file.append(part)
    assert len(calls) == 3
    assert contents(file) == b"".join(parts)


@pytest.mark.parametrize("seed", range(20))
def test_any_mix_of_sizes_is_one_sequence_of_bytes(file: OsFile, seed: int) -> None:
    """Large ones give the interpreter lock up and go past the window; seeks go back over what was written."""
    random = Random(seed)
    expected = bytearray(SPACE_BYTES)
    position = 0
    for _ in range(120):
        if random.random() < 0.1:
            position = random.randrange(SPACE_BYTES)
            file.seek(position)
        data = random.randbytes(random.choice([0, 1, 48, 1100, 20_000, 32 * 1024, 100_000]))
        file.append(data)
        expected[position : position + len(data)] = data
        position += len(data)
        if random.random() < 0.05:
            file.sync()
    assert contents(file) == expected, f"seed {seed}"


def test_a_file_that_gets_more_space_is_mapped_as_far(file: OsFile, calls: list[int]) -> None:
    parts = [bytes([n % 251]) * 1000 for n in range(2 * SPACE_BYTES // 1000)]
    for part in parts[:10]:
        file.append(part)
    file.preallocate(2 * SPACE_BYTES)
    for part in parts[10:]:
        file.append(part)
    assert not calls
    assert contents(file)[: 1000 * len(parts)] == b"".join(parts)


def test_a_file_that_was_cut_is_not_mapped_any_more(file: OsFile, calls: list[int]) -> None:
    """What is mapped behind the end of a file would end the process."""
    file.append(b"before")
    file.truncate(6)
    file.append(b"after")
    assert calls == [5]
    assert contents(file) == b"beforeafter"


@pytest.mark.parametrize("is_error", [True, False], ids=["pages", "map"])
def test_where_no_window_can_be_had_appends_are_system_calls(
    file: OsFile, calls: list[int], monkeypatch: pytest.MonkeyPatch, is_error: bool
) -> None:
    times_refused = 0

    def refuse(descriptor: int, length: int) -> mmap.mmap:
        nonlocal times_refused
        times_refused += 1
        raise OSError(errno.EFAULT, "a page cannot be had") if is_error else ValueError("no such map")

    monkeypatch.setattr(mmap, "mmap", refuse)
    file.append(b"x" * 200)
    file.append(b"y" * 200)
    assert times_refused == 1
    assert calls == [200, 200]
    assert file.read(0, 400) == b"x" * 200 + b"y" * 200


def test_a_map_whose_pages_the_system_refuses_is_given_back(
    file: OsFile, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call says so, where touching them would end the process."""
    monkeypatch.setattr(mmap, "mmap", Refusing)
    file.append(b"x" * 200)
    file.append(b"y" * 200)
    assert Refusing.times_closed == 1
    assert calls == [200, 200]
    assert file.read(0, 400) == b"x" * 200 + b"y" * 200


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is in memory")
def test_of_a_map_only_the_window_is_in_memory(file: OsFile) -> None:
    for n in range(SPACE_BYTES // 4096):
        file.append(bytes([n % 251]) * 4096)
        if n * 4096 % WINDOW_BYTES == 8192:
            assert 0 < resident_bytes("/log") <= WINDOW_BYTES


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is in memory")
def test_a_file_that_gets_a_header_and_nothing_else_has_few_pages_in_memory(file: OsFile) -> None:
    file.append(bytes(64))
    assert 0 < resident_bytes("/log") <= FIRST_WINDOW_BYTES


def test_only_the_first_window_of_a_map_reads_nothing_ahead(file: OsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", Noting)
    Noting.read_ahead = []
    file.append(bytes(64))
    assert Noting.read_ahead == [mmap.MADV_RANDOM]
    for _ in range(WINDOW_BYTES // 4096):
        file.append(bytes(4096))
    assert Noting.read_ahead == [mmap.MADV_RANDOM, mmap.MADV_NORMAL]


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is in memory")
def test_the_largest_small_append_behind_a_header_needs_no_second_window(file: OsFile, calls: list[int]) -> None:
    file.append(bytes(100))
    file.append(b"x" * (32 * 1024 - 1))
    assert resident_bytes("/log") <= FIRST_WINDOW_BYTES
    assert not calls
    assert file.read(0, 100 + 32767) == bytes(100) + b"x" * 32767


def resident_bytes(name: str) -> int:
    """Of what the process has mapped of a file."""
    maps = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace")
    (found,) = [part for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", maps) if part.split("\n")[0].endswith(name)]
    rss = re.search(r"^Rss: +(\d+) kB$", found, re.MULTILINE)
    assert rss is not None
    return int(rss[1]) * 1024


class Refusing(mmap.mmap):
    times_closed = 0

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    def close(self) -> None:
        Refusing.times_closed += 1
        super().close()


class Noting(mmap.mmap):
    read_ahead: ClassVar[list[int]] = []
    """What was set for reading ahead whenever pages were asked for."""
    _set_to = mmap.MADV_NORMAL

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        super().madvise(option, start, length or len(self))
        if option in {mmap.MADV_NORMAL, mmap.MADV_RANDOM}:
            self._set_to = option
        elif option != mmap.MADV_DONTNEED:
            self.read_ahead.append(self._set_to)


MOUNTS = """\
21 28 0:20 / /proc rw,relatime shared:5 - proc proc rw
28 1 {device} / / rw,relatime shared:1 - {kind} /dev/vda rw
"""


@pytest.mark.parametrize(
    ("kind", "expected"), [("ext4", True), ("xfs", True), ("btrfs", False), ("overlay", False), ("nfs4", False)]
)
def test_only_file_systems_that_write_allocated_space_in_place_are_mapped(
    tmp_path: Path, kind: str, expected: bool
) -> None:
    with (tmp_path / "log").open("wb") as opened:
        device = os.fstat(opened.fileno()).st_dev
        mounts = tmp_path / "mounts"
        mounts.write_text(MOUNTS.format(device=f"{os.major(device)}:{os.minor(device)}", kind=kind))
        assert keeps_space(opened.fileno(), str(mounts)) is expected
        mounts.write_text(MOUNTS.format(device="999:999", kind=kind))
        assert not keeps_space(opened.fileno(), str(mounts))
        mounts.unlink()
        assert not keeps_space(opened.fileno(), str(mounts))


@pytest.mark.parametrize("map_journal", [True, False])
def test_the_setting_says_whether_the_journal_is_mapped(
    tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch, map_journal: bool
) -> None:
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    with forebay.open(tmp_path / "store", sync="never", map_journal=map_journal) as bay:
        calls.clear()
        bay.queue("q").send(b"x")  # the first one of a lane tells of it too
        bay.queue("q").send(b"x")
        assert bool(calls) is not map_journal
    with forebay.open(tmp_path / "store", sync="never", map_journal=map_journal) as bay:
        assert bay.queue("q").depth == 2


def test_large_appends_seek_once_behind_the_window_and_never_behind_each_other(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [b"s" * 1000, b"a" * (WINDOW_BYTES + 1), b"b" * 50_000, b"c" * 60_000]
    sought: list[int] = []
    seek = os.lseek

    def counted(descriptor: int, position: int, whence: int) -> int:
        sought.append(position)
        return seek(descriptor, position, whence)

    monkeypatch.setattr(os, "lseek", counted)
    for part in parts:
        file.append(part)
    assert sought == [1000]
    assert file.read(0, sum(map(len, parts))) == b"".join(parts)


@pytest.mark.parametrize(("keeps", "lookups"), [(True, 1), (False, 3)])
def test_the_mount_table_is_read_once_for_a_device_that_keeps_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool, lookups: int
) -> None:
    asked: list[int] = []

    def answer(descriptor: int) -> bool:
        asked.append(descriptor)
        return keeps

    monkeypatch.setattr(disk_module, "keeps_space", answer)
    disk = OsDisk(str(tmp_path), maps=True)
    for name in ("first", "second", "third"):
        with closing(disk.open(name, create=True)) as file:
            file.preallocate(SPACE_BYTES)
    assert len(asked) == lookups


@pytest.mark.parametrize(("maps", "questions"), [(True, 1), (False, 0)])
def test_file_that_gets_its_space_is_asked_for_its_device_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maps: bool, questions: int
) -> None:
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    asked: list[int] = []
    fstat = os.fstat

    def counted(descriptor: int) -> os.stat_result:
        asked.append(descriptor)
        return fstat(descriptor)

    with closing(OsDisk(str(tmp_path), maps=maps).open("log", create=True)) as file:
        monkeypatch.setattr(os, "fstat", counted)
        file.preallocate(SPACE_BYTES)
    assert len(asked) == questions


def test_elsewhere_appends_are_system_calls(tmp_path: Path, calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: False)
    file = OsDisk(str(tmp_path), maps=True).open("log", create=True)
    file.preallocate(SPACE_BYTES)
    file.append(b"x")
    assert calls == [1]
    file.close()
