"""The kernel makes a sync while the thread that began it goes on, and a descriptor tells of its end."""

from __future__ import annotations

import os
import platform
import select
import sys
import threading
from pathlib import Path

import pytest

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.kernel_sync import KernelSync
from forebay.store.disk.os_file import OsFile

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64", "riscv64"),
    reason="the kernel of Linux syncs in the background",
)


def new_file(directory: Path) -> OsFile:
    return OsDisk(str(directory)).open("x", create=True)


def is_readable(sync: KernelSync, seconds: float = 0) -> bool:
    return bool(select.select([sync.fileno()], [], [], seconds)[0])


def test_the_descriptor_can_be_read_when_a_sync_is_made(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    for number in range(20):
        file.append(b"%d" % number)
        assert sync.begin(file)
        assert is_readable(sync, 60)
        assert sync.is_made() and sync.is_made(), "a second call answers the same"
        sync.wait()


def test_a_thread_that_waits_takes_nothing_from_who_watches_the_descriptor(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    file.append(b"x")
    assert sync.begin(file)
    waiting = threading.Thread(target=sync.wait)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive() and is_readable(sync, 60) and sync.is_made()


def test_a_file_that_is_closed_or_of_another_disk_is_not_synced_in_the_background(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    file.close()
    assert not sync.begin(file)
    assert not sync.begin(object())


def test_an_error_is_raised_each_time_it_is_asked_for(tmp_path: Path) -> None:
    sync = KernelSync()
    reader, writer = os.pipe()  # which can't be synced: the kernel says so at once, or when it has tried
    pipe = new_file(tmp_path)
    os.dup2(writer, pipe.fileno())
    try:
        if sync.begin(pipe):
            for _ in range(2):
                with pytest.raises(OSError):
                    sync.wait()
    finally:
        pipe.close()
        os.close(reader)
        os.close(writer)


def test_the_descriptor_is_closed_with_the_last_reference() -> None:
    sync = KernelSync()
    descriptor = sync.fileno()
    os.fstat(descriptor)
    del sync
    with pytest.raises(OSError):
        os.fstat(descriptor)
