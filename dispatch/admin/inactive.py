"""InactiveDestinations: deletes queues and topics that are empty and have not been used for long.

The work of a destination is compared with that at the previous look, so sends and takes pay nothing for this. A
deletion is one record like any other: a crash leaves the destination empty, or gone. A host with a Queue or Topic of a
deleted one notices nothing, because a later send makes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from ...store.journal.journal import Journal
from ..core.confirmer import Confirmer
from ..core.destinations.destinations import Destinations
from ..core.lifecycle import Lifecycle
from ..core.model import DestinationState
from ..core.monitor import Monitor, in_sections
from ..topics.registry import Topics
from ..transactions.transaction import TransactionRegistry
from .queue_admin import QueueAdmin

A = TypeVar("A", bound=DestinationState)

LOOKS: Final = 10
"""Looks in the shortest time after which a destination is deleted, so it is at most one such part late."""
LOOK_SECONDS_MIN: Final = 0.5


class _Seen:
    """The work of a destination up to a look, and since when it has had none."""

    __slots__ = ("work", "since")

    def __init__(self, work: tuple[int, int], since: float) -> None:
        self.work = work
        self.since = since


class InactiveDestinations:
    """Deletes inactive destinations.

    `step` checks all that may be deleted when it is time; only one thread calls it.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        journal: Journal,
        confirmer: Confirmer,
        destinations: Destinations,
        topics: Topics,
        queue_admin: QueueAdmin,
        transactions: TransactionRegistry,
        shortest_seconds: float | None,
    ) -> None:
        """Make the one InactiveDestinations of a store.

        shortest_seconds: the least `inactive_seconds` of any policy; None: no destination is ever deleted.
        """
        self._monitor = monitor
        self._journal = journal
        self._confirmer = confirmer
        self._destinations = destinations
        self._topics = topics
        self._queue_admin = queue_admin
        self._transactions = transactions
        self._shortest_seconds = shortest_seconds
        self._look_at = 0.0
        self._deleted = 0
        # By the number of the destination.
        self._seen: dict[int, _Seen] = {}

    def step(self) -> int:
        """Delete what is due; return how many destinations were deleted.

        O(destinations) at each look. Requires: no lock.
        """
        now = self._monitor.monotonic()
        if self._shortest_seconds is None or now < self._look_at:
            return 0
        self._look_at = now + max(self._shortest_seconds / LOOKS, LOOK_SECONDS_MIN)
        with self._monitor.lock, self._monitor.whole:
            queues, topics = self._destinations.numbers(), self._topics.numbers()
        before, self._seen = self._seen, {}
        for part in in_sections(queues):
            with self._monitor.lock, self._monitor.whole:
                found = map(self._destinations.numbered_for_report, part)
                due = self._due([queue for queue in found if queue is not None], before, now)
            for queue in due:
                self._delete(
                    partial(_opened, self._destinations.opened_to_delete, queue.number), self._queue_admin.delete_locked
                )
        for part in in_sections(topics):
            with self._monitor.lock, self._monitor.whole:
                found_topics = map(self._topics.numbered_for_report, part)
                due_topics = self._due([topic for topic in found_topics if topic is not None], before, now)
            for topic in due_topics:
                self._delete(partial(_opened, self._topics.opened_to_delete, topic.number), self._topics.delete_locked)
        deleted, self._deleted = self._deleted, 0
        return deleted

    def _due(self, destinations: Sequence[A], before: dict[int, _Seen], now: float) -> list[A]:
        """Return those that have had no work for long enough, and note the work of the others. Requires: the lock."""
        due: list[A] = []
        undecided = self._transactions.destination_numbers()
        for destination in destinations:
            if destination.inactive_seconds is None or not destination.is_unused:
                continue
            if destination.number in undecided:
                continue  # its inactive time begins when the transaction ends
            seen, work = before.get(destination.number), _work(destination)
            if seen is None or seen.work != work:
                seen = _Seen(work, now)
            self._seen[destination.number] = seen
            if now - seen.since >= destination.inactive_seconds:
                due.append(destination)
        return due

    def _delete(self, find: Callable[[], A | None], delete: Callable[[A], None]) -> None:
        """Delete a destination, unless it came into use since it was found unused. Requires: no lock."""
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            destination = find()
            if destination is None:
                return
            seen = self._seen.pop(destination.number)
            if not destination.is_open or not destination.is_unused or _work(destination) != seen.work:
                return
            if self._transactions.concern((destination.number,)):
                return
            delete(destination)
            destination.lifecycle = Lifecycle.UNUSED
            self._deleted += 1
            position = self._journal.end
        self._confirmer.confirm(position)


def _work(destination: DestinationState) -> tuple[int, int]:
    """Return figures that change with every use. Requires: the lock."""
    return destination.enqueued, destination.delivered


def _opened(find: Callable[[int], A], number: int) -> A | None:
    """Return the destination of a number, open. None: it is gone."""
    try:
        return find(number)
    except KeyError:
        return None
