"""KernelSync: syncs that the kernel of Linux makes while the thread that began them goes on.

KernelSync uses the system calls of Linux's own asynchronous I/O: io_submit with IOCB_CMD_FDSYNC, since Linux 4.18. An
eventfd tells of the end. No thread waits for the disk, so none has to be woken, and none takes the interpreter's lock
from the event loop: see docs/decisions/0031-syncs-by-the-kernel.md. The C library has no functions for these calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from .os_file import OsFile


class _CallNumbers(NamedTuple):
    """The numbers of the system calls on one kind of processor."""

    setup: int
    destroy: int
    get_events: int
    submit: int


_CALL_NUMBERS: Final = {
    "x86_64": _CallNumbers(206, 207, 208, 209),
    "aarch64": _CallNumbers(0, 1, 4, 2),
    "riscv64": _CallNumbers(0, 1, 4, 2),
}
"""From the kernel's tables of system calls; elsewhere no KernelSync is made."""

_FDSYNC: Final = 3
"""IOCB_CMD_FDSYNC, of linux/aio_abi.h."""
_RESULT_TO_EVENTFD: Final = 1
"""IOCB_FLAG_RESFD: the end of the request is counted in an eventfd."""


class _Request(ctypes.Structure):
    """`struct iocb` of linux/aio_abi.h, on a machine that stores the lowest byte first."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("flags_of_write", ctypes.c_uint32),
        ("command", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """`struct io_event` of linux/aio_abi.h."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result_2", ctypes.c_int64),
    )


class EventSignal:
    """A `SyncSignal`: an eventfd."""

    _descriptor = -1

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return a descriptor that can be read when a sync with this signal is made, until `clear`."""
        return self._descriptor

    def clear(self) -> None:
        """Let the descriptor wait for the next sync with this signal."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


class KernelSync:
    """A `BackgroundSync` of Linux: syncs of OsFiles, one at a time."""

    # It has a default, because __del__ frees what there is, even if `__init__` raised.
    _context: ctypes.c_ulong | None = None

    def __init__(self) -> None:
        """Make one. OSError: this system has none, or allows none."""
        numbers = _CALL_NUMBERS.get(platform.machine())
        if sys.platform != "linux" or numbers is None or sys.maxsize < 1 << 32 or sys.byteorder != "little":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._numbers = numbers
        # Calls that return at once keep the interpreter's lock. Only the one that waits releases it.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._waiting_call = ctypes.CDLL(None, use_errno=True).syscall
        context = ctypes.c_ulong()
        self._checked(self._call(ctypes.c_long(numbers.setup), ctypes.c_long(1), ctypes.byref(context)))
        self._context = context
        # The kernel copies the number of the request to its event, so the event tells whether that request has ended.
        self._request = _Request(command=_FDSYNC, flags=_RESULT_TO_EVENTFD)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._event = _Event()

    def new_signal(self) -> EventSignal:
        """Return a new signal for `begin`. OSError: the process has no descriptor left."""
        return EventSignal()

    def begin(self, file: object, signal: object) -> bool:
        """Begin a sync of all that was appended to a file. False: the kernel takes none; sync it otherwise.

        Requires: `is_made` has answered for the sync before it.
        """
        if not isinstance(file, OsFile) or not isinstance(signal, EventSignal):
            return False
        self._request.number += 1
        self._request.descriptor, self._request.eventfd = file.fileno(), signal.fileno()
        begun = self._call(ctypes.c_long(self._numbers.submit), self._context, ctypes.c_long(1), self._requests)
        return bool(begun == 1)

    def is_made(self) -> bool:
        """Return whether the sync is made, or has failed. A second call answers the same."""
        if self._event.number != self._request.number:
            self._get_event(self._call, 0)
        return bool(self._event.number == self._request.number)

    def wait(self) -> None:
        """Wait until the sync is made. OSError: it failed. A second call answers the same."""
        while not self.is_made():
            self._get_event(self._waiting_call, 1)
        result = self._event.result
        if result < 0:
            raise OSError(-result, os.strerror(-result))

    def _get_event(self, call: Callable[..., int], least_events: int) -> None:
        """Have the kernel write the event of a sync that has ended, after a wait for so many events."""
        number, event = ctypes.c_long(self._numbers.get_events), ctypes.byref(self._event)
        got = call(number, self._context, ctypes.c_long(least_events), ctypes.c_long(1), event, None)
        if got < 0 and ctypes.get_errno() != errno.EINTR:
            self._checked(got)

    def _checked(self, result: int) -> int:
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    def __del__(self) -> None:
        if self._context is not None:
            self._waiting_call(ctypes.c_long(self._numbers.destroy), self._context)
