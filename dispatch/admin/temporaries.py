"""TemporaryDestinations: queues and topics that end with their handle, with the store, or at the next open.

A flag in the destination's record marks it as temporary. So an open finds the temporary destinations that a killed
process left, and deletes them before anybody sees them. A destination with messages in a transaction without an outcome
stays until the transaction is decided; the background tries again.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.environment.late_log import LateLogger
from ...store.errors import ForebayError, StoreFull, TransactionError
from ...store.format.destination_table import DestinationTable
from ...store.format.state_record import TOPIC
from ..config.temporary_names import TEMPORARY_QUEUE, TEMPORARY_TOPIC, temporary_name
from ..core.confirmer import Confirmer
from ..core.destinations.queue_registry import QueueRegistry
from ..core.destinations.queue_state import QueueState
from ..core.monitor import Monitor
from ..topics.state.topic_state import TopicState
from ..topics.topic_admin import TopicAdmin
from ..topics.topic_registry import TopicRegistry
from .queue_admin import QueueAdmin

logger = LateLogger("forebay.dispatch")


class TemporaryDestinations:
    """Makes and deletes temporary destinations. The state lock guards its state."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        rows: DestinationTable,
        confirmer: Confirmer,
        queues: QueueRegistry,
        topics: TopicRegistry,
        queue_admin: QueueAdmin,
        topic_admin: TopicAdmin,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._monitor = monitor
        self._rows = rows
        self._confirmer = confirmer
        self._queues = queues
        self._topics = topics
        self._queue_admin = queue_admin
        self._topic_admin = topic_admin
        self._random_bytes = random_bytes
        # Numbers of temporary destinations without a handle. Requires: the lock.
        self._released: dict[int, None] = {}

    def queue(self, confirmer: Confirmer) -> QueueState:
        """Make a temporary queue. Raises StoreFull, StoreFailed or Closed. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            name = temporary_name(TEMPORARY_QUEUE, self._random_bytes)
            queue = self._queues.create(name, is_temporary=True)
            journal_end = confirmer.journal_end
        confirmer.confirm(journal_end)
        return queue

    def topic(self) -> TopicState:
        """Make a temporary topic. Raises StoreFull, StoreFailed or Closed. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            topic = self._topics.create(temporary_name(TEMPORARY_TOPIC, self._random_bytes), is_temporary=True)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        return topic

    def restore(self) -> None:
        """Take over temporary destinations that a killed process left without a handle. Requires: the lock."""
        self._released = dict.fromkeys(self._numbers())

    def _numbers(self) -> list[int]:
        """Return the numbers of all temporary destinations. O(destinations)."""
        return [destination_number for destination_number, known in self._rows.items() if known.is_temporary]

    def release(self, destination_number: int) -> None:
        """Delete a destination whose handle is closed, now or as soon as possible. A second call does nothing.

        Requires: no lock.
        """
        with self._monitor.lock, self._monitor.all_or_broken:
            if self._monitor.is_closed:
                return
            self._released[destination_number] = None
        self.delete_released()

    def delete_released(self) -> int:
        """Delete temporary destinations without a handle; return how many were deleted. Requires: no lock."""
        if not self._released:
            return 0
        with self._monitor.lock, self._monitor.while_open:
            deleted = sum(self._delete(destination_number) for destination_number in list(self._released))
            journal_end = self._confirmer.journal_end
        try:
            if deleted:
                self._confirmer.confirm(journal_end)
        finally:
            self._monitor.run_deferred()
        return deleted

    def _delete(self, destination_number: int) -> bool:
        """Delete a destination without a handle, unless it is gone already; return False if it must wait."""
        try:
            is_deleted = self._delete_at_once(destination_number)
        except (StoreFull, TransactionError) as error:
            logger.debug("a temporary destination is deleted later: %s", error, event="temporary_left")
            return False
        del self._released[destination_number]
        return is_deleted

    def _delete_at_once(self, destination_number: int) -> bool:
        """Delete a destination now; return False if it is gone already. StoreFull, TransactionError."""
        destination = self._rows.get(destination_number)
        if destination is None:
            return False
        if destination.kind == TOPIC:
            self._topic_admin.delete_locked(self._topics.open_to_delete(destination_number))
        else:
            self._queue_admin.delete_locked(self._queues.open_to_delete(destination_number))
        return True

    def delete_all(self) -> None:
        """Delete all temporary destinations, because the store closes. Requires: the lock.

        The next open deletes those whose deletion fails.
        """
        for destination_number in self._numbers():
            try:
                self._delete_at_once(destination_number)
            except ForebayError as error:
                logger.debug("a temporary destination is left to the next open: %s", error, event="temporary_left")
        self._released.clear()
