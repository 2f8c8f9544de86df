"""InactiveDestinations: deletes queues and topics that are empty and have not been used for long.

Each look compares the counts of work with those of the previous look, so sends and takes pay nothing for this. A
deletion is one record like any other: a crash leaves the destination empty, or gone. A host with a Queue or Topic of a
deleted destination notices nothing, because a later send makes the destination anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ..core.confirmer import Confirmer
from ..core.destinations.destination_registry import DestinationRegistry
from ..core.destinations.destination_state import DestinationState, NamedDestinationState
from ..core.destinations.queue_registry import QueueRegistry
from ..core.model.lifecycle import Lifecycle
from ..core.monitor import Monitor, in_sections
from ..topics.topic_admin import TopicAdmin
from ..topics.topic_registry import TopicRegistry
from ..transactions.transaction_registry import TransactionRegistry
from .queue_admin import QueueAdmin

DestinationT = TypeVar("DestinationT", bound=NamedDestinationState)

LOOKS: Final = 10
"""Looks within the shortest `inactive_seconds`. A deletion is late by at most a tenth of that time, or by
LOOK_SECONDS_MIN if that is more.
"""
LOOK_SECONDS_MIN: Final = 0.5


class _Seen:
    """The work of a destination up to a look, and since when the destination has had no work."""

    __slots__ = ("work", "since")

    def __init__(self, work: tuple[int, int], since: float) -> None:
        self.work = work
        self.since = since


class InactiveDestinations:
    """Deletes inactive destinations.

    `step` checks all destinations when a look is due; only one thread calls `step`.
    """

    def __init__(
        self,
        *,
        monitor: Monitor,
        confirmer: Confirmer,
        queues: QueueRegistry,
        topics: TopicRegistry,
        queue_admin: QueueAdmin,
        topic_admin: TopicAdmin,
        transactions: TransactionRegistry,
        shortest_seconds: float | None,
    ) -> None:
        """shortest_seconds: the least `inactive_seconds` of any policy; None: no destination is ever deleted."""
        self._monitor = monitor
        self._confirmer = confirmer
        self._queues = queues
        self._topics = topics
        self._queue_admin = queue_admin
        self._topic_admin = topic_admin
        self._transactions = transactions
        self._shortest_seconds = shortest_seconds
        self._look_at = 0.0
        # By the number of the destination.
        self._seen: dict[int, _Seen] = {}

    def step(self) -> int:
        """Delete the inactive destinations if a look is due; return how many were deleted.

        O(destinations) at each look. Requires: no lock.
        """
        now = self._monitor.monotonic()
        if self._shortest_seconds is None or now < self._look_at:
            return 0
        self._look_at = now + max(self._shortest_seconds / LOOKS, LOOK_SECONDS_MIN)
        before, self._seen = self._seen, {}
        deleted = self._look(self._queues, self._queue_admin.delete_locked, before, now)
        return deleted + self._look(self._topics, self._topic_admin.delete_locked, before, now)

    def _look(
        self,
        registry: DestinationRegistry[DestinationT],
        delete: Callable[[DestinationT], None],
        before: dict[int, _Seen],
        now: float,
    ) -> int:
        """Delete the inactive destinations of one kind; return how many. before: what the previous look has seen."""
        with self._monitor.lock, self._monitor.all_or_broken:
            numbers = registry.numbers()
        deleted = 0
        for part in in_sections(numbers):
            with self._monitor.lock, self._monitor.all_or_broken:
                found = map(registry.numbered_for_report, part)
                due = self._due([destination for destination in found if destination is not None], before, now)
            for destination in due:
                deleted += self._delete(registry, destination.number, delete)
        return deleted

    def _due(self, destinations: Sequence[DestinationT], before: dict[int, _Seen], now: float) -> list[DestinationT]:
        """Return the destinations without work for long enough, and note the work of others. Requires: the lock."""
        due: list[DestinationT] = []
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

    def _delete(
        self, registry: DestinationRegistry[DestinationT], number: int, delete: Callable[[DestinationT], None]
    ) -> bool:
        """Delete a destination, unless it is gone or came into use since; return whether it was deleted.

        Requires: no lock.
        """
        with self._monitor.lock, self._monitor.while_open:
            if not registry.has(number):
                return False
            destination = registry.open_to_delete(number)
            seen = self._seen.pop(destination.number)
            if not destination.is_open or not destination.is_unused or _work(destination) != seen.work:
                return False
            if self._transactions.use_destinations((destination.number,)):
                return False
            delete(destination)
            destination.lifecycle = Lifecycle.DELETED_AS_INACTIVE
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        return True


def _work(destination: DestinationState) -> tuple[int, int]:
    """Return figures that change with every use. Requires: the lock."""
    return destination.enqueued, destination.counters.delivered
