"""TracePlayer: plays recorded traffic again, under another memory limit.

The library itself decides: the budget and its shares, the lists, the caches and the loader are the ones that run in a
store. A PlayedStore takes the place of the journal, so a message costs microseconds. A message in RAM costs only its
objects. The loader is assumed to be in time: after each event it does all that it has to do. A replay is deterministic,
because it uses no clock, no disk and no thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...cache.accounting.budget import Budget
from ...cache.accounting.charge import charge_of_size
from ...cache.accounting.shares import Shares
from ...store.environment.clock import SteadyClock, SystemClock
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
from ...store.structures.sequence_set import SequenceSet
from ..core.areas.consumer_trials import ConsumerTrials
from ..core.areas.load_requests import LoadRequests
from ..core.memory.memory_rule import MemoryRule
from ..core.model.delivery import Delivery, is_lazy, message_of
from ..core.model.destination import LaneState, TargetList
from ..core.monitor import Monitor
from ..loading.eager_loader import EagerLoader
from ..selectors.selector import compile_selector
from .played_areas import PlayedAreas
from .played_consumer import PlayedConsumer
from .played_lanes import PlayedLane, PlayedSelectorGroup
from .played_memory import hold_fixed_parts, make_memory
from .played_store import ARRIVED, READ, PlayedStore

SLICE_MESSAGES: Final = 256
LOADS_IN_VAIN_MAX: Final = 64
"""Loads for one take, besides one for each pending message. After them its message has no room."""

Play = Callable[[int, int, int, int], None]
"""Plays an event of one kind. It gets the other fields of the event: lane, first, count, extra."""


class TracePlayer:
    """Plays the events of a trace, which must come in order, and counts deliveries, hits and reads."""

    def __init__(
        self, shares: Shares, wanted: dict[int, SequenceSet], memory_rule: MemoryRule, recording_bytes: int = 0
    ) -> None:
        """Make a player under these shares of memory.

        wanted: by the number of a list that has a selector, the sequences that it takes in this trace.
        memory_rule: decides about memory.
        recording_bytes: the memory that recording takes in the store that is asked about; 0: it does not record.
        """
        self.limit_bytes = shares.limit_bytes
        self.deliveries = 0
        self.hits = 0
        # Deliveries in another place than in the trace.
        self.strays = 0
        # Deliveries for which the limit has no room beside the messages in flight at that time. They are no hits.
        self.held_back = 0
        # Takes that found nothing in RAM and had to wait for a read.
        self.waits = 0
        # Charge of the messages that were handed out without a body, which is read when the body is first looked at.
        self.lazy_bytes = 0
        self.store = PlayedStore()
        self.monitor = Monitor(SystemClock())
        self.lock = self.monitor.lock
        self.budget = Budget(shares.limit_bytes)
        reading = hold_fixed_parts(self.budget, shares, recording_bytes)
        self.loads, steady = LoadRequests(_do_nothing, ConsumerTrials(None)), SteadyClock(lambda: 0, lambda: 0.0)
        memory = make_memory(self.budget, shares, memory_rule)
        areas = PlayedAreas(self.monitor, memory, shares, self.loads, steady.now_ms, self.store, reading)
        self.dispatch_area, self.target_area = areas.dispatch_area, areas.target_area
        self.watermarks, self._list_registry = areas.watermarks, areas.list_registry
        self.destination_state_parts = areas.destination_state_parts
        self.loader = EagerLoader(
            self.monitor,
            self._list_registry,
            self.watermarks,
            self.watermarks.reclaim,
            self.dispatch_area,
            self.loads,
            memory.overflow.account,
            reading,
        )
        self._wanted = wanted
        self._milliseconds = 0
        self._played: dict[int, PlayedLane] = {}
        self._lists: dict[int, tuple[TargetList, PlayedConsumer]] = {}
        self._play = self._plays()

    def _plays(self) -> dict[int, Play]:
        """Return by kind of event the method that plays it."""
        return {
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

    def _played_lane(self, lane_number: int) -> PlayedLane:
        """Return the lane of a number, made if needed."""
        played = self._played.get(lane_number)
        if played is None:
            parts, empty_lane = self.destination_state_parts, self.store.empty_lane
            played = self._played[lane_number] = PlayedLane(parts, empty_lane, lane_number)
        return played

    # ------------------------------------------------------------------ arrivals

    def _tick(self, lane_number: int, first: int, count: int, extra: int) -> None:
        seconds = (first - self._milliseconds) / 1000
        self._milliseconds = first
        if seconds > 0:
            self.watermarks.measure(seconds)

    def _wait(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        mean_bytes = extra // max(count, 1)
        sequences = played.grow(first, (mean_bytes for _ in range(count)))
        if played.is_new:
            played.lane.published_end = sequences.stop  # it was there before the store was opened
        else:
            self.target_area.publish(played.lane, sequences)

    def _arrive(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        played.is_new = False
        sequences = played.grow(first, (extra for _ in range(count)))
        message = self.store.message
        for begin in range(0, len(sequences), SLICE_MESSAGES):
            arrived = [message(sequence, extra, ARRIVED) for sequence in sequences[begin : begin + SLICE_MESSAGES]]
            self.target_area.publish(played.lane, arrived)

    # ------------------------------------------------------------------ takes

    def _open(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played, list_registry = self._played_lane(lane_number), self._list_registry
        played.is_new = False
        listed, has_selector = extra >> 1, extra & 1
        selector = compile_selector(f"list = {listed}") if has_selector else None
        selector_group = PlayedSelectorGroup(selector, self._wanted.get(listed, SequenceSet()), played)
        played.lane.destination.selector_groups[selector.text if selector is not None else None] = selector_group
        list_registry.add_list(played.lane, selector_group)
        list_registry.update_sole_lists(played.lane.destination)
        self._lists[listed] = (selector_group.lists[0], PlayedConsumer(played.lane.destination, selector_group))

    def _close(self, lane_number: int, first: int, count: int, extra: int) -> None:
        target, _ = self._lists.pop(extra)
        self._list_registry.end_selector_group(target.lane.destination, target.selector_group)

    def _take(self, lane_number: int, first: int, count: int, extra: int) -> None:
        target, consumer = self._lists[extra]
        first -= self._played_lane(lane_number).base
        recorded = range(first, first + count)
        loads_left = LOADS_IN_VAIN_MAX + target.lane.pending_lane.pending_messages
        while count > 0:
            deliveries = self.dispatch_area.dispatch(consumer, count, None)
            if deliveries:
                count -= len(deliveries)
                self._count(target, deliveries, recorded)
                continue
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

    def _count(self, target: TargetList, deliveries: list[Delivery], recorded: range) -> None:
        """Count what was handed out. recorded: the sequences that the trace has for this take."""
        self.deliveries += len(deliveries)
        for delivery in deliveries:
            if is_lazy(delivery):
                length = target.lane.pending_lane.lengths(delivery.sequence, delivery.sequence)[0]
                self.lazy_bytes += charge_of_size(length)
            elif message_of(delivery)[3] == ARRIVED:
                self.hits += 1
            if delivery.sequence not in recorded:
                self.strays += 1

    # ------------------------------------------------------------------ settling

    def _acknowledge(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        lane, first = played.lane, first - played.base
        in_flight = lane.deliveries
        settled = [in_flight[sequence] for sequence in range(first, first + count) if sequence in in_flight]
        played.pending_lane.remove(first, first + count - 1)
        if settled:
            self._settle(lane, settled)
        if len(settled) < count:
            self._forget_run(lane, first, count)

    def _settle(self, lane: LaneState, deliveries: list[Delivery]) -> None:
        for consumer in {id(delivery.consumer): delivery.consumer for delivery in deliveries}.values():
            self.dispatch_area.settle_run(lane, [found for found in deliveries if found.consumer is consumer])

    def _release(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        for sequence in range(first - played.base, first - played.base + count):
            delivery = played.lane.deliveries.get(sequence)
            if delivery is not None:
                self.dispatch_area.settle(delivery)

    def _reoffer(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        sequence = first - played.base
        if sequence in played.lane.deliveries:
            return
        if played.pending_lane.is_pending(sequence):
            length = played.pending_lane.lengths(sequence, sequence)[0]
            returned = self.store.message(sequence, length, ARRIVED) if extra else (sequence, b"", None, READ)
            self.target_area.reoffer_returned(played.lane, returned)

    def _forget(self, lane_number: int, first: int, count: int, extra: int) -> None:
        played = self._played_lane(lane_number)
        first -= played.base
        played.pending_lane.remove(first, first + count - 1)
        self._forget_run(played.lane, first, count)

    def _forget_run(self, lane: LaneState, first: int, count: int) -> None:
        gone = SequenceSet()
        gone.add(first, first + count - 1)
        for sequence in [sequence for sequence in lane.deliveries if sequence in gone]:
            gone.remove(sequence, sequence)
        self.target_area.forget(lane, gone)


def _do_nothing() -> None:
    """Replace a callback."""
