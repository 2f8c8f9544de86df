"""SubscriptionState: one subscription of a topic as dispatch sees it.

Lists, caches and the loader treat a subscription like a queue. It has lanes, a selector group while it has a consumer,
and a number by which the caches know its messages. Arriving messages go to the subscriptions that are online, which
means that they have a consumer. An offline subscription finds its messages in the index when a consumer comes.

A subscription, its lanes and its topic point at each other, so this module has all three. Of the topic it has only the
part that subscriptions use, as the base class SubscribedTopicState; `topic_state` has the rest. EvictionRule and
AbstractSubscriptionRegistry are contracts of two owners above, which topics and subscriptions call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from ....store.format.state_record import TOPIC
from ....store.index.subscriptions import Subscriber, Subscriptions
from ....store.index.topic_lane import NO_RECORD, SubscriptionLane
from ....store.journal.regions import Region
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...core.areas.list_registry import ListRegistry
from ...core.destinations.destination_state import NO_LANES, DestinationState, NamedDestinationState
from ...core.destinations.overhead import OPEN_SUBSCRIPTION_BYTES
from ...core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ...core.lanes.persistent_lane_state import PersistentLaneState
from ...core.lists.load_rule import LoadRule
from ...core.model.contracts import BackingStore
from ...core.model.counting import DestinationTotals
from ...core.model.delivery import DeliveryLane
from ...core.model.destination import DestinationStateParts, LaneState, SelectorGroup
from ...core.model.lifecycle import Lifecycle
from ...core.model.matching import SelectorMatcher
from ...selectors.selector import Selector
from .selector_matches import SelectorMatches, SubscriptionSelectorGroup
from .shared_reading import SharedReading


class EvictionRule(ABC):
    """The rule by which slow subscribers of one topic lose messages: the Evictor. The state lock guards it."""

    @abstractmethod
    def admitted(self, lane: SubscriptionLaneState, arriving: int) -> int:
        """Return how many of the messages that were just stored, and are not published yet, the subscriber may get."""

    @abstractmethod
    def has_room(self, subscription: SubscriptionState) -> bool:
        """Return whether the subscriber may get one more non-persistent message."""

    @abstractmethod
    def on_fan_out(self, lanes: Iterable[NonPersistentLaneState], message: StoredMessage) -> None:
        """Note that these lanes have just got a non-persistent message."""

    @abstractmethod
    def note_keys(
        self,
        priority: int,
        lanes: Iterable[SubscriptionLaneState],
        messages: Sequence[StoredMessage],
        selector_matches: SelectorMatches,
    ) -> None:
        """Note the keys of arriving messages. selector_matches: those of the topic.

        Each message becomes the latest of its key for every subscriber whose selector it matches.
        """

    @abstractmethod
    def limit(self, lane: SubscriptionLaneState, first: int, end: int, last: int) -> None:
        """Apply the rule to the messages `first` to `last`, which have just come. Those before `end` were admitted."""

    @abstractmethod
    def forget(self, subscription: SubscriptionState) -> None:
        """Forget what the rule remembers of a subscriber, because its subscription has ended."""

    @property
    @abstractmethod
    def keys_charge_bytes(self) -> int:
        """What the keys that the rule remembers should be charged, computed anew. O(subscribers)."""


class AbstractSubscriptionRegistry(ABC):
    """The SubscriptionRegistry as topics and subscriptions see it. The state lock guards it."""

    subscribers: Subscriptions
    """The store's part of the subscriptions of all topics."""
    unrecorded: BackingStore[SubscriptionLane, Region]
    """Settles messages for subscriptions without a name."""
    selector_matches: SelectorMatches
    """Which selectors match the arriving message. All topics share it, because one message arrives at a time."""
    list_registry: ListRegistry
    """Makes and ends the lists of subscriptions."""

    @abstractmethod
    def go_offline(self, subscription: SubscriptionState) -> None:
        """Take a subscription offline, because its last consumer is closed. Requires: the lock."""


class SubscribedTopicState(NamedDestinationState):
    """The part of a topic's state that its subscriptions use. The state lock guards it."""

    __slots__ = ("subscribers", "evictor", "subscription_registry", "kept", "online")

    def __init__(
        self,
        parts: DestinationStateParts,
        number: int,
        name: str,
        evictor: EvictionRule | None,
        subscription_registry: AbstractSubscriptionRegistry,
    ) -> None:
        """Make the state of a topic without a subscription online.

        evictor: the rule for slow subscribers, if the policy has `subscriber_max_messages`.
        """
        super().__init__(parts, number, name)
        # The store's part of the subscriptions of all topics.
        self.subscribers = subscription_registry.subscribers
        self.evictor = evictor
        self.subscription_registry = subscription_registry
        # Durable subscriptions that are online or have state in RAM, by name.
        self.kept: dict[str, SubscriptionState] = {}
        # Subscriptions with a consumer, durable or not.
        self.online: dict[SubscriptionState, None] = {}

    @property
    def selector_matches(self) -> SelectorMatches:
        """Which selectors match the arriving message."""
        return self.subscription_registry.selector_matches

    @property
    def list_registry(self) -> ListRegistry:
        """Makes and ends the lists of its subscriptions."""
        return self.subscription_registry.list_registry

    @property
    def durable_names(self) -> list[str]:
        """The names of the durable subscriptions, in order. O(durable subscriptions)."""
        return self.subscribers.table.names(self.number)

    @property
    def durable_numbers(self) -> list[int]:
        """The numbers of the durable subscriptions, in the order of their names. O(durable subscriptions)."""
        return self.subscribers.table.numbers(self.number)

    @property
    def durable_count(self) -> int:
        """Number of durable subscriptions."""
        return self.subscribers.table.count(self.number)

    def subscription_for_report(self, name: str) -> SubscriptionState | None:
        """Return the state to report for a durable subscription; None if no subscription has the name.

        If the topic keeps no state of the subscription, this is a new object, which only the report uses.
        """
        if (kept := self.kept.get(name)) is not None:
            return kept
        number = self.subscribers.table.number_of(self.number, name)
        subscriber = None if number is None else self.subscribers.for_report(number)
        return None if subscriber is None else SubscriptionState(self, subscriber, None)

    def durable_subscription(self, name: str) -> SubscriptionState | None:
        """Return the state of a durable subscription, made if the topic keeps none. None: nobody has the name."""
        if (kept := self.kept.get(name)) is not None:
            return kept
        number = self.subscribers.table.number_of(self.number, name)
        subscriber = None if number is None else self.subscribers.open_numbered(number)
        return None if subscriber is None else SubscriptionState(self, subscriber, None)

    def keep(self, subscription: SubscriptionState) -> SubscriptionState:
        """Keep the state of a durable subscription until `drop_kept`; return it."""
        subscription.charge()
        self.kept[subscription.subscriber.facts.name] = subscription
        return subscription

    def drop_kept(self, name: str) -> None:
        """Keep the state of a durable subscription no longer. It does nothing if the topic does not keep it."""
        self.kept.pop(name, None)

    def take_online(self, subscription: SubscriptionState) -> None:
        """Give a subscription the messages that arrive from now on, because its first consumer comes."""
        self.online[subscription] = None
        if len(self.online) == 2:
            self.note_neighbours()

    def take_offline(self, subscription: SubscriptionState) -> None:
        """Give a subscription no more arriving messages, because its last consumer is closed."""
        del self.online[subscription]

    def count_online(self) -> int:
        """Return the number of subscriptions that are online."""
        return len(self.online)

    def count_evicted(self, messages: int) -> None:
        """Count messages that one slow subscriber has lost."""
        self.counters.evicted += messages

    def durable_subscriptions(self) -> Iterator[SubscriptionState]:
        """Yield the state to report for each durable subscription, by name."""
        return filter(None, map(self.subscription_for_report, self.durable_names))

    def note_neighbours(self) -> None:
        """Tell the subscriptions that another one is online now. O(messages of their lists)."""
        for subscription in self.online:
            for lane in subscription.lanes:
                if isinstance(lane, SubscriptionLaneState):
                    lane.note_neighbours()

    def fronts(self, priority: int, *, but: LaneState) -> list[int]:
        """Return the fronts of a priority: the sequences from which the lists of online subscriptions will be loaded.

        but: the lane whose lists are left out. O(online subscriptions).
        """
        fronts: list[int] = []
        for subscription in self.online:
            lane = subscription.lanes[priority]
            if lane is None or lane is but:
                continue
            sole = lane.sole_list
            if sole is not None:
                # first_to_load, written inline: each load asks three times, for hundreds of subscriptions
                fronts.append(sole.first_to_load if sole.returned or sole.references else sole.frontier)
            else:
                fronts += [target.first_to_load for target in subscription.lists_over(lane)]
        return fronts

    def open_subscriptions(self) -> list[SubscriptionState]:
        """Return the subscriptions that are online or have state in RAM; durable ones that are kept come first."""
        return [*dict.fromkeys((*self.kept.values(), *self.online))]


class SubscriptionLaneState(PersistentLaneState):
    """Dispatch's state of a lane of a subscription."""

    __slots__ = ("examined", "subscription", "subscription_lane", "topic_lane_state", "_reading")

    def __init__(
        self, subscription: SubscriptionState, pending_lane: SubscriptionLane, topic_lane_state: LaneState
    ) -> None:
        super().__init__(subscription, pending_lane.topic, topic_lane_state.id_prefix, pending_lane)
        self.subscription = subscription
        self.subscription_lane = pending_lane
        self.topic_lane_state = topic_lane_state
        self._reading = SharedReading(
            self.memory,
            pending_lane,
            subscription.topic.list_registry,
            self._fronts_of_others,
            subscription.topic.count_online,
        )
        self.pending_cache = self._reading.cache
        self.caches = (self._reading.cache, self.memory.head_queue_cache)
        self.is_timed = topic_lane_state.is_timed
        self.published_end = topic_lane_state.published_end
        self.first_sequence = max(topic_lane_state.first_sequence, pending_lane.first_sequence)
        self.first_sent_bytes = max(topic_lane_state.first_sent_bytes, pending_lane.first_sent_bytes)
        if not subscription.is_durable:
            self.backing_store = subscription.topic.subscription_registry.unrecorded
            self.syncs = False
        # All pending messages before this sequence are examined: the selector matches them, or they are in `unmatched`.
        self.examined = 0
        if subscription.selector is not None:
            self.unmatched = SequenceSet()

    def note_examined(self, unmatched: SequenceSet, first: int, last: int) -> None:
        """Note that the messages `first` to `last` are examined. unmatched: those that the selector does not match."""
        assert self.unmatched is not None
        for begin, end in unmatched:
            if first <= end:
                self.unmatched.add(max(begin, first), end)
        self.examined = max(self.examined, last + 1)

    def note_nothing_to_examine(self) -> None:
        """Note that all published messages are examined."""
        self.examined = self.published_end

    def remove_unseen(self, first: int, last: int) -> int:
        """Remove messages that were just stored and that the subscriber never sees; return how many."""
        removed = self.subscription_lane.remove(first, last, NO_RECORD)
        self.published_end = last + 1
        return removed

    def leave_shared(self) -> None:
        """Drop the reference to the topic, which would keep the topic in RAM until a garbage collection."""
        self._reading.leave()

    def note_neighbours(self) -> None:
        """Move messages from the lists to the shared cache, because another subscription came online. O(messages)."""
        self._reading.note_neighbours(self.destination.lists_over(self))

    def _fronts_of_others(self) -> list[int]:
        """Return the fronts of the other subscriptions of the topic in this priority. O(online subscriptions)."""
        return self.subscription.topic.fronts(self.priority, but=self)

    @property
    def is_recorded(self) -> bool:
        """Whether the subscription is durable; only then are its acks in the journal."""
        return self.subscription.is_durable

    @property
    def load_rule(self) -> LoadRule:
        """How much is loaded for this subscription beside the others of its topic."""
        return self._reading

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message from the cache that the topic's subscriptions share. None: it is not there."""
        return self._reading.peek(sequence)

    @property
    def expiry_lane_state(self) -> LaneState:
        """The topic's lane, from which messages are removed when they have expired."""
        return self.topic_lane_state


class SubscriptionState(DestinationState):
    """Dispatch's state of a subscription. `name` is that of its topic, `number` its own. The state lock guards it."""

    __slots__ = (
        "topic",
        "subscriber",
        "selector",
        "matcher",
        "is_reader",
        "is_shared",
        "is_charged",
    )

    noun = "subscription"
    kind = TOPIC
    keeps_message_groups = False

    def __init__(
        self,
        topic: SubscribedTopicState,
        subscriber: Subscriber,
        selector: Selector | None,
        *,
        is_reader: bool = False,
    ) -> None:
        """Make the state of a subscription that nobody reads yet.

        subscriber: the store's part of the subscription. is_reader: Topic.reader makes it, to begin at a chosen place.
        """
        super().__init__(topic.parts, subscriber.facts.number, topic.name)
        self.topic = topic
        self.subscriber = subscriber
        self.selector = selector
        # An ack of this subscription may make room for senders to the topic.
        self.limits = topic.limits
        # Judges messages for the selector, also while the subscription is offline.
        self.matcher = SelectorMatcher(selector) if selector is not None else None
        self.is_reader = is_reader
        # Whether its consumers share the messages, so that further consumers may join.
        self.is_shared = False
        # Whether this object is charged: the topic keeps it, or it is online.
        self.is_charged = False

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        return SubscriptionSelectorGroup(selector, self.topic.selector_matches)

    def on_consumer_closed(self) -> None:
        """Take the subscription offline once its last consumer has closed."""
        if self.selector_groups:
            return
        self.topic.subscription_registry.go_offline(self)
        if not self.topic.online:
            for lane in self.topic.all_lanes():
                lane.memory.pending_cache.discard_lane(lane.pending_lane.number)

    @property
    def is_durable(self) -> bool:
        return self.subscriber.is_durable

    @property
    def subscription_name(self) -> str | None:
        """The name of a durable subscription; None for one without a name."""
        return self.subscriber.facts.name if self.subscriber.is_durable else None

    @property
    def qualified_name(self) -> str:
        """The topic's qualified name, followed by a slash and the name of the subscription if it has one."""
        own_name = self.subscription_name
        return super().qualified_name if own_name is None else f"{super().qualified_name}/{own_name}"

    @property
    def misses_nothing(self) -> bool:
        """Whether eviction must not touch it, however slow it is: a durable subscription, or a reader."""
        return self.is_reader or self.subscriber.is_durable

    def lane_of(self, topic_lane_state: LaneState) -> SubscriptionLaneState:
        """Return the subscription's part of a lane of the topic, made on first use."""
        priority = topic_lane_state.pending_lane.priority
        lane = self.lanes[priority]
        if lane is None:
            pending_lane = self.subscriber.lanes[priority]
            assert pending_lane is not None
            lane = SubscriptionLaneState(self, pending_lane, topic_lane_state)
            self.put_lane(priority, lane)
            non_persistent = self.non_persistent_lanes[priority]
            if non_persistent is not None:
                non_persistent.persistent_lane_state = lane
            self.topic.list_registry.add_lane(lane)
        assert isinstance(lane, SubscriptionLaneState)
        return lane

    def begin_reading(self, *, is_shared: bool) -> None:
        """Charge for this object, because the first consumer comes. is_shared: further consumers may join it."""
        self.is_shared = is_shared
        self.charge()

    def open_lanes(self) -> Iterator[SubscriptionLaneState]:
        """Yield all lanes, each made if needed, with the messages that were published while it was offline."""
        for topic_lane_state in self.topic.all_lanes():
            lane = self.lane_of(topic_lane_state)
            lane.published_end = topic_lane_state.published_end
            yield lane

    def charge(self) -> None:
        """Charge for this object, because the topic keeps it from now on. A second call does nothing."""
        if not self.is_charged:
            self.is_charged = True
            self.charge_part(OPEN_SUBSCRIPTION_BYTES)

    def discard_cached(self) -> None:
        """Make the caches and the eviction rule forget a subscription that has ended."""
        if self.topic.evictor is not None:
            self.topic.evictor.forget(self)
        self.note_unused()
        self.discard_cached_lanes()

    def discard_cached_lanes(self) -> None:
        """Make the caches forget the persistent messages of the subscription. O(lanes)."""
        caches = self.memory.pending_cache, self.memory.head_queue_cache
        for pending_lane in filter(None, self.subscriber.lanes):
            for cache in caches:
                cache.discard_lane(pending_lane.number)
            self.memory.head_queue_cache.reopen(pending_lane.number)

    def note_unused(self) -> None:
        """Release the charge of this object, which is used no more. Loads under way put nothing into the caches."""
        for lane in self.all_lanes():
            self.topic.list_registry.on_lane_gone(lane)
        if self.is_charged:
            self.is_charged = False
            self.release_part(OPEN_SUBSCRIPTION_BYTES)

    def drop_persistent_lanes(self) -> None:
        """Forget the lanes of persistent messages, because the cursor has moved. The next consumer makes them anew."""
        self.lanes = NO_LANES

    def mark_deleted(self) -> None:
        """Mark it as deleted, so that a rollback of a transaction that holds its deliveries gives them to nobody."""
        self.lifecycle = Lifecycle.DELETED

    def clear(self) -> None:
        """Forget everything, because the subscription has ended.

        Requires: the lock, and that its consumers are closed.
        """
        for lane in self.lanes:
            if isinstance(lane, SubscriptionLaneState):
                lane.leave_shared()
        self.clear_lanes()

    def _non_persistent(self) -> Iterator[NonPersistentLaneState]:
        return filter(None, self.non_persistent_lanes)

    @property
    def is_blank(self) -> bool:
        """Whether it has no consumer, and a new object would be the same as this one. O(lanes)."""
        own = self.counters
        counts = [own.misses + own.delivered + own.dead_lettered + len(self.selector_groups)]
        for lane in self.all_lanes():
            counts += (lane.acknowledged, lane.redelivered, lane.unreadable, lane.expired)
            counts += (lane.dead_letters.count, lane.parked.count, len(lane.deliveries))
        counts += (lane.pending_lane.pending_messages for lane in self._non_persistent())
        return self.selector is None and not any(counts)

    @property
    def enqueued(self) -> int:
        persistent = sum(
            pending_lane.topic.next_sequence - max(lane.first_sequence, pending_lane.first_sequence)
            for lane, pending_lane in zip(self.topic.lanes, self.subscriber.lanes, strict=True)
            if lane is not None and pending_lane is not None
        )
        return persistent + sum(
            lane.pending_lane.next_sequence - lane.first_sequence for lane in self._non_persistent()
        )

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of messages that arrived, including messages in lanes that are not open yet."""
        persistent = sum(
            pending_lane.total_sent_bytes - max(lane.first_sent_bytes, pending_lane.first_sent_bytes)
            for lane, pending_lane in zip(self.topic.lanes, self.subscriber.lanes, strict=True)
            if lane is not None and pending_lane is not None
        )
        return persistent + sum(lane.enqueued_bytes for lane in self._non_persistent())

    @property
    def depth(self) -> int:
        persistent = sum(pending_lane.depth[0] for pending_lane in filter(None, self.subscriber.lanes))
        return persistent + sum(lane.pending_lane.pending_messages for lane in self._non_persistent())

    @property
    def depth_bytes(self) -> int:
        persistent = sum(pending_lane.depth[1] for pending_lane in filter(None, self.subscriber.lanes))
        return persistent + sum(lane.pending_lane.pending_bytes for lane in self._non_persistent())

    def totals(self, lanes: Sequence[DeliveryLane]) -> DestinationTotals:
        """Return depth, arrivals and departures, including lanes that are not open yet."""
        whole = super().totals(lanes)
        return whole._replace(
            depth=self.depth,
            depth_bytes=self.depth_bytes,
            enqueued=self.enqueued,
            enqueued_bytes=self.enqueued_bytes,
        )
