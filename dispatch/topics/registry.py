"""Topics: all topics, who subscribes to them, and what is done for subscriptions unasked."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ...cache.budget import Holder
from ...cache.message_memory import MessageMemory
from ...cache.spill.overflow import Overflow
from ...store.errors import (
    Closed,
    ForebayError,
    SelectorError,
    SettingsError,
    StoreFull,
    SubscriptionInUse,
    TransactionError,
)
from ...store.format.record import RecordDamaged
from ...store.format.retained import decode_retained
from ...store.format.state import TOPIC
from ...store.index.subscriptions import SUBSCRIBER_BYTES, Subscriber
from ...store.index.topic_lane import TopicLane
from ...store.late_log import LateLogger
from ...store.maintenance.trimmer import RetentionRule
from ...store.numbering import LANE_MASK, LANE_SHIFT, PRIORITIES
from ..config.policies import Policies
from ..config.policy import matches
from ..config.temporary import raise_if_temporary
from ..consumer.consumer import Consumer
from ..consumer.consumers import Consumers
from ..consumer.options import ConsumerOptions
from ..core.delays import TimedLanes
from ..core.model import NON_PERSISTENT_LANE_BYTES, DestinationState, PersistentLaneState, Taker
from ..core.overhead import (
    FAN_OUT_BYTES,
    OPEN_SUBSCRIPTION_BYTES,
    OPEN_TOPIC_BYTES,
    DestinationOverhead,
    row_bytes,
)
from ..core.parts import CoreParts
from ..core.standing import Standing
from ..selectors.selector import Selector, compile_selector
from ..transactions.transaction import TransactionRegistry
from .cursors import Landing, Target
from .eviction import Evictor
from .latest_keys import KeyMemory
from .patterns import PatternMember, PatternRegistry, PatternState
from .state import FanOut, SubscriptionState, TopicState, UnrecordedStore, Verdicts
from .unmatched import UnmatchedSweeper

logger = LateLogger("forebay.dispatch")

TRIM_SECONDS: Final = 1.0
"""So much longer than its policy says may a topic retain a message."""
FORGOTTEN_AT_ONCE: Final = 500
"""Subscriptions that the caches forget before the state lock is let go: half a millisecond."""
SIEVE_STEPS: Final = 16
"""At one go, so that what else the housekeeper does is not late."""


class Topics(PatternRegistry):
    """All topics, their subscriptions, and what is done for them unasked. The state lock guards it."""

    def __init__(
        self,
        parts: CoreParts,
        *,
        overflow: Overflow,
        overhead: DestinationOverhead,
        timed: TimedLanes,
        consumers: Consumers,
        transactions: TransactionRegistry,
        policies: Policies,
        reading: Holder,
        keys: KeyMemory,
    ) -> None:
        """reading: pays for what the sweeper reads. keys: for what "latest_per_key" knows."""
        self._monitor = parts.monitor
        self._message_store = parts.store
        self._rows = parts.store.destination_table
        """All queues and topics there are, open or not."""
        self._subscribers = parts.store.subscriptions
        self._records = parts.store.subscription_records
        self._target_area = parts.target_area
        self._publisher = parts.publisher
        self._destinations = parts.destinations
        self._removals = parts.removals
        self._overflow = overflow
        self._overhead = overhead
        self._timed = timed
        self._consumers = consumers
        self._transactions = transactions
        self._policies = policies
        self._keys = keys
        self.unrecorded = UnrecordedStore(parts.store)
        self.verdicts = Verdicts()
        self.unmatched_sweeper = UnmatchedSweeper(parts.target_area, self._records, reading)
        self.by_name: dict[str, TopicState] = {}
        self.patterns: dict[PatternState, Selector | None] = {}
        """Those that have a consumer, with its selector."""
        self._trim_at = 0.0
        self._cached: list[tuple[MessageMemory, Subscriber]] = []
        """Subscriptions of deleted topics that the caches are still to forget."""
        self._unretained: dict[TopicState, None] = {}
        """Those whose policy retains, or retains no more, and for which the record of that found no room yet."""

    def restore(self) -> None:
        """Take over what opening found. Requires: the lock."""
        by_number: dict[int, TopicState] = {}
        used = self._destinations.used_at_open()
        used |= {facts.topic for facts in self._subscribers.table.encoded()}
        for destination in self._rows.values():
            if destination.kind == TOPIC:
                if destination.number in used or self._policies.of(destination.name).retains:
                    by_number[destination.number] = self._add(destination.number, destination.name)
        for pending_lane in list(self._message_store.index.lanes.values()):
            topic = by_number.get(pending_lane.destination_number)
            if topic is not None:
                topic.lanes[pending_lane.priority] = topic.make_lane(pending_lane.priority)
        for facts in self._subscribers.table.encoded():
            if facts.selector is not None:
                self._restore_selector(by_number[facts.topic], facts.number, facts.selector)

    def _restore_selector(self, topic: TopicState, number: int, text: str) -> None:
        """Take over a subscription with a selector, which is open: what does not match is acknowledged for it."""
        subscriber = self._subscribers.opened(number)
        assert subscriber is not None
        try:
            self._add_subscription(topic, subscriber, compile_selector(text))
        except SelectorError as error:
            logger.error(
                "the selector of subscription %r can't be used: %s",
                subscriber.facts.name,
                error,
                event="subscription_selector_unusable",
            )

    def topic(self, name: str) -> TopicState:
        """Return the topic of that name, open; a new one is recorded in the journal.

        Closed: the store, or a temporary topic of that name, which is gone. StoreFull: memory has no room for it.
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
            position = self._message_store.position
        self._publisher.confirm(position)
        return topic

    def create(self, name: str, *, is_temporary: bool = False) -> TopicState:
        """Record a new topic, which is not synced yet, and let patterns have it: not one that is temporary.

        Requires: the lock; there is none of that name.
        """
        found = [] if is_temporary else [pattern for pattern in self.patterns if matches(pattern.name, name)]
        self._destinations.require_row(name)
        charge_bytes = row_bytes(name) + OPEN_TOPIC_BYTES
        members_bytes = (SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES) * len(found)
        self._destinations.make_room(charge_bytes + members_bytes)
        self._overhead.require(charge_bytes + members_bytes)
        with self._overhead.one_more(charge_bytes):
            destination = self._message_store.destination_records.create(name, TOPIC, is_temporary=is_temporary)
            topic = self._add(destination.number, name)
            for pattern in found:
                self._join(pattern, topic)
        self._agree_on_retention(topic)
        return topic

    # ------------------------------------------------------------------ open and closed topics

    @property
    def count(self) -> int:
        """How many topics there are, open or not."""
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
        """Return the topic of that number, which exists, open. Requires: the lock. StoreFull: memory has no room."""
        name = self._rows[number].name
        topic = self.by_name.get(name)
        if topic is None:
            self._destinations.make_room(OPEN_TOPIC_BYTES)
            with self._overhead.one_more(OPEN_TOPIC_BYTES):
                topic = self._add(number, name)
            self._destinations.count_on(topic)
        return topic

    def opened_to_delete(self, number: int) -> TopicState:
        """Return the topic of that number, open, as Destinations.opened_to_delete does. Requires: the lock."""
        name = self._rows[number].name
        topic = self.by_name.get(name)
        if topic is None:
            self._overhead.must_have(OPEN_TOPIC_BYTES)
            topic = self._add(number, name)
            self._destinations.count_on(topic)
        return topic

    @contextmanager
    def held_open(self, topic: TopicState, *, is_to_go: bool = False) -> Iterator[TopicState]:
        """Keep a topic that somebody knows open while a call works with it. Requires: no lock. StoreFull.

        is_to_go: the call deletes it, and needs no room for that.
        """
        with self._monitor.lock, self._monitor.whole:
            number = self._destinations.number_now(topic) if is_to_go and topic.is_reopenable else None
            held = self._current(topic) if number is None else self.opened_to_delete(number)
            held.calls_under_way += 1
        with self._destinations.released(held):
            yield held

    @contextmanager
    def held_reopened(self, topic: TopicState) -> Iterator[TopicState]:
        """Keep a topic open as held_open does; one that was deleted for want of use is made anew.

        Closed: somebody else has deleted it. StoreFull. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            held = self._current(topic)
            is_new = held.is_reopenable
            if is_new:
                if topic.standing is Standing.CLOSED and topic.inactive_seconds is None:
                    raise Closed("the topic")
                raise_if_temporary(topic.name)
                held = self.create(topic.name)
            held.calls_under_way += 1
            position = self._message_store.position
        with self._destinations.released(held):
            if is_new:
                self._publisher.confirm(position)
            yield held

    def _current(self, topic: TopicState) -> TopicState:
        number = self._destinations.number_now(topic) if topic.is_reopenable else None
        return topic if number is None else self.opened(number)

    def current(self, topic: TopicState) -> TopicState:
        """Return what stands for a topic that somebody knows: opened again where it was closed. Requires: no lock.

        Of one that was deleted for want of use, the one of that name, if there is one now. StoreFull.
        """
        if not topic.is_reopenable:
            return topic
        with self._monitor.lock, self._monitor.whole:
            return self._current(topic)

    def for_report(self, topic: TopicState) -> TopicState:
        """Return what a report tells of a topic that somebody knows. Requires: the lock."""
        number = self._destinations.number_now(topic) if topic.is_reopenable else None
        return topic if number is None else self.numbered_for_report(number) or topic

    def find(self, name: str) -> TopicState | None:
        """Return what a report tells of a topic; None: there is none of that name. Requires: the lock."""
        number = self._rows.number_of(TOPIC, name)
        return None if number is None else self.numbered_for_report(number)

    def numbered_for_report(self, number: int) -> TopicState | None:
        """Return what a report tells of a topic; None: it is deleted. Requires: the lock.

        Of one that is not open that is an object of its own, which nothing is done with.
        """
        known = self._rows.get(number)
        topic = self.by_name.get(known.name) if known is not None else None
        if topic is None and known is not None:
            topic = self._make(number, known.name)
            topic.count_on(self._destinations.counted(number))
            topic.inactive_seconds = self._destinations.inactive_seconds(number, known.name)
        return topic

    def close_named(self, name: str, undecided: Container[int]) -> bool:
        """Close the topic of that name as `close_idle` does, if it is open. Requires: the lock."""
        topic = self.by_name.get(name)
        return topic is not None and self.close_idle(topic, undecided)

    def closed(self) -> Iterator[TopicState]:
        """Yield what a report tells of each topic that is not open, by name. Requires: the lock."""
        for name, number in zip(self.names(), self.numbers(), strict=True):
            if name not in self.by_name and (topic := self.numbered_for_report(number)) is not None:
                yield topic

    def close_idle(self, topic: TopicState, undecided: Container[int]) -> bool:
        """Close a topic, if all there is to it is what it has counted; return whether it was closed.

        undecided: the numbers that transactions without an outcome know. Requires: the lock.
        """
        if not self._destinations.can_close(topic, undecided):
            return False
        del self.by_name[topic.name]
        for fan_out in topic.fan_outs.values():
            self._destinations.keep_non_persistent(fan_out.pool, fan_out.next_sequence)
        self._destinations.close(topic, OPEN_TOPIC_BYTES)
        topic.drop()
        return True

    # ------------------------------------------------------------------ retention

    def apply_retention_rules(self) -> None:
        """Begin and end what policies retain, as far as opening found it otherwise. Requires: the lock, and that all
        that opening found is charged.
        """
        for topic in self.by_name.values():
            self._agree_on_retention(topic)

    def _agree_on_retention(self, topic: TopicState) -> None:
        """Let the topic retain what its policy says; where that finds no room, `trim` tries again. Requires: the
        lock.
        """
        policy = self._policies.of(topic.name)
        rule = RetentionRule(policy.retain_seconds, policy.retain_size_bytes) if policy.retains else None
        begins, topic.is_retained = topic.retention is None, rule is not None
        self._unretained.pop(topic, None)
        try:
            if rule is not None and begins:
                self._overhead.require(SUBSCRIBER_BYTES)
            self._records.retain(topic.number, rule)
        except StoreFull as full:
            self._unretained[topic] = None
            logger.warning(
                "topic %r can't do yet what its policy says of retaining: %s",
                topic.name,
                full,
                event="retention_put_off",
            )

    def trim(self) -> int:
        """Let go of what topics only retain and is too old or too much, once a second; return how many messages.
        Requires: no lock.
        """
        now = self._monitor.monotonic()
        if now < self._trim_at:
            return 0
        self._trim_at = now + TRIM_SECONDS
        if self._unretained:
            with self._monitor.lock, self._monitor.whole:
                for topic in list(self._unretained):
                    self._agree_on_retention(topic)
        trimmer = self._message_store.cleanup.trimmer
        return trimmer.trim(self._monitor.clock_ms()) if trimmer.is_retaining else 0

    def _add(self, number: int, name: str) -> TopicState:
        topic = self.by_name[name] = self._make(number, name)
        self._destinations.register(topic)
        return topic

    def _make(self, number: int, name: str) -> TopicState:
        policy, evictor = self._policies.of(name), None
        if policy.subscriber_max_messages is not None:
            most, eviction, key_name = policy.subscriber_max_messages, policy.eviction, policy.eviction_key
            evictor = Evictor(self._removals, most, eviction, key_name, self._keys)
        return TopicState(self._target_area, number, name, self._subscribers, evictor, self)

    def _add_subscription(
        self, topic: TopicState, subscriber: Subscriber, selector: Selector | None
    ) -> SubscriptionState:
        subscription = SubscriptionState(topic, subscriber, selector)
        if selector is not None:
            if subscriber.is_durable:
                topic.keep(subscription)
            self.unmatched_sweeper.subscriptions[subscription] = None
        return subscription

    # ------------------------------------------------------------------ subscribing

    def subscribe(
        self, topic: TopicState, name: str | None, options: ConsumerOptions, *, is_shared: bool = False
    ) -> Consumer:
        """Make a consumer of a subscription.

        name: of the durable subscription, which is made if it is not there; None: one that ends with its consumer.
        SubscriptionInUse; SettingsError for another selector than the subscription has.
        """
        deadlines = self._consumers.deadlines
        with self._monitor.lock, self._monitor.whole, deadlines.room(options.deadline_seconds):
            self._monitor.raise_if_closed()
            topic.raise_if_deleted()
            text = options.selector.text if options.selector is not None else None
            found = topic.subscription_for_report(name) if name is not None else None
            if found is not None:
                _require_joinable(found, text, is_shared=is_shared)
            if found is None or found not in topic.online:
                self._consumers.require_room((topic,), options)
            subscription = topic.durable_subscription(name) if found is not None and name is not None else None
            is_new = subscription is None
            if subscription is None:
                subscriber = self._records.subscribe(topic.number, name, text)
                subscription = self._add_subscription(topic, subscriber, options.selector)
            if subscription not in topic.online:
                self._go_online(subscription, is_shared=is_shared)
            consumer = self._consumers.attach(subscription, options)
            refused = self._give_retained((subscription,)) if is_new else None
            position = self._message_store.position
        if refused is not None:
            consumer.close()
            if name is not None:
                self.unsubscribe(topic, name)
            raise refused
        self._publisher.confirm(position)
        return consumer

    def _give_retained(self, subscriptions: Iterable[SubscriptionState]) -> ForebayError | None:
        """Give new subscriptions the retained messages of their topics. Return why one can't have them: no room.

        Requires: the lock; they have a consumer. O(retained messages).
        """
        now_ms = self._message_store.steady.now_ms()
        for subscription in subscriptions:
            topic = subscription.topic
            for value in self._message_store.host_properties.retained(topic.number):
                try:
                    retained = decode_retained(value)
                    if not retained.is_expired(now_ms):
                        self._fan_out(topic, retained.priority).give_retained(subscription, retained)
                except RecordDamaged as damage:
                    logger.error(
                        "a retained message of topic %r can't be used: %s",
                        topic.name,
                        damage,
                        event="retained_message_unusable",
                    )
                except ForebayError as error:
                    return error
        return None

    def forget_retained(self, name: str) -> None:
        """Delete a retained message, if there is one of that name. One record, for which a full store has room.

        Requires: no lock.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            if not self._message_store.host_properties.is_retained(name):
                return
            self._message_store.property_records.change({name: None})
            position = self._message_store.position
        self._publisher.confirm(position)

    def _go_online(self, subscription: SubscriptionState, *, is_shared: bool) -> None:
        """Let a subscription have what arrives, because its first consumer comes. Requires: the lock."""
        topic = subscription.topic
        subscription.is_shared = is_shared
        topic.online[subscription] = None
        subscription.charge()
        if len(topic.online) == 2:
            topic.note_neighbours()
        for _ in subscription.open_lanes():
            pass
        if subscription.is_durable:
            topic.keep(subscription)

    def no_destination(self, pattern: str) -> PatternState:
        """Return what refuses whatever is sent to a pattern."""
        return PatternState(self._target_area, pattern, self)

    def subscribe_pattern(self, pattern: str, options: ConsumerOptions) -> Consumer:
        """Make a consumer of all topics that match, those that come later among them."""
        with self._monitor.lock, self._monitor.whole, self._consumers.deadlines.room(options.deadline_seconds):
            self._monitor.raise_if_closed()
            with self._matching(pattern) as found:
                self._consumers.require_room(found, options)
                pattern_state = PatternState(self._target_area, pattern, self)
                consumer = self._consumers.attach(pattern_state, options)
                self.patterns[pattern_state] = options.selector
                for topic in found:
                    self._join(pattern_state, topic)
            refused = self._give_retained(pattern_state.members.values())
        if refused is not None:
            consumer.close()
            raise refused
        self._monitor.run_deferred()
        return consumer

    @contextmanager
    def _matching(self, pattern: str) -> Iterator[list[TopicState]]:
        """Open all topics that a pattern names, and keep them open meanwhile. StoreFull. Requires: the lock."""
        destinations, found = self._rows, list[TopicState]()
        try:
            for name, number in zip(self.names(), self.numbers(), strict=True):
                if matches(pattern, name) and not destinations[number].is_temporary:
                    found.append(self.opened(number))
                    found[-1].calls_under_way += 1
            yield found
        finally:
            for topic in found:
                topic.calls_under_way -= 1

    def _join(self, pattern_state: PatternState, topic: TopicState) -> None:
        """Let a pattern's consumer have what is sent to a topic from now on. Requires: the lock; it is charged."""
        selector = self.patterns[pattern_state]
        text = selector.text if selector is not None else None
        subscriber = self._records.subscribe(topic.number, None, text)
        member = pattern_state.members[topic] = PatternMember(topic, subscriber, selector, pattern_state)
        if selector is not None:
            self.unmatched_sweeper.subscriptions[member] = None
        self._go_online(member, is_shared=False)
        self._target_area.subscribe(member, selector)

    def forget_pattern(self, pattern_state: PatternState) -> None:
        """See PatternRegistry."""
        del self.patterns[pattern_state]

    def unsubscribe(self, topic: TopicState, name: str) -> None:
        """End a durable subscription. SettingsError where there is none, SubscriptionInUse while it has a consumer."""
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            with self._idle(topic, name) as subscription:
                self._records.unsubscribe(subscription.subscriber)
                topic.kept.pop(name, None)
                self._forget(subscription)
            position = self._message_store.position
        self._publisher.confirm(position)

    @contextmanager
    def _idle(self, topic: TopicState, name: str) -> Iterator[SubscriptionState]:
        """Open a durable subscription that nobody uses, and put it away. Requires: the lock. SettingsError where there
        is none.

        SubscriptionInUse while it has a consumer, TransactionError while a transaction without an outcome knows it.
        """
        found = topic.subscription_for_report(name)
        if found is None:
            raise SettingsError(f"topic {topic.name!r} has no durable subscription {name!r}")
        if found in topic.online:
            raise SubscriptionInUse(topic.name, name)
        if self._transactions.concern((found.number,)):
            raise TransactionError(
                f"a transaction without an outcome knows the durable subscription {name!r} of topic "
                f"{topic.name!r}: end it first"
            )
        subscription = topic.durable_subscription(name)
        assert subscription is not None
        try:
            yield subscription
        finally:
            self._put_away(subscription)

    def seek(self, topic: TopicState, name: str, target: Target) -> Landing:
        """Move the cursor of a durable subscription; return where it landed. Requires: no lock.

        SettingsError where there is none, SubscriptionInUse while it has a consumer, TransactionError while a
        transaction without an outcome knows it.
        """
        lanes, firsts = self._places(topic, target)
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            topic.raise_if_deleted()
            with self._idle(topic, name) as subscription:
                self._records.seek(subscription.subscriber, _within(firsts, lanes))
                self._begin_anew(subscription)
                sequences, messages = _cursor(subscription.subscriber)
                if subscription.admission is not None:
                    subscription.admission.room_came()
            position = self._message_store.position
        self._publisher.confirm(position)
        return self._landing(lanes, sequences, messages)

    def _places(self, topic: TopicState, target: Target) -> tuple[list[TopicLane], list[tuple[int, int]]]:
        """Return the lanes there are, and (priority, sequence) where to go. Requires: no lock."""
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            topic.raise_if_deleted()
            lanes = topic.stored_lanes()
        return lanes, target.firsts(lanes, self._message_store.positions)

    def read(self, topic: TopicState, target: Target, options: ConsumerOptions) -> Consumer:
        """Return a consumer of a subscription without a name that begins at that place. Requires: no lock."""
        lanes, firsts = self._places(topic, target)
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            topic.raise_if_deleted()
            self._consumers.require_room((topic,), options)
            text = options.selector.text if options.selector is not None else None
            subscriber = self._records.subscribe(topic.number, None, text)
            self._records.seek(subscriber, _within(firsts, lanes))
            subscription = self._add_subscription(topic, subscriber, options.selector)
            subscription.is_reader = True
            self._go_online(subscription, is_shared=False)
            consumer = self._consumers.attach(subscription, options)
            position = self._message_store.position
        self._publisher.confirm(position)
        return consumer

    def _begin_anew(self, subscription: SubscriptionState) -> None:
        """Forget what dispatch knows of the persistent messages of a subscription that nobody reads."""
        for lane in filter(None, subscription.lanes):
            self._removals.drop_lane(lane)
            lane.memory.head_queue_cache.reopen(lane.pending_lane.number)
        subscription.lanes = [None] * PRIORITIES

    def _landing(self, lanes: Sequence[TopicLane], sequences: dict[int, int], messages: int) -> Landing:
        positions = self._message_store.positions
        times = [positions.sent_at(lane, sequences[lane.priority]) for lane in lanes if lane.priority in sequences]
        return Landing(sequences, min((time for time in times if time is not None), default=None), messages)

    def delete(self, topic: TopicState) -> None:
        """Delete a topic with its subscriptions and everything they wait for. Requires: no lock.

        One record stands for all of it, so a crash leaves all of it or none. What that record could not be written for
        is as it was.
        """
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            self.delete_locked(topic)
            position = self._message_store.position
        try:
            self._publisher.confirm(position)
            while self._forget_cached():
                pass
        finally:
            self._monitor.run_deferred()

    def delete_locked(self, topic: TopicState) -> None:
        """Delete a topic, which is not synced yet. Twice is once. Requires: the lock.

        A subscription that nobody reads and of which nothing is remembered costs a microsecond.
        """
        if not topic.is_open:
            return
        subscriptions = topic.subscriptions()
        known = self._subscribers
        durable = known.table.numbers(topic.number)
        if self._transactions.concern({topic.number, *durable, *(each.number for each in subscriptions)}):
            raise TransactionError(f"a transaction without an outcome knows the topic {topic.name!r}: end it first")
        kept = {subscription.number for subscription in topic.kept.values()}
        unread = [number for number in durable if number in known.by_number and number not in kept]
        cached = [(topic.memory, known.by_number[number]) for number in unread]
        self._message_store.destination_records.delete(topic.number)
        self._cached += cached
        topic.standing = Standing.DELETED
        self._unretained.pop(topic, None)
        del self.by_name[topic.name]
        self._destinations.unregister(topic)
        for subscription in subscriptions:
            self._end(subscription)
        if topic.admission is not None:
            topic.admission.close("the topic")
        for lane in topic.all_lanes():
            self._removals.drop_lane(lane)
        topic.drop()
        self._overhead.one_less(row_bytes(topic.name) + OPEN_TOPIC_BYTES)

    def _forget_cached(self) -> bool:
        """Let the caches forget some hundred subscriptions that were unread when their topic was deleted.

        Return whether there are more. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.whole:
            for memory, subscriber in self._cached[-FORGOTTEN_AT_ONCE:]:
                for lane in filter(None, subscriber.lanes):
                    memory.pending_cache.forget(lane.number)
                    memory.head_queue_cache.forget(lane.number)
            del self._cached[-FORGOTTEN_AT_ONCE:]
            return bool(self._cached)

    def _end(self, subscription: SubscriptionState) -> None:
        """End a subscription of a topic that is deleted, and its consumer. Requires: the lock."""
        subscription.standing = Standing.DELETED
        lanes = [lane for lane in subscription.lanes if lane is not None]
        subscription.end_consumers()
        if subscription.is_durable:
            self._forget(subscription)
        for lane in lanes:
            self._removals.drop_lane(lane)

    def fan_out(self, topic: TopicState, priority: int) -> FanOut:
        """Return where non-persistent messages of that priority go. Made on first use."""
        with self._monitor.lock, self._monitor.whole:
            topic.raise_if_deleted()
            if priority not in topic.fan_outs:
                lanes_bytes = NON_PERSISTENT_LANE_BYTES * len(topic.online)
                self._overhead.require_lanes(topic, FAN_OUT_BYTES + lanes_bytes)
            return self._fan_out(topic, priority)

    def _fan_out(self, topic: TopicState, priority: int) -> FanOut:
        if priority not in topic.fan_outs:
            topic.fan_outs[priority] = FanOut(self._destinations, self._overflow, self._removals, topic, priority)
        return topic.fan_outs[priority]

    def leave(self, subscription: SubscriptionState) -> None:
        """See SubscriptionRegistry. One that is not durable ends with it."""
        del subscription.topic.online[subscription]
        if subscription.is_durable and subscription.is_blank:
            self._drop_non_persistent(subscription)
            subscription.let_go()
            del subscription.topic.kept[subscription.subscriber.facts.name]
            self._put_away(subscription)
        if not subscription.is_durable:
            self._records.unsubscribe(subscription.subscriber)
            self._forget(subscription)
            # A transaction may have deliveries of it, and gives them back to nobody.
            subscription.standing = Standing.DELETED

    def _put_away(self, subscription: SubscriptionState) -> None:
        """Make rows of what the store has of a durable subscription that nobody uses, if that can be."""
        if subscription.subscriber.facts.name in subscription.topic.kept:
            return
        for pending_lane in filter(None, subscription.subscriber.lanes):
            for cache in (subscription.memory.pending_cache, subscription.memory.head_queue_cache):
                cache.forget(pending_lane.number)
            subscription.memory.head_queue_cache.reopen(pending_lane.number)
        self._subscribers.put_away(subscription.number)

    def _drop_non_persistent(self, subscription: SubscriptionState) -> None:
        """Drop the non-persistent messages of a subscription, and their files. Requires: the lock."""
        for priority, lane in enumerate(subscription.non_persistent_lanes):
            if lane is not None:
                self._removals.drop_lane(lane)
                subscription.non_persistent_lanes[priority] = None
        self._timed.forget(subscription)

    def _forget(self, subscription: SubscriptionState) -> None:
        self.unmatched_sweeper.subscriptions.pop(subscription, None)
        self._drop_non_persistent(subscription)
        subscription.forget()
        if subscription.admission is not None:
            subscription.admission.room_came()

    @property
    def keys_charge(self) -> int:
        """Return what "latest_per_key" should be charged, computed anew. Requires: the lock."""
        return sum(each.latest.charge_bytes for each in self.online() if each.latest is not None)

    def online(self) -> Iterator[SubscriptionState]:
        """Yield every subscription that has a consumer."""
        return (subscription for topic in self.by_name.values() for subscription in topic.online)

    def lane(self, number: int) -> PersistentLaneState:
        """Return the lane of that number, of a queue, a topic, or a durable subscription. Requires: the lock."""
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
        """Return the subscription of that number, if it is read or there is something to remember. O(subscriptions of
        its topic).
        """
        subscriber = self._subscribers.by_number.get(number)
        if subscriber is None:
            return None
        name = self._rows[subscriber.facts.topic].name
        topic = self.by_name.get(name)
        found = () if topic is None else topic.subscriptions()
        return next((subscription for subscription in found if subscription.number == number), None)

    def consumers(self) -> Iterator[Taker]:
        """Yield the consumers of all subscriptions and patterns, each once."""
        queues: tuple[DestinationState, ...] = (*self.patterns, *self.online())
        return iter(dict.fromkeys(consumer for queue in queues for consumer in queue.consumers()))

    # ------------------------------------------------------------------ background

    def sift(self) -> bool:
        """Let the sweeper do some of what there is; whether there is more. Requires: no lock."""
        if self._cached:  # whoever deleted the topic was interrupted
            self._forget_cached()
        return all(self.unmatched_sweeper.step() for _ in range(SIEVE_STEPS))


def _require_joinable(subscription: SubscriptionState, text: str | None, *, is_shared: bool) -> None:
    """Raise what refuses a durable subscription another consumer.

    text: the selector that the consumer brings. SubscriptionInUse, SettingsError.
    """
    if subscription in subscription.topic.online and not (is_shared and subscription.is_shared):
        raise _in_use(subscription, is_shared=is_shared)
    facts = subscription.subscriber.facts
    if text != facts.selector:
        raise SettingsError(
            f"subscription {facts.name!r} of topic {subscription.topic.name!r} was made with another selector: "
            "subscribe with that one, or unsubscribe first and lose its backlog"
        )


def _in_use(subscription: SubscriptionState, *, is_shared: bool) -> SubscriptionInUse:
    """Return what says why a subscription that has a consumer admits no other."""
    if subscription.is_shared:
        remedy = "they share it: subscribe with shared=True as they did, or close them first"
    elif is_shared:
        remedy = "it is that consumer's alone: close it first, and let all subscribe with shared=True"
    else:
        remedy = "close that one first, or let both subscribe with shared=True"
    return SubscriptionInUse(subscription.topic.name, subscription.subscriber.facts.name, remedy)


def _within(firsts: Iterable[tuple[int, int]], lanes: Sequence[TopicLane]) -> list[tuple[int, int]]:
    """Return the places, none of them behind what is sent next. Requires: the lock."""
    ends = {lane.priority: lane.next_sequence for lane in lanes}
    return [(priority, min(first, ends[priority])) for priority, first in firsts]


def _cursor(subscriber: Subscriber) -> tuple[dict[int, int], int]:
    """Return what comes next for a subscription, by priority, and how many messages wait. Requires: the lock."""
    sequences, messages = {}, 0
    for priority, lane in enumerate(subscriber.lanes):
        if lane is not None:
            run = lane.pending_run(0, 1)
            sequences[priority] = run[0] if run is not None else lane.next_sequence
            messages += lane.pending_messages
    return sequences, messages
