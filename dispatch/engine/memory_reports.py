"""MemoryReports: what the memory of a store is used for, and the live curve of its lists."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ...cache.messages.message_cache import CacheStatistics
from ...cache.process.memory_guard import ProcessStatistics
from ...store.tmp.storage import TmpStorageStatistics
from ..core.memory.curve import Curve
from ..core.memory.memory_owners import MemoryOwners
from ..core.memory.memory_statistics import MemoryStatistics
from ..core.memory.watermarks import Watermarks
from ..core.monitor import Monitor, in_sections
from .process_watch import ProcessWatch


class MemoryReport(NamedTuple):
    """What memory is used for at one moment, with the hit ratio by memory limit."""

    memory: MemoryStatistics
    tmp_storage: TmpStorageStatistics
    caches: dict[str, CacheStatistics]
    process: ProcessStatistics | None


class MemoryReports:
    """Makes reports about the memory of one store."""

    def __init__(self, monitor: Monitor, memory: MemoryOwners, watermarks: Watermarks, process: ProcessWatch) -> None:
        self._monitor = monitor
        self._memory = memory
        self._watermarks = watermarks
        self._process = process

    def observe_lists(self) -> None:
        """Bring the live curve up to date, some lists at a time. Requires: no lock."""
        watermarks = self._watermarks
        with self._monitor.lock:
            lists = list(watermarks.lists)
        for part in in_sections(lists):
            with self._monitor.lock, self._monitor.all_or_broken:
                for target in part:
                    if target in watermarks.lists:
                        watermarks.live_curve.sample(target)

    def since_open(self) -> MemoryReport:
        """Return a report with the curve since the store was opened. Requires: the lock. O(lanes)."""
        self._memory.destination_memory.pay_owed()  # what hosts have dropped is no longer charged
        return self._report(self._watermarks.live_curve.curve())

    def recent(self) -> MemoryReport:
        """Return a report with the curve as of its last sample. Requires: the lock. O(lanes)."""
        return self._report(self._watermarks.live_curve.recent_curve())

    def _report(self, curve: Curve) -> MemoryReport:
        memory = self._memory
        memory.budget.approach_target()
        return MemoryReport(
            dataclasses.replace(MemoryStatistics.of(memory.budget), curve=curve),
            memory.overflow.statistics,
            memory.memories.cache_statistics(),
            self._process.statistics(),
        )
