"""Housekeeping: the background work of an open store, and its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ...admin.oldest import OldestMessages
from ...admin.unreadable import Quarantine
from ...consumer.stuck import StuckConsumers
from ...core.destinations.queue_state import QueueState
from ...core.model import Taker
from ...loading.eager import EagerLoader
from ...loading.warmer import CacheWarmer
from ...topics.subscriptions.open_subscriptions import OpenSubscriptions
from ..auto_limit import AutoLimit
from ..background import Background, Wakeups
from ..destination_reports import DestinationReports
from ..duties import Duty
from ..explained_owners import ExplainedOwners
from ..health import HealthCheck
from ..index_fit import IndexFit
from ..maintenance import Maintenance
from ..measurements import Measurements
from ..memory_reports import MemoryReports
from ..process_watch import ProcessWatch
from ..reports import Reports
from ..resizing import Resizing
from ..status import StatusOutput, StatusReporter
from ..upkeep import AttestDuty, CheckpointDuty, CleanupDuty, ExpiryDuty, ReleaseDuty, RelocationDuty, SyncDuty
from .floors import Floors
from .surroundings import Surroundings


@dataclass(frozen=True, slots=True)
class Explaining:
    """Functions that say what a store waits for. The caller passes them: `dispatch.explain` is above the engine."""

    why_stuck: Callable[[ExplainedOwners, Taker], tuple[int, str] | None]
    """Returns log level and text for a consumer that waits and gets nothing; called under no lock."""
    in_short: Callable[[ExplainedOwners, Sequence[QueueState]], str]
    """Returns a sentence about these queues for the status; called under no lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Housekeeping:
    """The duties of an open store, the threads that do them, and the reports that the store makes about itself."""

    resizing: Resizing
    process: ProcessWatch
    maintenance: Maintenance
    background: Background
    status: StatusReporter | None
    check: HealthCheck
    reports: Reports

    def start(self) -> None:
        """Start the threads."""
        self.background.start(self._tell_failure)

    def _tell_failure(self) -> None:
        """Write the last status of a store that has failed, so that other processes learn of the failure."""
        if self.status is not None:
            with suppress(OSError):
                if self.check.is_broken:
                    self.status.write_failed(dataclasses.asdict(self.check.health()))
                else:
                    self.status.write()


def make_housekeeping(
    floors: Floors, surroundings: Surroundings, explained: ExplainedOwners, explaining: Explaining
) -> Housekeeping:
    """Make the duties and the reports. No thread runs before `start`."""
    foundation = floors.foundation
    process = ProcessWatch(foundation.monitor, foundation.budget, surroundings.guard)
    resizing = _make_resizing(floors)
    oldest = OldestMessages(foundation.monitor)
    status = _make_status(floors, oldest, surroundings.status, partial(explaining.in_short, explained))
    stuck = StuckConsumers(partial(explaining.why_stuck, explained))
    automatic = AutoLimit(foundation.monitor, resizing, surroundings.memory_figures)
    duties = [
        *_make_sync_duties(floors),  # first, because confirmed messages wait for them
        *_make_message_duties(floors, stuck),
        *_make_other_duties(floors, process, resizing, automatic, stuck, status),
        *_make_store_duties(floors),
    ]
    maintenance = Maintenance(foundation.monitor, duties)
    background = Background(
        foundation.monitor,
        foundation.wakeups,
        floors.areas.loads,
        partial(_load, floors.core.loader, floors.core.warmer),
        maintenance.step,
        maintenance.pause,
    )
    check = HealthCheck(
        foundation.monitor, floors.store.directory.messages, floors.areas.dispatch_area, maintenance, background
    )
    reports = foundation.late_calls.reports = _make_reports(floors, check, oldest, process)
    return Housekeeping(
        resizing=resizing,
        process=process,
        maintenance=maintenance,
        background=background,
        status=status,
        check=check,
        reports=reports,
    )


def _make_sync_duties(floors: Floors) -> list[Duty]:
    """Return the duty that syncs at intervals; no duty if the settings ask for another kind of sync."""
    settings, directory = floors.foundation.settings, floors.store.directory
    if settings.sync != "interval":
        return []
    return [SyncDuty(floors.foundation.monitor, directory.messages, directory.journal, settings.sync_interval_seconds)]


def _make_other_duties(
    floors: Floors,
    process: ProcessWatch,
    resizing: Resizing,
    automatic: AutoLimit,
    stuck: StuckConsumers,
    status: StatusReporter | None,
) -> list[Duty]:
    """Return the duties that have no time of their own and check at each step, in the order in which they are done."""
    admin, topics = floors.admin, floors.clients.topic_owners
    return [
        *([Duty("trace", floors.recorder.write)] if floors.recorder is not None else []),
        Duty("memory guard", process.step),
        Duty("resize", resizing.step),
        Duty("sifting of topics", partial(_sift, topics.subscriptions, floors.foundation.wakeups)),
        Duty("memory limit", automatic.step),
        Duty("stuck consumers", stuck.tell),
        Duty("publishing", floors.core.confirmer.confirm_left),
        Duty("dead letters", admin.dead_letters.steps),
        Duty("duplicate windows", floors.store.windows.warn),
        Duty("temporary destinations", admin.temporaries.sweep),
        Duty("inactive destinations", admin.inactive.step),
        Duty("idle destinations", admin.idle.step),
        Duty("retention of topics", topics.retention.trim),
        *([Duty("status", status.step)] if status is not None else []),
    ]


def _load(loader: EagerLoader, warmer: CacheWarmer) -> bool:
    """Load for a list that runs low, or else for the head of a queue. Return whether there was anything to load."""
    return loader.step() or warmer.step()


def _sift(subscriptions: OpenSubscriptions, wakeups: Wakeups) -> int:
    """Sift messages for subscriptions with a selector; wake maintenance again if more are left. Requires: no lock."""
    if not subscriptions.step():
        return 0
    wakeups.wake_maintenance()
    return 1


def _make_resizing(floors: Floors) -> Resizing:
    foundation, directory = floors.foundation, floors.store.directory
    index_fit = IndexFit(
        monitor=foundation.monitor,
        store=directory.messages,
        index=directory.index,
        metadata_store=directory.metadata_store,
        budget=foundation.budget,
        target_area=floors.areas.target_area,
        shares=foundation.shares,
    )
    return Resizing(
        monitor=foundation.monitor,
        store=directory.messages,
        index_fit=index_fit,
        budget=foundation.budget,
        target_area=floors.areas.target_area,
        producers=floors.clients.producers,
        windows=floors.store.windows,
        settings=foundation.settings,
    )


def _make_status(
    floors: Floors,
    oldest: OldestMessages,
    output: StatusOutput | None,
    sentence: Callable[[Sequence[QueueState]], str],
) -> StatusReporter | None:
    """Return the reporter of the status; None if there is no place for a status, or the settings want none."""
    interval_seconds = floors.foundation.settings.status_interval_seconds
    if output is None or interval_seconds is None:
        return None
    return StatusReporter(
        floors.foundation.monitor,
        floors.core.queues,
        floors.clients.topic_owners.topics,
        oldest,
        output,
        interval_seconds,
        floors.foundation.late_calls.status_of_the_whole,
        sentence,
    )


def _make_message_duties(floors: Floors, stuck: StuckConsumers) -> list[Duty]:
    """Return the duties for messages with a time: they offer due messages and remove expired ones."""
    monitor, areas, settling, admin = floors.foundation.monitor, floors.areas, floors.settling, floors.admin
    measurements = Measurements(
        monitor, areas.target_area, areas.dispatch_area, floors.core.warmer, stuck, floors.open_destinations.consumers
    )
    return [
        ReleaseDuty(monitor, settling.due, admin.browsers, measurements, floors.store.overflow),
        ExpiryDuty(admin.sweeper, settling.timed),
    ]


def _make_store_duties(floors: Floors) -> list[Duty]:
    """Return the duties that look after the files of the store, such as checkpoints and cleanup."""
    foundation, directory, settings = floors.foundation, floors.store.directory, floors.foundation.settings
    monitor, messages, cleanup = foundation.monitor, directory.messages, directory.cleanup
    quarantine = Quarantine(monitor, floors.areas.target_area.unreadable)
    return [
        CheckpointDuty(
            monitor,
            messages,
            directory.write_destinations,
            floors.settling.timed,
            settings.checkpoint_interval_seconds,
        ),
        RelocationDuty(monitor, cleanup.relocation, messages.checkpoint),
        CleanupDuty(monitor, messages, cleanup, foundation.wakeups, settings.cleanup_interval_seconds),
        *([Duty("quarantine", quarantine.step)] if settings.on_missing_data_log == "report" else []),
        AttestDuty(directory.attestation),
    ]


def _make_reports(floors: Floors, check: HealthCheck, oldest: OldestMessages, process: ProcessWatch) -> Reports:
    monitor, directory, areas = floors.foundation.monitor, floors.store.directory, floors.areas
    return Reports(
        monitor,
        check,
        DestinationReports(monitor, floors.core.queues, floors.clients.topic_owners.topics, oldest),
        MemoryReports(monitor, areas.memory, areas.target_area, process),
        directory.disk_use,
        floors.store.windows,
        {
            "sync": directory.journal.sync_durations,
            "checkpoint": directory.checkpointer.durations,
            "load": floors.core.loader.durations,
            "take": floors.clients.consumers.take_durations,
        },
    )
