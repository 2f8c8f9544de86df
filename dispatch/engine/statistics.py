"""Reports as frozen plain numbers: what every metric, log line and picture is made from."""

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
    """Messages, counted since the directory was opened, but for depth and bytes, which are of now."""

    depth: int
    bytes: int
    consumers: int
    slow_consumers: int
    """Of them, those that have neither taken nor settled anything for a while; see DestinationPolicy."""
    enqueued: int
    delivered: int
    acknowledged: int
    enqueued_bytes: int
    """Bodies and headers of what came, and"""
    dequeued_bytes: int
    """of what left, whatever way: acknowledged, expired, dead-lettered, dropped, moved or purged."""
    redelivered: int
    """Came back from a consumer, to be delivered again."""
    dead_lettered: int
    """Left it after their last attempt, or rejected, for its dead-letter queue or for nowhere."""
    misses: int
    """Deliveries that a take had to read from the journal itself, because the eager loader was behind."""
    unreadable: int
    """Messages passed over because their bytes do not verify; they stay in the journal."""
    expired: int
    """Messages that left because they were too old."""
    dropped: int
    """Messages that were given up for want of room, because the policy says so."""
    blocked_sends: int
    blocked_seconds: float
    is_paused: bool
    ready: int
    """Of depth, messages that are neither in flight nor put off by a nack. Those that are due later are among them."""
    in_flight: int
    """Of depth, messages that consumers hold, or that transactions have acknowledged and not decided about."""
    oldest_seconds: float | None
    """How long ago the oldest pending message was sent, as of the last status; None: nothing is pending, or it is not
    known, because `status_interval_seconds` is None, the queue is not among the hundred busiest, or it is a topic's."""


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    enqueued: int
    """Messages sent since the directory was opened, those that nobody subscribed to included."""
    enqueued_bytes: int
    """Their bodies and headers."""
    consumers: int
    """Of durable subscriptions and of others."""
    dropped: int
    """Messages that were given up for want of room, because the policy says so."""
    evicted: int
    """Messages that slow subscribers lost, each counted once for each of them."""
    retained_messages: int
    """Messages that the policy retains (`retain_seconds`, `retain_bytes`), whoever needs them besides."""
    retained_bytes: int
    blocked_sends: int
    blocked_seconds: float
    subscriptions: dict[str, DestinationStatistics]
    """Of each durable subscription, by name."""


@dataclass(frozen=True, slots=True)
class Statistics:
    memory: MemoryStatistics
    store: StoreStatistics
    tmp_storage: TmpStorageStatistics
    """The overflow of non-persistent messages."""
    destinations: dict[str, DestinationStatistics]
    """Of queues, by name."""
    topics: dict[str, TopicStatistics]
    caches: dict[str, CacheStatistics]
    """"pending_cache" and "head_queue_cache"."""
    process: ProcessStatistics | None
    """None before the first look at the process, about a second after the open."""
    failing: dict[str, FailingDuty]
    """What background work tries in vain, by name: "sync", "checkpoint", "cleanup", "loader" and others. Empty: all is
    well."""
    forgotten_ids: int
    """Message ids that memory had no room for before their duplicate_window was full, since the open."""
    durations: dict[str, DurationStatistics]
    """"sync" of the journal, "checkpoint", "load" of the eager loader or of a take, and "take": of takes that found
    nothing in RAM and returned messages. What finds its messages in RAM is not measured."""


def destination_statistics(queue: DestinationState, oldest_seconds: float | None = None) -> DestinationStatistics:
    """Requires: the lock. O(consumers), and one walk over the lanes: a thousand queues are scraped once a second."""
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
    # By place, in the order of the fields: names would cost as much as all of the above.
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
    """Return what a topic counts, and each of its subscriptions. O(subscriptions). Requires: no lock.

    subscriptions_max: so many durable ones at most, the first by name; None: all. Nobody waits for it longer than for a
    hundred of them: each part is of its own moment.
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
