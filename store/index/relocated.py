"""RelocatedPlaces: where the copies are of messages of one block that were moved out of their data log.

It keeps runs of consecutive messages in columns of its own, 16 bytes a run; the columns of the block stay unchanged. A
block has no RelocatedPlaces until its first message is relocated.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

_COUNT: Final = struct.Struct("<H")
_CODES: Final = "HHHHII"
_STRETCH_BYTES: Final = 16


class CopiedRun(NamedTuple):
    """The messages from index `first` to `last` of a block, in one record that has copies of `messages` messages.

    `begin` is the index of the first message of the record.
    """

    first: int
    last: int
    begin: int
    messages: int
    data_log: int
    offset: int


class RelocatedPlaces:
    """The copied runs of a block, sorted and disjoint. Not thread-safe: the state lock guards it."""

    __slots__ = ("_columns",)

    def __init__(self) -> None:
        self._columns = tuple(array(code) for code in _CODES)

    def __iter__(self) -> Iterator[CopiedRun]:
        return map(CopiedRun, *self._columns)

    def put(self, new: CopiedRun) -> None:
        """Note that these messages are at a new place, wherever they were before. O(runs)."""
        firsts, lasts = self._columns[:2]
        low = bisect_left(lasts, new.first)
        high = bisect_right(firsts, new.last)
        rows = [new]
        if low < high:
            left, right = self._stretch(low), self._stretch(high - 1)
            if left.first < new.first:
                rows.insert(0, left._replace(last=new.first - 1))
            if right.last > new.last:
                rows.append(right._replace(first=new.last + 1))
        for column, code, values in zip(self._columns, _CODES, zip(*rows, strict=True), strict=True):
            column[low:high] = array(code, values)

    def _stretch(self, at: int) -> CopiedRun:
        return CopiedRun(*[column[at] for column in self._columns])

    def within(self, first: int, last: int) -> Iterator[CopiedRun]:
        """Yield the runs that overlap first..last, cut to it."""
        firsts, lasts = self._columns[:2]
        for at in range(bisect_left(lasts, first), bisect_right(firsts, last)):
            stretch = self._stretch(at)
            yield stretch._replace(first=max(first, stretch.first), last=min(last, stretch.last))

    @property
    def mask(self) -> int:
        """One bit for each relocated message."""
        bits = 0
        for stretch in self:
            bits |= ((1 << (stretch.last - stretch.first + 1)) - 1) << stretch.first
        return bits

    def pack(self) -> bytes:
        return b"".join((_COUNT.pack(len(self._columns[0])), *(column.tobytes() for column in self._columns)))

    @classmethod
    def unpack(cls, data: bytes) -> RelocatedPlaces | None:
        """Return the runs in these bytes. None: `pack` can't have made them."""
        if len(data) < _COUNT.size:
            return None
        (count,) = _COUNT.unpack_from(data)
        if len(data) != _COUNT.size + _STRETCH_BYTES * count:
            return None
        relocated = cls()
        at = _COUNT.size
        for column in relocated._columns:
            size = count * column.itemsize
            column.frombytes(data[at : at + size])
            at += size
        return relocated

    def is_sound(self, messages: int) -> bool:
        """Return whether these can be runs of a block with that many messages."""
        behind = 0
        for stretch in self:
            is_inside = stretch.begin <= stretch.first <= stretch.last < stretch.begin + stretch.messages <= messages
            if stretch.first < behind or not is_inside:
                return False
            behind = stretch.last + 1
        return True
