"""The write window: a mapped part of a file with its pages in memory, so that a small append is a copy, not a system
call.

A write to a mapped page that the system can't provide ends the process with a signal instead of an error code. So only
files are mapped whose space the file system has reserved for good. The pages of each window are requested at once, by a
call that returns an error code. Two risks remain: a file system that shuts itself down while a window is open, and a
page that the system has written back and dropped and then can't read again.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Final

WINDOW_BYTES: Final = 512 * 1024
"""Moving the window takes 0.2 to 0.3 ms, mostly for the pages, which would cost as much one by one."""

_MOUNTS: Final = "/proc/self/mountinfo"
_KEEPING: Final = ("ext4", "xfs")
"""File systems that write allocated space in place. Such space can't run out, unlike that of copy-on-write file
systems.
"""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE of Linux 5.14, which the mmap module does not name."""


def keeps_space(descriptor: int, mounts: str = _MOUNTS) -> bool:
    """Return whether space that is allocated to this file can always be written. False if that can't be known."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            before, _, behind = line.partition(" - ")
            if before.split()[2:3] == [wanted]:
                return behind.startswith(_KEEPING)
    return False


def move_window(mapped: mmap.mmap, old: int, begin: int, end: int) -> None:
    """Release the window that begins at old, and load the pages of begin..end for writing.

    Places are multiples of the page size. On OSError, append by system calls instead. It keeps the interpreter lock,
    which a separate mapping for each window would release twice.
    """
    mapped.madvise(mmap.MADV_DONTNEED, old, WINDOW_BYTES)
    mapped.madvise(_POPULATE_WRITE, begin, end - begin)
