"""Subscriptions: which subscriptions get the messages of each topic.

A durable subscription begins and ends with a record, and the state record that opens each data log restates it. The
root of each checkpoint has the messages that it has not acknowledged; if the root is lost, a replay of the journal
finds them. A subscription that is not durable has no record, so a crash or a close ends it.

A durable subscription that nobody uses is a row of the SubscriptionTable, and a cursor in each lane of its topic. It is
opened, with objects of its own, for as long as somebody uses it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from ..environment.account import OverdraftAccount, Uncounted
from ..format.record import SEQUENCE_MAX, RecordDamaged
from ..format.state_record import TOPIC, Destination, EncodedRows, StateRecord, Subscription, SubscriptionBacklog
from ..numbering import LANE_MASK, LANE_SHIFT, PRIORITIES, persistent_lanes_of
from .backlog_sets import BacklogSets
from .index import Index, LaneMaker
from .journaled_lane import JournaledLane
from .noted_backlogs import NotedBacklogs
from .subscription_table import Cursor, SubscriptionTable
from .topic_lane import NO_RECORD, LaneHome, SubscriptionLane, TopicLane

SUBSCRIBER_BYTES: Final = 480
"""Charge of an open subscription, without its lanes. Measured with tracemalloc over 10,000 subscriptions."""
PART_BLOCKS: Final = 64
"""Blocks of topics that are examined in one hold of the state lock, which takes a few milliseconds."""
ASKED_AT_ONCE: Final = 32
"""Asking so many subscriptions about a block takes as long as all other work for the block."""


class Subscriber:
    """The store's entry of a subscription and its lanes, one for each lane of its topic.

    `facts.name` is "" if the subscription is not durable. A retention is a Subscriber too: it needs all messages that
    its topic keeps although they were acknowledged, and nobody reads it.
    """

    __slots__ = ("facts", "is_durable", "lanes")

    def __init__(self, facts: Subscription, is_durable: bool) -> None:
        self.facts = facts
        self.is_durable = is_durable
        self.lanes: list[SubscriptionLane | None] = [None] * PRIORITIES


class _Topic(LaneHome):
    """A topic that has lanes or subscriptions."""

    __slots__ = ("number", "subscribers", "retention", "lanes", "_topics", "_open")

    def __init__(
        self, topic_number: int, topics: dict[int, _Topic], open_subscription: Callable[[int], object]
    ) -> None:
        """Make the entry of a topic and add it to `topics`.

        topics: the entries by number. This one removes itself when its last lane or subscription has gone.
        open_subscription: opens the subscription of a number.
        """
        self._open = open_subscription
        self.number = topic_number
        # Open subscriptions by number.
        self.subscribers: dict[int, Subscriber] = {}
        self.retention: Subscriber | None = None
        self.lanes: list[TopicLane] = []
        self._topics = topics
        topics[topic_number] = self

    def forget_lane(self, lane: TopicLane) -> None:
        """Forget a lane that is a row of IdleLanes now; with its last lane, forget the topic."""
        self.lanes.remove(lane)
        self.leave_if_empty()

    def open_subscription(self, subscription_number: int) -> None:
        """Make lanes for a subscription that is a row."""
        self._open(subscription_number)

    def leave_if_empty(self) -> None:
        """Remove itself from the topics if it has no lane and no subscription."""
        if not (self.lanes or self.subscribers):
            self._topics.pop(self.number, None)


class Subscriptions(LaneMaker):
    """The subscriptions of a store. The state lock guards it."""

    def __init__(self, index: Index, backlogs: OverdraftAccount | None = None) -> None:
        """Make it without subscriptions.

        backlogs: pays for subscriptions and their sets of messages; None: these are not counted.
        """
        self._index = index
        self._account = backlogs or Uncounted()
        self._backlogs = BacklogSets(self._account)
        # All durable subscriptions, including retentions.
        self.table = SubscriptionTable(self._account)
        index.topic_lane_maker = self
        # Numbers of all topics, sorted.
        self._numbers = array("I")
        # Open subscriptions by number: somebody uses them, or a cursor can't say which messages they need.
        self.by_number: dict[int, Subscriber] = {}
        # Topics that have lanes or subscriptions, by number.
        self._topics: dict[int, _Topic] = {}
        # Number of the next destination or subscription. A number is never used again.
        self.next_number = 1
        # Whether the last `remove_unneeded` stopped early, because a checkpoint must make room first.
        self.is_behind = False

    def reset(self) -> None:
        """Forget everything, before a full replay. The index is reset with it."""
        for lane in self._lanes():
            lane.end_subscriptions()
        self._account.release(SUBSCRIBER_BYTES * len(self.by_number))
        self.table.clear()
        self.by_number.clear()
        self._topics.clear()
        del self._numbers[:]
        self.next_number = 1

    # ------------------------------------------------------------------ topics

    def register(self, destination: Destination) -> None:
        """Note that a destination exists. Lanes of a topic are made as TopicLanes from now on."""
        self._note_number(destination.number)
        if destination.kind == TOPIC and not self.is_topic(destination.number):
            insort(self._numbers, destination.number)
            for priority in range(PRIORITIES):
                known = self._index.find_lane(destination.number << LANE_SHIFT | priority)
                if known is not None:  # the record that created the topic was lost, and messages came before this one
                    lane = self.make_lane(destination.number, priority, 0)
                    lane.replace(known)
                    self._index.lanes[lane.number] = lane

    def _note_number(self, number: int) -> None:
        self.next_number = max(self.next_number, number + 1)

    def is_topic(self, destination_number: int) -> bool:
        """Return whether a destination is a topic. O(log topics)."""
        at = bisect_left(self._numbers, destination_number)
        return at < len(self._numbers) and self._numbers[at] == destination_number

    def _topic(self, topic_number: int) -> _Topic:
        """Return the entry of a topic, made if needed."""
        return self._topics.get(topic_number) or _Topic(topic_number, self._topics, self.open_numbered)

    def make_lane(self, destination_number: int, priority: int, next_sequence: int) -> TopicLane:
        """Make a lane of a topic whose next message has that sequence, and add it to each subscription."""
        topic = self._topic(destination_number)
        lane = TopicLane(self._index.cache, self._index.data_log_uses, destination_number, priority, self._backlogs)
        lane.home = topic
        lane.next_sequence = next_sequence
        topic.lanes.append(lane)
        for subscriber in topic.subscribers.values():
            self._add_lane(subscriber, lane)
        for number in self.table.numbers(destination_number):
            if number not in self.by_number:
                lane.add_cursor(number)
        return lane

    def _add_lane(self, subscriber: Subscriber, topic_lane: TopicLane, cursor: Cursor | None = None) -> None:
        lane = subscriber.lanes[topic_lane.priority] = SubscriptionLane(
            topic_lane, subscriber.facts.number, is_durable=subscriber.is_durable, cursor=cursor
        )
        lane.enter()
        lane.delayed = self._index.delayed.get(lane.number)

    # ------------------------------------------------------------------ opening, and becoming rows

    def __contains__(self, subscription_number: int) -> bool:
        return subscription_number in self.by_number or subscription_number in self.table

    @property
    def count(self) -> int:
        """Number of subscriptions, durable or not, open or not."""
        return len(self.table) + sum(not each.is_durable for each in self.by_number.values())

    def encoded(self) -> EncodedRows[Subscription]:
        """Return all durable subscriptions as a record has them. It copies bytes and makes no objects."""
        return self.table.encoded()

    def numbers(self) -> set[int]:
        """Return the numbers of all subscriptions."""
        return {*self.table, *self.by_number}

    def open_numbered(self, subscription_number: int) -> Subscriber | None:
        """Open a subscription, if it is not open, and return it. None: there is none. O(log subscriptions)."""
        subscriber = self.by_number.get(subscription_number)
        if subscriber is None and (facts := self.table.find(subscription_number)) is not None:
            topic = self._topic(facts.topic)
            subscriber = self._add(topic, Subscriber(facts, is_durable=True))
            for lane in topic.lanes:
                self._add_lane(subscriber, lane, lane.cursors.take(subscription_number))
        return subscriber

    def _add(self, topic: _Topic, subscriber: Subscriber) -> Subscriber:
        self._account.charge(SUBSCRIBER_BYTES)
        self.by_number[subscriber.facts.number] = topic.subscribers[subscriber.facts.number] = subscriber
        return subscriber

    def for_report(self, subscription_number: int) -> Subscriber | None:
        """Return a subscription, to read its present state only. None: there is none.

        A subscription that is a row stays one: the object that is returned for it must not be changed.
        """
        subscriber = self.by_number.get(subscription_number)
        if subscriber is None and (facts := self.table.find(subscription_number)) is not None:
            subscriber, topic = Subscriber(facts, is_durable=True), self._topics.get(facts.topic)
            for lane in topic.lanes if topic is not None else ():
                subscriber.lanes[lane.priority] = SubscriptionLane(
                    lane, subscription_number, is_durable=True, cursor=lane.cursors.find(subscription_number)
                )
        return subscriber

    def shrink_to_row(self, subscription_number: int) -> None:
        """Make a durable subscription a row again, if a cursor in each lane says which messages it needs.

        Requires: no caller holds it. Later, callers must ask `open_numbered` for it again. O(lanes + subscriptions
        copied).
        """
        subscriber = self.by_number.get(subscription_number)
        if subscriber is None or not subscriber.is_durable or subscriber.facts.is_retention:
            return
        cursors = [(lane, lane.cursor) for lane in subscriber.lanes if lane is not None]
        if any(cursor is None for _, cursor in cursors):
            return
        for lane, cursor in cursors:
            assert cursor is not None
            lane.topic.shrink_to_row(lane, cursor)
        topic = self._topics[subscriber.facts.topic]
        del self.by_number[subscription_number], topic.subscribers[subscription_number]
        self._account.release(SUBSCRIBER_BYTES)
        topic.leave_if_empty()

    def shrink_all_to_rows(self) -> None:
        """Make all subscriptions rows that can be rows. Requires: no caller holds one. O(subscriptions)."""
        for number in list(self.by_number):
            self.shrink_to_row(number)

    def subscribe(self, facts: Subscription, *, is_durable: bool = True) -> Subscriber:
        """Make a subscription, which gets messages that are sent from now on. An existing one stays unchanged."""
        self._note_number(facts.number)
        subscriber = self.open_numbered(facts.number)
        if subscriber is None:
            if not self.is_topic(facts.topic):
                raise RecordDamaged("a subscription to what is no topic")
            topic = self._topic(facts.topic)
            subscriber = self._add(topic, Subscriber(facts, is_durable))
            if is_durable:
                self.table.add(facts)
            if facts.is_retention:
                topic.retention = subscriber
            if not is_durable:
                self._index.delivery_count_table.local.add(facts.number)
            for lane in topic.lanes:
                self._add_lane(subscriber, lane)
        return subscriber

    def unsubscribe(self, subscription_number: int) -> None:
        """End a subscription, if it exists. Messages that only it needed may be removed. O(blocks it had)."""
        subscriber = self.open_numbered(subscription_number)
        if subscriber is not None:
            topic = self._topics[subscriber.facts.topic]
            del self.by_number[subscription_number], topic.subscribers[subscription_number]
            self._account.release(SUBSCRIBER_BYTES)
            self.table.remove(subscription_number)
            if topic.retention is subscriber:
                topic.retention = None
            self._index.delivery_count_table.forget(subscription_number)
            self._index.forget_delayed(subscription_number)
            for lane in filter(None, subscriber.lanes):
                lane.end_subscription()
            topic.leave_if_empty()

    def seek(self, subscription_number: int, firsts: Iterable[tuple[int, int]], data_log: int) -> None:
        """Make the existing messages from some places on pending for a subscription, if there is such a subscription.

        Delivery counts and delays of its persistent messages are forgotten.

        firsts: (priority, sequence) of the lanes to move; other lanes stay as they are.
        data_log: the data log with the seek record, or NO_RECORD. It is kept as long as any data log that has pending
            messages now: without the record, a replay would restore the backlog from before the seek.
        """
        if self.open_numbered(subscription_number) is None:
            return
        for priority, first in firsts:
            lane = self.ensure_acked_lane(subscription_number, priority)
            assert isinstance(lane, SubscriptionLane)
            lane.seek(first)
        if data_log == NO_RECORD:
            return
        # Non-persistent messages have no place in a journal, and stay unchanged.
        lanes = persistent_lanes_of(subscription_number)
        self._index.delivery_count_table.forget_lanes(lanes)
        self._index.forget_delayed_lanes(lanes)
        needed = {
            found for found, use in self._index.data_log_uses.items() if use.pending_messages and found != data_log
        }
        self._index.use(data_log).acked_data_logs.update(needed)

    def delete_topic(self, topic_number: int) -> None:
        """End the subscriptions of a topic, including those in use. Does nothing for a queue. O(subscriptions).

        Requires: the index forgets the topic's lanes.
        """
        if self.is_topic(topic_number):
            del self._numbers[bisect_left(self._numbers, topic_number)]
        topic = self._topics.pop(topic_number, None)
        numbers = set(self.table.remove_topic(topic_number))
        if topic is not None:
            numbers |= topic.subscribers.keys()
            for subscription in topic.subscribers:
                del self.by_number[subscription]
            self._account.release(SUBSCRIBER_BYTES * len(topic.subscribers))
            for lane in topic.lanes:
                lane.end_subscriptions()
        for subscription in sorted(numbers):
            self._index.delivery_count_table.forget(subscription)
            self._index.forget_delayed(subscription)

    def readers(self) -> Iterator[Subscriber]:
        """Yield all subscriptions except retentions, durable or not, as `for_report` returns them."""
        for number in sorted(self.numbers()):
            subscriber = self.for_report(number)
            if subscriber is not None and not subscriber.facts.is_retention:
                yield subscriber

    def retention(self, topic: int) -> Subscriber | None:
        """Return the retention of a topic. None: it has none."""
        entry = self._topics.get(topic)
        return None if entry is None else entry.retention

    def topic_lanes(self, topic: int) -> list[TopicLane]:
        """Return the lanes of a topic to which messages were sent, by priority. Requires: the lock."""
        index = self._index
        numbers = (topic << LANE_SHIFT | priority for priority in range(PRIORITIES))
        used = [number for number in numbers if number in index.lanes or number in index.idle]
        lanes = map(index.ensure_lane_numbered, used)
        return [lane for lane in lanes if isinstance(lane, TopicLane)]

    def _lanes(self) -> Iterator[TopicLane]:
        return (lane for topic in self._topics.values() for lane in topic.lanes)

    def ensure_acked_lane_numbered(self, lane_number: int) -> JournaledLane:
        """Return the lane with number (destination or subscription << 4 | priority) as `ensure_acked_lane` does."""
        return self.ensure_acked_lane(lane_number >> LANE_SHIFT, lane_number & LANE_MASK)

    def ensure_acked_lane(self, number: int, priority: int) -> JournaledLane:
        """Return the lane whose acks have this number, of a subscription or a destination. It is made if needed."""
        subscriber = self.open_numbered(number)
        if subscriber is None:
            return self._index.ensure_lane(number, priority)
        lane = subscriber.lanes[priority]
        if lane is None:
            self._index.ensure_lane(subscriber.facts.topic, priority)
            lane = subscriber.lanes[priority]
            assert lane is not None
        return lane

    # ------------------------------------------------------------------ the journal's state

    def describe(self, state: StateRecord) -> StateRecord:
        """Add the durable subscriptions to a state and return it."""
        state.subscriptions = self.table.encoded()
        state.next_number = self.next_number
        return state

    def apply(self, state: StateRecord) -> None:
        """Keep only the subscriptions that a state names.

        Requires: its destinations are registered, and its lanes have skipped to their sequences.
        """
        named = {facts.number for facts in state.subscriptions}
        for number in [number for number in self.numbers() if number not in named]:
            self.unsubscribe(number)
        for facts in state.subscriptions:
            self.subscribe(facts)
        self.next_number = max(self.next_number, state.next_number)

    def catch_up(self, lanes: Sequence[SubscriptionLane]) -> None:
        """Let these lanes catch up with their topics, so that `note_backlogs` finds little left.

        O(lanes + blocks sent).
        """
        for lane in lanes:
            if lane.has_pending_set:
                lane.catch_up()

    def durable_lanes(self) -> list[SubscriptionLane]:
        """Return the lanes of all open durable subscriptions. O(lanes)."""
        return [lane for topic in self._lanes() for lane in topic.subscribers.values() if lane.is_durable]

    def note_backlogs(self) -> list[NotedBacklogs]:
        """Note what durable subscriptions have not acknowledged, for the root of a checkpoint.

        Call `forget_noted` afterwards. O(subscriptions). The notes are read without the lock.
        """
        return [lane.note_backlogs() for lane in self._lanes()]

    def forget_noted(self) -> None:
        """Forget the notes, because the checkpoint has read them."""
        for lane in self._lanes():
            lane.forget_noted()
        self._backlogs.forget_noted()

    def restore(self, backlogs: Iterable[SubscriptionBacklog]) -> None:
        """Take over the backlogs of a checkpoint.

        The next `remove_unneeded` removes messages that only subscriptions needed which were not durable.
        """
        for backlog in backlogs:
            subscriber = self.by_number.get(backlog.lane_number >> LANE_SHIFT)
            lane = subscriber.lanes[backlog.lane_number & LANE_MASK] if subscriber is not None else None
            if lane is not None:
                lane.restore(backlog)
        for topic_lane in self._lanes():
            topic_lane.touch_all()

    @property
    def rows_charge(self) -> int:
        """The charge of the rows of the table, and of the cursors of lanes."""
        return self.table.charge_bytes + sum(lane.cursors.charge_bytes for lane in self._lanes())

    @property
    def charge_bytes(self) -> int:
        """The charge of subscriptions, with their lanes, sets and cursors. O(open subscriptions)."""
        opened_bytes = SUBSCRIBER_BYTES * len(self.by_number) + sum(lane.subscribers_charge for lane in self._lanes())
        return self.table.charge_bytes + opened_bytes + self._backlogs.noted_charge

    # ------------------------------------------------------------------ messages that no subscription needs

    @property
    def touched_blocks(self) -> int:
        """Number of blocks that may have messages which are no longer needed."""
        return sum(lane.touched.count for lane in self._lanes())

    def remove_unneeded_part(self) -> int:
        """Visit as many blocks as one hold of the state lock allows; return as `remove_unneeded` does."""
        return self.remove_unneeded(PART_BLOCKS)

    def remove_unneeded(self, blocks: int = SEQUENCE_MAX) -> int:
        """Remove messages that no subscription needs from up to `blocks` blocks. Return how many blocks were visited.

        A block counts as several if its topic has many subscriptions, because each of them is asked. `is_behind` is set
        if a checkpoint must make room first.
        """
        self.is_behind = False
        visited = 0
        for lane in self._lanes():
            price = 1 + len(lane.subscribers) // ASKED_AT_ONCE
            while lane.touched and blocks > 0:
                if self._index.is_nearly_full:
                    self.is_behind = True
                    return visited
                lane.remove_unneeded()
                blocks -= price
                visited += 1
        return visited

    def _check(self) -> None:
        self.table._check()
        for number, opened in self.by_number.items():
            assert (number in self.table) == opened.is_durable
        for topic_lane in self._lanes():
            durable = {number for number in self.table.numbers(topic_lane.owner_number) if number not in self.by_number}
            assert durable == set(topic_lane.cursors.numbers)
        for subscriber in self.by_number.values():
            for lane in filter(None, subscriber.lanes):
                assert lane.topic.subscribers[subscriber.facts.number] is lane
