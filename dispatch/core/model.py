"""What points at each other: open destinations, their lanes and TargetLists, consumer groups and consumers.

These classes are one module because each names the others in the types of its
attributes: a destination its lanes, consumer groups and distribution, a lane
its destination and its only list, a list its lane, consumer group and load, a
consumer its destination and consumer group. A distribution is given all of
them and returns them. What they have that names none of these is below: a
lane's messages and the deliveries in flight (delivery.py), what a list holds
(list_contents.py), what a destination has counted (counters.py).

Where a message that arrives goes is decided here as well (LaneState.arrive).
What else acts on them lies above: TargetArea hands out, the loader reads,
consumers settle. The state lock guards all of them. Nothing here survives the
process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from ...cache.charge import OVERHEAD_BYTES, charges_bytes
from ...cache.lane_memory import LaneMemory
from ...cache.shares import BYTES_PER_SECOND_MIN, LOW_WATERMARK_SHARE, UNMEASURED_BYTES_PER_SECOND
from ...cache.tab import Tab
from ...store.errors import Closed, StateError, StoreFailed
from ...store.format.record import RecordDamaged, Returned
from ...store.format.state import CountedRun
from ...store.format.times import Times
from ...store.index.fingerprint import BlockSurvey
from ...store.index.fingerprints import Candidate, has_fingerprints
from ...store.index.index import INDEX_LANE_BYTES
from ...store.index.lane import DeletedLane, Lane
from ...store.index.pending_lane import JournaledLane, PendingLane
from ...store.journal.reading import Region
from ...store.locks import UNAWAITED, OwnedLock, condition_of
from ...store.message import HeaderValue
from ...store.message_store import MessageStore
from ...store.numbering import BLOCK_MASK, PRIORITIES, UNLIMITED
from ...store.sequence_set import SequenceSet
from ...store.stored_message import StoredMessage
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..admission.limits import DestinationLimits
from ..selectors.selector import Selector
from ..traits import trait
from .contracts import LaneCache, OverflowCache, ReadResult
from .counters import CountedDestination
from .delivery import Delivery, LaneMessages, Settler, counted_runs
from .judging import values_of
from .list_contents import NO_MESSAGES, ListContents
from .members import Members
from .monitor import Monitor

NO_NAMES: Final[frozenset[str]] = frozenset()

LANE_STATE_BYTES: Final = 1024
"""Charged for a lane that is open, beside its messages and what the index has of it."""
NON_PERSISTENT_LANE_BYTES: Final = 3072
"""Charged for a lane of non-persistent messages that is open, with what tmp-storage knows of it. Measured with
tracemalloc over 1,000 of each, used once."""


_NO_LANES: Final[list[Any]] = [None] * PRIORITIES
"""The lanes of all queues and topics that are closed or deleted, whose handles hosts may keep by the thousand."""


class Taker(Settler):
    """A consumer, as far as lists, consumer groups and transactions know it."""

    __slots__ = (
        "destination",
        "consumer_group",
        "priority",
        "prefetch_limit",
        "is_draining",
        "delivered",
        "is_slow",
        "slow_seconds",
        "moved_at",
        "counts_at_slow_look",
        "messages_per_second",
        "on_slow",
        "counts_at_stuck_look",
        "stuck_since",
        "stuck_told_again_at",
        "is_exclusive",
        "ack_deadline_seconds",
        "is_synchronous",
    )

    destination: DestinationState
    consumer_group: ConsumerGroup
    """Has the lists that it takes from."""
    priority: int
    """Consumers of higher priority are served first."""
    prefetch_limit: int
    """Most unsettled deliveries it may hold; 0: only the size of a take bounds it."""
    is_draining: bool
    """It takes nothing more and only settles what it holds. Read-only for callers."""
    delivered: int
    """Deliveries so far, which numbers them."""
    is_slow: bool
    """It has neither taken nor settled anything for `slow_seconds`, and holds messages or could have some."""
    slow_seconds: float | None
    moved_at: float
    """When it last was seen to have taken or settled something."""
    counts_at_slow_look: tuple[int, int]
    """What `delivered` and `in_flight` were then."""
    messages_per_second: float
    """How fast it took in the last second that was measured."""
    on_slow: Callable[[Any], None] | None
    counts_at_stuck_look: tuple[int, int]
    """What `delivered` and `in_flight` were when somebody last looked whether it is stuck."""
    stuck_since: float
    """When it last was seen to have moved, to wait for nothing, or to have an empty queue."""
    stuck_told_again_at: float
    """When the log may say again that it is stuck."""
    is_exclusive: bool
    ack_deadline_seconds: float | None
    """What it does not settle in that time comes back; None: it has all time. Read-only for callers."""
    is_synchronous: bool
    """Whether `take` is called by a thread, which may load what is missing, and not by an event loop."""

    @property
    def credit(self) -> int:
        """How many messages its prefetch lets it take beside those that it holds, 0 or less: none.

        UNLIMITED where only the size of a take bounds it. Whether its queue holds it up, and whether memory is short,
        are other questions.
        """
        if self.is_draining:
            return 0
        return self.prefetch_limit - self.in_flight if self.prefetch_limit else UNLIMITED

    @property
    def demand(self) -> int:
        """How many messages may be kept for it: its credit. One that pulls (prefetch 0) wants one, while it waits."""
        if self.prefetch_limit or self.is_draining:
            return self.credit
        return int(self.consumer_group.is_awaited)

    @abstractmethod
    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Add the callback to `deferred` if a take found nothing and may find something now. Requires: the lock."""

    @property
    @abstractmethod
    def charge_bytes(self) -> int:
        """Return what it costs in RAM, without its consumer group and lists."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether it waits for messages, or for room to hold any. Requires: the lock."""

    @abstractmethod
    def on_credit(self) -> None:
        """Go on if the consumer waited for credit and has some now. Requires: the lock."""

    @abstractmethod
    def reconfigure(self) -> None:
        """Take from now on as the queue demands it. Requires: the lock."""

    @abstractmethod
    def move_to(self, consumer_group: ConsumerGroup) -> None:
        """Take from another consumer group from now on. Requires: the lock."""

    @abstractmethod
    def end(self, held: Sequence[Delivery]) -> None:
        """Close the consumer, whose queue or store ends, and have its on_ready called. Requires: the lock.

        held: what it holds, highest priority first.
        """

    @abstractmethod
    def wake_on_failure(self) -> None:
        """Wake what waits for this consumer outside the lock, to learn that the lock is broken. Requires: the lock."""

    @abstractmethod
    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(held). Requires: the lock."""

    @abstractmethod
    def die(self) -> None:
        """Take and return nothing any more: this is the copy of a forked child."""


class Collectors(NamedTuple):
    """How a consumer takes what is in RAM. A consumer keeps both, so that no take asks for its distribution."""

    many: Callable[[Taker, int, int | None], list[Delivery]]
    """Hands out up to so many messages, of up to so many bytes together where that is not None."""
    one: Callable[[Taker], Delivery | None]
    """Hands out one message, sooner than `many` would; None: `many` is to be asked."""


def collect_nothing(consumer: Taker) -> Delivery | None:
    """Hand out nothing: another way of taking decides, or nothing is handed out for now."""
    return None


@trait
class HandsOut:
    """The role in which a distribution hands out: who takes part, and who gets what. Every method requires the lock."""

    is_ordinary: ClassVar[bool] = False
    """All consumers of a consumer group share its lists, and whoever takes gets the next message."""
    honours_groups: ClassVar[bool] = False
    """It honours message groups and priorities, or has one consumer, for which they mean nothing."""
    keeps_open: ClassVar[bool] = True
    """It knows something of its queue that is lost with it, so the queue is not closed for being idle."""

    @property
    @abstractmethod
    def collectors(self) -> Collectors:
        """Return what hands out to consumers of the queue."""

    @property
    def is_held_up(self) -> bool:
        """Return whether nothing is handed out for now, to nobody."""
        return False

    def make_consumer_group(self, destination: DestinationState, selector: Selector | None) -> ConsumerGroup:
        """Return a new consumer group of the queue."""
        return destination.make_consumer_group(selector)

    def single_consumer_groups(self) -> Iterable[ConsumerGroup]:
        """Return those consumer groups that are of one consumer alone, beside those of the queue."""
        return ()

    def join(self, consumer: Taker, consumer_group: ConsumerGroup) -> None:
        """Take in a new consumer of a consumer group."""

    @abstractmethod
    def leave(self, consumer: Taker) -> None:
        """Let a closed consumer go, before what it holds is given back."""

    def revoke(self, consumer: Taker) -> None:
        """Give the consumer nothing more: what is kept for it is for others."""

    def offer_passed_over(self) -> None:
        """Offer again what was passed over for want of credit."""

    def wake_others(self, consumer_group: ConsumerGroup) -> None:
        """Wake others of a consumer group: one that was woken takes nothing any more. After `offer_passed_over`."""


@trait
class HearsOfLanes:
    """The role in which a distribution is told what happens to messages. Every method requires the lock."""

    def add_lane(self, lane: LaneState) -> None:
        """Take a new lane of the queue in, over which each consumer group of the queue has a list."""

    @abstractmethod
    def offer_again(self, lane: LaneState, message: StoredMessage) -> None:
        """Offer a pending message that was handed out and is free again."""

    @abstractmethod
    def offer_put_off(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Offer messages of which the delay is over."""

    def reassign(self) -> None:
        """Put older messages before what was assigned already."""

    def comes_back(self, delivery: Delivery, *, is_delayed: bool) -> None:
        """Note that a delivery is given back, now or later."""

    def remember_put_off(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> SequenceSet:
        """Take over messages that an earlier process put off; return those that can't be held back any longer."""
        return SequenceSet()

    def settled(self, lane: LaneState, first: int, messages: int) -> None:
        """Note that a transaction or a dead-letter queue has settled a run."""

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed."""


@trait
class ExplainsItself:
    """The role in which a distribution answers explanations and audits. Requires: the lock. Nothing is changed.

    As it is here, nobody owns a message before it is handed out, and none waits for another.
    """

    def by_owner(self, lane: LaneState, messages: Iterable[StoredMessage]) -> dict[Taker | None, list[StoredMessage]]:
        """Return free messages by the owner of their group (None: it has none), without those that wait for another."""
        return {None: list(messages)}

    def kind_of(self, consumer: Taker) -> Hashable:
        """Return what consumers have in common who could have the same messages without an owner."""
        return None

    def unowned_of(
        self, consumer: Taker, lane: LaneState, messages: Iterable[StoredMessage]
    ) -> Iterator[StoredMessage]:
        """Return those of free messages without an owner that would be this consumer's if it took now."""
        return iter(messages)

    def kept_for_others(self, consumer: Taker) -> list[int]:
        """Return how many free messages each other consumer comes first for, without those that come first for none."""
        return []

    def count_waiting(self) -> int:
        """Return how many messages wait behind one of their group that comes back later, or somewhat more."""
        return 0

    def is_outranked(self, consumer: Taker) -> bool:
        """Return whether consumers of higher priority come first for all that nobody owns."""
        return False

    def audit(self) -> tuple[int, int]:
        """Return the bytes that it holds for message groups, and those of them for what holds back its group."""
        return 0, 0


class Distribution(HandsOut, HearsOfLanes, ExplainsItself, ABC):
    """Decides which consumer of a queue gets which message. dispatch/distribution says which there are."""


class DistributionKeeper(ABC):
    """The Distributions, as far as destinations know them: there rules are chosen. Every method requires the lock."""

    @abstractmethod
    def first(self, destination: DestinationState) -> Distribution:
        """Return the rule of a destination that comes into being."""

    @abstractmethod
    def require_assignable(self, destination: DestinationState) -> None:
        """Raise StateError if its rule neither honours groups and priorities nor may be replaced."""

    @abstractmethod
    def begin_assigning(self, destination: DestinationState) -> None:
        """Assign messages of a destination to its consumers from now on, by groups and priorities.

        Does nothing where its rule honours both already. StateError as `require_assignable`; nothing has changed.
        """


NO_LISTS: Final[list[TargetList]] = []
"""The lists of all consumer groups that have none. Nothing is ever put in."""


class ConsumerGroup(Members[Taker]):
    """All consumers of a queue with one selector (or none), and their lists, highest priority first."""

    __slots__ = ("selector", "lists", "arrived", "waiting", "is_armed", "misses", "is_charged")
    notes_groups: ClassVar[bool] = False
    """A load tells it the groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None) -> None:
        super().__init__()
        self.selector = selector
        self.lists = NO_LISTS
        self.arrived = UNAWAITED
        """Takes wait for it: see `wait`."""
        self.waiting = 0
        """Threads that wait in take for something to arrive."""
        self.is_armed = False
        """Some consumer waits for its on_ready callback."""
        self.misses = 0
        self.is_charged = False
        """It is charged once, however many destinations it reads."""

    @property
    def shared(self) -> ConsumerGroup:
        """Return what its consumers share with all that have the same selector."""
        return self

    @property
    def is_awaited(self) -> bool:
        """A take waits, or a callback that the next message calls."""
        return self.waiting > 0 or self.is_armed

    def add_list(self, target: TargetList) -> None:
        """Take a new list in, behind the others."""
        if self.lists is NO_LISTS:
            self.lists = []
        self.lists.append(target)

    def wait(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until something arrives, or so long. Requires: the state lock, which is let go meanwhile."""
        if self.arrived is UNAWAITED:
            self.arrived = condition_of(lock)
        self.waiting += 1
        try:
            self.arrived.wait(seconds)
        finally:
            self.waiting -= 1

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Wake its consumers, because something may be there. Callbacks that are due join ready. Requires: the lock."""
        if self.waiting:
            self.arrived.notify_all()
        if self.is_armed:
            self.is_armed = False
            for consumer in self.consumers:
                consumer.become_ready(ready)
            # Whoever is called first may take all there is: the next time that is another one.
            self.rotate_consumers()

    def arm(self) -> None:
        """Call on_ready of the consumers that wait for it with the next arrival. Requires: the lock."""
        self.is_armed = True

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """Wake as wake does, and those who wait for the load, whatever it brought. Requires: the lock."""
        self.wake(ready)

    def in_turn(self) -> Iterable[TargetList]:
        """Return the lists in the order in which a hand-out looks at them."""
        return self.lists

    def part_of(self, consumer: Taker) -> float:
        """Return a consumer's part of what the lists hold, by how fast it takes beside the others. O(consumers).

        Equal parts while nobody takes.
        """
        if consumer not in self.consumers:
            return 0.0
        total = sum(other.messages_per_second for other in self.consumers)
        return consumer.messages_per_second / total if total else 1.0 / len(self.consumers)

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        """Take a message that a list names for a hand-out; return False where another has it, or it is gone.

        Its copies leave the caches, also where False is returned: whoever has the message has its body.
        """
        lane.drop_copies(message[0])
        return lane.is_free(message[0])

    def note_group(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body a load has read and does not keep. Requires: notes_groups."""

    def wants(self, lane: LaneState, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        """Return whether the selector matches. O(selector); headers are decoded only where they may decide it.

        values: the headers that the selector names, where somebody has decoded them already.
        """
        selector = self.selector
        if selector is None:
            return True
        if selector.needles and not _holds_one(message[1], selector.needles):
            return False
        if values is not None and not selector.field_names:
            return selector.matches(values)
        return selector.matches(values_of(lane, message, selector.field_names, selector.header_names))

    def decode(self, messages: Iterable[StoredMessage], survey: BlockSurvey | None) -> None:
        """Decode together what `examine` is about to ask these messages for, as far as they are in RAM."""
        if survey is not None and self.selector is not None:
            properties = {message[0] & BLOCK_MASK: message[1] for message in messages if message[2] is not None}
            survey.decode(properties, self.selector.header_names)

    def examine(self, lane: LaneState, message: StoredMessage, survey: BlockSurvey | None) -> bool:
        """Judge as wants does, and take down in the survey, if there is one, what the headers are.

        Requires: the survey is of the message's block, and for headers that the selector names.
        """
        if survey is None or self.selector is None:
            return self.wants(lane, message)
        index = message[0] & BLOCK_MASK
        values = survey.noted.get(index)
        if values is None:
            values = values_of(lane, message, NO_NAMES, self.selector.header_names)
            survey.add(index, values)
        return self.wants(lane, message, values)

    def verdict(self, lane: LaneState, message: StoredMessage) -> bool | None:
        """Judge as wants does; None: its headers are not in RAM, or make no sense.

        The loader looks again, and tells of it.
        """
        if self.selector is not None and message[2] is None:
            return None
        try:
            return self.wants(lane, message)
        except RecordDamaged:
            return None


def _holds_one(data: bytes, needles: Iterable[bytes]) -> bool:
    for needle in needles:  # any() of a generator takes six times as long
        if needle in data:
            return True
    return False


class TargetList(ListContents):
    """What the consumers of one consumer group get next from one lane: direct messages in front, the rest not loaded.

    What lies behind the frontier comes from the store, by loads that keep `direct_bytes` between the watermarks. The
    state lock guards it.
    """

    __slots__ = (
        "lane",
        "consumer_group",
        "skip_names",
        "high_watermark_bytes",
        "read_ahead_bytes",
        "low_watermark_bytes",
        "load",
        "is_shared",
        "counterpart",
        "is_plain",
        "is_timed",
        "taken_bytes",
        "measured_bytes",
        "sample_at_bytes",
        "loaded_bytes",
        "wanted_bytes",
        "measured_rate",
        "bytes_per_second",
    )

    def __init__(self, lane: LaneState, consumer_group: ConsumerGroup) -> None:
        super().__init__(lane.destination.target_area.consumer_memory)
        self.lane = lane
        self.consumer_group = consumer_group
        self.skip_names = lane.skip_names(consumer_group.selector)
        """Headers by which its scan passes over blocks; empty: it examines each one."""
        self.high_watermark_bytes = 0
        """Where the watermark should be: 0 until TargetArea.adopt grants it a share of memory."""
        self.read_ahead_bytes = 0
        """Below this the loader reads; what the caches have it takes below the high watermark."""
        self.low_watermark_bytes = 0
        """Below this the loader is called."""
        self.load: Load | None = None
        """The one that is under way: somebody reads for this list outside the lock; nobody else may."""
        self.is_shared = False
        """Other consumer groups may take, or may have taken, what stands here: check before handing out."""
        self.counterpart: TargetList | None = None
        """The list of the same consumer group and priority that has the messages of the other delivery mode."""
        self.is_plain = not lane.is_timed and lane.memory.is_common
        """Neither shared nor timed nor with a counterpart, and without a quota: what is direct can be handed out
        without a second look."""
        self.is_timed = lane.is_timed
        """Some of what stands here may have expired: look before handing out."""
        self.taken_bytes = 0
        self.measured_bytes = 0
        self.loaded_bytes = 0
        """What was loaded for it since it was full, or had all that there was."""
        self.sample_at_bytes = UNLIMITED
        """When so many bytes were taken, the curve looks at this list."""
        self.measured_rate: float | None = None
        """Bytes a second that its consumers took lately; None: they never took any."""
        self.bytes_per_second = UNMEASURED_BYTES_PER_SECOND
        """The same as a number to divide by."""
        self.wanted_bytes = 0
        """What its last load would have needed, which found too little."""

    def measure(self, bytes_per_second: float) -> None:
        """Note how fast its consumers took lately."""
        self.measured_rate = bytes_per_second
        self.bytes_per_second = max(bytes_per_second, BYTES_PER_SECOND_MIN)

    @property
    def supply_seconds(self) -> float:
        """How many seconds its direct messages last at that rate."""
        return self.direct_bytes / self.bytes_per_second

    @property
    def is_loading(self) -> bool:
        return self.load is not None

    @property
    def has_supply(self) -> bool:
        """Something may be behind the watermark, or has come back."""
        return self.frontier < self.lane.published or self.references.count > 0 or self.returned.count > 0

    @property
    def has_room_for_all(self) -> bool:
        """Everything that is pending in its lane would fit under its watermark."""
        messages, content_bytes = self.lane.pending_lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= self.high_watermark_bytes

    @property
    def next_sequence(self) -> int | None:
        """No message of this list that is still to be handed out comes before this one; None: there is none."""
        first = self.direct[0][0] if self.direct else None
        if first is None and self.references:
            first = self.references.first
        if first is None and self.frontier < self.lane.published:
            first = self.frontier
        if self.returned and (first is None or self.returned.first < first):
            first = self.returned.first
        return first

    def admit(self, messages: Sequence[StoredMessage], charge: int) -> bool:
        """Take in what arrives at the frontier, if it fits under the high watermark and the budget has room.

        Returns whether it does; all of it or nothing. charge: of the messages. Requires: there are no references.
        """
        if self.direct_bytes + charge > self.high_watermark_bytes or not self.lane.memory.lists_holder.reserve(charge):
            return False
        if self.direct is NO_MESSAGES:
            self.own_direct()
        self.direct.extend(messages)
        self.direct_bytes += charge
        self.frontier = messages[-1][0] + 1
        return True

    def pass_first(self) -> int:
        """Take the first direct message out, to be handed out or assigned; return its charge, which goes with it."""
        charge = self.drop_first()
        self.taken_bytes += charge
        return charge

    def move_first_to(self, other: TargetList) -> None:
        """Put the first direct message, with its charge, behind those of another list over its lane."""
        message = self.direct[0]
        other.append(message, self.pass_first())

    def share(self) -> None:
        self.is_shared = True
        self.is_plain = False

    def watch_times(self) -> None:
        self.is_timed = True
        self.is_plain = False

    def pair(self, counterpart: TargetList) -> None:
        self.counterpart = counterpart
        self.is_plain = False

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the bound of the watermark, as far as the lane lets lists hold so much, and those below it."""
        self.high_watermark_bytes = min(high_watermark_bytes, self.lane.list_bytes_max)
        self.read_ahead_bytes = self.high_watermark_bytes
        if read_ahead_share < 1.0:
            self.read_ahead_bytes = int(self.high_watermark_bytes * read_ahead_share)
        self.low_watermark_bytes = int(self.read_ahead_bytes * LOW_WATERMARK_SHARE)

    @property
    def is_next_cached(self) -> bool:
        """Tell whether a cache has the next message that is to be loaded, nothing having come back."""
        sequence, lane = self.first_to_load, self.lane
        return any(cache.peek(lane.pending_lane.number, sequence) is not None for cache in lane.caches)

    def release(self, charge: int) -> None:
        """Release what messages were charged to it that RAM lets go."""
        self.lane.memory.lists_holder.release(charge)

    def on_credit(self) -> None:
        """Let the loader try again, if enough memory came free now: it had given the list up for want of it."""
        self.lane.destination.target_area.try_again(self)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message whose body is direct, or was taken from a cache by the load under way. O(direct)."""
        held = self.load.held.get(sequence) if self.load is not None else None
        if held is None:
            held = next((message for message in self.direct if message[0] == sequence), None)
        return held if held is not None and held[2] is not None else None

    def _check(self) -> None:
        assert self.direct is not NO_MESSAGES or self.lane.sole is not self, "arrivals on the fast path would be lost"
        super()._check()


@dataclass(slots=True)
class Load:
    """Messages on their way from the caches and the disk into one list.

    It begins and ends under the lock, and reads outside it. Meanwhile nobody else loads for the list.
    """

    # What is loaded, chosen as it begins.
    target: TargetList
    """The list that is loaded."""
    runs: list[tuple[int, int]]
    """Runs of sequences to load, in order, all in one block."""
    last: int
    """The last sequence to load: what of the runs lies behind it is left."""
    is_scan: bool
    """The selector is still to be evaluated: the runs come from behind the frontier, or have come back."""
    is_return: bool
    """The runs are of messages that came back."""
    purges: int
    """What `purges` of the lane was when the load began."""
    began_at: float
    """When the load was chosen, on the monotonic clock."""
    was_shared: bool = False
    """Whether its list was shared when the load began."""
    from_cache: set[int] = field(default_factory=set)
    """Sequences of those in `held` that a cache gave away."""
    regions: list[Region] = field(default_factory=list)
    """Where on disk the messages lie that no cache had."""
    reserved_bytes: int = 0
    """What is charged to the lists for its messages."""
    buffer_bytes: int = 0
    """What is charged for the buffer of its reads."""
    is_plain: bool = False
    """Whether it brings all that was chosen, all from disk: the usual case, which saves a pass over the messages."""

    # What was found, in caches as it begins and on disk as it reads: this is put into the list.
    messages: list[StoredMessage] = field(default_factory=list)
    """The messages of a plain load, in order."""
    held: dict[int, StoredMessage] = field(default_factory=dict)
    """The messages of any other load, by sequence; those too large to hold have no body."""
    unwanted: set[int] = field(default_factory=set)
    """Sequences that the selector does not match, or can't judge."""
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    """Sequences that can't be read, each with the problem."""
    survey: BlockSurvey | None = None
    """Takes down what the headers of the messages are; None: that is known, or of no use."""

    @property
    def first(self) -> int:
        return self.runs[0][0]

    def hold(self, message: StoredMessage, charge: int) -> None:
        """Take in a message that was found in a cache, and for which so much is reserved."""
        self.reserved_bytes += charge
        self.held[message[0]] = message

    @property
    def is_stale(self) -> bool:
        """Whether some of its messages may be gone: a purge has taken messages out since the load began."""
        return self.purges != self.target.lane.purges


class ListKeeper(ABC):
    """The TargetArea, as far as the lanes and lists that it keeps know it. The state lock guards it."""

    monitor: Monitor
    store: MessageStore
    consumer_memory: Tab
    """Pays for consumers and their lists."""
    destination_memory: Tab
    """Pays for destinations that are open, and for their lanes."""
    header_reads: Tab
    """Pays while somebody reads headers of messages that RAM is too small for."""
    syncs_always: bool
    """Acks are durable before they are confirmed."""
    distributions: DistributionKeeper
    """Chooses the distribution of each destination."""

    @abstractmethod
    def memory_of(self, name: str) -> LaneMemory:
        """Return what the messages of a destination are charged to."""

    @abstractmethod
    def offer_to_consumer_groups(self, lane: LaneState, message: StoredMessage) -> bool:
        """Offer a message that arrived to every list of its lane. Return whether RAM has it for all who want it."""

    @abstractmethod
    def offer_unloaded(self, lane: LaneState, end: int) -> None:
        """Let everything before `end` be dispatched; what is new of it is not in RAM, or not due yet."""

    @abstractmethod
    def pass_holes(self, lane: LaneState, first: int) -> None:
        """Let lists go on at `first`: nothing lies between it and what is published."""

    @abstractmethod
    def wake(self, consumer_group: ConsumerGroup) -> None:
        """Tell the consumers of a consumer group that something may be there."""

    @abstractmethod
    def add_lane(self, lane: LaneState) -> None:
        """Give each consumer group of its queue a list over a new lane."""

    @abstractmethod
    def pass_unreadable(self, lane: PersistentLaneState, sequence: int) -> None:
        """Remember a message that was passed over because it can't be read."""

    @abstractmethod
    def shorten(self, target: TargetList) -> None:
        """Let a list hold no more than its lane allows: the rest goes to the lane's cache."""

    @abstractmethod
    def try_again(self, target: TargetList) -> None:
        """Load for a list that was given up for want of memory, if enough has come free."""

    @abstractmethod
    def on_unread(self, lane: LaneState) -> None:
        """Note that no consumer reads a lane any more, and that RAM has not all of it."""

    @abstractmethod
    def on_lane_gone(self, lane: LaneState) -> None:
        """Note that a lane has ended."""


class PaidRead:
    """What one read of headers is charged, until it ends. Requires: no lock, for each of its methods."""

    __slots__ = ("_monitor", "_memory", "_paid_bytes")

    def __init__(self, monitor: Monitor, memory: Tab) -> None:
        self._monitor = monitor
        self._memory = memory
        self._paid_bytes = 0

    def pay(self, charge_bytes: int) -> None:
        """Charge for bytes that are about to be read."""
        with self._monitor.lock, self._monitor.whole:
            self._memory.charge(charge_bytes)
            self._paid_bytes += charge_bytes

    def end(self) -> None:
        """Release all of it."""
        with suppress(StoreFailed), self._monitor.lock, self._monitor.whole:  # what was raised counts
            self._memory.release(self._paid_bytes)


class LaneState(LaneMessages):
    """One lane as the dispatch floor sees it. The state lock guards it."""

    __slots__ = ("destination", "sole", "purges", "unwanted", "is_timed", "pending_cache", "caches", "charged_bytes")
    state_bytes: ClassVar[int] = LANE_STATE_BYTES
    """What it is charged for itself."""
    delivery_mode: ClassVar[str] = "PERSISTENT"

    def __init__(self, destination: DestinationState, pending_lane: PendingLane, id_prefix: str) -> None:
        """destination: what its consumers take from, or its topic."""
        target_area, memory = destination.target_area, destination.memory
        store = target_area.store
        syncs = target_area.syncs_always
        super().__init__(pending_lane, id_prefix, memory, store, store.index.delivery_count_table, syncs=syncs)
        self.destination = destination
        self.sole: TargetList | None = None
        """The only list of this lane, when that is one without a selector: the fast path of arrivals."""
        self.purges = 0
        """How often messages were taken out of the middle: a load that began before must look again."""
        self.unwanted: SequenceSet | None = None
        """For a subscription with a selector: what does not match and is to be acknowledged for it."""
        self.is_timed = False
        """Some messages have, or had, times: see admin/expiry.py."""
        self.pending_cache: OverflowCache = memory.pending_cache
        """Takes what a list has no room for."""
        self.caches: tuple[LaneCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        """Where a message may be that is in no list."""
        self.charged_bytes = self.state_bytes
        """Until it is gone: then nothing."""
        target_area.destination_memory.charge(self.charged_bytes)

    @property
    def destination_name(self) -> str:
        """See LaneMessages."""
        return self.destination.name

    def is_retained(self, sequence: int) -> bool:
        """See LaneMessages."""
        return False

    def readers(self) -> Iterator[LaneState]:
        """Yield every lane whose consumers get the messages that arrive here, this lane first."""
        yield self

    def every_reader(self) -> list[LaneState]:
        """Return the readers, and those of durable subscriptions besides that nobody has read since the open."""
        return list(self.readers())

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers by which a scan for a selector may pass over blocks: all that it names, or none."""
        return NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches; None: nowhere. Requires: the lock.

        names: the `skip_names` of the selector. O(blocks), and none of them is read.
        """
        return Candidate(sequence, NO_NAMES)

    def note_survey(self, survey: BlockSurvey) -> None:
        """Take in what the headers of examined messages are. Requires: the lock."""

    def passed_over(self, first: int, end: int) -> None:
        """Note that no message matches from a sequence to before another one. Requires: the lock."""

    @property
    def reads_for_others(self) -> bool:
        """Tell whether what is read for one of its lists is what others are about to need."""
        return False

    @property
    def is_recorded(self) -> bool:
        """Tell whether acks in it are in the journal."""
        return self.is_persistent

    @property
    def list_bytes_max(self) -> int:
        """The most that a list over it should hold directly."""
        return UNLIMITED

    @property
    def swept_lane(self) -> LaneState:
        """The lane from which messages of this one are removed when they have expired."""
        return self

    def drop(self) -> None:
        """Become a lane without messages: the queue is deleted, or the subscription has ended."""

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write down how often messages were delivered."""
        self.destination.store.record_delivery_counts(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[Returned], now_ms: int) -> None:
        """Record the attempts of runs some of which are offered again later."""
        self.destination.store.record_returns(self.pending_lane.number, runs, now_ms)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def count_hand_outs(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries of a lane of which something came back.

        What came back itself, and what a killed process may have had, is written now: so that a message which kills
        this process, too, does not do it for ever. Requires: `delivery_counts` is not None.
        """
        known = self.delivery_counts
        assert known is not None
        counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
        if counted:
            self.record_attempts(counted_runs(counted))

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Let a slice of stored messages be dispatched, as one where the only list takes it whole.

        charge: of the messages; None: it is counted.
        """
        sole = self.sole
        if sole is None:
            if not self.destination.consumer_groups and self.memory.head_queue_cache.is_stopped(
                self.pending_lane.number
            ):
                self.published = messages[-1][0] + 1  # behind the head of the queue: they stay in the journal alone
                return
            for message in messages:
                self.arrive(message)
            return
        first = messages[0][0]
        is_next = sole.frontier == first and not sole.references
        is_far = sole.frontier < first and not sole.has_room_for_all
        if is_next and sole.admit(messages, charges_bytes(messages) if charge is None else charge):
            self.published = sole.frontier
        elif is_far and not self.pending_cache.has(self.pending_lane.number):
            self.published = messages[-1][0] + 1  # they stay references, until the list comes so far
        else:
            for message in messages:
                self.arrive(message)
        self.destination.target_area.wake(sole.consumer_group)

    def arrive(self, message: StoredMessage) -> None:
        """Let a stored message be dispatched. It never waits for memory: at worst it stays a reference."""
        sequence = message[0]
        behind = self.published = sequence + 1
        sole = self.sole
        if sole is None:
            self.destination.target_area.offer_to_consumer_groups(self, message)
            return
        if sole.frontier == sequence and not sole.references.count:
            # The one copy of TargetList.admit, whose call would be 3 % of a send; and charge_bytes.
            body = message[2]
            charge = len(message[1]) + OVERHEAD_BYTES + (len(body) if body is not None else 0)
            if sole.direct_bytes + charge <= sole.high_watermark_bytes and self.memory.lists_holder.reserve(charge):
                sole.direct.append(message)
                sole.direct_bytes += charge
                sole.frontier = behind
            else:
                self.pending_cache.put_overflow(self.pending_lane.number, message, is_near=True)
        else:
            # Where there is room for all, the loader reads what it missed, and has caught up.
            self.pending_cache.put_overflow(self.pending_lane.number, message, is_near=sole.has_room_for_all)
        consumer_group = sole.consumer_group
        if consumer_group.waiting:
            consumer_group.arrived.notify()
        if consumer_group.is_armed:
            self.destination.target_area.wake(consumer_group)

    def arrive_unloaded(self, end: int) -> None:
        """Let all before `end` be dispatched; what is new of it is not in RAM, or not due yet."""
        self.destination.target_area.offer_unloaded(self, end)

    # What follows is asked or told by those who move messages between RAM and disk. The defaults are those of a lane
    # whose messages are all in the journal: what leaves RAM can be read again, so nothing is to be kept.

    def leave_ram(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM, for which no list and no cache has a place.

        Called by whoever drops the last copy: TargetArea, a load, Redelivery, Assigning. Their charge is released
        before. Default: nothing is kept.
        """

    def leave_ram_at_once(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as leave_ram does, for memory that is wanted at once.

        Called by Reclaim, and by a cache that gives back. Default: nothing is kept.
        """

    def spill(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as leave_ram does, where others must find them on disk at once.

        Called by EagerLoader.begin, with what a load finds in a cache and has no memory to copy. Default: nothing is
        kept.
        """

    def unload(self, message: StoredMessage) -> bool:
        """Return whether the body may leave RAM now, because it can be read again.

        Called by DispatchArea.hand_out where memory has no room for the body in flight; False keeps the body. Default:
        it can be read.
        """
        return True

    def give_up(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""
        raise NotImplementedError

    def drop_copies(self, sequence: int) -> None:
        """Drop the copies of a message that a list which shares is about to pass: no cache needs it any more."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    def hold(self, sequence: int) -> None:
        """Note that a delivery holds the body of a message now, so that the caches need not.

        Called by DispatchArea.hand_out, for lists that share. Default: nothing, as ConsumerGroup.claim has dropped the
        copies.
        """

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message that may be nowhere but in RAM."""
        return None

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how much a load from this sequence on may bring for a list that has room for so much.

        Called by EagerLoader.begin as it chooses. Default: as much as the list has room for.
        """
        return list_bytes

    def loaded(self, load: Load) -> None:
        """Note that a load was put into its list: others may need what it read.

        Called by EagerLoader.install. Default: nobody else needs it.
        """

    def cut_load(self, load: Load) -> Sequence[int]:
        """Return what a load has chosen and can't read, and end the load before what nobody can have now.

        Called by EagerLoader.begin when the load has taken what the caches have, before it reserves memory. What is
        returned becomes lazy. Default: all can be read.
        """
        return ()

    def read_one(self, sequence: int) -> StoredMessage:
        """See LaneMessages."""
        return self._read(sequence, self.backing_store.read)

    def read_headers(self, sequence: int) -> StoredMessage:
        """Read one pending message as read_one does, in pieces; its body is empty where it is not in RAM."""
        target_area = self.destination.target_area
        paid = PaidRead(target_area.monitor, target_area.header_reads)
        try:
            return self._read(sequence, partial(self.backing_store.read_headers, pay=paid.pay))
        finally:
            paid.end()

    def _read(self, sequence: int, read: Callable[[Sequence[Any]], ReadResult]) -> StoredMessage:
        monitor = self.destination.monitor
        with monitor.lock:
            self.destination.store.raise_if_closed()
            if not self.pending_lane.is_pending(sequence):
                raise StateError("a lazy delivery is settled: look at its body, headers and id before that")
            in_ram = self.peek(sequence)
            if in_ram is not None:
                return in_ram
            regions = self.backing_store.plan(self.pending_lane, [(sequence, sequence)])
        messages, unreadable = read(regions)
        if unreadable:
            raise self.not_read(unreadable[0][1])
        return messages[0]

    def not_read(self, problem: str) -> StoreFailed:
        """See LaneMessages."""
        return StoreFailed(f"a message of {self.destination.name!r} can't be read ({problem})")


class PersistentLaneState(LaneState):
    """A lane of messages that are in the journal. The state lock guards it.

    The index has one lane for it in a queue, and two in a subscription:

    attribute            in a queue or topic   in a subscription             it knows
    sent_lane            its lane              the lane of its topic         what was sent, and where on disk it lies
    acked_lane           the same              the subscription's own lane   what is pending, and what was acknowledged
    """

    __slots__ = ("sent_lane", "acked_lane")

    def __init__(
        self, destination: DestinationState, sent_lane: Lane, id_prefix: str, subscription: JournaledLane | None = None
    ) -> None:
        """subscription: the lane of a subscription to that topic's lane; None: messages are those of the lane."""
        super().__init__(destination, subscription or sent_lane, id_prefix)
        self.sent_lane = sent_lane
        """The lane that records add messages to."""
        self.acked_lane: JournaledLane = subscription or sent_lane
        """The lane that records acknowledge messages in: `pending_lane`, by its own type."""

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """See LaneState."""
        names = NO_NAMES if selector is None else selector.header_names
        return names if has_fingerprints(names) else NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """See LaneState."""
        if not names:
            return super().next_candidate(selector, names, sequence)
        return self.destination.store.next_candidate(self.sent_lane, names, sequence, selector.may_match)

    def note_survey(self, survey: BlockSurvey) -> None:
        """See LaneState."""
        self.destination.store.note_survey(self.sent_lane, survey)

    def give_up(self, sequence: int) -> None:
        """See LaneState. It goes on record as lost."""
        self.destination.target_area.pass_unreadable(self, sequence)

    def drop(self) -> None:
        """See LaneState."""
        self.pending_lane = self.acked_lane = self.sent_lane = DeletedLane(self.sent_lane)


class NonPersistentLaneState(LaneState):
    """A lane of messages that end with the process: RAM first, tmp-storage behind. The state lock guards it."""

    __slots__ = ("tmp_lane", "persistent_lane", "retained")
    state_bytes = NON_PERSISTENT_LANE_BYTES
    is_persistent = False
    delivery_mode = "NON_PERSISTENT"

    def __init__(self, destination: DestinationState, pending_lane: NonPersistentLane, id_prefix: str) -> None:
        super().__init__(destination, pending_lane, id_prefix)
        self.tmp_lane = pending_lane
        """`pending_lane`, by its own type."""
        self.persistent_lane: LaneState | None = None
        """Its counterpart: the persistent messages of the same queue and priority, once there are any."""
        self.syncs = False
        self.retained = range(0)
        """The sequences of messages that a topic had retained: those of a new subscription, else none."""

    def is_retained(self, sequence: int) -> bool:
        """See LaneState."""
        return sequence in self.retained

    def add(self, timestamp: int, properties: bytes, body: bytes) -> int:
        """Take in one message; return its sequence. StoreFull, SpillFailed: nothing of it is kept."""
        raise NotImplementedError

    def add_timed(self, timestamp: int, properties: bytes, body: bytes, times: Times) -> int:
        """Take in a message that is due later, or expires, or both."""
        raise NotImplementedError

    def skip_to(self, sequence: int) -> None:
        """Give the next message that sequence. StoreFull: see NonPersistentLane."""
        raise NotImplementedError


class DestinationState(CountedDestination):
    """A queue, a topic, a subscription or a pattern of topics that is open. The state lock guards it.

    Lanes are made on first use. Consumers take from the lanes of a queue or a subscription; what is sent to a topic
    goes to the lanes of its subscriptions.
    """

    __slots__ = (
        "target_area",
        "number",
        "lanes",
        "non_persistent_lanes",
        "consumer_groups",
        "admission",
        "has_groups",
        "rebalances_groups",
        "distribution",
        "exclusive",
        "is_paused",
        "is_deleted",
        "is_forgotten",
        "inactive_seconds",
        "is_watched",
        "is_closed",
        "holders",
        "enqueued_when_idle",
    )

    has_lists: ClassVar[bool] = True
    """Consumers take from its own lanes."""
    keeps_groups: ClassVar[bool] = True
    """Messages of one group are for one of its consumers."""
    spans_others: ClassVar[bool] = False
    """Its consumer takes from the lanes of other destinations: see `parts`."""

    def __init__(self, target_area: ListKeeper, number: int, name: str) -> None:
        super().__init__(name)
        self.target_area = target_area
        self.number = number
        self.lanes: list[PersistentLaneState | None] = [None] * PRIORITIES
        self.non_persistent_lanes: list[NonPersistentLaneState | None] = [None] * PRIORITIES
        """By priority, the lanes of non-persistent messages."""
        self.consumer_groups: dict[str | None, ConsumerGroup] = {}
        self.admission: DestinationLimits | None = None
        """The limits of a queue or topic whose policy has any. A subscription has those of its topic."""
        self.has_groups = False
        """Messages with a group were sent there, once at least."""
        self.rebalances_groups = False
        """Its policy has `group_rebalance`."""
        self.distribution: Distribution = target_area.distributions.first(self)
        """The rule that decides which consumer gets which message."""
        self.exclusive: Taker | None = None
        """The one consumer that gets everything; None: all may take."""
        self.is_paused = False
        """Nothing is handed out until it is resumed."""
        self.is_deleted = False
        self.is_forgotten = False
        """It was closed or deleted for want of use: a call that has its name opens it again, or makes it anew."""
        self.is_closed = False
        """The destination is a row of the store's table again: this object stands for it no more."""
        self.holders = 0
        """How many calls under way know it between two holds of the lock: it stays open for them."""
        self.enqueued_when_idle: int | None = None
        """What `enqueued` was at the last look, where it was idle then; None: it was not."""
        self.inactive_seconds: float | None = None
        """After how long without use it is deleted, as its policy says. None: it stays, used or not."""
        self.is_watched = False
        """Its policy has a duplicate window."""

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the store."""
        return self.target_area.monitor

    @property
    def store(self) -> MessageStore:
        """Return the store of messages."""
        return self.target_area.store

    @property
    def subscription_name(self) -> str | None:
        """Return the name of a durable subscription; None: it is none."""
        return None

    @property
    def memory(self) -> LaneMemory:
        """What its messages are charged to. O(patterns) where a policy sets memory apart."""
        return self.target_area.memory_of(self.name)

    def make_lane(self, priority: int) -> PersistentLaneState:
        """Return a new lane for what is sent to it in that priority. Requires: it is a queue or a topic."""
        raise NotImplementedError

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        """Return a new consumer group as the ordinary distribution has it."""
        return ConsumerGroup(selector)

    def raise_if_deleted(self) -> None:
        """Raise Closed where it is deleted. Requires: the lock."""
        if self.is_deleted:
            raise Closed(f"the {self.noun}")

    def raise_if_not_sendable(self) -> None:
        """Raise what a send to it raises before it has a lane. Closed: it is deleted. Requires: the lock."""
        self.raise_if_deleted()

    def drop_lanes(self) -> None:
        """Know no lane any more: a sender that still has this object finds none, and makes none. Requires: the lock."""
        self.lanes = self.non_persistent_lanes = _NO_LANES

    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the lanes that exist, highest priority first."""
        both = zip(reversed(self.lanes), reversed(self.non_persistent_lanes), strict=True)
        return (lane for pair in both for lane in pair if lane is not None)

    def all_consumer_groups(self) -> tuple[ConsumerGroup, ...]:
        """Return its consumer groups, and those that its distribution has for one consumer alone. O(those)."""
        return (*self.consumer_groups.values(), *self.distribution.single_consumer_groups())

    def parts(self) -> Iterable[DestinationState]:
        """Return the destinations whose lanes its consumers take from: itself."""
        return (self,)

    def lists_over(self, lane: LaneState) -> Iterator[TargetList]:
        """Return every list of one of its lanes."""
        consumer_groups = self.all_consumer_groups()
        return (target for consumer_group in consumer_groups for target in consumer_group.lists if target.lane is lane)

    def holds_up(self, consumer: Taker) -> bool:
        """Return whether a consumer gets nothing, whatever is there."""
        is_exclusive = self.exclusive is None or self.exclusive is consumer
        return self.is_paused or not is_exclusive or consumer.is_draining

    @property
    def lists_a_lane(self) -> int:
        """How many lists a new lane of it gets. O(consumers) where messages have groups."""
        return len(self.all_consumer_groups())

    @property
    def first_lists(self) -> int:
        """How many of these are the first of their consumer group."""
        return sum(not consumer_group.lists for consumer_group in self.consumer_groups.values())

    @property
    def lane_bytes(self) -> int:
        """What another lane of persistent messages costs, without its lists."""
        return INDEX_LANE_BYTES + LANE_STATE_BYTES

    @property
    def is_unused(self) -> bool:
        """Return whether it has nothing, and nobody takes from it or waits for it. O(lanes)."""
        return not self.depth and not self.is_paused and next(self.consumers(), None) is None

    @property
    def is_idle(self) -> bool:
        """Return whether it could be closed: all there is to it is what it has counted. O(lanes)."""
        if self.consumer_groups or self.distribution.keeps_open or self.is_paused or self.holders:
            return False
        if self.admission is not None and self.admission.is_awaited:
            return False
        return all(lane.is_idle for lane in self.all_lanes())

    @property
    def missed(self) -> int:
        """Deliveries that had to be loaded first."""
        return self.misses + sum(consumer_group.misses for consumer_group in self.all_consumer_groups())

    def consumers(self) -> Iterator[Taker]:
        return (consumer for consumer_group in self.consumer_groups.values() for consumer in consumer_group.consumers)

    def end_consumers(self) -> None:
        """Close all consumers, because the queue or the store ends. O(consumers + in flight). Requires: the lock."""
        held: dict[Taker, list[Delivery]] = {consumer: [] for consumer in self.consumers()}
        for lane in self.all_lanes():
            for delivery in lane.in_flight.values():
                held[consumer_of(delivery)].append(delivery)
        for consumer, deliveries in held.items():
            consumer.end(deliveries)

    def on_consumer_closed(self) -> None:
        """Do what is due when one of its consumers has closed. Requires: the lock."""

    def catch_up(self) -> None:
        """Make the depth exact: a topic lets go late of what no subscription needs any more."""


def lane_of(delivery: Delivery) -> LaneState:
    """Return the lane that a delivery was handed out from."""
    lane = delivery.lane
    assert isinstance(lane, LaneState)
    return lane


def consumer_of(delivery: Delivery) -> Taker:
    """Return to whom a delivery was handed out."""
    consumer = delivery.consumer
    assert isinstance(consumer, Taker)
    return consumer
