"""What every disk promises, on the real one and on those in memory alike; then what only the real one can show."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import resource
import stat
import sys
from collections.abc import Callable, Iterator
from operator import methodcaller
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest
from compiled import interpreted
from simulated_disk import SimulatedDisk, SimulatedFile

from forebay.store.disk import disk as disk_module
from forebay.store.disk import os_file
from forebay.store.disk.disk import Disk, File, OsDisk
from forebay.store.disk.memory_disk import MemoryDisk, MemoryFile
from forebay.store.disk.os_file import OsFile


class TidyDisk(OsDisk):
    """Keeps what it opened, to be closed after the test."""

    def __init__(self, root: str, *, maps: bool = False) -> None:
        super().__init__(root, maps=maps)
        self.files: list[OsFile] = []

    def open(self, name: str, *, create: bool = False) -> OsFile:
        self.files.append(super().open(name, create=create))
        return self.files[-1]

    def open_for_reading(self, name: str) -> OsFile:
        self.files.append(super().open_for_reading(name))
        return self.files[-1]


@pytest.fixture
def real(tmp_path: Path) -> Iterator[OsDisk]:
    disk = TidyDisk(str(tmp_path))
    yield disk
    for file in disk.files:
        file.close()


@pytest.fixture
def mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OsDisk]:
    """Maps whatever the file system of the tests is."""
    monkeypatch.setattr(disk_module, "keeps_space", lambda descriptor: True)
    disk = TidyDisk(str(tmp_path / "mapped"), maps=True)
    disk.make_directory("")
    yield disk
    for file in disk.files:
        file.close()


IN_MEMORY: dict[str, Callable[[], Disk]] = {"simulated": SimulatedDisk, "memory": MemoryDisk}


@pytest.fixture(params=["real", "mapped", "simulated", "memory"])
def disk(request: pytest.FixtureRequest) -> Disk:
    if request.param in IN_MEMORY:
        return IN_MEMORY[request.param]()
    found: OsDisk = request.getfixturevalue(request.param)
    return found


def contents(file: File) -> bytes:
    return file.read(0, file.size() + 1)


# Both disks.


def test_appends_follow_each_other(disk: Disk) -> None:
    file = disk.open("log", create=True)
    for size in (0, 1, 48, 32 * 1024 - 1, 32 * 1024, 100_000):
        file.append(bytes([size % 251]) * size)
    sizes = (1, 48, 32 * 1024 - 1, 32 * 1024, 100_000)
    assert contents(file) == b"".join(bytes([size % 251]) * size for size in sizes)


def test_seek_sets_where_the_next_append_writes(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    file.seek(3)
    file.append(b"ab")
    file.append(b"c")
    assert contents(file) == b"012abc6789"


def test_append_beyond_the_end_leaves_zeros_before_it(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.seek(5)
    file.append(b"x")
    assert contents(file) == b"\0\0\0\0\0x"


def test_an_opened_file_appends_at_its_start(disk: Disk) -> None:
    disk.open("log", create=True).append(b"abc")
    disk.open("log").append(b"X")
    assert contents(disk.open_for_reading("log")) == b"Xbc"


def test_read_gives_fewer_bytes_only_at_the_end(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    assert [file.read(*place) for place in ((0, 4), (6, 4), (8, 4), (10, 4), (99, 4), (3, 0))] == [
        b"0123",
        b"6789",
        b"89",
        b"",
        b"",
        b"",
    ]


def test_truncate_cuts_or_extends_and_leaves_the_append_position(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    file.truncate(4)
    assert contents(file) == b"0123"
    file.truncate(6)
    assert contents(file) == b"0123\0\0"
    file.append(b"x")
    assert contents(file) == b"0123" + bytes(6) + b"x"


def test_preallocate_extends_with_zeros_and_never_shrinks(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"abc")
    file.preallocate(8)
    file.preallocate(2)
    file.append(b"d")
    assert contents(file) == b"abcd" + bytes(4)


def test_create_refuses_a_name_that_exists(disk: Disk) -> None:
    disk.open("log", create=True).append(b"kept")
    with pytest.raises(FileExistsError):
        disk.open("log", create=True)
    assert contents(disk.open("log")) == b"kept"


@pytest.mark.parametrize(
    "call",
    [
        methodcaller("open", "absent"),
        methodcaller("open_for_reading", "absent"),
        methodcaller("open", "absent/log", create=True),
        methodcaller("rename", "absent", "log"),
        methodcaller("remove", "absent"),
        methodcaller("sync_directory", "absent"),
    ],
)
def test_what_is_absent_is_reported_as_such(disk: Disk, call: methodcaller) -> None:
    with pytest.raises(FileNotFoundError):
        call(disk)


def test_rename_replaces_and_handles_follow_their_file(disk: Disk) -> None:
    disk.make_directory("a")
    old, new = disk.open("a/old", create=True), disk.open("new", create=True)
    old.append(b"old")
    new.append(b"new")
    disk.rename("new", "a/old")
    assert contents(disk.open("a/old")) == b"new"
    assert (disk.exists("new"), disk.exists("a/old")) == (False, True)
    assert (contents(old), contents(new)) == (b"old", b"new")


def test_a_removed_file_is_still_read_through_its_handle(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"abc")
    disk.remove("log")
    assert not disk.exists("log")
    assert contents(file) == b"abc"


def test_list_is_sorted_and_empty_where_there_is_no_directory(disk: Disk) -> None:
    disk.make_directory("journal")
    disk.make_directory("kr-store/data")
    for name in ("journal/b", "journal/a", "lock"):
        disk.open(name, create=True).close()
    assert disk.list("journal") == ["a", "b"]
    assert disk.list("") == ["journal", "kr-store", "lock"]
    assert disk.list("kr-store") == ["data"]
    assert disk.list("archive") == []


def test_a_directory_is_made_with_its_parents_and_made_again_without_harm(disk: Disk) -> None:
    disk.make_directory("kr-store/data")
    disk.open("kr-store/data/index", create=True).append(b"x")
    disk.make_directory("kr-store/data")
    assert disk.exists("kr-store/data/index") and disk.exists("") and not disk.exists("kr-store/state")


def test_no_directory_is_made_over_a_file(disk: Disk) -> None:
    disk.open("journal", create=True)
    with pytest.raises(FileExistsError):
        disk.make_directory("journal")


def test_a_directory_is_neither_opened_nor_removed_as_a_file(disk: Disk) -> None:
    disk.make_directory("journal")
    for call in (methodcaller("open", "journal"), methodcaller("remove", "journal")):
        with pytest.raises(OSError):
            call(disk)
    assert disk.exists("journal")


def test_a_handle_for_reading_changes_nothing(disk: Disk) -> None:
    disk.open("log", create=True).append(b"abc")
    file = disk.open_for_reading("log")
    for change in (methodcaller("append", b"x"), methodcaller("truncate", 0), methodcaller("preallocate", 9)):
        with pytest.raises(OSError):
            change(file)
    file.sync()
    assert contents(file) == b"abc"


def test_a_closed_handle_does_nothing(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"abc")
    file.close()
    file.close()
    for call, *arguments in (
        ("append", b"x"),
        ("seek", 0),
        ("read", 0, 1),
        ("read_into", 0, memoryview(bytearray(1))),
        ("sync",),
        ("size",),
        ("truncate", 0),
    ):
        with pytest.raises(OSError) as caught:
            methodcaller(call, *arguments)(file)
        assert caught.value.errno == errno.EBADF


@pytest.mark.parametrize("name", ["/etc/passwd", "..", "../x", "journal/../../x"])
def test_a_name_that_leaves_the_directory_is_our_own_mistake(disk: Disk, name: str) -> None:
    with pytest.raises(AssertionError):
        disk.open(name)


def test_a_disk_that_is_not_full_has_free_bytes(disk: Disk) -> None:
    assert disk.free_bytes() > 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_both_disks_answer_any_mix_of_calls_alike(kind: str, seed: int, real: OsDisk) -> None:
    random = Random(seed)
    simulated = IN_MEMORY[kind]()
    pairs: list[tuple[File, File]] = []
    names = ["a", "b", "d/a", "d/b", "e/a"]

    def answers(call: methodcaller, *subjects: object) -> list[object]:
        both: list[object] = []
        for subject in subjects:
            try:
                both.append(call(subject))
            except OSError as error:
                both.append(error.errno)
        return both

    def alike(call: methodcaller, *subjects: object) -> None:
        one, other = answers(call, *subjects)
        assert one == other, f"seed {seed}: {call}"

    alike(methodcaller("make_directory", "d"), real, simulated)
    for _ in range(150):
        name, number = random.choice(names), random.randrange(3000)
        action = random.randrange(6)
        if action == 0 or not pairs:
            one, other = answers(methodcaller("open", name, create=random.random() < 0.7), real, simulated)
            if isinstance(one, OsFile) and isinstance(other, SimulatedFile | MemoryFile):
                pairs.append((one, other))
            else:
                assert one == other, f"seed {seed}"
        elif action == 1:
            remove, rename = methodcaller("remove", name), methodcaller("rename", name, random.choice(names))
            make, sync = methodcaller("make_directory", "e"), methodcaller("sync_directory", "d")
            alike(random.choice([remove, rename, make, sync]), real, simulated)
        else:
            pair = random.choice(pairs)
            append, seek = methodcaller("append", random.randbytes(number)), methodcaller("seek", number)
            cut, grow = methodcaller("truncate", number), methodcaller("preallocate", number)
            alike(random.choice([append, seek, cut, grow, methodcaller("sync")]), *pair)
            assert contents(pair[0]) == contents(pair[1]), f"seed {seed}"
        for directory in ("", "d", "e"):
            alike(methodcaller("list", directory), real, simulated)


# The real one.


def test_only_the_owner_may_read_what_is_made(tmp_path: Path) -> None:
    disk = OsDisk(str(tmp_path / "parent" / "root"))
    disk.make_directory("")
    disk.make_directory("journal")
    disk.open("journal/log", create=True).close()
    made = ["parent", "parent/root", "parent/root/journal", "parent/root/journal/log"]
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in made] == [0o700, 0o700, 0o700, 0o600]


def test_no_file_is_opened_through_a_link(real: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"theirs")
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError):
        real.open("log")
    with pytest.raises(OSError):
        real.open_for_reading("log")
    with pytest.raises(OSError):
        real.open("dangling", create=True)
    assert real.exists("dangling")
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(real: OsDisk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    for opened in (real.open_for_reading("log"), real.open("log")):
        with pytest.raises(OSError):
            opened.read(0, 10)
        opened.close()


def test_no_program_that_is_started_inherits_a_file(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    os_open = os.open

    def remember(path: str, flags: int, mode: int = 0o777) -> int:
        opened.append(os_open(path, flags, mode))
        return opened[-1]

    monkeypatch.setattr(os, "open", remember)
    real.open("log", create=True)
    real.open_for_reading("log")
    assert [os.get_inheritable(descriptor) for descriptor in opened] == [False, False]


def test_a_directory_that_another_makes_at_the_same_time_is_there_for_both(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def made_by_another_first(path: str, mode: int = 0o777) -> None:
        """Another thread makes the missing parent right after this one found it missing."""
        try:
            mkdir(path, mode)
        except FileNotFoundError:
            monkeypatch.setattr(os, "mkdir", mkdir)
            os.makedirs(os.path.dirname(path))
            raise

    monkeypatch.setattr(os, "mkdir", made_by_another_first)
    real.make_directory("kr-store/data")
    assert real.list("kr-store/data") == []


def test_a_file_system_that_takes_no_directory_says_so(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: str, mode: int = 0o777) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr(os, "mkdir", refuses)
    with pytest.raises(OSError):
        real.make_directory("journal")


def test_a_directory_is_durable_up_to_the_root_even_if_found_existing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk_module, "_sync_directory", synced.append)
    disk = OsDisk(str(tmp_path / "parent" / "root"))
    disk.make_directory("")
    assert synced == [str(tmp_path), str(tmp_path / "parent")]
    disk.make_directory("kr-store/data")
    for _ in range(2):
        synced.clear()
        disk.make_directory("kr-store/data")
        assert synced == [str(tmp_path / "parent/root/kr-store"), str(tmp_path / "parent/root")]


def test_syncs_of_files_and_directories_reach_the_system(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []

    def remember(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os_file, "_flush", remember)
    monkeypatch.setattr(os, "fsync", remember)
    real.make_directory("journal")
    file = real.open("journal/log", create=True)
    synced.clear()
    file.sync()
    real.sync_directory("journal")
    assert synced == [os.stat(f"{real.root}/{name}").st_ino for name in ("journal/log", "journal")]


def test_the_root_stays_where_it_was_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    disk = OsDisk("root")
    disk.make_directory("")
    monkeypatch.chdir("/")
    disk.open("log", create=True).close()
    assert (tmp_path / "root" / "log").exists()


@pytest.mark.parametrize("written", [-1, 0, 1, 5])
def test_a_short_write_is_continued_and_nothing_is_written_twice(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    def write(descriptor: int, data: bytes, length: int) -> int:
        return os.write(descriptor, data[:written]) if written >= 0 else -1

    def one_byte(descriptor: int, data: memoryview) -> int:
        return os_write(descriptor, data[:1])

    file = real.open("log", create=True)
    file.append(b"before")
    os_write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os_file, "_write", write)
        file.append(b"0123456789")
        patch.setattr(os, "write", one_byte)
        file.append(b"short")
    file.append(b"after")
    assert contents(file) == b"before0123456789shortafter"


@pytest.mark.parametrize("size", [4096, 64 * 1024])
def test_after_a_failed_append_the_position_is_what_it_was(real: OsDisk, size: int) -> None:
    """The limit lets a first part through, as a full disk does."""
    file = real.open("log", create=True)
    file.append(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError) as caught:
            file.append(b"x" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert file.size() == 1000
    file.truncate(6)
    file.append(b"after")
    assert contents(file) == b"beforeafter"


def test_an_interrupt_after_the_write_does_not_part_the_positions(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(descriptor: int, data: bytes, length: int) -> int:
        os.write(descriptor, data)
        raise KeyboardInterrupt

    file = real.open("log", create=True)
    file.append(b"before")
    with monkeypatch.context() as patch:
        patch.setattr(os_file, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            file.append(b"XXXXX")
    file.append(b"after")
    assert contents(file) == b"beforeafter"


@interpreted("comes between the lines of what is called")
def test_an_open_that_is_interrupted_at_any_line_leaves_a_handle_that_is_collected_in_silence(real: OsDisk) -> None:
    real.open("file", create=True)

    def opened_files() -> int:
        return len(os.listdir("/dev/fd"))

    def interrupt_line(nth: int) -> bool:
        """Whether the open had so many lines."""
        lines = iter(range(nth))

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_code is not OsFile.__init__.__code__:
                return trace if frame.f_code.co_name == "open" else None
            if event == "line" and next(lines, None) is None:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            OsDisk.open(real, "file").close()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    before, nth = opened_files(), 0
    while interrupt_line(nth):
        gc.collect()  # an exception in __del__ is one of this test
        assert opened_files() == before
        nth += 1
    assert nth >= 4


def test_small_appends_go_through_the_call_that_keeps_the_interpreter_lock(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise AssertionError("a small append gave the interpreter lock up")

    file = real.open("log", create=True)
    monkeypatch.setattr(os, "write", refuse)
    file.append(b"x" * (32 * 1024 - 1))
    with pytest.raises(AssertionError):
        file.append(b"x" * (32 * 1024))


def test_where_the_library_has_no_such_call_appends_work_all_the_same(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library(name: str | None) -> None:
        raise OSError("no library")

    monkeypatch.setattr(ctypes, "PyDLL", no_library)
    monkeypatch.setattr(os_file, "_write", os_file._write_keeping_the_interpreter_lock())
    file = real.open("log", create=True)
    file.append(b"one")
    file.append(b"two")
    assert contents(file) == b"onetwo"


def test_read_into_fills_what_there_is_and_leaves_the_rest(disk: Disk) -> None:
    file = disk.open("log", create=True)
    file.append(b"0123456789")
    for offset, length, expected in ((0, 4, b"0123"), (8, 4, b"89.."), (10, 4, b"...."), (99, 2, b".."), (3, 0, b"")):
        into = bytearray(b"." * length)
        assert file.read_into(offset, memoryview(into)) == len(expected.rstrip(b"."))
        assert into == expected


def test_a_short_read_is_continued(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = real.open("log", create=True)
    file.append(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, length, offset: pread(descriptor, min(length, 3), offset))
    assert file.read(1, 8) == b"12345678"
    assert file.read(1, 99) == b"123456789"
    preadv = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda descriptor, into, offset: preadv(descriptor, [part[:3] for part in into], offset)
    )
    for length in (8, 99):
        into = bytearray(length)
        assert file.read_into(1, memoryview(into)) == min(length, 9)
        assert into.rstrip(b"\0") == b"123456789"[:length]


@pytest.mark.parametrize("error", [None, errno.EOPNOTSUPP, errno.EINVAL])
def test_preallocation_works_where_the_file_system_has_none(
    real: OsDisk, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        assert error is not None
        raise OSError(error, os.strerror(error))

    if error is None:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    file = real.open("log", create=True)
    file.append(b"abc")
    file.preallocate(8)
    file.preallocate(2)
    assert contents(file) == b"abc" + bytes(5)


def test_preallocation_says_when_the_disk_is_full(real: OsDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError) as caught:
        real.open("log", create=True).preallocate(8)
    assert caught.value.errno == errno.ENOSPC


def test_a_name_that_cannot_be_looked_up_is_not_called_absent(real: OsDisk) -> None:
    with pytest.raises(OSError):
        real.exists("x" * 10_000)
