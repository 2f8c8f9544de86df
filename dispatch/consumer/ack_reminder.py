"""AckReminder: warn a host that takes messages and never acknowledges them."""

from __future__ import annotations

from collections.abc import Sequence

from ...store.environment.late_log import LateLogger
from ..core.model.delivery import Delivery, is_seen
from ..core.model.destination import CoreConsumer

logger = LateLogger("forebay.dispatch")


class AckReminder:
    """Warns once for each open store that a consumer was closed without having acknowledged anything."""

    def __init__(self) -> None:
        self._is_said = False

    def closes(self, consumer: CoreConsumer, held: Sequence[Delivery]) -> None:
        """Check a consumer that closes, and the deliveries it holds. O(held) until the warning. Requires: the lock."""
        if not self._is_said and 0 < len(held) == consumer.delivered and any(map(is_seen, held)):
            self._is_said = True
            logger.warning(
                "a consumer of %r closed and had acknowledged none of its %d deliveries, so they come again: "
                "call ack() of each delivery, or of the consumer, when it is processed",
                consumer.destination.name,
                len(held),
                event="ack_forgotten",
            )
