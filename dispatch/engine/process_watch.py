"""ProcessWatch: the task that compares the memory of the process with the ledger."""

from __future__ import annotations

from ...cache.accounting.budget import Budget
from ...cache.process.memory_guard import MemoryGuard, ProcessStatistics
from ..core.monitor import Monitor


class ProcessWatch:
    """Has the MemoryGuard take its samples. Requires: one thread at a time calls `step`."""

    def __init__(self, monitor: Monitor, budget: Budget, guard: MemoryGuard | None) -> None:
        """Make the task. guard: takes the samples; None: no memory is compared."""
        self._monitor = monitor
        self._budget = budget
        self.guard = guard

    def step(self) -> int:
        """Let the guard take a sample if one is due; return 0, because no work was done. Requires: no lock."""
        if self.guard is not None:
            self.guard.sample(self._monitor.monotonic(), self._budget.held_bytes)
        return 0

    def statistics(self) -> ProcessStatistics | None:
        """Return the last sample. None: there is none."""
        return self.guard.statistics if self.guard is not None else None
