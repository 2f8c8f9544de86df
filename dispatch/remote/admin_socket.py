"""AdminSocket: a UNIX socket in a store's directory, through which other processes of its owner send requests to it.

A request is one line of bytes, and so is its answer. Both are bounded, and so is the time that a client may take. One
connection is served at a time. A kill leaves the socket's name behind; the holder of the directory's lock replaces it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...store.disk.layout import after_fork_in_child
from ...store.errors import SettingsError

ADMIN_SOCKET: Final = "admin.sock"
REQUEST_BYTES_MAX: Final = 64 << 10
ANSWER_BYTES_MAX: Final = 1 << 20
CLIENT_SECONDS: Final = 5.0
"""A client that neither sends nor receives for so long is disconnected, because the next one waits for it."""
_PATH_BYTES_MAX: Final = 100
"""Longest name of a socket that the system accepts, less some bytes for its own use."""
_PIECE_BYTES: Final = 64 << 10
_BACKLOG: Final = 8
_PAUSE_SECONDS: Final = 0.1

_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid

_open: weakref.WeakSet[AdminSocket] = weakref.WeakSet()


class _Stopped(Exception):
    """The socket must no longer be served."""


class AdminSocket:
    """The socket of one store.

    Requires: the directory's lock is held. One thread calls `serve`; any thread may call `stop`.
    """

    def __init__(self, root: str) -> None:
        """Make the socket, replacing one that a kill left. OSError. SettingsError: the system lacks what it needs."""
        missing = lacking()
        if missing:
            raise SettingsError(
                f"admin=True needs {missing}, which this system lacks: it is for Linux alone; leave it out"
            )
        self._path = os.path.join(os.path.abspath(root), ADMIN_SOCKET)
        self._is_mine = True
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(self._listener.fileno(), 0o600)  # before it has a name, so that no other user finds it open
            _at(root, self._listener.bind)
            os.chmod(self._path, 0o600)
            self._listener.listen(_BACKLOG)
            self._listener.setblocking(False)
            self._wake, self._woken = socket.socketpair()
        except BaseException:
            self._listener.close()
            raise
        _open.add(self)

    def serve(self, answer: Callable[[bytes], bytes]) -> None:
        """Answer requests until `stop`. answer: takes a line and returns a line without its end; it must not raise."""
        try:
            while True:
                self._wait(self._listener, select.POLLIN, None)
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # the client has gone, or the process has no file descriptor left
                    self._wait(None, 0, _PAUSE_SECONDS)
                    continue
                with connection, suppress(OSError):
                    self._converse(connection, answer)
        except _Stopped:
            pass
        finally:
            self._close()

    def stop(self) -> None:
        """Remove the socket, and let `serve` return after the present answer. A second call does nothing."""
        if not self._is_mine:
            return  # the name may belong to the next owner by now
        self._is_mine = False
        with suppress(OSError):
            os.unlink(self._path)
        with suppress(OSError):
            self._wake.send(b"x")

    def discard(self) -> None:
        """Remove a socket that was never served."""
        self.stop()
        self._close()

    def disable_in_child(self) -> None:
        """Close the copies in a forked child. The name belongs to the parent."""
        self._is_mine = False
        self._close()

    def _close(self) -> None:
        for end in (self._listener, self._wake, self._woken):
            end.close()

    def _converse(self, connection: socket.socket, answer: Callable[[bytes], bytes]) -> None:
        """Answer the requests of one client until it has gone, takes too long, or sends an invalid one."""
        if _user_of(connection) not in (0, os.geteuid()):
            return
        connection.setblocking(False)
        received = bytearray()
        deadline = time.monotonic() + CLIENT_SECONDS  # for a whole request, because others wait for a slow one
        while self._wait(connection, select.POLLIN, deadline - time.monotonic()):
            piece = connection.recv(_PIECE_BYTES)
            if not piece:
                return
            received += piece
            *lines, rest = bytes(received).split(b"\n")
            if max(map(len, (*lines, rest))) > REQUEST_BYTES_MAX:
                return
            received = bytearray(rest)
            for line in lines:
                if not self._send(connection, answer(line) + b"\n"):
                    return
                deadline = time.monotonic() + CLIENT_SECONDS

    def _send(self, connection: socket.socket, content: bytes) -> bool:
        unsent = memoryview(content)
        deadline = time.monotonic() + CLIENT_SECONDS
        while unsent:
            if not self._wait(connection, select.POLLOUT, deadline - time.monotonic()):
                return False
            sent = connection.send(unsent)
            unsent = unsent[sent:]
        return True

    def _wait(self, end: socket.socket | None, event: int, seconds: float | None) -> bool:
        """Wait for an event; return whether it came in time. _Stopped: serving must end."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if end is not None:
            poll.register(end, event)
        ready = [descriptor for descriptor, _ in poll.poll(None if seconds is None else max(seconds, 0) * 1000)]
        if self._woken.fileno() in ready:
            raise _Stopped
        return bool(ready)


def ask(root: str, request: bytes, seconds: float) -> bytes | None:
    """Send a request to the process that has a store's directory open; return its answer.

    Return None if no process listens there, or if it ended meanwhile. Raises TimeoutError after that many seconds.
    """
    if lacking():
        return None  # no process can listen
    deadline = time.monotonic() + seconds
    answer = bytearray()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        try:
            _connect(root, connection, deadline)
            connection.sendall(request + b"\n")
            while not answer.endswith(b"\n"):
                connection.settimeout(max(deadline - time.monotonic(), 0.001))
                piece = connection.recv(_PIECE_BYTES)
                if not piece or len(answer) > ANSWER_BYTES_MAX:
                    return None
                answer += piece
        except (FileNotFoundError, ConnectionError):
            return None
    return bytes(answer)


def _connect(root: str, connection: socket.socket, deadline: float) -> None:
    """Connect, waiting while too many clients wait already. TimeoutError at the deadline."""
    while True:
        try:
            _at(root, connection.connect)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            time.sleep(_PAUSE_SECONDS)


def lacking() -> str:
    """Say what the system lacks to serve a socket: SO_PEERCRED tells who asks, O_PATH reaches a long name by /proc."""
    needed = ("SO_PEERCRED", hasattr(socket, "SO_PEERCRED")), ("O_PATH", hasattr(os, "O_PATH"))
    return " and ".join(name for name, is_there in needed if not is_there)


def _at(root: str, call: Callable[[str], object]) -> None:
    """Make a call with a name of the socket in a directory that is short enough for the system."""
    path = os.path.join(os.path.abspath(root), ADMIN_SOCKET)
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        call(path)
        return
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{directory}/{ADMIN_SOCKET}")
    finally:
        os.close(directory)


def _user_of(connection: socket.socket) -> int:
    """Return the user at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user


def _die_in_child() -> None:
    for each in list(_open):
        each.disable_in_child()


after_fork_in_child(_die_in_child)
