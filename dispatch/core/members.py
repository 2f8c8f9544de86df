"""Members: who belongs to a consumer group, in the order in which they are called, and what they want.

Nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from ..selectors.selector import Selector
from .judging import Judge

M = TypeVar("M")


class Members(Judge, Generic[M]):
    """The consumers of one consumer group, who want the same: there is one selector, or none.

    Most groups with a selector have one consumer, and there may be thousands of them. So a single one is kept as it
    is, for a dict with one key takes 224 bytes. The consumer group is its own container.
    """

    __slots__ = ("_only", "_all")

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        self._only: M | None = None
        """The consumer, while there is one."""
        self._all: dict[M, None] | None = None
        """From the second one on all of them."""

    @property
    def consumers(self) -> Collection[M]:
        """Return the consumers, in the order in which they are called. O(1)."""
        if self._all is not None:
            return self._all
        return () if self._only is None else (self._only,)

    def add_consumer(self, consumer: M) -> None:
        """Put a new consumer behind all others. O(1)."""
        if self._all is not None:
            self._all[consumer] = None
        elif self._only is None:
            self._only = consumer
        else:
            self._all = {self._only: None, consumer: None}
            self._only = None

    def remove_consumer(self, consumer: M) -> None:
        """Take out a consumer that is in. O(1)."""
        if self._all is not None:
            del self._all[consumer]
            if not self._all:
                self._all = None
        else:
            assert consumer is self._only
            self._only = None

    def take_consumers(self, before: Members[M]) -> None:
        """Have the consumers of a consumer group in the place of which this one is. O(1)."""
        self._only, self._all = before._only, before._all

    def rotate_consumers(self) -> None:
        """Put the first consumer behind all others. O(1)."""
        if self._all is not None:
            first = next(iter(self._all))
            del self._all[first]
            self._all[first] = None
