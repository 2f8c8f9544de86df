"""The head loader: fills the HeadQueueCache with the heads of queues that nobody reads yet.

It works when a store was opened with a backlog, when the last consumer of a
queue has gone, and when memory is plentiful again after the cache gave some
back. It never takes memory from anybody, and a queue gets as much as any
other before one gets more. A load is chosen and charged under the lock, read
without it and put in under it again, like those of the eager loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...cache.budget import Holder
from ...cache.charge import charges_bytes, content_charge_bytes
from ...store.journal.reading import Region, StoredMessage
from ...store.late_log import LateLogger
from ...store.numbering import BLOCK_MESSAGES, LANE_MASK, LANE_SHIFT
from ..core.lists import TargetArea
from ..core.model import LaneState, QueueArea

logger = LateLogger("forebay.dispatch.loader")

PLENTY_SHARE: Final = 0.5
"""So much of the cache's share, and of what the fixed parts leave, must be free before it fills again: else it would
read at each turn what it gives back at the next."""


@dataclass(slots=True)
class _HeadLoad:
    area: LaneState
    next_sequence: int
    """Where the head goes on behind it."""
    regions: list[Region]
    charge: int
    buffer_bytes: int
    purges: int
    """Of the lane, when the load began."""


class CacheWarmer:
    """`step` does one load and says whether there was one to do."""

    def __init__(self, target_area: TargetArea, reading: Holder, queues: Mapping[int, QueueArea]) -> None:
        """reading: pays for read buffers. queues: by their numbers."""
        self._area = target_area
        self._reading = reading
        self._queues = queues
        self._lanes: dict[LaneState, int] = {}
        """Lanes whose head is to be filled, whose turn is next first, and the sequence from which on."""
        self._is_full = False
        """The cache, or memory, has no room for the next one: the lanes wait for `look`."""
        self.loading_bytes = 0
        """Charged to the cache for messages that are being read."""

    def begin(self, area: LaneState) -> None:
        """Not all of this lane is in RAM: fill its head if it is a queue's that nobody reads. Requires: the lock.

        Not for what is not persistent: what RAM had no room for is in tmp-storage for that reason.
        """
        queue = area.queue
        if queue.consumer_groups or queue.is_deleted or not queue.is_queue or not area.is_persistent:
            return
        self._area.head_queue_cache.stop(area.lane.number)
        self._lanes[area] = 0
        self._area.loads.wake_loader()

    def forget(self, area: LaneState) -> None:
        """Forget a lane whose queue is deleted or whose subscription has ended. Requires: the lock."""
        self._lanes.pop(area, None)

    def look(self) -> None:
        """Go on where it ended for want of room, and where the cache gave back, if there is plenty now.

        O(lanes whose head is not whole), where there is plenty. Requires: the lock.
        """
        targets, cache = self._area, self._area.head_queue_cache
        is_plenty = targets.budget.free_bytes >= targets.shares.available_bytes * PLENTY_SHARE
        if not is_plenty or cache.room_bytes < targets.shares.head_queue_cache_bytes * PLENTY_SHARE:
            return
        for number in cache.stopped:
            queue = self._queues.get(number >> LANE_SHIFT)
            area = queue.areas[number & LANE_MASK] if queue is not None else None
            if area is not None and area not in self._lanes:
                self.begin(area)
        if self._lanes:
            self._is_full = False
            targets.loads.wake_loader()

    def step(self) -> bool:
        """Requires: no lock."""
        if self._is_full or not self._lanes:
            return False
        chosen: list[_HeadLoad] = []
        messages: list[StoredMessage] = []
        try:
            with self._area.lock, self._area.whole:
                load = self._next()
                if load is not None:
                    chosen.append(load)
            if load is None:
                return False
            messages, unreadable = load.area.store.read(load.regions)
        finally:
            for begun in chosen:
                with self._area.lock, self._area.whole:
                    self._install(begun, messages)
        if unreadable:
            logger.debug(
                "%d messages of a head can't be read: the consumer's load will tell",
                len(unreadable),
                event="head_unreadable",
            )
        return True

    def _next(self) -> _HeadLoad | None:
        lanes, cache = self._lanes, self._area.head_queue_cache
        while lanes:
            area, sequence = next(iter(lanes.items()))
            room = max(min(cache.room_bytes, self._area.budget.free_bytes), 0)
            if area.queue.consumer_groups or area.queue.is_deleted:
                del lanes[area]
                continue
            runs, content_bytes, following = self._choose(area, sequence, room // len(lanes))
            if not runs and following >= area.published:
                del lanes[area]
                cache.reopen(area.lane.number)
                continue
            if runs:
                regions = area.store.plan(area.lane, runs)
                buffer_bytes = max(region.length for region in regions)
                if content_bytes <= room and self._reading.reserve(buffer_bytes):
                    if cache.holder.reserve(content_bytes):
                        del lanes[area]
                        lanes[area] = following
                        self.loading_bytes = content_bytes
                        return _HeadLoad(area, following, regions, content_bytes, buffer_bytes, area.purges)
                    self._reading.release(buffer_bytes)
            elif following > sequence:
                lanes[area] = following
                continue
            self._is_full = True
            return None
        return None

    def _choose(self, area: LaneState, begin: int, room: int) -> tuple[list[tuple[int, int]], int, int]:
        """(runs, their charge, the sequence behind): the next that no cache has, at least one if there is one.

        Too large ones are left out: a consumer's load does not hold them either.
        """
        targets = self._area
        lane = area.lane
        caches = [cache for cache in area.caches if cache.has(lane.number)]
        room = min(room, targets.shares.load_bytes_max)
        runs: list[tuple[int, int]] = []
        total = 0
        while begin < area.published:
            found = lane.pending_run(begin, BLOCK_MESSAGES)
            if found is None or found[0] >= area.published:
                return runs, total, area.published
            if runs and found[0] // BLOCK_MESSAGES != runs[0][0] // BLOCK_MESSAGES:
                break
            first, last = found[0], min(found[1], area.published - 1)
            for sequence, length in enumerate(lane.lengths(first, last), first):
                begin = sequence + 1
                if length > targets.large_message_bytes or any(cache.peek(lane.number, sequence) for cache in caches):
                    continue
                charge = content_charge_bytes(length)
                if runs and total + charge > room:
                    return runs, total, sequence
                total += charge
                if runs and runs[-1][1] == sequence - 1:
                    runs[-1] = (runs[-1][0], sequence)
                else:
                    runs.append((sequence, sequence))
        return runs, total, begin

    def _install(self, load: _HeadLoad, messages: list[StoredMessage]) -> None:
        """Put what was read into the cache, unless somebody came who reads it himself. Requires: the lock."""
        area, cache = load.area, self._area.head_queue_cache
        self._reading.release(load.buffer_bytes)
        cache.holder.release(load.charge)
        self.loading_bytes = 0
        if area.queue.consumer_groups or area.queue.is_deleted or area not in self._lanes:
            return
        for message in messages:
            if load.purges == area.purges or area.lane.is_pending(message[0]):
                if not cache.fill(area.lane.number, message):
                    self._lanes[area] = min(self._lanes[area], message[0])
                    self._is_full = True
                    return
        assert charges_bytes(messages) <= load.charge
