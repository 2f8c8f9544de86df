"""QueueArea: one destination's messages, lane by lane, and who is interested in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ...cache.charge import charge_bytes
from ...cache.message_cache import MessageCache
from ...store.errors import SettingsError, StoreFailed
from ...store.format.properties import decode_properties, group_of
from ...store.format.record import RecordDamaged
from ...store.index.lane import PRIORITIES, Lane, PendingLane
from ...store.journal.reading import StoredMessage
from ...store.message import HeaderValue
from ...store.sequence_set import SequenceSet
from ..selectors.selector import Selector
from .target_list import TargetList

if TYPE_CHECKING:
    from ..admission.limits import DestinationLimits
    from ..consumer.consumer import Consumer
    from ..distribution.grouped import GroupAssigner
    from ..loading.eager import Load
    from .delivery import Delivery
    from .lists import TargetArea
    from .non_persistent import NonPersistentLaneState


class ConsumerGroup:
    """All consumers of a queue with one selector (or none), and their lists, highest priority first."""

    __slots__ = ("selector", "consumers", "lists", "arrived", "waiting", "is_armed", "misses")
    notes_groups: ClassVar[bool] = False
    """A load tells it the groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None, state_lock: threading.Lock) -> None:
        self.selector = selector
        self.consumers: list[Consumer] = []
        self.lists: list[TargetList] = []
        self.arrived = threading.Condition(state_lock)
        self.waiting = 0
        """Threads that wait in take for something to arrive."""
        self.is_armed = False
        """Some consumer waits for its on_ready callback."""
        self.misses = 0

    @property
    def is_awaited(self) -> bool:
        """A take waits, or a callback that the next message calls."""
        return self.waiting > 0 or self.is_armed

    def arm(self, consumer: Consumer) -> None:
        """Note that this consumer waits for its on_ready callback. REQUIRES: the lock."""
        self.is_armed = True

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Something may be there for its consumers. Callbacks that are due join ready. REQUIRES: the lock."""
        if self.waiting:
            self.arrived.notify_all()
        if self.is_armed:
            self.is_armed = False
            for consumer in self.consumers:
                consumer.become_ready(ready)
            # Whoever is called first may take all there is: the next time that is another one.
            self.consumers = self.consumers[1:] + self.consumers[:1]

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """As wake, also for those who wait for just that, whatever it brought. REQUIRES: the lock."""
        self.wake(ready)

    def in_turn(self) -> Iterable[TargetList]:
        """The lists in the order in which a hand-out looks at them."""
        return self.lists

    def is_free(self, area: LaneState, message: StoredMessage) -> bool:
        """Whether a message that several lists may name can be handed out. Either way the caches need no copy."""
        sequence = message[0]
        area.drop_copies(sequence)
        if area.dead and sequence in area.dead:
            return False
        return sequence not in area.in_flight and sequence not in area.parked and area.lane.is_pending(sequence)

    def note_group(self, area: LaneState, message: StoredMessage) -> None:
        """A load has read a message whose body it does not keep. REQUIRES: notes_groups."""

    def wants(self, area: LaneState, message: StoredMessage) -> bool:
        """Whether the selector matches. O(selector); headers are decoded only where they may decide it."""
        selector = self.selector
        if selector is None:
            return True
        if selector.needles and not any(map(message[1].__contains__, selector.needles)):
            return False
        return selector.matches(values_of(area, message, selector.field_names))

    def verdict(self, area: LaneState, message: StoredMessage) -> bool | None:
        """As wants; None: its headers are not in RAM, or make no sense. The loader looks again, and tells of it."""
        if self.selector is not None and message[2] is None:
            return None
        try:
            return self.wants(area, message)
        except RecordDamaged:
            return None


class Source(Protocol):
    """Where a message was sent, as far as it can be asked for that."""

    @property
    def priority(self) -> int: ...
    @property
    def id_prefix(self) -> str: ...
    @property
    def delivery_mode(self) -> str: ...


def values_of(area: Source, message: StoredMessage, fields: Set[str]) -> dict[str, HeaderValue]:
    """What a selector may ask a message for, which of its own fields included. RecordDamaged where that is no text."""
    properties = message[1]
    values: dict[str, HeaderValue] = {}
    own_id: str | None = None
    if properties:
        values, own_id = decode_properties(properties)
    if fields:
        values |= {
            "JMSPriority": area.priority,
            "JMSMessageID": own_id if own_id is not None else f"{area.id_prefix}{message[0]}",
            "JMSTimestamp": message[3],
            "JMSDeliveryMode": area.delivery_mode,
            "JMSXGroupID": group_of(properties) if "JMSXGroupID" in fields else None,
        }
    return values


class LaneStore(Protocol):
    """What MessageStore and Overflow have in common. Each knows its own lanes and regions."""

    @property
    def timetable(self) -> LaneDueTimes:
        """What finds the messages whose time has come."""

    def remove(self, lane: Any, first: int, last: int) -> int:
        """Acknowledge a run; returns how many were pending. REQUIRES: the lock."""

    def remove_one(self, lane: Any, sequence: int) -> int:
        """As remove, for one."""

    def plan(self, lane: Any, runs: Sequence[tuple[int, int]]) -> list[Any]:
        """How to read these pending sequences, each run inside one block. REQUIRES: the lock."""

    def read(self, regions: Sequence[Any]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """(messages in order, [(sequence, problem)] of those that can't be read). REQUIRES: no lock."""


class LaneDueTimes(Protocol):
    """As DueTimes. Every method REQUIRES the lock."""

    def release(self, lane: Any, now_ms: int, most_blocks: int) -> list[tuple[int, int]]: ...

    def expired_blocks(self, lane: Any, now_ms: int) -> list[int]: ...

    def expired(self, lane: Any, number: int, now_ms: int) -> Iterator[tuple[int, int]]: ...

    def look(self, lane: Any) -> None: ...


class LaneState:
    """One lane as the dispatch floor sees it. The state lock guards it."""

    __slots__ = (
        "queue",
        "lane",
        "id_prefix",
        "published",
        "first_sequence",
        "in_flight",
        "attempts",
        "dead",
        "parked",
        "sole",
        "acknowledged",
        "redelivered",
        "unreadable",
        "purges",
        "unwanted",
        "is_timed",
        "expired",
        "syncs",
        "store",
        "caches",
    )
    is_persistent: ClassVar[bool] = True
    delivery_mode: ClassVar[str] = "PERSISTENT"

    def __init__(self, queue: QueueArea, lane: PendingLane, id_prefix: str) -> None:
        self.queue = queue
        self.lane = lane
        self.id_prefix = id_prefix
        self.published = lane.next_sequence
        """Sequences below this may be dispatched; with sync "always" they are durable."""
        self.first_sequence = lane.next_sequence
        self.in_flight: dict[int, Delivery] = {}
        """The DispatchArea of this lane: handed out, not yet settled."""
        self.attempts = queue.target_area.store.index.attempts.find(lane.number)
        """How often messages that came back were delivered before; None: nothing of this lane ever came back."""
        self.dead = SequenceSet()
        """Delivered as often as may be: nobody gets them, and they are about to leave."""
        self.parked: set[int] = set()
        """Sequences that nobody may have before their delay is over."""
        self.sole: TargetList | None = None
        """The only list of this lane, when that is one without a selector: the fast path of arrivals."""
        self.acknowledged = 0
        self.redelivered = 0
        self.unreadable = 0
        self.purges = 0
        """How often messages were taken out of the middle: a load that began before must look again."""
        self.unwanted: SequenceSet | None = None
        """For a subscription with a selector: what does not match and is to be acknowledged for it."""
        self.is_timed = False
        """Some messages have, or had, times: see admin/expiry.py."""
        self.expired = 0
        target_area = queue.target_area
        self.syncs = target_area.syncs_always
        """Acks are durable before they are confirmed."""
        self.store: LaneStore = target_area.store
        """What has the messages of this lane that RAM has no place for; acks go there."""
        self.caches: tuple[MessageCache, ...] = (target_area.pending_cache, target_area.head_queue_cache)
        """Where a message may be that is in no list."""

    @property
    def priority(self) -> int:
        return self.lane.priority

    def settled(self, first: int, last: int) -> None:
        """These are gone, and with them what was counted of them. Nothing to do where `attempts` is None."""
        counts = self.queue.target_area.store.index.attempts
        counts.settle(self.lane, first, last)
        self.attempts = counts.find(self.lane.number)

    def arrive_each(self, messages: Sequence[StoredMessage]) -> None:
        """A slice that the fast path does not take whole."""
        for message in messages:
            self.arrive(message)

    def arrive(self, message: StoredMessage) -> None:
        """A message is stored and may be dispatched. It never waits for memory: at worst it stays a reference."""
        sequence = message[0]
        self.published = sequence + 1
        target_area = self.queue.target_area
        sole = self.sole
        if sole is None:
            target_area.arrive(self, message)
            return
        if sole.frontier == sequence and not sole.references:
            charge = charge_bytes(message)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and target_area.targets.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = sequence + 1
            else:
                target_area.pending_cache.put_overflow(self.lane.number, message, is_near=True)
        else:
            # Where there is room for all, the loader reads what it missed, and has caught up.
            target_area.pending_cache.put_overflow(self.lane.number, message, is_near=sole.has_room_for_all)
        consumer_group = sole.consumer_group
        if consumer_group.waiting:
            consumer_group.arrived.notify()
        if consumer_group.is_armed:
            target_area.wake(consumer_group)

    def arrive_unloaded(self, end: int) -> None:
        """All before end may be dispatched; what is new of it is not in RAM, or not due yet."""
        self.queue.target_area.arrive_unloaded(self, end)

    def keep(self, messages: Sequence[StoredMessage]) -> None:
        """RAM lets go of these: the journal has them."""

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """As keep, for memory that is wanted at once."""

    def spill(self, messages: Sequence[StoredMessage]) -> None:
        """As keep, for what others must find on disk at once."""

    def unload(self, message: StoredMessage) -> bool:
        """Whether the body may leave RAM now, because it can be read again."""
        return True

    def give_up(self, sequence: int) -> None:
        """It can't be read, and a list has passed it."""
        raise NotImplementedError

    def drop_copies(self, sequence: int) -> None:
        """A list that shares is about to pass this message: no cache needs it any more."""
        for cache in self.caches:
            cache.take(self.lane.number, sequence)

    def hold(self, sequence: int) -> None:
        """A list that shares hands this message out with its body."""

    def peek(self, sequence: int) -> StoredMessage | None:
        """A message that may be nowhere but in RAM."""
        return None

    def settle_load(self, load: Load) -> Sequence[int]:
        """A load has taken from the caches what they have: the rest of it can be read."""
        return ()

    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. REQUIRES: the lock is not held."""
        target_area = self.queue.target_area
        with target_area.lock:
            target_area.store.raise_if_closed()
            if not self.lane.is_pending(sequence):
                raise SettingsError("a lazy delivery is settled: look at its body, headers and id before that")
            in_ram = self.peek(sequence)
            if in_ram is not None:
                return in_ram
            regions = self.store.plan(self.lane, [(sequence, sequence)])
        messages, unreadable = self.store.read(regions)
        if unreadable:
            raise self.not_read(unreadable[0][1])
        return messages[0]

    def not_read(self, problem: str) -> StoreFailed:
        return StoreFailed(f"a message of {self.queue.name!r} can't be read ({problem})")


class PersistentLaneState(LaneState):
    """Of messages that are in the journal. The state lock guards it."""

    __slots__ = ("index_lane",)

    def __init__(self, queue: QueueArea, lane: Lane, id_prefix: str) -> None:
        super().__init__(queue, lane, id_prefix)
        self.index_lane = lane
        """The same lane, with its places on disk."""

    def give_up(self, sequence: int) -> None:
        """See LaneState. It goes on record as lost."""
        self.queue.target_area.unreadable.append((self, sequence))


class QueueArea:
    """One destination. Lanes are made on first use. The state lock guards it."""

    is_queue: ClassVar[bool] = True

    def __init__(self, target_area: TargetArea, number: int, name: str) -> None:
        self.target_area = target_area
        self.number = number
        self.name = name
        self.areas: list[PersistentLaneState | None] = [None] * PRIORITIES
        self.non_persistent_lanes: list[NonPersistentLaneState | None] = [None] * PRIORITIES
        """The same for non-persistent messages."""
        self.consumer_groups: dict[str | None, ConsumerGroup] = {}
        self.admission: DestinationLimits | None = None
        """Of a queue or topic whose policy limits it, and of the topic's subscriptions."""
        self.has_groups = False
        """Messages with a group were sent there, once at least."""
        self.dealer: GroupAssigner | None = None
        """Where messages have groups or consumers have priorities: who gets what."""
        self.exclusive: Consumer | None = None
        """The only one who gets anything."""
        self.exclusives: list[Consumer] = []
        """That one and those that wait to take over, in the order in which they came."""
        self.is_paused = False
        """Nothing is handed out until it is resumed."""
        self.is_deleted = False
        self.is_watched = False
        """Its policy has a duplicate window."""
        self.dropped = 0
        """Messages that its policy gave up for want of room."""
        self.drop_numbers = count(1)
        """For the ids of those that never were stored."""
        self.blocked_sends = 0
        self.blocked_seconds = 0.0
        """Of sends that had to wait for room, when they ended."""
        self.misses = 0
        """Of consumer groups that have ended."""
        self.delivered = 0
        """To consumers that are closed."""
        self.dead_lettered = 0
        """Messages that were given up after their last attempt."""

    def make_lane_area(self, priority: int) -> PersistentLaneState:
        store = self.target_area.store
        return PersistentLaneState(
            self, store.index.lane(self.number, priority), store.id_prefix(self.number, priority)
        )

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        dealer = self.dealer
        return ConsumerGroup(selector, self.target_area.lock) if dealer is None else dealer.make_stock(selector)

    def lane_areas(self) -> Iterator[LaneState]:
        """Those that exist, highest priority first."""
        both = zip(reversed(self.areas), reversed(self.non_persistent_lanes), strict=True)
        return (area for pair in both for area in pair if area is not None)

    def lists_over(self, area: LaneState) -> Iterator[TargetList]:
        """Every list of one of its lanes."""
        consumer_groups: Iterable[ConsumerGroup] = self.consumer_groups.values()
        if self.dealer is not None:
            consumer_groups = [*consumer_groups, *(consumer.consumer_group for consumer in self.consumers())]
        return (target for consumer_group in consumer_groups for target in consumer_group.lists if target.area is area)

    def holds_up(self, consumer: Consumer) -> bool:
        """Whether a consumer gets nothing, whatever is there."""
        return self.is_paused or (self.exclusive is not None and self.exclusive is not consumer)

    @property
    def missed(self) -> int:
        """Deliveries that had to be loaded first."""
        dealt = () if self.dealer is None else (consumer.consumer_group.misses for consumer in self.consumers())
        return self.misses + sum(consumer_group.misses for consumer_group in self.consumer_groups.values()) + sum(dealt)

    def consumers(self) -> Iterator[Consumer]:
        return (consumer for consumer_group in self.consumer_groups.values() for consumer in consumer_group.consumers)

    @property
    def enqueued(self) -> int:
        """Messages that came since the directory was opened."""
        return sum(area.lane.next_sequence - area.first_sequence for area in self.lane_areas())

    def catch_up(self) -> None:
        """Make depth what it is: a topic lets go late of what no subscription needs any more."""

    @property
    def depth(self) -> int:
        return sum(area.lane.pending_messages for area in self.lane_areas())

    @property
    def depth_bytes(self) -> int:
        return sum(area.lane.pending_bytes for area in self.lane_areas())
