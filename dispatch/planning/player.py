"""TracePlayer: plays recorded traffic again, under another memory limit.

The library itself decides: the budget and its shares, the lists, the caches and the loader are the ones that run in a
store. The journal is replaced by the lengths of its messages, and bodies by shared bytes of those lengths. So a message
costs microseconds, and a message in RAM costs only its objects. The loader is assumed to be in time: after each event
it does all that it has to do. A replay is deterministic, because it uses no clock, no disk and no thread.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, cast

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget, Holder
from ...cache.accounting.charge import charge_of_all, charge_of_size
from ...cache.accounting.overdraft import Overdraft
from ...cache.accounting.shares import Shares
from ...cache.messages.memory_registry import MemoryRegistry
from ...cache.spill.overflow import Overflow
from ...store.disk.disk import Disk
from ...store.environment.account import Unlimited
from ...store.environment.clock import SteadyClock, SystemClock
from ...store.format.places import Extent, SingleRecords
from ...store.format.return_record import ReturnedRun
from ...store.format.state_record import CountedRun
from ...store.format.trace import (
    ACK,
    ARRIVE,
    GONE,
    LIST,
    OFFER,
    RELEASED,
    TAKE,
    TICK,
    UNLIST,
    WAITING,
    Event,
)
from ...store.index.delivery_counts import DeliveryCountTable
from ...store.index.destination_lane import DestinationLane
from ...store.index.fingerprint import BlockSurvey
from ...store.index.fingerprints import Candidate, Question
from ...store.index.index import Index
from ...store.journal.regions import REGION_BYTES_MAX, Judge, ReadableFile, Region
from ...store.message import HeaderValue
from ...store.numbering import BLOCK_MASK, UNLIMITED
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..config.memory_plan import (
    ATTEMPTS_BYTES,
    CONSUMERS_BYTES,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
)
from ..config.policies import Policies
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.areas.observer import ListEvents, TrafficObserver
from ..core.areas.target_area import TargetArea
from ..core.areas.target_lists import TargetLists
from ..core.destinations.queue_state import QueueState
from ..core.memory.memory_owners import MemoryOwners
from ..core.memory.memory_rule import MemoryRule
from ..core.memory.message_group_memory import MessageGroupMemory
from ..core.memory.watermarks import ListObserver, Watermarks
from ..core.model.activity import Activity
from ..core.model.consumer_stage import TAKING
from ..core.model.delivery import Delivery, LaneMessages, is_lazy, message_of
from ..core.model.destination import (
    CoreConsumer,
    CoreDestination,
    DestinationStateParts,
    LaneState,
    SelectorGroup,
    TargetList,
)
from ..core.model.distribution_roles import NO_DISPATCH
from ..core.model.lane_reader import LaneReader
from ..core.model.lane_storage import LaneStateParts
from ..core.model.matching import NO_NAMES
from ..core.model.persistent_lane_state import PersistentLaneState
from ..core.monitor import Monitor
from ..distribution.distribution_chooser import DistributionChooser
from ..distribution.distribution_parts import DistributionParts
from ..loading.eager import EagerLoader
from ..selectors.selector import Selector, compile_selector

ARRIVED: Final = 0
READ: Final = 1
"""Stands in for a played message's timestamp: ARRIVED or READ says where its body came from."""
SLICE_MESSAGES: Final = 256
TEMP_BYTES: Final = 1 << 30
"""The limit of a tmp-storage that stays empty, because all messages are played as persistent ones."""
LOADS_IN_VAIN_MAX: Final = 64
"""Loads for one take, besides one for each pending message. After them its message has no room."""


class _EmptyFile:
    """The file that a played read of the journal names. A played journal has only lengths, so it is empty."""

    def read(self, offset: int, length: int) -> bytes:
        raise AssertionError("a played message has no bytes in the journal")


_NOTHING: Final[ReadableFile] = _EmptyFile()
_NOT_ASKED: Final = "the trace says what becomes of deliveries"


class _NoDisk:
    """The disk of a tmp-storage that stays empty. Its directory is listed, and no other call comes."""

    def list(self, directory: str) -> list[str]:
        return []


def _no_block(lane_number: int, block: int) -> bytes:
    raise AssertionError("a played message is in no index")


class PlayedTimes:
    """The LaneDueTimes of a replay. The trace tells when messages were offered, so no message is due by itself."""

    def take_due(self, lane: Any, now_ms: int, most_blocks: int) -> list[tuple[int, int]]:
        return []

    def expired_blocks(self, lane: Any, now_ms: int) -> list[int]:
        return []

    def expired(self, lane: Any, block_number: int, now_ms: int) -> Iterator[tuple[int, int]]:
        return iter(())

    def refresh_expiry(self, lane: Any) -> None:
        """Do nothing."""


class PlayedReturns:
    """The ReturnCounts of a replay. The trace tells what was offered again, and nobody asks how often."""

    def count(self, lane_number: int, runs: Sequence[CountedRun]) -> None:
        """Do nothing."""

    def put(self, lane_number: int, runs: Sequence[ReturnedRun], now_ms: int = 0) -> None:
        """Do nothing."""


class PlayedStore:
    """The PersistentStore of a replay: knows the lengths of messages and makes messages of them."""

    def __init__(self) -> None:
        self.due_times = PlayedTimes()
        # The lane of an index that stays empty. It stands for the places of all played messages, which have none.
        self.empty_lane = Index(account=Unlimited(), cache_bytes=0, read_block=_no_block).ensure_lane(1, 0)
        self._bodies: dict[int, bytes] = {}
        self.reads = 0
        self.read_messages = 0
        # Charge of the messages that were read.
        self.read_bytes = 0

    def message(self, sequence: int, length: int, origin: int) -> StoredMessage:
        """Return a message. Messages of one length share a body, so a limit of gigabytes is played in megabytes."""
        body = self._bodies.get(length)
        if body is None:
            body = self._bodies[length] = bytes(length)
        return sequence, b"", body, origin

    def acknowledge(self, lane: Any, first: int, last: int) -> int:
        removed: int = lane.remove(first, last)[0]
        return removed

    def acknowledge_one(self, lane: Any, sequence: int) -> int:
        removed: int = lane.remove_one(sequence)[0]
        return removed

    def plan(self, lane: Any, runs: Sequence[tuple[int, int]]) -> list[Region]:
        regions: list[Region] = []
        parts: list[Extent | SingleRecords] = []
        region_bytes = 0
        for first, last in runs:
            part = SingleRecords(0, first, array("I"), array("I"))
            for sequence, length in enumerate(lane.lengths(first, last), first):
                if region_bytes and region_bytes + length > REGION_BYTES_MAX:
                    regions.append(Region(_NOTHING, 0, 0, 0, region_bytes, [*parts, part]))
                    part, parts, region_bytes = SingleRecords(0, sequence, array("I"), array("I")), [], 0
                part.lengths.append(length)
                region_bytes += length
            parts.append(part)
        return [*regions, Region(_NOTHING, 0, 0, 0, region_bytes, parts)] if parts else regions

    def read_headers(
        self, region: Region, pay: Callable[[int], None]
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        """Read as `read` does, because no list of a replay has a selector."""
        return self.read((region,))

    def read(
        self, regions: Sequence[Region], judge: Judge | None = None
    ) -> tuple[list[StoredMessage], list[tuple[int, str]]]:
        self.reads += len(regions)
        messages = [
            self.message(sequence, length, READ)
            for region in regions
            for part in region.extents
            if isinstance(part, SingleRecords)
            for sequence, length in enumerate(part.lengths, part.first_sequence)
        ]
        self.read_messages += len(messages)
        self.read_bytes += charge_of_all(messages)
        return messages, []

    def raise_if_closed(self) -> None:
        """Do nothing: a played store is never closed."""

    def next_candidate(self, lane: Any, names: frozenset[str], sequence: int, may_match: Question) -> Candidate:
        """Return the message itself, because a trace has no headers by which it could be skipped."""
        return Candidate(sequence, NO_NAMES)

    def note_survey(self, lane: Any, survey: BlockSurvey) -> None:
        """Do nothing: a trace has no headers."""

    def make_fingerprint_room(self) -> None:
        """Do nothing: a trace leaves no fingerprints."""

    def quarantine(self, lane: Any, sequence: int) -> bool:
        """Return False: every played message can be read."""
        return False


class PlayedLaneState(PersistentLaneState):
    """Dispatch's state of a played lane. Its messages have lengths and no places, as in tmp-storage: no index has them.

    It is never closed, so it is not charged for that.
    """

    __slots__ = ()
    state_bytes = 0

    def skip_names(self, selector: Selector | None) -> frozenset[str]:
        """Return no names, because a trace has no headers."""
        return NO_NAMES


class LaneReplay:
    """The replay of one lane of the trace: its state, the store's lane, and the sequence at which it begins."""

    __slots__ = ("lane", "pending_lane", "base", "is_new")

    def __init__(self, parts: DestinationStateParts, empty_lane: DestinationLane, lane_number: int) -> None:
        """Make a lane without messages. empty_lane: as in PlayedStore."""
        self.base = 0
        # Whether the lane has only what it had when the store was opened.
        self.is_new = True
        self.pending_lane = NonPersistentLane(Unlimited(), lane_number, 0)
        queue = QueueState(parts, lane_number, str(lane_number))
        self.lane = PlayedLaneState(queue, empty_lane, "", self.pending_lane)
        queue.put_lane(0, self.lane)

    def grow(self, first: int, lengths: Iterable[int]) -> range:
        """Store messages of these lengths behind holes up to `first`, and return their sequences in the lane."""
        pending_lane = self.pending_lane
        if not pending_lane.next_sequence:
            self.base = first
        begin = max(first - self.base, pending_lane.next_sequence)
        # Blocks of only holes are not made.
        pending_lane.next_sequence = max(pending_lane.next_sequence, begin & ~BLOCK_MASK)
        holes = pending_lane.next_sequence
        while pending_lane.next_sequence < begin:
            pending_lane.add(0)
        if holes < begin:
            pending_lane.remove(holes, begin - 1)
        for length in lengths:
            pending_lane.add(length)
        return range(begin, pending_lane.next_sequence)


class PlayedSelectorGroup(SelectorGroup):
    """A selector group that wants what it took in the trace, or everything if it has no selector."""

    __slots__ = ("taken", "replay")

    def __init__(self, selector: Selector | None, taken: SequenceSet, replay: LaneReplay) -> None:
        super().__init__(selector)
        self.taken = taken
        self.replay = replay

    def wants(self, lane: LaneMessages, message: StoredMessage, values: dict[str, HeaderValue] | None = None) -> bool:
        return self.selector is None or message[0] + self.replay.base in self.taken


class PlayedConsumer(CoreConsumer):
    """The CoreConsumer of a replay. The trace tells what it takes and settles, so it never waits."""

    def __init__(self, destination: CoreDestination, selector_group: SelectorGroup) -> None:
        self.destination = destination
        self.selector_group = selector_group
        self.stage = TAKING
        self.dispatcher = NO_DISPATCH
        self.activity = Activity(None, None, 0.0)
        self.delivered = self.in_flight = 0
        self.priority = self.prefetch_limit = 0
        self.is_exclusive = False
        self.is_polling = True
        self.ack_deadline_seconds = None

    @property
    def credit(self) -> int:
        """Unlimited, because the trace says how much it takes."""
        return UNLIMITED

    @property
    def demand(self) -> int:
        """As much as it may have."""
        return UNLIMITED

    def allowance(self, most: int) -> int:
        """Return `most`, because the trace says how much it takes."""
        return most

    @property
    def charge_bytes(self) -> int:
        """Nothing, because the plan leaves the cost of consumers out."""
        return 0

    @property
    def is_waiting(self) -> bool:
        """Whether it waits, which a replay never does."""
        return False

    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take from another selector group from now on."""
        self.selector_group = selector_group

    def held_in_transactions(self) -> list[Delivery]:
        """Return nothing, because a trace has no transactions."""
        return []

    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Do nothing: the trace tells when it takes."""

    def resume_if_credit(self) -> None:
        """Do nothing: it never waits for credit."""

    def follow_destination(self) -> None:
        """Do nothing: there is only one way to take."""

    def wake_outside(self) -> None:
        """Do nothing: it never waits."""

    def close_with_destination(self, held: Sequence[Delivery]) -> None:
        """Do nothing: the trace tells the outcome of deliveries."""

    def disable_in_child(self) -> None:
        """Do nothing: a replay has no directory to which a forked child could write."""

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Any = None) -> None:
        raise AssertionError(_NOT_ASKED)

    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        raise AssertionError(_NOT_ASKED)

    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        raise AssertionError(_NOT_ASKED)

    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        raise AssertionError(_NOT_ASKED)

    def reject(self, deliveries: Delivery | Sequence[Delivery], reason: str = "", *, transaction: Any = None) -> None:
        raise AssertionError(_NOT_ASKED)

    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        raise AssertionError(_NOT_ASKED)


class PlayedAreas:
    """Areas without a store: their lanes are those of a PlayedStore, and they divide memory as an open store does."""

    def __init__(
        self,
        monitor: Monitor,
        memory: MemoryOwners,
        shares: Shares,
        loads: LoadRequests,
        now_ms: Callable[[], int],
        store: PlayedStore,
        reading: Holder,
    ) -> None:
        """Make them for one memory. now_ms: the store's time. reading: pays for what lanes read."""
        events, traffic = ListEvents(), TrafficObserver()  # reads for the HeadQueueCache are no hits
        self.dispatch_area = DispatchArea(memory, loads, now_ms, events)
        self.watermarks = Watermarks(
            memory,
            shares,
            lambda watermarks: ListObserver(),
            request_load=loads.request,
            bound_in_flight=self.dispatch_area.bound_in_flight,
            retry_waiters=self.dispatch_area.retry_waiters,
            measures=traffic.measures,
        )
        self.target_area = TargetArea(monitor, loads, self.dispatch_area, traffic)
        self.target_lists = TargetLists(memory, self.watermarks, loads, self.dispatch_area, events, traffic)
        distributions = DistributionParts(
            target_area=self.target_area,
            target_lists=self.target_lists,
            dispatch_area=self.dispatch_area,
            loads=loads,
            consumer_memory=memory.consumer_memory,
            message_group_memory=memory.message_group_memory,
        )
        self.destination_state_parts = DestinationStateParts(
            target_area=self.target_area,
            target_lists=self.target_lists,
            distribution_chooser=DistributionChooser(Policies({}), distributions),
            monitor=monitor,
            memories=memory.memories,
            destination_memory=memory.destination_memory,
            lane_state_parts=LaneStateParts(
                message_store=store,
                delivery_count_table=DeliveryCountTable(),
                return_counts=PlayedReturns(),
                reader=LaneReader(monitor, store, Overdraft(reading)),
                syncs_always=False,
            ),
        )


class TracePlayer:
    """Plays the events of a trace, which must come in order, and counts deliveries, hits and reads."""

    def __init__(
        self, shares: Shares, wanted: dict[int, SequenceSet], memory_rule: MemoryRule, recording_bytes: int = 0
    ) -> None:
        """Make a player under these shares of memory.

        wanted: by the number of a list that has a selector, what it takes in this trace.
        memory_rule: decides about memory.
        recording_bytes: what a store that records holds for that, or 0 if the store that is asked about does not
            record.
        """
        self.limit_bytes = shares.limit_bytes
        self.deliveries = 0
        self.hits = 0
        # Deliveries in another place than in the trace.
        self.strays = 0
        # Deliveries for which this limit has no room beside what the trace has in flight then. They are no hits.
        self.held_back = 0
        # Takes that found nothing in RAM and had to wait for a read.
        self.waits = 0
        # Charge of the messages that were handed out without a body, which is read when the body is first looked at.
        self.lazy_bytes = 0
        self.store = PlayedStore()
        self.monitor = Monitor(SystemClock())
        self.lock = self.monitor.lock
        self.budget = Budget(shares.limit_bytes)
        reading = _hold_fixed_parts(self.budget, shares, recording_bytes)
        self.loads, steady = LoadRequests(_do_nothing, None), SteadyClock(lambda: 0, lambda: 0.0)
        memory = _make_memory(self.budget, shares, memory_rule)
        areas = PlayedAreas(self.monitor, memory, shares, self.loads, steady.now_ms, self.store, reading)
        self.dispatch_area, self.target_area = areas.dispatch_area, areas.target_area
        self.watermarks, self._target_lists = areas.watermarks, areas.target_lists
        self.destination_state_parts = areas.destination_state_parts
        self.loader = EagerLoader(
            self.monitor,
            self._target_lists,
            self.watermarks,
            self.dispatch_area,
            self.loads,
            memory.overflow.account,
            reading,
        )
        self._wanted = wanted
        self._milliseconds = 0
        self._replays: dict[int, LaneReplay] = {}
        self._lists: dict[int, tuple[TargetList, PlayedConsumer]] = {}
        self._play = {
            TICK: self._tick,
            WAITING: self._wait,
            ARRIVE: self._arrive,
            LIST: self._open,
            UNLIST: self._close,
            TAKE: self._take,
            ACK: self._acknowledge,
            RELEASED: self._release,
            OFFER: self._reoffer,
            GONE: self._forget,
        }

    @property
    def read_back_bytes(self) -> int:
        """Charge of what was read back, and of the bodies that are read only when they are looked at."""
        return self.store.read_bytes + self.lazy_bytes

    def play(self, event: Event) -> None:
        """Play one event, then do all the loader's work."""
        kind, lane, first, count, extra = event
        self._play[kind](lane, first, count, extra)
        if self.loads.running_low:
            while self.loader.step():
                pass

    def _replay(self, lane_number: int) -> LaneReplay:
        replay = self._replays.get(lane_number)
        if replay is None:
            parts, empty_lane = self.destination_state_parts, self.store.empty_lane
            replay = self._replays[lane_number] = LaneReplay(parts, empty_lane, lane_number)
        return replay

    # ------------------------------------------------------------------ arrivals

    def _tick(self, lane_number: int, first: int, count: int, extra: int) -> None:
        seconds = (first - self._milliseconds) / 1000
        self._milliseconds = first
        if seconds > 0:
            self.watermarks.measure(seconds)

    def _wait(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        mean_bytes = extra // max(count, 1)
        sequences = replay.grow(first, (mean_bytes for _ in range(count)))
        if replay.is_new:
            replay.lane.published_end = sequences.stop  # it was there before the store was opened
        else:
            self.target_area.publish(replay.lane, sequences)

    def _arrive(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        replay.is_new = False
        sequences = replay.grow(first, (extra for _ in range(count)))
        message = self.store.message
        for begin in range(0, len(sequences), SLICE_MESSAGES):
            arrived = [message(sequence, extra, ARRIVED) for sequence in sequences[begin : begin + SLICE_MESSAGES]]
            self.target_area.publish(replay.lane, arrived)

    # ------------------------------------------------------------------ takes

    def _open(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay, target_lists = self._replay(lane_number), self._target_lists
        replay.is_new = False
        listed, has_selector = extra >> 1, extra & 1
        selector = compile_selector(f"list = {listed}") if has_selector else None
        selector_group = PlayedSelectorGroup(selector, self._wanted.get(listed, SequenceSet()), replay)
        replay.lane.destination.selector_groups[selector.text if selector is not None else None] = selector_group
        target_lists.add_list(replay.lane, selector_group)
        target_lists.update_sole_lists(replay.lane.destination)
        self._lists[listed] = (selector_group.lists[0], PlayedConsumer(replay.lane.destination, selector_group))

    def _close(self, lane_number: int, first: int, count: int, extra: int) -> None:
        target, _ = self._lists.pop(extra)
        self._target_lists.end_selector_group(target.lane.destination, target.selector_group)

    def _take(self, lane_number: int, first: int, count: int, extra: int) -> None:
        target, consumer = self._lists[extra]
        first -= self._replay(lane_number).base
        end = first + count
        loads_left = LOADS_IN_VAIN_MAX + target.lane.pending_lane.pending_messages
        while count > 0:
            deliveries = self.dispatch_area.dispatch(consumer, count, None)
            if not deliveries:
                load = self.loader.begin(target, is_needed=True)
                if load is None and not target.has_supply:
                    return
                if load is None or not loads_left:
                    self.deliveries += count
                    self.held_back += count
                    return
                loads_left -= 1
                self.waits += bool(load.regions)
                self.loader.finish(load)
                continue
            count -= len(deliveries)
            self.deliveries += len(deliveries)
            for delivery in deliveries:
                if is_lazy(delivery):
                    length = target.lane.pending_lane.lengths(delivery.sequence, delivery.sequence)[0]
                    self.lazy_bytes += charge_of_size(length)
                elif message_of(delivery)[3] == ARRIVED:
                    self.hits += 1
                if not first <= delivery.sequence < end:
                    self.strays += 1

    # ------------------------------------------------------------------ settling

    def _acknowledge(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        lane, first = replay.lane, first - replay.base
        in_flight = lane.deliveries
        settled = [in_flight[sequence] for sequence in range(first, first + count) if sequence in in_flight]
        replay.pending_lane.remove(first, first + count - 1)
        if settled:
            self._settle(lane, settled)
        if len(settled) < count:
            self._forget_run(lane, first, count)

    def _settle(self, lane: LaneState, deliveries: list[Delivery]) -> None:
        for consumer in {id(delivery.consumer): delivery.consumer for delivery in deliveries}.values():
            self.dispatch_area.settle_run(lane, [found for found in deliveries if found.consumer is consumer])

    def _release(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        for sequence in range(first - replay.base, first - replay.base + count):
            delivery = replay.lane.deliveries.get(sequence)
            if delivery is not None:
                self.dispatch_area.settle(delivery)

    def _reoffer(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        sequence = first - replay.base
        if sequence in replay.lane.deliveries:
            return
        if replay.pending_lane.is_pending(sequence):
            length = replay.pending_lane.lengths(sequence, sequence)[0]
            returned = self.store.message(sequence, length, ARRIVED) if extra else (sequence, b"", None, READ)
            self.target_area.reoffer_returned(replay.lane, returned)

    def _forget(self, lane_number: int, first: int, count: int, extra: int) -> None:
        replay = self._replay(lane_number)
        first -= replay.base
        replay.pending_lane.remove(first, first + count - 1)
        self._forget_run(replay.lane, first, count)

    def _forget_run(self, lane: LaneState, first: int, count: int) -> None:
        gone = SequenceSet()
        gone.add(first, first + count - 1)
        for sequence in [sequence for sequence in lane.deliveries if sequence in gone]:
            gone.remove(sequence, sequence)
        self.target_area.forget(lane, gone)


def _make_memory(budget: Budget, shares: Shares, memory_rule: MemoryRule) -> MemoryOwners:
    """Return the memory of a store that spills to no disk."""
    overflow = Overflow(
        cast(Disk, _NoDisk()),
        budget,
        limit_bytes=TEMP_BYTES,
        max_file_bytes=TEMP_BYTES,
        random_salt=lambda: 0,
        paid_buffer_bytes=0,
        make_room=lambda wanted_bytes: None,
    )
    return MemoryOwners(
        budget,
        MemoryRegistry(budget, shares.quotas, memory_rule.pending_cache, lambda name: None),
        overflow,
        memory_rule,
        destination_memory=Overdraft(budget.holder(holder_names.DESTINATIONS)),
        consumer_memory=Overdraft(budget.holders[holder_names.CONSUMERS]),
        message_group_memory=MessageGroupMemory(budget.holder(holder_names.GROUPS)),
    )


def _hold_fixed_parts(budget: Budget, shares: Shares, recording_bytes: int) -> Holder:
    """Charge what a store holds or guarantees before the first message, and return the holder of read buffers."""
    budget.holder(holder_names.INDEX, guaranteed_bytes=shares.index_guaranteed_bytes)
    budget.holder(holder_names.CONSUMERS, guaranteed_bytes=CONSUMERS_BYTES)
    budget.holder(holder_names.RELOCATION, guaranteed_bytes=RELOCATION_BYTES)
    budget.holder(holder_names.ATTEMPTS, guaranteed_bytes=ATTEMPTS_BYTES)
    fixed = {
        holder_names.METADATA_STORE: shares.metadata_bytes,
        holder_names.WRITE_BUFFERS: WRITE_BUFFER_BYTES,
        holder_names.TRACE: recording_bytes,
    }
    for name, charge in fixed.items():
        reserved = budget.holder(name).reserve(charge)
        assert reserved, "the smallest memory limit has room for the fixed parts"
    reading = budget.holder(holder_names.READ_BUFFERS, guaranteed_bytes=READ_BUFFER_BYTES)
    assert budget.free_bytes == shares.available_bytes - recording_bytes
    return reading


def _do_nothing() -> None:
    """Replace a callback."""
