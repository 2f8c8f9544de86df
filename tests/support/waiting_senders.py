"""Threads that send and wait for room: a test goes on when each of them stands in its line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Lock
from typing import Final

from forebay.dispatch.admission.limits import DestinationLimits, LimitWaiter, Reservation
from forebay.testing import ManualClock

WAIT_SECONDS: Final = 30.0
"""Seconds after which a wait counts as endless."""


class TellingClock(ManualClock):
    """A clock that tells tests when a thread begins to wait, for room or for messages."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._waits = threading.Condition()

    def wait(self, waiter: Lock, seconds: float) -> bool:
        with self._waits:
            self._waits.notify_all()
        return super().wait(waiter, seconds)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for a condition that another thread makes true before it waits. AssertionError: it never does."""
        with self._waits:
            assert self._waits.wait_for(is_so, WAIT_SECONDS), "nobody waits"


class Woken:
    """Stands for a sender that waits for room, and counts how often it is woken."""

    def __init__(self, limits: DestinationLimits | None) -> None:
        """Stand in the line of these limits. Requires: the lock."""
        assert limits is not None
        self.times = 0
        limits.line_up(LimitWaiter((1,), Reservation(), self, 0.0, None, 10.0))

    def notify(self) -> None:
        self.times += 1


class Sender(threading.Thread):
    """A thread that makes one call and keeps its result or its error."""

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
    """Start a sender; return it once one more thread waits than before. waiting: returns how many wait."""
    before = waiting()
    sender = Sender(call)
    sender.start()
    clock.wait_until(lambda: waiting() > before)
    return sender
