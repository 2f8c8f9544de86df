"""The write window: a piece of a mapped file whose pages are there, so that a small append is a copy instead of a
system call.

A store into a mapped page that the system cannot provide ends the process with a signal instead of an error code. So
only files are mapped whose space a file system has set aside for good, and each window's pages are asked for at once,
by a call that does give an error code. Two risks remain: a file system that shuts itself down while a window is open,
and a page that the system has written back and dropped and then cannot read again.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Final

WINDOW_BYTES: Final = 512 * 1024
"""Moving it takes 0.2 to 0.3 ms, most of it the pages, which cost as much one by one."""

_MOUNTS: Final = "/proc/self/mountinfo"
_KEEPING: Final = ("ext4", "xfs")
"""File systems that write allocated space in place: it cannot run out, as it can where each write is a copy."""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE of Linux 5.14, which the mmap module does not name."""


def keeps_space(descriptor: int, mounts: str = _MOUNTS) -> bool:
    """Return whether space once allocated to this file can always be written; False where that cannot be known."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            before, _, behind = line.partition(" - ")
            if before.split()[2:3] == [wanted]:
                return behind.startswith(_KEEPING)
    return False


def move_window(mapped: mmap.mmap, old: int, begin: int, end: int) -> None:
    """Let go of the window that begins at old, and have the pages of begin..end there, to be written.

    Places are multiples of the page size. OSError: append by system calls instead. Keeps the interpreter lock, which a
    map of each window's own would give up twice.
    """
    mapped.madvise(mmap.MADV_DONTNEED, old, WINDOW_BYTES)
    mapped.madvise(_POPULATE_WRITE, begin, end - begin)
