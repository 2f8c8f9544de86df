"""Maintenance: what an engine does in the background besides loading, each thing when its time has come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ...cache.budget import Budget
from ...cache.process.guard import MemoryGuard
from ...cache.spill.overflow import Overflow
from ...store.message_store import MessageStore
from ..admin.browse import Browsers
from ..admin.dead_letters import DeadLetterMover
from ..admin.expiry import ExpirySweeper
from ..config.settings import Settings
from ..consumer.slow import notice
from ..core.delays import DueMessages, TimedLanes
from ..core.lists import TargetArea
from ..core.model import Taker
from ..core.monitor import Monitor
from ..loading.warmer import CacheWarmer
from ..planning.recorder import Recorder
from ..topics.registry import Topics
from .background import Wakeups
from .resizing import Resizing

logger = logging.getLogger("forebay.dispatch")

RELOCATION_PAUSE_SECONDS: Final = 0.05
"""While something is to be relocated, so often is asked whether the traffic leaves room for it."""
MEASURE_SECONDS: Final = 1.0
ATTEST_SECONDS: Final = 0.1
FULL_CLEANUP_SECONDS: Final = 1.0
"""While sends are refused because the disk or the store is full, cleanup comes at least so often."""


class Maintenance:
    """No thread of its own: whoever has the time calls `step`, and again after `pause`."""

    def __init__(
        self,
        monitor: Monitor,
        store: MessageStore,
        targets: TargetArea,
        budget: Budget,
        overflow: Overflow,
        due: DueMessages,
        timed: TimedLanes,
        sweeper: ExpirySweeper,
        dead_letters: DeadLetterMover,
        topics: Topics,
        browsers: Browsers,
        warmer: CacheWarmer,
        resizing: Resizing,
        wakeups: Wakeups,
        recorder: Recorder | None,
        guard: MemoryGuard | None,
        consumers: Callable[[], Iterable[Taker]],
        settings: Settings,
    ) -> None:
        """consumers: all consumers of the store, asked for under the lock."""
        self._monitor = monitor
        self._store = store
        self._targets = targets
        self._budget = budget
        self._overflow = overflow
        self._due = due
        self._timed = timed
        self._sweeper = sweeper
        self._dead_letters = dead_letters
        self._topics = topics
        self._browsers = browsers
        self._warmer = warmer
        self._resizing = resizing
        self._wakeups = wakeups
        self._recorder = recorder
        self.guard = guard
        self._consumers = consumers
        self._settings = settings
        now = monitor.monotonic()
        self._checkpoint_at = now + settings.checkpoint_interval_seconds
        self._cleanup_at = now + settings.cleanup_interval_seconds
        self._sync_at = now + settings.sync_interval_seconds
        self._measured_at = now

    def step(self) -> int:
        """Sync, measure, checkpoint, clean up, attest, each when its time has come. REQUIRES: no lock."""
        done = 0
        now = self._monitor.monotonic()
        if self._store.is_full:
            self._cleanup_at = min(self._cleanup_at, now + FULL_CLEANUP_SECONDS)
        with self._monitor.lock:
            done += self._due.release()
            self._browsers.settle()
            if now - self._measured_at >= MEASURE_SECONDS:
                self._targets.measure(now - self._measured_at)
                self._warmer.look()
                self._measured_at = now
                done += notice(self._targets, self._consumers(), now)
            done += self._overflow.compact()
        if self._recorder is not None:
            done += self._recorder.write()
        if self.guard is not None:
            self.guard.look(now, self._budget.held_bytes)
        if self._resizing.is_under_way:
            done += self._resizing.go_on()
        done += self._sweeper.sweep_due()
        done += self._dead_letters.steps()
        if self._topics.sift():
            done += 1
            self._wakeups.wake_maintenance()
        if self._settings.sync == "interval" and now >= self._sync_at:
            self._sync_at = now + self._settings.sync_interval_seconds
            with self._monitor.lock:
                position = self._store.journal.end
            self._store.journal.sync(position)
            done += 1
        is_due = self._store.adds >= self._store.checkpoint_adds or self._store.index.is_filling
        if is_due or now >= self._checkpoint_at:
            self._checkpoint_at = now + self._settings.checkpoint_interval_seconds
            done += self._store.checkpoint()
            with self._monitor.lock:
                done += self._timed.release_due()  # what found no room in the index before
        done += self._store.relocation.run_due(now, self._store.checkpoint)
        if now >= self._cleanup_at or self._store.relocation.wants_cleanup:
            self._cleanup_at = now + self._settings.cleanup_interval_seconds
            self._store.relocation.wants_cleanup = False
            report = self._store.delete_unneeded()
            done += len(report.deleted) + len(report.archived)
        if self._settings.on_missing_data_log == "report" and self._targets.unreadable:
            done += self._quarantine()
        done += self._store.attest()
        return done

    def ask_for_cleanup(self) -> bool:
        """Have one done now by the thread that does it; False: there is none."""
        if not self._settings.background:
            return False
        self._cleanup_at = 0.0
        self._wakeups.wake_maintenance()
        return True

    def _quarantine(self) -> int:
        """What does not verify goes on record as lost, so that its data log can be freed. REQUIRES: no lock."""
        done = 0
        while self._targets.unreadable:
            area, sequence = self._targets.unreadable.popleft()
            if sequence not in area.in_flight and self._store.quarantine(area.journaled_lane, sequence):
                done += 1
                with self._monitor.lock:
                    area.settled(sequence, sequence)
                logger.warning("message %s%d is in the quarantine and counts as acknowledged", area.id_prefix, sequence)
        return done

    def pause(self) -> float:
        """Seconds until something is due."""
        now = self._monitor.monotonic()
        due = min(self._checkpoint_at, self._cleanup_at, self._measured_at + MEASURE_SECONDS, self._timed.next_sweep)
        if self._settings.sync == "interval":
            due = min(due, self._sync_at)
        if self._store.relocation.is_wanted:
            due = min(due, now + RELOCATION_PAUSE_SECONDS)
        if self._store.wants_attest:
            due = min(due, now + ATTEST_SECONDS)
        parked = self._due.next_due
        return max(min(due, parked) if parked is not None else due, now + 0.001) - now
