"""QueueAdmin: purge, delete, pause and resume a whole queue.

A purge writes one ack record for each run, 48 bytes whatever its length; with nothing in flight, that is one record for
each lane. A deletion is one record. A crash leaves each record whole or not at all. A pause ends with the process.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.errors import TransactionError
from ...store.writers.destination_writer import DestinationWriter
from ..core.confirmer import Confirmer
from ..core.destinations.queue_registry import QueueRegistry
from ..core.destinations.queue_state import QueueState
from ..core.model.destination import LaneState
from ..core.model.lifecycle import Lifecycle
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from ..transactions.transaction_registry import TransactionRegistry


class QueueAdmin:
    """Purges, deletes, pauses and resumes queues."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        writer: DestinationWriter,
        confirmer: Confirmer,
        queues: QueueRegistry,
        removals: Removals,
        transactions: TransactionRegistry,
    ) -> None:
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._writer = writer
        self._confirmer = confirmer
        self._queues = queues
        self._removals = removals
        self._transactions = transactions

    # ------------------------------------------------------------------ purge

    def purge(self, queue: QueueState) -> int:
        """Remove messages that were pending when the call began, except those in flight; return how many.

        A purge needs the same memory for any number of messages. It holds the state lock for one lane after the other,
        about 80 ms for a million messages. Requires: no lock.
        """
        with self._monitor.lock, self._monitor.while_open:
            lanes = [(lane, lane.published_end) for lane in queue.all_lanes()]
        removed = 0
        for lane, end in lanes:
            at = 0
            while at < end:
                with self._monitor.lock, self._monitor.while_open:
                    at, part = self._purge_part(lane, at, end)
                    removed += part
                    journal_end = self._confirmer.journal_end
                self._confirmer.confirm(journal_end)
        return removed

    def _purge_part(self, lane: LaneState, begin: int, end: int) -> tuple[int, int]:
        """Remove free messages; return (where it ended, how many). It ends before `end` if the index is crowded."""
        stopped = end

        def runs() -> Iterator[tuple[int, int]]:
            nonlocal stopped
            is_first = True
            for first, last in self._removals.free_runs(lane, begin, end):
                if not is_first and self._checkpointer.is_index_crowded:
                    stopped = first
                    return
                is_first = False
                yield first, last

        _, removed = self._removals.remove(lane, runs())
        return stopped, removed

    # ------------------------------------------------------------------ delete

    def delete(self, queue: QueueState) -> None:
        """Delete a queue with its messages, including those not published yet; end its consumers and waiting senders.

        Requires: no lock.

        The state lock is held for about 80 ms for each million messages.
        """
        with self._monitor.lock, self._monitor.while_open:
            self.delete_locked(queue)
            journal_end = self._confirmer.journal_end
        try:
            self._confirmer.confirm(journal_end)
        finally:
            self._monitor.run_deferred()

    def delete_locked(self, queue: QueueState) -> None:
        """Delete a queue; its record is not synced yet. A second call does nothing. Requires: the lock.

        TransactionError: a transaction without an outcome has messages of the queue.
        """
        if not queue.is_open:
            return
        if self._transactions.use_destinations((queue.number,)):
            raise TransactionError(f"a transaction without an outcome knows the queue {queue.name!r}: end it first")
        self._writer.delete(queue.number)
        queue.lifecycle = Lifecycle.DELETED
        self._queues.remove(queue)
        queue.close_consumers()
        queue.end_admission()
        for lane in queue.all_lanes():
            self._removals.empty_lane(lane)
        queue.clear()

    # ------------------------------------------------------------------ pause

    def pause(self, queue: QueueState) -> None:
        """Stop deliveries from the queue; none happens once this returns. Requires: no lock.

        While it is paused, its consumers have NO_DISPATCH as their dispatcher, and wait as if their prefetch were used
        up. So the check costs a queue that is not paused nothing.
        """
        with self._monitor.lock, self._monitor.while_open:
            queue.raise_if_not_open()
            queue.is_paused = True
            self._queues.paused[queue.number] = queue
            for consumer in queue.consumers():
                consumer.follow_destination()

    def resume(self, queue: QueueState) -> None:
        """Let waiting takes of a queue go on, and call callbacks that are due. Requires: no lock."""
        with self._monitor.lock, self._monitor.while_open:
            if queue.is_paused:
                queue.is_paused = False
                self._queues.paused.pop(queue.number, None)
                for selector_group in queue.selector_groups.values():
                    for consumer in selector_group.consumers:
                        consumer.follow_destination()
                    # Each message that came meanwhile has woken one take, which found itself held up.
                    selector_group.wake_takes()
        self._monitor.run_deferred()
