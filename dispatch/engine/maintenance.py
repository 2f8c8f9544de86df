"""Maintenance: the background work of an engine besides loading, each part when it is due.

Syncs, checkpoints, cleanups and releases have a time and are here. Work that checks for itself whether there is
something to do comes as a list of duties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ...cache.spill.overflow import Overflow
from ...store.checkpoint.attestation import Attestation
from ...store.journal.journal import Journal
from ...store.message_store import MessageStore
from ...store.space.cleanup import Cleanup
from ..admin.browse import Browsers
from ..admin.expiry import ExpirySweeper
from ..admin.unreadable import Quarantine
from ..config.settings import Settings
from ..core.monitor import Monitor
from ..core.settling.delays import TimedLanes
from ..core.settling.due import DueMessages
from .background import Wakeups
from .duties import Duty, FailingDuty
from .measurements import Measurements

RELOCATION_PAUSE_SECONDS: Final = 0.05
"""While there is something to relocate, this is how often the traffic is checked for room."""
ATTEST_SECONDS: Final = 0.1
FULL_CLEANUP_SECONDS: Final = 1.0
"""While sends are refused because the disk or the store is full, cleanup runs at least this often."""


class Maintenance:
    """Has no thread of its own: a thread or the host calls `step`, and again after `pause`."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        journal: Journal,
        cleanup: Cleanup,
        attestation: Attestation,
        write_destinations: Callable[[], None],
        overflow: Overflow,
        due: DueMessages,
        measurements: Measurements,
        quarantine: Quarantine | None,
        timed: TimedLanes,
        sweeper: ExpirySweeper,
        browsers: Browsers,
        wakeups: Wakeups,
        settings: Settings,
        others: Iterable[Duty],
    ) -> None:
        """write_destinations: writes the summary file for people.
        quarantine: None: messages that do not verify stay where they are.
        others: further duties for each step.
        """
        self._monitor = monitor
        self._store = store
        self._journal = journal
        self._cleanup = cleanup
        self._relocation = cleanup.relocation
        self._attestation = attestation
        self._write_destinations = write_destinations
        self._overflow = overflow
        self._due = due
        self._timed = timed
        self._browsers = browsers
        self._wakeups = wakeups
        self._measurements = measurements
        self._settings = settings
        now = monitor.monotonic()
        self._checkpoint_at = now + settings.checkpoint_interval_seconds
        self._cleanup_at = now + settings.cleanup_interval_seconds
        self._sync_at = now + settings.sync_interval_seconds
        self._sync_duty = Duty("sync", self._sync)
        self._release_duty = Duty("release of delayed messages", self._release)
        self._expiry_duty = Duty("sweep of expired messages", sweeper.sweep_due)
        self._checkpoint_duty = Duty("checkpoint", self._checkpoint)
        self._relocation_duty = Duty("relocation", self._relocate)
        self._cleanup_duty = Duty("cleanup", self._clean_up)
        self._quarantine_duties = (Duty("quarantine", quarantine.step),) if quarantine is not None else ()
        self._attest_duty = Duty("attest", attestation.write)
        self._others = (self._expiry_duty, *others)
        self._all = (
            self._sync_duty,
            self._release_duty,
            *self._others,
            self._checkpoint_duty,
            self._relocation_duty,
            self._cleanup_duty,
            *self._quarantine_duties,
            self._attest_duty,
        )

    def step(self) -> int:
        """Do what is due; syncs come first, because confirmed messages wait for them. Requires: no lock.

        A duty that fails does not stop the others; see Duty. StoreFailed ends all of them.
        """
        now, time_ms = self._monitor.monotonic(), self._monitor.clock_ms()
        store = self._store
        done = 0
        if self._settings.sync == "interval":
            done += self._sync_duty.do(now, time_ms, is_due=now >= self._sync_at)
        done += self._release_duty.do(now, time_ms)
        for duty in self._others:
            done += duty.do(now, time_ms)
        done += self._checkpoint_duty.do(now, time_ms, is_due=store.is_checkpoint_due or now >= self._checkpoint_at)
        done += self._relocation_duty.do(now, time_ms)
        if self._wakeups.wants_cleanup:
            self._wakeups.wants_cleanup = False
            self._cleanup_at = 0.0
        if store.is_full or self._cleanup.wants_retained_room:
            self._cleanup_at = min(self._cleanup_at, now + FULL_CLEANUP_SECONDS)
        is_wanted = now >= self._cleanup_at or self._relocation.wants_cleanup
        done += self._cleanup_duty.do(now, time_ms, is_due=is_wanted)
        for duty in self._quarantine_duties:
            done += duty.do(now, time_ms)
        done += self._attest_duty.do(now, time_ms)
        return done

    def failing(self) -> dict[str, FailingDuty]:
        """Return the failing duties by name."""
        return {duty.name: duty.failing for duty in self._all if duty.failing is not None}

    # ------------------------------------------------------------------ the duties; none requires the lock

    def _sync(self) -> int:
        self._sync_at = self._monitor.monotonic() + self._settings.sync_interval_seconds
        with self._monitor.lock:
            position = self._store.position
        self._journal.sync(position)
        return 1

    def _release(self) -> int:
        now = self._monitor.monotonic()
        with self._monitor.lock, self._monitor.whole:
            done = self._due.release()
            self._browsers.release_given_back()
            done += self._measurements.take(now)
            return done + self._overflow.compact()

    def _checkpoint(self) -> int:
        self._checkpoint_at = self._monitor.monotonic() + self._settings.checkpoint_interval_seconds
        done = int(self._store.checkpoint())
        self._write_destinations()
        with self._monitor.lock, self._monitor.whole:
            return done + self._timed.release_due()  # runs for which the index had no room before

    def _relocate(self) -> int:
        return self._relocation.run_due(self._monitor.monotonic(), self._store.checkpoint)

    def _clean_up(self) -> int:
        self._cleanup_at = self._monitor.monotonic() + self._settings.cleanup_interval_seconds
        self._relocation.wants_cleanup = False
        report = self._cleanup.delete_unneeded()
        return len(report.deleted) + len(report.archived)

    def pause(self) -> float:
        """Return the seconds until something is due or must be tried again."""
        now = self._monitor.monotonic()
        released = min(self._measurements.due_at, self._due.next_look)
        due = min(
            self._release_duty.next_at(released),
            self._expiry_duty.next_at(self._timed.next_sweep),
            self._checkpoint_duty.next_at(self._checkpoint_at),
            self._cleanup_duty.next_at(self._cleanup_at),
        )
        if self._settings.sync == "interval":
            due = min(due, self._sync_at)
        if self._relocation.is_wanted:
            due = min(due, self._relocation_duty.next_at(now + RELOCATION_PAUSE_SECONDS))
        if self._attestation.is_wanted:
            due = min(due, self._attest_duty.next_at(now + ATTEST_SECONDS))
        return max(due, now + 0.001) - now
