"""Stock and Hand: the consumer groups of a queue of which the messages are dealt (see distribution/grouped.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...store.journal.reading import StoredMessage
from ...store.sequence_set import SequenceSet
from ..core.queue_area import ConsumerGroup, LaneState
from ..core.target_list import TargetList
from .message_groups import bucket_of, put_aside

if TYPE_CHECKING:
    from ..consumer.consumer import Consumer
    from ..selectors.selector import Selector
    from .grouped import GroupAssigner


_Passed = dict[LaneState, SequenceSet]


class _Promise:
    """A message was left to a consumer of another consumer group: those behind it in groups of its bucket wait."""

    __slots__ = ("consumer", "waiting")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.waiting: _Passed = {}


class UnassignedMessages(ConsumerGroup):
    """What the consumers with one selector share, from which is dealt."""

    __slots__ = ("dealer", "withheld", "left", "promises", "_hungry")
    notes_groups = True

    def __init__(self, dealer: GroupAssigner, selector: Selector | None) -> None:
        super().__init__(selector, dealer.targets.lock)
        self.dealer = dealer
        self.withheld: dict[Consumer, _Passed] = {}
        """What it has passed because another consumer group's consumer owns the group."""
        self.left: dict[Consumer, _Passed] = {}
        """What it has passed because another consumer group's consumer of higher priority comes first."""
        self.promises: dict[int, _Promise] = {}
        """By bucket of groups that nobody owns."""
        self._hungry: dict[int, dict[Consumer, None]] = {}
        """By priority, those who found nothing since something came."""

    @property
    def is_awaited(self) -> bool:
        return any(consumer.consumer_group.is_awaited for consumer in self.consumers)

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
            consumer.consumer_group.wake(ready)

    def is_hungry(self, consumer: Consumer) -> None:
        """It has found nothing. A closed one is not asked again, though a transaction may still give it credit."""
        if consumer in self.dealer.hands:
            self._hungry.setdefault(consumer.priority, {})[consumer] = None

    def is_fed(self, consumer: Consumer) -> None:
        """It has got something, or wants nothing more."""
        if self._hungry:
            self._hungry.get(consumer.priority, {}).pop(consumer, None)

    def note_group(self, area: LaneState, message: StoredMessage) -> None:
        self.dealer.note(area, message)

    def list_over(self, area: LaneState) -> TargetList:
        return next(target for target in self.lists if target.area is area)

    # ------------------------------------------------------------------ what was passed, and is looked at again

    def offer(self, area: LaneState, runs: Iterable[tuple[int, int]]) -> None:
        """These are to be dealt, of those before the front."""
        target = self.list_over(area)
        front = target.front
        for first, last in runs:
            if first < front:
                target.returned.add(first, min(last, front - 1))
        self.dealer.targets.feed(target)
        self.dealer.targets.wake(self)

    def withhold(self, owner: Consumer, area: LaneState, first: int, last: int) -> None:
        """These are in its groups."""
        put_aside(area, self.withheld.setdefault(owner, {}).setdefault(area, SequenceSet()), first, last)

    def leave(self, consumer: Consumer, group: str | None, area: LaneState, sequence: int) -> None:
        """A message that nobody owns is for this consumer, if it takes it: it has a higher priority than who asks."""
        put_aside(area, self.left.setdefault(consumer, {}).setdefault(area, SequenceSet()), sequence, sequence)
        if group is not None:
            self.promises[bucket_of(group)] = _Promise(consumer)

    def waits(self, group: str | None, area: LaneState, sequence: int) -> bool:
        """Whether a message must wait because one before it in its group was left to somebody; then it does."""
        promise = self.promises.get(bucket_of(group)) if group is not None else None
        if promise is not None:
            put_aside(area, promise.waiting.setdefault(area, SequenceSet()), sequence, sequence)
        return promise is not None

    def end_promise(self, bucket: int) -> None:
        """Who waited behind it looks again."""
        promise = self.promises.pop(bucket, None)
        if promise is not None:
            self._offer_lanes(promise.waiting)

    def offer_withheld(self, consumer: Consumer) -> None:
        """All that was passed because of it."""
        self._offer_lanes(self.withheld.pop(consumer, {}))
        self._offer_left(consumer)

    def offer_left(self, priority: int) -> None:
        """A consumer of this priority asks for what was left to others of no higher one."""
        for consumer in [consumer for consumer in self.left if consumer.priority <= priority]:
            self._offer_left(consumer)

    def _offer_left(self, consumer: Consumer) -> None:
        self._offer_lanes(self.left.pop(consumer, {}))
        for bucket in [bucket for bucket, promise in self.promises.items() if promise.consumer is consumer]:
            self.end_promise(bucket)

    def _offer_lanes(self, lanes: _Passed) -> None:
        for area, runs in lanes.items():
            self.offer(area, runs)


class AssignedMessages(ConsumerGroup):
    """What is one consumer's own, before it has taken it."""

    __slots__ = ("stock", "owner", "is_hungry", "served")
    notes_groups = True

    def __init__(self, stock: UnassignedMessages, owner: Consumer) -> None:
        self.stock = stock
        self.owner = owner
        super().__init__(stock.selector, stock.dealer.targets.lock)
        self.consumers.append(owner)
        self.is_hungry = False
        """Its last take found nothing."""
        self.served = 0
        """How many takes of the queue had been served when one of its own was, the last time."""

    def arm(self, consumer: Consumer) -> None:
        """Note it where messages are dealt as well, else none would be dealt to this consumer. REQUIRES: the lock."""
        super().arm(consumer)
        self.stock.is_hungry(consumer)

    def in_turn(self) -> Iterable[TargetList]:
        return (target for pair in zip(self.lists, self.stock.lists, strict=False) for target in pair)

    def wants(self, area: LaneState, message: StoredMessage) -> bool:
        """What lies between its own messages is loaded with them, and is for others."""
        group = self.stock.dealer.group_of(area, message)
        return (group is None or self.stock.dealer.groups.owner(group) is self.owner) and super().wants(area, message)

    def is_free(self, area: LaneState, message: StoredMessage) -> bool:
        return super().is_free(area, message) and self.stock.dealer.is_own(self.owner, area, message)

    def note_group(self, area: LaneState, message: StoredMessage) -> None:
        self.stock.dealer.note(area, message)

    def list_over(self, area: LaneState) -> TargetList:
        return next(target for target in self.lists if target.area is area)
