"""Contents: what is stored of each message of a slice, its properties and its body, by columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from ..stored_message import StoredMessage


class Contents:
    """The properties and the body of each message of a slice.

    They are two columns, not pairs: 256 messages are two lists instead of 257 objects, and a slice is encoded without
    taking a pair apart.
    """

    __slots__ = ("properties", "bodies")

    def __init__(self, properties: list[bytes], bodies: list[bytes]) -> None:
        """Take over two columns of one length."""
        self.properties = properties
        self.bodies = bodies

    @staticmethod
    def of(messages: Iterable[tuple[bytes, bytes]]) -> Contents:
        """Return the contents of (properties, body) pairs."""
        contents = Contents([], [])
        for properties, body in messages:
            contents.append(properties, body)
        return contents

    def append(self, properties: bytes, body: bytes) -> None:
        """Add one message."""
        self.properties.append(properties)
        self.bodies.append(body)

    def part(self, begin: int, end: int | None = None) -> Contents:
        """Return the messages from place `begin` to before `end`, or to the last."""
        return Contents(self.properties[begin:end], self.bodies[begin:end])

    def followed_by(self, others: Contents) -> Contents:
        """Return these messages, and others behind them."""
        return Contents(self.properties + others.properties, self.bodies + others.bodies)

    def cut(self, end: int, rest_end: int) -> Contents:
        """Keep the first `end` messages; return those from there to before `rest_end`."""
        rest = self.part(end, rest_end)
        del self.properties[end:], self.bodies[end:]
        return rest

    def at(self, places: Sequence[int]) -> Contents:
        """Return the messages at these places."""
        return Contents([self.properties[place] for place in places], [self.bodies[place] for place in places])

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """Return an iterator over (properties, body)."""
        return zip(self.properties, self.bodies, strict=True)

    def lengths(self) -> list[int]:
        """Return the bytes of each message: of its properties and its body together."""
        return [len(properties) + len(body) for properties, body in zip(self.properties, self.bodies, strict=True)]

    def arrived(self, first: int, timestamp: int) -> Sequence[StoredMessage]:
        """Return them as messages with these sequences. By columns, so that all share one int for the time."""
        return list(zip(range(first, first + len(self.bodies)), self.properties, self.bodies, repeat(timestamp)))

    def __len__(self) -> int:
        return len(self.bodies)
