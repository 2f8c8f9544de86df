"""Statistics: the figures of a store, its queues and its topics. Metrics, status and pages are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...cache.messages.message_cache import CacheStatistics
from ...cache.process.memory_guard import ProcessStatistics
from ...store.maintenance.disk_use import StoreStatistics
from ...store.structures.histogram import DurationStatistics
from ...store.tmp.storage import TmpStorageStatistics
from ..core.destinations.destination_state import DestinationState
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.model.destination import LaneState
from ..core.monitor import Monitor, in_sections
from ..topics.state.topic_state import TopicState
from .periodic_tasks import FailingTask


class DestinationStatistics(NamedTuple):
    """Messages of a destination, counted since the directory was opened; depth and bytes are present values."""

    depth: int
    bytes: int
    consumers: int
    slow_consumers: int
    """Consumers that have neither taken nor settled anything for a while; see DestinationPolicy."""
    enqueued: int
    delivered: int
    acknowledged: int
    enqueued_bytes: int
    """Bytes of the bodies and headers of enqueued messages."""
    dequeued_bytes: int
    """Bytes of messages that left for any reason: acknowledged, expired, dead-lettered, dropped, moved or purged."""
    redelivered: int
    """Messages that came back from a consumer, to be delivered again."""
    dead_lettered: int
    """Messages that left after their last attempt, or rejected, for the dead-letter queue or for good."""
    misses: int
    """Deliveries for which a take had to read the journal itself, because the eager loader was behind."""
    unreadable: int
    """Messages that were skipped because their bytes do not verify; they stay in the journal."""
    expired: int
    """Messages that left because they expired."""
    dropped: int
    """Messages that the policy gave up for want of room."""
    blocked_sends: int
    blocked_seconds: float
    is_paused: bool
    ready: int
    """Part of depth that is neither in flight nor delayed by a nack. It includes messages that are due later."""
    in_flight: int
    """Part of depth that consumers hold, or that undecided transactions have acknowledged."""
    oldest_seconds: float | None
    """How long ago the oldest pending message was sent, as of the last status.

    None: nothing is pending, or it is not known, because `status_interval_seconds` is None, the queue is not among the
    hundred busiest, or it is a topic's.
    """


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """Messages of a topic, counted since the directory was opened; consumers and what it retains are present values."""

    enqueued: int
    """Messages sent since the directory was opened, including those to which nobody had subscribed."""
    enqueued_bytes: int
    """Bytes of their bodies and headers."""
    consumers: int
    """Consumers of durable and other subscriptions."""
    dropped: int
    """Messages that the policy gave up for want of room."""
    evicted: int
    """Messages that slow subscribers lost, counted once for each of them."""
    retained_messages: int
    """Messages that the policy retains (`retain_seconds`, `retain_bytes`), including those that others need."""
    retained_bytes: int
    blocked_sends: int
    blocked_seconds: float
    subscriptions: dict[str, DestinationStatistics]
    """Statistics of each durable subscription, by name."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """What `Forebay.statistics` returns: the figures of a whole store."""

    memory: MemoryStatistics
    store: StoreStatistics
    tmp_storage: TmpStorageStatistics
    """Figures of the overflow of non-persistent messages."""
    destinations: dict[str, DestinationStatistics]
    """Statistics of queues, by name."""
    topics: dict[str, TopicStatistics]
    caches: dict[str, CacheStatistics]
    """Figures of "pending_cache" and "head_queue_cache"."""
    process: ProcessStatistics | None
    """None before the first sample of the process, about a second after the open."""
    failing: dict[str, FailingTask]
    """Failing background work by name: "sync", "checkpoint", "cleanup", "loader" and others. Empty: all is well."""
    forgotten_ids: int
    """Message ids that were forgotten for want of memory before their duplicate_window was full, since the open."""
    durations: dict[str, DurationStatistics]
    """"sync" of the journal, "checkpoint", "load" of the eager loader or of a take, and "take".

    A "take" found nothing in RAM and returned messages. Takes that find their messages in RAM are not measured.
    """


def destination_statistics(queue: DestinationState, oldest_seconds: float | None = None) -> DestinationStatistics:
    """Return the statistics of a queue or subscription. Requires: the lock.

    O(consumers), and one walk over the lanes, because a thousand queues are scraped once a second.
    """
    lanes: list[LaneState] = [*filter(None, queue.lanes), *filter(None, queue.non_persistent_lanes)]
    counters, totals = queue.counters, queue.totals(lanes)
    in_flight = delayed = 0
    acknowledged, redelivered, unreadable, expired = counters.earlier[3:7]
    for lane in lanes:
        in_flight += lane.in_flight_messages
        delayed += lane.delayed_messages + lane.dead_letters.count
        acknowledged += lane.acknowledged
        redelivered += lane.redelivered
        unreadable += lane.unreadable
        expired += lane.expired
    consumers = slow_consumers = 0
    delivered = counters.delivered
    for consumer in queue.consumers():
        consumers += 1
        slow_consumers += consumer.activity.is_slow
        delivered += consumer.delivered
    # By place, in the order of the fields: names would cost as much as everything above.
    return DestinationStatistics(
        totals.depth,
        totals.depth_bytes,
        consumers,
        slow_consumers,
        totals.enqueued,
        delivered,
        acknowledged,
        totals.enqueued_bytes,
        totals.dequeued_bytes,
        redelivered,
        counters.dead_lettered,
        queue.total_misses,
        unreadable,
        expired,
        counters.dropped,
        counters.blocked_sends,
        counters.blocked_seconds,
        queue.is_paused,
        max(totals.depth - in_flight - delayed, 0),
        in_flight,
        oldest_seconds,
    )


def statistics_of_topic(monitor: Monitor, topic: TopicState, subscriptions_max: int | None = None) -> TopicStatistics:
    """Return the statistics of a topic and of each of its subscriptions. O(subscriptions). Requires: no lock.

    subscriptions_max: most durable ones, the first by name; None: all. It holds the lock for at most a hundred of them,
        so each part is of its own moment.
    """
    with monitor.lock:
        names = topic.durable_names
    subscriptions: dict[str, DestinationStatistics] = {}
    for part in in_sections(names[:subscriptions_max]):
        with monitor.lock:
            for name in part:
                if (seen := topic.subscription_for_report(name)) is not None:
                    subscriptions[name] = destination_statistics(seen)
    with monitor.lock:
        counters, (retention_messages, retention_bytes) = topic.counters, topic.retention_depth
        return TopicStatistics(
            enqueued=topic.enqueued,
            enqueued_bytes=topic.enqueued_bytes,
            dropped=counters.dropped,
            evicted=counters.evicted,
            retained_messages=retention_messages,
            retained_bytes=retention_bytes,
            blocked_sends=counters.blocked_sends,
            blocked_seconds=counters.blocked_seconds,
            consumers=sum(1 for subscription in topic.online for _ in subscription.consumers()),
            subscriptions=subscriptions,
        )
