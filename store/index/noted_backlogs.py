"""NotedBacklogs: the backlogs of durable subscriptions at one moment, as a checkpoint stores them.

Making the note takes little time under the state lock. The checkpoint reads it without the lock: the sets that it
refers to do not change meanwhile (TopicLane.note_backlogs).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from ..format.state_record import SubscriptionBacklog
from ..numbering import LANE_SHIFT
from .backlog_sets import NOTHING_PENDING
from .pending_lane import PendingLane
from .sequence_bitmap import SequenceBitmap
from .subscription_table import Cursors


class NotedBacklogs:
    """The messages of a topic's lane that each durable subscription had not acknowledged. Reading it needs no lock."""

    __slots__ = (
        "_numbers",
        "_pending",
        "_next_sequences",
        "_pending_bytes",
        "_cursors",
        "_priority",
        "_end",
        "_sent_bytes",
    )

    def __init__(
        self, lanes: Sequence[PendingLane], pending: list[SequenceBitmap], cursors: Cursors, topic_lane: PendingLane
    ) -> None:
        """Note the backlogs in columns, because a tuple for each lane would trigger the garbage collector.

        lanes, pending: the lane of each open subscription, and its set as of the last `catch_up`. cursors: those of the
            subscriptions that are not open.
        """
        self._numbers = array("Q", [lane.number for lane in lanes])
        self._pending = pending
        self._next_sequences = array("Q", [lane.next_sequence for lane in lanes])
        self._pending_bytes = array("q", [lane.depth[1] for lane in lanes])
        self._cursors = cursors.numbers[:], cursors.next_sequences[:], cursors.sent_bytes[:]
        self._priority, self._end = topic_lane.priority, topic_lane.next_sequence
        self._sent_bytes = topic_lane.total_sent_bytes

    def __iter__(self) -> Iterator[SubscriptionBacklog]:
        for number, first, sent_bytes in zip(*self._cursors, strict=True):
            lane, size = number << LANE_SHIFT | self._priority, self._sent_bytes - sent_bytes
            pending = NOTHING_PENDING if first == self._end else SequenceBitmap.of_run(first, self._end - 1)
            yield pending.backlog(lane, size)
        columns = zip(self._numbers, self._pending, self._next_sequences, self._pending_bytes, strict=True)
        for number, pending, first, size in columns:
            if first < self._end and pending is NOTHING_PENDING:
                pending = SequenceBitmap.of_run(first, self._end - 1)
            elif first < self._end:
                pending = pending.copy()
                pending.add(first, self._end - 1)
            yield pending.backlog(number, size)
