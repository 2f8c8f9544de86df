"""QueueRegistry: all queues of a store. A queue is a row until it is used, and an object while it is open."""

from __future__ import annotations

from ....store.format.destination_table import DestinationTable
from ....store.format.state_record import QUEUE
from ....store.writers.destination_writer import DestinationWriter
from ..model.destination import DestinationStateParts
from ..monitor import Monitor
from .destination_opener import DestinationOpener
from .destination_registry import DestinationRegistry
from .overhead import OPEN_QUEUE_BYTES
from .queue_state import QueueState


class QueueRegistry(DestinationRegistry[QueueState]):
    """All queues by name and number. The state lock guards it."""

    kind = QUEUE
    open_bytes = OPEN_QUEUE_BYTES

    def __init__(
        self,
        monitor: Monitor,
        writer: DestinationWriter,
        rows: DestinationTable,
        opener: DestinationOpener,
        destination_state_parts: DestinationStateParts,
    ) -> None:
        super().__init__(monitor, writer, rows, opener)
        self._destination_state_parts = destination_state_parts
        # Paused queues by number, in the order in which they were paused.
        self.paused: dict[int, QueueState] = {}

    def _make(self, number: int, name: str) -> QueueState:
        return QueueState(self._destination_state_parts, number, name)

    def create(self, name: str, *, is_temporary: bool = False) -> QueueState:
        """Record a new queue, which is not synced yet, and return its open state. Requires: the lock. StoreFull."""
        with self._opener.new_row(name, self.open_bytes):
            made = self._writer.create(name, QUEUE, is_temporary=is_temporary)
            return self._add(made.number, name)

    def restore(self, used: set[int]) -> list[QueueState]:
        """Open the queues that are in use after an open of the store; return those that have messages with groups.

        used: numbers of queues with messages, prepared transactions included. The caller charges for all queues
        afterwards. Requires: the lock.
        """
        with_message_groups: list[QueueState] = []
        for known in self._rows.values():
            if known.kind == QUEUE and (known.has_message_groups or known.number in used):
                queue = self._add(known.number, known.name)
                if known.has_message_groups:
                    queue.has_message_groups = True
                    with_message_groups.append(queue)
        return with_message_groups

    def remove(self, deleted: QueueState) -> None:
        """Forget a deleted queue, paused or not. Requires: the lock."""
        super().remove(deleted)
        self.paused.pop(deleted.number, None)
