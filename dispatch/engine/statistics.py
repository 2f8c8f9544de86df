"""Statistics as frozen plain numbers, from which metrics, log lines and pictures are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...cache.budget import MemoryStatistics
from ...cache.message_cache import CacheStatistics
from ...cache.process.guard import ProcessStatistics
from ...store.disk_use import StoreStatistics
from ...store.histogram import DurationStatistics
from ...store.tmp.storage import TmpStorageStatistics
from ..core.model import DestinationState, LaneState
from ..core.monitor import Monitor, in_sections
from ..topics.state import TopicState
from .duties import FailingDuty


class DestinationStatistics(NamedTuple):
    """Counts of messages since the directory was opened. Depth and bytes are the current values."""

    depth: int
    bytes: int
    consumers: int
    slow_consumers: int
    """Consumers that have neither taken nor settled anything for a while; see DestinationPolicy."""
    enqueued: int
    delivered: int
    acknowledged: int
    enqueued_bytes: int
    """Bytes of bodies and headers of all messages that came."""
    dequeued_bytes: int
    """Bytes of bodies and headers of all messages that left: acknowledged, expired, dead-lettered, dropped, moved or
    purged.
    """
    redelivered: int
    """Messages that came back from a consumer, to be delivered again."""
    dead_lettered: int
    """Messages that left after their last attempt, or rejected, with or without a dead-letter queue."""
    misses: int
    """Deliveries for which a take had to read the journal itself, because the eager loader was behind."""
    unreadable: int
    """Messages that were skipped because their bytes do not verify. They stay in the journal."""
    expired: int
    """Messages that left because they expired."""
    dropped: int
    """Messages that the policy dropped for lack of room."""
    blocked_sends: int
    blocked_seconds: float
    is_paused: bool
    ready: int
    """Messages of depth that are neither in flight nor put off by a nack. Messages that are due later are included."""
    in_flight: int
    """Messages of depth that consumers hold, or that undecided transactions have acknowledged."""
    oldest_seconds: float | None
    """How long ago the oldest pending message was sent, as of the last status. None if nothing is pending, or if it is
    not known: `status_interval_seconds` is None, the queue is not among the hundred busiest, or it is a topic's.
    """


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    enqueued: int
    """Messages sent since the directory was opened, including those without a subscription."""
    enqueued_bytes: int
    """Bytes of their bodies and headers."""
    consumers: int
    """Consumers of durable subscriptions and of others."""
    dropped: int
    """Messages that the policy dropped for lack of room."""
    evicted: int
    """Messages that slow subscribers lost, counted once for each subscriber."""
    retained_messages: int
    """Messages that the policy retains (`retain_seconds`, `retain_bytes`), needed by subscriptions or not."""
    retained_bytes: int
    blocked_sends: int
    blocked_seconds: float
    subscriptions: dict[str, DestinationStatistics]
    """Figures of each durable subscription, by name."""


@dataclass(frozen=True, slots=True)
class Statistics:
    memory: MemoryStatistics
    store: StoreStatistics
    tmp_storage: TmpStorageStatistics
    """Figures of the overflow of non-persistent messages."""
    destinations: dict[str, DestinationStatistics]
    """Figures of queues, by name."""
    topics: dict[str, TopicStatistics]
    caches: dict[str, CacheStatistics]
    """Figures of "pending_cache" and "head_queue_cache"."""
    process: ProcessStatistics | None
    """None before the first look at the process, about a second after the open."""
    failing: dict[str, FailingDuty]
    """Failing background work by name: "sync", "checkpoint", "cleanup", "loader" and others. Empty if all works."""
    forgotten_ids: int
    """Message ids that were forgotten for lack of memory before their duplicate_window was full, since the open."""
    durations: dict[str, DurationStatistics]
    """Durations of each "sync" of the journal, "checkpoint", "load" of the eager loader or of a take, and "take" that
    found nothing in RAM and returned messages. Takes from RAM are not measured.
    """


def destination_statistics(queue: DestinationState, oldest_seconds: float | None = None) -> DestinationStatistics:
    """Return the figures of a queue.

    O(consumers), with one walk over the lanes: a thousand queues are scraped once a second. Requires: the lock.
    """
    lanes: list[LaneState] = [*filter(None, queue.lanes), *filter(None, queue.non_persistent_lanes)]
    volume = queue.volume(lanes)
    in_flight = put_off = 0
    acknowledged, redelivered, unreadable, expired = queue.earlier[3:7]
    for lane in lanes:
        in_flight += len(lane.in_flight)
        put_off += lane.parked.count + lane.pending_lane.put_off_messages + lane.dead_letters.count
        acknowledged += lane.acknowledged
        redelivered += lane.redelivered
        unreadable += lane.unreadable
        expired += lane.expired
    consumers = slow_consumers = 0
    delivered = queue.delivered
    for consumer in queue.consumers():
        consumers += 1
        slow_consumers += consumer.activity.is_slow
        delivered += consumer.delivered
    # By position, in the order of the fields: keyword arguments would cost as much as everything above.
    return DestinationStatistics(
        volume.depth,
        volume.depth_bytes,
        consumers,
        slow_consumers,
        volume.enqueued,
        delivered,
        acknowledged,
        volume.enqueued_bytes,
        volume.dequeued_bytes,
        redelivered,
        queue.dead_lettered,
        queue.missed,
        unreadable,
        expired,
        queue.dropped,
        queue.blocked_sends,
        queue.blocked_seconds,
        queue.is_paused,
        max(volume.depth - in_flight - put_off, 0),
        in_flight,
        oldest_seconds,
    )


def statistics_of_topic(monitor: Monitor, topic: TopicState, subscriptions_max: int | None = None) -> TopicStatistics:
    """Return the figures of a topic and of its subscriptions. O(subscriptions). Requires: no lock.

    subscriptions_max: most durable subscriptions, the first by name; None: all. The lock is never held for longer than
    a hundred of them take, so the parts are of different moments.
    """
    with monitor.lock:
        names = topic.durable
    subscriptions: dict[str, DestinationStatistics] = {}
    for part in in_sections(names[:subscriptions_max]):
        with monitor.lock:
            for name in part:
                if (seen := topic.subscription_for_report(name)) is not None:
                    subscriptions[name] = destination_statistics(seen)
    with monitor.lock:
        retained_messages, retained_bytes = topic.retained
        return TopicStatistics(
            enqueued=topic.enqueued,
            enqueued_bytes=topic.enqueued_bytes,
            dropped=topic.dropped,
            evicted=topic.evicted,
            retained_messages=retained_messages,
            retained_bytes=retained_bytes,
            blocked_sends=topic.blocked_sends,
            blocked_seconds=topic.blocked_seconds,
            consumers=sum(1 for subscription in topic.online for _ in subscription.consumers()),
            subscriptions=subscriptions,
        )
