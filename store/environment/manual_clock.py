"""ManualClock: time that passes only when a test says so, and random bytes that a seed repeats."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import Final

POLL_SECONDS: Final = 0.01
"""Real seconds after which a waiting thread checks whether the clock's time was advanced."""

JUMP_SECONDS_MIN: Final = 0.001
"""Messages are due to the millisecond, so a shorter jump might not reach them."""


class ManualClock:
    """A `Clock` for tests. Its time stands still until `advance`, which moves both of its times.

    jumps: a wait with a limit takes no real time. The clock jumps to the limit as if nothing had happened meanwhile, so
        `take(timeout=5)` of an empty queue returns at once and five seconds later. This is for tests with one thread,
        in which nothing could happen meanwhile. Without it, a wait goes on until another thread ends it or advances the
        time. A wait without a limit lasts for ever in both cases.
    """

    def __init__(self, seed: int = 0, *, start_ms: int = 1_700_000_000_000, jumps: bool = False) -> None:
        self._random = Random(seed)
        self._start_ms = start_ms
        self._seconds = 0.0
        self.jumps = jumps
        # CPU seconds of the calling thread, and of all threads.
        self.computed = (0.0, 0.0)

    def advance(self, seconds: float) -> None:
        """Let time pass. Nothing happens by itself: call `step` of the store for what is due."""
        self._seconds += seconds

    def set_back(self, seconds: float) -> None:
        """Set the system's clock back, or forward with a negative number. The monotonic time stays."""
        self._start_ms -= int(seconds * 1000)

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._seconds

    def time_ms(self) -> int:
        """Return milliseconds since 1970 as the system's clock would show them."""
        return self._start_ms + int(self._seconds * 1000)

    def computed_seconds(self) -> tuple[float, float]:
        """Return the value of `computed`."""
        return self.computed

    def random_bytes(self, count: int) -> bytes:
        """Return the next bytes of the seed."""
        return self._random.randbytes(count)

    def wait(self, waiter: Lock, seconds: float) -> bool:
        """Jump to the limit, or wait for another thread, as `jumps` says."""
        if seconds < 0:
            return waiter.acquire(True, seconds)
        if not self.jumps:
            return waiter.acquire(True, min(seconds, POLL_SECONDS))
        if waiter.acquire(False):
            return True
        self.advance(max(seconds, JUMP_SECONDS_MIN))
        return False
