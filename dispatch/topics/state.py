"""TopicState: one topic as the dispatch floor sees it, and the area of each of its subscriptions.

A subscription is to the lists, caches and the loader what a queue is: it has
lanes, a consumer group while somebody reads it, and a number by which the caches
know its messages. Arrivals go to the subscriptions that are read at the
moment; the others find theirs in the index when somebody comes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from ...cache.charge import OVERHEAD_BYTES
from ...cache.shared_cache import SharedCache
from ...cache.spill.overflow import Overflow
from ...store.format.record import RecordDamaged
from ...store.format.times import Times
from ...store.index.lane import Lane
from ...store.index.subscriptions import Subscriber
from ...store.index.topic_lane import NO_RECORD, SubscriptionLane
from ...store.journal.reading import Region, StoredMessage
from ...store.locks import OwnedLock
from ...store.message import HeaderValue
from ...store.message_store import SWEEP_BLOCKS, MessageStore
from ...store.numbering import LANE_SHIFT, NOWHERE, PRIORITIES, VOLATILE
from ...store.sequence_set import SequenceSet
from ..core.destinations import Destinations
from ..core.model import (
    ConsumerGroup,
    LaneDueTimes,
    LaneState,
    LaneStore,
    ListKeeper,
    Load,
    NonPersistentLaneState,
    PersistentLaneState,
    QueueArea,
    Source,
    values_of,
)
from ..core.removal import Removals
from ..selectors.selector import FIELD_NAMES, Selector
from .arrivals import ArrivalOrder
from .latest_keys import NewestPerKey

_NO_AREAS: Final[list[NonPersistentLaneState | None]] = [None] * PRIORITIES
"""One for all topics: nobody puts anything in."""


NOBODY: Final = -1
SHARED_LIST_BYTES: Final = (32 * 1024, 128 * 1024)
"""The bounds of what a list of a subscription holds directly, where other subscriptions of the topic are read too."""


class Verdicts:
    """Which selectors match the message that is just arriving: each text is evaluated once, however many use it."""

    __slots__ = ("_priority", "_sequence", "_values", "_matches")

    def __init__(self) -> None:
        self._priority = self._sequence = NOBODY
        self._values: dict[str, HeaderValue] | None = None
        self._matches: dict[str, bool] = {}

    def begin(self, priority: int, sequence: int) -> None:
        """The next message of the topic."""
        self._priority, self._sequence = priority, sequence
        self._values = None
        self._matches.clear()

    def end(self) -> None:
        """End the state: there is no subscriber for now."""
        self.begin(NOBODY, NOBODY)

    def is_about(self, area: LaneState, message: StoredMessage) -> bool:
        """Whether it is the message, and persistent: of those that are not nobody asks. Requires: the lock."""
        return area.is_persistent and message[0] == self._sequence and area.lane.priority == self._priority

    def matches(self, selector: Selector, area: Source, message: StoredMessage) -> bool:
        """Requires: it is the message; the lock."""
        found = self._matches.get(selector.text)
        if found is None:
            if self._values is None:
                self._values = values_of(area, message, FIELD_NAMES)
            found = self._matches[selector.text] = selector.matches(self._values)
        return found


class SubscriptionGroup(ConsumerGroup):
    """That of a subscription's consumer."""

    __slots__ = ("_verdicts",)

    def __init__(self, selector: Selector | None, state_lock: OwnedLock, verdicts: Verdicts) -> None:
        super().__init__(selector, state_lock)
        self._verdicts = verdicts

    def wants(self, area: LaneState, message: StoredMessage) -> bool:
        """See ConsumerGroup. Of those that are not persistent a subscription has none that it does not want."""
        return not area.is_persistent or super().wants(area, message)

    def verdict(self, area: LaneState, message: StoredMessage) -> bool | None:
        """See ConsumerGroup. A message that is just arriving is judged together with all others who want to know.

        Requires: the lock.
        """
        if self.selector is None or not self._verdicts.is_about(area, message):
            return super().verdict(area, message)
        try:
            return self._verdicts.matches(self.selector, area, message)
        except RecordDamaged:
            return None


class EvictionRule(ABC):
    """What slow subscribers of one topic lose. The state lock guards it."""

    @abstractmethod
    def admitted(self, area: SubscriptionLaneState, arriving: int) -> int:
        """Return how many messages that were just stored, and are not published yet, the subscriber gets at all."""

    @abstractmethod
    def has_room(self, subscription: SubscriptionState) -> bool:
        """Return whether the subscriber gets one more non-persistent message."""

    @abstractmethod
    def given(self, areas: Iterable[NonPersistentLaneState], message: StoredMessage) -> None:
        """Note that these lanes have just got a non-persistent message."""

    @abstractmethod
    def note_keys(
        self, lane: TopicLaneState, areas: Iterable[SubscriptionLaneState], messages: Sequence[StoredMessage]
    ) -> None:
        """Note that messages arrive: for each subscriber that wants one it is the newest of its key."""

    @abstractmethod
    def limit(self, area: SubscriptionLaneState, first: int, end: int, last: int) -> None:
        """Apply the rule to messages first to last, which have just come; those before `end` were admitted."""


class SubscriptionKeeper(ABC):
    """The Topics, as far as one topic knows them. The state lock guards it."""

    unrecorded: LaneStore
    """Settles what subscriptions without a name acknowledge."""
    verdicts: Verdicts
    """One for all topics: of one message at a time, under the lock."""

    @abstractmethod
    def leave(self, area: SubscriptionState) -> None:
        """The consumer of a subscription is closed. Requires: the lock."""


class TopicState(QueueArea):
    """One topic. Its own lanes have no lists. The state lock guards it."""

    is_queue = False

    def __init__(
        self,
        target_area: ListKeeper,
        number: int,
        name: str,
        evictor: EvictionRule | None,
        keeper: SubscriptionKeeper,
    ) -> None:
        """evictor: where the policy has `subscriber_max_messages`."""
        super().__init__(target_area, number, name)
        self.evictor = evictor
        self.keeper = keeper
        self.durable: dict[str, Subscriber] = {}
        """By name of the subscription."""
        self.kept: dict[str, SubscriptionState] = {}
        """Areas of durable subscriptions that are read, or of which there is something to remember."""
        self.online: dict[SubscriptionState, None] = {}
        """Those with a consumer, durable or not."""
        self.evicted = 0
        """Messages that slow subscribers have lost, each counted for each of them."""
        self.fan_outs: dict[int, FanOut] = {}
        """By priority, of those in which non-persistent messages were sent: its subscriptions have the lanes."""
        self.non_persistent_lanes = _NO_AREAS

    @property
    def verdicts(self) -> Verdicts:
        """On the message that is just arriving."""
        return self.keeper.verdicts

    def catch_up(self) -> None:
        """A few blocks at a time; where the index has no room for more, the next checkpoint goes on."""
        self.target_area.store.subscriptions.sweep(SWEEP_BLOCKS)

    def durable_area(self, name: str) -> SubscriptionState:
        """Return the state of a durable subscription; a new one if it is not kept."""
        return self.kept.get(name) or SubscriptionState(self, self.durable[name], None)

    def durable_areas(self) -> Iterator[tuple[str, SubscriptionState]]:
        """All of them by name, in order."""
        return ((name, self.durable_area(name)) for name in sorted(self.durable))

    def meet(self) -> None:
        """Let the only subscription so far know that it is no longer alone. O(messages of its lists)."""
        for subscription in self.online:
            for area in subscription.areas:
                if isinstance(area, SubscriptionLaneState):
                    area.meet()

    def drop(self) -> None:
        """Know nothing any more: the topic is deleted. Requires: the lock."""
        self.drop_lanes()
        self.durable, self.kept, self.fan_outs = {}, {}, {}

    def subscriptions(self) -> set[SubscriptionState]:
        """Return the subscriptions that are read, or of which there is something to remember."""
        return {*self.kept.values(), *self.online}

    @property
    def enqueued(self) -> int:
        return super().enqueued + sum(fan_out.next_sequence for fan_out in self.fan_outs.values())

    @property
    def depth(self) -> int:
        """Return what any subscription needs. Of non-persistent messages what the slowest has, of each priority."""
        return super().depth + self._slowest(lambda area: area.lane.pending_messages)

    @property
    def depth_bytes(self) -> int:
        return super().depth_bytes + self._slowest(lambda area: area.lane.pending_bytes)

    def _slowest(self, size: Callable[[LaneState], int]) -> int:
        found = (
            [area for each in self.subscriptions() if (area := each.non_persistent_lanes[at])] for at in self.fan_outs
        )
        return sum(max(map(size, areas), default=0) for areas in found)

    def make_lane_area(self, priority: int) -> TopicLaneState:
        store = self.target_area.store
        lane = store.index.lane(self.number, priority)
        return TopicLaneState(self, lane, store.id_prefix(self.number, priority))


class TopicLaneState(PersistentLaneState):
    """What is sent in one priority, on its way to the subscriptions."""

    __slots__ = ("topic",)

    def __init__(self, topic: TopicState, lane: Lane, id_prefix: str) -> None:
        super().__init__(topic, lane, id_prefix)
        self.topic = topic

    def readers(self) -> Iterator[LaneState]:
        """See LaneState."""
        yield self
        for subscription in self.topic.subscriptions():
            reader = subscription.areas[self.lane.priority]
            if reader is not None:
                yield reader

    def fronts(self, *, but: LaneState) -> list[int]:
        """Return where the lists of other subscriptions are to be loaded from. O(subscriptions that are read)."""
        others = (subscription.areas[self.lane.priority] for subscription in self.topic.online)
        return [
            target.first_to_load
            for area in others
            if area is not None and area is not but
            for target in area.queue.lists_over(area)
        ]

    def arrive(self, message: StoredMessage) -> None:
        """Each subscription that is read gets it. O(those)."""
        if self.topic.evictor is not None:
            self._arrive_evicting((message,), self.topic.evictor)
            return
        self.published = message[0] + 1
        self._offer(message, self._readers(message[0]))

    def _offer(self, message: StoredMessage, areas: Iterable[LaneState]) -> None:
        verdicts = self.topic.verdicts
        verdicts.begin(self.priority, message[0])
        try:
            for area in areas:
                area.arrive(message)
        finally:
            verdicts.end()

    def arrive_each(self, messages: Sequence[StoredMessage]) -> None:
        """Each subscription that is read gets them, as one where it can. O(those)."""
        if self.topic.evictor is not None:
            self._arrive_evicting(messages, self.topic.evictor)
            return
        self.published = messages[-1][0] + 1
        one_by_one: list[LaneState] = []
        for area in self._readers(messages[0][0]):
            if area.sole is None:
                one_by_one.append(area)
            else:
                area.queue.target_area.arrive_many(area, messages)
        if one_by_one:
            for message in messages:
                self._offer(message, one_by_one)

    def arrive_unloaded(self, end: int) -> None:
        """Each subscription that is read may have them. O(those)."""
        evictor = self.topic.evictor
        if evictor is not None:
            first, readers = self.published, list(self._readers(end - 1))
            self.published = end
            for area in readers:
                count = evictor.admitted(area, end - first)
                if count:
                    area.arrive_unloaded(first + count)
                evictor.limit(area, first, first + count, end - 1)
            return
        self.published = end
        for area in self._readers(end - 1):
            area.arrive_unloaded(end)

    def _arrive_evicting(self, messages: Sequence[StoredMessage], evictor: EvictionRule) -> None:
        """Give messages to the subscribers whom the rule admits."""
        first, last = messages[0][0], messages[-1][0]
        readers = list(self._readers(first))  # a lane that is new to its subscription begins where this one is now
        self.published = last + 1
        evictor.note_keys(self, readers, messages)
        admitted = [(area, evictor.admitted(area, len(messages))) for area in readers]
        for area, count in admitted:
            if count and area.sole is not None:
                area.queue.target_area.arrive_many(area, messages[:count])
        for at, message in enumerate(messages):
            one_by_one = [area for area, count in admitted if at < count and area.sole is None]
            if one_by_one:
                self._offer(message, one_by_one)
        for area, count in admitted:
            evictor.limit(area, first, first + count, last)

    def _readers(self, sequence: int) -> Iterator[SubscriptionLaneState]:
        """Not those that subscribed after it was stored and before it was published."""
        for subscription in self.topic.online:
            area = subscription.lane_area(self)
            if sequence >= area.first_sequence:
                yield area


class SubscriptionLaneState(PersistentLaneState):
    """One lane of one subscription."""

    __slots__ = (
        "examined",
        "subscription",
        "subscription_lane",
        "topic_area",
        "_shared",
        "_is_followed",
        "_has_neighbours",
    )

    def __init__(self, subscription: SubscriptionState, lane: SubscriptionLane, topic_area: TopicLaneState) -> None:
        super().__init__(subscription, lane.topic, topic_area.id_prefix, lane)
        self.subscription = subscription
        self.subscription_lane = lane
        self.topic_area = topic_area
        target_area = subscription.target_area
        self._shared = SharedCache(target_area.pending_cache, lane.topic.number, self._first_of_others)
        self.pending_cache = self._shared
        self.caches = (self._shared, target_area.head_queue_cache)
        self._is_followed = self._has_neighbours = len(topic_area.topic.online) > 1
        """Others are close behind, or close by: what is read for one serves them too."""
        self.is_timed = topic_area.is_timed
        self.published = topic_area.published
        self.first_sequence = max(topic_area.first_sequence, lane.first_sequence)
        if not subscription.is_durable:
            self.store = subscription.topic.keeper.unrecorded
            self.syncs = False
        self.examined = 0
        """The selector is known to match what is pending before this sequence."""
        if subscription.selector is not None:
            self.unwanted = SequenceSet()

    def meet(self) -> None:
        """Keep in RAM once, for others that have just come, what its list had for itself. O(its messages)."""
        self._is_followed = self._has_neighbours = True
        for target in self.queue.lists_over(self):
            self.queue.target_area.shorten(target)

    def _first_of_others(self) -> int:
        """Return the first sequence that another subscription may look for in RAM."""
        return min(self.topic_area.fronts(but=self), default=NOWHERE)

    @property
    def is_recorded(self) -> bool:
        """See LaneState."""
        return self.subscription.is_durable

    @property
    def list_bytes_max(self) -> int:
        """See LaneState. What several readers want lies better in the cache, where it is once."""
        if not self._has_neighbours:
            return NOWHERE
        least, most = SHARED_LIST_BYTES
        return max(least, min(most, self._shared.share_bytes // (2 * len(self.topic_area.topic.online))))

    @property
    def reads_for_others(self) -> bool:
        """See LaneState."""
        return self._is_followed

    def load_room(self, list_bytes: int, first: int) -> int:
        """See LaneState. A read brings what others need too, and records of many messages are read once."""
        return NOWHERE if self._is_followed and self.peek(first) is None else list_bytes

    def loaded(self, load: Load) -> None:
        """See LaneState. What was read for one subscription is kept for those that are about to need it."""
        topic_area, shared = self.topic_area, self._shared
        mean_bytes = OVERHEAD_BYTES + topic_area.lane.pending_bytes / max(topic_area.lane.pending_messages, 1)
        reach = int(shared.share_bytes / 2 / mean_bytes)  # what is farther off would be pushed out before its time
        others = topic_area.fronts(but=self)
        followers = [front for front in others if load.first - reach <= front <= load.last]
        if load.regions and followers:
            least = min(followers)
            for message in load.messages or [load.held[sequence] for sequence in sorted(load.held)]:
                if message[0] >= least and message[2] is not None and not shared.put(self.lane.number, message):
                    break
        at = load.target.first_to_load
        self._is_followed = any(at - reach <= front <= at for front in others)
        self._has_neighbours = any(abs(at - front) <= reach for front in others)
        shared.drop_before(min([at, *others]))
        if self._has_neighbours:
            self.queue.target_area.shorten(load.target)

    def peek(self, sequence: int) -> StoredMessage | None:
        """See LaneState."""
        return self._shared.peek(self.lane.number, sequence)

    @property
    def swept_lane(self) -> LaneState:
        """See LaneState."""
        return self.topic_area


class UnrecordedStore:
    """Settles what subscriptions without a name acknowledge: nothing on disk knows of them. See LaneStore."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def timetable(self) -> LaneDueTimes:
        """See LaneStore."""
        return self._store.timetable

    def remove(self, lane: SubscriptionLane, first: int, last: int) -> int:
        """Remove a run without a record; return how many were pending. Requires: the lock."""
        return lane.remove(first, last, NO_RECORD)

    def remove_one(self, lane: SubscriptionLane, sequence: int) -> int:
        """Remove one message without a record. Requires: the lock."""
        return lane.remove(sequence, sequence, NO_RECORD)

    def plan(self, lane: SubscriptionLane, runs: Sequence[tuple[int, int]]) -> list[Region]:
        """See LaneStore."""
        return self._store.plan(lane, runs)

    def read(self, regions: Sequence[Region]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """See LaneStore."""
        return self._store.read(regions)


class SubscriptionState(QueueArea):
    """One subscription. `name` is its topic's, `number` its own. The state lock guards it."""

    def __init__(self, topic: TopicState, subscriber: Subscriber, selector: Selector | None) -> None:
        super().__init__(topic.target_area, subscriber.facts.number, topic.name)
        self.topic = topic
        self.subscriber = subscriber
        self.selector = selector
        self.admission = topic.admission  # what leaves it may make room for the topic's senders
        self.judge = ConsumerGroup(selector, topic.monitor.lock) if selector is not None else None
        """Says what matches, also while nobody reads. It has no lists."""
        self.latest: NewestPerKey | None = None
        """Where its policy evicts by key."""
        self.arrivals: ArrivalOrder | None = None
        """Where its policy evicts what waits."""

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        return SubscriptionGroup(selector, self.monitor.lock, self.topic.verdicts)

    def on_consumer_closed(self) -> None:
        """See QueueArea."""
        self.topic.keeper.leave(self)
        if not self.topic.online:
            for lane in self.topic.lane_areas():
                self.target_area.pending_cache.forget(lane.lane.number)

    @property
    def is_durable(self) -> bool:
        return self.subscriber.is_durable

    def lane_area(self, topic_area: LaneState) -> SubscriptionLaneState:
        """Return the subscription's part of a lane of the topic; made on first use."""
        priority = topic_area.lane.priority
        area = self.areas[priority]
        if area is None:
            lane = self.subscriber.lanes[priority]
            assert lane is not None
            assert isinstance(topic_area, TopicLaneState)
            area = self.areas[priority] = SubscriptionLaneState(self, lane, topic_area)
            volatile = self.non_persistent_lanes[priority]
            if volatile is not None:
                volatile.persistent = area
            self.target_area.add_lane(area)
        assert isinstance(area, SubscriptionLaneState)
        return area

    def open_lanes(self) -> Iterator[SubscriptionLaneState]:
        """All its lanes, with what was published while nobody read."""
        for topic_area in self.topic.lane_areas():
            area = self.lane_area(topic_area)
            area.published = topic_area.published
            yield area

    def forget(self) -> None:
        """Forget a subscription that has ended: no cache keeps anything for it."""
        self.forget_heads()
        caches = self.target_area.pending_cache, self.target_area.head_queue_cache
        for lane in filter(None, self.subscriber.lanes):
            for cache in caches:
                cache.forget(lane.number)
            self.target_area.head_queue_cache.reopen(lane.number)

    def forget_heads(self) -> None:
        """Nobody knows this area any more: what is just read for it gets into no cache."""
        for area in self.lane_areas():
            self.target_area.on_lane_gone(area)

    def _volatile(self) -> Iterator[NonPersistentLaneState]:
        return filter(None, self.non_persistent_lanes)

    @property
    def is_blank(self) -> bool:
        """Nobody reads it, and a new area would know as much. O(lanes)."""
        counts = [self.misses + self.delivered + self.dead_lettered + len(self.consumer_groups)]
        for area in self.lane_areas():
            counts += (area.acknowledged, area.redelivered, area.unreadable, area.expired)
            counts += (area.dead.count, area.parked.count, len(area.in_flight))
        counts += (area.lane.pending_messages for area in self._volatile())
        return self.selector is None and not any(counts)

    @property
    def enqueued(self) -> int:
        persistent = sum(
            lane.topic.next_sequence - max(area.first_sequence, lane.first_sequence)
            for area, lane in zip(self.topic.areas, self.subscriber.lanes, strict=True)
            if area is not None and lane is not None
        )
        return persistent + sum(area.lane.next_sequence - area.first_sequence for area in self._volatile())

    @property
    def depth(self) -> int:
        persistent = sum(lane.depth[0] for lane in filter(None, self.subscriber.lanes))
        return persistent + sum(area.lane.pending_messages for area in self._volatile())

    @property
    def depth_bytes(self) -> int:
        persistent = sum(lane.depth[1] for lane in filter(None, self.subscriber.lanes))
        return persistent + sum(area.lane.pending_bytes for area in self._volatile())


class FanOut:
    """Fans non-persistent messages of one topic priority out to whoever subscribes at the moment.

    Each subscription that has a consumer and wants a message gets it into a lane of its own, with RAM before and
    tmp-storage behind, so a slow subscriber holds up nobody. A subscription keeps its messages until it ends, a
    durable one also while it is offline. All lanes of one priority number their messages alike, so that a message has
    one id, whoever gets it, and what several lanes have no room for waits, and is spilled, once. The state lock
    guards it.
    """

    delivery_mode: ClassVar[str] = "NON_PERSISTENT"

    def __init__(
        self, destinations: Destinations, overflow: Overflow, removals: Removals, topic: TopicState, priority: int
    ) -> None:
        self._destinations = destinations
        self._buffer = overflow.buffer
        self._removals = removals
        self.queue = topic
        self.priority = priority
        self.id_prefix = destinations.non_persistent_prefix(topic.number, priority)
        self.pool = VOLATILE | topic.number << LANE_SHIFT | priority
        """In which its lanes share what they have no room for."""
        self.next_sequence = 0

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Give one message to all who want it; returns its sequence. StoreFull, SpillFailed: nobody has it."""
        return self._give(timestamp, properties, body, None)

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: Times) -> int:
        """Add a message that is due later, or expires, or both."""
        return self._give(timestamp, properties, body, times)

    def _give(self, timestamp: int, properties: bytes, body: bytes, times: Times | None) -> int:
        sequence = self.next_sequence
        self.next_sequence = sequence + 1  # also where it fails: some lane may have counted it
        topic, evictor = self.queue, self.queue.evictor
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
                area = self._area(subscription)
                area.skip_to(sequence)
                if times is None:
                    area.add(timestamp, properties, body)
                else:
                    area.add_timed(timestamp, properties, body, times)
                given.append(area)
        except BaseException:
            for area in given:
                self._take_back(area, sequence)
            raise
        finally:
            verdicts.end()
            buffer.arriving = None
        if evictor is not None:
            topic.evicted += passed_over
            evictor.given(given, message)
        return sequence

    def _area(self, subscription: SubscriptionState) -> NonPersistentLaneState:
        area = subscription.non_persistent_lanes[self.priority]
        if area is None:
            area = self._destinations.non_persistent_lane(subscription, self.priority, self.pool, self.id_prefix)
            area.first_sequence = self.next_sequence - 1
        return area

    def _take_back(self, area: NonPersistentLaneState, sequence: int) -> None:
        """Take back a message that somebody else found no room for: all get it, or nobody."""
        self._removals.remove(area, ((sequence, sequence),))
