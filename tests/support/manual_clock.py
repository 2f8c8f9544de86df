"""ManualClock: time that passes when a test says so, and random bytes that come again with their seed."""

from __future__ import annotations

from random import Random


class ManualClock:
    """A `Clock` for tests. Both of its times advance together, by hand."""

    def __init__(self, seed: int = 0, *, start_ms: int = 1_700_000_000_000) -> None:
        self._random = Random(seed)
        self._start_ms = start_ms
        self._seconds = 0.0
        self.computed = (0.0, 0.0)
        """CPU seconds of whoever calls, and of all."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds

    def set_back(self, seconds: float) -> None:
        """Somebody sets the system's clock, backward or with a negative number forward. No time passes."""
        self._start_ms -= int(seconds * 1000)

    def monotonic(self) -> float:
        return self._seconds

    def time_ms(self) -> int:
        return self._start_ms + int(self._seconds * 1000)

    def computed_seconds(self) -> tuple[float, float]:
        return self.computed

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
