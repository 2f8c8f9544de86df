"""Reports the progress of long reads to a callback."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int], object]
"""Called with the bytes done and the bytes in total. The first call has 0 bytes done."""


def tell_nobody(done_bytes: int, total_bytes: int) -> None:
    """Ignore the progress."""
