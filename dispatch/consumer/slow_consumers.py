"""Slow consumers: consumers that neither take nor settle, although they hold messages or could have some.

Once a second the counters of each consumer are compared with its counters of a second ago, so takes and acks do no work
for this. Nobody waits for a slow consumer. Its on_slow is called, and it loses its precedence: messages that are
assigned to it and not taken become free for other consumers, except the messages of groups that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ...store.environment.late_log import LateLogger
from ..core.areas.list_order import may_have_messages
from ..core.model.destination import CoreConsumer
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch")


def notice_slow(monitor: Monitor, consumers: Iterable[CoreConsumer], now: float, seconds: float) -> int:
    """Measure the rate of each consumer and return how many have become slow. Requires: the lock.

    seconds: time since the last call. The on_slow of each is added to the callbacks that are due.
    """
    noticed = 0
    for consumer in consumers:
        activity = consumer.activity
        taken = consumer.delivered - activity.counts_seen[0]
        activity.messages_per_second = taken / seconds if taken else 0.0
        has_moved = _has_moved(consumer)
        if has_moved or _is_at_rest(consumer):
            activity.moved_at = now
            activity.is_slow = False
        elif not activity.is_slow and activity.slow_seconds is not None:
            if now - activity.moved_at >= activity.slow_seconds:
                noticed += 1
                activity.is_slow = True
                _tell(monitor, consumer)
    return noticed


def _is_at_rest(consumer: CoreConsumer) -> bool:
    """Return whether the consumer holds no message and there is none for it."""
    if consumer.in_flight:
        return False
    return consumer.destination.holds_up(consumer) or not may_have_messages(consumer.selector_group)


def _has_moved(consumer: CoreConsumer) -> bool:
    """Return whether the consumer has taken or settled something since the last check."""
    seen = consumer.delivered, consumer.in_flight
    if seen == consumer.activity.counts_seen:
        return False
    consumer.activity.counts_seen = seen
    return True


def _tell(monitor: Monitor, consumer: CoreConsumer) -> None:
    destination, activity = consumer.destination, consumer.activity
    logger.warning(
        "a consumer of %r has neither taken nor settled anything for %g s and holds %d messages",
        destination.name,
        activity.slow_seconds,
        consumer.in_flight,
        event="consumer_slow",
    )
    destination.distribution.revoke(consumer)
    destination.distribution.reoffer_stranded()
    if activity.on_slow is not None:
        monitor.deferred.append(partial(activity.on_slow, consumer))
