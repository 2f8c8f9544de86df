"""IdleDestinations: close queues that are empty and that nobody has used for a while.

A closed queue is a row: its name, numbers and counters. What a queue had to do
is compared with what it had at the look before, so no send and no take pays for
it. Whoever holds a Queue of one that was closed notices nothing: the next use
opens it again. Nothing is written, so a crash changes nothing.
"""

from __future__ import annotations

from typing import Final

from ..core.destinations import Destinations
from ..core.monitor import Monitor, parts
from ..transactions.transaction import TransactionRegistry

LOOK_SECONDS: Final = 5.0
"""Between two looks: what had nothing to do from one to the next is closed."""


class IdleDestinations:
    """`step` looks at all queues that are open, when it is time. Only one thread calls it."""

    def __init__(self, monitor: Monitor, destinations: Destinations, transactions: TransactionRegistry) -> None:
        self._monitor = monitor
        self._destinations = destinations
        self._transactions = transactions
        self._look_at = monitor.monotonic() + LOOK_SECONDS

    def step(self) -> int:
        """Close what is due; return how many queues were closed. O(open queues) at each look. Requires: no lock."""
        now = self._monitor.monotonic()
        if now < self._look_at:
            return 0
        self._look_at = now + LOOK_SECONDS
        with self._monitor.lock:
            queues = list(self._destinations.queues.values())
        closed = 0
        for part in parts(queues):
            with self._monitor.lock, self._monitor.whole:
                undecided = self._transactions.destinations()
                for queue in part:
                    before, queue.looked = queue.looked, queue.enqueued if queue.is_idle else None
                    if before is not None and before == queue.looked:
                        closed += self._destinations.close_idle(queue, undecided)
        return closed
