"""The engine of one open directory: makes the parts, and opens and closes them in order.

There are three locks, always taken in this order: checkpoint lock (DirectoryStore), sync lock (Journal), state lock
(Monitor). Callbacks of users are called under none of them.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...cache.budget import Budget
from ...cache.process.guard import MemoryGuard, ProcessStatistics
from ...cache.process.shortage import MemoryFigures, read_memory_figures
from ...cache.shares import Shares
from ...cache.spill.overflow import Overflow
from ...cache.tab import Tab
from ...store.clock import Clock
from ...store.directory_store import DirectoryStore, StoreOptions
from ...store.disk.disk import Disk, File
from ...store.disk.layout import after_fork_in_child
from ...store.disk.thrifty_disk import ThriftyDisk
from ...store.errors import StoreFailed
from ...store.ingest.ingest import open_and_ingest
from ...store.late_log import LateLogger
from ...store.locks import require_outside
from ...store.maintenance.archive import Archive
from ...store.metadata.store import MetadataStore
from ...store.progress import OnProgress, tell_nobody
from ...store.property_table import PropertyTable, limit_bytes_of
from ..admin.admin_owners import make_admin_owners
from ..admin.oldest import OldestMessages
from ..admin.unreadable import Quarantine
from ..admission.deduplication import DuplicateWindows
from ..config.memory_plan import (
    ATTEMPTS_BYTES,
    CONSUMERS_BYTES,
    DIRECTORY_BYTES_MAX,
    READ_BUFFER_BYTES,
    RELOCATION_BYTES,
    WRITE_BUFFER_BYTES,
    archive_bytes,
    check_quotas,
    shares_of,
    temp_limit_bytes,
)
from ..config.policies import Policies
from ..config.settings import Settings
from ..consumer.consumer import ConsumerParts
from ..consumer.consumers import Consumers
from ..consumer.search import SearchParts
from ..consumer.settlements import Settlements
from ..consumer.stuck import StuckConsumers
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.load_requests import LoadRequests
from ..core.areas.memory_parts import MemoryParts
from ..core.areas.memory_rule import MemoryRule
from ..core.areas.target_area import TargetArea
from ..core.confirmer import ThreadConfirmer
from ..core.destinations.dead_letter_queues import DeadLetterQueues
from ..core.destinations.destination_lanes import DestinationLanes
from ..core.destinations.destination_policies import DestinationPolicies
from ..core.destinations.grouped_queues import GroupedQueues
from ..core.destinations.open_destinations import OpenDestinations
from ..core.destinations.overhead import DestinationOverhead
from ..core.destinations.queue_registry import Queues
from ..core.destinations.queue_state import QueueState
from ..core.memory.group_memory import GroupMemory
from ..core.memory.memories import Memories
from ..core.model import LaneState, Taker
from ..core.monitor import Monitor
from ..core.parts import CoreParts
from ..core.publisher import Publisher
from ..core.settling.deadlines import AckDeadlines
from ..core.settling.delays import DelayedRedelivery, TimedLanes
from ..core.settling.due import DueMessages
from ..core.settling.redelivery import Redelivery
from ..core.settling.removal import Removals
from ..distribution.distributions import Distributions
from ..loading.eager import EagerLoader
from ..loading.warmer import CacheWarmer
from ..producer.full_policy import FullPolicy
from ..producer.lifetimes import Lifetimes
from ..producer.producers import Producers
from ..producer.slice_writer import SliceWriter
from ..producer.space import Space
from ..topics.latest_keys import KeyMemory
from ..topics.topic_owners import make_topic_owners
from ..transactions.staging import PropertyStaging, Staging
from ..transactions.transaction import TransactionRegistry
from ..transactions.transaction_memory import TransactionMemory
from .auto_limit import AutoLimit
from .background import Background, Wakeups
from .curve_watch import CurveWatch
from .doors import QueueParts, TopicParts
from .duties import Duty
from .explained_owners import ExplainedOwners
from .late_calls import LateCalls
from .ledger_audit import LedgerAudit
from .maintenance import Maintenance
from .measurements import Measurements
from .reports import Reports
from .resizing import Resizing
from .status import StatusOutput, StatusReporter

if TYPE_CHECKING:
    from ..planning.recorder import Recorder

logger = LateLogger("forebay.dispatch")

_in_child: weakref.WeakSet[partial[None]] = weakref.WeakSet()
"""For each live engine, the hook that disables its copy in a forked child."""


class Engine:
    """The composition root, made by `open_forebay`. forebay.py holds it; queue.py and topic.py get parts of it."""

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes, int], MetadataStore],
        settings: Settings,
        clock: Clock,
        why_stuck: Callable[[ExplainedOwners, Taker], tuple[int, str] | None],
        in_short: Callable[[ExplainedOwners, Sequence[QueueState]], str],
        *,
        archive_disk: Disk | None = None,
        trace: File | None = None,
        guard: MemoryGuard | None = None,
        memory_figures: Callable[[], MemoryFigures | None] = read_memory_figures,
        status: StatusOutput | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        """Open the store. Requires: the directory lock is held.

        metadata(store id, cache bytes): makes the metadata store.
        why_stuck(owners, consumer): returns log level and text for a consumer that waits and gets nothing; called under
        no lock.
        in_short(owners, queues): returns a sentence about these queues for the status; called under no lock.
        archive_disk: where the archive is, if not in disk.
        trace: an empty file to record in.
        guard: watches the memory of the process.
        memory_figures: returns the system's memory figures, for memory_limit="auto".
        status: where the status is written; None: nowhere.
        on_progress: see DirectoryStore.
        """
        self.monitor = Monitor(clock)
        self.monitor.lock.on_broken.append(self._tell_broken)
        self.late_calls = LateCalls()
        self._is_ended = False
        self.policies = Policies(settings.policies)
        self.wakeups = Wakeups(has_threads=settings.background)
        shares = check_quotas(shares_of(settings))
        self._make_memory(settings, shares)
        disk = thrifty = ThriftyDisk(disk)
        self.directory_store = self._make_store(disk, metadata, settings, clock, archive_disk, shares, on_progress)
        self.overflow = self._make_overflow(settings, disk, clock)
        thrifty.add_giver(self.directory_store.give_up_readers)
        thrifty.add_giver(self.overflow.storage.give_up_readers)
        assert self.budget.free_bytes == shares.available_bytes
        self.guard = guard
        self.recorder: Recorder | None = None
        if trace is not None:
            self.recorder = self._make_recorder(trace, settings)
        self.recovery = open_and_ingest(
            disk,
            self.directory_store,
            self.monitor.lock,
            self.budget.holders["read_buffers"],
            message_bytes_max=min(settings.max_message_size_bytes, settings.memory_limit_bytes),
        )
        self._hand_out_store()
        self._make_targets(settings, shares, clock)
        self._make_core(settings)
        self._make_clients(settings)
        self._make_admin(clock)
        self.for_queues, self.for_topics = self._gather_parts_of_queues(), self._gather_parts_of_topics()
        self.ledger_audit = self._make_ledger_audit()
        self.owners = self._gather_owners(settings)
        self._make_status(settings, status, partial(in_short, self.owners))
        self._make_housekeeping(settings, shares, memory_figures, StuckConsumers(partial(why_stuck, self.owners)))
        self._make_reports()
        self._restore()
        if settings.background:
            self.background.start()

    # ------------------------------------------------------------------ the parts

    def _make_memory(self, settings: Settings, shares: Shares) -> None:
        """Make the budget, and charge the fixed parts in full, whatever they hold now."""
        self.budget = Budget(settings.memory_limit_bytes)
        self._index_holder = self.budget.holder("index", guaranteed_bytes=shares.index_guaranteed_bytes)
        self.budget.holder("consumers", guaranteed_bytes=CONSUMERS_BYTES)
        # Pays for destinations and subscriptions, and for what is made together with their messages.
        self.existing = Tab(self.budget.holder("destinations"))
        fixed = {
            "metadata_store": shares.metadata_bytes,
            "write_buffers": WRITE_BUFFER_BYTES,
            "archive": archive_bytes(settings),
        }
        for name, charge in fixed.items():
            reserved = self.budget.holder(name).reserve(charge)
            assert reserved, "the smallest memory limit has room for the fixed parts"

    def _make_store(
        self,
        disk: Disk,
        metadata: Callable[[bytes, int], MetadataStore],
        settings: Settings,
        clock: Clock,
        archive_disk: Disk | None,
        shares: Shares,
        on_progress: OnProgress,
    ) -> DirectoryStore:
        self.metadata_store: MetadataStore

        def make_metadata_store(store_id: bytes) -> MetadataStore:
            self.metadata_store = metadata(store_id, shares.metadata_bytes)
            return self.metadata_store

        self.windows = DuplicateWindows(
            settings, self.policies, self.budget.holder("duplicates"), shares, self.late_calls.make_room
        )
        properties = PropertyTable(
            self.budget.holder("properties"), limit_bytes_of(settings.max_file_length_bytes), self.late_calls.make_room
        )
        store = DirectoryStore(
            disk,
            make_metadata_store,
            StoreOptions(
                index_cache_bytes=shares.index_cache_bytes,
                max_file_bytes=settings.max_file_length_bytes,
                max_checkpoint_adds=settings.max_checkpoint_adds,
                verifies_all=settings.verify_on_open,
                store_limit=settings.store_limit_share or settings.store_limit_bytes,
                accepts_loss=settings.on_missing_data_log == "report",
            ),
            clock,
            state_lock=self.monitor.lock,
            account=self._index_holder,
            archive=Archive(disk, archive_disk) if settings.archive_data_logs else None,
            relocation_account=self.budget.holder("relocation", guaranteed_bytes=RELOCATION_BYTES),
            duplicates=self.windows.persistent,
            host_properties=properties,
            attempts_account=self.budget.holder("attempts", guaranteed_bytes=ATTEMPTS_BYTES),
            existing=self.existing,
            on_progress=on_progress,
        )
        self.budget.holder("read_buffers", guaranteed_bytes=READ_BUFFER_BYTES)
        return store

    def _hand_out_store(self) -> None:
        """Keep references to those parts of the open store that several layers above it use."""
        whole = self.directory_store
        self.store = whole.messages
        self.journal = whole.journal
        self.index = whole.index
        self.block_cache = whole.index.cache
        self.subscribers = whole.subscriptions
        self.properties = whole.host_properties
        self.property_records = whole.property_records
        self.cleanup = whole.cleanup
        self.now_ms = whole.steady.now_ms

    def _make_overflow(self, settings: Settings, disk: Disk, clock: Clock) -> Overflow:
        """Make tmp-storage, without old files."""
        return Overflow(
            disk,
            self.budget,
            limit_bytes=temp_limit_bytes(settings, disk),
            max_file_bytes=settings.max_file_length_bytes,
            random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
            paid_buffer_bytes=WRITE_BUFFER_BYTES - DIRECTORY_BYTES_MAX,
            make_room=self.late_calls.make_room,
        )

    def _make_recorder(self, trace: File, settings: Settings) -> Recorder:
        from ..planning.recorder import Recorder  # few stores need it, and it takes time to import

        lock, wants_writing = self.monitor.lock, self.wakeups.wake_maintenance
        return Recorder(trace, settings, lock, wants_writing, self.budget.holder("trace"), self.late_calls.make_room)

    def _make_targets(self, settings: Settings, shares: Shares, clock: Clock) -> None:
        self.loads = LoadRequests(self.wakeups.wake_loader, clock if settings.background else None)
        rule, late_calls = MemoryRule(), self.late_calls
        make_dispatch_area: Callable[..., DispatchArea] = DispatchArea
        make: Callable[..., TargetArea] = TargetArea
        if self.recorder is not None:
            from ..planning.recorder import RecordedDispatchArea, RecordedTargetArea

            make_dispatch_area = partial(RecordedDispatchArea, self.recorder)
            make = partial(RecordedTargetArea, self.recorder)
        self.memories = Memories(self.budget, shares.quotas, rule.pending_cache, self.policies.pattern_of)
        self.memory = memory = MemoryParts(
            self.budget,
            self.memories,
            self.overflow,
            rule,
            destinations=self.existing,
            consumers=Tab(self.budget.holders["consumers"]),
            groups=GroupMemory(self.budget.holder("groups")),
        )
        self.dispatch_area: DispatchArea = make_dispatch_area(memory, self.loads, self.now_ms, late_calls)
        self.target_area: TargetArea = make(
            self.monitor,
            self.store,
            self.index.delivery_count_table,
            self.directory_store.return_records,
            memory,
            shares,
            self.loads,
            self.dispatch_area,
            late_calls,
            syncs_always=settings.sync == "always",
            distributions=partial(
                Distributions,
                dispatch_area=self.dispatch_area,
                loads=self.loads,
                consumer_memory=memory.consumers,
                group_memory=memory.groups,
            ),
            observer=partial(
                CurveWatch,
                dispatch_area=self.dispatch_area,
                holder=self.budget.holder("curve"),
                limit_bytes=shares.limit_bytes,
                shares_at=partial(shares_of, settings),
            ),
        )
        self.distributions = self.target_area.distributions
        late_calls.target_area = self.target_area

    def _make_core(self, settings: Settings) -> None:
        """Make the parts that need an open store."""
        monitor, store, wakeups = self.monitor, self.store, self.wakeups
        journal, index = self.journal, self.index
        policies, reading = self.policies, self.budget.holders["read_buffers"]
        self.delayed = DelayedRedelivery(
            monitor,
            index,
            store.timetable,
            self.directory_store.steady,
            self.target_area,
            self.late_calls.lane,
            wakeups.wake_maintenance,
        )
        self.timed = TimedLanes(
            monitor,
            index,
            self.now_ms,
            self.target_area,
            lambda name: policies.of(name).expiry_sweep_seconds,
            wakeups.wake_maintenance,
        )
        self.late_calls.timed = self.timed
        self.redelivery = Redelivery(
            self.target_area, self.dispatch_area, self.delayed, policies, wakeups.wake_maintenance
        )
        self.deadlines = AckDeadlines(
            monitor,
            self.target_area,
            self.redelivery,
            self.budget,
            self.budget.holder("deadlines"),
            wakeups.wake_maintenance,
            has_background=settings.background,
        )
        self.due = DueMessages(monitor, self.delayed, self.timed, self.deadlines)
        self.publisher = Publisher(
            monitor,
            journal,
            self.target_area,
            holder=self.budget.holder("unsynced"),
            syncs_always=settings.sync == "always",
        )
        self.confirmer = ThreadConfirmer(
            monitor, store, journal, self.block_cache, self.publisher, partial(wakeups.leave_checkpoint, store)
        )
        self._make_destinations()
        self.loader = EagerLoader(
            monitor, self.target_area, self.dispatch_area, self.loads, self.overflow.account, reading
        )
        self.warmer = CacheWarmer(
            monitor,
            self.target_area,
            self.loads,
            self.budget,
            self.memories,
            reading,
            self.queues.by_number,
        )
        self.late_calls.warmer = self.warmer

    def _make_destinations(self) -> None:
        """Make the parts that open and close queues, and the parts that depend on them: transactions, removals,
        charges.
        """
        monitor, store, journal, whole = self.monitor, self.store, self.journal, self.directory_store
        memory = TransactionMemory(self.budget.holder("transactions"), self.budget, self.target_area)
        self.transactions = TransactionRegistry(
            monitor=monitor,
            store=store,
            journal=journal,
            transactions=whole.transactions,
            branches=whole.branches,
            confirmer=self.confirmer,
            windows=self.windows,
            memory=memory,
            staging=Staging(
                transactions=whole.transactions,
                dispatch_area=self.dispatch_area,
                redelivery=self.redelivery,
                publisher=self.publisher,
                timed=self.timed,
                windows=self.windows,
                memory=memory,
                now_ms=self.now_ms,
            ),
            properties=PropertyStaging(monitor, self.properties, self.property_records),
        )
        self.removals = Removals(whole.branches, self.target_area, self.delayed)
        self.overhead = DestinationOverhead(
            self.target_area, self.budget, self.existing, self.memory.consumers, self.late_calls.close_some
        )
        records, rows = whole.destination_records, whole.destination_table
        self.lanes = DestinationLanes(
            monitor=monitor,
            store=store,
            epoch=journal.epoch,
            target_area=self.target_area,
            memory=self.memory,
            overhead=self.overhead,
            timed=self.timed,
            removals=self.removals,
        )
        self.opened = self.late_calls.opened = OpenDestinations(
            rows=rows,
            policies=DestinationPolicies(monitor, rows, self.windows, self.policies),
            lanes=self.lanes,
            overhead=self.overhead,
            publisher=self.publisher,
            timed=self.timed,
            undecided=self.transactions.destination_numbers,
        )
        self.queues = Queues(monitor, journal, records, rows, self.opened, self.target_area)
        self.groups = GroupedQueues(monitor, records, self.overhead, self.distributions)
        self.dead_letter_queues = DeadLetterQueues(self.queues, self.lanes, self.groups)
        self.core = CoreParts(
            monitor,
            self.target_area,
            self.dispatch_area,
            self.publisher,
            self.confirmer,
            self.opened,
            self.queues,
            self.lanes,
            self.groups,
            self.dead_letter_queues,
            self.removals,
        )

    def _make_clients(self, settings: Settings) -> None:
        """Make the parts that consumers, topics and senders share."""
        monitor, store = self.monitor, self.store
        parts = ConsumerParts(
            monitor=monitor,
            journal=self.journal,
            dispatch_area=self.dispatch_area,
            consumer_memory=self.memory.consumers,
            searches=SearchParts(monitor, self.dispatch_area, self.loads, self.loader, self.due),
            settlements=Settlements(
                monitor,
                store,
                self.cleanup,
                self.dispatch_area,
                self.deadlines,
                self.redelivery,
                self.transactions,
                self.late_calls.reject,
            ),
            deadlines=self.deadlines,
            redelivery=self.redelivery,
            transactions=self.transactions,
            confirmer=self.confirmer,
            policies=self.policies,
        )
        self.consumers = Consumers(parts, self.target_area, self.distributions, self.overhead)
        self.topic_owners = make_topic_owners(
            self.core,
            self.directory_store,
            overflow=self.overflow,
            overhead=self.overhead,
            timed=self.timed,
            consumers=self.consumers,
            transactions=self.transactions,
            policies=self.policies,
            reading=self.budget.holders["read_buffers"],
            keys=KeyMemory(self.budget.holder("keys"), self.late_calls.make_room),
        )
        self.topics = self.topic_owners.topics
        self.late_calls.numbered_lanes = self.topic_owners.numbered_lanes
        self.space = Space(
            monitor,
            self.cleanup,
            self.overflow,
            self.confirmer,
            self.policies,
            self.wakeups.ask_for_cleanup,
        )
        self.producers = Producers(
            monitor=monitor,
            store=store,
            publisher=self.publisher,
            confirmer=self.confirmer,
            lanes=self.lanes,
            groups=self.groups,
            lifetimes=Lifetimes(self.now_ms),
            fan_outs=self.topic_owners.fan_outs,
            transactions=self.transactions,
            timed=self.timed,
            slices=SliceWriter(monitor, store, self.now_ms, self.publisher, self.timed, self.windows),
            space=self.space,
            full_policy=FullPolicy(
                monitor, store, self.journal, self.publisher, self.dead_letter_queues, self.removals, self.policies
            ),
            settings=settings,
        )

    def _make_admin(self, clock: Clock) -> None:
        self.admin = make_admin_owners(
            self.core,
            self.directory_store,
            budget=self.budget,
            reclaim=self.target_area.reclaim,
            timed=self.timed,
            redelivery=self.redelivery,
            topics=self.topics,
            topic_admin=self.topic_owners.topic_admin,
            transactions=self.transactions,
            policies=self.policies,
            slice_messages_max=self.producers.slice_messages_max,
            wake_maintenance=self.wakeups.wake_maintenance,
            random_bytes=clock.random_bytes,
        )
        self.late_calls.rejections = self.admin.rejections

    def _gather_parts_of_queues(self) -> QueueParts:
        """Return the parts that queues need."""
        return QueueParts(
            monitor=self.monitor,
            producers=self.producers,
            confirmer=self.confirmer,
            policies=self.policies,
            queues=self.queues,
            consumers=self.consumers,
            deadlines=self.deadlines,
            browsers=self.admin.browsers,
            mover=self.admin.mover,
            queue_admin=self.admin.queue_admin,
            temporaries=self.admin.temporaries,
        )

    def _gather_parts_of_topics(self) -> TopicParts:
        """Return the parts that topics need."""
        return TopicParts(
            monitor=self.monitor,
            producers=self.producers,
            policies=self.policies,
            topics=self.topics,
            topic_admin=self.topic_owners.topic_admin,
            patterns=self.topic_owners.patterns,
            topic_consumers=self.topic_owners.consumers,
            subscription_admin=self.topic_owners.admin,
            retained=self.topic_owners.retained,
            temporaries=self.admin.temporaries,
        )

    def _make_ledger_audit(self) -> LedgerAudit:
        return LedgerAudit(
            monitor=self.monitor,
            index=self.index,
            subscribers=self.subscribers,
            properties=self.properties,
            memory=self.memory,
            target_area=self.target_area,
            opened=self.opened,
            queues=self.queues,
            topics=self.topics,
            warmer=self.warmer,
            publisher=self.publisher,
            transactions=self.transactions,
            windows=self.windows,
            deadlines=self.deadlines,
            browsers=self.admin.browsers,
            recorder=self.recorder,
            all_consumers=self.all_consumers,
        )

    def _gather_owners(self, settings: Settings) -> ExplainedOwners:
        """Return the owners that explanations ask."""
        return ExplainedOwners(
            monitor=self.monitor,
            journal=self.journal,
            retention=self.directory_store.retention,
            disk_use=self.directory_store.disk_use,
            now_ms=self.now_ms,
            queues=self.queues,
            topics=self.topics,
            transactions=self.transactions,
            target_area=self.target_area,
            dispatch_area=self.dispatch_area,
            reclaim=self.target_area.reclaim,
            budget=self.budget,
            overflow=self.overflow,
            space=self.space,
            due=self.due,
            delayed=self.delayed,
            sweeper=self.admin.sweeper,
            has_background=settings.background,
        )

    def _make_status(
        self, settings: Settings, output: StatusOutput | None, sentence: Callable[[Sequence[QueueState]], str]
    ) -> None:
        self.oldest = OldestMessages(self.monitor)
        self.status: StatusReporter | None = None
        if output is not None and settings.status_interval_seconds is not None:
            self.status = StatusReporter(
                self.monitor,
                self.queues,
                self.topics,
                self.oldest,
                output,
                settings.status_interval_seconds,
                self.late_calls.status_of_the_whole,
                sentence,
            )

    def _make_housekeeping(
        self,
        settings: Settings,
        shares: Shares,
        memory_figures: Callable[[], MemoryFigures | None],
        stuck: StuckConsumers,
    ) -> None:
        self.resizing = Resizing(
            monitor=self.monitor,
            store=self.store,
            index=self.index,
            metadata_store=self.metadata_store,
            budget=self.budget,
            target_area=self.target_area,
            producers=self.producers,
            windows=self.windows,
            settings=settings,
            shares=shares,
        )
        quarantine = Quarantine(self.monitor, self.target_area.unreadable)
        self.maintenance = Maintenance(
            monitor=self.monitor,
            store=self.store,
            journal=self.journal,
            cleanup=self.cleanup,
            attestation=self.directory_store.attestation,
            write_destinations=self.directory_store.write_destinations,
            overflow=self.overflow,
            due=self.due,
            measurements=Measurements(
                self.monitor, self.target_area, self.dispatch_area, self.warmer, stuck, self.all_consumers
            ),
            quarantine=quarantine if settings.on_missing_data_log == "report" else None,
            timed=self.timed,
            sweeper=self.admin.sweeper,
            browsers=self.admin.browsers,
            wakeups=self.wakeups,
            settings=settings,
            others=self._duties(memory_figures, stuck),
        )
        self.background = Background(
            self.monitor,
            self.wakeups,
            self.loads,
            self.load,
            self.maintenance.step,
            self.maintenance.pause,
            self._tell_failure,
        )

    def _duties(self, memory_figures: Callable[[], MemoryFigures | None], stuck: StuckConsumers) -> list[Duty]:
        """Return the duties without a time of their own, in the order in which they are done."""
        return [
            *([Duty("trace", self.recorder.write)] if self.recorder is not None else []),
            Duty("memory guard", self._sample_memory),
            Duty("resize", self.resizing.step),
            Duty("sifting of topics", self._sift_topics),
            Duty("memory limit", AutoLimit(self.monitor, self.resizing, memory_figures).step),
            Duty("stuck consumers", stuck.tell),
            Duty("publishing", self.confirmer.confirm_left),
            Duty("dead letters", self.admin.dead_letters.steps),
            Duty("duplicate windows", self.windows.warn),
            Duty("temporary destinations", self.admin.temporaries.sweep),
            Duty("inactive destinations", self.admin.inactive.step),
            Duty("idle destinations", self.admin.idle.step),
            Duty("retention of topics", self.topic_owners.retention.trim),
            *([Duty("status", self.status.step)] if self.status is not None else []),
        ]

    def _make_reports(self) -> None:
        self.reports = Reports(
            monitor=self.monitor,
            store=self.store,
            disk_use=self.directory_store.disk_use,
            sync_durations=self.journal.sync_durations,
            checkpoint_durations=self.directory_store.checkpointer.durations,
            memory=self.memory,
            queues=self.queues,
            topics=self.topics,
            target_area=self.target_area,
            dispatch_area=self.dispatch_area,
            watch=self.target_area.watch,
            windows=self.windows,
            oldest=self.oldest,
            loader=self.loader,
            consumers=self.consumers,
            maintenance=self.maintenance,
            background=self.background,
            process_statistics=self._process_statistics,
        )
        self.late_calls.reports = self.reports

    def _sample_memory(self) -> int:
        """Compare the process's memory with the ledger; return 0. Requires: no lock."""
        if self.guard is not None:
            self.guard.sample(self.monitor.monotonic(), self.budget.held_bytes)
        return 0

    def _sift_topics(self) -> int:
        """Let topics do part of their work, and come back soon if there is more. Requires: no lock."""
        if not self.topic_owners.subscriptions.step():
            return 0
        self.wakeups.wake_maintenance()
        return 1

    # ------------------------------------------------------------------ opening and closing

    def _restore(self) -> None:
        """Take over what opening the store found, and begin."""
        with self.monitor.lock:
            used = self.lanes.used_at_open(self.directory_store.branches.prepared)
            for queue in self.queues.restore(used):
                self.distributions.begin_assigning(queue)
            self.topic_owners.restore(self.lanes, used)
            subscriptions = self.subscribers
            rows_bytes = subscriptions.rows_charge + self.index.idle.charge_bytes
            self.overhead.restore(self.opened.census(), subscriptions.count, rows_bytes)
            self.topic_owners.retention.apply_all(self.topics.by_name.values())
            for lane in self.lanes.restore(self.queues.by_number):
                if lane.pending_lane.pending_messages:
                    self.warmer.begin(lane)
            self.transactions.recover(self.topic_owners.numbered_lanes.ensure)
            if self.recorder is not None:
                self.recorder.begin(lane for queue in self.queues.by_name.values() for lane in queue.all_lanes())
            self.admin.dead_letter_recovery.recover(was_killed=not self.recovery.clean)
            self.timed.restore(self._lanes())
            forgotten = self.delayed.restore()
            self.admin.temporaries.restore()
        self.admin.temporaries.sweep()
        if forgotten:
            logger.warning(
                "%d messages with a group come back before their delay is over: memory_limit has no room to hold their "
                "groups back",
                forgotten,
                event="delays_forgotten",
            )
        self._die = partial(Engine.die_in_child, self)
        _in_child.add(self._die)

    def _lanes(self) -> Iterator[LaneState]:
        for destination in (*self.queues.by_name.values(), *self.topics.by_name.values()):
            yield from destination.all_lanes()

    def close(self, timeout: float | None = None) -> None:
        """Stop the threads, return the deliveries of consumers, close the store.

        A second call continues or does nothing.

        If the lock is broken, only the journal is right, and nothing in RAM is used any more.
        """
        monitor = self.monitor
        if self._is_ended:
            return
        try:
            if monitor.lock.failure is None:
                with monitor.lock, monitor.whole:
                    self._end_all()
        except Exception as error:
            self.background.stop(timeout)  # the close releases the directory, so nothing may write there any more
            with suppress(StoreFailed), monitor.lock:
                self.journal.fail(f"the store could not be closed ({error})")  # a second close leaves no marker
            raise
        monitor.is_closed = True
        try:
            self.background.stop(timeout)
            if self.recorder is not None:
                self.recorder.close()
            self.directory_store.close()
            if self.status is not None:
                self.status.end()
            if monitor.lock.failure is not None:
                self._close_tmp_storage()
            self._is_ended = True
        finally:
            with suppress(StoreFailed):
                monitor.run_deferred()

    def _end_all(self) -> None:
        """End all objects of this store that others hold. Requires: the lock."""
        monitor = self.monitor
        if not monitor.is_closed:
            monitor.is_closed = True
            monitor.deferred.clear()
        self.transactions.close()
        self.admin.temporaries.delete_all()
        self.overflow.close()
        for taken_from in [
            *self.queues.by_name.values(),
            *self.topic_owners.patterns.all(),
            *self.topics.online(),
        ]:
            taken_from.end_consumers()
        for destination in [*self.queues.by_name.values(), *self.topics.by_name.values()]:
            if destination.admission is not None:
                destination.admission.close()
        self.space.close()

    def _close_tmp_storage(self) -> None:
        """Delete what can be deleted of it, whatever was interrupted; the next open deletes the rest."""
        try:
            self.overflow.close()
        except Exception as error:
            logger.debug("tmp-storage is emptied at the next open: %s", error, event="tmp_storage_left")

    def _tell_broken(self, failure: StoreFailed) -> None:
        """Wake everybody who waits outside the broken lock, so that each raises the failure.

        Requires: the lock.
        """
        logger.error("%s", failure, event="store_broken")
        self.wakeups.wake_loader()
        self.wakeups.wake_maintenance()
        for consumer in list(self.all_consumers()):
            consumer.wake_on_failure()

    def die_in_child(self) -> None:
        """Disable the copy in a forked child, which must never write, because the parent owns the directory."""
        made_anew = getattr(self.monitor.lock, "_at_fork_reinit", None)
        if made_anew is not None:  # a replacement of threading may have none, and other stores must be disabled too
            made_anew()
        self.monitor.is_closed = self._is_ended = True
        self.background.forget()
        self.journal.stop()
        for consumer in self.all_consumers():
            consumer.die()

    def all_consumers(self) -> Iterator[Taker]:
        """Yield every consumer of every queue and topic. Requires: the lock."""
        yield from (consumer for queue in self.queues.by_name.values() for consumer in queue.consumers())
        yield from self.topics.consumers()

    # ------------------------------------------------------------------ work and reports

    def load(self) -> bool:
        """Load for a list that runs low; if there is none, for the head of a queue. Return whether there was one."""
        return self.loader.step() or self.warmer.step()

    def step(self) -> int:
        """Do the background work that is due, in the caller's thread; return how many things were done."""
        # Check all locks here, because a duty that is refused inside would count as failing.
        require_outside(self.monitor.lock, self.store.sync_lock, self.store.checkpoint_lock)
        self.monitor.raise_if_closed()
        done = self.maintenance.step()
        while self.admin.dead_letters.step() or self.topic_owners.sweeper.step() or self.background.load_once():
            done += 1
        if self.monitor.deferred:
            self.monitor.run_deferred()
        return done

    def _tell_failure(self) -> None:
        """Write the last status of a store that has failed, which tells the failure."""
        if self.status is not None:
            with suppress(OSError):
                if self.monitor.lock.failure is None:
                    self.status.write()
                else:
                    self.status.write_failed(dataclasses.asdict(self.reports.health()))

    @property
    def settings(self) -> Settings:
        """The settings, with the memory limit of the last resize."""
        return self.resizing.settings

    def _process_statistics(self) -> ProcessStatistics | None:
        return self.guard.statistics if self.guard is not None else None


def _die_in_child() -> None:
    for die in list(_in_child):
        die()


after_fork_in_child(_die_in_child)
