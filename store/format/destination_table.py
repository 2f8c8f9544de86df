"""DestinationTable: which queues and topics exist, in columns, found by number and by name.

A destination that nobody uses is nothing but a row here: 18 bytes beside its
name, and no object. Rows are kept in the form that records have, so a state
record copies them. Nothing here survives a crash: recovery fills the table
from the journal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

from .state import DESTINATION_HEAD, QUEUE, TOPIC, Destination, PackedDestinations, encode_destination, kind_of

_WASTE_MIN: Final = 4096
"""Bytes of rows that are gone below which nothing is moved."""


class DestinationTable(MutableMapping[int, Destination]):
    """Number -> destination, in the order of the numbers. Thread-safe as far as its owner's lock makes it."""

    __slots__ = ("_rows", "_numbers", "_places", "_by_name", "_wasted_bytes")

    def __init__(self, destinations: Iterable[Destination] = ()) -> None:
        self._rows = bytearray()
        """Each as a record has it, one behind the other, and what is left of those that are gone."""
        self._numbers = array("I")
        """Of all destinations, in order."""
        self._places = array("I")
        """Where the row of each of these begins."""
        self._by_name = (array("I"), array("I"))
        """Where the rows of queues, and of topics, begin: in the order of the names."""
        self._wasted_bytes = 0
        for destination in destinations:
            self[destination.number] = destination

    # ------------------------------------------------------------------ by number

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers there are now, also while destinations come and go."""
        return iter(self._numbers[:])

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self._at(number) is not None

    def __getitem__(self, number: int) -> Destination:
        """O(log destinations). KeyError."""
        at = self._at(number)
        if at is None:
            raise KeyError(number)
        return self._destination(self._places[at])

    def __setitem__(self, number: int, destination: Destination) -> None:
        """Add a destination, or replace what is known of one. O(destinations) copied bytes, no object."""
        assert number == destination.number
        if self._at(number) is not None:
            del self[number]
        place = len(self._rows)
        self._rows += encode_destination(destination)
        at = bisect_left(self._numbers, number)
        self._numbers.insert(at, number)
        self._places.insert(at, place)
        by_name = self._by_name[destination.kind]
        by_name.insert(bisect_left(by_name, self._name(place), key=self._name), place)

    def __delitem__(self, number: int) -> None:
        """Forget a destination. KeyError."""
        at = self._at(number)
        if at is None:
            raise KeyError(number)
        place = self._places[at]
        by_name = self._by_name[kind_of(self._rows[place + 4])]
        del by_name[bisect_left(by_name, self._name(place), key=self._name)]
        del self._numbers[at], self._places[at]
        self._wasted_bytes += self._end(place) - place
        if self._wasted_bytes > max(len(self._rows) // 2, _WASTE_MIN):
            self._compact()

    def clear(self) -> None:
        """Forget all of them."""
        self._rows.clear()
        for column in (self._numbers, self._places, *self._by_name):
            del column[:]
        self._wasted_bytes = 0

    # ------------------------------------------------------------------ by name

    def number_of(self, kind: int, name: str) -> int | None:
        """Return the number of a queue or topic, or None. O(log destinations)."""
        by_name, wanted = self._by_name[kind], name.encode(errors="surrogatepass")
        at = bisect_left(by_name, wanted, key=self._name)
        if at < len(by_name) and self._name(by_name[at]) == wanted:
            return self._number(by_name[at])
        return None

    def names(self, kind: int) -> list[str]:
        """Return the names of all queues, or topics, in order."""
        return [self._name(place).decode() for place in self._by_name[kind]]

    def numbers(self, kind: int) -> list[int]:
        """Return the numbers of all queues, or topics, in the order of their names."""
        return list(map(self._number, self._by_name[kind]))

    def count(self, kind: int) -> int:
        """Return how many queues, or topics, there are."""
        return len(self._by_name[kind])

    # ------------------------------------------------------------------ all of them

    @property
    def name_bytes(self) -> int:
        """Bytes of all names together."""
        return len(self._rows) - self._wasted_bytes - DESTINATION_HEAD.size * len(self)

    @property
    def held_bytes(self) -> int:
        """Bytes of all rows, those included that are gone and not moved over yet."""
        return len(self._rows)

    def packed(self) -> PackedDestinations:
        """Return all of them as a record has them. It copies bytes and makes no destination."""
        if not self._wasted_bytes:
            return PackedDestinations(len(self), bytes(self._rows))
        return PackedDestinations(len(self), b"".join(map(self._row, self._places)))

    def _compact(self) -> None:
        """Move the rows together, in the order of the numbers. O(destinations log destinations)."""
        rows, begins = bytearray(), array("I")
        for place in self._places:
            begins.append(len(rows))
            rows += self._row(place)
        self._rows, self._places, self._wasted_bytes = rows, begins, 0
        for kind, by_name in enumerate(self._by_name):
            places = (place for place in begins if kind_of(rows[place + 4]) == kind)
            by_name[:] = array("I", sorted(places, key=self._name))

    # ------------------------------------------------------------------ one row

    def _at(self, number: int) -> int | None:
        at = bisect_left(self._numbers, number)
        return at if at < len(self._numbers) and self._numbers[at] == number else None

    def _number(self, place: int) -> int:
        return int.from_bytes(self._rows[place : place + 4], "little")

    def _end(self, place: int) -> int:
        return place + DESTINATION_HEAD.size + self._rows[place + 5]

    def _row(self, place: int) -> bytes:
        end = self._end(place)
        return bytes(self._rows[place:end])

    def _name(self, place: int) -> bytes:
        begin, end = place + DESTINATION_HEAD.size, self._end(place)
        return bytes(self._rows[begin:end])

    def _destination(self, place: int) -> Destination:
        (found,) = PackedDestinations(1, self._row(place))
        return found

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert sorted(self._places) == sorted([*self._by_name[QUEUE], *self._by_name[TOPIC]])
        assert sum(len(self._name(place)) for place in self._places) == self.name_bytes
        for by_name in self._by_name:
            names = list(map(self._name, by_name))
            assert names == sorted(names)
        for number in self:
            assert self._destination(self._places[bisect_left(self._numbers, number)]).number == number
