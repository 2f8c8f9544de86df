"""BackgroundLayer: the background work of an open store, and its reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ...admin.oldest import OldestMessages
from ...admin.quarantine import Quarantine
from ...consumer.stuck_consumers import StuckConsumers
from ...core.destinations.queue_state import QueueState
from ...core.model.destination import CoreConsumer
from ...loading.eager_loader import EagerLoader
from ...loading.warmer import CacheWarmer
from ...topics.subscriptions.subscription_registry import SubscriptionRegistry
from ..auto_limit import AutoLimit
from ..background import Background, BackgroundRequests
from ..destination_reports import DestinationReports
from ..explained_store import ExplainedStore
from ..health import HealthCheck
from ..index_fit import IndexFit
from ..measurements import Measurements
from ..memory_reports import MemoryReports
from ..periodic_tasks import PeriodicTask
from ..process_watch import ProcessWatch
from ..reports import Reports
from ..resizing import Resizing
from ..status import StatusOutput, StatusReporter
from ..task_runner import TaskRunner
from ..tasks import (
    AttestTask,
    CheckpointTask,
    CleanupTask,
    ExpiryTask,
    MeasureTask,
    ReleaseTask,
    RelocationTask,
    SyncTask,
    TmpCompactionTask,
)
from .environment import Environment
from .layers import Layers


@dataclass(frozen=True, slots=True)
class ExplainFunctions:
    """Functions that say what a store waits for. The caller passes them: `dispatch.explain` is above the engine."""

    why_stuck: Callable[[ExplainedStore, CoreConsumer], tuple[int, str] | None]
    """Returns log level and text for a consumer that waits and gets nothing; called under no lock."""
    in_short: Callable[[ExplainedStore, Sequence[QueueState]], str]
    """Returns a sentence about these queues for the status; called under no lock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundLayer:
    """The tasks of an open store, the threads that do them, and the reports that the store makes about itself."""

    resizing: Resizing
    process: ProcessWatch
    task_runner: TaskRunner
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


def make_background_layer(
    layers: Layers, environment: Environment, explained: ExplainedStore, explaining: ExplainFunctions
) -> BackgroundLayer:
    """Make the tasks and the reports. No thread runs before `start`."""
    foundation = layers.foundation
    process = ProcessWatch(foundation.monitor, foundation.budget, environment.guard)
    resizing = _make_resizing(layers)
    oldest = OldestMessages(foundation.monitor)
    status = _make_status(layers, oldest, environment.status, partial(explaining.in_short, explained))
    stuck = StuckConsumers(partial(explaining.why_stuck, explained))
    automatic = AutoLimit(foundation.monitor, resizing, environment.memory_figures)
    tasks = [
        *_make_sync_tasks(layers),  # first, because confirmed messages wait for them
        *_make_message_tasks(layers, stuck),
        *_make_other_tasks(layers, process, resizing, automatic, stuck, status),
        *_make_store_tasks(layers),
    ]
    task_runner = TaskRunner(foundation.monitor, tasks)
    background = Background(
        foundation.monitor,
        foundation.background_requests,
        layers.areas.loads,
        partial(_load, layers.core.loader, layers.core.warmer),
        task_runner.step,
        task_runner.pause,
    )
    check = HealthCheck(
        foundation.monitor,
        layers.store_layer.directory.journal,
        layers.areas.dispatch_area,
        task_runner,
        background,
    )
    reports = foundation.upcalls.reports = _make_reports(layers, check, oldest, process)
    return BackgroundLayer(
        resizing=resizing,
        process=process,
        task_runner=task_runner,
        background=background,
        status=status,
        check=check,
        reports=reports,
    )


def _make_sync_tasks(layers: Layers) -> list[PeriodicTask]:
    """Return the task that syncs at intervals; no task if the settings ask for another kind of sync."""
    settings, directory = layers.foundation.settings, layers.store_layer.directory
    if settings.sync != "interval":
        return []
    return [SyncTask(layers.foundation.monitor, directory.journal, directory.syncer, settings.sync_interval_seconds)]


def _make_other_tasks(
    layers: Layers,
    process: ProcessWatch,
    resizing: Resizing,
    automatic: AutoLimit,
    stuck: StuckConsumers,
    status: StatusReporter | None,
) -> list[PeriodicTask]:
    """Return the tasks that have no time of their own and check at each step, in the order in which they are done."""
    admin, topics = layers.admin, layers.clients.topic_layer
    return [
        *([PeriodicTask("trace", layers.recorder.write)] if layers.recorder is not None else []),
        PeriodicTask("memory guard", process.step),
        PeriodicTask("resize", resizing.step),
        PeriodicTask(
            "acks of unmatched messages",
            partial(_acknowledge_unmatched, topics.subscription_registry, layers.foundation.background_requests),
        ),
        PeriodicTask("memory limit", automatic.step),
        PeriodicTask("stuck consumers", stuck.tell),
        PeriodicTask("publishing", layers.core.confirmer.confirm_left),
        PeriodicTask("dead letters", admin.dead_letters.steps),
        PeriodicTask("duplicate windows", layers.store_layer.windows.warn),
        PeriodicTask("temporary destinations", admin.temporaries.delete_released),
        PeriodicTask("inactive destinations", admin.inactive.step),
        PeriodicTask("idle destinations", admin.idle.step),
        PeriodicTask("retention of topics", topics.retention.trim),
        *([PeriodicTask("status", status.step)] if status is not None else []),
    ]


def _load(loader: EagerLoader, warmer: CacheWarmer) -> bool:
    """Load for a list that runs low, or else for the head of a queue. Return whether there was anything to load."""
    return loader.step() or warmer.step()


def _acknowledge_unmatched(subscription_registry: SubscriptionRegistry, background_requests: BackgroundRequests) -> int:
    """Acknowledge what selectors do not match; wake the housekeeper again if more is left. Requires: no lock."""
    if not subscription_registry.step():
        return 0
    background_requests.wake_housekeeper()
    return 1


def _make_resizing(layers: Layers) -> Resizing:
    foundation, directory = layers.foundation, layers.store_layer.directory
    index_fit = IndexFit(
        monitor=foundation.monitor,
        checkpointer=directory.checkpointer,
        index=directory.index,
        metadata_store=directory.metadata_store,
        budget=foundation.budget,
        reclaim=layers.areas.watermarks.reclaim,
        shares=foundation.shares,
    )
    return Resizing(
        monitor=foundation.monitor,
        checkpointer=directory.checkpointer,
        index_fit=index_fit,
        budget=foundation.budget,
        list_registry=layers.areas.list_registry,
        watermarks=layers.areas.watermarks,
        sender_parts=layers.clients.sender_parts,
        windows=layers.store_layer.windows,
        settings=foundation.settings,
    )


def _make_status(
    layers: Layers,
    oldest: OldestMessages,
    output: StatusOutput | None,
    sentence: Callable[[Sequence[QueueState]], str],
) -> StatusReporter | None:
    """Return the reporter of the status; None if there is no place for a status, or the settings want none."""
    interval_seconds = layers.foundation.settings.status_interval_seconds
    if output is None or interval_seconds is None:
        return None
    return StatusReporter(
        monitor=layers.foundation.monitor,
        queues=layers.core.queues,
        topics=layers.clients.topic_layer.topics,
        oldest=oldest,
        output=output,
        interval_seconds=interval_seconds,
        whole=layers.foundation.upcalls.status_of_the_whole,
        sentence=sentence,
    )


def _make_message_tasks(layers: Layers, stuck: StuckConsumers) -> list[PeriodicTask]:
    """Return the tasks for messages: they offer due ones, measure who takes them, and remove expired ones."""
    monitor, areas, redelivery_layer, admin = (
        layers.foundation.monitor,
        layers.areas,
        layers.redelivery_layer,
        layers.admin,
    )
    measurements = Measurements(
        monitor, areas.watermarks, layers.core.warmer, stuck, layers.open_destinations.consumers
    )
    return [
        ReleaseTask(monitor, redelivery_layer.due, admin.browsers),
        MeasureTask(monitor, measurements),
        TmpCompactionTask(monitor, layers.store_layer.overflow),
        ExpiryTask(admin.expiry_sweeper, redelivery_layer.timed),
    ]


def _make_store_tasks(layers: Layers) -> list[PeriodicTask]:
    """Return the tasks that look after the files of the store, such as checkpoints and cleanup."""
    foundation, directory, settings = layers.foundation, layers.store_layer.directory, layers.foundation.settings
    monitor, cleanup, checkpointer = foundation.monitor, directory.cleanup, directory.checkpointer
    quarantine = Quarantine(monitor, layers.areas.target_area.unreadable)
    return [
        CheckpointTask(
            monitor,
            checkpointer,
            directory.write_destinations,
            layers.redelivery_layer.timed,
            settings.checkpoint_interval_seconds,
        ),
        RelocationTask(monitor, cleanup.relocation, checkpointer.checkpoint),
        CleanupTask(
            monitor,
            directory.journal.fullness,
            cleanup,
            foundation.background_requests,
            settings.cleanup_interval_seconds,
        ),
        *([PeriodicTask("quarantine", quarantine.step)] if settings.on_missing_data_log == "report" else []),
        AttestTask(directory.attestation),
    ]


def _make_reports(layers: Layers, check: HealthCheck, oldest: OldestMessages, process: ProcessWatch) -> Reports:
    monitor, directory, areas = layers.foundation.monitor, layers.store_layer.directory, layers.areas
    return Reports(
        monitor=monitor,
        check=check,
        destinations=DestinationReports(monitor, layers.core.queues, layers.clients.topic_layer.topics, oldest),
        memory=MemoryReports(monitor, areas.memory, areas.watermarks, process),
        disk_use=directory.disk_use,
        windows=layers.store_layer.windows,
        durations={
            "sync": directory.syncer.durations,
            "checkpoint": directory.checkpointer.durations,
            "load": layers.core.loader.durations,
            "take": layers.clients.consumers.take_durations,
        },
    )
