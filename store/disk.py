"""The one seam to the disk: every byte the library reads or writes passes here.

Names are POSIX paths relative to the store's own directory, made only by
files.py; "" is that directory itself. `OsDisk` is the real one;
`simulated_disk.SimulatedDisk` loses, tears and fails on demand. SQLite alone
keeps its own files (see metadata_store.py), because it cannot write through a
seam of ours. What a crash leaves: of a file, all up to its last sync and any
part of what came after; of a directory, the same.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from mmap import ALLOCATIONGRANULARITY, mmap
from typing import Protocol

from .write_window import WINDOW_BYTES, keeps_space, open_window


class File(Protocol):
    """One open file. Errors are OSError, as the system gave them."""

    def append(self, data: bytes) -> None:
        """Write all of data at the append position and advance it; short writes are continued.

        On an error the append position is what it was before the call; the
        bytes behind it are undefined. Small appends (< 32 KiB) keep the
        interpreter lock: a system call that gives it up costs up to 5 ms
        beside one computing thread. Larger ones give it up.
        """

    def seek(self, position: int) -> None:
        """Set the append position, in bytes from the start of the file."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to length bytes at offset; fewer only at the end of the file. Safe from any thread."""

    def read_into(self, offset: int, into: memoryview) -> int:
        """The same into memory that is there already, from its first byte on: how many bytes there were."""

    def sync(self) -> None:
        """Return when all that was appended before the call, and the size, is on the device.

        After an error nothing is known of what was not yet synced, and a
        second sync that succeeds does not bring it back.
        """

    def truncate(self, length: int) -> None:
        """Cut the file to length, or extend it with zeros. The append position stays."""

    def preallocate(self, length: int) -> None:
        """Extend the file to length with zeros, taking the space now where the file system can. Never shrinks it."""

    def size(self) -> int:
        """Bytes in the file, preallocated ones included."""

    def close(self) -> None:
        """Give the handle up; what was not synced stays unsynced. No other thread may be inside a call."""


class Disk(Protocol):
    """A directory tree. Directory changes are durable after sync_directory of the parent."""

    def open(self, name: str, *, create: bool = False) -> File:
        """Open for reading and appending at 0. create: the name must not exist (0600, never through a link)."""

    def open_for_reading(self, name: str) -> File:
        """Open an existing file whose append raises."""

    def exists(self, name: str) -> bool:
        """Whether a file or directory has this name; raises where that cannot be known."""

    def list(self, directory: str) -> list[str]:
        """Base names in a directory, sorted; [] where it does not exist."""

    def make_directory(self, name: str) -> None:
        """Create it and missing parents with 0700; fine if it exists. Its entries are durable on return.

        Those found existing are made durable too: a process that died may
        have created them and not come to their sync.
        """

    def rename(self, name: str, to: str) -> None:
        """Give a file another name in one step, replacing a file of that name. Between directories, sync both."""

    def remove(self, name: str) -> None:
        """Take a file's name away; handles that are open still read it."""

    def sync_directory(self, name: str) -> None:
        """Return when every create, rename and remove in this directory is on the device."""

    def free_bytes(self) -> int:
        """Bytes that this user may still write."""


def is_inside(name: str) -> bool:
    """Whether a name can only mean something in the store's directory."""
    return not name.startswith("/") and ".." not in name.split("/")


_SMALL_BYTES = 32 * 1024

_CALLS_FIRST = 32

_CLOSED = 2**31 - 1
"""A descriptor that no file ever has, so that every call after close fails with EBADF."""

_OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Nothing waits for the other end of a pipe that somebody put in the place of a file: reading it fails."""


def _write_keeping_the_interpreter_lock() -> Callable[[int, bytes, int], int]:
    """The C library's write(2): what it returns is all it tells, so that each caller checks the length.

    No argtypes are declared: converting through them costs more than the call
    itself, and a descriptor and a length below 32 KiB fit the C int that
    ctypes makes of an int.
    """
    try:
        import ctypes

        write: Callable[[int, bytes, int], int] = ctypes.PyDLL(None).write
    except (ImportError, AttributeError, OSError, TypeError):
        return lambda descriptor, data, length: -1
    return write


_write = _write_keeping_the_interpreter_lock()

if sys.platform == "darwin":
    import fcntl

    def _flush(descriptor: int) -> None:
        """There, fsync leaves the bytes in the drive's own cache."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    _flush = getattr(os, "fdatasync", os.fsync)


class OsFile:
    """A `File` of the operating system: one raw descriptor, nothing buffered.

    Small appends to preallocated space are copies into a mapped window where
    that is safe (see write_window.py), else system calls.
    """

    __slots__ = (
        "_descriptor",
        "_position",
        "_written_to",
        "_window",
        "_window_begin",
        "_window_end",
        "_maps",
        "_mappable",
        "_calls_first",
    )

    def __init__(self, descriptor: int, maps: bool = False) -> None:
        """maps: what is preallocated may be mapped."""
        self._descriptor = descriptor
        self._position = 0
        self._written_to = 0
        """Where the descriptor itself stands: what went through the window has not moved it."""
        self._window: mmap | None = None
        self._window_begin, self._window_end = 0, -1
        self._maps = maps
        self._mappable = 0
        """Bytes of the file, from its start, that may be mapped."""
        self._calls_first = 0
        """So many small appends are system calls before the next window: beside large ones it would not be filled."""

    def append(self, data: bytes) -> None:
        """See `File.append`. About 0.3 µs for 1 KiB through the window, 1.3 without."""
        position = self._position
        end = position + len(data)
        if end <= self._window_end:
            begin = self._window_begin
            self._window[position - begin : end - begin] = data  # type: ignore[index]
            self._position = end
        elif end - position < _SMALL_BYTES and end <= self._mappable and self._move_window():
            self.append(data)
        else:
            self._append_by_call(data)

    def _move_window(self) -> bool:
        """Map the space that comes next; False: it can't be mapped, or not yet."""
        if self._calls_first:
            self._calls_first -= 1
            return False
        self._close_window()
        begin = self._position // ALLOCATIONGRANULARITY * ALLOCATIONGRANULARITY
        end = min(begin + WINDOW_BYTES, self._mappable)
        try:
            self._window = open_window(self._descriptor, begin, end)
        except (OSError, ValueError):
            self._mappable = 0
            return False
        self._window_begin, self._window_end = begin, end
        return True

    def _close_window(self) -> None:
        self._window_end = -1
        if self._window is not None:
            self._window.close()
            self._window = None

    def _append_by_call(self, data: bytes) -> None:
        length = len(data)
        try:
            if self._written_to != self._position:
                os.lseek(self._descriptor, self._position, os.SEEK_SET)
            self._written_to = -1
            if length >= _SMALL_BYTES:
                self._calls_first = _CALLS_FIRST
                self._write_in_pieces(data)
            elif _write(self._descriptor, data, length) != length:
                self._write_in_pieces(data)
            self._position += length
            self._written_to = self._position
        except BaseException:
            # Also for an interrupt that arrives between the write and the sum: the two positions must stay one.
            if self._descriptor != _CLOSED:
                os.lseek(self._descriptor, self._position, os.SEEK_SET)
            raise

    def _write_in_pieces(self, data: bytes) -> None:
        """The whole of data once more from the append position: what a short write left there is overwritten."""
        os.lseek(self._descriptor, self._position, os.SEEK_SET)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def seek(self, position: int) -> None:
        """See `File.seek`."""
        self._close_window()
        self._position = self._written_to = os.lseek(self._descriptor, position, os.SEEK_SET)

    def read(self, offset: int, length: int) -> bytes:
        """See `File.read`."""
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, offset: int, into: memoryview) -> int:
        """See `File.read_into`. Half of what reading and copying costs."""
        done = 0
        while done < len(into):
            more = os.preadv(self._descriptor, [into[done:]], offset + done)
            if not more:
                break
            done += more
        return done

    def sync(self) -> None:
        """See `File.sync`."""
        _flush(self._descriptor)

    def truncate(self, length: int) -> None:
        """See `File.truncate`."""
        self._close_window()  # what is mapped behind the end of a file must not be touched
        self._mappable = 0
        os.ftruncate(self._descriptor, length)

    def preallocate(self, length: int) -> None:
        """See `File.preallocate`."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, 0, length)
                self._mappable = length if self._maps and keeps_space(self._descriptor) else 0
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        if self.size() < length:
            os.ftruncate(self._descriptor, length)

    def size(self) -> int:
        """See `File.size`."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """See `File.close`. A second call does nothing."""
        self._close_window()
        self._mappable = 0
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def __del__(self) -> None:
        # A reader that left the journal's cache is closed when the last read through it has ended, not under it.
        self.close()


class OsDisk:
    """The `Disk` of the operating system under one root directory, which make_directory("") creates.

    The root itself and its parents may be links, for operators place stores
    that way; no file is ever opened through one.
    """

    def __init__(self, root: str, *, maps: bool = False) -> None:
        """maps: small appends to preallocated space are copies into mapped memory, where that is safe."""
        self.root = os.path.abspath(root)
        """Absolute, so that the process may change its working directory."""
        self._maps = maps

    def open(self, name: str, *, create: bool = False) -> OsFile:
        """See `Disk.open`."""
        creation = os.O_CREAT | os.O_EXCL if create else 0
        return OsFile(os.open(self._path(name), os.O_RDWR | creation | _OPEN_FLAGS, 0o600), self._maps)

    def open_for_reading(self, name: str) -> OsFile:
        """See `Disk.open_for_reading`."""
        return OsFile(os.open(self._path(name), os.O_RDONLY | _OPEN_FLAGS))

    def exists(self, name: str) -> bool:
        """See `Disk.exists`."""
        try:
            os.lstat(self._path(name))
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> list[str]:
        """See `Disk.list`."""
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, name: str) -> None:
        """See `Disk.make_directory`."""
        path = self._path(name)
        self._create_directory(path)
        while True:
            path = os.path.dirname(path)
            _sync_directory(path)
            if len(path) <= len(self.root):
                return

    def _create_directory(self, path: str) -> None:
        try:
            os.mkdir(path, 0o700)
        except FileNotFoundError:
            parent = os.path.dirname(path)
            self._create_directory(parent)
            _sync_directory(os.path.dirname(parent))
            self._create_directory(path)  # somebody else may be as quick
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rename(self, name: str, to: str) -> None:
        """See `Disk.rename`."""
        os.rename(self._path(name), self._path(to))

    def remove(self, name: str) -> None:
        """See `Disk.remove`."""
        os.unlink(self._path(name))

    def sync_directory(self, name: str) -> None:
        """See `Disk.sync_directory`."""
        _sync_directory(self._path(name))

    def free_bytes(self) -> int:
        """See `Disk.free_bytes`."""
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def _path(self, name: str) -> str:
        assert is_inside(name), f"{name!r} leaves the store's directory"
        return f"{self.root}/{name}" if name else self.root


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
