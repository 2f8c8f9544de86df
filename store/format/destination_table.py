"""DestinationTable: the existing queues and topics as packed rows, found by number and by name.

A destination that nobody uses is only a row here: 18 bytes in addition to its name, and no object. The table is in RAM;
recovery fills it from the journal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, MutableMapping

from .packed_rows import PackedRows
from .state_record import (
    DESTINATION_HEAD,
    QUEUE,
    TOPIC,
    Destination,
    EncodedRows,
    decode_destination,
    encode_destination,
    encoded_destinations,
    kind_of,
)


class DestinationTable(MutableMapping[int, Destination]):
    """Destinations by number, in the order of the numbers. The lock of its owner guards it."""

    __slots__ = ("_rows", "_by_name")

    def __init__(self, destinations: Iterable[Destination] = ()) -> None:
        self._rows = PackedRows(_end_of)
        # Where the rows of queues, and those of topics, begin, sorted by name.
        self._by_name = (array("I"), array("I"))
        for destination in destinations:
            self[destination.number] = destination

    # ------------------------------------------------------------------ by number

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        """Yield the present numbers, even while destinations come and go."""
        return iter(self._rows.numbers)

    def __contains__(self, destination_number: object) -> bool:
        return isinstance(destination_number, int) and self._rows.find(destination_number) is not None

    def __getitem__(self, destination_number: int) -> Destination:
        """Return a destination. O(log destinations). KeyError."""
        return self._destination(self._place(destination_number))

    def __setitem__(self, destination_number: int, destination: Destination) -> None:
        """Add or replace a destination. O(destinations) copied bytes, no object."""
        assert destination_number == destination.number
        if destination_number in self:
            del self[destination_number]
        place = self._rows.add(destination_number, encode_destination(destination))
        by_name = self._by_name[destination.kind]
        by_name.insert(bisect_left(by_name, self._name(place), key=self._name), place)

    def __delitem__(self, destination_number: int) -> None:
        """Forget a destination. Raises KeyError."""
        place = self._place(destination_number)
        by_name = self._by_name[self._kind(place)]
        del by_name[bisect_left(by_name, self._name(place), key=self._name)]
        if self._rows.remove(destination_number):
            self._sort_by_name()

    def clear(self) -> None:
        """Forget all destinations."""
        self._rows.clear()
        for by_name in self._by_name:
            del by_name[:]

    # ------------------------------------------------------------------ by name

    def number_of(self, kind: int, name: str) -> int | None:
        """Return the number of a queue or topic, or None. O(log destinations)."""
        by_name, wanted = self._by_name[kind], name.encode(errors="surrogatepass")
        at = bisect_left(by_name, wanted, key=self._name)
        if at < len(by_name) and self._name(by_name[at]) == wanted:
            return self._rows.number_at(by_name[at])
        return None

    def names(self, kind: int) -> list[str]:
        """Return the names of all queues, or topics, sorted."""
        return [self._name(place).decode() for place in self._by_name[kind]]

    def numbers(self, kind: int) -> list[int]:
        """Return the numbers of all queues, or topics, sorted by name."""
        return list(map(self._rows.number_at, self._by_name[kind]))

    def count(self, kind: int) -> int:
        """Return the number of queues, or topics."""
        return len(self._by_name[kind])

    # ------------------------------------------------------------------ all rows

    @property
    def name_bytes(self) -> int:
        """Total bytes of all names."""
        return self._rows.live_bytes - DESTINATION_HEAD.size * len(self)

    @property
    def held_bytes(self) -> int:
        """Bytes of all rows, including removed ones whose space is not reused yet."""
        return len(self._rows.data)

    def encoded(self) -> EncodedRows[Destination]:
        """Return all destinations as a record has them. It copies bytes and makes no object of any."""
        return encoded_destinations(len(self), self._rows.joined())

    def _sort_by_name(self) -> None:
        """Sort the rows by name again after they have moved. O(destinations log destinations)."""
        for kind, by_name in enumerate(self._by_name):
            places = (place for place in self._rows.places if self._kind(place) == kind)
            by_name[:] = array("I", sorted(places, key=self._name))

    # ------------------------------------------------------------------ one row

    def _place(self, destination_number: int) -> int:
        place = self._rows.find(destination_number)
        if place is None:
            raise KeyError(destination_number)
        return place

    def _kind(self, place: int) -> int:
        return kind_of(self._rows.data[place + 4])

    def _name(self, place: int) -> bytes:
        data = self._rows.data
        begin, end = place + DESTINATION_HEAD.size, _end_of(data, place)
        return bytes(data[begin:end])

    def _destination(self, place: int) -> Destination:
        return decode_destination(self._rows.row_at(place))

    def _check(self) -> None:
        self._rows._check()
        assert sorted(self._rows.places) == sorted([*self._by_name[QUEUE], *self._by_name[TOPIC]])
        assert sum(len(self._name(place)) for place in self._rows.places) == self.name_bytes
        for by_name in self._by_name:
            names = list(map(self._name, by_name))
            assert names == sorted(names)
        for destination_number in self:
            assert self[destination_number].number == destination_number


def _end_of(data: bytearray, place: int) -> int:
    return place + DESTINATION_HEAD.size + data[place + 5]
