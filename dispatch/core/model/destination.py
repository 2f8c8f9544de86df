"""The classes that a message passes in dispatch: destination, lane, TargetList, selector group and consumer.

They share a module because they hold each other in a circle. A destination has selector groups. A selector group has
lists and consumers. A list has its lane. A lane and a consumer have their destination, and a lane has its only list.
Each of these attributes has the class that it holds as its type, because each message passes here, and machine code
is fast only where it knows the class.

What a class does without the others is in its base class below this module: ListSupply, DeliveryLane, SelectorMatcher,
AbstractConsumer and LimitedDestination. The kinds of lanes are above it, and so is DestinationState, with all of a
destination that neither its lanes nor its consumers use. The state lock guards all objects.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ....cache.accounting.charge import OVERHEAD_BYTES
from ....cache.accounting.overdraft import Overdraft
from ....cache.accounting.shares import near_bytes
from ....cache.messages.memory_registry import MemoryRegistry
from ....cache.messages.message_memory import MessageMemory
from ....store.environment.locks import UNAWAITED, OwnedLock, condition_of
from ....store.errors import Closed, StoreFailed
from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ....store.index.delivery_counts import DeliveryCountTable
from ....store.index.fingerprints import Fingerprints
from ....store.index.pending_lane import PendingLane
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...admission.limits import DestinationLimits, LimitedDestination
from ...selectors.selector import Selector
from ..lists.list_contents import NO_MESSAGES
from ..lists.list_supply import ListSupply
from ..lists.load_rule import OWN_LOADS, LoadRule
from ..lists.pager import READ_AGAIN
from ..monitor import Monitor
from .abstract_target_area import AbstractTargetArea
from .contracts import LaneCache, LanePendingCache, PersistentStore, ReturnCounts
from .counting import DestinationCounters
from .delivery import AbstractConsumer, Delivery, DeliveryLane, counted_runs
from .distribution_roles import (
    AbstractDistributionChooser,
    ConsumerCoordinator,
    Dispatcher,
    Explainer,
    LaneListener,
)
from .lane_reader import LaneReader
from .lane_scan import FULL_SCAN, LaneScan
from .lifecycle import Lifecycle
from .matching import SelectorMatcher

LANE_STATE_BYTES: Final = 1024
"""Charged for an open lane, without its messages and its part of the index."""


class CoreConsumer(AbstractConsumer):
    """An AbstractConsumer, and what it takes from: a consumer as the core knows it.

    Consumer, in dispatch/consumer, implements it. The state lock guards it.
    """

    __slots__ = ("destination", "dispatcher", "selector_group")

    destination: CoreDestination
    selector_group: SelectorGroup
    """Has the lists that the consumer takes from."""
    dispatcher: Dispatcher[CoreConsumer]
    """Hands out messages from RAM to this consumer. The queue chooses it; it is kept here to save each take a call."""

    @abstractmethod
    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take from another selector group from now on. Requires: the lock."""


NO_LISTS: Final[list[TargetList]] = []
"""What each selector group without lists has as its lists. It always stays empty."""


class SelectorGroup(SelectorMatcher):
    """The consumers of a queue that have the same selector or none, and their lists, highest priority first.

    The selector groups of a queue compete for its messages: each message goes to one of them. A group says which
    messages it wants, as a SelectorMatcher; how its consumers wait; and in which order they are woken.

    Most groups with a selector have one consumer, and there may be thousands of such groups. So a single consumer is
    kept without a dict, because a dict with one key takes 224 bytes.
    """

    __slots__ = ("_only", "_all", "arrived", "waiting", "is_armed", "lists", "misses", "is_charged")
    notes_message_groups: ClassVar[bool] = False
    """Whether a load tells this group the message groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        # The consumer, while there is only one.
        self._only: CoreConsumer | None = None
        # All consumers, once there is a second one.
        self._all: dict[CoreConsumer, None] | None = None
        # The condition for which takes wait. UNAWAITED until the first take waits.
        self.arrived = UNAWAITED
        # Number of threads that wait in take for a message.
        self.waiting = 0
        # Whether a consumer waits for its on_ready callback.
        self.is_armed = False
        self.lists = NO_LISTS
        self.misses = 0
        # Whether the selector group is charged. It is charged once, even if its consumer reads several destinations.
        self.is_charged = False

    # ------------------------------------------------------------------ lists

    @property
    def common(self) -> SelectorGroup:
        """The selector group whose lists all consumers with this selector share: by default this one."""
        return self

    def source_list(self, target: TargetList) -> TargetList:
        """Return the list from which messages get into `target`, for traces: by default `target` itself."""
        return target

    def add_list(self, target: TargetList) -> None:
        """Add a new list behind the others."""
        if self.lists is NO_LISTS:
            self.lists = []
        self.lists.append(target)

    def in_turn(self) -> Iterable[TargetList]:
        """Return the lists in the order in which messages are handed out from them."""
        return self.lists

    def claim(self, lane: LaneState, message: StoredMessage) -> bool:
        """Claim a message of a list for a hand-out; return False if another consumer has it or it is gone.

        In both cases no cache needs its copy any more. But a non-persistent message keeps its copies until a delivery
        holds it, because a copy may be all that is left of it.
        """
        if lane.is_persistent:
            lane.drop_copies(message[0])
        return lane.is_free(message[0])

    def note_message_group(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body a load has read and does not keep. Requires: notes_message_groups."""

    # ------------------------------------------------------------------ consumers

    @property
    def consumers(self) -> Collection[CoreConsumer]:
        """The consumers in the order in which they are woken. O(1)."""
        if self._all is not None:
            return self._all
        return () if self._only is None else (self._only,)

    def add_consumer(self, consumer: CoreConsumer) -> None:
        """Add a consumer at the end. O(1)."""
        if self._all is not None:
            self._all[consumer] = None
        elif self._only is None:
            self._only = consumer
        else:
            self._all = {self._only: None, consumer: None}
            self._only = None

    def remove_consumer(self, consumer: CoreConsumer) -> None:
        """Remove a consumer, which must be in the group. O(1)."""
        if self._all is not None:
            del self._all[consumer]
            if not self._all:
                self._all = None
        else:
            assert consumer is self._only
            self._only = None

    def inherit_consumers(self, before: SelectorGroup) -> None:
        """Take over the consumers of a selector group that this one replaces. O(1)."""
        self._only, self._all = before._only, before._all

    def rotate_consumers(self) -> None:
        """Move the first consumer to the end. O(1)."""
        if self._all is not None:
            first = next(iter(self._all))
            del self._all[first]
            self._all[first] = None

    @property
    def is_awaited(self) -> bool:
        """Whether a take waits, or a consumer waits for its on_ready callback."""
        return self.waiting > 0 or self.is_armed

    def wait(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until a message arrives or the time is over. Requires: the state lock, which is released meanwhile."""
        if self.arrived is UNAWAITED:
            self.arrived = condition_of(lock)
        self.waiting += 1
        try:
            self.arrived.wait(seconds)
        finally:
            self.waiting -= 1

    def arm(self) -> None:
        """Call on_ready of the waiting consumers at the next arrival. Requires: the lock."""
        self.is_armed = True

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Wake the consumers, because there may be a message. Callbacks that are due are added to ready.

        Requires: the lock.
        """
        if self.waiting:
            self.arrived.notify_all()
        if self.is_armed:
            self.call_armed(ready)

    def wake_for(self, messages: int, ready: list[Callable[[], None]]) -> None:
        """Wake as `wake` does, but only as many threads as messages came into RAM: more would find nothing.

        Threads that have waited longest are woken first. A thread that takes nothing wakes another. Requires: the lock.
        """
        if self.waiting:
            self.arrived.notify(messages)
        if self.is_armed:
            self.call_armed(ready)

    def wake_takes(self) -> None:
        """Have every take that waits look again, because who gets what has changed. Requires: the lock."""
        self.arrived.notify_all()

    def wake_another_take(self) -> None:
        """Wake one more take, because one that was woken takes nothing. Requires: the lock."""
        self.arrived.notify()

    def call_armed(self, ready: list[Callable[[], None]]) -> None:
        """Add the callbacks of consumers that wait for a message to ready. Requires: the lock."""
        self.is_armed = False
        for consumer in self.consumers:
            consumer.become_ready(ready)
        # The consumer that is woken first may take all messages, so next time another one is first.
        self.rotate_consumers()

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """Wake all consumers that wait, because a load has ended, whatever it brought. Requires: the lock.

        Here `wake` does that. A subclass whose `wake` leaves some consumers out wakes these too.
        """
        self.wake(ready)

    def rate_fraction(self, consumer: CoreConsumer) -> float:
        """Return a consumer's rate of taking as a fraction of the rate of all consumers. O(consumers).

        The fractions are equal while no consumer takes.
        """
        if consumer not in self.consumers:
            return 0.0
        total = sum(other.activity.messages_per_second for other in self.consumers)
        return consumer.activity.messages_per_second / total if total else 1.0 / len(self.consumers)


class TargetList(ListSupply):
    """The messages of one lane that one selector group gets next. The first of them are in RAM.

    ListContents says where each message is. Loads bring more from the store and keep `direct_bytes` between the
    watermarks. The state lock guards it.
    """

    __slots__ = (
        "lane",
        "selector_group",
        "skip_names",
        "needs_claims",
        "counterpart",
        "is_unchecked",
        "is_timed",
    )

    def __init__(self, lane: LaneState, selector_group: SelectorGroup, consumer_memory: Overdraft) -> None:
        """Make an empty list. consumer_memory: pays for its runs."""
        super().__init__(consumer_memory, lane.memory)
        self.lane = lane
        self.selector_group = selector_group
        # Headers by which a scan for the selector skips blocks. If empty, the scan examines each block.
        self.skip_names = lane.scan().skip_names(selector_group.selector)
        # Whether each message must be claimed before it is handed out, because it may not be free. That is so if other
        # selector groups take from the same lane, if some messages were parked or dead letters when the list began, or
        # if the list has the messages that are assigned to one consumer.
        self.needs_claims = False
        # The list of the same selector group and priority that has the messages of the other delivery mode.
        self.counterpart: TargetList | None = None
        # Whether direct messages can be handed out without checks: the list needs no claims, is not timed, and has no
        # counterpart and no quota.
        self.is_unchecked = False
        # Whether messages may have expired, so that each must be checked before it is handed out.
        self.is_timed = lane.is_timed
        self._update_unchecked()

    def _update_unchecked(self) -> None:
        """Compute `is_unchecked` anew, because a field that decides it has changed."""
        needs_checks = self.needs_claims or self.is_timed or self.counterpart is not None
        self.is_unchecked = not needs_checks and self.memory.is_common

    @property
    def has_supply(self) -> bool:
        """Whether there may be messages behind the direct ones, or messages that came back."""
        return self.frontier < self.lane.published_end or self.references.count > 0 or self.returned.count > 0

    @property
    def is_near(self) -> bool:
        """Whether so little is pending in its lane that consumers soon want what arrives."""
        pending_lane = self.lane.pending_lane
        enough = near_bytes(self.memory.fair_list_bytes, self.high_watermark_bytes)
        # In a deep backlog the overhead of the messages alone is more than enough. This cheap question comes first,
        # because each single arrival behind a backlog asks it.
        if pending_lane.pending_messages * OVERHEAD_BYTES > enough:
            return False
        messages, content_bytes = pending_lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= enough

    def reoffer(self, runs: Iterable[tuple[int, int]]) -> None:
        """Put runs that are free again, or due, into their places, if the list has passed or skipped them.

        A load skips messages that are delayed. So a message that is due now may be missing between direct messages, and
        between those of the load under way. O(runs), and the direct messages and references between the first and the
        last run.
        """
        missing = SequenceSet()
        for first, last in runs:
            if first < self.frontier:
                missing.add(first, min(last, self.frontier - 1))
            if self.cut_load(first, last):
                self.lane.recheck_loads()
        self.forget_known(missing)
        for first, last in missing:
            self.returned.add(first, last)

    def require_claims(self) -> None:
        """Have each message claimed before it is handed out, because it may not be free; see `needs_claims`.

        The list needs claims until `try_without_claims`, even if the other selector groups end before that.
        """
        self.needs_claims = True
        self._update_unchecked()

    def try_without_claims(self) -> None:
        """Hand out without claims again if the list is alone over its lane, has no message and gets none by a load.

        Other selector groups may have taken a message that the list has now. A message that it gets later has arrived
        or come back, so it is free.
        """
        if self.lane.sole_list is self and not (self.direct or self.has_supply or self.is_loading):
            self.needs_claims = False
            self._update_unchecked()

    def watch_times(self) -> None:
        self.is_timed = True
        self._update_unchecked()

    def pair(self, counterpart: TargetList) -> None:
        self.counterpart = counterpart
        self._update_unchecked()

    def move_high_watermark(self, high_watermark_bytes: int, read_ahead_share: float) -> None:
        """Move the watermarks, at most to the bytes that the lane allows its lists to hold."""
        super().move_high_watermark(min(high_watermark_bytes, self.lane.load_rule.list_bytes_max), read_ahead_share)

    def close(self) -> None:
        """Let go of everything, as ListContents.close does, and of the counterpart.

        Two lists that point at each other would stay in RAM, with their queue, until a garbage collection.
        """
        super().close()
        self.counterpart = None

    def on_memory_freed(self) -> None:
        """Ask for a load again if enough memory is free now. Called by DispatchArea.retry_waiters.

        The loader had given the list up for want of memory.
        """
        self.lane.target_area.retry_load(self)

    def _check(self) -> None:
        assert self.direct is not NO_MESSAGES or self.lane.sole_list is not self, (
            "arrivals on the fast path would be lost"
        )
        super()._check()


class LaneState(DeliveryLane):
    """One lane as dispatch has it: a DeliveryLane, its destination, and where its messages are outside the lists.

    Loads fill the lists of a lane from its caches first, then from the journal or tmp-storage. Messages that RAM has no
    room for leave it through the pager. PersistentLaneState and NonPersistentLaneState are the two kinds of lane.
    `pending_lane` is the store's object for the same lane; docs/internals/lanes.md has all classes of both families.

    A method with a body here does what an ordinary queue needs. Subclasses for other lanes override it. The state lock
    guards it.
    """

    __slots__ = (
        "destination",
        "target_area",
        "sole_list",
        "charged_bytes",
        "is_timed",
        "unmatched",
        "recheck_count",
        "pending_cache",
        "caches",
        "pager",
        "_reader",
        "_return_counts",
    )
    state_bytes: ClassVar[int] = LANE_STATE_BYTES
    """Charged for the lane itself."""
    joins_slices: ClassVar[bool] = True
    """Whether slices that are published together may arrive as one."""

    def __init__(self, destination: CoreDestination, pending_lane: PendingLane, id_prefix: str) -> None:
        """Make the state of an open lane.

        destination: the queue or subscription whose consumers take from the lane, or the topic to which it belongs.
        """
        parts, memory = destination.parts, destination.memory
        counts, syncs = parts.delivery_count_table, parts.syncs_always
        super().__init__(pending_lane, id_prefix, memory, parts.message_store, counts, syncs=syncs)
        self.destination = destination
        # Takes each arrival if the lane has no sole list.
        self.target_area = parts.target_area
        # The only list of this lane, if there is just one, without a selector and with the ordinary distribution.
        # Arrivals take the fast path to it.
        self.sole_list: TargetList | None = None
        # Whether messages have, or had, a delay or an expiry; see core/redelivery/timed_lanes.py.
        self.is_timed = False
        # For a subscription with a selector: messages that do not match and are to be acknowledged for it.
        self.unmatched: SequenceSet | None = None
        # How often loads under way were told to check again which of their messages are pending (`recheck_loads`).
        self.recheck_count = 0
        # The cache for messages for which a list has no room.
        self.pending_cache: LanePendingCache = memory.pending_cache
        # The caches that may hold a message that is in no list.
        self.caches: tuple[LaneCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        # Handles messages that must leave RAM.
        self.pager = READ_AGAIN
        self._reader = parts.reader
        self._return_counts = parts.return_counts
        # Charge of the lane; 0 once it is gone.
        self.charged_bytes = self.state_bytes
        destination.charge_part(self.charged_bytes)

    @property
    def destination_name(self) -> str:
        """The name of the destination that the messages were sent to."""
        return self.destination.name

    @property
    def distribution(self) -> Distribution:
        """Decides which consumer gets which message of the lane."""
        return self.destination.distribution

    def selector_group_lists(self) -> list[TargetList]:
        """Return the list of each selector group over this lane, without lists that belong to a single consumer."""
        lists: list[TargetList] = []
        for selector_group in self.destination.selector_groups.values():
            for target in selector_group.lists:
                if target.lane is self:
                    lists.append(target)  # a comprehension would make an iterator object in machine code
        return lists

    def use_sole_list(self, target: TargetList | None) -> None:
        """Let arrivals take the fast path to this list from now on. None: there is no such list."""
        self.sole_list = target
        if target is not None:
            target.own_direct()

    def release_charge(self) -> None:
        """Release the charge of a lane that has ended. A second call does nothing."""
        self.destination.release_part(self.charged_bytes)
        self.charged_bytes = 0

    def receiving_lanes(self) -> Iterator[LaneState]:
        """Yield every lane whose consumers get the messages that arrive here, this lane first."""
        yield self

    def all_receiving_lanes(self) -> list[LaneState]:
        """Return the receiving lanes, and the lanes of durable subscriptions that nobody has read since the open."""
        return list(self.receiving_lanes())

    def acknowledge_parked(self, first: int, last: int) -> None:
        """Count a run as acknowledged that a transaction held and has committed. Requires: the run is removed.

        The distribution learns of it only now, and senders that wait for room are served.
        """
        messages = last - first + 1
        self.acknowledged += messages
        self.parked.remove(first, last)
        self.distribution.settled(self, first, messages)
        if self.delivery_counts is not None:
            self.trim_delivery_counts(first, last)
        self.destination.on_room_freed()

    def count_as_dead_letters(self, messages: int) -> None:
        """Count as dead letters so many messages that were counted as acknowledged."""
        self.acknowledged -= messages
        self.destination.counters.dead_lettered += messages

    @property
    def expiry_lane_state(self) -> LaneState:
        """The lane from which expired messages of this one are removed."""
        return self

    def arrive_unloaded(self, end: int) -> None:
        """Let everything before `end` arrive. New messages among them are not in RAM, or not due yet."""
        self.target_area.offer_unloaded(self, end)

    # ------------------------------------------------------------------ scans, loads and caches

    def scan(self) -> LaneScan:
        """Return how a scan for a selector goes through the lane."""
        return FULL_SCAN

    @property
    def load_rule(self) -> LoadRule:
        """How much is loaded for the lists of the lane."""
        return OWN_LOADS

    def is_cached(self, sequence: int) -> bool:
        """Return whether a cache has a message."""
        return any(cache.peek(self.pending_lane.number, sequence) is not None for cache in self.caches)

    def drop_copies(self, sequence: int) -> None:
        """Drop the cached copies of a message, because its new holder has the body too."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    def recheck_loads(self) -> None:
        """Have each load under way check when it ends which of its messages are still pending."""
        self.recheck_count += 1

    # ------------------------------------------------------------------ single messages, read for deliveries

    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: no lock."""
        return self._reader.read_one(self, sequence)

    def read_headers(self, sequence: int) -> StoredMessage:
        """Read one pending message, in pieces, with an empty body if it is not in RAM. Requires: no lock."""
        return self._reader.read_headers(self, sequence)

    def read_error(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""
        return StoreFailed(f"a message of {self.destination_name!r} can't be read ({problem})")

    # ------------------------------------------------------------------ what the journal is told

    @property
    def is_recorded(self) -> bool:
        """Whether acks of this lane are in the journal."""
        return self.is_persistent

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write the delivery counts of these runs to the journal."""
        self._return_counts.count(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[ReturnedRun], now_ms: int) -> None:
        """Record the attempts of runs, some of which are offered again later."""
        self._return_counts.put(self.pending_lane.number, runs, now_ms)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def count_attempts(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries of a lane to which a message has come back before.

        Counts of messages that came back, or that a killed process may have had, are written now. Otherwise a message
        that kills this process as well would do so for ever. Requires: `delivery_counts` is not None.
        """
        known = self.delivery_counts
        assert known is not None
        counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
        if counted:
            self.record_attempts(counted_runs(counted))

    # ------------------------------------------------------------------ the end of messages, and of the lane

    @abstractmethod
    def lose_unreadable(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""

    @abstractmethod
    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, if it is in the journal; return whether it was. Requires: no lock."""

    @abstractmethod
    def on_lane_ended(self) -> None:
        """Let go of all messages, because the destination or subscription has ended. Removals calls it."""


class Distribution(
    Dispatcher[CoreConsumer],
    ConsumerCoordinator["CoreDestination", SelectorGroup, CoreConsumer],
    LaneListener[LaneState],
    Explainer[LaneState, CoreConsumer],
):
    """Decides which consumer of a queue gets which message. The package dispatch/distribution has all distributions.

    distribution_roles.py says what each of the four roles asks of it.
    """

    def make_selector_group(self, destination: CoreDestination, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group of the queue."""
        return destination.make_selector_group(selector)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStateParts:
    """The parts of an open store with which each DestinationState and each LaneState is made."""

    target_area: AbstractTargetArea[LaneState, TargetList]
    distribution_chooser: AbstractDistributionChooser[CoreDestination, Distribution]
    """Chooses the distribution of each destination."""
    monitor: Monitor
    memories: MemoryRegistry
    """The memory of each destination's messages."""
    destination_memory: Overdraft
    """Pays for open destinations and their lanes."""
    message_store: PersistentStore
    """Has the persistent messages."""
    fingerprints: Fingerprints
    """What the index knows of headers, so that scans for a selector skip blocks."""
    make_fingerprint_room: Callable[[], None]
    """Makes room in RAM for more of them; called without a lock."""
    delivery_count_table: DeliveryCountTable
    return_counts: ReturnCounts
    """Writes to the journal how often messages came back."""
    reader: LaneReader
    """Reads single messages for callers that look at a delivery without a body."""
    syncs_always: bool
    """Whether acks are durable before they are confirmed."""


class CoreDestination(LimitedDestination):
    """A destination as its lanes, lists and consumers know it: whether it is open, who takes from it, and how.

    DestinationState, in destinations/destination_state.py, adds the rest: the lanes, whose classes are above this
    module, what is counted over all of them, and who keeps the destination open. The state lock guards it.
    """

    __slots__ = (
        "parts",
        "monitor",
        "number",
        "counters",
        "limits",
        "has_message_groups",
        "is_paused",
        "lifecycle",
        "has_duplicate_window",
        "selector_groups",
        "distribution",
        "exclusive",
    )

    has_lists: ClassVar[bool] = True
    """Whether consumers take from its own lanes."""
    keeps_message_groups: ClassVar[bool] = True
    """Whether all messages of one group go to one consumer."""
    spans_others: ClassVar[bool] = False
    """Whether its consumer takes from the lanes of other destinations; see `sources`."""

    def __init__(self, parts: DestinationStateParts, number: int, name: str) -> None:
        super().__init__(name)
        self.parts = parts
        # Each arrival that may wake a consumer reads it.
        self.monitor = parts.monitor
        self.number = number
        self.counters = DestinationCounters()
        # The limits that the policy of a queue or topic sets. A subscription has those of its topic. None: no limits.
        self.limits: DestinationLimits | None = None
        # Whether a message with a group was ever sent here.
        self.has_message_groups = False
        # Whether nothing is handed out until it is resumed.
        self.is_paused = False
        self.lifecycle = Lifecycle.OPEN
        # Whether its policy has a duplicate window.
        self.has_duplicate_window = False
        # By text of the selector; None: the selector group of the consumers without a selector.
        self.selector_groups: dict[str | None, SelectorGroup] = {}
        # Decides which consumer gets which message.
        self.distribution: Distribution = parts.distribution_chooser.initial(self)
        # The exclusive consumer, which gets everything. None: all consumers may take.
        self.exclusive: CoreConsumer | None = None

    # ------------------------------------------------------------------ whether it is open, and has room

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor deleted, so that it may have lanes and consumers."""
        return self.lifecycle is Lifecycle.OPEN

    def raise_if_not_open(self) -> None:
        """Raise Closed if it is not open any more. Requires: the lock."""
        if not self.is_open:
            raise Closed(f"the {self.noun}")

    @property
    def subscription_name(self) -> str | None:
        """The name of a durable subscription. None: it is not one."""
        return None

    @property
    def is_limited(self) -> bool:
        """Whether senders may wait for room that acks of its consumers make."""
        return self.limits is not None

    def on_room_freed(self) -> None:
        """Serve senders that wait for room. Requires: the lock.

        Whatever removed messages calls it: an ack, Removals, TimedLanes, or a lane whose transaction has committed.
        """
        if self.limits is not None:
            self.limits.on_room_freed()

    # ------------------------------------------------------------------ memory

    @property
    def memory(self) -> MessageMemory:
        """The memory to which its messages are charged. O(patterns) if a policy sets memory apart."""
        return self.parts.memories.of(self.name)

    def charge_part(self, size_bytes: int) -> None:
        """Charge for a part of the destination, such as a lane. Messages are not charged here."""
        self.parts.destination_memory.charge(size_bytes)

    def release_part(self, size_bytes: int) -> None:
        """Release what `charge_part` charged."""
        self.parts.destination_memory.release(size_bytes)

    # ------------------------------------------------------------------ who takes from it, and from what

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group for the ordinary distribution."""
        return SelectorGroup(selector)

    def all_selector_groups(self) -> tuple[SelectorGroup, ...]:
        """Return its selector groups, and those that its distribution has for single consumers.

        O(selector groups returned).
        """
        return (*self.selector_groups.values(), *self.distribution.own_selector_groups())

    @abstractmethod
    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the existing lanes, highest priority first."""

    def lists_over(self, lane: LaneState) -> Iterator[TargetList]:
        """Yield every list over one of its lanes."""
        selector_groups = self.all_selector_groups()
        return (target for selector_group in selector_groups for target in selector_group.lists if target.lane is lane)

    def sources(self) -> Iterable[CoreDestination]:
        """Return the destinations whose lanes its consumers take from: by default this one."""
        return (self,)

    def holds_up(self, consumer: CoreConsumer) -> bool:
        """Return whether a consumer gets nothing for now, even if messages are there."""
        is_excluded = self.exclusive is not None and self.exclusive is not consumer
        return self.is_paused or is_excluded or consumer.stage.is_draining

    def free_kept_for(self, consumer: CoreConsumer) -> None:
        """Let other consumers have what is kept for one that gets nothing, unless the destination is paused.

        Call it again when the consumer settles messages, because it keeps each group until it holds none of it.
        """
        if not self.is_paused:
            self.distribution.revoke(consumer)

    def forget_selector_groups(self) -> None:
        """Forget its selector groups. Requires: their lists over its lanes have ended."""
        self.selector_groups.clear()

    def consumers(self) -> Iterator[CoreConsumer]:
        return (consumer for selector_group in self.selector_groups.values() for consumer in selector_group.consumers)

    def on_consumer_closed(self) -> None:
        """Act on the close of one of its consumers. Called by ConsumerEnding. Requires: the lock.

        A subscription goes offline with its last consumer. Default: nothing happens.
        """


def lane_of(delivery: Delivery) -> LaneState:
    """Return the lane from which a delivery was handed out."""
    lane = delivery.lane
    assert isinstance(lane, LaneState)
    return lane
