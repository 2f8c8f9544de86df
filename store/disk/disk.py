"""The one seam to the disk: every byte the library reads or writes passes here.

Names are POSIX paths relative to the store's own directory, made only by disk/layout.py; "" is that directory itself.
`OsDisk` is the real one; `SimulatedDisk` of the tests loses, tears and fails on demand. SQLite alone keeps its own
files (see metadata/sqlite.py), because it cannot write through a seam of ours. What a crash leaves: of a file, all up
to its last sync and any part of what came after; of a directory, the same.
"""

from __future__ import annotations

import errno
import os
from typing import Final, Protocol

from .os_file import OsFile
from .write_window import keeps_space

NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""The errors with which the system reports a full disk, an exhausted quota, and a file at its limit."""


class File(Protocol):
    """An open file. Errors are OSError, as the system gave them."""

    def append(self, data: bytes) -> None:
        """Write all of data at the append position and advance it; short writes are continued.

        On an error the append position is what it was before the call; the bytes behind it are undefined. Small appends
        (< 32 KiB) keep the interpreter lock: a system call that gives it up costs up to 5 ms beside one computing
        thread. Larger ones give it up.
        """

    def seek(self, position: int) -> None:
        """Set the append position, in bytes from the start of the file."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at offset; fewer only at the end of the file. Safe from any thread."""

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read into memory that is there already, from its first byte on; return how many bytes there were."""

    def sync(self) -> None:
        """Return when all that was appended before the call, and the size, is on the device.

        After an error nothing is known of what was not yet synced, and a second sync that succeeds does not bring it
        back.
        """

    def truncate(self, length: int) -> None:
        """Cut the file to length, or extend it with zeros. The append position stays."""

    def preallocate(self, length: int) -> None:
        """Extend the file to length with zeros, taking the space now where the file system can. Never shrinks it."""

    def size(self) -> int:
        """Return the bytes in the file, preallocated ones included."""

    def close(self) -> None:
        """Give the handle up; what was not synced stays unsynced. No other thread may be inside a call."""


class Directory(Protocol):
    """A directory that is open, so that its sync needs no further descriptor."""

    def sync(self) -> None:
        """Return when every create, rename and remove in it is on the device."""

    def close(self) -> None:
        """Give the handle up. No other thread may be inside a call."""


class Disk(Protocol):
    """A directory tree. Directory changes are durable after sync_directory of the parent."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and appending at 0. create: the name must not exist (0600, never through a link)."""

    def open_for_reading(self, name: str) -> File:
        """Open an existing file whose append raises."""

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name. Raises where that cannot be known."""

    def list(self, directory: str) -> list[str]:
        """Base names in a directory, sorted; [] where it does not exist."""

    def make_directory(self, name: str) -> None:
        """Create it and missing parents with 0700; fine if it exists. Its entries are durable on return.

        Those found existing are made durable too: a process that died may have created them and not come to their sync.
        """

    def rename(self, name: str, to: str) -> None:
        """Give a file another name in one step, replacing a file of that name. Between directories, sync both."""

    def remove(self, name: str) -> None:
        """Take a file's name away; handles that are open still read it."""

    def sync_directory(self, name: str) -> None:
        """Return when every create, rename and remove in this directory is on the device."""

    def open_directory(self, name: str) -> Directory:
        """Open an existing directory, to sync it often."""

    def free_bytes(self) -> int:
        """Return the bytes that this user may still write."""


def known_free_bytes(disk: Disk) -> int:
    """Return the free bytes for a message to people; 0 where even that can't be known."""
    try:
        return disk.free_bytes()
    except OSError:
        return 0


def is_inside(name: str) -> bool:
    """Return whether a name can only mean something in the store's directory."""
    return not name.startswith("/") and ".." not in name.split("/")


_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of every open: nothing waits for the other end of a pipe that stands in the place of a file; reading it fails.
"""


class OsDisk:
    """The `Disk` of the operating system under one root directory, which make_directory("") creates.

    The root itself and its parents may be links, for operators place stores that way; no file is ever opened through
    one.
    """

    def __init__(self, root: str, *, maps: bool = False, fills: bool = False) -> None:
        """maps: small appends to preallocated space are copies into mapped memory, where that is safe.

        fills: preallocated space is filled with zeros ahead of small appends, which are system calls; each of them
        costs more then, and a sync less.
        """
        self.root = os.path.abspath(root)
        """Absolute, so that the process may change its working directory."""
        self._keeps_space = keeps_space if maps or fills else None
        self._fills = fills

    def open(self, name: str, *, create: bool = False) -> OsFile:
        """Open a file for appending and reading, or create one that must not exist yet."""
        creation = os.O_CREAT | os.O_EXCL if create else 0
        flags = os.O_RDWR | creation | _OPEN_FLAGS
        return OsFile(self._path(name), flags, self._keeps_space, fills=self._fills)

    def open_for_reading(self, name: str) -> OsFile:
        """Open a file for reading alone."""
        return OsFile(self._path(name), os.O_RDONLY | _OPEN_FLAGS)

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name. Raises where that cannot be known."""
        try:
            os.lstat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> list[str]:
        """Return the base names in a directory, in no order; none where there is no directory."""
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, name: str) -> None:
        """Create a directory, durably, unless it is there."""
        path = self._path(name)
        self._create_directory(path)
        while True:
            path = os.path.dirname(path)
            _sync_directory(path)
            if len(path) <= len(self.root):
                return

    def _create_directory(self, path: str, *, has_parent: bool = False) -> None:
        """Create a directory and missing parents. Another process may create them at the same time."""
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            if has_parent:
                raise  # a file system that takes no directory here, such as /proc, says so like this
            parent = os.path.dirname(path)
            if not os.path.isdir(parent):
                self._create_directory(parent)
                _sync_directory(os.path.dirname(parent))
            self._create_directory(path, has_parent=True)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, which takes the place of any file that had it."""
        os.rename(self._path(name), self._path(to))

    def remove(self, name: str) -> None:
        """Unlink a file."""
        os.unlink(self._path(name))

    def sync_directory(self, name: str) -> None:
        """Return when the names in a directory are on the device."""
        _sync_directory(self._path(name))

    def open_directory(self, name: str) -> Directory:
        """Open a directory, to sync it often."""
        return _OsDirectory(self._path(name))

    def free_bytes(self) -> int:
        """Return the bytes that this user may still write."""
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def _path(self, name: str) -> str:
        assert is_inside(name), f"{name!r} leaves the store's directory"
        return f"{self.root}/{name}" if name else self.root


class _OsDirectory:
    """A `Directory` that holds its descriptor."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync(self) -> None:
        """Return when the names in it are on the device."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Give the descriptor up. Twice is once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _sync_directory(path: str) -> None:
    directory = _OsDirectory(path)
    try:
        directory.sync()
    finally:
        directory.close()
