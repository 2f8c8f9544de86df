"""Subscriptions: who gets what is sent to each topic.

A durable subscription is in the journal: a record begins it, a record ends
it, and the state record that opens each data log restates it. What it has
not acknowledged is in the root of each checkpoint, and made again from the
journal where that is lost. A subscription that is not durable is in RAM alone:
no record names it, and a crash or a close ends it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ..account import OpenAccount, Uncounted
from ..format.record import SEQUENCE_MAX, RecordDamaged
from ..format.state import TOPIC, Backlog, Destination, State, Subscription
from ..numbering import LANE_MASK, LANE_SHIFT, PRIORITIES, persistent_lanes_of
from .index import Index, LaneMaker
from .pending_lane import JournaledLane
from .topic_lane import NO_RECORD, BacklogSets, LaneHome, NotedBacklogs, SubscriptionLane, TopicLane

ASKED_AT_ONCE: Final = 32
"""Subscriptions that a sweep asks in the time that a block takes besides."""


class Subscriber:
    """A subscription and its lanes, of which there are as many as its topic has. `facts.name`: "" if not durable.

    A retention is one too: it needs everything that its topic keeps beyond all acks, and nobody reads it.
    """

    __slots__ = ("facts", "is_durable", "lanes")

    def __init__(self, facts: Subscription, is_durable: bool) -> None:
        self.facts = facts
        self.is_durable = is_durable
        self.lanes: list[SubscriptionLane | None] = [None] * PRIORITIES


class _Topic(LaneHome):
    """A topic that has lanes or subscriptions."""

    __slots__ = ("number", "subscribers", "retention", "lanes", "_topics")

    def __init__(self, number: int, topics: dict[int, _Topic]) -> None:
        """topics: by number, to which it adds itself, and which it leaves with the last it has."""
        self.number = number
        self.subscribers: dict[int, Subscriber] = {}
        self.retention: Subscriber | None = None
        self.lanes: list[TopicLane] = []
        self._topics = topics
        topics[number] = self

    def lane_left(self, lane: TopicLane) -> None:
        """See LaneHome."""
        self.lanes.remove(lane)
        self.leave_if_empty()

    def leave_if_empty(self) -> None:
        """Leave the topics that have something."""
        if not (self.lanes or self.subscribers):
            self._topics.pop(self.number, None)


class Subscriptions(LaneMaker):
    """The subscriptions of a store. The state lock guards it."""

    def __init__(self, index: Index, backlogs: OpenAccount | None = None) -> None:
        """backlogs: pays for what subscriptions have not acknowledged; None: nobody counts it."""
        self._index = index
        self._backlogs = BacklogSets(backlogs or Uncounted())
        index.topics = self
        self._numbers = array("I")
        """Of all topics, in order."""
        self.by_number: dict[int, Subscriber] = {}
        self._topics: dict[int, _Topic] = {}
        """Those that have lanes or subscriptions."""
        self.next_number = 1
        """Number of the next destination or subscription. A number is never used again."""
        self.is_behind = False
        """The last sweep stopped before its end, for a checkpoint to make room."""

    def reset(self) -> None:
        """Forget everything, as before a full replay. The index is reset with it."""
        for lane in self._lanes():
            lane.end()
        self.by_number.clear()
        self._topics.clear()
        del self._numbers[:]
        self.next_number = 1

    # ------------------------------------------------------------------ what there is

    def register(self, destination: Destination) -> None:
        """Note that a destination exists. A topic's lanes are made as TopicLanes from now on."""
        self._note_number(destination.number)
        if destination.kind == TOPIC and not self.is_topic(destination.number):
            insort(self._numbers, destination.number)
            for priority in range(PRIORITIES):
                known = self._index.lanes.get(destination.number << LANE_SHIFT | priority)
                if known is not None:  # the record that told of the topic was lost, and messages came before this one
                    lane = self.make_lane(destination.number, priority, 0)
                    lane.replace(known)
                    self._index.lanes[lane.number] = lane

    def _note_number(self, number: int) -> None:
        self.next_number = max(self.next_number, number + 1)

    def is_topic(self, destination: int) -> bool:
        """See LaneMaker. O(log topics)."""
        at = bisect_left(self._numbers, destination)
        return at < len(self._numbers) and self._numbers[at] == destination

    def _topic(self, number: int) -> _Topic:
        """Return what is known of a topic that has something, or is about to."""
        return self._topics.get(number) or _Topic(number, self._topics)

    def make_lane(self, destination: int, priority: int, next_sequence: int) -> TopicLane:
        """See LaneMaker."""
        topic = self._topic(destination)
        lane = TopicLane(self._index.cache, self._index.uses, destination, priority, self._backlogs)
        lane.home = topic
        lane.next_sequence = next_sequence
        topic.lanes.append(lane)
        for subscriber in topic.subscribers.values():
            self._add_lane(subscriber, lane)
        return lane

    def _add_lane(self, subscriber: Subscriber, topic_lane: TopicLane) -> None:
        lane = subscriber.lanes[topic_lane.priority] = SubscriptionLane(
            topic_lane, subscriber.facts.number, is_durable=subscriber.is_durable
        )
        lane.put_off = self._index.put_off.get(lane.number)

    def subscribe(self, facts: Subscription, *, is_durable: bool = True) -> Subscriber:
        """Make a subscription, which gets what is sent to its topic from now on. One that exists stays as it is."""
        self._note_number(facts.number)
        subscriber = self.by_number.get(facts.number)
        if subscriber is None:
            subscriber = self.by_number[facts.number] = Subscriber(facts, is_durable)
            if not self.is_topic(facts.topic):
                del self.by_number[facts.number]
                raise RecordDamaged("a subscription to what is no topic")
            topic = self._topic(facts.topic)
            topic.subscribers[facts.number] = subscriber
            if facts.is_retention:
                topic.retention = subscriber
            if not is_durable:
                self._index.attempts.local.add(facts.number)
            for lane in topic.lanes:
                self._add_lane(subscriber, lane)
        return subscriber

    def unsubscribe(self, number: int) -> None:
        """End a subscription and its needs. One that is not there is passed over. O(blocks it had)."""
        subscriber = self.by_number.pop(number, None)
        if subscriber is not None:
            topic = self._topics[subscriber.facts.topic]
            del topic.subscribers[number]
            if topic.retention is subscriber:
                topic.retention = None
            self._index.attempts.forget(number)
            self._index.forget_put_off(number)
            for lane in filter(None, subscriber.lanes):
                lane.end()
            topic.leave_if_empty()

    def seek(self, number: int, firsts: Iterable[tuple[int, int]], data_log: int) -> None:
        """Let what exists from there on be pending for a subscription, by a record in data_log or by NO_RECORD.

        firsts: (priority, sequence) of lanes; the others stay as they are. Counts and delays of persistent messages
        are forgotten. A subscription that is not there is passed over. The record is needed as long as any data log
        that has messages now, because without it a replay would have some of them acknowledged, or pending, as before.
        """
        subscriber = self.by_number.get(number)
        if subscriber is None:
            return
        for priority, first in firsts:
            lane = self.lane(number, priority)
            assert isinstance(lane, SubscriptionLane)
            lane.seek(first)
        if data_log == NO_RECORD:
            return
        lanes = persistent_lanes_of(number)  # what is not persistent has no place in a journal, and stays as it is
        self._index.attempts.forget_lanes(lanes)
        self._index.forget_put_off_lanes(lanes)
        needed = {found for found, use in self._index.uses.items() if use.pending_messages and found != data_log}
        self._index.use(data_log).acked_data_logs.update(needed)

    def delete_topic(self, number: int) -> None:
        """End a topic's subscriptions, whoever has them. What is no topic is passed over. O(subscriptions).

        Requires: the index forgets the topic's lanes.
        """
        if self.is_topic(number):
            del self._numbers[bisect_left(self._numbers, number)]
        topic = self._topics.pop(number, None)
        if topic is not None:
            for subscription in topic.subscribers:
                del self.by_number[subscription]
                self._index.attempts.forget(subscription)
                self._index.forget_put_off(subscription)
            for lane in topic.lanes:
                lane.end()

    def readers(self) -> Iterator[Subscriber]:
        """Yield the subscriptions that somebody made, durable or not: all but retentions."""
        return (subscriber for subscriber in self.by_number.values() if not subscriber.facts.is_retention)

    def retention(self, topic: int) -> Subscriber | None:
        """Return what stands for the messages that a topic keeps beyond all acks; None: it keeps none."""
        found = self._topics.get(topic)
        return None if found is None else found.retention

    def _lanes(self) -> Iterator[TopicLane]:
        return (lane for topic in self._topics.values() for lane in topic.lanes)

    def lane_numbered(self, number: int) -> JournaledLane:
        """Return the lane of (destination or subscription << 4 | priority)."""
        return self.lane(number >> LANE_SHIFT, number & LANE_MASK)

    def lane(self, number: int, priority: int) -> JournaledLane:
        """Return the lane that acks of this number speak of: a subscription's, or a destination's own."""
        subscriber = self.by_number.get(number)
        if subscriber is None:
            return self._index.lane(number, priority)
        lane = subscriber.lanes[priority]
        if lane is None:
            self._index.lane(subscriber.facts.topic, priority)
            lane = subscriber.lanes[priority]
            assert lane is not None
        return lane

    # ------------------------------------------------------------------ the journal's state

    def describe(self, state: State) -> State:
        """Put into a state what must be known of subscriptions, and return it."""
        state.subscriptions = [found.facts for found in self.by_number.values() if found.is_durable]
        state.next_number = self.next_number
        return state

    def apply(self, state: State) -> None:
        """Keep the subscriptions that a state names, and no others.

        Requires: its destinations are registered, its lanes skipped to.
        """
        named = {facts.number for facts in state.subscriptions}
        for number in [number for number in self.by_number if number not in named]:
            self.unsubscribe(number)
        for facts in state.subscriptions:
            self.subscribe(facts)
        self.next_number = max(self.next_number, state.next_number)

    def catch_up(self, lanes: Sequence[SubscriptionLane]) -> None:
        """Let these take in what was sent, so that `note_backlogs` finds little left. O(lanes + blocks sent)."""
        for lane in lanes:
            if lane.has_pending_set:
                lane.catch_up()

    def durable_lanes(self) -> list[SubscriptionLane]:
        """Return the lanes of all durable subscriptions. O(subscriptions)."""
        return [lane for topic in self._lanes() for lane in topic.subscribers.values() if lane.is_durable]

    def note_backlogs(self) -> list[NotedBacklogs]:
        """Note what the durable ones have not acknowledged, for the root of a checkpoint. `forget_noted` must follow.

        O(subscriptions). What was noted is read without the lock.
        """
        return [lane.note_backlogs() for lane in self._lanes()]

    def forget_noted(self) -> None:
        """Forget the notes: nobody reads them any more."""
        for lane in self._lanes():
            lane.forget_noted()
        self._backlogs.forget_noted()

    def restore(self, backlogs: Iterable[Backlog]) -> None:
        """Take over the backlogs of a checkpoint. What only those needed that were not durable is swept next."""
        for backlog in backlogs:
            subscriber = self.by_number.get(backlog.lane_number >> LANE_SHIFT)
            lane = subscriber.lanes[backlog.lane_number & LANE_MASK] if subscriber is not None else None
            if lane is not None:
                lane.restore(backlog)
        for topic_lane in self._lanes():
            topic_lane.touch_all()

    @property
    def charge_bytes(self) -> int:
        """Return what is charged for what subscriptions have of lanes. O(subscriptions)."""
        return self._backlogs.noted_charge + sum(lane.subscribers_charge for lane in self._lanes())

    # ------------------------------------------------------------------ what nobody needs

    @property
    def touched_blocks(self) -> int:
        """Blocks that hold something that may not be needed any more."""
        return sum(lane.touched.count for lane in self._lanes())

    def sweep(self, blocks: int = SEQUENCE_MAX) -> int:
        """Let go of what no subscription needs, in up to that many blocks; return in how many it did, or 0.

        Fewer of a topic with many subscriptions, because each of them is asked. `is_behind` is set where a checkpoint
        must make room first.
        """
        self.is_behind = False
        swept = 0
        for lane in self._lanes():
            price = 1 + len(lane.subscribers) // ASKED_AT_ONCE
            while lane.touched and blocks > 0:
                if self._index.is_nearly_full:
                    self.is_behind = True
                    return swept
                lane.sweep()
                blocks -= price
                swept += 1
        return swept

    def _check(self) -> None:
        for subscriber in self.by_number.values():
            for lane in filter(None, subscriber.lanes):
                assert lane.topic.subscribers[subscriber.facts.number] is lane
