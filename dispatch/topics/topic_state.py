"""TopicState: one topic as dispatch sees it, and the state of each of its subscriptions.

Lists, caches and the loader treat a subscription like a queue: it has lanes, a selector group while somebody reads it,
and a number by which the caches know its messages. Arrivals go to the subscriptions that are read at the moment. The
others find their messages in the index when a consumer comes.

A topic makes and keeps its subscriptions, and a subscription asks its topic for lanes; their lanes, and the fan-outs of
non-persistent messages, refer to each other likewise. So these five classes share this module, and the two owners above
them that a topic calls are declared here as contracts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from ...cache.accounting.charge import OVERHEAD_BYTES, content_charge_bytes
from ...cache.messages.shared_cache import SharedCache
from ...cache.spill.overflow import Overflow
from ...store.checkpoint.checkpointer import SWEEP_BLOCKS
from ...store.errors import Closed
from ...store.format.retained import Retained
from ...store.format.state_record import TOPIC
from ...store.format.times import Times, has_times, times_of
from ...store.index.destination_lane import DestinationLane
from ...store.index.subscription_table import CURSOR_BYTES
from ...store.index.subscriptions import Subscriber, Subscriptions
from ...store.index.topic_lane import SUBSCRIPTION_LANE_BYTES, SubscriptionLane, TopicLane
from ...store.journal.reading import Region
from ...store.message_store import MessageStore
from ...store.numbering import BEHIND_ALL, LANE_SHIFT, NON_PERSISTENT, UNLIMITED
from ...store.state.property_table import PropertyTable
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..core.counting import EarlierCounts, Volume
from ..core.deliveries.contracts import LaneStore
from ..core.deliveries.delivery import LaneMessages
from ..core.destination_state import DestinationState, NamedDestinationState
from ..core.destinations.destination_lanes import DestinationLanes
from ..core.destinations.overhead import FAN_OUT_BYTES, OPEN_SUBSCRIPTION_BYTES
from ..core.lanes.non_persistent import NonPersistentLaneState
from ..core.lanes.persistent import PersistentLaneState
from ..core.lanes.queue_lane import QueueLaneState
from ..core.lists.load import Load
from ..core.model import LANE_STATE_BYTES, CoreListKeeper, LaneState, SelectorGroup, TargetList
from ..core.selector_groups.matching import SelectorMatcher, values_of
from ..core.settling.removal import Removals
from ..selectors.selector import FIELD_NAMES, Selector
from .arrivals import ArrivalOrder
from .latest_keys import NewestPerKey
from .verdicts import SubscriptionSelectorGroup, Verdicts

SHARED_LIST_BYTES: Final = (1024, 128 * 1024)
"""Least and most bytes that a list holds if other subscriptions of the topic are read too."""
SHARED_LISTS_SHARE: Final = 1 / 4
"""Part of the memory for waiting messages that all lists of a topic may hold together. Each list has its own copy of a
message, but the cache has one copy for all of them."""
SHARED_LOAD_SHARE: Final = 1 / 8
"""Part of the memory for waiting messages that one load may bring if other lists follow close behind."""
STRAY_LOAD_BYTES: Final = 64 * 1024
"""Least bytes that a load brings for a list that nobody follows and that finds nothing in the shared cache."""


class EvictionRule(ABC):
    """The rule by which slow subscribers of one topic lose messages. The state lock guards it."""

    @abstractmethod
    def admitted(self, lane: SubscriptionLaneState, arriving: int) -> int:
        """Return how many of the messages that were just stored, and are not published yet, the subscriber may get."""

    @abstractmethod
    def has_room(self, subscription: SubscriptionState) -> bool:
        """Return whether the subscriber may get one more non-persistent message."""

    @abstractmethod
    def given(self, lanes: Iterable[NonPersistentLaneState], message: StoredMessage) -> None:
        """Note that these lanes have just got a non-persistent message."""

    @abstractmethod
    def note_keys(
        self, lane: TopicLaneState, lanes: Iterable[SubscriptionLaneState], messages: Sequence[StoredMessage]
    ) -> None:
        """Note the keys of arriving messages.

        For each subscriber that wants a message, it is now the newest of its key.
        """

    @abstractmethod
    def limit(self, lane: SubscriptionLaneState, first: int, end: int, last: int) -> None:
        """Apply the rule to messages first to last, which have just come. Those before `end` were admitted."""


class SubscriptionRegistry(ABC):
    """The owner of all subscriptions, as a topic sees it. The state lock guards it."""

    unrecorded: LaneStore[SubscriptionLane, Region]
    """Settles messages for subscriptions without a name."""
    verdicts: Verdicts
    """The verdicts for all topics, because only one message arrives at a time under the lock."""

    @abstractmethod
    def leave(self, subscription: SubscriptionState) -> None:
        """Take a subscription offline, because its last consumer is closed. Requires: the lock."""


class TopicState(NamedDestinationState):
    """Dispatch's state of a topic. Its lanes have no lists, because consumers take from subscriptions.

    The state lock guards it.
    """

    __slots__ = (
        "subscribers",
        "evictor",
        "registry",
        "properties",
        "kept",
        "online",
        "evicted",
        "fan_outs",
        "is_retained",
    )

    noun = "topic"
    kind = TOPIC
    drops_oldest = False
    has_lists = False
    keeps_groups = False

    def __init__(
        self,
        target_area: CoreListKeeper,
        number: int,
        name: str,
        subscribers: Subscriptions,
        evictor: EvictionRule | None,
        registry: SubscriptionRegistry,
        properties: PropertyTable,
    ) -> None:
        """Make the state of a topic without messages.

        subscribers: the store's part of the subscriptions of all topics.
        evictor: the rule for slow subscribers, if the policy has `subscriber_max_messages`.
        properties: the host properties, among which the retained messages are.
        """
        super().__init__(target_area, number, name)
        self.subscribers = subscribers
        self.evictor = evictor
        self.registry = registry
        self.properties = properties
        # Durable subscriptions that are read or have state in RAM, by name.
        self.kept: dict[str, SubscriptionState] = {}
        # Subscriptions with a consumer, durable or not.
        self.online: dict[SubscriptionState, None] = {}
        # Messages that slow subscribers have lost, counted once for each subscriber.
        self.evicted = 0
        # The FanOut of each priority in which non-persistent messages were sent. Its lanes are those of the
        # subscriptions.
        self.fan_outs: dict[int, FanOut] = {}
        # Whether the policy keeps messages that no subscription needs.
        self.is_retained = False

    @property
    def retention(self) -> Subscriber | None:
        """The store's entry for retained messages. None: the topic retains nothing."""
        return self.subscribers.retention(self.number)

    @property
    def retained(self) -> tuple[int, int]:
        """Number and bytes of the messages that the policy keeps, including those that subscriptions need too."""
        retention = self.retention
        depths = [lane.depth for lane in retention.lanes if lane is not None] if retention is not None else []
        return sum(depth[0] for depth in depths), sum(depth[1] for depth in depths)

    @property
    def verdicts(self) -> Verdicts:
        """Which selectors match the arriving message."""
        return self.registry.verdicts

    def stored_lanes(self) -> list[TopicLane]:
        """Return the topic's lanes in the store, by priority. Requires: the lock."""
        return self.subscribers.topic_lanes(self.number)

    def catch_up(self) -> None:
        """Free messages that no subscription needs, a few blocks at a time. The next checkpoint goes on if need be."""
        self.subscribers.sweep(SWEEP_BLOCKS)

    def qualified_names(self) -> list[str]:
        """Return the name of the topic, and those of its durable subscriptions."""
        own_name = self.qualified_name
        return [own_name, *(f"{own_name}/{name}" for name in self.durable)]

    @property
    def durable(self) -> list[str]:
        """Return the names of the durable subscriptions, in order. O(durable subscriptions)."""
        return self.subscribers.table.names(self.number)

    @property
    def durable_numbers(self) -> list[int]:
        """Return the numbers of the durable subscriptions, in the order of their names. O(durable subscriptions)."""
        return self.subscribers.table.numbers(self.number)

    @property
    def durable_count(self) -> int:
        """Number of durable subscriptions."""
        return self.subscribers.table.count(self.number)

    def subscription_for_report(self, name: str) -> SubscriptionState | None:
        """Return the state to report for a durable subscription; None if no subscription has the name.

        For a closed subscription this is a separate object, which only the report uses.
        """
        if (kept := self.kept.get(name)) is not None:
            return kept
        number = self.subscribers.table.number_of(self.number, name)
        subscriber = None if number is None else self.subscribers.for_report(number)
        return None if subscriber is None else SubscriptionState(self, subscriber, None)

    def durable_subscription(self, name: str) -> SubscriptionState | None:
        """Return the state of a durable subscription, made if none is kept. None: no subscription has the name."""
        if (kept := self.kept.get(name)) is not None:
            return kept
        number = self.subscribers.table.number_of(self.number, name)
        subscriber = None if number is None else self.subscribers.opened(number)
        return None if subscriber is None else SubscriptionState(self, subscriber, None)

    def keep(self, subscription: SubscriptionState) -> SubscriptionState:
        """Keep the state of a durable subscription until `leave`; return it."""
        subscription.charge()
        self.kept[subscription.subscriber.facts.name] = subscription
        return subscription

    def durable_subscriptions(self) -> Iterator[SubscriptionState]:
        """Yield the state to report for each durable subscription, by name."""
        return (found for name in self.durable if (found := self.subscription_for_report(name)) is not None)

    def note_neighbours(self) -> None:
        """Tell the only subscription so far that another one is read now. O(messages of its lists)."""
        for subscription in self.online:
            for lane in subscription.lanes:
                if isinstance(lane, SubscriptionLaneState):
                    lane.note_neighbours()

    @property
    def lists_a_lane(self) -> int:
        """Number of lists that a new lane needs: one for each subscription that is read."""
        return len(self.online)

    @property
    def first_lists(self) -> int:
        """Return how many lists of a new lane would be the first of their selector group."""
        return sum(subscription.first_lists for subscription in self.online)

    @property
    def lane_bytes(self) -> int:
        """Charge of one more lane: a part for each subscription that is read."""
        opened_bytes = (SUBSCRIPTION_LANE_BYTES + LANE_STATE_BYTES) * len(self.online)
        return super().lane_bytes + opened_bytes + CURSOR_BYTES * self.durable_count

    @property
    def is_unused(self) -> bool:
        """Whether nobody uses the topic, so that it may be deleted as inactive.

        A durable subscription is a use, read or not, and so is a retained message. Nobody needs other messages in the
        topic's lanes: these wait for the next sweep.
        """
        has_message = len(self.properties.retained(self.number)) > 0
        return not (self.durable_count or self.online or self.retained[0] or has_message or self.calls_under_way)

    @property
    def is_idle(self) -> bool:
        """Whether the topic could be closed: it has no subscription, and the policy retains no messages."""
        is_needed = self.durable_count or self.online or self.kept or self.is_retained
        return not is_needed and self.retention is None and super().is_idle

    @property
    def counted(self) -> EarlierCounts:
        """Return the counts, including non-persistent messages sent and evicted messages. O(lanes)."""
        whole = super().counted
        return whole._replace(enqueued=self.enqueued, enqueued_bytes=self.enqueued_bytes, evicted=self.evicted)

    def count_on(self, earlier: EarlierCounts) -> None:
        """Continue from these earlier counts, evicted messages included."""
        super().count_on(earlier)
        self.evicted = earlier.evicted

    def pools(self) -> Iterable[tuple[int, int]]:
        """Return number and next sequence of each pool in which subscriptions share non-persistent messages."""
        return [(fan_out.pool, fan_out.next_sequence) for fan_out in self.fan_outs.values()]

    def drop(self) -> None:
        """Forget the messages and subscriptions of a deleted or closed topic. Requires: the lock."""
        self.drop_lanes()
        self.target_area.destination_memory.release(FAN_OUT_BYTES * len(self.fan_outs))
        self.kept, self.fan_outs, self.online = {}, {}, {}

    def subscriptions(self) -> list[SubscriptionState]:
        """Return the subscriptions that are read or have state in RAM; kept durable ones are first."""
        return [*dict.fromkeys((*self.kept.values(), *self.online))]

    @property
    def enqueued(self) -> int:
        return super().enqueued + sum(fan_out.sent for fan_out in self.fan_outs.values())

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of all messages sent, including those to which nobody had subscribed."""
        return super().enqueued_bytes + sum(fan_out.sent_bytes for fan_out in self.fan_outs.values())

    @property
    def depth(self) -> int:
        """Number of messages that any subscription needs; of non-persistent ones, those of the slowest in each
        priority.

        If messages are retained, return the depth of the subscription that lags most, because messages that only
        retention needs can't be told from the others. O(subscriptions) then.
        """
        if self.is_retained:
            return max((each.depth for each in self._everyone()), default=0)
        return super().depth + self._slowest(lambda lane: lane.pending_lane.pending_messages)

    @property
    def depth_bytes(self) -> int:
        if self.is_retained:
            return max((each.depth_bytes for each in self._everyone()), default=0)
        return super().depth_bytes + self._slowest(lambda lane: lane.pending_lane.pending_bytes)

    def _everyone(self) -> Iterator[SubscriptionState]:
        yield from self.online
        yield from (each for each in self.durable_subscriptions() if each not in self.online)

    def _slowest(self, size: Callable[[LaneState], int]) -> int:
        found = (
            [lane for each in self.subscriptions() if (lane := each.non_persistent_lanes[at])] for at in self.fan_outs
        )
        return sum(max(map(size, lanes), default=0) for lanes in found)

    def make_lane(self, priority: int, message_store: MessageStore) -> TopicLaneState:
        pending_lane = message_store.lane(self.number, priority)
        return TopicLaneState(self, pending_lane, message_store.id_prefix(self.number, priority))


class TopicLaneState(PersistentLaneState):
    """Dispatch's state of a lane of a topic: messages of one priority on their way to the subscriptions."""

    __slots__ = ("topic",)
    joins_slices: ClassVar[bool] = False
    """A subscription may have begun between two slices, and the first slice is not for it."""

    def __init__(self, topic: TopicState, pending_lane: DestinationLane, id_prefix: str) -> None:
        super().__init__(topic, pending_lane, id_prefix)
        self.topic = topic

    def readers(self) -> Iterator[LaneState]:
        """Yield this lane, and its part in each subscription that is read or has state in RAM."""
        yield self
        for subscription in self.topic.subscriptions():
            reader = subscription.lanes[self.pending_lane.priority]
            if reader is not None:
                yield reader

    def every_reader(self) -> list[LaneState]:
        """Return the readers, after opening the durable subscriptions that are rows."""
        for name in self.topic.durable:
            subscription = self.topic.durable_subscription(name)
            if subscription is not None:
                self.topic.keep(subscription).lane_of(self)
        return list(self.readers())

    def fronts(self, *, but: LaneState) -> list[int]:
        """Return the sequences from which lists of other subscriptions will be loaded.

        O(subscriptions that are read).
        """
        priority = self.pending_lane.priority
        found: list[int] = []
        for subscription in self.topic.online:  # inlined: each load asks three times, for hundreds of subscriptions
            lane = subscription.lanes[priority]
            if lane is None or lane is but:
                continue
            sole = lane.sole
            if sole is not None:
                found.append(sole.first_to_load if sole.returned or sole.references else sole.frontier)
            else:
                found += [target.first_to_load for target in subscription.lists_over(lane)]
        return found

    def arrive(self, message: StoredMessage) -> None:
        """Give a message to each subscription that is read. O(these subscriptions)."""
        if self.topic.evictor is not None:
            self._arrive_evicting((message,), self.topic.evictor)
            return
        self.published_end = message[0] + 1
        self._offer(message, self._readers(message[0]))

    def _offer(self, message: StoredMessage, lanes: Iterable[LaneState]) -> None:
        verdicts = self.topic.verdicts
        verdicts.begin(self.priority, message[0])
        try:
            for lane in lanes:
                lane.arrive(message)
        finally:
            verdicts.end()

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Give messages to each subscription that is read, as one slice where possible. O(these subscriptions)."""
        if self.topic.evictor is not None:
            self._arrive_evicting(messages, self.topic.evictor)
            return
        self.published_end = messages[-1][0] + 1
        one_by_one: list[LaneState] = []
        for lane in self._readers(messages[0][0]):
            if lane.sole is None:
                one_by_one.append(lane)
            else:
                lane.arrive_many(messages, charge)
        if one_by_one:
            for message in messages:
                self._offer(message, one_by_one)

    def arrive_unloaded(self, end: int) -> None:
        """Let each subscription that is read have the messages before `end`. O(these subscriptions)."""
        evictor = self.topic.evictor
        if evictor is not None:
            first, readers = self.published_end, list(self._readers(end - 1))
            self.published_end = end
            for lane in readers:
                count = evictor.admitted(lane, end - first)
                if count:
                    lane.arrive_unloaded(first + count)
                evictor.limit(lane, first, first + count, end - 1)
            return
        self.published_end = end
        for lane in self._readers(end - 1):
            lane.arrive_unloaded(end)

    def _arrive_evicting(self, messages: Sequence[StoredMessage], evictor: EvictionRule) -> None:
        """Give messages to the subscribers that the rule admits."""
        first, last = messages[0][0], messages[-1][0]
        # Before `published_end` changes: a lane that a subscription opens begins at the present place of this one.
        readers = list(self._readers(first))
        self.published_end = last + 1
        evictor.note_keys(self, readers, messages)
        admitted = [(lane, evictor.admitted(lane, len(messages))) for lane in readers]
        for lane, count in admitted:
            if count and lane.sole is not None:
                lane.arrive_many(messages[:count])
        for at, message in enumerate(messages):
            one_by_one = [lane for lane, count in admitted if at < count and lane.sole is None]
            if one_by_one:
                self._offer(message, one_by_one)
        for lane, count in admitted:
            evictor.limit(lane, first, first + count, last)

    def _readers(self, sequence: int) -> Iterator[SubscriptionLaneState]:
        """Yield the lanes that get a message.

        A subscription that was made after the message was stored does not get it.
        """
        for subscription in self.topic.online:
            lane = subscription.lane_of(self)
            if sequence >= lane.first_sequence:
                yield lane


class SubscriptionLaneState(QueueLaneState):
    """Dispatch's state of a lane of a subscription."""

    __slots__ = (
        "examined",
        "subscription",
        "subscription_lane",
        "topic_lane",
        "_shared",
        "_is_followed",
        "_has_neighbours",
    )

    def __init__(
        self, subscription: SubscriptionState, pending_lane: SubscriptionLane, topic_lane: TopicLaneState
    ) -> None:
        super().__init__(subscription, pending_lane.topic, topic_lane.id_prefix, pending_lane)
        self.subscription = subscription
        self.subscription_lane = pending_lane
        self.topic_lane = topic_lane
        self._shared = SharedCache(self.memory.pending_cache, pending_lane.topic.number, self._first_of_others)
        self.pending_cache = self._shared
        self.caches = (self._shared, self.memory.head_queue_cache)
        # Whether other subscriptions are close behind, or close, so that a read for this one serves them too.
        self._is_followed = self._has_neighbours = len(topic_lane.topic.online) > 1
        self.is_timed = topic_lane.is_timed
        self.published_end = topic_lane.published_end
        self.first_sequence = max(topic_lane.first_sequence, pending_lane.first_sequence)
        self.first_bytes = max(topic_lane.first_bytes, pending_lane.first_bytes)
        if not subscription.is_durable:
            self.message_store = subscription.topic.registry.unrecorded
            self.syncs = False
        # The selector matches all pending messages before this sequence.
        self.examined = 0
        if subscription.selector is not None:
            self.unwanted = SequenceSet()

    def leave_shared(self) -> None:
        """Forget the lane of the topic: the reference would keep the topic in RAM until a garbage collection."""
        self._shared.leave()

    def passed_over(self, first: int, end: int) -> None:
        """Acknowledge messages for the subscription that do not match."""
        if self.unwanted is not None:
            self.unwanted.add(first, end - 1)

    def note_neighbours(self) -> None:
        """Move messages from the lists to the shared cache, for subscriptions that have just come. O(messages)."""
        self._is_followed = self._has_neighbours = True
        for target in self.destination.lists_over(self):
            self.destination.target_area.shorten(target)

    def _first_of_others(self) -> int:
        """Return the first sequence that another subscription may look for in RAM."""
        return min(self.topic_lane.fronts(but=self), default=BEHIND_ALL)

    @property
    def is_recorded(self) -> bool:
        """Return whether the subscription is durable; only then are its acks in the journal."""
        return self.subscription.is_durable

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list should hold.

        Messages for several readers belong in the cache, which has one copy for all.
        """
        if not self._has_neighbours:
            return UNLIMITED
        least, most = SHARED_LIST_BYTES
        return max(least, min(most, self._list_share_bytes))

    @property
    def _list_share_bytes(self) -> int:
        """The equal part of one list of what all lists of the topic may hold together."""
        return int(self.memory.waiting_bytes_max * SHARED_LISTS_SHARE) // len(self.topic_lane.topic.online)

    @property
    def reads_for_others(self) -> bool:
        """Return whether another subscription was close behind at the last load."""
        return self._is_followed

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes to load: more than the list has room for, if the list is short because of others.

        A record of many messages is then read once, and the cache keeps the rest for this list and those behind it. A
        load that brought much would take the place of what other lists need next.
        """
        if not self._has_neighbours or self.peek(first) is not None:
            return list_bytes
        if self._is_followed:
            return max(list_bytes, int(self.memory.waiting_bytes_max * SHARED_LOAD_SHARE))
        return max(list_bytes, STRAY_LOAD_BYTES)

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the next message is too large to be put into this list ahead of a take.

        If RAM has it, it stays in the shared cache. If it is on disk, it is read ahead only where all lists of the
        topic have room for such a message: copies that nobody needs yet would take the room of what all want next.
        """
        run = self.pending_lane.ready_run(sequence, 1) if self._has_neighbours else None
        if run is None:
            return False
        is_cached = self.peek(run[0]) is not None
        return content_charge_bytes(self.pending_lane.lengths(*run)[0]) > (
            room_bytes if is_cached else max(room_bytes, self._list_share_bytes)
        )

    def loaded(self, load: Load[TargetList]) -> None:
        """Keep messages that were read for one subscription for others that will need them soon."""
        topic_lane, shared = self.topic_lane, self._shared
        mean_bytes = OVERHEAD_BYTES + topic_lane.pending_lane.pending_bytes / max(
            topic_lane.pending_lane.pending_messages, 1
        )
        # Messages farther off would leave the cache before they are needed.
        reach = int(shared.share_bytes / 2 / mean_bytes)
        others = topic_lane.fronts(but=self)
        followers = [front for front in others if load.first - reach <= front <= load.last]
        at = load.target.first_to_load
        self._is_followed = any(at - reach <= front <= at for front in others)
        self._has_neighbours = any(abs(at - front) <= reach for front in others)
        shared.follow_readers([load.first, *others])
        if self._has_neighbours:  # first, because messages that leave the list make room for others
            self.destination.target_area.shorten(load.target)
        if load.regions and followers:
            least = min(followers)
            for message in load.messages or [load.held[sequence] for sequence in sorted(load.held)]:
                if message[0] >= least and message[2] is not None and not shared.put(self.pending_lane.number, message):
                    break
        shared.drop_before(min([load.target.first_to_load, *others]))  # first_to_load: the list may have been cut since

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message from the cache that the topic's subscriptions share. None: it is not there."""
        return self._shared.peek(self.pending_lane.number, sequence)

    @property
    def swept_lane(self) -> LaneState:
        """Return the topic's lane, from which messages are removed when they have expired."""
        return self.topic_lane


class SubscriptionState(DestinationState):
    """Dispatch's state of a subscription. `name` is that of its topic, `number` its own. The state lock guards it."""

    __slots__ = (
        "topic",
        "subscriber",
        "selector",
        "matcher",
        "is_reader",
        "latest",
        "arrivals",
        "is_shared",
        "is_charged",
    )

    noun = "subscription"
    kind = TOPIC
    keeps_groups = False

    def __init__(self, topic: TopicState, subscriber: Subscriber, selector: Selector | None) -> None:
        super().__init__(topic.target_area, subscriber.facts.number, topic.name)
        self.topic = topic
        self.subscriber = subscriber
        self.selector = selector
        self.admission = topic.admission  # a message that is settled here may make room for the topic's senders
        # Judges messages for the selector, even while no consumer reads.
        self.matcher = SelectorMatcher(selector) if selector is not None else None
        # Whether Topic.reader made it, to begin at a chosen place.
        self.is_reader = False
        # Set if the policy evicts by key.
        self.latest: NewestPerKey | None = None
        # Set if the policy evicts waiting messages.
        self.arrivals: ArrivalOrder | None = None
        # Whether its consumers share the messages, so that further consumers may join.
        self.is_shared = False
        # Whether it is charged, because it is read or has state in RAM.
        self.is_charged = False

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        return SubscriptionSelectorGroup(selector, self.topic.verdicts)

    def on_consumer_closed(self) -> None:
        """Take the subscription offline once its last consumer has closed."""
        if self.selector_groups:
            return
        self.topic.registry.leave(self)
        if not self.topic.online:
            for lane in self.topic.all_lanes():
                lane.memory.pending_cache.forget(lane.pending_lane.number)

    @property
    def is_durable(self) -> bool:
        return self.subscriber.is_durable

    @property
    def subscription_name(self) -> str | None:
        """Return the name of a durable subscription; None for one without a name."""
        return self.subscriber.facts.name if self.subscriber.is_durable else None

    @property
    def qualified_name(self) -> str:
        """Return the topic's qualified name, followed by a slash and the name of the subscription if it has one."""
        own_name = self.subscription_name
        return super().qualified_name if own_name is None else f"{super().qualified_name}/{own_name}"

    @property
    def misses_nothing(self) -> bool:
        """Whether the subscriber must miss nothing, however slow it is: a durable one, or a reader."""
        return self.is_reader or self.subscriber.is_durable

    def lane_of(self, topic_lane: LaneState) -> SubscriptionLaneState:
        """Return the subscription's part of a lane of the topic, made on first use."""
        priority = topic_lane.pending_lane.priority
        lane = self.lanes[priority]
        if lane is None:
            pending_lane = self.subscriber.lanes[priority]
            assert pending_lane is not None
            assert isinstance(topic_lane, TopicLaneState)
            lane = SubscriptionLaneState(self, pending_lane, topic_lane)
            self.put_lane(priority, lane)
            non_persistent = self.non_persistent_lanes[priority]
            if non_persistent is not None:
                non_persistent.persistent_lane = lane
            self.target_area.add_lane(lane)
        assert isinstance(lane, SubscriptionLaneState)
        return lane

    def open_lanes(self) -> Iterator[SubscriptionLaneState]:
        """Open all its lanes, with the messages that were published while it had no consumer."""
        for topic_lane in self.topic.all_lanes():
            lane = self.lane_of(topic_lane)
            lane.published_end = topic_lane.published_end
            yield lane

    def charge(self) -> None:
        """Charge for this object, because the topic keeps it from now on. A second call does nothing."""
        if not self.is_charged:
            self.is_charged = True
            self.target_area.destination_memory.charge(OPEN_SUBSCRIPTION_BYTES)

    def forget(self) -> None:
        """Make the caches forget a subscription that has ended."""
        if self.latest is not None:
            self.latest.close()
        self.let_go()
        caches = self.memory.pending_cache, self.memory.head_queue_cache
        for pending_lane in filter(None, self.subscriber.lanes):
            for cache in caches:
                cache.forget(pending_lane.number)
            self.memory.head_queue_cache.reopen(pending_lane.number)

    def let_go(self) -> None:
        """Note that this object and its lanes are no longer used: loads under way put nothing into the caches."""
        for lane in self.all_lanes():
            self.target_area.on_lane_gone(lane)
        if self.is_charged:
            self.is_charged = False
            self.target_area.destination_memory.release(OPEN_SUBSCRIPTION_BYTES)

    def drop(self) -> None:
        """Forget everything, because the subscription has ended.

        Requires: the lock, and that its consumers are closed.
        """
        for lane in self.lanes:
            if isinstance(lane, SubscriptionLaneState):
                lane.leave_shared()
        self.drop_lanes()

    def _non_persistent(self) -> Iterator[NonPersistentLaneState]:
        return filter(None, self.non_persistent_lanes)

    @property
    def is_blank(self) -> bool:
        """Return whether it has no consumer, and this object could be made anew without loss. O(lanes)."""
        counts = [self.misses + self.delivered + self.dead_lettered + len(self.selector_groups)]
        for lane in self.all_lanes():
            counts += (lane.acknowledged, lane.redelivered, lane.unreadable, lane.expired)
            counts += (lane.dead_letters.count, lane.parked.count, len(lane.in_flight))
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
        """Content bytes of messages that arrived, including those in lanes that are not open yet."""
        persistent = sum(
            pending_lane.enqueued_bytes - max(lane.first_bytes, pending_lane.first_bytes)
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

    def volume(self, lanes: Sequence[LaneMessages]) -> Volume:
        """Return depth, arrivals and departures, including those of lanes that are not open yet."""
        whole = super().volume(lanes)
        return whole._replace(
            depth=self.depth,
            depth_bytes=self.depth_bytes,
            enqueued=self.enqueued,
            enqueued_bytes=self.enqueued_bytes,
        )


class FanOut:
    """Gives non-persistent messages of one topic priority to the subscriptions that exist at the moment.

    Each subscription that has a consumer and wants a message gets it into a lane of its own, in RAM and then in
    tmp-storage, so a slow subscriber holds up nobody. A subscription keeps its messages until it ends; a durable one
    does so while it is offline, too. All lanes of one priority use the same sequences, so a message has one id, whoever
    gets it. A message that has no room in several lanes waits in one pool and is spilled once.

    The state lock guards it.
    """

    delivery_mode: ClassVar[str] = "NON_PERSISTENT"

    def __init__(
        self, lanes: DestinationLanes, overflow: Overflow, removals: Removals, topic: TopicState, priority: int
    ) -> None:
        self._lanes = lanes
        self._buffer = overflow.buffer
        self._removals = removals
        self.destination = topic
        self.priority = priority
        self.id_prefix = lanes.non_persistent_prefix(topic.number, priority)
        # Number of the pool in which lanes without room share messages.
        self.pool = NON_PERSISTENT | topic.number << LANE_SHIFT | priority
        self.next_sequence = lanes.take_sequence(self.pool)
        # Content bytes of all messages sent.
        self.sent_bytes = 0
        topic.target_area.destination_memory.charge(FAN_OUT_BYTES)
        # Number of sequences that were given to one subscription, or sent before the topic was opened.
        self._given_alone = self.next_sequence

    @property
    def sent(self) -> int:
        """Return how many messages were sent."""
        return self.next_sequence - self._given_alone

    def give_retained(self, subscription: SubscriptionState, retained: Retained) -> None:
        """Give a new subscription a message that its topic retains.

        StoreFull or SpillFailed: the subscription does not get the message. RecordDamaged: nobody can read it.

        The message becomes a non-persistent message of that subscription alone. Messages that are given one after the
        other under one hold of the lock have consecutive sequences. Requires: the lock.
        """
        sequence, selector = self.next_sequence, subscription.selector
        timestamp, _, properties, body = retained
        message = (sequence, properties, body, timestamp)
        if selector is not None and not selector.matches(values_of(self, message, FIELD_NAMES)):
            return
        self.next_sequence = sequence + 1  # even if the call fails, as for a message that is sent
        self._given_alone += 1
        lane = self._lane_of(subscription)
        self._buffer.arriving = (self.pool, sequence)
        try:
            lane.skip_to(sequence)
            if has_times(properties):
                lane.add_timed(timestamp, properties, body, times_of(properties))
            else:
                lane.add(timestamp, properties, body)
        finally:
            self._buffer.arriving = None
        lane.retained = range(lane.retained.start if lane.retained else sequence, sequence + 1)
        if self.destination.evictor is not None:
            self.destination.evictor.given((lane,), message)

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Give a message to all subscriptions that want it; return its sequence.

        StoreFull or SpillFailed: no subscription has it.
        """
        return self._give(timestamp, properties, body, None)

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: Times) -> int:
        """Give a message that has a delay, an expiry, or both to all subscriptions that want it."""
        return self._give(timestamp, properties, body, times)

    def _give(self, timestamp: int, properties: bytes, body: bytes, times: Times | None) -> int:
        if not self.destination.is_open:
            raise Closed("the topic")
        sequence = self.next_sequence
        self.next_sequence = sequence + 1  # even if the call fails, because a lane may have counted it
        self.sent_bytes += len(properties) + len(body)
        topic, evictor = self.destination, self.destination.evictor
        verdicts = topic.verdicts
        message = (sequence, properties, body, timestamp)
        given: list[NonPersistentLaneState] = []
        passed_over = 0
        verdicts.begin(self.priority, sequence)
        buffer = self._buffer
        buffer.arriving = (self.pool, sequence)
        try:
            for subscription in topic.online:
                selector = subscription.selector
                if selector is not None and not verdicts.matches(selector, self, message):
                    continue
                if evictor is not None and not evictor.has_room(subscription):
                    passed_over += 1
                    continue
                lane = self._lane_of(subscription)
                lane.skip_to(sequence)
                if times is None:
                    lane.add(timestamp, properties, body)
                else:
                    lane.add_timed(timestamp, properties, body, times)
                given.append(lane)
        except BaseException:
            for lane in given:
                self._take_back(lane, sequence)
            raise
        finally:
            verdicts.end()
            buffer.arriving = None
        if evictor is not None:
            topic.evicted += passed_over
            evictor.given(given, message)
        return sequence

    def _lane_of(self, subscription: SubscriptionState) -> NonPersistentLaneState:
        lane = subscription.non_persistent_lanes[self.priority]
        if lane is None:
            lane = self._lanes.ensure_non_persistent(subscription, self.priority, self.pool, self.id_prefix)
            lane.first_sequence = self.next_sequence - 1
        return lane

    def _take_back(self, lane: NonPersistentLaneState, sequence: int) -> None:
        """Take a message back from a lane because another subscription has no room: either all get it or none."""
        self._removals.remove(lane, ((sequence, sequence),))
