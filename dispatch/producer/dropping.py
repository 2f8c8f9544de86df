"""Dropping: room made in a full queue by removing its oldest messages, as its policy says.

Of the lowest priority the oldest goes first, whatever its kind. What is in
somebody's hands, or a transaction decides about, stays. The removals are
records like those of acks, so what was dropped does not come back.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from ...store.sequence_set import SequenceSet
from ...store.tmp.non_persistent_lane import NonPersistentLane
from ..core.queue_area import LaneState, QueueArea

if TYPE_CHECKING:
    from ..engine.engine import Engine


class _Oldest:
    """What may be dropped of one lane, from the front."""

    def __init__(self, engine: Engine, area: LaneState) -> None:
        self.area = area
        self.gone = SequenceSet()
        self._at = 0
        self._held = engine.transactions.acknowledged_in(area.lane.number)
        for sequence in area.in_flight:
            self._held.add(sequence, sequence)

    def run(self, most: int) -> tuple[int, int] | None:
        """The next consecutive ones, up to so many."""
        while (run := self.area.lane.pending_run(self._at, most)) is not None and run[0] < self.area.published:
            first, last = run[0], min(run[1], self.area.published - 1)
            held = self._held.next_from(first)
            if held is None or held[0] > last:
                return first, last
            if held[0] > first:
                return first, held[0] - 1
            self._at = held[1] + 1
        return None

    def drop(self, first: int, last: int) -> int:
        """Remove a part of that run; how many messages."""
        removed = self.area.store.remove(self.area.lane, first, last)
        self.gone.add(first, last)
        self._at = last + 1
        return removed


def drop_oldest(engine: Engine, queue: QueueArea, messages: int, size_bytes: int) -> int:
    """Remove at least so many messages, and of so many bytes, as far as there are; how many.

    REQUIRES: the lock. One record for each run. StoreFull, StoreFailed: what is gone is gone.
    """
    removed = 0
    for persistent, volatile in zip_longest(queue.areas, queue.non_persistent_lanes):
        lanes = [_Oldest(engine, area) for area in (persistent, volatile) if area is not None]
        try:
            while (messages > 0 or size_bytes > 0) and (found := _next(lanes, max(messages, 1))) is not None:
                oldest, first, last = found
                lengths = list(oldest.area.lane.lengths(first, last))
                count = dropped_bytes = 0
                while count < len(lengths) and (count < messages or dropped_bytes < size_bytes):
                    dropped_bytes += lengths[count]
                    count += 1
                removed += oldest.drop(first, first + count - 1)
                messages -= count
                size_bytes -= dropped_bytes
        finally:
            for oldest in lanes:
                if oldest.gone:
                    engine.unpark(oldest.area, oldest.gone)
                    engine.targets.forget(oldest.area, oldest.gone)
    queue.dropped += removed
    return removed


def _next(lanes: list[_Oldest], most: int) -> tuple[_Oldest, int, int] | None:
    """Of both kinds of one priority, what came first: whose it is, and a run of it that the other does not divide."""
    runs = [(oldest, run) for oldest in lanes if (run := oldest.run(most)) is not None]
    if not runs:
        return None
    if len(runs) == 1:
        oldest, run = runs[0]
        return oldest, *run
    (persistent, of_persistent), (volatile, of_volatile) = runs
    lane = cast(NonPersistentLane, volatile.area.lane)
    before = lane.before(of_volatile[0])
    if of_persistent[0] < before:
        return persistent, of_persistent[0], min(of_persistent[1], before - 1)
    return volatile, of_volatile[0], min(of_volatile[1], lane.behind(of_persistent[0]) - 1)
