"""ReadySignal: a file descriptor that is readable while messages can be taken, for select and similar calls.

It is a pair of sockets, made when somebody first asks for the descriptor. A ring leaves one byte in it, however often
it is rung. A clear removes the byte.
"""

from __future__ import annotations

from errno import EMFILE, ENFILE

from ..errors import TooManyFiles

MOST_BYTES = 4096


class ReadySignal:
    """The signal behind `Consumer.fileno`. It never blocks, and may be rung after its close."""

    def __init__(self) -> None:
        """Make the pair of sockets. Raises TooManyFiles if the process has no file descriptor left."""
        try:
            from socket import socketpair  # imported at first use, to keep `import forebay` fast

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

    def end(self) -> None:
        """Make the descriptor readable for ever. A second call does nothing."""
        self._writer.close()

    def close(self) -> None:
        """Close both descriptors. A second call does nothing."""
        self._writer.close()
        self._reader.close()
