"""Stuck consumers: those that wait for messages and get none, although their queue has some.

Once a second each consumer's counters are compared with those of before. One
that has waited for two seconds is explained in the log, once until it moves
again. Nothing else is done about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ...store.late_log import LateLogger
from ..core.deliveries.delivery import Delivery, is_seen
from ..core.model import Taker

logger = LateLogger("forebay.dispatch")

STUCK_SECONDS: Final = 2.0
TOLD_AGAIN_SECONDS: Final = 600.0
"""A consumer that was told of is not told of again for so long, also where it moved in between."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""The same where there was nothing to tell after all."""
LOOK_MAX: Final = 2_000
"""Looked at a second, some 10 ms under the lock. Of more consumers each is looked at less often."""
TELL_MAX: Final = 10
"""Explained at a time: each costs what is in flight in its queue."""


class StuckConsumers:
    """Looks for them, and says why they are."""

    def __init__(self, why: Callable[[Taker], tuple[int, str] | None]) -> None:
        """why: the level of the log and the sentence for a consumer; None where there is nothing to tell."""
        self._why = why
        self._stuck: list[Taker] = []
        self._at = 0
        """How many are before those that are looked at next."""

    def check(self, consumers: Sequence[Taker], now: float) -> None:
        """Find those that are stuck, among at most LOOK_MAX of all consumers, in turns. Requires: the lock."""
        if self._at >= len(consumers):
            self._at = 0
        begin, self._at = self._at, self._at + LOOK_MAX
        for consumer in consumers[begin : self._at]:
            activity = consumer.activity
            seen = (consumer.delivered, consumer.in_flight)
            if seen == activity.counts_seen:
                seen = activity.counts_seen  # one tuple for both: there are thousands
            if not consumer.is_waiting or seen != activity.counts_when_stuck or not consumer.destination.depth:
                activity.counts_when_stuck = seen
                activity.stuck_since = now
            elif now - activity.stuck_since >= STUCK_SECONDS and now >= activity.stuck_told_again_at:
                if len(self._stuck) < TELL_MAX:
                    self._stuck.append(consumer)
                    activity.stuck_told_again_at = now + TOLD_AGAIN_SECONDS

    def tell(self) -> int:
        """Log why those that were found are stuck; return how many there were. Requires: no lock."""
        stuck, self._stuck = self._stuck, []
        for consumer in stuck:
            found = self._why(consumer)
            if found is None:
                consumer.activity.stuck_told_again_at -= TOLD_AGAIN_SECONDS - LOOK_AGAIN_SECONDS
            else:
                level, sentence = found
                logger.log(level, "nothing for %g s: %s", STUCK_SECONDS, sentence, event="consumer_stuck")
        return len(stuck)


class AckReminder:
    """Warns once for each open store that a consumer was closed without having acknowledged anything."""

    def __init__(self) -> None:
        self._is_said = False

    def closes(self, consumer: Taker, held: Sequence[Delivery]) -> None:
        """Look at a consumer that closes, and at what it holds. O(held) until it is said. Requires: the lock."""
        if not self._is_said and 0 < len(held) == consumer.delivered and any(map(is_seen, held)):
            self._is_said = True
            logger.warning(
                "a consumer of %r closed and had acknowledged none of its %d deliveries, so they come again: "
                "call ack() of each delivery, or of the consumer, when it is processed",
                consumer.destination.name,
                len(held),
                event="ack_forgotten",
            )


def level_of(*, is_stuck: bool) -> int:
    """Return the level for what only somebody's doing ends, and for what may be meant so."""
    return logging.WARNING if is_stuck else logging.INFO
