"""OsFile: an open file of the operating system, which `OsDisk` opens.

It is separate from disk/disk.py because every message passes through `append`: this module is compiled (see setup.py).
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from collections.abc import Callable
from typing import Final

from .write_window import FIRST_WINDOW_BYTES, WINDOW_BYTES, map_first_window, move_window

CALLS_FIRST: Final = 32
FILL_BYTES: Final = 512 * 1024
"""Bytes that are filled with zeros at a time. It takes 0.2 to 0.5 ms, and makes the next sync longer once."""

_SMALL_BYTES: Final = 32 * 1024
FILLED_APPEND_BYTES: Final = 64 * 1024
"""Appends to filled space are small below this: the bytes of a group of durable sends are one append."""
_PAGE_OF_ZEROS: Final = bytes(4096)
_PIECE_OF_ZEROS: Final = bytes(16 * 1024)
"""The system keeps the pages of one write together, and writes all of them again when one of them changes. So zeros for
single messages are written by pages. Zeros for groups are written in larger pieces: filling takes half the time, and a
sync of a group a tenth less.
"""
_CLOSED: Final = 2**31 - 1
"""A descriptor that no file ever has. Every call after close fails with EBADF."""


def _write_keeping_the_interpreter_lock() -> Callable[[int, bytes, int], int]:
    """Return write(2) of the C library. Its result is all the caller gets, so each caller checks the length.

    No argtypes are declared, because converting through them costs more than the call. A descriptor and a length below
    32 KiB fit the C int that ctypes makes of an int.
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
        """Sync with F_FULLFSYNC on macOS, where fsync leaves the bytes in the drive's own cache."""
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)

else:
    _flush = getattr(os, "fdatasync", os.fsync)


class OsFile:
    """A `File` of the operating system: one raw descriptor without a buffer.

    If it is safe, small appends to preallocated space are copies into a mapped window (see disk/write_window.py).
    Otherwise they are system calls. In a file that is synced all the time they are system calls into space that was
    filled with zeros.
    """

    # Fields with defaults, not slots: __del__ closes a handle even if an interrupt ended `__init__` half way.
    _descriptor: int = _CLOSED
    _map: mmap.mmap | None = None
    """The mapping, as far as it may ever reach. Only its window is in memory."""
    _window_begin: int = 0
    _window_end: int = -1
    _mappable: int = 0
    """Bytes from the start of the file that may be mapped."""
    _fillable: int = 0
    """Bytes from the file's start that are filled with zeros ahead of small appends."""
    _filled: int = 0
    """Bytes from the file's start that were written, even if with zeros."""
    _largest_bytes: int = 0
    """The largest append to the space that was filled last."""
    _calls_first: int = 0
    """Small appends for which nothing is prepared. Between large appends a window, or zeros, would not be used."""

    def __init__(
        self, path: str, flags: int, keeps_space: Callable[[int], bool] | None = None, *, fills: bool = False
    ) -> None:
        """Open the file at path, with flags of os.open.

        keeps_space: tells for a descriptor whether its preallocated space may be mapped, or is worth filling; None:
        neither. fills: fill the space instead of mapping it.
        """
        self._fills = fills
        # Each append reads these; a field of the object itself is found sooner than the default of its class.
        self._window_end = -1
        self._filled = 0
        self._position = 0
        # Position of the descriptor itself, which appends through the window do not move.
        self._written_to = 0
        self._keeps_space = keeps_space
        self._descriptor = os.open(path, flags, 0o600)

    @property
    def is_filled_ahead(self) -> bool:
        """Whether the preallocated space is filled ahead of small appends."""
        return self._fillable > 0

    @property
    def filled_bytes(self) -> int:
        """Bytes from the file's start that were written, even if with zeros: an append there always finds room."""
        return self._filled

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def append(self, data: bytes) -> None:
        """Write all of data at the append position and advance it.

        1 KiB takes about 0.3 µs through the window, 1.3 without. The second branch is the part of `_append_by_call`
        that each durable message passes. See `File.append` for the state after an error.
        """
        position = self._position
        end = position + len(data)
        if end <= self._window_end:
            self._map[position:end] = data  # type: ignore[index]
            self._position = end
        elif (
            self._fills
            and end <= self._filled
            and position == self._written_to
            and end - position < FILLED_APPEND_BYTES
        ):
            self._written_to = -1  # whatever breaks in here, the next append seeks
            if end - position > self._largest_bytes:
                self._largest_bytes = end - position
            if _write(self._descriptor, data, end - position) != end - position:
                self._write_again(data)
            self._position = self._written_to = end
        elif end - position < _SMALL_BYTES and end <= self._mappable and self._move_window():
            self.append(data)
        else:
            self._append_by_call(data)

    def _move_window(self) -> bool:
        """Map the next space into memory. False: it can't be mapped, or not yet."""
        if self._calls_first:
            self._calls_first -= 1
            return False
        begin = self._position // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        size = FIRST_WINDOW_BYTES if self._map is None else WINDOW_BYTES
        end = min(begin + size, self._mappable)
        try:
            if self._map is None:
                self._map = map_first_window(self._descriptor, self._mappable, begin, end)
            else:
                move_window(self._map, self._window_begin, begin, end)
        except (OSError, ValueError):
            self._unmap()
            return False
        self._window_begin, self._window_end = begin, end
        return True

    def _unmap(self) -> None:
        """Remove the mapping, because mapped memory behind the end of a file must not be touched."""
        self._window_begin, self._window_end = 0, -1
        self._mappable = 0
        if self._map is not None:
            self._map.close()
            self._map = None

    def _fill(self) -> None:
        """Write zeros over the next part of the file.

        A sync of bytes that replace zeros makes only these bytes durable. The first write to space that was only
        preallocated also changes the file system's own records, and each sync waits for those.
        """
        if self._calls_first:
            self._calls_first -= 1
            return
        zeros = _PAGE_OF_ZEROS if self._largest_bytes < len(_PIECE_OF_ZEROS) else _PIECE_OF_ZEROS
        page_bytes, piece_bytes = len(_PAGE_OF_ZEROS), len(zeros)
        begin = -(-self._filled // page_bytes) * page_bytes
        self._written_to = -1
        os.lseek(self._descriptor, begin, os.SEEK_SET)
        for end in range(begin + piece_bytes, min(begin + FILL_BYTES, self._fillable) + 1, piece_bytes):
            if _write(self._descriptor, zeros, piece_bytes) != piece_bytes:
                self._fillable = 0  # the append itself meets the same error
                return
            self._filled = end

    def _append_by_call(self, data: bytes) -> None:
        length = len(data)
        small_bytes = FILLED_APPEND_BYTES if self._fills else _SMALL_BYTES
        if self._filled < self._position + length <= self._fillable and length < small_bytes:
            self._fill()
            self._largest_bytes = length
        try:
            if self._written_to != self._position:
                os.lseek(self._descriptor, self._position, os.SEEK_SET)
            self._written_to = -1
            if length >= small_bytes:
                self._calls_first = CALLS_FIRST
                self._write_in_pieces(data)
            elif _write(self._descriptor, data, length) != length:
                self._write_again(data)
            self._position += length
            self._written_to = self._position
            if self._position > self._filled:
                self._filled = self._position
        except BaseException:
            # This is also for an interrupt between the write and the sum: the two positions must stay the same.
            if self._descriptor != _CLOSED:
                os.lseek(self._descriptor, self._position, os.SEEK_SET)
            raise

    def _write_again(self, data: bytes) -> None:
        """Write all of data again from the append position, over the remains of a short write."""
        os.lseek(self._descriptor, self._position, os.SEEK_SET)
        self._write_in_pieces(data)

    def _write_in_pieces(self, data: bytes) -> None:
        """Write all of data from the descriptor's own position, which must be the append position."""
        rest = memoryview(data)
        while rest:
            # In a statement of its own, because mypyc may compute a slice's bound twice.
            written = os.write(self._descriptor, rest)
            rest = rest[written:]

    def seek(self, position: int) -> None:
        """Set the append position, in bytes from the start of the file."""
        self._window_end = -1  # the window may be elsewhere
        self._position = self._written_to = os.lseek(self._descriptor, position, os.SEEK_SET)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes at offset; fewer only at the end of the file. Safe from any thread."""
        data = os.pread(self._descriptor, length, offset)
        while len(data) < length:
            more = os.pread(self._descriptor, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read into existing memory, which costs half of reading and copying."""
        done = 0
        while done < len(into):
            more = os.preadv(self._descriptor, [into[done:]], offset + done)
            if not more:
                break
            done += more
        return done

    def sync(self) -> None:
        """Return when everything that was appended before the call, and the size, is on the device."""
        _flush(self._descriptor)

    def truncate(self, length: int) -> None:
        """Cut the file to `length`, or extend it with zeros. The append position stays."""
        self._unmap()
        self._fillable = 0
        self._filled = min(self._filled, length)
        os.ftruncate(self._descriptor, length)

    def preallocate(self, length: int) -> None:
        """Extend the file to `length` with zeros, allocating space now if the file system can."""
        self._unmap()  # the mapping would be too short
        if self._fills:
            self._filled = max(self._filled, self.size())
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, 0, length)
                keeps_space = self._keeps_space is not None and self._keeps_space(self._descriptor)
                self._mappable = length if keeps_space and not self._fills else 0
                self._fillable = length if keeps_space and self._fills else 0
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        if self.size() < length:
            os.ftruncate(self._descriptor, length)

    def size(self) -> int:
        """Return the bytes in the file, including preallocated ones."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the handle. A second call does nothing."""
        self._unmap()
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)

    def __del__(self) -> None:
        # A reader that left the journal's cache is closed when the last read through it has ended, and not during it.
        self.close()
