"""QueueArea: one destination's messages, lane by lane, and who is interested in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..cache.charge import charge_bytes
from ..cache.message_cache import MessageCache
from ..store.errors import StoreFailed
from ..store.lane import PRIORITIES, Lane
from ..store.message import HeaderValue
from ..store.properties import decode_properties
from ..store.reading import StoredMessage
from ..store.runs import Runs
from .selector import Selector
from .target_list import TargetList

if TYPE_CHECKING:
    from .admission import Admission
    from .consumer import Consumer
    from .delivery import Delivery
    from .eager_loader import Load
    from .target_area import TargetArea
    from .volatile_area import VolatileArea


class Interest:
    """All consumers of a queue with one selector (or none), and their lists, highest priority first."""

    __slots__ = ("selector", "consumers", "lists", "arrived", "waiting", "is_armed", "misses")

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

    def wants(self, area: LaneArea, message: StoredMessage) -> bool:
        """Whether the selector matches. O(selector); headers are decoded only where they may decide it."""
        selector = self.selector
        if selector is None:
            return True
        properties = message[1]
        if selector.needles and not any(map(properties.__contains__, selector.needles)):
            return False
        values: dict[str, HeaderValue] = {}
        own_id: str | None = None
        if properties:
            values, own_id = decode_properties(properties)
        if selector.field_names:
            values |= {
                "JMSPriority": area.lane.priority,
                "JMSMessageID": own_id if own_id is not None else f"{area.id_prefix}{message[0]}",
                "JMSTimestamp": message[3],
                "JMSDeliveryMode": area.delivery_mode,
            }
        return selector.matches(values)


class LaneStore(Protocol):
    """What MessageStore and Overflow have in common. Each knows its own lanes and regions."""

    def remove(self, lane: Any, first: int, last: int) -> int:
        """Acknowledge a run; returns how many were pending. REQUIRES: the lock."""

    def remove_one(self, lane: Any, sequence: int) -> int:
        """As remove, for one."""

    def plan(self, lane: Any, runs: Sequence[tuple[int, int]]) -> list[Any]:
        """How to read these pending sequences, each run inside one block. REQUIRES: the lock."""

    def read(self, regions: Sequence[Any]) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """(messages in order, [(sequence, problem)] of those that can't be read). REQUIRES: no lock."""


class LaneArea:
    """One lane as the dispatch floor sees it. The state lock guards it."""

    __slots__ = (
        "queue",
        "lane",
        "id_prefix",
        "published",
        "first_sequence",
        "in_flight",
        "attempts",
        "parked",
        "sole",
        "acknowledged",
        "redelivered",
        "unreadable",
        "purges",
        "unwanted",
        "syncs",
        "store",
        "caches",
    )
    is_persistent: ClassVar[bool] = True
    delivery_mode: ClassVar[str] = "PERSISTENT"

    def __init__(self, queue: QueueArea, lane: Lane, id_prefix: str) -> None:
        self.queue = queue
        self.lane = lane
        self.id_prefix = id_prefix
        self.published = lane.next_sequence
        """Sequences below this may be dispatched; with sync "always" they are durable."""
        self.first_sequence = lane.next_sequence
        self.in_flight: dict[int, Delivery] = {}
        """The DispatchArea of this lane: handed out, not yet settled."""
        self.attempts: dict[int, int] = {}
        """How often a message that came back was delivered before."""
        self.parked: set[int] = set()
        """Sequences that nobody may have before their delay is over."""
        self.sole: TargetList | None = None
        """The only list of this lane, when that is one without a selector: the fast path of arrivals."""
        self.acknowledged = 0
        self.redelivered = 0
        self.unreadable = 0
        self.purges = 0
        """How often messages were taken out of the middle: a load that began before must look again."""
        self.unwanted: Runs | None = None
        """For a subscription with a selector: what does not match and is to be acknowledged for it."""
        target_area = queue.target_area
        self.syncs = target_area.syncs_always
        """Acks are durable before they are confirmed."""
        self.store: LaneStore = target_area.store
        """What has the messages of this lane that RAM has no place for; acks go there."""
        self.caches: tuple[MessageCache, ...] = (target_area.pending_cache, target_area.head_queue_cache)
        """Where a message may be that is in no list."""

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
                target_area.pending_cache.put_overflow(self.lane.number, message, is_next=True)
        else:
            target_area.pending_cache.put_overflow(self.lane.number, message, is_next=False)
        interest = sole.interest
        if interest.waiting:
            interest.arrived.notify()
        if interest.is_armed:
            target_area.wake(interest)

    def keep(self, messages: Sequence[StoredMessage]) -> None:
        """RAM lets go of these: the journal has them."""

    def spill(self, messages: Sequence[StoredMessage]) -> None:
        """As keep, for memory that is wanted at once."""

    def unload(self, message: StoredMessage) -> bool:
        """Whether the body may leave RAM now, because it can be read again."""
        return True

    def give_up(self, sequence: int) -> None:
        """It can't be read, and a list has passed it."""
        self.queue.target_area.unreadable.append((self, sequence))

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
        """Read a message that is still pending. One or two reads of the journal; takes the state lock."""
        return self.queue.target_area.read_one(self, sequence)

    def not_read(self, problem: str) -> StoreFailed:
        return StoreFailed(f"a message of {self.queue.name!r} can't be read ({problem})")


class QueueArea:
    """One destination. Lanes are made on first use. The state lock guards it."""

    is_queue: ClassVar[bool] = True

    def __init__(self, target_area: TargetArea, number: int, name: str) -> None:
        self.target_area = target_area
        self.number = number
        self.name = name
        self.areas: list[LaneArea | None] = [None] * PRIORITIES
        self.volatile_areas: list[VolatileArea | None] = [None] * PRIORITIES
        """The same for non-persistent messages."""
        self.interests: dict[str | None, Interest] = {}
        self.admission: Admission | None = None
        """Of a queue whose policy limits it."""
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
        """Of interests that have ended."""
        self.delivered = 0
        """To consumers that are closed."""

    def make_lane_area(self, priority: int) -> LaneArea:
        store = self.target_area.store
        return LaneArea(self, store.index.lane(self.number, priority), store.id_prefix(self.number, priority))

    def lane_areas(self) -> Iterator[LaneArea]:
        """Those that exist, highest priority first."""
        both = zip(reversed(self.areas), reversed(self.volatile_areas), strict=True)
        return (area for pair in both for area in pair if area is not None)

    def consumers(self) -> Iterator[Consumer]:
        return (consumer for interest in self.interests.values() for consumer in interest.consumers)

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
