"""Checksums of many short byte ranges of the same length at once.

A CRC is linear: the difference of two checksums follows from the difference of the bytes alone, byte by byte.
Consecutive heads differ in few bytes, so only those are looked up.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...store.format.record import crc32

_ROWS_AT_ONCE: Final = 32


def checksums(stretches: NDArray[np.uint8], begin: int, seed: int) -> NDArray[np.uint32]:
    """Return crc32 of the bytes from `begin` on in each row, started with the seed. Requires: at least one row.

    Takes a tenth to a half of the time of a crc32 call for each row.
    """
    first = stretches[0, begin:]
    found = np.full(len(stretches), crc32(first.tobytes(), seed), np.uint32)
    differing = _reduced(np.bitwise_or, stretches) ^ _reduced(np.bitwise_and, stretches)
    for table, at in zip(_tables(len(first)), range(begin, stretches.shape[1]), strict=True):
        if differing[at]:
            found ^= (table ^ table[stretches[0, at]]).take(stretches[:, at])
    return found


def _reduced(operation: np.ufunc, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Reduce all rows to one, many at a time: for a single row the call costs as much as the work."""
    left = len(rows) % _ROWS_AT_ONCE
    reduced = rows[:left]
    if left < len(rows):
        many = rows[left:].reshape(-1, _ROWS_AT_ONCE * rows.shape[1])
        reduced = np.concatenate((reduced, operation.reduce(many, axis=0).reshape(_ROWS_AT_ONCE, -1)))
    found: NDArray[np.uint8] = operation.reduce(reduced, axis=0)
    return found


@cache
def _tables(length: int) -> NDArray[np.uint32]:
    """Return, for each place and byte value, the unseeded checksum of that many bytes which are 0 elsewhere."""
    none = crc32(bytes(length))
    tables = np.zeros((length, 256), np.uint32)
    for at in range(length):
        for bit in range(8):
            one = bytearray(length)
            one[at] = 1 << bit
            tables[at, 1 << bit : 2 << bit] = tables[at, : 1 << bit] ^ np.uint32(crc32(bytes(one)) ^ none)
    return tables
