"""Readiness: tells whoever does not wait in a take that there is something to take, by a callback or a descriptor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...store.disk.ready_signal import ReadySignal


class Readiness:
    """Tells a consumer's host to take. Armed when a take found nothing, until it has told. The state lock guards it."""

    __slots__ = ("_on_ready", "_signal", "_is_asked", "is_armed")

    def __init__(self, on_ready: Callable[[], None] | None) -> None:
        """on_ready: called, never under a lock, when there is something; None: nobody asks to be called."""
        self._on_ready = on_ready if on_ready is not None else _tell_nobody
        self._is_asked = on_ready is not None
        self._signal: ReadySignal | None = None
        """Made when somebody asks for a file descriptor."""
        self.is_armed = False

    def arm(self) -> bool:
        """Note that a take found nothing; return whether anybody waits to be told of what comes next."""
        if self._signal is not None:
            self._signal.clear()
        self.is_armed = self._is_asked
        return self._is_asked

    def tell(self, due: list[Callable[[], None]]) -> None:
        """Add the callback to those that are due, once for each time that it was armed."""
        if self.is_armed:
            self.is_armed = False
            due.append(self._on_ready)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something, made by the first call. TooManyFiles."""
        signal = self._signal
        if signal is None:
            signal = self._signal = ReadySignal()
            self._on_ready = partial(_both, self._on_ready, signal.ring) if self._is_asked else signal.ring
            self._is_asked = True
            signal.ring()  # what is there already: the first take that finds nothing clears it
        return signal.fileno()

    def end(self) -> None:
        """Make the descriptor readable for ever: the next take says why."""
        if self._signal is not None:
            self._signal.end()

    def close(self) -> None:
        """Give the descriptor back. Twice is once."""
        if self._signal is not None:
            self._signal.close()


def _both(one: Callable[[], None], other: Callable[[], None]) -> None:
    """Call the signal also where the user's callback raises."""
    try:
        one()
    finally:
        other()


def _tell_nobody() -> None:
    """Stand in for a callback."""
