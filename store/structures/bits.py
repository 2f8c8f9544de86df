"""Sets of small numbers as the bits of an int; the lowest bit stands for the first number."""

from __future__ import annotations

from collections.abc import Collection, Iterator


def ones(low: int, high: int) -> int:
    """Return a mask with the bits low to high set. O(high / 64)."""
    return ((1 << (high - low + 1)) - 1) << low


def mask_of(places: Collection[int]) -> int:
    """Return the mask of distinct places, at least one. O(1) if they are consecutive, apart from checking that."""
    low, high = min(places), max(places)
    if high - low + 1 == len(places):
        return ones(low, high)
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


def first_run(mask: int, most: int) -> tuple[int, int]:
    """Return the first run of ones as (first, last), cut to `most` of them. Requires: the mask is not 0."""
    first = (mask & -mask).bit_length() - 1
    mask >>= first
    length = (~mask & (mask + 1)).bit_length() - 1
    return first, first + min(length, most) - 1


def runs_of_ones(mask: int, base: int = 0) -> Iterator[tuple[int, int]]:
    """Yield each run of ones as (first, last), in order, counted from base."""
    first = (mask & -mask).bit_length() - 1
    last = mask.bit_length() - 1
    if mask and mask.bit_count() == last - first + 1:
        return iter(((base + first, base + last),))
    return _several_runs(mask, base)


def _several_runs(mask: int, base: int) -> Iterator[tuple[int, int]]:
    while mask:
        first = (mask & -mask).bit_length() - 1
        mask >>= first
        length = (~mask & (mask + 1)).bit_length() - 1
        yield base + first, base + first + length - 1
        mask >>= length
        base += first + length
