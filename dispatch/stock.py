"""Stock and Hand: the interests of a queue of which the messages are dealt (see dealer.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..store.reading import StoredMessage
from ..store.runs import Runs
from .queue_area import Interest, LaneArea
from .target_list import TargetList

if TYPE_CHECKING:
    from .consumer import Consumer
    from .dealer import Dealer
    from .selector import Selector


class Promise:
    """A stock has left a message to a consumer of another interest: those behind it in its groups wait for that."""

    __slots__ = ("consumer", "waiting")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.waiting: dict[LaneArea, Runs] = {}


class Stock(Interest):
    """What the consumers with one selector share, from which is dealt."""

    __slots__ = ("dealer", "withheld", "promises", "_hungry")
    notes_groups = True

    def __init__(self, dealer: Dealer, selector: Selector | None) -> None:
        super().__init__(selector, dealer.targets.lock)
        self.dealer = dealer
        self.withheld: dict[Consumer, dict[LaneArea, Runs]] = {}
        """What it has passed because it is, or may be, another interest's consumer's."""
        self.promises: dict[int, Promise] = {}
        """By bucket of groups that nobody owns."""
        self._hungry: dict[int, dict[Consumer, None]] = {}
        """By priority, those who found nothing since something came."""

    @property
    def is_awaited(self) -> bool:
        return any(consumer.interest.is_awaited for consumer in self.consumers)

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """What has an owner is dealt at once; for the rest everybody is woken who found nothing."""
        self.dealer.deal_owned(self)
        if self._hungry and any(target.direct or target.has_supply for target in self.lists):
            for priority in sorted(self._hungry, reverse=True):
                if self.dealer.left(self, priority):
                    self._call(self._hungry.pop(priority), ready)

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        self.dealer.deal_owned(self)
        hungry, self._hungry = self._hungry, {}
        for priority in sorted(hungry, reverse=True):
            self._call(hungry[priority], ready)

    def _call(self, consumers: Iterable[Consumer], ready: list[Callable[[], None]]) -> None:
        # Whoever was served last comes last: no other is passed over twice for it.
        for consumer in sorted(consumers, key=lambda consumer: self.dealer.hands[consumer].served):
            consumer.interest.wake(ready)

    def is_hungry(self, consumer: Consumer) -> None:
        """It has found nothing. A closed one is not asked again, though a transaction may still give it credit."""
        if consumer in self.dealer.hands:
            self._hungry.setdefault(consumer.priority, {})[consumer] = None

    def is_fed(self, consumer: Consumer) -> None:
        """It has got something, or wants nothing more."""
        if self._hungry:
            self._hungry.get(consumer.priority, {}).pop(consumer, None)

    def note_group(self, area: LaneArea, message: StoredMessage) -> None:
        self.dealer.note(area, message)

    def list_over(self, area: LaneArea) -> TargetList:
        return next(target for target in self.lists if target.area is area)


class Hand(Interest):
    """What is one consumer's own, before it has taken it."""

    __slots__ = ("stock", "owner", "_is_armed", "is_hungry", "served")
    notes_groups = True

    def __init__(self, stock: Stock, owner: Consumer) -> None:
        self.stock = stock
        self.owner = owner
        super().__init__(stock.selector, stock.dealer.targets.lock)
        self.consumers.append(owner)
        self.is_hungry = False
        """Its last take found nothing."""
        self.served = 0
        """How many takes of the queue had been served when one of its own was, the last time."""

    @property
    def is_armed(self) -> bool:
        return self._is_armed

    @is_armed.setter
    def is_armed(self, is_armed: bool) -> None:
        self._is_armed = is_armed
        if is_armed:
            self.stock.is_hungry(self.owner)

    def in_turn(self) -> Iterable[TargetList]:
        return (target for pair in zip(self.lists, self.stock.lists, strict=False) for target in pair)

    def wants(self, area: LaneArea, message: StoredMessage) -> bool:
        """What lies between its own messages is loaded with them, and is for others."""
        group = self.stock.dealer.group_of(area, message)
        return (group is None or self.stock.dealer.groups.owner(group) is self.owner) and super().wants(area, message)

    def is_free(self, area: LaneArea, message: StoredMessage) -> bool:
        return super().is_free(area, message) and self.stock.dealer.is_own(self.owner, area, message)

    def note_group(self, area: LaneArea, message: StoredMessage) -> None:
        self.stock.dealer.note(area, message)

    def list_over(self, area: LaneArea) -> TargetList:
        return next(target for target in self.lists if target.area is area)
