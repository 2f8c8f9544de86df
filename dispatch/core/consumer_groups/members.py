"""GroupMembers: who belongs to a consumer group, what they want, how they wait and in which order they are called.

What they take from and how they are woken is not said here: a consumer group is its members and their lists
(model.py). Nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

from ....store.locks import UNAWAITED, OwnedLock, condition_of
from ...selectors.selector import Selector
from .matching import SelectorMatcher

M = TypeVar("M")


class GroupMembers(SelectorMatcher, Generic[M]):
    """The consumers of one consumer group, who want the same: there is one selector, or none.

    Most groups with a selector have one consumer, and there may be thousands of them. So a single one is kept as it
    is, for a dict with one key takes 224 bytes. The consumer group is its own container.
    """

    __slots__ = ("_only", "_all", "arrived", "waiting", "is_armed")

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        self._only: M | None = None
        """The consumer, while there is one."""
        self._all: dict[M, None] | None = None
        """From the second one on all of them."""
        self.arrived = UNAWAITED
        """Takes wait for it: see `wait`."""
        self.waiting = 0
        """Threads that wait in take for something to arrive."""
        self.is_armed = False
        """Some consumer waits for its on_ready callback."""

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

    def take_consumers(self, before: GroupMembers[M]) -> None:
        """Have the consumers of a consumer group in the place of which this one is. O(1)."""
        self._only, self._all = before._only, before._all

    def rotate_consumers(self) -> None:
        """Put the first consumer behind all others. O(1)."""
        if self._all is not None:
            first = next(iter(self._all))
            del self._all[first]
            self._all[first] = None

    @property
    def is_awaited(self) -> bool:
        """A take waits, or a callback that the next message calls."""
        return self.waiting > 0 or self.is_armed

    def wait(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until something arrives, or so long. Requires: the state lock, which is let go meanwhile."""
        if self.arrived is UNAWAITED:
            self.arrived = condition_of(lock)
        self.waiting += 1
        try:
            self.arrived.wait(seconds)
        finally:
            self.waiting -= 1

    def arm(self) -> None:
        """Call on_ready of the consumers that wait for it with the next arrival. Requires: the lock."""
        self.is_armed = True
