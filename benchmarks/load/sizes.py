"""Sizes as users give them to the load test, in a file or on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from forebay.dispatch.config.sizes import parse_size
from forebay.store.errors import SettingsError

from .workload import SIZE_BYTES_MIN

BODY_SIZES_MAX: Final = 100


def size_bytes(name: str, value: object, *, minimum: int, maximum: int | None = None) -> int:
    """Return the bytes of a size, as `parse_size` does, but take digits in a text as a number of bytes."""
    # A longer number stays text, because it is no size, and int() would raise an error of its own.
    if isinstance(value, str) and value.isdecimal() and len(value) <= 18:
        value = int(value)
    return parse_size(name, value, minimum=minimum, maximum=maximum)


def body_sizes(values: Sequence[object], *, maximum: int) -> tuple[int, ...]:
    """Return the bytes of bodies that take turns, each at most `maximum`.

    SettingsError names the first invalid size.
    """
    if not 1 <= len(values) <= BODY_SIZES_MAX:
        raise SettingsError(f"size has {len(values):,} sizes: give 1 to {BODY_SIZES_MAX}")
    return tuple(size_bytes("size", value, minimum=SIZE_BYTES_MIN, maximum=maximum) for value in values)
