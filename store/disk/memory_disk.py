"""MemoryDisk: a disk in RAM, for tests of hosts. It keeps everything until the process ends.

Written bytes are there, synced or not: `copy` is what a kill leaves; a power cut is not simulated. A file takes RAM for
the bytes written to it, but not for the zeros of preallocated space.
"""

from __future__ import annotations

import errno
import threading
from typing import Final

from .disk import is_inside

CAPACITY_BYTES: Final = 1 << 30
"""The default capacity of a disk. Only written bytes take RAM."""


class _Content:
    """The bytes of one file. If they are fewer than its size, zeros follow."""

    __slots__ = ("size", "written")

    def __init__(self, written: bytearray, size: int) -> None:
        self.written = written
        self.size = size


class MemoryFile:
    """A `File` of a MemoryDisk."""

    def __init__(
        self, disk: MemoryDisk, lock: threading.RLock, content: _Content, name: str, *, is_writable: bool
    ) -> None:
        """Open a file. lock: that of the disk."""
        self._disk = disk
        self._lock = lock
        self._content = content
        self._name = name
        self._is_writable = is_writable
        self._is_open = True
        self._position = 0

    def append(self, data: bytes) -> None:
        """Write all of data at the append position and advance it."""
        content = self._opened(to_write=True)
        with self._lock:
            self._resize(max(content.size, self._position + len(data)))
            if len(content.written) < self._position:
                content.written.extend(bytes(self._position - len(content.written)))
            content.written[self._position : self._position + len(data)] = data
        self._position += len(data)

    def seek(self, position: int) -> None:
        """Set the append position."""
        self._opened()
        self._position = position

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at offset; fewer only at the end of the file."""
        content = self._opened()
        with self._lock:
            end = max(min(offset + length, content.size), offset)
            return bytes(content.written[offset:end]).ljust(end - offset, b"\0")

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read into existing memory; return how many bytes there were."""
        data = self.read(offset, len(into))
        into[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        """Do nothing, because written bytes are as safe as they can be."""
        self._opened()

    def truncate(self, length: int) -> None:
        """Cut the file to length, or extend it with zeros."""
        content = self._opened(to_write=True)
        with self._lock:
            self._resize(length)
            del content.written[length:]

    def preallocate(self, length: int) -> None:
        """Extend the file to length with zeros, which count against the capacity and take no RAM."""
        content = self._opened(to_write=True)
        with self._lock:
            self._resize(max(content.size, length))

    def size(self) -> int:
        """Return the bytes in the file, including preallocated ones."""
        return self._opened().size

    def close(self) -> None:
        """Close the handle. A second call does nothing."""
        self._is_open = False

    def _resize(self, size: int) -> None:
        """Set the size. Requires: the lock."""
        if size - self._content.size > self._disk.free_bytes():
            raise _error(errno.ENOSPC, self._name)
        self._content.size = size

    def _opened(self, *, to_write: bool = False) -> _Content:
        if not self._is_open or (to_write and not self._is_writable):
            raise _error(errno.EBADF, self._name)
        return self._content


class _MemoryDirectory:
    """An open directory of a MemoryDisk."""

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MemoryDisk:
    """A `Disk` in RAM. capacity_bytes: if its files would have more bytes, a write fails as on a full disk."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        # May be changed at any time.
        self.capacity_bytes = capacity_bytes
        self._lock = threading.RLock()
        self._files: dict[str, _Content] = {}
        self._directories = {""}

    def open(self, name: str, *, create: bool = False) -> MemoryFile:
        """Open for reading and appending, or create a file that must not exist yet."""
        with self._lock:
            if not create:
                return MemoryFile(self, self._lock, self._file(name), name, is_writable=True)
            if name in self._files or name in self._directories:
                raise _error(errno.EEXIST, name)
            self._check_parent(name)
            content = self._files[name] = _Content(bytearray(), 0)
            return MemoryFile(self, self._lock, content, name, is_writable=True)

    def open_for_reading(self, name: str) -> MemoryFile:
        """Open an existing file for reading. Its append raises."""
        with self._lock:
            return MemoryFile(self, self._lock, self._file(name), name, is_writable=False)

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name."""
        return name in self._files or name in self._directories

    def list(self, directory: str) -> list[str]:
        """Return the base names in a directory, sorted; [] if it does not exist."""
        with self._lock:
            names = [*self._files, *(self._directories - {""})]
        return sorted(name.rpartition("/")[2] for name in names if name.rpartition("/")[0] == directory)

    def make_directory(self, name: str) -> None:
        """Create it and missing parents; an existing one is fine."""
        with self._lock:
            if name in self._files:
                raise _error(errno.EEXIST, name)
            while name:
                self._directories.add(name)
                name = name.rpartition("/")[0]

    def rename(self, name: str, to: str) -> None:
        """Rename a file, replacing any file of the new name."""
        with self._lock:
            content = self._file(name)
            self._check_parent(to)
            del self._files[name]
            self._files[to] = content

    def remove(self, name: str) -> None:
        """Remove a file's name; open handles can still read it."""
        with self._lock:
            self._file(name)
            del self._files[name]

    def sync_directory(self, name: str) -> None:
        """Do nothing, if there is such a directory."""
        if name not in self._directories:
            raise _error(errno.ENOENT, name)

    def open_directory(self, name: str) -> _MemoryDirectory:
        """Open an existing directory."""
        self.sync_directory(name)
        return _MemoryDirectory()

    def free_bytes(self) -> int:
        """Return the bytes that may still be written."""
        with self._lock:
            return max(self.capacity_bytes - sum(content.size for content in self._files.values()), 0)

    def copy(self) -> MemoryDisk:
        """Return another disk with the same files, as the next process finds them after a kill. O(bytes)."""
        with self._lock:
            disk = MemoryDisk(self.capacity_bytes)
            disk._directories = set(self._directories)
            disk._files = {name: _Content(bytearray(of.written), of.size) for name, of in self._files.items()}
        return disk

    def __repr__(self) -> str:
        return f"<MemoryDisk of {len(self._files)} files, {self.free_bytes()} bytes free>"

    def _file(self, name: str) -> _Content:
        assert is_inside(name), f"{name!r} leaves the store's directory"
        content = self._files.get(name)
        if content is None:
            raise _error(errno.EISDIR if name in self._directories else errno.ENOENT, name)
        return content

    def _check_parent(self, name: str) -> None:
        assert is_inside(name), f"{name!r} leaves the store's directory"
        if name.rpartition("/")[0] not in self._directories:
            raise _error(errno.ENOENT, name)


def _error(code: int, name: str) -> OSError:
    return OSError(code, errno.errorcode[code], name)
