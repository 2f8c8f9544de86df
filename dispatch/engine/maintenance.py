"""Maintenance: what an engine does in the background besides loading, each thing when its time has come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ..consumer.slow import notice

if TYPE_CHECKING:
    from .engine import Engine

logger = logging.getLogger("forebay.dispatch")

RELOCATION_PAUSE_SECONDS: Final = 0.05
"""While something is to be relocated, so often is asked whether the traffic leaves room for it."""
MEASURE_SECONDS: Final = 1.0
ATTEST_SECONDS: Final = 0.1
FULL_CLEANUP_SECONDS: Final = 1.0
"""While sends are refused because the disk or the store is full, cleanup comes at least so often."""


class Maintenance:
    """No thread of its own: whoever has the time calls `step`, and again after `pause`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        now, settings = engine.monotonic(), engine.settings
        self._checkpoint_at = now + settings.checkpoint_interval_seconds
        self._cleanup_at = now + settings.cleanup_interval_seconds
        self._sync_at = now + settings.sync_interval_seconds
        self._measured_at = now

    def step(self) -> int:
        """Sync, measure, checkpoint, clean up, attest, each when its time has come. REQUIRES: no lock."""
        engine, done = self._engine, 0
        now = engine.monotonic()
        if engine.store.is_full:
            self._cleanup_at = min(self._cleanup_at, now + FULL_CLEANUP_SECONDS)
        with engine.lock:
            done += engine.release_due()
            engine.browsers.settle()
            if now - self._measured_at >= MEASURE_SECONDS:
                engine.targets.measure(now - self._measured_at)
                engine.heads.look()
                self._measured_at = now
                done += notice(engine.targets, engine.all_consumers(), now)
            done += engine.overflow.compact()
        if engine.recorder is not None:
            done += engine.recorder.write()
        if engine.guard is not None:
            engine.guard.look(now, engine.budget.held_bytes)
        if engine.resizing.is_under_way:
            done += engine.resizing.go_on()
        done += engine.timing.sweep_due()
        done += engine.redelivery.dead_letters.steps()
        if engine.topics.sift():
            done += 1
            engine.wake_housekeeper()
        if engine.settings.sync == "interval" and now >= self._sync_at:
            self._sync_at = now + engine.settings.sync_interval_seconds
            with engine.lock:
                position = engine.store.journal.end
            engine.store.journal.sync(position)
            done += 1
        is_due = engine.store.adds >= engine.store.checkpoint_adds or engine.store.index.is_filling
        if is_due or now >= self._checkpoint_at:
            self._checkpoint_at = now + engine.settings.checkpoint_interval_seconds
            done += engine.store.checkpoint()
            with engine.lock:
                done += engine.timing.release_due()  # what found no room in the index before
        done += engine.store.relocation.run_due(now, engine.store.checkpoint)
        if now >= self._cleanup_at or engine.store.relocation.wants_cleanup:
            self._cleanup_at = now + engine.settings.cleanup_interval_seconds
            engine.store.relocation.wants_cleanup = False
            report = engine.store.delete_unneeded()
            done += len(report.deleted) + len(report.archived)
        if engine.settings.on_missing_data_log == "report" and engine.targets.unreadable:
            done += self._quarantine()
        done += engine.store.attest()
        return done

    def ask_for_cleanup(self) -> bool:
        """Have one done now by the thread that does it; False: there is none."""
        if not self._engine.settings.background:
            return False
        self._cleanup_at = 0.0
        self._engine.wake_housekeeper()
        return True

    def _quarantine(self) -> int:
        """What does not verify goes on record as lost, so that its data log can be freed. REQUIRES: no lock."""
        engine, done = self._engine, 0
        while engine.targets.unreadable:
            area, sequence = engine.targets.unreadable.popleft()
            if sequence not in area.in_flight and engine.store.quarantine(area.journaled_lane, sequence):
                done += 1
                with engine.lock:
                    area.settled(sequence, sequence)
                logger.warning("message %s%d is in the quarantine and counts as acknowledged", area.id_prefix, sequence)
        return done

    def pause(self) -> float:
        """Seconds until something is due."""
        engine = self._engine
        now = engine.monotonic()
        due = min(self._checkpoint_at, self._cleanup_at, self._measured_at + MEASURE_SECONDS, engine.timing.next_sweep)
        if engine.settings.sync == "interval":
            due = min(due, self._sync_at)
        if engine.store.relocation.is_wanted:
            due = min(due, now + RELOCATION_PAUSE_SECONDS)
        if engine.store.wants_attest:
            due = min(due, now + ATTEST_SECONDS)
        parked = engine.next_due()
        return max(min(due, parked) if parked is not None else due, now + 0.001) - now
