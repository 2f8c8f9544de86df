"""Wildcard subscriptions: one consumer of all topics that match a pattern, those that come later among them.

To its topic a member is a subscription without a name as any other. All
members have the consumer group of their pattern in the place of one of their
own: so a consumer takes from lists over the lanes of many topics, and prefetch,
waiting and memory are of the whole. Arrivals, loads and acks know nothing of
it. `Turns` is who hands out, so that a busy topic holds up no other of the
same priority. Nothing of it is in the journal; a crash ends it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby

from ...store.errors import SettingsError
from ...store.index.subscriptions import Subscriber
from ...store.journal.reading import StoredMessage
from ...store.sequence_set import SequenceSet
from ..core.lists import TargetArea
from ..core.model import ConsumerGroup, Delivery, Distribution, LaneState, QueueArea, Taker, TargetList
from ..selectors.selector import Selector
from .state import SubscriptionGroup, SubscriptionKeeper, SubscriptionState, TopicState


class PatternKeeper(SubscriptionKeeper):
    """The Topics, as far as a pattern knows them. The state lock guards it."""

    @abstractmethod
    def forget_pattern(self, pattern: PatternArea) -> None:
        """Let nothing new join a pattern whose consumer is closed. Requires: the lock."""


class PatternArea(QueueArea):
    """All topics that match, as their one consumer sees them. `name` is the pattern. The state lock guards it."""

    __slots__ = ("keeper", "members", "turns")
    is_queue = False
    keeps_groups = False

    def __init__(self, target_area: TargetArea, pattern: str, keeper: PatternKeeper) -> None:
        super().__init__(target_area, 0, pattern)
        self.keeper = keeper
        self.members: dict[TopicState, PatternMember] = {}
        self.distribution = self.turns = Turns(self, target_area)

    @property
    def consumer_group(self) -> ConsumerGroup:
        """Return the one that all members have."""
        (found,) = self.consumer_groups.values()
        return found

    def raise_if_deleted(self) -> None:
        """Refuse to make a lane: nothing is sent to a pattern. SettingsError."""
        raise SettingsError(f"{self.name!r} is a pattern, to which nothing can be sent: send to one topic by its name")

    def all_lanes(self) -> Iterator[LaneState]:
        """Yield those of all members."""
        return (lane for member in self.members.values() for lane in member.all_lanes())

    def on_consumer_closed(self) -> None:
        """See QueueArea. All members end."""
        members, self.members = self.members, {}
        for member in members.values():
            member.on_consumer_closed()
        self.keeper.forget_pattern(self)

    @property
    def depth(self) -> int:
        return sum(member.depth for member in self.members.values())

    @property
    def depth_bytes(self) -> int:
        return sum(member.depth_bytes for member in self.members.values())


class PatternMember(SubscriptionState):
    """What a pattern's consumer gets of one topic. The state lock guards it."""

    __slots__ = ("pattern",)

    def __init__(
        self, topic: TopicState, subscriber: Subscriber, selector: Selector | None, pattern: PatternArea
    ) -> None:
        super().__init__(topic, subscriber, selector)
        self.pattern = pattern

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        """Return the consumer group of the pattern."""
        return self.pattern.consumer_group

    def end_consumers(self) -> None:
        """See QueueArea. The topic is deleted, and with it what is in flight of it; the consumer goes on."""
        if self.pattern.members.pop(self.topic, None) is not None:
            self.pattern.turns.withdraw(self)
            self.on_consumer_closed()


class Turns(Distribution):
    """Hands the messages of several topics to one consumer: the highest priority first, and there topic by topic.

    O(lists) for each take. What else a Distribution decides is decided by each member for itself.
    """

    def __init__(self, pattern: PatternArea, target_area: TargetArea) -> None:
        self._pattern = pattern
        self._target_area = target_area
        self._served: dict[int, int] = {}
        """By priority, the number of the member that was served last."""

    def collect(self, consumer: Taker, most: int, max_bytes: int | None) -> list[Delivery]:
        """See Distribution. Of each priority the member behind the one that was served last comes first."""
        deliveries: list[Delivery] = []
        firsts = (
            target
            for target in consumer.consumer_group.lists
            if target.counterpart is None or target.lane.is_persistent
        )
        for priority, found in groupby(firsts, lambda target: target.lane.stored.priority):
            lists = list(found)
            last = self._served.get(priority, 0)
            begin = next((at for at, target in enumerate(lists) if target.lane.queue.number > last), 0)
            for target in (*lists[begin:], *lists[:begin]):
                before = len(deliveries)
                max_bytes = self._hand_out(consumer, target, most, max_bytes, deliveries)
                if len(deliveries) > before:
                    self._served[priority] = target.lane.queue.number
                if len(deliveries) >= most:
                    return deliveries
            if any(_has_more(target) for target in lists):
                break  # it is to be loaded, or too large for this take: what has a lower priority comes behind it
        return deliveries

    def _hand_out(
        self, consumer: Taker, target: TargetList, most: int, max_bytes: int | None, deliveries: list[Delivery]
    ) -> int | None:
        """Hand out from one list, and its counterpart; return what is left of max_bytes."""
        target_area = self._target_area
        if target.counterpart is not None:
            return target_area.collect_interleaved(consumer, target, most, max_bytes, deliveries)[0]
        if target.is_ready:
            max_bytes = target_area.hand_out(consumer, target, most, max_bytes, deliveries)
        if target.has_supply and target.direct_bytes < target.low_watermark_bytes:
            target_area.loads.request(target)
        return max_bytes

    @property
    def is_held_up(self) -> bool:
        """See Distribution. Memory is no matter of groups here."""
        return False

    def withdraw(self, member: PatternMember) -> None:
        """Take the lists of one member from the consumer group, and what is in flight of it from the consumer."""
        target_area, consumer_group = self._target_area, self._pattern.consumer_group
        for lane in member.all_lanes():
            for delivery in list(lane.in_flight.values()):
                target_area.settle(delivery)
        target_area.withdraw(member, consumer_group)
        for consumer in list(consumer_group.consumers):
            consumer.credit_came()

    def leave(self, consumer: Taker) -> None:
        """See Distribution. No member has a consumer group any more."""
        consumer_group = self._pattern.consumer_group
        del consumer_group.consumers[consumer]
        self._target_area.unsubscribe(self._pattern, consumer_group)
        for member in self._pattern.members.values():
            member.consumer_groups.clear()

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        return SubscriptionGroup(selector, self._pattern.monitor.lock, self._pattern.keeper.verdicts)

    def by_owner(self, lane: LaneState, messages: Iterable[StoredMessage]) -> dict[Taker | None, list[StoredMessage]]:
        """See Distribution. Nobody owns a group."""
        return {None: list(messages)}

    def kind_of(self, consumer: Taker) -> Hashable:
        """See Distribution. There is one consumer."""
        return None

    def unowned_of(
        self, consumer: Taker, lane: LaneState, messages: Iterable[StoredMessage]
    ) -> Iterator[StoredMessage]:
        return iter(messages)

    def join(self, consumer: Taker, group: ConsumerGroup) -> None:
        """See Distribution. It is the only one."""

    def stand_back(self, consumer: Taker) -> None:
        """See Distribution. Nobody else is there to have anything."""

    def woken(self) -> None:
        """See Distribution. Nothing is passed over."""

    def make_way(self) -> None:
        """See Distribution. Nothing is assigned before it is taken."""

    def add_lane(self, lane: LaneState) -> None:
        raise NotImplementedError("a pattern has no lane of its own")

    def offer_again(self, lane: LaneState, message: StoredMessage) -> None:
        raise NotImplementedError("a pattern has no lane of its own")

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        raise NotImplementedError("a pattern has no lane of its own")

    def remember_put_off(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        raise NotImplementedError("a pattern has no lane of its own")

    def settled(self, lane: LaneState, first: int, messages: int) -> None:
        raise NotImplementedError("a pattern has no lane of its own")

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        raise NotImplementedError("a pattern has no lane of its own")

    def kept_for_others(self, consumer: Taker) -> list[int]:
        """See Distribution. There is one consumer."""
        return []

    def count_waiting(self) -> int:
        """See Distribution. Nothing is held back."""
        return 0

    def is_outranked(self, consumer: Taker) -> bool:
        """See Distribution. There is one consumer."""
        return False

    def audit(self) -> tuple[int, int]:
        """See Distribution. It holds nothing for groups."""
        return 0, 0


def _has_more(target: TargetList) -> bool:
    both = (target,) if target.counterpart is None else (target, target.counterpart)
    return any(found.direct or found.has_supply for found in both)
