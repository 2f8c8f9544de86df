"""Removals: remove messages from the middle of a lane, and make lists, caches, timers and limits forget them.

An ack record says that the messages are gone. If a record can't be written, the messages of the records before it are
forgotten all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ....cache.messages.message_cache import MessageCache
from ....store.errors import ForebayError
from ....store.state.branches import Branches
from ....store.structures.sequence_set import SequenceSet
from ..areas.list_registry import ListRegistry
from ..areas.target_area import TargetArea
from ..model.destination import LaneState
from .delayed_redelivery import DelayedRedelivery

ACK_RUN_MESSAGES_MAX: Final = (1 << 32) - 1
"""Most messages that one run of an ack record can name."""


class Removals:
    """Removes messages that no consumer holds. The state lock guards it; every method requires it held.

    A delayed message, or a dead letter, can be removed although it can't be handed out. So this class asks whether a
    message is held, not DeliveryLane.is_free.
    """

    def __init__(
        self, branches: Branches, target_area: TargetArea, list_registry: ListRegistry, delayed: DelayedRedelivery
    ) -> None:
        self._branches = branches
        self._target_area = target_area
        self._list_registry = list_registry
        self._delayed = delayed

    def held(self, lane: LaneState) -> SequenceSet:
        """Return the messages of a lane that are in flight or in a transaction. O(in flight)."""
        held = self._branches.acknowledged_in(lane.pending_lane.number)
        for sequence in sorted(lane.deliveries):
            held.add(sequence, sequence)
        return held

    def free_runs(self, lane: LaneState, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield runs from begin to end that contain every pending message that is not held, and no held one.

        Each run begins with a pending message.
        """
        held = self.held(lane)
        while begin < end:
            pending = lane.pending_lane.pending_run(begin, 1)
            if pending is None or pending[0] >= end:
                return
            begin = pending[0]
            taken = held.next_from(begin)
            if taken is not None and taken[0] == begin:
                begin = taken[1] + 1
                continue
            last = min(end, begin + ACK_RUN_MESSAGES_MAX, taken[0] if taken is not None else end) - 1
            yield begin, last
            begin = last + 1

    def free_sequences(self, lane: LaneState, first: int, last: int) -> list[int]:
        """Return the sequences of a run that are pending and not held. O(run)."""
        decided = self._branches.acknowledged_in(lane.pending_lane.number)
        return [
            sequence
            for sequence in range(first, last + 1)
            if lane.pending_lane.is_pending(sequence) and sequence not in lane.deliveries and sequence not in decided
        ]

    def remove(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> tuple[int, int]:
        """Acknowledge free runs; return how many runs and how many messages they were.

        Requires: the runs are free. If one of them fails, those before it are gone and the error is raised.
        """
        gone = SequenceSet()
        count = removed = 0
        try:
            for first, last in runs:
                removed += lane.backing_store.acknowledge(lane.pending_lane, first, last)
                gone.add(first, last)
                count += 1
        except ForebayError:
            self.forget(lane, gone)
            raise
        self.forget(lane, gone)
        return count, removed

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Make lists, caches, timers and limits forget messages that were removed."""
        if gone:
            self._delayed.cancel(lane, gone)
            self._target_area.forget(lane, gone)
        lane.destination.on_room_freed()

    def empty_lane(self, lane: LaneState) -> None:
        """Empty a lane that ends, so that senders, loads and deliveries that still know it find nothing in it."""
        everything = SequenceSet()
        everything.add(0, max(lane.published_end, lane.pending_lane.next_sequence))
        self._delayed.cancel(lane, everything)
        self._target_area.forget(lane, everything)
        self._list_registry.on_lane_gone(lane)
        memory = lane.memory
        caches: tuple[MessageCache, ...] = (memory.pending_cache, memory.head_queue_cache)
        for cache in caches:
            cache.end_lane(lane.pending_lane.number)
        lane.on_lane_ended()
