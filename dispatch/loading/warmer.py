"""CacheWarmer: fill the HeadQueueCache with the first messages of queues that no consumer reads yet.

The warmer works after an open with a backlog, after the last consumer of a queue has gone, and when memory is plentiful
again after the cache gave some back. It takes no memory from lists or other caches. Lanes take turns and share the room
that is left. Like a load of the eager loader, a load of the warmer is chosen and charged under the lock, read without
it, and installed under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...cache.accounting.budget import Budget, Holder
from ...cache.accounting.charge import charge_of_all, charge_of_size
from ...cache.messages.memory_registry import MemoryRegistry
from ...cache.messages.message_memory import MessageMemory
from ...store.environment.late_log import LateLogger
from ...store.journal.regions import Region
from ...store.numbering import BLOCK_MESSAGES, LANE_MASK, LANE_SHIFT
from ...store.stored_message import StoredMessage
from ..core.areas.load_requests import LoadRequests
from ..core.destinations.queue_state import QueueState
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import LaneState
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch.loader")

PLENTY_SHARE: Final = 0.5
"""Part of the cache's share, and of the memory that the fixed parts leave, which must be free to fill it again.

With less, the cache would give back at each turn what it has just read.
"""


@dataclass(slots=True)
class _HeadLoad:
    """A load of the first messages of a lane into the HeadQueueCache."""

    lane: LaneState
    next_sequence: int
    """The first sequence behind this load, at which the next load of the lane begins."""
    regions: list[Region]
    charge: int
    buffer_bytes: int
    recheck_count: int
    """The value of the lane's `recheck_count` when the load began."""


class CacheWarmer:
    """Fills the HeadQueueCache. `step` does one load and returns whether there was one to do."""

    def __init__(
        self,
        monitor: Monitor,
        watermarks: Watermarks,
        loads: LoadRequests,
        budget: Budget,
        memories: MemoryRegistry,
        reading: Holder,
        queues: Mapping[int, QueueState],
    ) -> None:
        """watermarks: says how much memory each part may have, which a resize changes.
        reading: pays for read buffers.
        queues: open queues by number.
        """
        self._monitor = monitor
        self._watermarks = watermarks
        self._loads = loads
        self._budget = budget
        self._memories = memories
        self._reading = reading
        self._queues = queues
        # Lanes whose head is to be filled, each with the sequence at which its next load begins. The first one is next.
        self._lanes: dict[LaneState, int] = {}
        # Memories whose cache has no room for the next message of a lane. Their lanes wait for `resume`.
        self._full_memories: set[MessageMemory] = set()
        # Charged to the cache for messages that are being read.
        self.loading_bytes = 0

    def begin(self, lane: LaneState) -> None:
        """Fill the head of a lane that is not whole in RAM, if its queue has no consumer. Requires: the lock.

        Lanes of non-persistent messages are left out, because their messages were spilled for want of memory.
        """
        queue = lane.destination
        if queue.selector_groups or not queue.is_open or not queue.has_lists or not lane.is_persistent:
            return
        lane.memory.head_queue_cache.stop(lane.pending_lane.number)
        self._lanes[lane] = 0
        self._loads.wake_loader()

    def forget(self, lane: LaneState) -> None:
        """Forget a lane whose queue is deleted or whose subscription has ended. Requires: the lock."""
        self._lanes.pop(lane, None)

    def resume(self) -> None:
        """If memory is plentiful, go on with lanes that wait for room, and with those whose head the cache gave back.

        O(lanes whose head is not whole), if it is. Requires: the lock.
        """
        if self._budget.free_bytes >= self._watermarks.shares.available_bytes * PLENTY_SHARE:
            for memory in self._memories.all:
                self._resume_in(memory)

    def _resume_in(self, memory: MessageMemory) -> None:
        """Go on with the lanes of one memory, if its cache has plenty of room."""
        cache = memory.head_queue_cache
        if cache.room_bytes < cache.share_bytes * PLENTY_SHARE:
            return
        for number in cache.stopped:
            queue = self._queues.get(number >> LANE_SHIFT)
            lane = queue.lanes[number & LANE_MASK] if queue is not None else None
            if lane is not None and lane not in self._lanes:
                self.begin(lane)
        if self._lanes:
            self._full_memories.discard(memory)
            self._loads.wake_loader()

    def step(self) -> bool:
        """Do one load; return whether there was one to do. Requires: no lock."""
        if not self._lanes:
            return False
        chosen: list[_HeadLoad] = []
        messages: list[StoredMessage] = []
        try:
            with self._monitor.lock, self._monitor.all_or_broken:
                load = self._next()
                if load is not None:
                    chosen.append(load)
            if load is None:
                return False
            messages, unreadable = load.lane.backing_store.read(load.regions)
        finally:
            for begun in chosen:
                with self._monitor.lock, self._monitor.all_or_broken:
                    self._install(begun, messages)
        if unreadable:
            logger.debug(
                "%d messages of a head can't be read: the consumer's load will tell",
                len(unreadable),
                event="head_unreadable",
            )
        return True

    def _next(self) -> _HeadLoad | None:
        """Begin the load of the next lane that has something to load and whose memory has room. None: no lane has."""
        lanes = self._lanes
        while (lane := next((lane for lane in lanes if lane.memory not in self._full_memories), None)) is not None:
            sequence, memory, cache = lanes[lane], lane.memory, lane.memory.head_queue_cache
            room = max(min(cache.room_bytes, memory.free_bytes), 0)
            if lane.destination.selector_groups or not lane.destination.is_open:
                del lanes[lane]
                continue
            runs, charge, following = self._choose(lane, sequence, room // len(lanes))
            if not runs and following >= lane.published_end:
                del lanes[lane]
                cache.reopen(lane.pending_lane.number)
                continue
            if not runs and following > sequence:
                lanes[lane] = following
                continue
            load = self._begin_load(lane, runs, charge, following) if runs and charge <= room else None
            if load is not None:
                return load
            self._full_memories.add(memory)
        return None

    def _begin_load(
        self, lane: LaneState, runs: list[tuple[int, int]], charge: int, following: int
    ) -> _HeadLoad | None:
        """Charge for a load of runs, and put its lane behind the others. None: memory has no room for the load."""
        regions = lane.backing_store.plan(lane.pending_lane, runs)
        buffer_bytes = max(region.length for region in regions)
        if not self._reading.reserve(buffer_bytes):
            return None
        if not lane.memory.head_queue_cache.holder.reserve(charge):
            self._reading.release(buffer_bytes)
            return None
        del self._lanes[lane]
        self._lanes[lane] = following
        self.loading_bytes = charge
        return _HeadLoad(lane, following, regions, charge, buffer_bytes, lane.recheck_count)

    def _choose(self, lane: LaneState, begin: int, room: int) -> tuple[list[tuple[int, int]], int, int]:
        """Choose the next messages that no cache has: at least one, and in one block.

        Return their runs, their charge, and the sequence behind them. Messages that are too large for RAM are left out,
        because a list would not hold their bodies either.
        """
        shares = self._watermarks.shares
        pending_lane = lane.pending_lane
        caches = [cache for cache in lane.caches if cache.has(pending_lane.number)]
        room = min(room, shares.load_bytes_max)
        runs: list[tuple[int, int]] = []
        total = 0
        while begin < lane.published_end:
            pending = pending_lane.pending_run(begin, BLOCK_MESSAGES)
            if pending is None or pending[0] >= lane.published_end:
                return runs, total, lane.published_end
            if runs and pending[0] // BLOCK_MESSAGES != runs[0][0] // BLOCK_MESSAGES:
                break
            first, last = pending[0], min(pending[1], lane.published_end - 1)
            for sequence, length in enumerate(pending_lane.lengths(first, last), first):
                begin = sequence + 1
                if length > shares.large_message_bytes or any(
                    cache.peek(pending_lane.number, sequence) for cache in caches
                ):
                    continue
                charge = charge_of_size(length)
                if runs and total + charge > room:
                    return runs, total, sequence
                total += charge
                if runs and runs[-1][1] == sequence - 1:
                    runs[-1] = (runs[-1][0], sequence)
                else:
                    runs.append((sequence, sequence))
        return runs, total, begin

    def _install(self, load: _HeadLoad, messages: list[StoredMessage]) -> None:
        """Put the messages that were read into the cache, unless a consumer has come meanwhile. Requires: the lock."""
        lane, cache = load.lane, load.lane.memory.head_queue_cache
        self._reading.release(load.buffer_bytes)
        cache.holder.release(load.charge)
        self.loading_bytes = 0
        if lane.destination.selector_groups or not lane.destination.is_open or lane not in self._lanes:
            return
        for message in messages:
            if load.recheck_count == lane.recheck_count or lane.pending_lane.is_pending(message[0]):
                if not cache.fill(lane.pending_lane.number, message):
                    self._lanes[lane] = min(self._lanes[lane], message[0])
                    self._full_memories.add(lane.memory)
                    return
        assert charge_of_all(messages) <= load.charge
