"""ReadySignal: a file descriptor that is readable while there is something to take, for select and similar calls.

It is two ends of a socket, made when the descriptor is first asked for. A ring leaves one byte in the socket, however
often it is rung; a clear removes it.
"""

from __future__ import annotations

from errno import EMFILE, ENFILE
from typing import Final

from ...store.errors import TooManyFiles

MOST_BYTES: Final = 4096


class ReadySignal:
    """A signal, made by `Consumer.fileno`. It never waits, and may be rung after its close."""

    def __init__(self) -> None:
        """Make the socket. TooManyFiles: the process has no descriptor left."""
        try:
            from socket import socketpair  # imported with the first signal, not with the package

            self._reader, self._writer = socketpair()
        except OSError as error:
            if error.errno in (EMFILE, ENFILE):
                raise TooManyFiles from error
            raise
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to wait for. -1 if it is closed."""
        return self._reader.fileno()

    def ring(self) -> None:
        """Make the descriptor readable."""
        try:
            self._writer.send(b"\0")
        except OSError:
            pass  # it is full and so readable, or it was closed meanwhile

    def clear(self) -> None:
        """Make the descriptor unreadable until the next ring."""
        try:
            while len(self._reader.recv(MOST_BYTES)) == MOST_BYTES:
                pass
        except OSError:
            pass  # it was empty, or it was closed meanwhile

    def stay_ready(self) -> None:
        """Make the descriptor readable for ever. A second call does nothing."""
        self._writer.close()

    def close(self) -> None:
        """Close both descriptors. A second call does nothing."""
        self._writer.close()
        self._reader.close()
