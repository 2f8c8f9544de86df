"""The kernel makes a sync while the thread that began it goes on, and a descriptor tells of its end."""

from __future__ import annotations

import os
import platform
import select
import sys
import threading
from pathlib import Path

import pytest

from forebay.store.disk.disk import OsDisk, SyncSignal
from forebay.store.disk.kernel_sync import KernelSync
from forebay.store.disk.os_file import OsFile

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64", "riscv64"),
    reason="the kernel of Linux syncs in the background",
)


def new_file(directory: Path) -> OsFile:
    return OsDisk(str(directory)).open("x", create=True)


def is_readable(signal: SyncSignal, seconds: float = 0) -> bool:
    return bool(select.select([signal.fileno()], [], [], seconds)[0])


def test_a_signal_can_be_read_when_its_sync_is_made_until_it_is_cleared(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    signal = sync.new_signal()
    for number in range(20):
        file.append(b"%d" % number)
        assert sync.begin(file, signal)
        assert is_readable(signal, 60)
        assert sync.is_made() and sync.is_made(), "a second call answers the same"
        sync.wait()
        signal.clear()
        assert not is_readable(signal)


def test_neither_a_thread_that_waits_nor_the_next_sync_takes_a_signal_away(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    signal, other = sync.new_signal(), sync.new_signal()
    file.append(b"x")
    assert sync.begin(file, signal)
    waiting = threading.Thread(target=sync.wait)
    waiting.start()
    waiting.join(60)
    assert not waiting.is_alive() and sync.is_made()
    assert sync.begin(file, other)
    sync.wait()
    assert is_readable(signal, 60) and is_readable(other, 60)


def test_a_file_that_is_closed_or_of_another_disk_is_not_synced_in_the_background(tmp_path: Path) -> None:
    file, sync = new_file(tmp_path), KernelSync()
    file.close()
    assert not sync.begin(file, sync.new_signal())
    assert not sync.begin(object(), sync.new_signal())


def test_an_error_is_raised_each_time_it_is_asked_for(tmp_path: Path) -> None:
    sync = KernelSync()
    reader, writer = os.pipe()  # which can't be synced: the kernel says so at once, or when it has tried
    pipe = new_file(tmp_path)
    os.dup2(writer, pipe.fileno())
    try:
        if sync.begin(pipe, sync.new_signal()):
            for _ in range(2):
                with pytest.raises(OSError):
                    sync.wait()
    finally:
        pipe.close()
        os.close(reader)
        os.close(writer)


def test_the_descriptor_of_a_signal_is_closed_with_the_last_reference() -> None:
    signal = KernelSync().new_signal()
    descriptor = signal.fileno()
    os.fstat(descriptor)
    del signal
    with pytest.raises(OSError):
        os.fstat(descriptor)
