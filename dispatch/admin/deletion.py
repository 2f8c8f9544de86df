"""Deletion: a queue goes with everything that is in it, is on its way, or waits for it.

One record in the journal, so that a crash leaves the queue as it was or not
at all. What keeps pieces of a queue in RAM is told here, and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...store.errors import TransactionError
from ...store.index.lane import DeletedLane
from ...store.sequence_set import SequenceSet
from ..core.non_persistent import NonPersistentLaneState
from ..core.queue_area import LaneState, PersistentLaneState, QueueArea

if TYPE_CHECKING:
    from ..engine.engine import Engine


def delete(engine: Engine, queue: QueueArea) -> None:
    """See Queue.delete. The state lock is held for about 80 ms for each million messages. REQUIRES: no lock."""
    with engine.lock:
        engine.raise_closed()
        if not queue.is_deleted:
            if engine.transactions.concern(queue.number):
                raise TransactionError(f"a transaction without an outcome knows the queue {queue.name!r}: end it first")
            engine.store.delete_destination(queue.number)
            queue.is_deleted = True
            engine.remove_queue(queue)
            for consumer in list(queue.consumers()):
                consumer.close_locked()
            if queue.admission is not None:
                queue.admission.close("the queue")
            for area in queue.lane_areas():
                forget_lane(engine, area)
            # Who still has this object finds no lanes, and makes none.
            queue.areas = [None] * len(queue.areas)
            queue.non_persistent_lanes = [None] * len(queue.non_persistent_lanes)
        position = engine.store.journal.end
    engine.after_write(position)


def forget_lane(engine: Engine, area: LaneState) -> None:
    """Senders, loads and deliveries that still know the lane find nothing in it. REQUIRES: the lock."""
    everything = SequenceSet()
    everything.add(0, max(area.published, area.lane.next_sequence))
    engine.unpark(area, everything)
    engine.targets.forget(area, everything)
    engine.heads.forget(area)
    for cache in (engine.targets.pending_cache, engine.targets.head_queue_cache):
        cache.forget(area.lane.number)
        cache.keepers.pop(area.lane.number, None)
    if isinstance(area, NonPersistentLaneState):
        area.overflow.drop(area.store_lane)
    elif isinstance(area, PersistentLaneState):
        area.lane = area.journaled_lane = area.index_lane = DeletedLane(area.index_lane)
