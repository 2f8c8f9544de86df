"""Names in the store's directory, and the lock that gives it one owner."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.store.disk.layout import (
    DATA_LOG_ID_MAX,
    LOCK,
    DirectoryLock,
    data_log_id,
    data_log_name,
    validate_broker_name,
)
from forebay.store.errors import SettingsError, StoreLocked


def base_name(name: str) -> str:
    return name.rpartition("/")[2]


@pytest.mark.parametrize("number", [1, 9, 10, 87, 2**31 - 1])
def test_a_data_log_is_found_again_by_its_name(number: int) -> None:
    assert data_log_name(number) == f"journal/data-{number}.log"
    assert data_log_id(base_name(data_log_name(number))) == number


@pytest.mark.parametrize("number", [0, -1, DATA_LOG_ID_MAX + 1])
def test_no_name_is_made_for_an_id_that_would_not_be_found_again(number: int) -> None:
    with pytest.raises(AssertionError):
        data_log_name(number)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "data-.log",
        "data-0.log",
        "data-01.log",
        "data-+1.log",
        "data--1.log",
        "data-1_0.log",
        "data- 1.log",
        "data-1.log ",
        "data-1.log\n",
        "data-1.log.tmp",
        "xdata-1.log",
        "Data-1.log",
        "data-1",
        "data-1xlog",
        "data-\u0661.log",
        "data-2147483648.log",
        "data-99999999999999999999.log",
        "journal/data-1.log",
    ],
)
def test_any_other_name_is_no_data_log(name: str) -> None:
    assert data_log_id(name) is None


@pytest.mark.parametrize("name", ["localhost", "broker-1", "a", "A_b.c-9", "...", ".hidden", "x" * 64])
def test_a_broker_may_be_named_like_a_directory(name: str) -> None:
    validate_broker_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "a b", "a\0", "a\n", "b\u00fccher", "x" * 65, "../x", "a:b"]
)
def test_a_broker_name_that_is_no_plain_directory_is_refused(name: str) -> None:
    with pytest.raises(SettingsError):
        validate_broker_name(name)


# The lock.


class Clock:
    """Time that passes only while somebody sleeps; then calls what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        for at, call in self.due:
            if self.now >= at:
                call()


def locked(root: Path) -> DirectoryLock:
    lock = DirectoryLock(str(root))
    lock.acquire()
    return lock


def is_free(root: Path) -> bool:
    """Asked of the kernel, past all that this process remembers."""
    descriptor = os.open(root / LOCK, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextmanager
def another_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Holds the lock until its input ends or it is killed."""
    program = (
        "import sys; from forebay.store.disk.layout import DirectoryLock; lock = DirectoryLock(sys.argv[1]); "
        "lock.acquire(); print('held', flush=True); sys.stdin.read(); lock.release()"
    )
    command = [sys.executable, "-c", program, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_directory_has_one_owner_after_the_other(tmp_path: Path) -> None:
    first, second = DirectoryLock(str(tmp_path)), DirectoryLock(str(tmp_path))
    for lock in (first, second, first):
        assert not lock.held()
        lock.acquire()
        assert lock.held() and not is_free(tmp_path)
        lock.release()
        assert not lock.held() and is_free(tmp_path)


def test_two_directories_have_an_owner_each(tmp_path: Path) -> None:
    locks = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        locks.append(locked(tmp_path / name))
    assert all(lock.held() for lock in locks)
    for lock in locks:
        lock.release()


def test_a_second_handle_of_this_process_is_refused_under_any_name_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    lock = locked(tmp_path / "root")
    with pytest.raises(StoreLocked) as caught:
        locked(tmp_path / "link")
    assert str(os.getpid()) in caught.value.holder
    assert caught.value.directory == str(tmp_path / "link")
    assert lock.held() and not is_free(tmp_path / "root")
    lock.release()


def test_a_second_handle_is_refused_where_the_systems_lock_is_one_per_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over some network file systems."""
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    lock = locked(tmp_path)
    with pytest.raises(StoreLocked):
        locked(tmp_path)
    lock.release()
    locked(tmp_path).release()


def test_a_second_process_is_refused_without_any_wait_and_told_who_holds_it(tmp_path: Path) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError("slept without being asked to wait")

    with another_process(tmp_path) as process:
        lock = DirectoryLock(str(tmp_path), sleep=sleep)
        with pytest.raises(StoreLocked) as caught:
            lock.acquire()
        assert re.fullmatch(rf"pid {process.pid} on \S+ since \d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ", caught.value.holder)
        assert caught.value.waited_seconds < 0.1
        assert not lock.held()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        process.kill()
        process.wait()
        assert (tmp_path / LOCK).read_text().startswith(f"pid {process.pid} ")
        locked(tmp_path).release()


def test_the_lock_of_a_process_that_let_go_is_free(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        process.communicate("")
        assert process.returncode == 0
        locked(tmp_path).release()


def test_acquire_waits_as_long_as_asked(tmp_path: Path) -> None:
    lock, clock = locked(tmp_path), Clock()
    second = DirectoryLock(str(tmp_path), clock=clock, sleep=clock.sleep)
    with pytest.raises(StoreLocked) as caught:
        second.acquire(wait_seconds=3.0)
    assert clock.now == pytest.approx(3.0)
    assert caught.value.waited_seconds == pytest.approx(3.0)
    lock.release()


def test_acquire_stops_waiting_when_the_directory_is_let_go(tmp_path: Path) -> None:
    lock, clock = locked(tmp_path), Clock()
    clock.due.append((1.0, lock.release))
    second = DirectoryLock(str(tmp_path), clock=clock, sleep=clock.sleep)
    second.acquire(wait_seconds=3.0)
    assert second.held() and 1.0 <= clock.now < 1.1
    second.release()


def test_whoever_is_refused_leaves_nothing_open(tmp_path: Path) -> None:
    with another_process(tmp_path) as process:
        before = len(os.listdir("/dev/fd"))
        for _ in range(3):
            with pytest.raises(StoreLocked):
                locked(tmp_path)
        assert len(os.listdir("/dev/fd")) == before
        process.kill()
        process.wait()
        lock = locked(tmp_path)
        lock.release()
        lock.release()
        assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("replace", [False, True])
def test_a_lock_file_that_was_taken_away_is_noticed(tmp_path: Path, replace: bool) -> None:
    lock = locked(tmp_path)
    (tmp_path / LOCK).unlink()
    if replace:
        (tmp_path / LOCK).touch()
    assert not lock.held()
    lock.release()


def test_a_lock_file_replaced_while_it_is_locked_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def replace_and_lock(descriptor: int, operation: int) -> None:
        (tmp_path / LOCK).unlink()
        (tmp_path / LOCK).touch()
        flock(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", replace_and_lock)
        with pytest.raises(StoreLocked):
            locked(tmp_path)
    locked(tmp_path).release()


def test_an_error_of_the_system_leaves_the_directory_to_be_locked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError("no locks here")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        with pytest.raises(OSError, match="no locks here"):
            locked(tmp_path)
    locked(tmp_path).release()


def test_the_lock_file_is_private_and_never_a_link(tmp_path: Path) -> None:
    locked(tmp_path).release()
    assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o600
    (tmp_path / "theirs").write_bytes(b"theirs")
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError):
        locked(tmp_path)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


@pytest.mark.parametrize("text", [b"", b"\xff\xfe", b"pid 1 on x since \x1b[31m", b"pid", b"x" * 10_000])
def test_what_somebody_wrote_into_the_lock_file_does_not_reach_the_message(tmp_path: Path, text: bytes) -> None:
    with another_process(tmp_path):
        (tmp_path / LOCK).write_bytes(text)
        with pytest.raises(StoreLocked) as caught:
            locked(tmp_path)
        assert caught.value.holder == "another process"


def test_a_full_disk_does_not_keep_the_store_from_being_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> int:
        raise OSError("no space")

    monkeypatch.setattr(os, "pwrite", full)
    lock = locked(tmp_path)
    assert lock.held()
    lock.release()


def test_release_frees_the_directory_even_beside_a_child_forked_unseen(tmp_path: Path) -> None:
    lock = locked(tmp_path)
    copy = os.dup(lock._descriptor)
    lock.release()
    assert is_free(tmp_path)
    os.close(copy)


def test_a_forked_child_does_not_own_the_directory_and_cannot_let_it_go(tmp_path: Path) -> None:
    program = """
import os, sys
from forebay.store.errors import StoreLocked
from forebay.store.disk.layout import DirectoryLock

def is_refused(lock):
    try:
        lock.acquire()
    except StoreLocked as error:
        return f"pid {parent} " in error.holder
    return False

parent = os.getpid()
lock = DirectoryLock(sys.argv[1])
lock.acquire()
child = os.fork()
if child == 0:
    dead = not lock.held()
    lock.release()
    os._exit(0 if dead and is_refused(DirectoryLock(sys.argv[1])) and is_refused(lock) else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert lock.held()
child = os.fork()
if child == 0:
    os._exit(0 if is_refused(DirectoryLock(sys.argv[1])) else 1)
_, status = os.waitpid(child, 0)
assert status == 0, status
lock.release()
lock.acquire()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)
    locked(tmp_path).release()
