"""Memory of the process: how much RAM there is, and how much this process has for itself.

Each call reads the system anew. The limit of a container counts like the machine's own; the smaller one decides. psutil
is imported by the first call that needs it, so that importing the library is quick.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from typing import Final

CGROUP_MEMBERSHIP: Final = "/proc/self/cgroup"
CGROUP_ROOT: Final = "/sys/fs/cgroup"
_LIMIT_CHARACTERS: Final = 64
_TEXT_BYTES: Final = 65536


def total_memory_bytes(*, membership: str = CGROUP_MEMBERSHIP, root: str = CGROUP_ROOT) -> int:
    """Return the RAM that this process may use: the machine's, or the smallest limit of its control groups."""
    import psutil

    return min([int(psutil.virtual_memory().total), *_cgroup_limits(membership, root)])


def share_of_memory_bytes(share: float, *, membership: str = CGROUP_MEMBERSHIP, root: str = CGROUP_ROOT) -> int:
    """Return the bytes of a share, such as 0.25, of total_memory_bytes()."""
    return int(total_memory_bytes(membership=membership, root=root) * share)


def unique_set_bytes() -> int:
    """Return the bytes that only this process maps: anonymous memory, and files that no other process maps.

    If the system does not tell, return resident bytes. O(pages of the process), without the interpreter lock: call it
    once a second, not once a message.
    """
    import psutil

    process = psutil.Process()
    try:
        return int(process.memory_full_info().uss)
    except (psutil.Error, AttributeError):  # smaps hidden by the container, or a system without it
        return int(process.memory_info().rss)


def id_and_resident_bytes() -> tuple[int, int | None]:
    """Return the id of this process, and its bytes in RAM including shared ones, if the system tells."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return os.getpid(), int(file.read(256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return os.getpid(), None


def return_free_memory() -> None:
    """Ask the C library to give free pages back to the system, if it can.

    It takes milliseconds, without interpreter lock.
    """
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        pass  # another C library, with its own rules


def _cgroup_limits(membership: str, root: str) -> Iterator[int]:
    """Yield each limit on the way from the process's own group to the root. All of them hold at once.

    In a container the group's path is often that of the host and does not exist under root, where root itself is the
    container's own group. So a missing file is no limit.
    """
    for directory, file_name in memory_groups(membership, root):
        try:
            with open(posixpath.join(directory, file_name), encoding="ascii", errors="replace") as file:
                limit = file.read(_LIMIT_CHARACTERS).strip()
        except OSError:
            continue
        # Version 2 says "max" for no limit, version 1 a number above any machine's RAM.
        if limit.isdecimal():
            yield int(limit)


def memory_groups(membership: str, root: str) -> Iterator[tuple[str, str]]:
    """Yield each directory and file name that may have a limit of this process."""
    try:
        with open(membership, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.readlines()
    except OSError:
        return  # a system without control groups
    for line in lines:
        _, _, group = line.rstrip("\n").partition(":")
        controllers, _, path = group.partition(":")
        if not controllers:
            top, file_name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, file_name = posixpath.join(root, "memory"), "memory.limit_in_bytes"
        else:
            continue
        names = path.strip("/").split("/")
        for depth in range(len(names) + 1):
            yield posixpath.join(top, *names[:depth]), file_name


def lines_of(path: str) -> list[str]:
    """Return the lines of a small file of the system; none if it does not exist. It reads at most 64 KiB."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(_TEXT_BYTES).splitlines()
    except OSError:
        return []
