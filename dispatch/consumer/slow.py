"""Slow consumers: those that neither take nor settle anything, while they hold messages or could have some.

Once a second each consumer's counters are compared with those of before, so
no take and no ack does anything for it. Nobody waits for a slow consumer; it
is told to whoever asked and loses its precedence. What it was assigned and
has not taken others may have, but for what belongs to groups that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ...store.late_log import LateLogger
from ..core.areas.dispatch_area import DispatchArea
from ..core.model import Taker
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch")


def notice(
    dispatch_area: DispatchArea, monitor: Monitor, consumers: Iterable[Taker], now: float, seconds: float
) -> int:
    """Measure each consumer's rate and return how many have become slow. Requires: the lock.

    seconds: since the last look. Callbacks join those that are due.
    """
    noticed = 0
    for consumer in consumers:
        activity = consumer.activity
        taken = consumer.delivered - activity.counts_seen[0]
        activity.messages_per_second = taken / seconds if taken else 0.0
        has_moved = _has_moved(consumer)
        if has_moved or _is_at_rest(dispatch_area, consumer):
            activity.moved_at = now
            activity.is_slow = False
        elif not activity.is_slow and activity.slow_seconds is not None:
            if now - activity.moved_at >= activity.slow_seconds:
                noticed += 1
                activity.is_slow = True
                _tell(monitor, consumer)
    return noticed


def _is_at_rest(dispatch_area: DispatchArea, consumer: Taker) -> bool:
    """Tell whether the consumer holds nothing and there is nothing for it."""
    if consumer.in_flight:
        return False
    return consumer.destination.holds_up(consumer) or not dispatch_area.has_any(consumer.consumer_group)


def _has_moved(consumer: Taker) -> bool:
    """Tell whether the consumer has taken or settled something since the last look."""
    seen = consumer.delivered, consumer.in_flight
    if seen == consumer.activity.counts_seen:
        return False
    consumer.activity.counts_seen = seen
    return True


def _tell(monitor: Monitor, consumer: Taker) -> None:
    queue, activity = consumer.destination, consumer.activity
    logger.warning(
        "a consumer of %r has neither taken nor settled anything for %g s and holds %d messages",
        queue.name,
        activity.slow_seconds,
        consumer.in_flight,
        event="consumer_slow",
    )
    queue.distribution.revoke(consumer)
    queue.distribution.offer_passed_over()
    if activity.on_slow is not None:
        monitor.deferred.append(partial(activity.on_slow, consumer))
