"""Reports as frozen plain numbers: what every metric, log line and picture is made from."""

from __future__ import annotations

from dataclasses import dataclass

from ..cache.budget import MemoryStatistics
from ..cache.memory_guard import ProcessStatistics
from ..cache.message_cache import CacheStatistics
from ..store.store_statistics import StoreStatistics
from ..store.tmp_storage import TmpStorageStatistics


@dataclass(frozen=True, slots=True)
class DestinationStatistics:
    """Messages, counted since the directory was opened, but for depth and bytes, which are of now."""

    depth: int
    bytes: int
    consumers: int
    slow_consumers: int
    """Of them, those that have neither taken nor settled anything for a while; see DestinationPolicy."""
    enqueued: int
    delivered: int
    acknowledged: int
    redelivered: int
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


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    enqueued: int
    """Messages sent since the directory was opened, those that nobody subscribed to included."""
    consumers: int
    """Of durable subscriptions and of others."""
    dropped: int
    """Messages that were given up for want of room, because the policy says so."""
    evicted: int
    """Messages that slow subscribers lost, each counted once for each of them."""
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
