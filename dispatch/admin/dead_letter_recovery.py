"""DeadLetterRecovery: after an open, find messages that a previous process has delivered for the last time.

No record says that a message was handed out for the first time. So after a kill, any pending message may have been.
Counts of messages that were acknowledged before the kill are forgotten in the background.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from ...store.index.delivery_counts import DeliveryCountTable
from ...store.index.pending_lane import PendingLane
from ...store.index.subscriptions import Subscriptions
from ...store.numbering import LANE_SHIFT
from ...store.state.branches import Branches
from ..config.policies import Policies
from ..core.destinations.queue_registry import QueueRegistry
from ..core.model.destination import LaneState
from ..topics.topic_registry import TopicRegistry

TIDY_RUNS: Final = 32
"""Runs that one call of `tidy` checks. Each may read a block of the index, under the lock."""


class DeadLetterRecovery:
    """Takes over delivery counts that the store has found. Every method requires the state lock."""

    def __init__(
        self,
        *,
        branches: Branches,
        delivery_count_table: DeliveryCountTable,
        subscribers: Subscriptions,
        queues: QueueRegistry,
        topics: TopicRegistry,
        policies: Policies,
        waiting: dict[LaneState, None],
    ) -> None:
        """subscribers: the rows of all subscriptions.
        waiting: gets the lanes that have dead letters.
        """
        self._branches = branches
        self._delivery_count_table = delivery_count_table
        self._subscribers = subscribers
        self._queues = queues
        self._topics = topics
        self._policies = policies
        self._waiting = waiting
        # After a kill: lanes to which messages had come back, and up to where their counts were checked.
        self._untidy: dict[LaneState, int] = {}

    def recover(self, *, was_killed: bool) -> None:
        """Take over the delivery counts of the previous process. Requires: the lock.

        was_killed: any pending message may have been handed out before. From now on, the first delivery of such a
            message is recorded at once.

        O(lanes + runs of returned messages). Reads no block.
        """
        counts = self._delivery_count_table
        for pending_lane in self._recorded_lanes() if was_killed else ():
            first = pending_lane.pending_from()
            if first < pending_lane.next_sequence:
                counts.suspect(pending_lane.number, first, pending_lane.next_sequence - 1)
        for lane in self._lanes():
            known = lane.delivery_counts = counts.find(lane.pending_lane.number)
            if was_killed:
                self._untidy[lane] = 0
            rule = self._policies.redelivery(lane.destination.name)
            for counted in known or ():
                if rule.is_last(counted.delivery_count):
                    lane.dead_letters.add(counted.first, counted.last)
            for run in self._branches.acknowledged_in(lane.pending_lane.number):
                lane.dead_letters.remove(*run)
            if lane.dead_letters:
                self._waiting[lane] = None

    def _recorded_lanes(self) -> Iterator[PendingLane]:
        for queue in self._queues.by_name.values():
            yield from (lane.pending_lane for lane in queue.lanes if lane is not None)
        for subscriber in self._subscribers.readers():
            yield from filter(None, subscriber.lanes)

    def _lanes(self) -> Iterator[LaneState]:
        """Yield the lanes to which messages have come back.

        No object is made for an offline subscription without returned messages.
        """
        counts = self._delivery_count_table
        for queue in self._queues.by_name.values():
            yield from (lane for lane in queue.all_lanes() if counts.find(lane.pending_lane.number) is not None)
        for topic in self._topics.by_name.values():
            for name, number in zip(topic.durable_names, topic.durable_numbers, strict=True):
                for topic_lane_state in filter(None, topic.lanes):
                    known = counts.find(number << LANE_SHIFT | topic_lane_state.priority) or ()
                    if name in topic.kept or any(counted.delivery_count for counted in known):
                        opened = topic.durable_subscription(name)
                        assert opened is not None
                        yield topic.keep(opened).lane_of(topic_lane_state)

    @property
    def is_tidy(self) -> bool:
        """Whether there are no counts left to check."""
        return not self._untidy

    def tidy(self) -> None:
        """Forget counts of messages that were acknowledged before the kill, a few runs at a time."""
        if not self._untidy:
            return
        lane, begin = next(iter(self._untidy.items()))
        runs = list(islice((run for run in lane.delivery_counts or () if run.last >= begin), TIDY_RUNS))
        if not runs or not lane.destination.is_open:
            del self._untidy[lane]
            return
        lane.trim_delivery_counts(runs[0].first, runs[-1].last)
        self._untidy[lane] = runs[-1].last + 1
