"""Disk: the interface to files, through which every byte goes that the library reads or writes.

Names are POSIX paths relative to the store's own directory, and only disk/layout.py makes them; "" is that directory
itself. `OsDisk` is the real implementation; `SimulatedDisk` of the tests loses, tears and fails on demand. Only SQLite
keeps its own files (see metadata/sqlite.py), because it can't write through this interface. A crash leaves of a file
everything up to its last sync and any part of what came after; of a directory, the same.
"""

from __future__ import annotations

import errno
import os
from typing import Final, Protocol, runtime_checkable

from .os_file import OsFile
from .write_window import keeps_space

NO_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""The errors with which the system reports a full disk, an exhausted quota, and a file at its limit."""


class File(Protocol):
    """An open file. Errors are the OSError of the system."""

    def append(self, data: bytes) -> None:
        """Write all of data at the append position and advance it. Short writes are continued.

        On an error the append position is what it was before the call; the bytes behind it are undefined. Small appends
        (< 32 KiB) keep the interpreter lock, because a system call that releases it costs up to 5 ms beside one
        computing thread. Larger ones release it.
        """

    def seek(self, position: int) -> None:
        """Set the append position, in bytes from the start of the file."""

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at offset; fewer only at the end of the file. Safe from any thread."""

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read into existing memory, from its first byte on; return how many bytes there were."""

    def sync(self) -> None:
        """Return when everything that was appended before the call, and the size, is on the device.

        After an error nothing is known of the bytes that were not synced yet, and a second sync that succeeds does not
        bring them back.
        """

    def truncate(self, length: int) -> None:
        """Cut the file to length, or extend it with zeros. The append position stays."""

    def preallocate(self, length: int) -> None:
        """Extend the file to length with zeros, allocating space now if the file system can. Never shrinks it."""

    def size(self) -> int:
        """Return the bytes in the file, including preallocated ones."""

    def close(self) -> None:
        """Close the handle; what was not synced stays unsynced. No other thread may be inside a call."""


@runtime_checkable
class FillableFile(File, Protocol):
    """A File that may fill preallocated space ahead. The files of a host's own disk need not be of this kind."""

    @property
    def is_filled_ahead(self) -> bool:
        """Whether the preallocated space is filled ahead of small appends."""

    @property
    def filled_bytes(self) -> int:
        """Bytes from the file's start that were written, even if with zeros: an append there always finds room."""


class Directory(Protocol):
    """An open directory, whose sync needs no further descriptor."""

    def sync(self) -> None:
        """Return when every create, rename and remove in it is on the device."""

    def close(self) -> None:
        """Close the handle. No other thread may be inside a call."""


class SyncSignal(Protocol):
    """Tells an event loop that a sync is made. Each loop has its own, which is freed with the last reference to it."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when a sync with this signal is made, until `clear`."""

    def clear(self) -> None:
        """Let the descriptor wait for the next sync with this signal."""


class BackgroundSync(Protocol):
    """Makes syncs of files, one at a time, while the thread that began them goes on.

    Requires: the sync lock of the journal. It is freed with the last reference to it.
    """

    def new_signal(self) -> SyncSignal:
        """Return a new signal for `begin`. OSError: the process has no descriptor left."""

    def begin(self, file: File, signal: SyncSignal) -> bool:
        """Begin a sync of all that was appended to a file. False: it can't be made so; sync it otherwise.

        Requires: `is_made` has answered for the sync before it.
        """

    def is_made(self) -> bool:
        """Return whether the sync is made, or has failed. A second call answers the same."""

    def wait(self) -> None:
        """Wait until the sync is made. OSError: it failed, as `File.sync` does. A second call answers the same."""


class Disk(Protocol):
    """A directory tree. Directory changes are durable after sync_directory of the parent."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and appending at 0. create: the name must not exist (mode 0600, never through a link)."""

    def open_for_reading(self, name: str) -> File:
        """Open an existing file for reading. Its append raises."""

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name. Raises if that can't be known."""

    def list(self, directory: str) -> list[str]:
        """Return the base names in a directory, sorted; [] if it does not exist."""

    def make_directory(self, name: str) -> None:
        """Create it and missing parents with 0700; an existing one is fine. Its entries are durable on return.

        Existing parents are made durable too, because a process that died may have created them without a sync.
        """

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step, replacing a file of the new name. Between directories, sync both."""

    def remove(self, name: str) -> None:
        """Remove a file's name; open handles can still read it."""

    def sync_directory(self, name: str) -> None:
        """Return when every create, rename and remove in this directory is on the device."""

    def open_directory(self, name: str) -> Directory:
        """Open an existing directory that will be synced often."""

    def free_bytes(self) -> int:
        """Return the bytes that this user may still write."""


@runtime_checkable
class BackgroundSyncDisk(Disk, Protocol):
    """A Disk that may sync files in the background. A host's own disk need not be such a one."""

    def background_sync(self) -> BackgroundSync | None:
        """Return a new BackgroundSync for files of this disk. None: it has none."""


def background_sync_of(disk: Disk) -> BackgroundSync | None:
    """Return a new BackgroundSync for files of a disk. None: it has none."""
    return disk.background_sync() if isinstance(disk, BackgroundSyncDisk) else None


def is_filled_ahead(file: File) -> bool:
    """Return whether the preallocated space of a file is filled ahead of small appends."""
    return isinstance(file, FillableFile) and file.is_filled_ahead


def filled_bytes(file: File) -> int:
    """Return up to where appends to a file always find room, because its space is filled."""
    return file.filled_bytes if isinstance(file, FillableFile) else 0


def known_free_bytes(disk: Disk) -> int:
    """Return the free bytes for a message to people; 0 if even that can't be known."""
    try:
        return disk.free_bytes()
    except OSError:
        return 0


def is_inside(name: str) -> bool:
    """Return whether a name stays inside the store's directory."""
    return not name.startswith("/") and ".." not in name.split("/")


_OPEN_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags of every open: it never waits for the other end of a pipe in the place of a file; reading that fails."""


class OsDisk:
    """The `Disk` of the operating system under one root directory, which make_directory("") creates.

    The root itself and its parents may be links, because operators place stores that way. No file is ever opened
    through a link.
    """

    def __init__(self, root: str, *, maps: bool = False, fills: bool = False) -> None:
        """Make the disk.

        maps: whether small appends to preallocated space are copies into mapped memory, on file systems where that is
            safe.
        fills: whether preallocated space is filled with zeros ahead of small appends. Appends are system calls then:
            each costs more, and a sync costs less.
        """
        # Absolute, so that the process may change its working directory.
        self.root = os.path.abspath(root)
        self._keeps_space = self._is_space_kept if maps or fills else None
        self._fills = fills
        # Devices that are known to keep space. Each other device is looked up again.
        self._keeping: set[int] = set()

    def open(self, name: str, *, create: bool = False) -> OsFile:
        """Open a file for appending and reading, or create one that must not exist yet."""
        creation = os.O_CREAT | os.O_EXCL if create else 0
        flags = os.O_RDWR | creation | _OPEN_FLAGS
        return OsFile(self._path(name), flags, self._keeps_space, fills=self._fills)

    def open_for_reading(self, name: str) -> OsFile:
        """Open a file only for reading."""
        return OsFile(self._path(name), os.O_RDONLY | _OPEN_FLAGS)

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name. Raises if that can't be known."""
        try:
            os.lstat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> list[str]:
        """Return the base names in a directory, sorted; none if the directory does not exist."""
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, name: str) -> None:
        """Create a directory durably, unless it exists."""
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
                raise  # a file system that allows no directory here, such as /proc, raises this
            parent = os.path.dirname(path)
            if not os.path.isdir(parent):
                self._create_directory(parent)
                _sync_directory(os.path.dirname(parent))
            self._create_directory(path, has_parent=True)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, name: str, to: str) -> None:
        """Rename a file, replacing any file of the new name."""
        os.rename(self._path(name), self._path(to))

    def remove(self, name: str) -> None:
        """Unlink a file."""
        os.unlink(self._path(name))

    def sync_directory(self, name: str) -> None:
        """Return when the names in a directory are on the device."""
        _sync_directory(self._path(name))

    def open_directory(self, name: str) -> Directory:
        """Open a directory that will be synced often."""
        return _OsDirectory(self._path(name))

    def background_sync(self) -> BackgroundSync | None:
        """Return syncs that the kernel makes, on Linux where it allows them."""
        try:
            from .kernel_sync import KernelSync  # needs ctypes, which some builds of Python lack

            return KernelSync()
        except (ImportError, AttributeError, OSError, TypeError):
            return None

    def free_bytes(self) -> int:
        """Return the bytes that this user may still write."""
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def _is_space_kept(self, descriptor: int) -> bool:
        """Return whether the device of a file keeps allocated space; read the mount table once for each that does.

        Reading it releases the interpreter's lock several times, which costs 5 ms each beside a thread that computes,
        and a new data log waits for it.
        """
        device = os.fstat(descriptor).st_dev
        if device in self._keeping:
            return True
        if not keeps_space(descriptor):
            return False
        self._keeping.add(device)
        return True

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
        """Close the descriptor. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _sync_directory(path: str) -> None:
    directory = _OsDirectory(path)
    try:
        directory.sync()
    finally:
        directory.close()
