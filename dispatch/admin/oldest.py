"""OldestMessages: how old the oldest pending message of a queue is, for the queues that a report names.

The index knows which message is the oldest of each lane, but not when it was sent. That time is in RAM with the
message, or in its record, and is looked up once for each message that becomes the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...store.format.places import Extent
from ...store.format.record import RecordDamaged
from ...store.journal.regions import Region, sent_at
from ..core.destinations.queue_state import QueueState
from ..core.model.delivery import message_of
from ..core.model.destination import LaneState
from ..core.monitor import Monitor

READS_MAX: Final = 20
"""Most records that one refresh reads; the others follow in the next one."""

_Head = tuple[int, int]
"""The oldest pending sequence of a lane, and when it was sent in ms since 1970; 0: not known."""


class OldestMessages:
    """The oldest messages of the queues of the last refresh."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._heads: dict[LaneState, _Head] = {}
        # The queues with a lane in `_heads`. There may be many others.
        self._queues: frozenset[QueueState] = frozenset()

    def refresh(self, queues: Sequence[QueueState]) -> None:
        """Look up these queues, and forget all others. Requires: no lock. O(lanes), and at most READS_MAX reads."""
        known: dict[LaneState, _Head] = {}
        reads = READS_MAX
        for queue in queues:
            with self._monitor.lock, self._monitor.all_or_broken:
                unread: list[tuple[LaneState, int, Region]] = []
                for lane in queue.all_lanes():
                    head = self._head(lane)
                    if head is None:
                        continue
                    known[lane] = head
                    if not head[1] and lane.is_persistent and reads:
                        reads -= 1
                        unread.append(
                            (lane, head[0], lane.backing_store.plan(lane.pending_lane, [(head[0], head[0])])[0])
                        )
            for lane, sequence, region in unread:
                known[lane] = sequence, _sent_ms(region)
        self._heads, self._queues = known, frozenset(queues)

    def age_seconds(self, queue: QueueState) -> float | None:
        """Return how long ago the oldest pending message was sent. None: nothing is pending, or it is not known."""
        if queue not in self._queues:
            return None
        heads = self._heads
        found = [heads[lane][1] for lane in queue.all_lanes() if lane in heads and lane.pending_lane.pending_messages]
        oldest_ms = min((sent for sent in found if sent), default=None)
        return max(self._monitor.clock_ms() - oldest_ms, 0) / 1000 if oldest_ms is not None else None

    def _head(self, lane: LaneState) -> _Head | None:
        """Return the oldest pending message of a lane. None: nothing is pending. Requires: the lock."""
        if not lane.pending_lane.pending_messages:
            return None
        before = self._heads.get(lane, (0, 0))
        run = lane.pending_lane.pending_run(before[0], 1)  # no earlier message becomes pending again
        if run is None:
            return None
        if run[0] == before[0] and before[1]:
            return before
        return run[0], self._sent_in_ram(lane, run[0])

    def _sent_in_ram(self, lane: LaneState, sequence: int) -> int:
        delivery = lane.deliveries.get(sequence)
        if delivery is not None:
            return message_of(delivery)[3]
        message = lane.peek(sequence)
        for target in lane.destination.lists_over(lane):
            if target.direct and target.direct[0][0] == sequence:
                message = target.direct[0]
        for cache in lane.caches:
            message = message or cache.peek(lane.pending_lane.number, sequence)
        return message[3] if message is not None else 0


def _sent_ms(region: Region) -> int:
    extent = region.extents[0]
    messages = extent.record_messages if isinstance(extent, Extent) else 1
    try:
        return sent_at(region.file, region.salt, extent.offset, messages)
    except (OSError, RecordDamaged):
        return 0  # the data log was deleted meanwhile, or the record is damaged: a take of the message says so
