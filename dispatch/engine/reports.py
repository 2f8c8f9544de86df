"""Reports: what metrics and the status say about a store, gathered from its owners.

A report reads no disk. It brings the live curve up to date, and changes nothing else. It holds the lock for at most
some hundred destinations, subscriptions or lists at a time, so its parts are of different moments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...cache.process.process_memory import id_and_resident_bytes
from ...store.maintenance.disk_use import DiskUse
from ...store.structures.histogram import DurationHistogram, DurationStatistics
from ..admission.duplicate_windows import DuplicateWindows
from ..core.monitor import Monitor
from .destination_reports import DestinationReports
from .health import HealthCheck
from .memory_reports import MemoryReports
from .statistics import Statistics
from .status import data_log_rows


class Reports:
    """All reports about one open store as a whole. No method requires the lock unless it says so."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        check: HealthCheck,
        destinations: DestinationReports,
        memory: MemoryReports,
        disk_use: DiskUse,
        windows: DuplicateWindows,
        durations: Mapping[str, DurationHistogram],
    ) -> None:
        """Make the reports. durations: how long waits take, by the name of what is waited for, such as "sync"."""
        self._monitor = monitor
        self._check = check
        self._destinations = destinations
        self._memory = memory
        self._disk_use = disk_use
        self._windows = windows
        self._durations = durations

    def statistics(self) -> Statistics:
        """Return a snapshot of each destination and of the rest. O(destinations + data logs), no disk.

        It holds the lock for at most some hundred destinations or subscriptions at a time.
        """
        destinations, topics = self._destinations.statistics()
        self._memory.observe_lists()
        with self._monitor.lock:
            report = self._memory.since_open()
            return Statistics(
                report.memory,
                self._disk_use.statistics(),
                report.tmp_storage,
                destinations,
                topics,
                report.caches,
                report.process,
                self._check.failing(),
                self._windows.forgotten,
                self._measured(),
            )

    def _measured(self) -> dict[str, DurationStatistics]:
        """Return the durations so far. Requires: the lock."""
        return {name: durations.statistics() for name, durations in self._durations.items()}

    def of_the_whole(self) -> dict[str, Any]:
        """Return the status of the store as a whole. O(lanes + data logs), no disk. Requires: no lock."""
        self._memory.observe_lists()
        with self._monitor.lock:
            report, store = self._memory.recent(), self._disk_use.statistics()
            data_logs, durations = self._disk_use.live_bytes_by_data_log(), self._measured()
        memory, process = report.memory, report.process
        failing = self._check.failing()
        process_id, resident_bytes = id_and_resident_bytes()
        return {
            "health": dataclasses.asdict(self._check.health()),
            "memory": {
                "limit_bytes": memory.limit_bytes,
                "held_bytes": memory.held_bytes,
                "held_bytes_max": memory.held_bytes_max,
                "holders": memory.holders,
                "recommended_limit_bytes": memory.curve.recommended_limit_bytes,
                "curve": [[point.limit_bytes, point.hit_ratio] for point in memory.curve.points]
                if memory.curve.deliveries
                else [],
            },
            "store": store._asdict(),
            "tmp_storage": dataclasses.asdict(report.tmp_storage),
            "process": dataclasses.asdict(process) if process is not None else None,
            "failing": {name: dataclasses.asdict(found) for name, found in failing.items()},
            "durations": {name: dataclasses.asdict(found) for name, found in durations.items()},
            "caches": {name: dataclasses.asdict(found) for name, found in report.caches.items()},
            "forgotten_ids": self._windows.forgotten,
            "pid": process_id,
            "resident_bytes": resident_bytes,
            "data_logs": list(data_log_rows(data_logs)),
        }
