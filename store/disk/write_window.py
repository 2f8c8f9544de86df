"""The write window: a mapped piece of a file with its pages present, so that a small append is a copy, not a system
call.

A store into a mapped page that the system can't provide ends the process with a signal instead of an error code. So
only files are mapped whose space a file system has allocated for good, and the pages of each window are requested at
once, by a call that does return an error code. Two risks remain: a file system that shuts itself down while a window is
open, and a page that the system has written back and dropped and then can't read again.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Final

WINDOW_BYTES: Final = 512 * 1024
"""Moving the window takes 0.2 to 0.3 ms, most of it for the pages, which cost as much one by one."""

FIRST_WINDOW_BYTES: Final = 64 * 1024
"""A new map begins with less. Opening a store writes a header into it, and perhaps nothing else."""

_MOUNTS: Final = "/proc/self/mountinfo"
_KEEPING: Final = ("ext4", "xfs")
"""File systems that write allocated space in place: it can't run out, as it can if each write is a copy."""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE of Linux 5.14, which the mmap module does not name."""


def keeps_space(descriptor: int, mounts: str = _MOUNTS) -> bool:
    """Return whether space once allocated to this file can always be written; False if that can't be known."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            before, _, behind = line.partition(" - ")
            if before.split()[2:3] == [wanted]:
                return behind.startswith(_KEEPING)
    return False


def map_first_window(descriptor: int, length: int, begin: int, end: int) -> mmap.mmap:
    """Map length bytes of a file, make the pages of begin..end present, to be written, and return the map.

    OSError, ValueError: append by system calls instead. Nothing is read ahead for these pages, because the kernel reads
    as far ahead as the device is set to: 8 MiB, for a header, took 2.3 ms instead of 0.1. Later windows follow each
    other, and with read-ahead they take a third of the time.
    """
    mapped = mmap.mmap(descriptor, length)
    try:
        mapped.madvise(mmap.MADV_RANDOM)
        mapped.madvise(_POPULATE_WRITE, begin, end - begin)
        mapped.madvise(mmap.MADV_NORMAL)
    except BaseException:
        mapped.close()
        raise
    return mapped


def move_window(mapped: mmap.mmap, old: int, begin: int, end: int) -> None:
    """Drop the window that begins at old, and make the pages of begin..end present, to be written.

    Places are multiples of the page size. OSError: append by system calls instead. It keeps the interpreter lock; a
    mapping for each window would release it twice.
    """
    mapped.madvise(mmap.MADV_DONTNEED, old, WINDOW_BYTES)
    mapped.madvise(_POPULATE_WRITE, begin, end - begin)
