"""StuckConsumers: log why a consumer waits for messages and gets none, although its queue has some.

Once a second the counters of each consumer are compared with its counters of a second ago. If a consumer has waited for
two seconds, the log explains why, once until the consumer moves again. Nothing else is done about a stuck consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...store.environment.late_log import LateLogger
from ..core.model.destination import CoreConsumer

logger = LateLogger("forebay.dispatch")

STUCK_SECONDS: Final = 2.0
TOLD_AGAIN_SECONDS: Final = 600.0
"""Shortest time between two log messages about the same consumer, even if it moved in between."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""Time until the next check if there was no reason to report."""
LOOK_MAX: Final = 2_000
"""Consumers that are checked in one second, which takes about 10 ms under the lock.

If there are more, they take turns.
"""
TELL_MAX: Final = 10
"""Consumers that are explained at a time. Each costs time in proportion to what is in flight in its queue."""


class StuckConsumers:
    """Finds stuck consumers and logs why they are stuck."""

    def __init__(self, why: Callable[[CoreConsumer], tuple[int, str] | None]) -> None:
        """why: returns the log level and the sentence for a consumer, or None if there is nothing to report."""
        self._why = why
        self._stuck: list[CoreConsumer] = []
        # Place in the list of consumers at which the next check begins.
        self._at = 0

    def check(self, consumers: Sequence[CoreConsumer], now: float) -> None:
        """Find stuck consumers among the next LOOK_MAX of these consumers. Requires: the lock."""
        if self._at >= len(consumers):
            self._at = 0
        begin, self._at = self._at, self._at + LOOK_MAX
        for consumer in consumers[begin : self._at]:
            activity = consumer.activity
            seen = (consumer.delivered, consumer.in_flight)
            if seen == activity.counts_seen:
                # One tuple for both attributes, because there are thousands of consumers.
                seen = activity.counts_seen
            if not consumer.is_waiting or seen != activity.counts_when_stuck or not consumer.destination.depth:
                activity.counts_when_stuck = seen
                activity.stuck_since = now
            elif now - activity.stuck_since >= STUCK_SECONDS and now >= activity.stuck_told_again_at:
                if len(self._stuck) < TELL_MAX:
                    self._stuck.append(consumer)
                    activity.stuck_told_again_at = now + TOLD_AGAIN_SECONDS

    def tell(self) -> int:
        """Log why each consumer that `check` found is stuck; return how many there were. Requires: no lock."""
        stuck, self._stuck = self._stuck, []
        for consumer in stuck:
            reason = self._why(consumer)
            if reason is None:
                consumer.activity.stuck_told_again_at -= TOLD_AGAIN_SECONDS - LOOK_AGAIN_SECONDS
            else:
                level, sentence = reason
                logger.log(level, "nothing for %g s: %s", STUCK_SECONDS, sentence, event="consumer_stuck")
        return len(stuck)


def level_of(*, is_stuck: bool) -> int:
    """Return WARNING for a state that only an action of the host ends, and INFO for one that may be intended."""
    return logging.WARNING if is_stuck else logging.INFO
