"""Gauges: figures of the store and of its process, which the broker process sends twice a second."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import forebay
from forebay.cache.process.process_memory import unique_set_bytes

from .scenario import DestinationPlan

_IO: Final = Path("/proc/self/io")


class Gauges:
    """The gauges of one open store. uss_bytes_before: memory of the process before the open, all of it imported."""

    def __init__(self, bay: forebay.Forebay, destinations: Sequence[DestinationPlan], uss_bytes_before: int) -> None:
        self._bay = bay
        self._uss_bytes_before = uss_bytes_before
        self._protected = [name for each in destinations if each.memory_reserve is not None for name in each.names]
        self._read_bytes_before = _read_bytes()
        # Backlog of the subscription that was farthest behind at the open.
        self._backlog_bytes = max(
            (each.bytes for topic in bay.statistics().topics.values() for each in topic.subscriptions.values()),
            default=0,
        )

    def facts(self) -> dict[str, object]:
        """Return the payload of a GAUGES event."""
        statistics = self._bay.statistics()
        topics = statistics.topics.values()
        destinations = list(statistics.destinations.values())
        protected = [statistics.destinations[name] for name in self._protected if name in statistics.destinations]
        destinations += [each for topic in topics for each in topic.subscriptions.values()]
        read_bytes = _read_bytes()
        return {
            "held_bytes": statistics.memory.held_bytes,
            "held_bytes_max": statistics.memory.held_bytes_max,
            "limit_bytes": statistics.memory.limit_bytes,
            "uss_bytes": unique_set_bytes() - self._uss_bytes_before,
            "spilled_bytes": statistics.tmp_storage.bytes,
            "journal_bytes": statistics.store.journal_bytes,
            "depth": sum(destination.depth for destination in destinations),
            "delivered": sum(destination.delivered for destination in destinations),
            "misses": sum(destination.misses for destination in destinations),
            "blocked_seconds": sum(destination.blocked_seconds for destination in destinations)
            + sum(topic.blocked_seconds for topic in topics),
            "protected_delivered": sum(destination.delivered for destination in protected),
            "protected_misses": sum(destination.misses for destination in protected),
            "read_bytes": read_bytes and read_bytes - self._read_bytes_before,
            "topic_bytes": self._backlog_bytes + sum(topic.enqueued_bytes for topic in topics),
            "spread_bytes": max((_spread_bytes(topic) for topic in topics), default=0),
            "reach_bytes": statistics.caches["pending_cache"].share_bytes // 2,
        }


def _spread_bytes(topic: forebay.TopicStatistics) -> int:
    """Return the greatest distance, in bytes, between subscriptions of consumers with one name."""
    names: dict[str, list[int]] = {}
    for title, subscription in topic.subscriptions.items():
        names.setdefault(title.rpartition(".")[0], []).append(subscription.bytes)
    return max((max(depths) - min(depths) for depths in names.values()), default=0)


def _read_bytes() -> int:
    """Return the bytes that this process has read from files; 0: the system does not count them."""
    try:
        lines = _IO.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("rchar:")), 0)
