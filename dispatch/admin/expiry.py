"""ExpirySweeper: remove expired messages from their queues, whether a consumer comes or not.

A sweep finds expired messages in the index and reads none; one ack record removes a run. If the policy keeps expired
messages, they go to the dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.environment.late_log import LateLogger
from ...store.errors import Closed, ForebayError, StoreFailed
from ...store.format.state_record import TOPIC
from ...store.format.times import EXPIRY
from ...store.index.topic_lane import SubscriptionLane
from ...store.state.branches import Branches
from ...store.structures.sequence_set import SequenceSet
from ..config.policies import Policies
from ..config.redelivery_delays import EXPIRED
from ..core.model.destination import LaneState
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from ..core.redelivery.timed_lanes import TimedLanes
from .browse import Browsers
from .dead_letter_writer import DeadLetterWriter

logger = LateLogger("forebay.dispatch")

SWEEP_BLOCKS: Final = 64
"""Blocks of a lane that are swept before the state lock is released."""


class ExpirySweeper:
    """Removes expired messages when the sweep of their lane is due."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        branches: Branches,
        now_ms: Callable[[], int],
        timed: TimedLanes,
        removals: Removals,
        browsers: Browsers,
        writer: DeadLetterWriter,
        policies: Policies,
    ) -> None:
        """now_ms: returns the store's time."""
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._branches = branches
        self._now_ms = now_ms
        self._timed = timed
        self._removals = removals
        self._browsers = browsers
        self._writer = writer
        self._policies = policies

    def sweep_due(self) -> int:
        """Remove expired messages of the lanes that are due; return how many. Requires: no lock."""
        return sum([self._sweep(lane) for lane in self._timed.due_for_sweep()])

    def _sweep(self, lane: LaneState) -> int:
        due_times, now_ms = lane.backing_store.due_times, self._now_ms()
        with self._monitor.lock, self._monitor.all_or_broken:
            if not lane.destination.is_open or self._monitor.is_closed or lane.pending_lane.earliest[EXPIRY] > now_ms:
                return 0
            numbers = due_times.expired_blocks(lane.pending_lane, now_ms)
        removed, queue = 0, self._dead_letter_queue(lane)
        for at in range(0, len(numbers), SWEEP_BLOCKS):
            if self._checkpointer.is_index_crowded and not self._checkpointer.checkpoint():
                break
            with self._monitor.lock, self._monitor.all_or_broken:
                if not lane.destination.is_open or self._monitor.is_closed:
                    return removed
                part = numbers[at : at + SWEEP_BLOCKS]
                found = list(
                    chain.from_iterable(due_times.expired(lane.pending_lane, number, now_ms) for number in part)
                )
                if queue is None:
                    removed += self._remove(lane, found)
            if queue is not None:
                removed += self._dead_letter(lane, queue, found)
        with self._monitor.lock, self._monitor.all_or_broken:
            if lane.destination.is_open and not self._monitor.is_closed:
                due_times.refresh_expiry(lane.pending_lane)
        return removed

    def _dead_letter_queue(self, lane: LaneState) -> str | None:
        """Return the dead-letter queue for expired messages of a lane. None: remove them.

        Expired messages of topics and non-persistent ones are always removed.
        """
        if lane.destination.kind == TOPIC or not lane.is_persistent:
            return None
        return self._policies.queue_for_expired(lane.destination.name)

    def _dead_letter(self, lane: LaneState, queue: str, runs: Sequence[tuple[int, int]]) -> int:
        """Move expired messages to a dead-letter queue; return how many. The rest waits for a later sweep.

        Requires: no lock.
        """
        moved_messages = 0
        try:
            for first, last in runs:
                for messages in self._browsers.loads(lane, first, min(last + 1, lane.published_end)):
                    for moved in self._writer.move(lane, queue, messages, EXPIRED):
                        moved_messages += moved
        except (Closed, StoreFailed):
            raise
        except ForebayError as error:
            logger.warning("what has expired in %r waits: %s", lane.destination.name, error, event="expired_wait")
        with self._monitor.lock, self._monitor.all_or_broken:
            lane.expired += moved_messages
        return moved_messages

    def _remove(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> int:
        """Acknowledge expired messages that are not in flight; lists and caches forget them. Requires: the lock."""
        lanes = lane.all_receiving_lanes()  # each has its own count of expired messages
        gone = SequenceSet()
        depths = [_depth(each) for each in lanes]
        try:
            for first, last in _joined(lane, self.free_messages(lanes, runs)):
                lane.backing_store.acknowledge(lane.pending_lane, first, last)
                gone.add(first, last)
        finally:
            for each, depth in zip(lanes, depths, strict=True):
                each.expired += depth - _depth(each)
                self._removals.forget(each, gone)
        return gone.count

    def free_messages(self, lanes: Sequence[LaneState], runs: Sequence[tuple[int, int]]) -> SequenceSet:
        """Return the messages of the runs that are published, not in flight, and not in an undecided transaction.

        lanes: first the lane that has the runs, then the lanes that receive its messages.
        """
        free = SequenceSet()
        for first, last in runs:
            last = min(last, lanes[0].published_end - 1)
            if first <= last:
                free.add(first, last)
        for lane in lanes:
            for sequence in lane.deliveries:
                free.remove(sequence, sequence)
            for first, last in self._branches.acknowledged_in(lane.pending_lane.number):
                free.remove(first, last)
        return free


def _depth(lane: LaneState) -> int:
    if isinstance(lane.pending_lane, SubscriptionLane):
        lane.pending_lane.catch_up()
    return lane.pending_lane.pending_messages


def _joined(lane: LaneState, runs: SequenceSet) -> Iterator[tuple[int, int]]:
    """Join runs that have no pending message between them: each joined run is one record."""
    joined: tuple[int, int] | None = None
    for first, last in runs:
        if joined is None:
            joined = first, last
            continue
        between = lane.pending_lane.pending_run(joined[1] + 1, 1)
        if between is not None and between[0] < first:
            yield joined
            joined = first, last
        else:
            joined = joined[0], last
    if joined is not None:
        yield joined
