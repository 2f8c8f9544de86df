"""Topics: all topics of a store. A topic is a row until it is used, and an object while it is open.

One record in the journal makes a topic, and one deletes it. After a restart, topics in use are open again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager

from ...store.environment.late_log import LateLogger
from ...store.errors import (
    Closed,
    SelectorError,
    TransactionError,
)
from ...store.format.destination_table import DestinationTable
from ...store.format.state import TOPIC
from ...store.index.subscriptions import SUBSCRIBER_BYTES, Subscriptions
from ...store.message_store import MessageStore
from ...store.numbering import LANE_MASK, LANE_SHIFT
from ...store.records.destination_records import DestinationRecords
from ...store.state.property_table import PropertyTable
from ..config.policies import Policies
from ..config.policy import matches
from ..config.temporary import raise_if_temporary
from ..core.areas.target_area import TargetArea
from ..core.confirmer import Confirmer
from ..core.destinations.destinations import Destinations
from ..core.destinations.overhead import (
    OPEN_SUBSCRIPTION_BYTES,
    OPEN_TOPIC_BYTES,
    DestinationOverhead,
    row_bytes,
)
from ..core.lifecycle import Lifecycle
from ..core.model import DestinationState, PersistentLaneState, Taker
from ..core.monitor import Monitor
from ..core.settling.removal import Removals
from ..selectors.selector import compile_selector
from ..transactions.transaction import TransactionRegistry
from .latest_keys import KeyMemory
from .retention.eviction import Evictor
from .retention.topic_retention import TopicRetention
from .state import SubscriptionState, TopicState
from .subscriptions.open_subscriptions import OpenSubscriptions
from .subscriptions.patterns import PatternRegistry

logger = LateLogger("forebay.dispatch")


class Topics:
    """All topics by name and number: opens, closes, makes and deletes them. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        records: DestinationRecords,
        rows: DestinationTable,
        subscribers: Subscriptions,
        properties: PropertyTable,
        target_area: TargetArea,
        confirmer: Confirmer,
        destinations: Destinations,
        removals: Removals,
        overhead: DestinationOverhead,
        transactions: TransactionRegistry,
        policies: Policies,
        subscriptions: OpenSubscriptions,
        patterns: PatternRegistry,
        retention: TopicRetention,
        keys: KeyMemory,
    ) -> None:
        """rows: all queues and topics there are. subscribers: what the store has of each subscription.

        properties: of the host, among which retained messages are. patterns: may have a consumer for a topic that is
        made. keys: pays for what "latest_per_key" knows.
        """
        self._monitor = monitor
        self._store = store
        self._records = records
        self._properties = properties
        # All queues and topics that exist, open or not.
        self._rows = rows
        self._subscribers = subscribers
        self._target_area = target_area
        self._confirmer = confirmer
        self._destinations = destinations
        self._removals = removals
        self._overhead = overhead
        self._transactions = transactions
        self._policies = policies
        self._subscriptions = subscriptions
        self._patterns = patterns
        self._retention = retention
        self._keys = keys
        # Open topics by name.
        self.by_name: dict[str, TopicState] = {}

    def restore(self) -> None:
        """Take over what opening the store found. Requires: the lock."""
        by_number: dict[int, TopicState] = {}
        used = self._destinations.used_at_open()
        used |= {facts.topic for facts in self._subscribers.table.encoded()}
        for destination in self._rows.values():
            if destination.kind == TOPIC:
                if destination.number in used or self._policies.of(destination.name).retains:
                    by_number[destination.number] = self._add(destination.number, destination.name)
        for pending_lane in self._store.lanes():
            topic = by_number.get(pending_lane.destination_number)
            if topic is not None:
                topic.put_lane(pending_lane.priority, topic.make_lane(pending_lane.priority, self._store))
        for facts in self._subscribers.table.encoded():
            if facts.selector is not None:
                self._restore_selector(by_number[facts.topic], facts.number, facts.selector)

    def _restore_selector(self, topic: TopicState, number: int, text: str) -> None:
        """Take over an open subscription with a selector: messages that do not match are acknowledged for it."""
        subscriber = self._subscribers.opened(number)
        assert subscriber is not None
        try:
            self._subscriptions.begin(SubscriptionState(topic, subscriber, compile_selector(text)))
        except SelectorError as error:
            logger.error(
                "the selector of subscription %r can't be used: %s",
                subscriber.facts.name,
                error,
                event="subscription_selector_unusable",
            )

    def topic(self, name: str) -> TopicState:
        """Return the topic of a name, open. A new topic is recorded in the journal.

        Closed: the store is closed, or a temporary topic of that name is gone. StoreFull: memory has no room for it.
        """
        self._monitor.raise_if_closed()
        topic = self.by_name.get(name)
        if topic is not None:
            return topic
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            number = self._rows.number_of(TOPIC, name)
            if number is None:
                raise_if_temporary(name)
                topic = self.create(name)
            else:
                topic = self.opened(number)
            position = self._store.position
        self._confirmer.confirm(position)
        return topic

    def create(self, name: str, *, is_temporary: bool = False) -> TopicState:
        """Record a new topic, which is not synced yet. It joins patterns unless it is temporary.

        Requires: the lock; there is none of that name.
        """
        found = [] if is_temporary else self._patterns.matching(name)
        self._destinations.require_row(name)
        charge_bytes = row_bytes(name) + OPEN_TOPIC_BYTES
        members_bytes = (SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES) * len(found)
        self._destinations.make_room(charge_bytes + members_bytes)
        self._overhead.require(charge_bytes + members_bytes)
        with self._overhead.one_more(charge_bytes):
            destination = self._records.create(name, TOPIC, is_temporary=is_temporary)
            topic = self._add(destination.number, name)
            for pattern in found:
                self._patterns.join(pattern, topic)
        self._retention.apply(topic)
        return topic

    # ------------------------------------------------------------------ open and closed topics

    @property
    def count(self) -> int:
        """Number of topics, open or not."""
        return self._rows.count(TOPIC)

    def names(self) -> list[str]:
        """Return the names of all topics, sorted. Requires: the lock."""
        return self._rows.names(TOPIC)

    def exists(self, name: str) -> bool:
        """Return whether there is a topic of that name. Requires: no lock."""
        with self._monitor.lock:
            return self._rows.number_of(TOPIC, name) is not None

    def numbers(self) -> list[int]:
        """Return the numbers of all topics, by name. Requires: the lock."""
        return self._rows.numbers(TOPIC)

    def opened(self, number: int) -> TopicState:
        """Return the existing topic of a number, open. Requires: the lock. StoreFull: memory has no room for it."""
        name = self._rows[number].name
        topic = self.by_name.get(name)
        if topic is None:
            self._destinations.make_room(OPEN_TOPIC_BYTES)
            with self._overhead.one_more(OPEN_TOPIC_BYTES):
                topic = self._add(number, name)
            self._destinations.count_on(topic)
        return topic

    def opened_to_delete(self, number: int) -> TopicState:
        """Return the existing topic of a number, open, as Destinations.opened_to_delete does. Requires: the lock."""
        name = self._rows[number].name
        topic = self.by_name.get(name)
        if topic is None:
            self._overhead.must_have(OPEN_TOPIC_BYTES)
            topic = self._add(number, name)
            self._destinations.count_on(topic)
        return topic

    @contextmanager
    def held_open(self, topic: TopicState, *, is_to_go: bool = False) -> Iterator[TopicState]:
        """Keep a known topic open while a call works with it. Requires: no lock. StoreFull.

        is_to_go: the call deletes the topic, so it needs no room in memory.
        """
        with self._monitor.lock, self._monitor.whole:
            number = self._destinations.number_now(topic) if is_to_go and topic.is_reopenable else None
            held = self._current(topic) if number is None else self.opened_to_delete(number)
            held.calls_under_way += 1
        with self._destinations.released(held):
            yield held

    @contextmanager
    def held_reopened(self, topic: TopicState) -> Iterator[TopicState]:
        """Keep a topic open as held_open does; make it anew if it was deleted as inactive.

        Closed: a caller has deleted it. StoreFull. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            held = self._current(topic)
            is_new = held.is_reopenable
            if is_new:
                if topic.lifecycle is Lifecycle.CLOSED and topic.inactive_seconds is None:
                    raise Closed("the topic")
                raise_if_temporary(topic.name)
                held = self.create(topic.name)
            held.calls_under_way += 1
            position = self._store.position
        with self._destinations.released(held):
            if is_new:
                self._confirmer.confirm(position)
            yield held

    @contextmanager
    def held_matching(self, pattern: str) -> Iterator[list[TopicState]]:
        """Open all topics that a pattern matches, except temporary ones, and keep them open in the block. StoreFull.

        Requires: the lock.
        """
        found: list[TopicState] = []
        try:
            for name, number in zip(self.names(), self.numbers(), strict=True):
                if matches(pattern, name) and not self._rows[number].is_temporary:
                    found.append(self.opened(number))
                    found[-1].calls_under_way += 1
            yield found
        finally:
            for topic in found:
                topic.calls_under_way -= 1

    def _current(self, topic: TopicState) -> TopicState:
        number = self._destinations.number_now(topic) if topic.is_reopenable else None
        return topic if number is None else self.opened(number)

    def current(self, topic: TopicState) -> TopicState:
        """Return the open topic for a known one: the same, or opened again if it was closed. Requires: no lock.

        If the topic was deleted as inactive, return the topic that has its name now, if there is one. StoreFull.
        """
        if not topic.is_reopenable:
            return topic
        with self._monitor.lock, self._monitor.whole:
            return self._current(topic)

    def for_report(self, topic: TopicState) -> TopicState:
        """Return a topic with what a report shows of it. Requires: the lock."""
        number = self._destinations.number_now(topic) if topic.is_reopenable else None
        return topic if number is None else self.numbered_for_report(number) or topic

    def find(self, name: str) -> TopicState | None:
        """Return the topic of a name with what a report shows of it; None if there is none. Requires: the lock."""
        number = self._rows.number_of(TOPIC, name)
        return None if number is None else self.numbered_for_report(number)

    def numbered_for_report(self, number: int) -> TopicState | None:
        """Return the topic of a number with what a report shows of it; None if it is deleted. Requires: the lock.

        For a closed topic this is a separate object, which only the report uses.
        """
        known = self._rows.get(number)
        topic = self.by_name.get(known.name) if known is not None else None
        if topic is None and known is not None:
            topic = self._make(number, known.name)
            topic.count_on(self._destinations.counted(number))
            topic.inactive_seconds = self._destinations.inactive_seconds(number, known.name)
        return topic

    def close_named(self, name: str, undecided: Container[int]) -> bool:
        """Close the topic of a name as `close_idle` does, if it is open. Requires: the lock."""
        topic = self.by_name.get(name)
        return topic is not None and self.close_idle(topic, undecided)

    def closed(self) -> Iterator[TopicState]:
        """Yield each closed topic, by name, with what a report shows of it. Requires: the lock."""
        for name, number in zip(self.names(), self.numbers(), strict=True):
            if name not in self.by_name and (topic := self.numbered_for_report(number)) is not None:
                yield topic

    def close_idle(self, topic: TopicState, undecided: Container[int]) -> bool:
        """Close a topic if nothing but its counters would be lost; return whether it was closed.

        undecided: numbers that transactions without an outcome know. Requires: the lock.
        """
        if not self._destinations.can_close(topic, undecided):
            return False
        del self.by_name[topic.name]
        for fan_out in topic.fan_outs.values():
            self._destinations.keep_non_persistent(fan_out.pool, fan_out.next_sequence)
        self._destinations.close(topic, OPEN_TOPIC_BYTES)
        topic.drop()
        return True

    def _add(self, number: int, name: str) -> TopicState:
        topic = self.by_name[name] = self._make(number, name)
        self._destinations.apply_policy(topic)
        return topic

    def _make(self, number: int, name: str) -> TopicState:
        policy, evictor = self._policies.of(name), None
        if policy.subscriber_max_messages is not None:
            most, eviction, key_name = policy.subscriber_max_messages, policy.eviction, policy.eviction_key
            evictor = Evictor(self._removals, most, eviction, key_name, self._keys)
        return TopicState(
            self._target_area, number, name, self._subscribers, evictor, self._subscriptions, self._properties
        )

    def delete(self, topic: TopicState) -> None:
        """Delete a topic with its subscriptions and all messages that wait for them. Requires: no lock.

        One record stands for all of it, so a crash leaves all of it or nothing. If the record can't be written, nothing
        has changed.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            self.delete_locked(topic)
            position = self._store.position
        try:
            self._confirmer.confirm(position)
            while self._subscriptions.forget_some():
                pass
        finally:
            self._monitor.run_deferred()

    def delete_locked(self, topic: TopicState) -> None:
        """Delete a topic; its record is not synced yet. A second call does nothing. Requires: the lock.

        A subscription that nobody reads and that has no state in RAM costs a microsecond.
        """
        if not topic.is_open:
            return
        subscriptions = topic.subscriptions()
        durable = self._subscribers.table.numbers(topic.number)
        if self._transactions.concern({topic.number, *durable, *(each.number for each in subscriptions)}):
            raise TransactionError(f"a transaction without an outcome knows the topic {topic.name!r}: end it first")
        unread = self._subscriptions.unread(durable, {subscription.number for subscription in topic.kept.values()})
        self._records.delete(topic.number)
        self._subscriptions.forget_later(topic.memory, unread)
        topic.lifecycle = Lifecycle.DELETED
        self._retention.forget(topic)
        del self.by_name[topic.name]
        self._destinations.unregister(topic)
        for subscription in subscriptions:
            self._subscriptions.end(subscription)
        topic.end_admission()
        for lane in topic.all_lanes():
            self._removals.drop_lane(lane)
        topic.drop()
        self._overhead.closed(topic, row_bytes(topic.name) + OPEN_TOPIC_BYTES)

    @property
    def keys_charge(self) -> int:
        """Return what the places of "latest_per_key" should be charged, computed anew. Requires: the lock."""
        return sum(each.latest.charge_bytes for each in self.online() if each.latest is not None)

    def online(self) -> Iterator[SubscriptionState]:
        """Yield every subscription that has a consumer."""
        return (subscription for topic in self.by_name.values() for subscription in topic.online)

    def lane(self, number: int) -> PersistentLaneState:
        """Return the lane of a number, which belongs to a queue, a topic or a durable subscription.

        Requires: the lock.
        """
        priority = number & LANE_MASK
        subscriber = self._subscribers.opened(number >> LANE_SHIFT)
        destination = self._rows[subscriber.facts.topic if subscriber is not None else number >> LANE_SHIFT]
        if destination.kind != TOPIC:
            return self._destinations.lane(number)
        topic = self.opened(destination.number)
        lane = self._destinations.lane_of(topic, priority)
        if subscriber is None:
            return lane
        subscription = topic.durable_subscription(subscriber.facts.name)
        assert subscription is not None
        return topic.keep(subscription).lane_of(lane)

    def subscription(self, number: int) -> SubscriptionState | None:
        """Return the subscription of a number if it is read or has state in RAM. O(subscriptions of its topic)."""
        subscriber = self._subscribers.by_number.get(number)
        if subscriber is None:
            return None
        name = self._rows[subscriber.facts.topic].name
        topic = self.by_name.get(name)
        found = () if topic is None else topic.subscriptions()
        return next((subscription for subscription in found if subscription.number == number), None)

    def consumers(self) -> Iterator[Taker]:
        """Yield the consumers of all subscriptions and patterns, each once."""
        queues: tuple[DestinationState, ...] = (*self._patterns.all(), *self.online())
        return iter(dict.fromkeys(consumer for queue in queues for consumer in queue.consumers()))
