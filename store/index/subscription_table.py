"""SubscriptionTable and Cursors: durable subscriptions that nobody uses, as packed rows and in columns.

Every durable subscription is a row of the table, used or not: its topic, name and selector. A subscription that nobody
uses needs all messages of a lane from some sequence on. This sequence is its cursor, a row of the lane. The tables are
in RAM; recovery fills them from the journal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..environment.account import OverdraftAccount
from ..format.packed_rows import PackedRows
from ..format.state_record import (
    SUBSCRIPTION_HEAD,
    EncodedRows,
    Subscription,
    decode_subscription,
    encode_subscription,
    encoded_subscriptions,
)

SUBSCRIPTION_ROW_BYTES: Final = 40
"""Charge of a row, without its name and selector."""
CURSOR_BYTES: Final = 40
"""Charge of a cursor. It and that of a row were measured with tracemalloc over 10,000, with the columns' spare room."""


def _row_charge(row_bytes: int) -> int:
    """Return the charge of a row whose record has so many bytes."""
    text_bytes = row_bytes - SUBSCRIPTION_HEAD.size
    return SUBSCRIPTION_ROW_BYTES + text_bytes + text_bytes // 8


class SubscriptionTable:
    """The durable subscriptions, found by number, or by topic and name. The state lock guards it."""

    __slots__ = ("_account", "_rows", "_by_name", "_charged_bytes")

    def __init__(self, account: OverdraftAccount) -> None:
        """Make an empty table. account: pays for the rows."""
        self._account = account
        self._rows = PackedRows(_end_of)
        # Where the rows begin, sorted by topic and name. A retention comes behind the subscriptions of its topic.
        self._by_name = array("I")
        self._charged_bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[int]:
        """Yield the present numbers."""
        return iter(self._rows.numbers)

    def __contains__(self, subscription_number: object) -> bool:
        return isinstance(subscription_number, int) and self._rows.find(subscription_number) is not None

    def find(self, subscription_number: int) -> Subscription | None:
        """Return the facts of a subscription, or None. O(log subscriptions)."""
        place = self._rows.find(subscription_number)
        return None if place is None else self._facts(place)

    def add(self, facts: Subscription) -> None:
        """Add a subscription. Requires: its number is not in the table. O(subscriptions) copied bytes."""
        row = encode_subscription(facts)
        place = self._rows.add(facts.number, row)
        self._by_name.insert(bisect_left(self._by_name, self._key(place), key=self._key), place)
        self._charge(_row_charge(len(row)))

    def remove(self, subscription_number: int) -> None:
        """Forget a subscription, if it is there. O(subscriptions) copied bytes."""
        place = self._rows.find(subscription_number)
        if place is None:
            return
        del self._by_name[bisect_left(self._by_name, self._key(place), key=self._key)]
        self._charge(-_row_charge(self._rows.size_at(place)))
        if self._rows.remove(subscription_number):
            self._sort_by_name()

    def remove_topic(self, topic: int) -> list[int]:
        """Forget the subscriptions of a topic, including retentions; return their numbers. O(subscriptions)."""
        begin = bisect_left(self._by_name, topic.to_bytes(4, "big"), key=self._key)
        end = bisect_left(self._by_name, (topic + 1).to_bytes(4, "big"), begin, key=self._key)
        gone = set(self._by_name[begin:end])
        if not gone:
            return []
        removed = sorted(map(self._rows.number_at, gone))
        self._charge(-sum(_row_charge(self._rows.size_at(place)) for place in gone))
        del self._by_name[begin:end]
        if self._rows.remove_all(gone):
            self._sort_by_name()
        return removed

    def clear(self) -> None:
        """Forget all subscriptions."""
        self._rows.clear()
        del self._by_name[:]
        self._charge(-self._charged_bytes)

    def _charge(self, charge_bytes: int) -> None:
        self._charged_bytes += charge_bytes
        if charge_bytes > 0:
            self._account.charge(charge_bytes)
        else:
            self._account.release(-charge_bytes)

    @property
    def charge_bytes(self) -> int:
        """The charge of all rows."""
        return self._charged_bytes

    # ------------------------------------------------------------------ one topic

    def number_of(self, topic: int, name: str) -> int | None:
        """Return the number of a durable subscription, or None. O(log subscriptions)."""
        wanted = _key_of(topic, name.encode(errors="surrogatepass"))
        at = bisect_left(self._by_name, wanted, key=self._key)
        if at < len(self._by_name) and self._key(self._by_name[at]) == wanted:
            return self._rows.number_at(self._by_name[at])
        return None

    def names(self, topic: int) -> list[str]:
        """Return the names of the durable subscriptions of a topic, sorted."""
        begin, end = self._range(topic)
        return [self._key(place)[5:].decode() for place in self._by_name[begin:end]]

    def numbers(self, topic: int) -> list[int]:
        """Return the numbers of the durable subscriptions of a topic, sorted by name."""
        begin, end = self._range(topic)
        return list(map(self._rows.number_at, self._by_name[begin:end]))

    def count(self, topic: int) -> int:
        """Return the number of durable subscriptions of a topic."""
        begin, end = self._range(topic)
        return end - begin

    def _range(self, topic: int) -> tuple[int, int]:
        begin = bisect_left(self._by_name, topic.to_bytes(4, "big"), key=self._key)
        return begin, bisect_left(self._by_name, topic.to_bytes(4, "big") + b"\1", begin, key=self._key)

    # ------------------------------------------------------------------ all rows

    def encoded(self) -> EncodedRows[Subscription]:
        """Return all subscriptions as a record has them. It copies bytes and makes no objects."""
        return encoded_subscriptions(len(self), self._rows.joined())

    def _sort_by_name(self) -> None:
        """Sort the rows by name again after they have moved. O(subscriptions log subscriptions)."""
        self._by_name = array("I", sorted(self._rows.places, key=self._key))

    # ------------------------------------------------------------------ one row

    def _key(self, place: int) -> bytes:
        """Return the key of a row: topic, kind and name."""
        data = self._rows.data
        _, topic, kind, name_bytes, _ = SUBSCRIPTION_HEAD.unpack_from(data, place)
        begin = place + SUBSCRIPTION_HEAD.size
        return _key_of(topic, bytes(data[begin : begin + name_bytes]), kind)

    def _facts(self, place: int) -> Subscription:
        return decode_subscription(self._rows.row_at(place))

    def _check(self) -> None:
        self._rows._check()
        assert sorted(self._rows.places) == sorted(self._by_name)
        keys = list(map(self._key, self._by_name))
        assert keys == sorted(keys)
        assert self._charged_bytes == sum(_row_charge(self._rows.size_at(place)) for place in self._rows.places)
        for subscription_number, place in zip(self._rows.numbers, self._rows.places, strict=True):
            assert self._facts(place).number == subscription_number


def _end_of(data: bytearray, place: int) -> int:
    *_, name_bytes, selector_bytes = SUBSCRIPTION_HEAD.unpack_from(data, place)
    return place + SUBSCRIPTION_HEAD.size + int(name_bytes) + int(selector_bytes)


def _key_of(topic: int, name: bytes, kind: int = 0) -> bytes:
    return topic.to_bytes(4, "big") + bytes((kind,)) + name


class Cursor(NamedTuple):
    """The place from which on a subscription that nobody uses needs all messages of a lane."""

    next_sequence: int
    sent_bytes: int
    """Bytes that were sent to the topic before that message."""
    first_sequence: int
    """Where the statistics of the subscription begin to count, with the bytes at that place."""
    first_sent_bytes: int


_NO_NUMBERS: Final = array("I")
_NO_COLUMNS: Final = (array("Q"), array("q"), array("Q"), array("q"))
"""The columns of all lanes without cursors, which are most lanes. They always stay empty."""


class Cursors:
    """The cursors of one lane by the number of the subscription. The state lock guards it."""

    __slots__ = ("_account", "_numbers", "_columns", "_lowest")

    def __init__(self, account: OverdraftAccount) -> None:
        """Make the cursors of a lane; there are none yet. account: pays for the columns."""
        self._account = account
        # Numbers of subscriptions, sorted.
        self._numbers = _NO_NUMBERS
        # The fields of the cursors.
        self._columns = _NO_COLUMNS
        # The least next sequence. None: it is not known, or there is no cursor.
        self._lowest: int | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[tuple[int, Cursor]]:
        """Yield subscriptions with their cursors, from a snapshot."""
        numbers, columns = self._numbers[:], [column[:] for column in self._columns]
        return (
            (subscription_number, Cursor(*fields))
            for subscription_number, *fields in zip(numbers, *columns, strict=True)
        )

    @property
    def numbers(self) -> array[int]:
        """The subscriptions, sorted. Callers do not change it."""
        return self._numbers

    @property
    def next_sequences(self) -> array[int]:
        """The next sequence of each subscription, in the order of `numbers`. Callers do not change it."""
        return self._columns[0]

    @property
    def sent_bytes(self) -> array[int]:
        """Bytes that were sent before that sequence, in the same order. Callers do not change it."""
        return self._columns[1]

    @property
    def lowest(self) -> int | None:
        """The first sequence that any subscription needs. None: there is no cursor.

        O(subscriptions) at times.
        """
        if self._lowest is None and self._numbers:
            self._lowest = min(self._columns[0])
        return self._lowest

    def find(self, subscription_number: int) -> Cursor | None:
        """Return a cursor, or None. O(log subscriptions)."""
        at = self._at(subscription_number)
        return None if at is None else Cursor(*(column[at] for column in self._columns))

    def put(self, subscription_number: int, cursor: Cursor) -> None:
        """Add the cursor of a subscription that has none here. Copies O(subscriptions) bytes."""
        if self._numbers is _NO_NUMBERS:
            self._numbers, self._columns = array("I"), (array("Q"), array("q"), array("Q"), array("q"))
        at = bisect_left(self._numbers, subscription_number)
        self._numbers.insert(at, subscription_number)
        for column, field in zip(self._columns, cursor, strict=True):
            column.insert(at, field)
        if self._lowest is not None or len(self._numbers) == 1:
            self._lowest = min(cursor.next_sequence, cursor.next_sequence if self._lowest is None else self._lowest)
        self._account.charge(CURSOR_BYTES)

    def take(self, subscription_number: int) -> Cursor | None:
        """Return a cursor and forget the row, because the subscription is in use now. None if there is none."""
        at = self._at(subscription_number)
        if at is None:
            return None
        del self._numbers[at]
        cursor = Cursor(*(column.pop(at) for column in self._columns))
        if cursor.next_sequence == self._lowest:
            self._lowest = None
        self._account.release(CURSOR_BYTES)
        return cursor

    def clear(self) -> None:
        """Forget all cursors."""
        self._account.release(self.charge_bytes)
        self._numbers, self._columns, self._lowest = _NO_NUMBERS, _NO_COLUMNS, None

    @property
    def charge_bytes(self) -> int:
        """Bytes that are charged for all cursors."""
        return CURSOR_BYTES * len(self)

    def _at(self, subscription_number: int) -> int | None:
        at = bisect_left(self._numbers, subscription_number)
        return at if at < len(self._numbers) and self._numbers[at] == subscription_number else None

    def _check(self) -> None:
        assert list(self._numbers) == sorted(set(self._numbers))
        assert all(len(column) == len(self._numbers) for column in self._columns)
        assert self.lowest == min(self._columns[0], default=None)
