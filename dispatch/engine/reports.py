"""Reports: what metrics, `health` and the status say about a store, gathered from its owners.

Reports only change the live curve, which is brought up to date, and read no disk. They hold the lock for at most some
hundred destinations, subscriptions or lists, so each part is of its own moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from ...cache.process.guard import ProcessStatistics
from ...cache.process.process_memory import id_and_resident_bytes
from ...store.disk_use import DiskUse
from ...store.histogram import DurationHistogram, DurationStatistics
from ...store.message_store import MessageStore
from ..admin.oldest import OldestMessages
from ..admission.deduplication import DuplicateWindows
from ..consumer.consumers import Consumers
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.memory_parts import MemoryParts
from ..core.areas.observer import ListObserver
from ..core.areas.target_area import TargetArea
from ..core.destinations.queue_registry import Queues
from ..core.monitor import Monitor, in_sections
from ..loading.eager import EagerLoader
from ..topics.registry import Topics
from .background import Background
from .duties import FailingDuty
from .health import Health, health_of
from .maintenance import Maintenance
from .statistics import (
    DestinationStatistics,
    Statistics,
    TopicStatistics,
    destination_statistics,
    statistics_of_topic,
)
from .status import data_log_rows


class Reports:
    """All reports about one open store as a whole. No method requires the lock unless it says so."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        disk_use: DiskUse,
        sync_durations: DurationHistogram,
        checkpoint_durations: DurationHistogram,
        memory: MemoryParts,
        queues: Queues,
        topics: Topics,
        target_area: TargetArea,
        dispatch_area: DispatchArea,
        watch: ListObserver,
        windows: DuplicateWindows,
        oldest: OldestMessages,
        loader: EagerLoader,
        consumers: Consumers,
        maintenance: Maintenance,
        background: Background,
        process_statistics: Callable[[], ProcessStatistics | None],
    ) -> None:
        """Make it.

        watch: has the live curve.
        process_statistics: returns the last sample of the process's memory, or None.
        """
        self._monitor = monitor
        self._store = store
        self._disk_use = disk_use
        self._sync_durations = sync_durations
        self._checkpoint_durations = checkpoint_durations
        self._memory = memory
        self._queues = queues
        self._topics = topics
        self._target_area = target_area
        self._dispatch_area = dispatch_area
        self._watch = watch
        self._windows = windows
        self._oldest = oldest
        self._loader = loader
        self._consumers = consumers
        self._maintenance = maintenance
        self._background = background
        self._process_statistics = process_statistics

    def statistics(self) -> Statistics:
        """Return a snapshot of each destination and of the rest. O(destinations + data logs), no disk.

        It holds the lock for at most some hundred destinations or subscriptions.
        """
        with self._monitor.lock:
            numbers, topic_numbers = self._queues.numbers(), self._topics.numbers()
        destinations: dict[str, DestinationStatistics] = {}
        for part in in_sections(numbers):
            with self._monitor.lock:
                for number in part:
                    queue = self._queues.numbered_for_report(number)
                    if queue is not None:
                        destinations[queue.name] = destination_statistics(queue, self._oldest.age_seconds(queue))
        topics: dict[str, TopicStatistics] = {}
        for number in topic_numbers:
            with self._monitor.lock:
                topic = self._topics.numbered_for_report(number)
            if topic is not None:
                topics[topic.name] = statistics_of_topic(self._monitor, topic)
        self._observe_lists()
        with self._monitor.lock:
            self._memory.destinations.settle()  # what hosts have dropped is no longer charged
            return Statistics(
                dataclasses.replace(self._memory.budget.statistics(), curve=self._watch.curve()),
                self._disk_use.statistics(),
                self._memory.overflow.statistics,
                destinations,
                topics,
                self._memory.memories.cache_statistics(),
                self._process_statistics(),
                self._failing(),
                self._windows.forgotten,
                self._durations(),
            )

    def _observe_lists(self) -> None:
        """Bring the live curve up to date, some lists at a time. Requires: no lock."""
        with self._monitor.lock:
            lists = list(self._target_area.lists)
        for part in in_sections(lists):
            with self._monitor.lock, self._monitor.whole:
                for target in part:
                    if target in self._target_area.lists:
                        self._watch.sample(target)

    def _failing(self) -> dict[str, FailingDuty]:
        """Return failing background work by name."""
        return self._maintenance.failing() | self._background.failing()

    def _durations(self) -> dict[str, DurationStatistics]:
        """Return durations of waits for disks and for messages. Requires: the lock."""
        return {
            "sync": self._sync_durations.statistics(),
            "checkpoint": self._checkpoint_durations.statistics(),
            "load": self._loader.durations.statistics(),
            "take": self._consumers.take_durations.statistics(),
        }

    def health(self) -> Health:
        """Return whether the store does everything that it should. O(1), no disk."""
        return health_of(self._monitor, self._store, self._dispatch_area, self._maintenance, self._background)

    def of_the_whole(self) -> dict[str, Any]:
        """Return the status of the store as a whole. O(lanes + data logs), no disk. Requires: no lock."""
        self._observe_lists()
        with self._monitor.lock:
            memory, store = self._memory.budget.statistics(), self._disk_use.statistics()
            tmp_storage, process = self._memory.overflow.statistics, self._process_statistics()
            data_logs = self._disk_use.live_bytes_by_data_log()
            curve, durations = self._watch.recent_curve(), self._durations()
            caches = self._memory.memories.cache_statistics()
        failing = self._failing()
        process_id, resident_bytes = id_and_resident_bytes()
        return {
            "health": dataclasses.asdict(self.health()),
            "memory": {
                "limit_bytes": memory.limit_bytes,
                "held_bytes": memory.held_bytes,
                "held_bytes_max": memory.held_bytes_max,
                "holders": memory.holders,
                "recommended_limit_bytes": curve.recommended_limit_bytes,
                "curve": [[point.limit_bytes, point.hit_ratio] for point in curve.points] if curve.deliveries else [],
            },
            "store": store._asdict(),
            "tmp_storage": dataclasses.asdict(tmp_storage),
            "process": dataclasses.asdict(process) if process is not None else None,
            "failing": {name: dataclasses.asdict(found) for name, found in failing.items()},
            "durations": {name: dataclasses.asdict(found) for name, found in durations.items()},
            "caches": {name: dataclasses.asdict(found) for name, found in caches.items()},
            "forgotten_ids": self._windows.forgotten,
            "pid": process_id,
            "resident_bytes": resident_bytes,
            "data_logs": list(data_log_rows(data_logs)),
        }
