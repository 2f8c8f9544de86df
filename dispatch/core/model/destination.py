"""The core of dispatch: lanes, their TargetLists, selector groups, consumers, and the destination that joins them.

These classes are one module because each holds the next, in a circle: a destination has selector groups, a selector
group lists and consumers, a list its lane, a lane and a consumer their destination. A lane also holds its only list,
and all of them are on the path of each message, so each attribute has the class that it holds as its type.

Whatever needs less is elsewhere: below this module deliveries, what lists and lanes know of themselves, how consumers
of a selector group wait, and the contracts of distributions and of the areas; above it the two kinds of lane, and
destinations with their lanes. The state lock guards all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

from ....cache.accounting.charge import OVERHEAD_BYTES
from ....cache.accounting.overdraft import Overdraft
from ....cache.accounting.shares import near_bytes
from ....cache.messages.memory_registry import MemoryRegistry
from ....cache.messages.message_memory import MessageMemory
from ....store.errors import StoreFailed
from ....store.format.return_record import ReturnedRun
from ....store.format.state_record import CountedRun
from ....store.index.delivery_counts import DeliveryCountTable
from ....store.index.fingerprint import BlockSurvey
from ....store.index.fingerprints import Candidate
from ....store.index.pending_lane import PendingLane
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector
from ..monitor import Monitor
from .abstract_target_area import AbstractTargetArea, AbstractTargetLists
from .contracts import LaneCache, LanePendingCache, PersistentStore, ReturnCounts
from .delivery import AbstractConsumer, Delivery, LaneMessages, counted_runs
from .distribution_roles import (
    AbstractDistributionChooser,
    ConsumerCoordinator,
    Dispatcher,
    Explainer,
    LaneListener,
)
from .lane_reader import LaneReader
from .lifecycle import DestinationLifecycle
from .list_contents import NO_MESSAGES
from .list_supply import ListSupply
from .load import Load
from .pager import READ_AGAIN
from .selector_group_consumers import SelectorGroupConsumers

LANE_STATE_BYTES: Final = 1024
"""Charged for an open lane, without its messages and its part of the index."""


class CoreConsumer(AbstractConsumer):
    """The consumer as the core sees it: an AbstractConsumer, and what it takes from.

    Consumer, in dispatch/consumer, defines all of it. The state lock guards it.
    """

    __slots__ = ("destination", "dispatcher", "selector_group")

    destination: CoreDestination
    selector_group: SelectorGroup
    """Has the lists that the consumer takes from."""
    dispatcher: Dispatcher[CoreConsumer]
    """Hands out to it from RAM. It is that of its queue, kept here so that no take has to ask for it."""

    @abstractmethod
    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take from another selector group from now on. Requires: the lock."""


NO_LISTS: Final[list[TargetList]] = []
"""The lists of all selector groups that have none. It always stays empty."""


class SelectorGroup(SelectorGroupConsumers[CoreConsumer]):
    """All consumers of a queue with the same selector (or none), and their lists, highest priority first.

    The selector groups of a queue compete for its messages: each message goes to one of them.
    """

    __slots__ = ("lists", "misses", "is_charged")
    notes_message_groups: ClassVar[bool] = False
    """Whether a load tells this group the message groups of messages that are too large for RAM."""

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        self.lists = NO_LISTS
        self.misses = 0
        # Whether it is charged. This happens once, however many destinations it reads.
        self.is_charged = False

    @property
    def common(self) -> SelectorGroup:
        """The part that all consumers with the same selector share."""
        return self

    def source_list(self, target: TargetList) -> TargetList:
        """Return the list from which messages came into one of its lists: by default the same list. Traces name it."""
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
        """Claim a message that a list names for a hand-out; return False if another consumer has it or it is gone.

        Copies in the caches are dropped in both cases, because whoever has the message has its body. Copies of a
        non-persistent message stay until a delivery holds it: they may be the only ones.
        """
        if lane.is_persistent:
            lane.drop_copies(message[0])
        return lane.is_free(message[0])

    def note_message_group(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body a load has read and does not keep. Requires: notes_message_groups."""


class TargetList(ListSupply):
    """The messages of one lane that one selector group gets next: direct ones in front, the rest not loaded.

    Messages behind the frontier come from the store, by loads that keep `direct_bytes` between the watermarks. The
    state lock guards it.
    """

    __slots__ = (
        "lane",
        "selector_group",
        "skip_names",
        "load",
        "needs_claims",
        "counterpart",
        "is_unchecked",
        "is_timed",
    )

    def __init__(self, lane: LaneState, selector_group: SelectorGroup, consumer_memory: Overdraft) -> None:
        """Make an empty list. consumer_memory: pays for its runs, as for consumers and their lists."""
        super().__init__(consumer_memory, lane.memory)
        self.lane = lane
        self.selector_group = selector_group
        # Headers by which its scan skips blocks. If empty, the scan examines each block.
        self.skip_names = lane.skip_names(selector_group.selector)
        # The load under way. It reads outside the lock, and no other load of this list begins meanwhile.
        self.load: Load[TargetList] | None = None
        # Whether it may name messages that are not free, so that each must be claimed before it is handed out: other
        # selector groups take them too, some were parked or dead letters when the list began, or they are assigned to
        # its one consumer.
        self.needs_claims = False
        # The list of the same selector group and priority for messages of the other delivery mode.
        self.counterpart: TargetList | None = None
        # Whether direct messages can be handed out without checks: the list needs no claims, is not timed, and has no
        # counterpart and no quota.
        self.is_unchecked = False
        # Whether messages may have expired, so that each must be checked before it is handed out.
        self.is_timed = lane.is_timed
        self._update_unchecked()

    def _update_unchecked(self) -> None:
        """Set `is_unchecked` again, after something changed that it depends on."""
        needs_checks = self.needs_claims or self.is_timed or self.counterpart is not None
        self.is_unchecked = not needs_checks and self.memory.is_common

    @property
    def is_loading(self) -> bool:
        return self.load is not None

    @property
    def has_supply(self) -> bool:
        """Whether there may be messages behind the direct ones, or messages that came back."""
        return self.frontier < self.lane.published_end or self.references.count > 0 or self.returned.count > 0

    @property
    def is_near(self) -> bool:
        """Whether so little is pending in its lane that what arrives is wanted before long."""
        pending_lane = self.lane.pending_lane
        enough = near_bytes(self.memory.fair_list_bytes, self.high_watermark_bytes)
        # Behind a deep backlog the overhead of what is pending says no alone. It is asked first, because each single
        # arrival there passes here.
        if pending_lane.pending_messages * OVERHEAD_BYTES > enough:
            return False
        messages, content_bytes = pending_lane.depth
        return content_bytes + messages * OVERHEAD_BYTES <= enough

    @property
    def next_to_hand_out(self) -> int | None:
        """Lowest sequence that this list may still hand out, before the frontier too if it came back. None: no more."""
        first = self.direct[0][0] if self.direct else None
        if first is None and self.references:
            first = self.references.first
        if first is None and self.frontier < self.lane.published_end:
            first = self.frontier
        if self.returned and (first is None or self.returned.first < first):
            first = self.returned.first
        return first

    def reoffer(self, runs: Iterable[tuple[int, int]]) -> None:
        """Put runs that are free again, or due, into their places, if the list has passed or skipped them.

        A load takes only what is ready: what was delayed may be missing between its messages, in RAM and on the way.
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
        """End the load under way before what it skipped of first..last: that is looked through again."""
        if first > min(last, load.last):
            return
        skipped = SequenceSet()
        skipped.add(first, min(last, load.last))
        for first_read, last_read in load.runs:
            skipped.remove(first_read, last_read)
        if skipped:
            self.lane.purge_count += 1
            load.last = skipped.first - 1

    def begin_load(self, load: Load[TargetList]) -> None:
        """Note that a load for this list is under way, which has reserved its memory. Requires: no other one is."""
        self.load = load
        self.loaded_bytes += load.reserved_bytes

    def end_load(self) -> None:
        """Note that the load has ended, for whatever reason."""
        self.load = None

    def require_claims(self) -> None:
        """Have each message claimed before it is handed out, because it may not be free; see `needs_claims`.

        When other selector groups have ended, it stays so until `try_without_claims`.
        """
        self.needs_claims = True
        self._update_unchecked()

    def try_without_claims(self) -> None:
        """Hand out without claims again if the list is alone over its lane, has no message and gets none by a load.

        What it gets later arrives or comes back, so it is free. What it has now, others may have taken meanwhile.
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
        """Move the watermarks, as far as the lane allows its lists to hold so much."""
        super().move_high_watermark(min(high_watermark_bytes, self.lane.list_bytes_max), read_ahead_share)

    def close(self) -> None:
        """Let go of everything, as ListContents.close does, and of the counterpart.

        Otherwise the two and their queue would stay until a garbage collection.
        """
        super().close()
        self.counterpart = None

    @property
    def is_next_cached(self) -> bool:
        """Whether a cache has the next message to load, if no message came back."""
        sequence, lane = self.first_to_load, self.lane
        return any(cache.peek(lane.pending_lane.number, sequence) is not None for cache in lane.caches)

    def page_out(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages of the lane leave RAM for which there is no room. Requires: their charge is released."""
        self.lane.pager.page_out(messages)

    def page_out_at_once(self, messages: Sequence[StoredMessage]) -> None:
        """Let messages leave RAM as page_out does, for memory that is needed at once."""
        self.lane.pager.page_out_at_once(messages)

    def on_memory_freed(self) -> None:
        """Be loaded again if enough memory is free now. The loader had given the list up for want of memory."""
        self.lane.target_area.retry_load(self)

    def peek(self, sequence: int) -> StoredMessage | None:
        """Return a message if its body is direct, or the load under way took it from a cache. O(direct)."""
        held = self.load.held.get(sequence) if self.load is not None else None
        if held is None:
            held = next((message for message in self.direct if message[0] == sequence), None)
        return held if held is not None and held[2] is not None else None

    def _check(self) -> None:
        assert self.direct is not NO_MESSAGES or self.lane.sole_list is not self, (
            "arrivals on the fast path would be lost"
        )
        super()._check()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStateParts:
    """The parts of the store on disk that every lane of an open store uses."""

    message_store: PersistentStore
    """Where the messages are that survive a restart."""
    delivery_count_table: DeliveryCountTable
    return_counts: ReturnCounts
    """Where it is written how often messages came back."""
    reader: LaneReader
    """Reads single messages for callers that look at a delivery without a body."""
    syncs_always: bool
    """Whether acks are durable before they are confirmed."""


class LaneState(LaneMessages):
    """Dispatch's state of one lane: how its messages arrive, get into the lists of its destination, and are read.

    A list is filled from here. The caches may have its next messages, fingerprints say which blocks need no look, and
    the store on disk has the rest. The methods here say what is so where no feature asks more; subclasses differ.

    `pending_lane` is the store's object for the same lane. docs/internals/lanes.md has all classes of both kinds. The
    state lock guards it.
    """

    __slots__ = (
        "destination",
        "target_area",
        "sole_list",
        "unmatched",
        "charged_bytes",
        "lane_state_parts",
        "purge_count",
        "is_timed",
        "pending_cache",
        "caches",
        "pager",
    )
    state_bytes: ClassVar[int] = LANE_STATE_BYTES
    """Charged for the lane itself."""
    joins_slices: ClassVar[bool] = True
    """Whether slices that are published together may arrive as one."""

    def __init__(self, destination: CoreDestination, pending_lane: PendingLane, id_prefix: str) -> None:
        """Make the state of an open lane.

        destination: the destination that its consumers take from, or its topic.
        """
        memory, parts = destination.memory, destination.parts.lane_state_parts
        counts, syncs = parts.delivery_count_table, parts.syncs_always
        super().__init__(pending_lane, id_prefix, memory, parts.message_store, counts, syncs=syncs)
        self.destination = destination
        # Each arrival that no sole list takes calls it.
        self.target_area = destination.parts.target_area
        # The only list of this lane, if there is just one, without a selector and with the ordinary distribution.
        # Arrivals take the fast path to it.
        self.sole_list: TargetList | None = None
        # For a subscription with a selector: messages that do not match and are to be acknowledged for it.
        self.unmatched: SequenceSet | None = None
        self.lane_state_parts = parts
        # How often messages were removed from the middle. A load that began before a removal must check again.
        self.purge_count = 0
        # Whether messages have, or had, a delay or an expiry; see core/redelivery/timed_lanes.py.
        self.is_timed = False
        # The cache for messages for which a list has no room.
        self.pending_cache: LanePendingCache = memory.pending_cache
        # The caches that may hold a message that is in no list.
        self.caches: tuple[LaneCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        # Handles messages that must leave RAM.
        self.pager = READ_AGAIN
        # Charge of the lane; 0 once it is gone.
        self.charged_bytes = self.state_bytes
        destination.parts.destination_memory.charge(self.charged_bytes)

    @property
    def destination_name(self) -> str:
        """The name of the destination that the messages were sent to."""
        return self.destination.name

    @property
    def distribution(self) -> Distribution:
        """What decides which consumer gets which of its messages."""
        return self.destination.distribution

    def selector_group_lists(self) -> list[TargetList]:
        """Return the list of each selector group over this lane. Lists of a single consumer are filled from these."""
        lists: list[TargetList] = []
        for selector_group in self.destination.selector_groups.values():
            for target in selector_group.lists:
                if target.lane is self:
                    lists.append(target)  # no comprehension: machine code would ask for an iterator object each time
        return lists

    def use_sole_list(self, target: TargetList | None) -> None:
        """Let arrivals take the fast path to this list from now on. None: there is no such list."""
        self.sole_list = target
        if target is not None:
            target.own_direct()

    def release_charge(self) -> None:
        """Release the charge of the lane, which has ended. A second call does nothing."""
        self.destination.parts.destination_memory.release(self.charged_bytes)
        self.charged_bytes = 0

    def receiving_lanes(self) -> Iterator[LaneState]:
        """Yield every lane whose consumers get the messages that arrive here, this lane first."""
        yield self

    def all_receiving_lanes(self) -> list[LaneState]:
        """Return the receiving lanes, and the lanes of durable subscriptions that nobody has read since the open."""
        return list(self.receiving_lanes())

    def acknowledge_parked(self, first: int, last: int) -> None:
        """Count a run as acknowledged that a transaction held and has committed.

        The distribution and the limits of the lane are told now. Requires: the run is removed.
        """
        messages = last - first + 1
        self.acknowledged += messages
        self.parked.remove(first, last)
        self.distribution.settled(self, first, messages)
        if self.delivery_counts is not None:
            self.trim_delivery_counts(first, last)
        self.destination.on_room_freed()

    def count_as_dead_letters(self, messages: int) -> None:
        """Count so many messages as dead letters that were counted as acknowledged."""
        self.acknowledged -= messages
        self.destination.dead_lettered += messages

    @property
    def expiry_lane_state(self) -> LaneState:
        """The lane from which expired messages of this one are removed."""
        return self

    def arrive_unloaded(self, end: int) -> None:
        """Let everything before `end` arrive. New messages among them are not in RAM, or not due yet."""
        self.target_area.offer_unloaded(self, end)

    def on_loaded(self, load: Load[TargetList]) -> None:
        """Note that a load was put into its list, because others may need the same messages.

        put_into_list, in loading/installing.py, calls it. Default: no other list needs them.
        """

    # ------------------------------------------------------------------ reading, for deliveries, lists and loads

    def read_one(self, sequence: int) -> StoredMessage:
        """Read one pending message into the caller's own memory. Requires: no lock."""
        return self.lane_state_parts.reader.read_one(self, sequence)

    def read_headers(self, sequence: int) -> StoredMessage:
        """Read one pending message, in pieces, with an empty body if it is not in RAM. Requires: no lock."""
        return self.lane_state_parts.reader.read_headers(self, sequence)

    def read_error(self, problem: str) -> StoreFailed:
        """Return the error for a message that can't be read."""
        return StoreFailed(f"a message of {self.destination_name!r} can't be read ({problem})")

    def drop_copies(self, sequence: int) -> None:
        """Drop the cached copies of a message, because whoever has it needs no copy."""
        for cache in self.caches:
            cache.take(self.pending_lane.number, sequence)

    @abstractmethod
    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return the headers by which a scan for a selector may skip blocks: all that the selector names, or none."""

    @abstractmethod
    def next_candidate(self, selector: Selector, names: frozenset[str], sequence: int) -> Candidate | None:
        """Return where the next message may be that a selector matches. None: there is none.

        names: the `skip_names` of the selector. Without names every message is a candidate, and no survey is made.
        O(blocks); it reads none of them.
        """

    @abstractmethod
    def note_survey(self, survey: BlockSurvey) -> None:
        """Take in the headers of examined messages."""

    @abstractmethod
    def make_survey_room(self) -> None:
        """Make room for what `note_survey` takes in next, if there is none. Requires: no lock."""

    def note_unmatched(self, first: int, end: int) -> None:
        """Note that no message matches from a sequence up to another one, exclusively.

        A subscription with a selector acknowledges them; for all other lanes this does nothing.
        """
        if self.unmatched is not None:
            self.unmatched.add(first, end - 1)

    @property
    def list_bytes_max(self) -> int:
        """Most bytes that a list over this lane should hold."""
        return UNLIMITED

    @property
    def reads_for_others(self) -> bool:
        """Whether messages that are read for one of its lists will soon be needed by others."""
        return False

    def load_room(self, list_bytes: int, first: int) -> int:
        """Return how many bytes a load from this sequence on may bring for a list that has room for so many.

        LoadChooser asks for each load. Default: as many as the list has room for.
        """
        return list_bytes

    def waits_for_takes(self, sequence: int, room_bytes: int) -> bool:
        """Return whether the first message from this sequence on stays where it is until somebody asks for it.

        room_bytes: what its list has room for. Default: the loader puts it into the list ahead of that.
        """
        return False

    @property
    def is_recorded(self) -> bool:
        """Whether acks of this lane are in the journal."""
        return self.is_persistent

    def record_attempts(self, runs: Sequence[CountedRun]) -> None:
        """Write the delivery counts of these runs to the journal."""
        self.lane_state_parts.return_counts.count(self.pending_lane.number, runs)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def record_returns(self, runs: Sequence[ReturnedRun], now_ms: int) -> None:
        """Record the attempts of runs, some of which are offered again later."""
        self.lane_state_parts.return_counts.put(self.pending_lane.number, runs, now_ms)
        self.delivery_counts = self.delivery_count_table.find(self.pending_lane.number)

    def count_hand_outs(self, deliveries: Sequence[Delivery]) -> None:
        """Count deliveries of a lane to which a message has come back before.

        Counts of messages that came back, or that a killed process may have had, are written now. Otherwise a message
        that kills this process as well would do so for ever. Requires: `delivery_counts` is not None.
        """
        known = self.delivery_counts
        assert known is not None
        counted = [delivery for delivery in deliveries if known.find(delivery.sequence) is not None]
        if counted:
            self.record_attempts(counted_runs(counted))

    @abstractmethod
    def lose_unreadable(self, sequence: int) -> None:
        """Give up a message that can't be read and that a list has passed."""

    @abstractmethod
    def quarantine(self, sequence: int) -> bool:
        """Set aside a message that can't be read, if it is in the journal; return whether it was. Requires: no lock."""

    @abstractmethod
    def on_ended(self) -> None:
        """Let go of all messages: the destination or subscription has ended."""


class Distribution(
    Dispatcher[CoreConsumer],
    ConsumerCoordinator["CoreDestination", SelectorGroup, CoreConsumer],
    LaneListener[LaneState],
    Explainer[LaneState, CoreConsumer],
):
    """Decides which consumer of a queue gets which message. The package dispatch/distribution has all of them."""

    def make_selector_group(self, destination: CoreDestination, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group of the queue."""
        return destination.make_selector_group(selector)


CoreTargetArea: TypeAlias = AbstractTargetArea[LaneState, TargetList]
"""The TargetArea, as lanes and lists know it."""
CoreTargetLists: TypeAlias = AbstractTargetLists[LaneState, TargetList]
"""The TargetLists, as destinations and their lanes know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationStateParts:
    """The parts of an open store with which each DestinationState, and each LaneState, is made."""

    target_area: CoreTargetArea
    target_lists: CoreTargetLists
    lane_state_parts: LaneStateParts
    distribution_chooser: AbstractDistributionChooser[CoreDestination, Distribution]
    """Chooses the distribution of each destination."""
    monitor: Monitor
    memories: MemoryRegistry
    """The memory of each destination's messages."""
    destination_memory: Overdraft
    """Pays for open destinations and their lanes."""


class CoreDestination(DestinationLifecycle):
    """A destination as its lanes and consumers know it: who takes from it, and by which distribution.

    DestinationState, in destinations/destination_state.py, has the lanes. The state lock guards it.
    """

    __slots__ = ("parts", "monitor", "selector_groups", "distribution", "exclusive")

    has_lists: ClassVar[bool] = True
    """Whether consumers take from its own lanes."""
    keeps_message_groups: ClassVar[bool] = True
    """Whether all messages of one group go to one consumer."""
    spans_others: ClassVar[bool] = False
    """Whether its consumer takes from the lanes of other destinations; see `sources`."""

    def __init__(self, parts: DestinationStateParts, number: int, name: str) -> None:
        super().__init__(number, name)
        self.parts = parts
        # Each arrival that may wake somebody asks for it.
        self.monitor = parts.monitor
        self.selector_groups: dict[str | None, SelectorGroup] = {}
        # Decides which consumer gets which message.
        self.distribution: Distribution = parts.distribution_chooser.initial(self)
        # The one consumer that gets everything. None: all consumers may take.
        self.exclusive: CoreConsumer | None = None

    @property
    def memory(self) -> MessageMemory:
        """The memory to which its messages are charged. O(patterns) if a policy sets memory apart."""
        return self.parts.memories.of(self.name)

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        """Return a new selector group as the ordinary distribution uses it."""
        return SelectorGroup(selector)

    def all_selector_groups(self) -> tuple[SelectorGroup, ...]:
        """Return its selector groups, and those that its distribution has for single consumers. O(those)."""
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
        """Return whether a consumer gets nothing for now, even if there are messages."""
        is_excluded = self.exclusive is not None and self.exclusive is not consumer
        return self.is_paused or is_excluded or consumer.stage.is_draining

    def free_kept_for(self, consumer: CoreConsumer) -> None:
        """Free for others what is kept for a consumer that gets nothing: what it settles then frees its groups."""
        if not self.is_paused:
            self.distribution.revoke(consumer)

    @property
    def total_misses(self) -> int:
        """Number of deliveries that had to be loaded first."""
        return self.misses + sum(selector_group.misses for selector_group in self.all_selector_groups())

    def forget_selector_groups(self) -> None:
        """Forget its selector groups, whose lists over its lanes have ended."""
        self.selector_groups.clear()

    def consumers(self) -> Iterator[CoreConsumer]:
        return (consumer for selector_group in self.selector_groups.values() for consumer in selector_group.consumers)

    def close_consumers(self) -> None:
        """Close all consumers, because the queue or the store ends. O(consumers + in flight). Requires: the lock."""
        held: dict[AbstractConsumer, list[Delivery]] = {consumer: [] for consumer in self.consumers()}
        for lane in self.all_lanes():
            for delivery in lane.deliveries.values():
                held[delivery.consumer].append(delivery)
        for consumer, deliveries in held.items():
            consumer.close_with_destination(deliveries)

    def on_consumer_closed(self) -> None:
        """Act on the close of one of its consumers. Requires: the lock."""

    def catch_up(self) -> None:
        """Make the depth exact: a topic removes messages that no subscription needs only from time to time."""


def lane_of(delivery: Delivery) -> LaneState:
    """Return the lane from which a delivery was handed out."""
    lane = delivery.lane
    assert isinstance(lane, LaneState)
    return lane
