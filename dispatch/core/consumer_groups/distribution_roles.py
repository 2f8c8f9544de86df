"""What a distribution is told, and what it is asked beside who gets what: two of its three roles.

The third one, Dispatcher, stands with the consumer groups that it makes (model.py). Lanes and consumers are parameters
of type: a role needs to know of them no more than that there are some.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from ....store.sequence_set import SequenceSet
from ....store.stored_message import StoredMessage
from ...traits import trait
from ..deliveries.delivery import Delivery, LaneMessages, Settler

L = TypeVar("L", bound=LaneMessages)
T = TypeVar("T", bound=Settler)


@trait
class LaneListener(Generic[L]):
    """The role in which a distribution is told what happens to messages. Every method requires the lock."""

    def add_lane(self, lane: L) -> None:
        """Take a new lane of the queue in, over which each consumer group of the queue has a list."""

    @abstractmethod
    def offer_again(self, lane: L, message: StoredMessage) -> None:
        """Offer a pending message that was handed out and is free again."""

    @abstractmethod
    def offer_put_off(self, lane: L, runs: Sequence[tuple[int, int]]) -> None:
        """Offer messages of which the delay is over."""

    def reassign(self) -> None:
        """Put older messages before what was assigned already."""

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back, now or later."""

    def remember_put_off(self, lane: L, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """Take over messages that an earlier process put off; return those that can't be held back any longer."""
        return SequenceSet()

    def settled(self, lane: L, first: int, messages: int) -> None:
        """Note that a transaction or a dead-letter queue has settled a run."""

    def forget(self, lane: L, gone: SequenceSet) -> None:
        """Forget messages that were removed."""


@trait
class Explainer(Generic[L, T]):
    """The role in which a distribution answers explanations and audits. Requires: the lock. Nothing is changed.

    As it is here, nobody owns a message before it is handed out, and none waits for another.
    """

    def by_owner(self, lane: L, messages: Iterable[StoredMessage]) -> dict[T | None, list[StoredMessage]]:
        """Return free messages by the owner of their group (None: it has none), without those that wait for another."""
        return {None: list(messages)}

    def kind_of(self, consumer: T) -> Hashable:
        """Return what consumers have in common who could have the same messages without an owner."""
        return None

    def unowned_of(self, consumer: T, lane: L, messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
        """Return those of free messages without an owner that would be this consumer's if it took now."""
        return iter(messages)

    def kept_for_others(self, consumer: T) -> list[int]:
        """Return how many free messages each other consumer comes first for, without those that come first for none."""
        return []

    def count_waiting(self) -> int:
        """Return how many messages wait behind one of their group that comes back later, or somewhat more."""
        return 0

    def is_outranked(self, consumer: T) -> bool:
        """Return whether consumers of higher priority come first for all that nobody owns."""
        return False

    def audit(self) -> tuple[int, int]:
        """Return the bytes that it holds for message groups, and those of them for what holds back its group."""
        return 0, 0
