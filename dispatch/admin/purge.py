"""Purge: what is pending in a queue and in nobody's hands is removed, by one ack record for each run of it.

A run is 48 bytes in the journal however long it is: with nothing in flight
that is one record a lane. A crash leaves each record whole or not at all, as
of any ack, so what was purged when the call returned never comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...store.sequence_set import SequenceSet
from ..core.queue_area import LaneState, QueueArea

if TYPE_CHECKING:
    from ..engine.engine import Engine

RUN_MESSAGES_MAX: Final = (1 << 32) - 1
"""As many as the record of an ack can name in one run."""


def purge(engine: Engine, queue: QueueArea) -> int:
    """Remove what was pending when the call began, but for what is in flight; returns how many messages.

    RAM: nothing that grows with their number. The state lock is held for one
    lane after the other, about 80 ms for a million messages. REQUIRES: no lock.
    """
    with engine.lock:
        engine.raise_closed()
        lanes = [(area, area.published) for area in queue.lane_areas()]
    removed = 0
    for area, end in lanes:
        at = 0
        while at < end:
            with engine.lock:
                engine.raise_closed()
                at, part = _purge_lane(engine, area, at, end)
                removed += part
                if queue.admission is not None:
                    queue.admission.room_came()
                position = engine.store.journal.end
            engine.after_write(position)
    return removed


def _purge_lane(engine: Engine, area: LaneState, begin: int, end: int) -> tuple[int, int]:
    """(up to where it came, how many were removed): to the end, unless the index wants a checkpoint first."""
    store, lane = engine.store, area.lane
    gone = SequenceSet()
    removed = 0
    try:
        for first, last in _free_runs(engine, area, begin, end):
            if gone and store.index.is_crowded:
                return first, removed
            removed += area.store.remove(lane, first, last)
            gone.add(first, last)
    finally:
        if gone:
            engine.unpark(area, gone)
            engine.targets.forget(area, gone)
    return end, removed


def _free_runs(engine: Engine, area: LaneState, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """From begin to end, runs that hold everything pending and nothing in flight. Each begins with a pending one."""
    held = engine.transactions.acknowledged_in(area.lane.number)
    for sequence in sorted(area.in_flight):
        held.add(sequence, sequence)
    while begin < end:
        pending = area.lane.pending_run(begin, 1)
        if pending is None or pending[0] >= end:
            return
        begin = pending[0]
        taken = held.next_from(begin)
        if taken is not None and taken[0] == begin:
            begin = taken[1] + 1
            continue
        last = min(end, begin + RUN_MESSAGES_MAX, taken[0] if taken is not None else end) - 1
        yield begin, last
        begin = last + 1
