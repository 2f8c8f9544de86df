"""IdleDestinations: closes queues and topics that are empty and have not been used for a while.

A closed destination is a row: its name, numbers and counters. Each look compares the counts of work with those of the
previous look, so sends and takes pay nothing for this. A host with a Queue of a closed queue notices nothing, because
the next use opens the queue again. Nothing is written, so a crash changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Final, TypeVar

from ..core.destinations.destination_state import DestinationState
from ..core.destinations.queue_registry import QueueRegistry
from ..core.monitor import Monitor, in_sections
from ..topics.topic_registry import TopicRegistry
from ..transactions.transaction_registry import TransactionRegistry

DestinationT = TypeVar("DestinationT", bound=DestinationState)

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks. A destination that had no work between them is closed."""


class IdleDestinations:
    """Closes unused destinations. `step` checks all open ones when a look is due; only one thread calls `step`."""

    def __init__(
        self, monitor: Monitor, queues: QueueRegistry, topics: TopicRegistry, transactions: TransactionRegistry
    ) -> None:
        self._monitor = monitor
        self._queues = queues
        self._topics = topics
        self._transactions = transactions
        self._look_at = monitor.monotonic() + LOOK_SECONDS

    def step(self) -> int:
        """Close the idle destinations; return how many were closed.

        O(open queues and topics) for each look. Requires: no lock.
        """
        now = self._monitor.monotonic()
        if now < self._look_at:
            return 0
        self._look_at = now + LOOK_SECONDS
        with self._monitor.lock:
            queues, topics = list(self._queues.by_name.values()), list(self._topics.by_name.values())
        return self._look(queues, self._queues.close_idle) + self._look(topics, self._topics.close_idle)

    def _look(self, opened: Sequence[DestinationT], close_idle: Callable[[DestinationT, Container[int]], bool]) -> int:
        """Close the destinations that had no work since the previous look; return how many."""
        closed = 0
        for part in in_sections(opened):
            with self._monitor.lock, self._monitor.all_or_broken:
                undecided = self._transactions.destination_numbers()
                for one in part:
                    before, one.enqueued_when_idle = one.enqueued_when_idle, one.enqueued if one.is_idle else None
                    if before is not None and before == one.enqueued_when_idle:
                        closed += close_idle(one, undecided)
        return closed
