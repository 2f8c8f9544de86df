"""Readiness: tell a host that there are messages, by a callback or a descriptor, so that it need not wait in a take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .ready_signal import ReadySignal


class Readiness:
    """Tells the host of a consumer to take. The state lock guards it.

    It is armed from a take that found nothing until it has told the host.
    """

    __slots__ = ("_on_ready", "_signal", "_is_asked", "is_armed")

    def __init__(self, on_ready: Callable[[], None] | None) -> None:
        """Make it for one consumer.

        on_ready: called when there are messages, never under a lock; None: there is no callback.
        """
        self._on_ready = on_ready if on_ready is not None else _tell_nobody
        self._is_asked = on_ready is not None
        # Made when the host asks for a file descriptor.
        self._signal: ReadySignal | None = None
        self.is_armed = False

    def arm(self) -> bool:
        """Note that a take found nothing; return whether the host wants to be told of the next message."""
        if self._signal is not None:
            self._signal.clear()
        self.is_armed = self._is_asked
        return self._is_asked

    def tell(self, due: list[Callable[[], None]]) -> None:
        """Add the callback to the due callbacks, once for each time that it was armed."""
        if self.is_armed:
            self.is_armed = False
            due.append(self._on_ready)

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are messages; the first call makes it. TooManyFiles."""
        signal = self._signal
        if signal is None:
            signal = self._signal = ReadySignal()
            self._on_ready = partial(_both, self._on_ready, signal.ring) if self._is_asked else signal.ring
            self._is_asked = True
            signal.ring()  # there may be messages already; the first take that finds none clears it
        return signal.fileno()

    def stay_ready(self) -> None:
        """Make the descriptor readable for ever, because the next take raises why the consumer ended."""
        if self._signal is not None:
            self._signal.stay_ready()

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        if self._signal is not None:
            self._signal.close()


def _both(one: Callable[[], None], other: Callable[[], None]) -> None:
    """Call the signal even if the user's callback raises."""
    try:
        one()
    finally:
        other()


def _tell_nobody() -> None:
    """Do nothing, in place of a callback."""
