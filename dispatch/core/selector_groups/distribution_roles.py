"""Two of the three roles of a distribution: what it is told, and what it answers for explanations.

The third role, Dispatcher, stands in model.py with the selector groups that it makes. Lanes and consumers are type
parameters here, because these roles need nothing of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...traits import trait
from ..deliveries.delivery import Delivery, LaneMessages, SettlingConsumer

L = TypeVar("L", bound=LaneMessages)
T = TypeVar("T", bound=SettlingConsumer)


@trait
class LaneListener(Generic[L]):
    """The role in which a distribution is told what happens to messages. Every method requires the lock."""

    def add_lane(self, lane: L) -> None:
        """Take a new lane of the queue in. Each selector group of the queue has a list over it."""

    @abstractmethod
    def offer_again(self, lane: L, message: StoredMessage) -> None:
        """Offer a pending message again that was handed out and is free now."""

    @abstractmethod
    def offer_put_off(self, lane: L, runs: Sequence[tuple[int, int]]) -> None:
        """Offer messages whose delay has ended."""

    def reassign(self) -> None:
        """Put older messages before those that were assigned already."""

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back, now or later."""

    def remember_put_off(self, lane: L, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """Take over messages that an earlier process put off; return those that can no longer be held back."""
        return SequenceSet()

    def settled(self, lane: L, first: int, messages: int) -> None:
        """Note that a transaction or a dead-letter queue has settled a run."""

    def forget(self, lane: L, gone: SequenceSet) -> None:
        """Forget messages that were removed."""


@trait
class Explainer(Generic[L, T]):
    """The role in which a distribution answers explanations and audits. Requires: the lock. It changes nothing.

    By default no message has an owner before it is handed out, and no message waits for another.
    """

    def by_owner(self, lane: L, messages: Iterable[StoredMessage]) -> dict[T | None, list[StoredMessage]]:
        """Return free messages by the consumer that owns their group, without those that wait for another message.

        None as owner: no consumer owns the group.
        """
        return {None: list(messages)}

    def kind_of(self, consumer: T) -> Hashable:
        """Return a key for this consumer. Consumers with the same key could have the same messages without an owner."""
        return None

    def unowned_of(self, consumer: T, lane: L, messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
        """Return those of the free messages without an owner that this consumer would get if it took now."""
        return iter(messages)

    def kept_for_others(self, consumer: T) -> list[int]:
        """Return for each other consumer how many free messages it has the first claim to."""
        return []

    def count_waiting(self) -> int:
        """Return how many messages wait behind a message of their group that comes back later. The figure may be too
        high.
        """
        return 0

    def is_outranked(self, consumer: T) -> bool:
        """Return whether consumers of higher priority get all messages without an owner before this one."""
        return False

    def audit(self) -> tuple[int, int]:
        """Return the bytes held for message groups, and how many of them for messages that hold back their group."""
        return 0, 0
