"""PackedRows: rows in the form that records have, in one buffer, found by number.

Something that exists but is not in use is only such a row, without an object, and a state record copies the rows. A row
begins with its number. Removed rows leave gaps, until there are so many that the other rows are moved together. The
rows are in RAM; recovery adds them again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Final

_NUMBER_BYTES: Final = 4
_WASTE_MIN: Final = 4096
"""Rows are only moved if removed ones take at least this many bytes."""


class PackedRows:
    """Rows by number. The lock of its owner guards it.

    A row is identified by its place in `data`, which is valid until `remove` or `remove_all` says that rows have moved.
    """

    __slots__ = ("data", "_end_of", "_numbers", "_places", "_wasted_bytes")

    def __init__(self, end_of: Callable[[bytearray, int], int]) -> None:
        """Make it without rows. end_of: returns where the row ends that begins at a place of `data`."""
        # The rows as records have them, one after the other, and the remains of removed ones.
        self.data = bytearray()
        self._end_of = end_of
        # The numbers of all rows, sorted.
        self._numbers = array("I")
        # Where each of these rows begins.
        self._places = array("I")
        self._wasted_bytes = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> array[int]:
        """The present numbers, sorted: a copy."""
        return self._numbers[:]

    @property
    def places(self) -> array[int]:
        """Places of the rows, in the order of their numbers. Callers do not change it."""
        return self._places

    @property
    def live_bytes(self) -> int:
        """Bytes of the existing rows."""
        return len(self.data) - self._wasted_bytes

    def find(self, number: int) -> int | None:
        """Return the place of a row, or None. O(log rows)."""
        at = self._at(number)
        return None if at is None else self._places[at]

    def number_at(self, place: int) -> int:
        """Return the number of the row at a place."""
        return int.from_bytes(self.data[place : place + _NUMBER_BYTES], "little")

    def size_at(self, place: int) -> int:
        """Return the size of the row at a place in bytes."""
        return self._end_of(self.data, place) - place

    def row_at(self, place: int) -> bytes:
        """Return the row at a place, in the form of a record."""
        end = self._end_of(self.data, place)
        return bytes(self.data[place:end])

    def joined(self) -> bytes:
        """Return all rows in the form of a record. It copies bytes and makes no objects."""
        return b"".join(map(self.row_at, self._places)) if self._wasted_bytes else bytes(self.data)

    def add(self, number: int, row: bytes) -> int:
        """Add a row and return its place. Requires: its number is not in use. O(rows) copied bytes."""
        place = len(self.data)
        self.data += row
        at = bisect_left(self._numbers, number)
        self._numbers.insert(at, number)
        self._places.insert(at, place)
        return place

    def remove(self, number: int) -> bool:
        """Remove an existing row; return whether the others have moved. O(rows) copied bytes."""
        at = self._at(number)
        assert at is not None
        self._wasted_bytes += self.size_at(self._places[at])
        del self._numbers[at], self._places[at]
        return self._close_gaps()

    def remove_all(self, places: Collection[int]) -> bool:
        """Remove the rows at these places; return whether the others have moved. O(rows)."""
        self._wasted_bytes += sum(map(self.size_at, places))
        left = [at for at, place in enumerate(self._places) if place not in places]
        self._numbers = array("I", [self._numbers[at] for at in left])
        self._places = array("I", [self._places[at] for at in left])
        return self._close_gaps()

    def clear(self) -> None:
        """Remove all rows."""
        self.data.clear()
        del self._numbers[:], self._places[:]
        self._wasted_bytes = 0

    def _close_gaps(self) -> bool:
        """Move the rows together in the order of their numbers, if the gaps are large enough; return whether it did."""
        if self._wasted_bytes <= max(len(self.data) // 2, _WASTE_MIN):
            return False
        data, places = bytearray(), array("I")
        for place in self._places:
            places.append(len(data))
            data += self.row_at(place)
        self.data, self._places, self._wasted_bytes = data, places, 0
        return True

    def _at(self, number: int) -> int | None:
        at = bisect_left(self._numbers, number)
        return at if at < len(self._numbers) and self._numbers[at] == number else None

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert list(map(self.number_at, self._places)) == list(self._numbers)
        assert sum(map(self.size_at, self._places)) == self.live_bytes
