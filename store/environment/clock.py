"""Clock: time and randomness, passed in so that tests control both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import ceil
from threading import Lock
from typing import Final, Protocol

_YEAR_10000_MS: Final = 253_402_300_800_000


class Clock(Protocol):
    """Time and randomness of an open store. Any thread calls its methods, also under the store's locks."""

    def monotonic(self) -> float:
        """Return seconds that only grow, for intervals."""

    def time_ms(self) -> int:
        """Return milliseconds since 1970 (UTC), for timestamps and never for intervals."""

    def computed_seconds(self) -> tuple[float, float]:
        """Return the CPU time of the calling thread, and of all threads of the process."""

    def random_bytes(self, count: int) -> bytes:
        """Return so many unpredictable bytes, for ids and for the mark that tells copies of a store apart."""

    def wait(self, waiter: Lock, seconds: float) -> bool:
        """Acquire the lock that ends a wait of this thread.

        False: so many seconds of this clock have passed. -1: no limit.

        It may return False earlier, so the caller checks `monotonic` and waits again.
        """


class SteadyClock:
    """Milliseconds since 1970 that never go back and never jump. Messages become due and expire by this clock.

    It begins with the system's time and then counts intervals, so setting the system's clock has no effect. Time during
    which the machine sleeps may be missing.
    """

    def __init__(self, time_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._base_ms = time_ms()

    def now_ms(self) -> int:
        return self._base_ms + int((self._monotonic() - self._began) * 1000)

    def after_ms(self, seconds: float) -> int:
        """Return the earliest time that this clock can report once that many seconds have passed."""
        return self._base_ms + ceil((self._monotonic() - self._began + seconds) * 1000 - 1e-4)

    def advance_to(self, time_ms: int) -> None:
        """Never report a time before this one: an earlier process saw it, and the system's clock was set back since
        then.
        """
        self._base_ms += max(time_ms - self.now_ms(), 0)


class SystemClock:
    """The clock of the machine."""

    monotonic = staticmethod(time.monotonic)
    random_bytes = staticmethod(os.urandom)

    @staticmethod
    def time_ms() -> int:
        return time.time_ns() // 1_000_000

    @staticmethod
    def computed_seconds() -> tuple[float, float]:
        """Return the CPU time of the calling thread, and of all threads of the process. It makes two system calls."""
        return time.thread_time(), time.process_time()

    @staticmethod
    def wait(waiter: Lock, seconds: float) -> bool:
        """Acquire the lock that ends a wait of this thread. False: it did not come in time. -1: no limit."""
        return waiter.acquire(True, seconds)


def utc_text(time_ms: int) -> str | None:
    """Return milliseconds since 1970 as "2026-11-25T15:20:00Z". None: the time is not before the year 10,000."""
    if not 0 <= time_ms < _YEAR_10000_MS:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms // 1000))
