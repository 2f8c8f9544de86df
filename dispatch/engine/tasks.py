"""The tasks that know when they are due, or need the state lock: a class for each.

They sync, release due messages, measure, compact tmp-storage, remove expired messages, make checkpoints, relocate,
clean up and attest. The TaskRunner runs them in the order in which assembly/background.py lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...cache.spill.overflow import Overflow
from ...store.checkpoint.attestation import Attestation
from ...store.checkpoint.checkpointer import Checkpointer
from ...store.journal.fullness import Fullness
from ...store.journal.journal import Journal
from ...store.journal.journal_syncer import JournalSyncer
from ...store.maintenance.cleanup import Cleanup
from ...store.maintenance.relocation import Relocation
from ..admin.browse import Browsers
from ..admin.expiry import ExpirySweeper
from ..core.monitor import Monitor
from ..core.redelivery.due_messages import DueMessages
from ..core.redelivery.timed_lanes import TimedLanes
from .background import BackgroundRequests
from .measurements import Measurements
from .periodic_tasks import PeriodicTask

RELOCATION_PAUSE_SECONDS: Final = 0.05
"""While there is something to relocate, this is how often the traffic is checked for room."""
ATTEST_SECONDS: Final = 0.1
FULL_CLEANUP_SECONDS: Final = 1.0
"""While sends are refused because the disk or the store is full, cleanup runs at least this often."""


class SyncTask(PeriodicTask):
    """Syncs the journal at intervals."""

    def __init__(self, monitor: Monitor, journal: Journal, syncer: JournalSyncer, interval_seconds: float) -> None:
        super().__init__("sync", self._sync)
        self._monitor = monitor
        self._journal, self._syncer = journal, syncer
        self._interval_seconds = interval_seconds
        self._sync_at = monitor.monotonic() + interval_seconds

    def is_due(self, now: float) -> bool:
        return now >= self._sync_at

    def due_at(self, now: float) -> float:
        return self.next_at(self._sync_at)

    def _sync(self) -> int:
        self._sync_at = self._monitor.monotonic() + self._interval_seconds
        with self._monitor.lock:
            journal_end = self._journal.end
        self._syncer.sync(journal_end)
        return 1


class ReleaseTask(PeriodicTask):
    """Offers messages whose time has come, and releases the memory that ended browsers have given back."""

    def __init__(self, monitor: Monitor, due: DueMessages, browsers: Browsers) -> None:
        super().__init__("release of delayed messages", self._release)
        self._monitor = monitor
        self._due = due
        self._browsers = browsers

    def due_at(self, now: float) -> float:
        return self.next_at(self._due.next_look)

    def _release(self) -> int:
        with self._monitor.lock, self._monitor.all_or_broken:
            done = self._due.release_due()
            self._browsers.release_given_back()
            return done


class MeasureTask(PeriodicTask):
    """Measures consumers and lists once a second."""

    def __init__(self, monitor: Monitor, measurements: Measurements) -> None:
        super().__init__("measurements", self._measure)
        self._monitor = monitor
        self._measurements = measurements

    def is_due(self, now: float) -> bool:
        return now >= self._measurements.due_at

    def due_at(self, now: float) -> float:
        return self.next_at(self._measurements.due_at)

    def _measure(self) -> int:
        with self._monitor.lock, self._monitor.all_or_broken:
            return self._measurements.take(self._monitor.monotonic())


class TmpCompactionTask(PeriodicTask):
    """Frees the space between the live messages of tmp-storage, a few steps at a time."""

    def __init__(self, monitor: Monitor, overflow: Overflow) -> None:
        super().__init__("compaction of tmp-storage", self._compact)
        self._monitor = monitor
        self._overflow = overflow

    def _compact(self) -> int:
        with self._monitor.lock, self._monitor.all_or_broken:
            return self._overflow.compact()


class ExpiryTask(PeriodicTask):
    """Removes expired messages that no consumer meets."""

    def __init__(self, expiry_sweeper: ExpirySweeper, timed: TimedLanes) -> None:
        super().__init__("sweep of expired messages", expiry_sweeper.sweep_due)
        self._timed = timed

    def due_at(self, now: float) -> float:
        return self.next_at(self._timed.next_sweep)


class CheckpointTask(PeriodicTask):
    """Brings the index on disk up to the journal, at intervals and when the store asks."""

    def __init__(
        self,
        monitor: Monitor,
        checkpointer: Checkpointer,
        write_destinations: Callable[[], None],
        timed: TimedLanes,
        interval_seconds: float,
    ) -> None:
        """Make it. write_destinations: writes the summary file for people."""
        super().__init__("checkpoint", self._checkpoint)
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._write_destinations = write_destinations
        self._timed = timed
        self._interval_seconds = interval_seconds
        self._checkpoint_at = monitor.monotonic() + interval_seconds

    def is_due(self, now: float) -> bool:
        return self._checkpointer.need.is_due or now >= self._checkpoint_at

    def due_at(self, now: float) -> float:
        return self.next_at(self._checkpoint_at)

    def _checkpoint(self) -> int:
        self._checkpoint_at = self._monitor.monotonic() + self._interval_seconds
        done = int(self._checkpointer.checkpoint())
        self._write_destinations()
        with self._monitor.lock, self._monitor.all_or_broken:
            return done + self._timed.release_due()  # runs for which the index had no room before


class RelocationTask(PeriodicTask):
    """Moves messages out of sparse data logs while the traffic leaves room."""

    def __init__(self, monitor: Monitor, relocation: Relocation, checkpoint: Callable[[], bool]) -> None:
        super().__init__("relocation", self._relocate)
        self._monitor = monitor
        self._relocation = relocation
        self._checkpoint = checkpoint

    def due_at(self, now: float) -> float:
        return self.next_at(now + RELOCATION_PAUSE_SECONDS) if self._relocation.is_wanted else super().due_at(now)

    def _relocate(self) -> int:
        return self._relocation.run_due(self._monitor.monotonic(), self._checkpoint)


class CleanupTask(PeriodicTask):
    """Deletes or archives data logs that nothing needs, at intervals and when somebody waits for room."""

    def __init__(
        self,
        monitor: Monitor,
        fullness: Fullness,
        cleanup: Cleanup,
        background_requests: BackgroundRequests,
        interval_seconds: float,
    ) -> None:
        super().__init__("cleanup", self._clean_up)
        self._monitor = monitor
        self._fullness = fullness
        self._cleanup = cleanup
        self._background_requests = background_requests
        self._interval_seconds = interval_seconds
        self._cleanup_at = monitor.monotonic() + interval_seconds

    def collect_requests(self, now: float) -> None:
        """Have the cleanup done now if somebody asks for it, and soon while sends wait for room."""
        if self._background_requests.take_cleanup_request():
            self._cleanup_at = 0.0
        if self._cleanup.take_request():
            self._cleanup_at = 0.0
        if self._fullness.refuses_messages or self._cleanup.wants_retained_space:
            self._cleanup_at = min(self._cleanup_at, now + FULL_CLEANUP_SECONDS)

    def is_due(self, now: float) -> bool:
        return now >= self._cleanup_at

    def due_at(self, now: float) -> float:
        return self.next_at(self._cleanup_at)

    def _clean_up(self) -> int:
        self._cleanup_at = self._monitor.monotonic() + self._interval_seconds
        return len(self._cleanup.delete_data_logs().removed)


class AttestTask(PeriodicTask):
    """Records how far the journal is durable, after traffic."""

    def __init__(self, attestation: Attestation) -> None:
        super().__init__("attest", attestation.write)
        self._attestation = attestation

    def due_at(self, now: float) -> float:
        return self.next_at(now + ATTEST_SECONDS) if self._attestation.is_wanted else super().due_at(now)
