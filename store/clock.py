"""Time and randomness, injected so that tests own both."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds that only ever grow: for intervals."""

    def time_ms(self) -> int:
        """Milliseconds since 1970 (UTC): for timestamps, never for intervals."""

    def random_bytes(self, count: int) -> bytes: ...


class SystemClock:
    """The machine's own."""

    monotonic = staticmethod(time.monotonic)
    random_bytes = staticmethod(os.urandom)

    @staticmethod
    def time_ms() -> int:
        return time.time_ns() // 1_000_000
