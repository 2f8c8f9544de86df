"""MessageGroupQueues: prepare a queue for its first message with a group.

A record in the journal says for the life of the queue that it has such messages.
"""

from __future__ import annotations

from ....store.writers.destination_writer import DestinationWriter
from ..model.destination import CoreDestination, Distribution
from ..model.distribution_roles import AbstractDistributionChooser
from ..monitor import Monitor
from .overhead import MESSAGE_GROUPS_BYTES, DestinationOverhead


class MessageGroupQueues:
    """Notes which queues have messages with groups. The state lock guards it."""

    def __init__(
        self,
        monitor: Monitor,
        writer: DestinationWriter,
        overhead: DestinationOverhead,
        distribution_chooser: AbstractDistributionChooser[CoreDestination, Distribution],
    ) -> None:
        self._monitor = monitor
        self._writer = writer
        self._overhead = overhead
        self._distribution_chooser = distribution_chooser

    def prepare(self, queue: CoreDestination) -> None:
        """Prepare a queue for its first message with a group. Requires: no lock."""
        if queue.keeps_message_groups:
            with self._monitor.lock, self._monitor.while_open:
                queue.raise_if_not_open()
                self.assign_by_message_group(queue)

    def assign_by_message_group(self, queue: CoreDestination) -> None:
        """Assign the messages of a queue by group from now on, also after a restart.

        StoreFull: memory or disk has no room. StateError: the queue has a distribution that may not be replaced.
        Nothing has changed then. Requires: the lock.
        """
        if queue.has_message_groups:
            return
        self._distribution_chooser.require_assignable(queue)  # before the journal records that there are groups
        with self._overhead.charge_one(MESSAGE_GROUPS_BYTES):
            self._writer.note_message_groups(queue.number)
            queue.has_message_groups = True
        self._distribution_chooser.begin_assigning(queue)
