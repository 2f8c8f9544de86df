"""The circle of dispatch: open destinations, their lanes and TargetLists, consumer groups, consumers, distributions.

These classes are one module because each names the next in the types of its attributes, and the last names the first:
a destination its lanes, a lane its only list, a list its consumer group, a consumer group its consumers, a consumer
its destination. A distribution is given all of them and returns them; a lane and a list call the TargetArea, which has
them all, as ListKeeper. Split over files, they would import each other.

So what names none of the others is elsewhere. Below: messages and deliveries (delivery.py), what a list holds and how
long it lasts (list_contents.py, list_supply.py, load.py), who is in a group and waits (members.py), how far a consumer
is and how it moves (consumer_stage.py, activity.py), counters (counters.py). Above: how messages arrive and leave RAM
(persistent.py, non_persistent.py). The state lock guards all of them. Nothing here survives the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from ...cache.charge import OVERHEAD_BYTES
from ...cache.message_memory import MessageMemory
from ...cache.shares import near_bytes
from ...cache.tab import LastingCharge, Tab
from ...store.errors import StoreFailed
from ...store.format.record import Returned
from ...store.format.state import CountedRun
from ...store.format.times import Times
from ...store.index.delivery_counts import DeliveryCountTable
from ...store.index.destination_lane import DeletedLane, DestinationLane
from ...store.index.fingerprint import BlockSurvey
from ...store.index.fingerprints import Candidate, has_fingerprints
from ...store.index.index import INDEX_LANE_BYTES
from ...store.index.pending_lane import JournaledLane, PendingLane
from ...store.message_store import MessageStore
from ...store.numbering import PRIORITIES, UNLIMITED
from ...store.sequence_set import SequenceSet
from ...store.stored_message import StoredMessage
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..selectors.selector import Selector
from ..traits import trait
from .consumer_groups.activity import Activity
from .consumer_groups.consumer_stage import ConsumerStage
from .consumer_groups.distribution_roles import Explainer, LaneListener
from .consumer_groups.matching import NO_NAMES
from .consumer_groups.members import GroupMembers
from .counting.counters import NOTHING_COUNTED
from .deliveries.contracts import LaneCache, OverflowCache, PersistentStore, ReturnCounts
from .deliveries.delivery import Delivery, LaneMessages, Settler, counted_runs
from .deliveries.reading import LaneReader
from .lifecycle import DestinationLifecycle
from .lists.list_contents import NO_MESSAGES
from .lists.list_supply import ListSupply
from .lists.load import Load
from .lists.pager import READ_AGAIN
from .memory.memories import Memories
from .monitor import Monitor

LANE_STATE_BYTES: Final = 1024
"""Charged for a lane that is open, beside its messages and what the index has of it."""
NON_PERSISTENT_LANE_BYTES: Final = 3072
"""Charged for a lane of non-persistent messages that is open, with what tmp-storage knows of it. Measured with
tracemalloc over 1,000 of each, used once."""


NO_LANES: Final[tuple[None, ...]] = (None,) * PRIORITIES
"""The lanes of all queues and topics that have none, because they are new or gone."""


class Taker(Settler):
    """A consumer, as far as lists, consumer groups, distributions and transactions know it.

    It declares what these ask of a consumer; dispatch/consumer defines all of it. The state lock guards it.
    """

    __slots__ = (
        "ack_deadline_seconds",
        "activity",
        "collector",
        "consumer_group",
        "delivered",
        "destination",
        "is_exclusive",
        "is_polling",
        "prefetch_limit",
        "priority",
        "stage",
    )

    destination: DestinationState
    consumer_group: ConsumerGroup
    """Has the lists that it takes from."""
    stage: ConsumerStage
    """Whether it takes, is held up, drains or is closed."""
    collector: Collector
    """Hands out to it what is in RAM."""
    activity: Activity
    priority: int
    """Consumers of higher priority are served first."""
    prefetch_limit: int
    """Most unsettled deliveries it may hold; 0: only the size of a take bounds it."""
    delivered: int
    """Deliveries so far, which numbers them."""
    is_exclusive: bool
    """It gets all messages, or waits to take over."""
    ack_deadline_seconds: float | None
    """What it does not settle in that time comes back; None: it has all time. Read-only for callers."""
    is_polling: bool
    """Whether it has no `on_ready`: it takes when it wants to, in a thread that may load what is missing."""

    @property
    @abstractmethod
    def credit(self) -> int:
        """How many messages its prefetch lets it take beside those that it holds, 0 or less: none.

        UNLIMITED where only the size of a take bounds it. Whether its queue holds it up, and whether memory is short,
        are other questions: see `room`.
        """

    @property
    @abstractmethod
    def demand(self) -> int:
        """How many messages may be kept for it: its credit. One that pulls (prefetch 0) wants one, while it waits."""

    @abstractmethod
    def room(self, most: int) -> int:
        """Return how many of `most` messages it may take now, 0 or less: none. Requires: the lock."""

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


class Collector(ABC):
    """Hands out what is in RAM. A consumer keeps the one that its queue has for it, so that no take asks for that."""

    @abstractmethod
    def collect_one(self, consumer: Taker) -> Delivery | None:
        """Hand out one message, sooner than `collect` would; None: `collect` is to be asked. Requires: the lock."""

    @abstractmethod
    def collect(self, consumer: Taker, most: int, max_bytes: int | None) -> list[Delivery]:
        """Hand out up to so many messages, of up to so many bytes together where that is not None.

        Requires: the lock.
        """


class NoHandOut(Collector):
    """Hands out nothing: the collector of a consumer that is held up, drains or is closed."""

    def collect_one(self, consumer: Taker) -> Delivery | None:
        return None

    def collect(self, consumer: Taker, most: int, max_bytes: int | None) -> list[Delivery]:
        return []


NO_HAND_OUT: Final = NoHandOut()


@trait
class Dispatcher:
    """The role in which a distribution hands out: who takes part, and who gets what. Every method requires the lock."""

    is_ordinary: ClassVar[bool] = False
    """All consumers of a consumer group share its lists, and whoever takes gets the next message."""
    honours_groups: ClassVar[bool] = False
    """It honours message groups and priorities, or has one consumer, for which they mean nothing."""
    keeps_open: ClassVar[bool] = True
    """It knows something of its queue that is lost with it, so the queue is not closed for being idle."""

    @property
    @abstractmethod
    def collector(self) -> Collector:
        """Return what hands out to consumers of the queue: the distribution itself, or whoever does so sooner."""

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


NO_LISTS: Final[list[TargetList]] = []
"""The lists of all consumer groups that have none. Nothing is ever put in."""


class ConsumerGroup(GroupMembers[Taker]):
    """All consumers of a queue with one selector (or none), and their lists, highest priority first."""

    __slots__ = ("lists", "misses", "is_charged")
    notes_groups: ClassVar[bool] = False
    """A load tells it the groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        self.lists = NO_LISTS
        self.misses = 0
        self.is_charged = False
        """It is charged once, however many destinations it reads."""

    @property
    def shared(self) -> ConsumerGroup:
        """Return what its consumers share with all that have the same selector."""
        return self

    def add_list(self, target: TargetList) -> None:
        """Take a new list in, behind the others."""
        if self.lists is NO_LISTS:
            self.lists = []
        self.lists.append(target)

    def in_turn(self) -> Iterable[TargetList]:
        """Return the lists in the order in which a hand-out looks at them."""
        return self.lists

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

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """Wake as wake does, and those who wait for the load, whatever it brought. Requires: the lock."""
        self.wake(ready)

    def part_of(self, consumer: Taker) -> float:
        """Return a consumer's part of what the lists hold, by how fast it takes beside the others. O(consumers).

        Equal parts while nobody takes.
        """
        if consumer not in self.consumers:
            return 0.0
        total = sum(other.activity.messages_per_second for other in self.consumers)
        return consumer.activity.messages_per_second / total if total else 1.0 / len(self.consumers)

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        """Take a message that a list names for a hand-out; return False where another has it, or it is gone.

        Its copies leave the caches, also where False is returned: whoever has the message has its body. Those of a
        non-persistent message stay until a delivery holds it: they may be the only ones that others find.
        """
        if lane.is_persistent:
            lane.drop_copies(message[0])
        return lane.is_free(message[0])

    def note_group(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body a load has read and does not keep. Requires: notes_groups."""


class TargetList(ListSupply):
    """What the consumers of one consumer group get next from one lane: direct messages in front, the rest not loaded.

    What lies behind the frontier comes from the store, by loads that keep `direct_bytes` between the watermarks. The
    state lock guards it.
    """

    __slots__ = (
        "lane",
        "consumer_group",
        "skip_names",
        "load",
        "is_shared",
        "counterpart",
        "is_plain",
        "is_timed",
    )

    def __init__(self, lane: LaneState, consumer_group: ConsumerGroup) -> None:
        super().__init__(lane.destination.target_area.consumer_memory)
        self.lane = lane
        self.consumer_group = consumer_group
        self.skip_names = lane.skip_names(consumer_group.selector)
        """Headers by which its scan passes over blocks; empty: it examines each one."""
        self.load: Load[TargetList] | None = None
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

    @property
    def is_loading(self) -> bool:
        return self.load is not None

    @property
    def has_supply(self) -> bool:
        """Something may be behind the watermark, or has come back."""
        return self.frontier < self.lane.published or self.references.count > 0 or self.returned.count > 0

    @property
    def is_near(self) -> bool:
        """So little is pending in its lane that what arrives is wanted before long."""
        messages, content_bytes = self.lane.pending_lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= near_bytes(
            self.lane.memory.fair_list_bytes, self.high_watermark_bytes
        )

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

    def offer(self, runs: Iterable[tuple[int, int]]) -> None:
        """Put runs that are free again, or due, into their places, if the list has passed them or passed over them.

        A load takes only what is ready: what was put off may be missing between its messages, in RAM and on the way.
        O(runs), and the direct messages and references between the first and the last of them.
        """
        missing = SequenceSet()
        for first, last in runs:
            if first < self.frontier:
                missing.add(first, min(last, self.frontier - 1))
            if self.load is not None:
                self._cut_load(self.load, max(first, self.frontier), last)
        self.forget_known(missing)
        for first, last in missing:
            self.returned.add(first, last)

    def _cut_load(self, load: Load[TargetList], first: int, last: int) -> None:
        """End the load under way before what it passed over of first..last: that is looked through again."""
        if first > min(last, load.last):
            return
        passed_over = SequenceSet()
        passed_over.add(first, min(last, load.last))
        for first_read, last_read in load.runs:
            passed_over.remove(first_read, last_read)
        if passed_over:
            self.lane.purges += 1
            load.last = passed_over.first - 1

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
        """See ListSupply. The lane may let its lists hold less."""
        super().move_high_watermark(min(high_watermark_bytes, self.lane.list_bytes_max), read_ahead_share)

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


class ListKeeper(ABC):
    """The TargetArea, as far as the lanes and lists that it keeps know it. The state lock guards it."""

    monitor: Monitor
    store: PersistentStore
    """Where the messages are that survive a restart."""
    delivery_count_table: DeliveryCountTable
    return_counts: ReturnCounts
    """Where it is written how often messages came back."""
    memories: Memories
    """What the messages of each destination are charged to."""
    consumer_memory: Tab
    """Pays for consumers and their lists."""
    destination_memory: Tab
    """Pays for destinations that are open, and for their lanes."""
    reader: LaneReader
    """Reads single messages of lanes for whoever looks at a delivery without a body."""
    syncs_always: bool
    """Acks are durable before they are confirmed."""
    distributions: DistributionKeeper
    """Chooses the distribution of each destination."""

    @abstractmethod
    def offer_to_consumer_groups(self, lane: LaneState, message: StoredMessage) -> bool:
        """Offer a message that arrived to every list of its lane. Return whether RAM has it for all who want it."""

    @abstractmethod
    def offer_slice(self, lane: LaneState, messages: Sequence[StoredMessage]) -> None:
        """Publish messages that arrived, and offer each in turn as offer_to_consumer_groups does."""

    @abstractmethod
    def offer_unloaded(self, lane: LaneState, end: int) -> None:
        """Let everything before `end` be dispatched; what is new of it is not in RAM, or not due yet."""

    @abstractmethod
    def pass_holes(self, lane: LaneState, first: int) -> None:
        """Let lists go on at `first`: nothing lies between it and what is published."""

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
    def on_lane_gone(self, lane: LaneState) -> None:
        """Note that a lane has ended."""


class LaneState(LaneMessages):
    """One lane as the dispatch floor sees it. The state lock guards it."""

    __slots__ = (
        "destination",
        "sole",
        "purges",
        "unwanted",
        "is_timed",
        "pending_cache",
        "caches",
        "pager",
        "charged_bytes",
    )
    state_bytes: ClassVar[int] = LANE_STATE_BYTES
    """What it is charged for itself."""
    joins_slices: ClassVar[bool] = True
    """Slices that are published together may arrive as one."""

    def __init__(self, destination: DestinationState, pending_lane: PendingLane, id_prefix: str) -> None:
        """destination: what its consumers take from, or its topic."""
        target_area, memory = destination.target_area, destination.memory
        store = target_area.store
        syncs = target_area.syncs_always
        super().__init__(pending_lane, id_prefix, memory, store, target_area.delivery_count_table, syncs=syncs)
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
        self.pager = READ_AGAIN
        """What becomes of its messages that RAM has no place for."""
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

    def acknowledge_parked(self, first: int, last: int) -> None:
        """Count a run as acknowledged that a transaction held, which is committed. Requires: the lock; it is removed.

        Its distribution and its limits learn of it now.
        """
        messages = last - first + 1
        self.acknowledged += messages
        self.parked.remove(first, last)
        self.destination.distribution.settled(self, first, messages)
        if self.delivery_counts is not None:
            self.forget_attempts(first, last)
        if self.destination.admission is not None:
            self.destination.admission.room_came()

    def count_as_dead_letters(self, messages: int) -> None:
        """Count as dead letters so many messages that were counted as acknowledged. Requires: the lock."""
        self.acknowledged -= messages
        self.destination.dead_lettered += messages

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

    @abstractmethod
    def drop(self) -> None:
        """Become a lane without messages: the queue is deleted, or the subscription has ended."""

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write down how often messages were delivered."""
        self.destination.target_area.return_counts.count(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[Returned], now_ms: int) -> None:
        """Record the attempts of runs some of which are offered again later."""
        self.destination.target_area.return_counts.put(self.pending_lane.number, runs, now_ms)
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

    @abstractmethod
    def arrive(self, message: StoredMessage) -> None:
        """Let a stored message be dispatched. It never waits for memory: at worst it stays a reference."""

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Let a slice of stored messages be dispatched. charge: of the messages; None: it is counted."""
        for message in messages:
            self.arrive(message)

    def arrive_unloaded(self, end: int) -> None:
        """Let all before `end` be dispatched; what is new of it is not in RAM, or not due yet."""
        self.destination.target_area.offer_unloaded(self, end)

    @abstractmethod
    def give_up(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""

    def drop_copies(self, sequence: int) -> None:
        """Drop the copies of a message from the caches: whoever has it needs none of them any more."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message that may be nowhere but in RAM."""
        return None

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how much a load from this sequence on may bring for a list that has room for so much.

        Called by EagerLoader.begin as it chooses. Default: as much as the list has room for.
        """
        return list_bytes

    def stays_cached(self, sequence: int, room_bytes: int) -> bool:
        """Return whether a message stays in its cache until somebody asks for it.

        room_bytes: what its list has room for. Default: the loader puts it into the list ahead of that.
        """
        return False

    def loaded(self, load: Load[TargetList]) -> None:
        """Note that a load was put into its list: others may need what it read.

        Called by EagerLoader.install. Default: nobody else needs it.
        """

    def read_one(self, sequence: int) -> StoredMessage:
        """See LaneMessages."""
        return self.destination.target_area.reader.read_one(self, sequence)

    def read_headers(self, sequence: int) -> StoredMessage:
        """See LaneReader."""
        return self.destination.target_area.reader.read_headers(self, sequence)

    def not_read(self, problem: str) -> StoreFailed:
        """See LaneMessages."""
        return StoreFailed(f"a message of {self.destination.name!r} can't be read ({problem})")


class PersistentLaneState(LaneState):
    """A lane of messages that are in the journal, of a queue, a topic or a subscription. The state lock guards it.

    How they arrive is said by the lane of each of these; all else that the journal and the index make different is
    here. The index has one lane for it in a queue or topic: `pending_lane` is `destination_lane`. It has two in a
    subscription: its own, in which it acknowledges, and the topic's, which knows what was sent and where that lies.
    """

    __slots__ = ("destination_lane",)

    def __init__(
        self,
        destination: DestinationState,
        destination_lane: DestinationLane,
        id_prefix: str,
        subscription_lane: JournaledLane | None = None,
    ) -> None:
        """destination_lane: of a queue or topic. subscription_lane: of a subscription to that topic, or None."""
        super().__init__(destination, subscription_lane or destination_lane, id_prefix)
        self.destination_lane = destination_lane
        """The lane of the queue or topic, which records add messages to."""

    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, as MessageStore.quarantine does. Requires: no lock."""
        pending_lane = self.pending_lane
        assert isinstance(pending_lane, JournaledLane)
        return self.destination.store.quarantine(pending_lane, sequence)

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """See LaneState."""
        names = NO_NAMES if selector is None else selector.header_names
        return names if has_fingerprints(names) else NO_NAMES

    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """See LaneState."""
        if not names:
            return super().next_candidate(selector, names, sequence)
        return self.destination.store.next_candidate(self.destination_lane, names, sequence, selector.may_match)

    def note_survey(self, survey: BlockSurvey) -> None:
        """See LaneState."""
        self.destination.store.note_survey(self.destination_lane, survey)

    def give_up(self, sequence: int) -> None:
        """See LaneState. It goes on record as lost."""
        self.destination.target_area.pass_unreadable(self, sequence)

    def drop(self) -> None:
        """See LaneState."""
        self.pending_lane = self.destination_lane = DeletedLane(self.destination_lane)


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


class Distribution(Collector, Dispatcher, LaneListener[LaneState], Explainer[LaneState, Taker]):
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


class DestinationState(DestinationLifecycle):
    """A queue, a topic, a subscription or a pattern of topics that is open. The state lock guards it.

    Lanes are made on first use. Consumers take from the lanes of a queue or a subscription; what is sent to a topic
    goes to the lanes of its subscriptions.
    """

    __slots__ = (
        "target_area",
        "lanes",
        "non_persistent_lanes",
        "consumer_groups",
        "distribution",
        "exclusive",
        "lasting_charge",
    )

    has_lists: ClassVar[bool] = True
    """Consumers take from its own lanes."""
    keeps_groups: ClassVar[bool] = True
    """Messages of one group are for one of its consumers."""
    spans_others: ClassVar[bool] = False
    """Its consumer takes from the lanes of other destinations: see `sources`."""

    def __init__(self, target_area: ListKeeper, number: int, name: str) -> None:
        super().__init__(number, name)
        self.target_area = target_area
        self.lanes: tuple[PersistentLaneState | None, ...] = NO_LANES
        """By priority: see `put_lane`."""
        self.non_persistent_lanes: tuple[NonPersistentLaneState | None, ...] = NO_LANES
        """By priority, the lanes of non-persistent messages: see `put_non_persistent_lane`."""
        self.consumer_groups: dict[str | None, ConsumerGroup] = {}
        self.distribution: Distribution = target_area.distributions.first(self)
        """The rule that decides which consumer gets which message."""
        self.exclusive: Taker | None = None
        """The one consumer that gets everything; None: all may take."""
        self.lasting_charge: LastingCharge | None = None
        """What it is charged when it is closed or deleted, as long as anybody holds this object, such as a Queue."""

    @property
    def monitor(self) -> Monitor:
        """Return the monitor of the store."""
        return self.target_area.monitor

    @property
    def store(self) -> PersistentStore:
        """Return where the messages are that survive a restart."""
        return self.target_area.store

    @property
    def memory(self) -> MessageMemory:
        """What its messages are charged to. O(patterns) where a policy sets memory apart."""
        return self.target_area.memories.of(self.name)

    def make_lane(self, priority: int, store: MessageStore) -> PersistentLaneState:
        """Return a new lane for what is sent to it in that priority. Requires: it is a queue or a topic."""
        raise NotImplementedError

    def make_consumer_group(self, selector: Selector | None) -> ConsumerGroup:
        """Return a new consumer group as the ordinary distribution has it."""
        return ConsumerGroup(selector)

    def end_admission(self) -> None:
        """Raise Closed in all who wait for room, and let its limits go, which hold this object. Requires: the lock."""
        if self.admission is not None:
            self.admission.close(f"the {self.noun}")
            self.admission = None

    def drop_lanes(self) -> None:
        """Know no lane any more, and no consumer: a sender that still has this object finds none, and makes none.

        Requires: the lock, and that its consumers are closed.
        """
        self.lanes = self.non_persistent_lanes = NO_LANES
        self.consumer_groups = {}
        self.earlier = NOTHING_COUNTED

    def put_lane(self, priority: int, lane: PersistentLaneState) -> None:
        """Have a lane of persistent messages from now on. Requires: the lock."""
        behind = priority + 1
        self.lanes = (*self.lanes[:priority], lane, *self.lanes[behind:])

    def put_non_persistent_lane(self, priority: int, lane: NonPersistentLaneState | None) -> None:
        """Have a lane of non-persistent messages from now on, or none any more. Requires: the lock."""
        lanes, behind = self.non_persistent_lanes, priority + 1
        self.non_persistent_lanes = (*lanes[:priority], lane, *lanes[behind:])

    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the lanes that exist, highest priority first."""
        both = zip(reversed(self.lanes), reversed(self.non_persistent_lanes), strict=True)
        return (lane for pair in both for lane in pair if lane is not None)

    def all_consumer_groups(self) -> tuple[ConsumerGroup, ...]:
        """Return its consumer groups, and those that its distribution has for one consumer alone. O(those)."""
        return (*self.consumer_groups.values(), *self.distribution.single_consumer_groups())

    def sources(self) -> Iterable[DestinationState]:
        """Return the destinations whose lanes its consumers take from: itself."""
        return (self,)

    def lists_over(self, lane: LaneState) -> Iterator[TargetList]:
        """Return every list of one of its lanes."""
        consumer_groups = self.all_consumer_groups()
        return (target for consumer_group in consumer_groups for target in consumer_group.lists if target.lane is lane)

    def holds_up(self, consumer: Taker) -> bool:
        """Return whether a consumer gets nothing, whatever is there."""
        is_exclusive = self.exclusive is None or self.exclusive is consumer
        return self.is_paused or not is_exclusive or consumer.stage.is_draining

    def stand_by(self, consumer: Taker) -> None:
        """Have a consumer that gets nothing let go of what is kept for it: what it settles frees its groups."""
        if not self.is_paused:
            self.distribution.revoke(consumer)

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
        if self.consumer_groups or self.distribution.keeps_open or self.is_paused or self.calls_under_way:
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
