"""ConsumerRegistry: charge, watch and rank the open consumers of a store.

A consumer is entered here when it is made, besides in its queue. When it closes, the registry returns its deliveries
and forgets it. All of this is state in RAM: a crash ends every consumer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from ...cache.accounting.overdraft import Overdraft
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreConsumer
from ..core.redelivery.deadlines import AckDeadlines
from ..core.redelivery.redelivery import Redelivery
from ..distribution.exclusive import ExclusiveConsumers
from .ack_reminder import AckReminder
from .options import ConsumerOptions


class ConsumerRegistry:
    """The open consumers of a store: their charges, their ack deadlines, and the line of exclusive consumers.

    The state lock guards it.
    """

    def __init__(self, memory: Overdraft, deadlines: AckDeadlines, redelivery: Redelivery) -> None:
        """memory: pays for consumers."""
        self._memory = memory
        self._deadlines = deadlines
        self._redelivery = redelivery
        self._exclusives = ExclusiveConsumers()
        self._ack_reminder = AckReminder()

    def reserving(self, options: ConsumerOptions) -> AbstractContextManager[None]:
        """Reserve memory for the deadline of a consumer that is made in the block. StoreFull. Requires: the lock."""
        return self._deadlines.reserving(options.deadline_seconds)

    def charge(self, options: ConsumerOptions) -> None:
        """Charge for a consumer that is about to be made. Requires: the caller has made room, and the lock."""
        self._memory.charge(options.charge_bytes)

    def enter(self, consumer: CoreConsumer, options: ConsumerOptions) -> None:
        """Watch a consumer for its deadline, and let an exclusive one join the line.

        Requires: the lock, the caller is inside `reserving`, and the consumer has joined its queue.
        """
        if options.deadline_seconds:
            self._deadlines.watch(consumer, options.deadline_seconds)
        if options.is_exclusive:
            self._exclusives.join(consumer)

    def leave(self, consumer: CoreConsumer, held: Sequence[Delivery], processed: frozenset[Delivery] | None) -> None:
        """Give back all deliveries of a consumer that closes, and forget it. Requires: the lock.

        held: its deliveries. processed: those that count as tried, as in `Consumer.close`.
        """
        self._memory.release(consumer.charge_bytes)
        self._ack_reminder.closes(consumer, held)
        self._redelivery.return_from_closed(held, processed)
        self._deadlines.unwatch(consumer)
        if consumer.is_exclusive:
            self._exclusives.leave(consumer)
