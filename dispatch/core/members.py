"""Members: who belongs to a consumer group, in the order in which they are called. Nothing here is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

M = TypeVar("M")


class Members(Generic[M]):
    """The consumers of one group, in the order in which they are called. Most groups with a selector have one.

    So a single one is kept as it is: a dict with one key takes 224 bytes. O(1) each.
    """

    __slots__ = ("_only", "_all")

    def __init__(self) -> None:
        self._only: M | None = None
        self._all: dict[M, None] | None = None
        """From the second one on; then all of them."""

    def __len__(self) -> int:
        return len(self._all) if self._all is not None else int(self._only is not None)

    def __iter__(self) -> Iterator[M]:
        if self._all is not None:
            return iter(self._all)
        return iter(()) if self._only is None else iter((self._only,))

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._all if self._all is not None else consumer is self._only

    def add(self, consumer: M) -> None:
        """Put a new one behind all others."""
        if self._all is not None:
            self._all[consumer] = None
        elif self._only is None:
            self._only = consumer
        else:
            self._all = {self._only: None, consumer: None}
            self._only = None

    def remove(self, consumer: M) -> None:
        """Take one out that is in."""
        if self._all is not None:
            del self._all[consumer]
            if not self._all:
                self._all = None
        else:
            assert consumer is self._only
            self._only = None

    def rotate(self) -> None:
        """Put the first one behind all others."""
        if self._all is not None:
            first = next(iter(self._all))
            del self._all[first]
            self._all[first] = None
