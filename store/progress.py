"""How far work is that reads much: told to whoever wants to know."""

from __future__ import annotations

from collections.abc import Callable

OnProgress = Callable[[int, int], object]
"""Called with the bytes that are done and those that there are, first with none done."""


def tell_nobody(done_bytes: int, total_bytes: int) -> None:
    """Do nothing: the caller wants no progress."""
