"""Progress of work that reads a lot, reported to a callback."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int], object]
"""Called with the bytes done and the bytes in total; the first call has none done."""


def tell_nobody(done_bytes: int, total_bytes: int) -> None:
    """Ignore the progress."""
