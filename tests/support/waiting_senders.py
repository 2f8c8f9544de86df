"""Threads that send and wait for room: a test goes on when each of them stands in its line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Lock
from typing import Final

from forebay.testing import ManualClock

WAIT_SECONDS: Final = 30.0
"""What takes longer never ends."""


class TellingClock(ManualClock):
    """Tells whoever wants to know that a thread begins to wait, for room or for messages."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._waits = threading.Condition()

    def wait(self, waiter: Lock, seconds: float) -> bool:
        with self._waits:
            self._waits.notify_all()
        return super().wait(waiter, seconds)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return when something is so that another thread does before it waits. AssertionError: it never is."""
        with self._waits:
            assert self._waits.wait_for(is_so, WAIT_SECONDS), "nobody waits"


class Sender(threading.Thread):
    """A thread that calls; what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: object = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error

    def end(self) -> None:
        self.join(WAIT_SECONDS)
        assert not self.is_alive()


def waiting_sender(clock: TellingClock, waiting: Callable[[], int], call: Callable[[], object]) -> Sender:
    """Start a sender, and return it when one more waits than before. waiting: says how many wait."""
    before = waiting()
    sender = Sender(call)
    sender.start()
    clock.wait_until(lambda: waiting() > before)
    return sender
