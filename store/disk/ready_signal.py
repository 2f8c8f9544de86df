"""ReadySignal: a file descriptor that is readable while something is there to be taken, for select and its kin.

Two ends of a socket, made when somebody first asks for the descriptor. A ring leaves one byte in it, however often it
is rung; a clear takes what is there. Nothing of it outlives the process.
"""

from __future__ import annotations

from errno import EMFILE, ENFILE

from ..errors import TooManyFiles

MOST_BYTES = 4096


class ReadySignal:
    """Made by `Consumer.fileno`. Never waits, and may be rung after its close."""

    def __init__(self) -> None:
        """TooManyFiles where the process has no descriptor left."""
        try:
            from socket import socketpair  # with the first that is asked for, not with the package

            self._reader, self._writer = socketpair()
        except OSError as error:
            if error.errno in (EMFILE, ENFILE):
                raise TooManyFiles from error
            raise
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor to wait for; -1: it is closed."""
        return self._reader.fileno()

    def ring(self) -> None:
        """Make the descriptor readable."""
        try:
            self._writer.send(b"\0")
        except OSError:
            pass  # it is full, so it is readable; or it was closed meanwhile

    def clear(self) -> None:
        """Make the descriptor wait for the next ring."""
        try:
            while len(self._reader.recv(MOST_BYTES)) == MOST_BYTES:
                pass
        except OSError:
            pass  # nothing was in it, or it was closed meanwhile

    def end(self) -> None:
        """Make the descriptor readable for ever. Twice is once."""
        self._writer.close()

    def close(self) -> None:
        """Give both descriptors back. Twice is once."""
        self._writer.close()
        self._reader.close()
