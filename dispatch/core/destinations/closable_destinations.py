"""ClosableDestinations: close a few queues and topics that are not in use, when another one needs their memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from itertools import islice
from typing import Final

from .destination_state import DestinationState

CLOSED_AT_ONCE: Final = 64
"""Most queues and topics that are closed to make room in memory when another one is opened."""
LOOKED_AT_ONCE: Final = 256
"""Most queues and topics that are examined to find some that can be closed."""


class IdleCloser(ABC):
    """The owner of all queues or all topics: it can close one to free its memory."""

    @abstractmethod
    def close_named(self, name: str, undecided: Container[int]) -> bool:
        """Close the destination of a name if nothing but its counters would be lost; return whether it was closed.

        undecided: numbers of destinations with messages in transactions without an outcome. Requires: the lock.
        """


class ClosableDestinations:
    """The open queues and topics, in the order in which they are examined.

    The state lock guards it; every method requires it held.
    """

    def __init__(self, undecided: Callable[[], Container[int]]) -> None:
        """undecided: returns the numbers of destinations with messages in transactions without an outcome."""
        self._undecided = undecided
        self._in_turn: dict[DestinationState, IdleCloser] = {}

    def add(self, opened: DestinationState, closer: IdleCloser) -> None:
        """Note a queue or topic that was just opened, and who can close it again."""
        self._in_turn[opened] = closer

    def remove(self, ended: DestinationState) -> None:
        """Forget a queue or topic that is closed or deleted."""
        self._in_turn.pop(ended, None)

    def close_some(self) -> None:
        """Close a few empty queues and topics, those opened first at first.

        O(destinations examined): a destination in use goes to the end of the line.
        """
        undecided, closed = self._undecided(), 0
        for opened, closer in list(islice(self._in_turn.items(), LOOKED_AT_ONCE)):
            if closer.close_named(opened.name, undecided):
                closed += 1
                if closed == CLOSED_AT_ONCE:
                    return
            else:
                del self._in_turn[opened]
                self._in_turn[opened] = closer
