"""The messages that the memory walk owes to each queue and subscription, and who holds which of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from forebay import Consumer, Delivery, Transaction

SELECTOR: Final = "n < 3"
DURABLE: Final[dict[str, str | None]] = {"all": None, "late": None, "few": SELECTOR, "together": None}
"""Durable subscriptions, with their selectors. The last one is shared."""
SHARED: Final = "together"


def selected(number: int) -> bool:
    """Whether SELECTOR matches the message."""
    return number % 10 < 3


class Place:
    """A queue, or a subscription of a topic. It owes each message to its consumers until the message is settled."""

    def __init__(
        self, name: str, topic: TopicPlaces | None = None, selector: str | None = None, durable: str = ""
    ) -> None:
        self.name, self.topic, self.selector, self.durable = name, topic, selector, durable
        self.consumers = 0
        self.free: set[int] = set()
        # In the hands of a consumer or of a transaction.
        self.held: set[int] = set()
        # Those that end with the process.
        self._fleeting: set[int] = set()

    @property
    def is_shared(self) -> bool:
        return self.durable == SHARED

    @property
    def behind(self) -> int:
        return len(self.free)

    def arrive(self, numbers: Iterable[int], *, persistent: bool) -> None:
        self.free.update(numbers)
        if not persistent:
            self._fleeting.update(numbers)

    def hand_out(self, number: int) -> None:
        assert number in self.free, f"message {number} of {self.name} is not owed, or in other hands"
        self.free.remove(number)
        self.held.add(number)

    def done(self, numbers: Iterable[int]) -> None:
        self.held.difference_update(numbers)
        self._fleeting.difference_update(numbers)

    def back(self, numbers: Iterable[int]) -> None:
        numbers = self.held.intersection(numbers)
        self.held -= numbers
        self.free |= numbers

    def empty(self) -> set[int]:
        """Owe nothing but what is in hands, and return what was free."""
        free, self.free = self.free, set()
        self._fleeting &= self.held
        return free

    def persists(self, number: int) -> bool:
        return number not in self._fleeting

    def end_process(self) -> None:
        """End the process: only prepared transactions hold messages now, and non-persistent ones are gone."""
        self.free -= self._fleeting
        self._fleeting.clear()
        self.consumers = 0


class LoosePlace(Place):
    """A place whose messages expire, become dead letters or are evicted, so that nobody knows what it owes."""

    def arrive(self, numbers: Iterable[int], *, persistent: bool) -> None:
        """Know nothing of it."""

    def hand_out(self, number: int) -> None:
        """Whatever comes may come."""

    def persists(self, number: int) -> bool:
        """Leave it alone in transactions."""
        return False


class TopicPlaces:
    """A topic: each of its subscriptions is a place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: list[Place] = []
        self.retained: dict[int, int] = {}

    @property
    def behind(self) -> int:
        return max((place.behind for place in self.places), default=0)

    def arrive(self, numbers: Sequence[int], *, persistent: bool) -> None:
        """Let messages arrive. Non-persistent ones reach only subscriptions with a consumer."""
        for place in self.places:
            if persistent or place.consumers:
                chosen = numbers if place.selector is None else [*filter(selected, numbers)]
                place.arrive(chosen, persistent=persistent)

    def begin(self, place: Place) -> Place:
        """Add a new subscription, which gets the retained messages."""
        self.places.append(place)
        place.arrive(self.retained.values(), persistent=False)
        return place


@dataclass(eq=False)
class Taker:
    """A consumer with the deliveries that it holds, in the order of its takes."""

    consumer: Consumer
    place: Place
    selector: str | None = None
    held: dict[int, Delivery] = field(default_factory=dict)


@dataclass(eq=False)
class Branch:
    """A transaction with the messages about which its outcome decides."""

    transaction: Transaction
    sent: list[tuple[Place | TopicPlaces, list[int], bool]] = field(default_factory=list)
    acked: list[tuple[Place, list[int]]] = field(default_factory=list)

    @property
    def persists(self) -> bool:
        return all(persistent for _, _, persistent in self.sent)

    def end(self, *, commits: bool) -> None:
        for place, numbers in self.acked:
            place.done(numbers) if commits else place.back(numbers)
        for to, numbers, persistent in self.sent if commits else ():
            to.arrive(numbers, persistent=persistent)
