"""The engine of one open directory: makes the parts, opens and closes them in order.

Three locks, always taken in this order: checkpoint lock (MessageStore), sync
lock (Journal), state lock (Monitor). Callbacks of users are called under none
of them.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...cache.budget import Budget
from ...cache.process.guard import MemoryGuard, ProcessStatistics
from ...cache.process.memory import id_and_resident_bytes
from ...cache.process.shortage import MemoryFigures, read_memory_figures
from ...cache.shares import Shares
from ...cache.spill.overflow import Overflow
from ...cache.tab import Tab
from ...store.clock import Clock
from ...store.disk.disk import Disk, File
from ...store.disk.layout import after_fork_in_child
from ...store.disk.thrifty_disk import ThriftyDisk
from ...store.errors import StoreFailed
from ...store.histogram import DurationStatistics
from ...store.ingest.ingest import open_and_ingest
from ...store.late_log import LateLogger
from ...store.locks import require_outside
from ...store.maintenance.archive import Archive
from ...store.message_store import MessageStore, StoreOptions
from ...store.metadata.store import MetadataStore
from ...store.numbering import LANE_MASK, LANE_SHIFT, NON_PERSISTENT
from ...store.progress import OnProgress, tell_nobody
from ...store.property_table import PropertyTable, limit_bytes_of
from ..admin.browse import Browsers
from ..admin.dead_letters import DeadLetterMover
from ..admin.expiry import ExpirySweeper
from ..admin.idle import IdleDestinations
from ..admin.inactive import InactiveDestinations
from ..admin.move import Mover
from ..admin.oldest import OldestMessages
from ..admin.queue_admin import QueueAdmin
from ..admin.temporaries import Temporaries
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
from ..consumer.stuck import StuckConsumers
from ..core.consumer_memory import ASSIGNED_BYTES, group_charge
from ..core.deadlines import AckDeadlines
from ..core.delays import DelayedRedelivery, TimedLanes
from ..core.destinations import Destinations
from ..core.due import DueMessages
from ..core.lists import TargetArea
from ..core.load_requests import LoadRequests
from ..core.memory_rule import MemoryRule
from ..core.model import DestinationState, LaneState, Taker
from ..core.monitor import Monitor, in_sections
from ..core.overhead import FAN_OUT_BYTES, OPEN_SUBSCRIPTION_BYTES, Census, DestinationOverhead
from ..core.parts import CoreParts
from ..core.publisher import Publisher
from ..core.queue_area import QueueArea
from ..core.redelivery import Redelivery
from ..core.removal import Removals
from ..distribution.grouped import begin_assigning
from ..distribution.ordinary import OrdinaryDistribution
from ..loading.eager import EagerLoader
from ..loading.warmer import CacheWarmer
from ..producer.producers import Producers
from ..producer.space import Space
from ..topics.latest_keys import KeyMemory
from ..topics.registry import Topics
from ..transactions.transaction import TransactionRegistry
from .auto_limit import AutoLimit
from .background import Background, Wakeups
from .curve_watch import CurveWatch
from .duties import Duty
from .health import Health, health_of
from .maintenance import Maintenance
from .measurements import Measurements
from .owners import Owners
from .resizing import Resizing
from .statistics import (
    DestinationStatistics,
    Statistics,
    TopicStatistics,
    destination_statistics,
    statistics_of_topic,
)
from .status import StatusOutput, StatusReporter, data_log_rows

if TYPE_CHECKING:
    from ..planning.recorder import Recorder

logger = LateLogger("forebay.dispatch")

_in_child: weakref.WeakSet[partial[None]] = weakref.WeakSet()
"""Per live engine, the hook that disables its copy in a forked child."""


class Engine:
    """The composition root. Made by `open_forebay`; queue.py, topic.py and forebay.py take its parts."""

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes, int], MetadataStore],
        settings: Settings,
        clock: Clock,
        why_stuck: Callable[[Owners, Taker], tuple[int, str] | None],
        in_short: Callable[[Owners, Sequence[QueueArea]], str],
        *,
        archive_disk: Disk | None = None,
        trace: File | None = None,
        guard: MemoryGuard | None = None,
        memory_figures: Callable[[], MemoryFigures | None] = read_memory_figures,
        status: StatusOutput | None = None,
        on_progress: OnProgress = tell_nobody,
    ) -> None:
        """Open the store. Requires: the directory lock is held.

        metadata(store id, cache bytes) makes the metadata store. why_stuck(owners, consumer): the level of the log and
        what to say of a consumer that waits and gets nothing, called under no lock. in_short(owners, queues): a
        sentence about these queues for the status, called under no lock. archive_disk: where the archive is, if not in
        disk. trace: an empty file to record in. guard: watches the memory of the process. memory_figures: what the
        system tells of its memory, for memory_limit="auto". status: where the status goes; None: it is not written.
        on_progress: see MessageStore.
        """
        self.monitor = Monitor(clock)
        self.monitor.lock.on_broken.append(self._tell_broken)
        self._is_ended = False
        self.policies = Policies(settings.policies)
        self.wakeups = Wakeups(has_threads=settings.background)
        shares = check_quotas(shares_of(settings))
        self._make_memory(settings, shares)
        disk = thrifty = ThriftyDisk(disk)
        self.store = self._make_store(disk, metadata, settings, clock, archive_disk, shares, on_progress)
        self.overflow = self._make_overflow(settings, disk, clock)
        thrifty.add_giver(self.store.give_up_readers)
        thrifty.add_giver(self.overflow.storage.give_up_readers)
        assert self.budget.free_bytes == shares.available_bytes
        self.guard = guard
        self.recorder: Recorder | None = None
        if trace is not None:
            self.recorder = self._make_recorder(trace, settings)
        self._make_targets(settings, shares, clock)
        self.recovery = open_and_ingest(
            disk,
            self.store,
            self.monitor.lock,
            self.budget.holders["read_buffers"],
            message_bytes_max=min(settings.max_message_size_bytes, settings.memory_limit_bytes),
        )
        self._make_core(settings)
        self._make_clients(settings)
        self._make_admin(clock)
        self.owners = self._gather_owners(settings)
        self._make_status(settings, status, partial(in_short, self.owners))
        self._make_housekeeping(settings, shares, memory_figures, StuckConsumers(partial(why_stuck, self.owners)))
        self._restore()
        if settings.background:
            self.background.start()

    # ------------------------------------------------------------------ the parts

    def _make_memory(self, settings: Settings, shares: Shares) -> None:
        """Make the budget, and charge the fixed parts to it, whatever they hold now."""
        self.budget = Budget(settings.memory_limit_bytes)
        self._index_holder = self.budget.holder("index", guaranteed_bytes=shares.index_guaranteed_bytes)
        self.budget.holder("consumers", guaranteed_bytes=CONSUMERS_BYTES)
        self.existing = Tab(self.budget.holder("destinations"))
        """Pays for destinations and subscriptions, and for what comes into being with their messages."""
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
    ) -> MessageStore:
        self.metadata_store: MetadataStore

        def make_metadata_store(store_id: bytes) -> MetadataStore:
            self.metadata_store = metadata(store_id, shares.metadata_bytes)
            return self.metadata_store

        self.windows = DuplicateWindows(
            settings, self.policies, self.budget.holder("duplicates"), shares, self._make_room
        )
        properties = PropertyTable(
            self.budget.holder("properties"), limit_bytes_of(settings.max_file_length_bytes), self._make_room
        )
        store = MessageStore(
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
            properties=properties,
            attempts_account=self.budget.holder("attempts", guaranteed_bytes=ATTEMPTS_BYTES),
            existing=self.existing,
            on_progress=on_progress,
        )
        self.budget.holder("read_buffers", guaranteed_bytes=READ_BUFFER_BYTES)
        return store

    def _make_overflow(self, settings: Settings, disk: Disk, clock: Clock) -> Overflow:
        """Make tmp-storage, emptied."""
        overflow = Overflow(
            disk,
            self.budget,
            limit_bytes=temp_limit_bytes(settings, disk),
            max_file_bytes=settings.max_file_length_bytes,
            random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
            paid_buffer_bytes=WRITE_BUFFER_BYTES - DIRECTORY_BYTES_MAX,
            make_room=self._make_room,
        )
        return overflow

    def _make_recorder(self, trace: File, settings: Settings) -> Recorder:
        from ..planning.recorder import Recorder  # by few, and it takes time to import

        lock, wants_writing = self.monitor.lock, self.wakeups.wake_maintenance
        return Recorder(trace, settings, lock, wants_writing, self.budget.holder("trace"), self._make_room)

    def _make_targets(self, settings: Settings, shares: Shares, clock: Clock) -> None:
        self.loads = LoadRequests(self.wakeups.wake_loader, clock if settings.background else None)
        make: Callable[..., TargetArea] = TargetArea
        if self.recorder is not None:
            from ..planning.recorder import RecordedTargetArea

            make = partial(RecordedTargetArea, self.recorder)
        self.target_area: TargetArea = make(
            self.monitor,
            self.store,
            self.budget,
            shares,
            self.loads,
            MemoryRule(),
            syncs_always=settings.sync == "always",
            destinations=self.existing,
            overflow=self.overflow,
            pattern_of=self.policies.pattern_of,
            ordinary=OrdinaryDistribution,
            observer=lambda targets: CurveWatch(targets, shares.limit_bytes, partial(shares_of, settings)),
            # These look at lists, so they are made behind them.
            on_expired=lambda lane, sequence: self.timed.meet(lane, sequence),
            on_unread=lambda lane: self.warmer.begin(lane),
            on_lane_gone=lambda lane: self.warmer.forget(lane),
        )

    def _make_core(self, settings: Settings) -> None:
        """Make what stands on a store that is open."""
        monitor, store, wakeups = self.monitor, self.store, self.wakeups
        policies, reading = self.policies, self.budget.holders["read_buffers"]
        self.delayed = DelayedRedelivery(monitor, store, self.target_area, self._lane, wakeups.wake_maintenance)
        self.timed = TimedLanes(
            monitor,
            store,
            self.target_area,
            lambda name: policies.of(name).expiry_sweep_seconds,
            wakeups.wake_maintenance,
        )
        self.redelivery = Redelivery(self.target_area, self.delayed, policies, wakeups.wake_maintenance)
        self.deadlines = AckDeadlines(
            monitor,
            self.target_area,
            self.redelivery,
            self.budget.holder("deadlines"),
            wakeups.wake_maintenance,
            has_background=settings.background,
        )
        self.due = DueMessages(monitor, self.delayed, self.timed, self.deadlines)
        self.publisher = Publisher(
            monitor,
            store,
            self.target_area,
            holder=self.budget.holder("unsynced"),
            syncs_always=settings.sync == "always",
            leave_checkpoint=partial(wakeups.leave_checkpoint, store),
        )
        self.transactions = TransactionRegistry(
            monitor,
            store,
            self.target_area,
            self.publisher,
            self.redelivery,
            self.timed,
            self.windows,
            self.budget.holder("transactions"),
        )
        self.removals = Removals(store, self.target_area, self.delayed)
        self.overhead = DestinationOverhead(self.target_area, lambda: self.destinations.close_some())
        self.destinations = Destinations(
            monitor=monitor,
            store=store,
            target_area=self.target_area,
            overflow=self.overflow,
            publisher=self.publisher,
            timed=self.timed,
            overhead=self.overhead,
            removals=self.removals,
            windows=self.windows,
            policies=policies,
            undecided=self.transactions.destinations,
            close_topic=lambda name, undecided: self.topics.close_named(name, undecided),  # topics are destinations
        )
        self.parts = CoreParts(monitor, store, self.target_area, self.publisher, self.destinations, self.removals)
        self.loader = EagerLoader(self.target_area, reading)
        self.warmer = CacheWarmer(self.target_area, reading, self.destinations.by_number)

    def _make_clients(self, settings: Settings) -> None:
        """Make what consumers, topics and senders share."""
        monitor, store, target_area, publisher = self.monitor, self.store, self.target_area, self.publisher
        parts = ConsumerParts(
            monitor=monitor,
            store=store,
            target_area=target_area,
            loader=self.loader,
            due=self.due,
            deadlines=self.deadlines,
            redelivery=self.redelivery,
            transactions=self.transactions,
            publisher=publisher,
            policies=self.policies,
            reject=lambda *rejected: self.dead_letters.reject(*rejected),  # which know topics, and these consumers
        )
        self.consumers = Consumers(parts, self.overhead)
        self.topics = Topics(
            monitor=monitor,
            store=store,
            target_area=target_area,
            overflow=self.overflow,
            publisher=publisher,
            destinations=self.destinations,
            overhead=self.overhead,
            removals=self.removals,
            timed=self.timed,
            consumers=self.consumers,
            transactions=self.transactions,
            policies=self.policies,
            reading=self.budget.holders["read_buffers"],
            keys=KeyMemory(self.budget.holder("keys"), self._make_room),
        )
        self.space = Space(
            monitor,
            store,
            self.overflow,
            publisher,
            self.policies,
            self.wakeups.ask_for_cleanup,
        )
        self.producers = Producers(
            self.parts,
            topics=self.topics,
            transactions=self.transactions,
            timed=self.timed,
            windows=self.windows,
            space=self.space,
            policies=self.policies,
            settings=settings,
        )

    def _make_admin(self, clock: Clock) -> None:
        monitor, store, target_area, publisher = self.monitor, self.store, self.target_area, self.publisher
        self.browsers = Browsers(
            monitor,
            target_area,
            self.timed.is_expired,
            self.budget.holder("browsers"),
            self.budget.holders["read_buffers"],
            self.destinations.seen,
        )
        self.mover = Mover(
            self.parts,
            timed=self.timed,
            browsers=self.browsers,
            slice_messages_max=self.producers.slice_messages_max,
        )
        self.dead_letters = DeadLetterMover(
            self.parts,
            redelivery=self.redelivery,
            topics=self.topics,
            browsers=self.browsers,
            mover=self.mover,
            policies=self.policies,
            wake_maintenance=self.wakeups.wake_maintenance,
        )
        self.sweeper = ExpirySweeper(
            monitor, store, self.timed, self.removals, self.browsers, self.dead_letters, self.policies
        )
        self.queue_admin = QueueAdmin(monitor, store, publisher, self.destinations, self.removals, self.transactions)
        self.temporaries = Temporaries(
            monitor=monitor,
            store=store,
            publisher=publisher,
            destinations=self.destinations,
            topics=self.topics,
            queue_admin=self.queue_admin,
            random_bytes=clock.random_bytes,
        )
        self.inactive = InactiveDestinations(
            monitor=monitor,
            store=store,
            publisher=publisher,
            destinations=self.destinations,
            topics=self.topics,
            queue_admin=self.queue_admin,
            transactions=self.transactions,
            shortest_seconds=self.policies.shortest_inactive_seconds,
        )
        self.idle = IdleDestinations(monitor, self.destinations, self.topics, self.transactions)

    def _gather_owners(self, settings: Settings) -> Owners:
        """Return what explanations look at."""
        return Owners(
            monitor=self.monitor,
            store=self.store,
            destinations=self.destinations,
            topics=self.topics,
            transactions=self.transactions,
            target_area=self.target_area,
            budget=self.budget,
            overflow=self.overflow,
            space=self.space,
            due=self.due,
            delayed=self.delayed,
            sweeper=self.sweeper,
            has_background=settings.background,
        )

    def _make_status(
        self, settings: Settings, output: StatusOutput | None, sentence: Callable[[Sequence[QueueArea]], str]
    ) -> None:
        self.oldest = OldestMessages(self.monitor)
        self.status: StatusReporter | None = None
        if output is not None and settings.status_interval_seconds is not None:
            self.status = StatusReporter(
                self.monitor,
                self.destinations,
                self.topics,
                self.oldest,
                output,
                settings.status_interval_seconds,
                self._status_of_the_whole,
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
            metadata_store=self.metadata_store,
            budget=self.budget,
            target_area=self.target_area,
            producers=self.producers,
            windows=self.windows,
            settings=settings,
            shares=shares,
        )
        quarantine = Quarantine(self.monitor, self.store, self.target_area)
        self.maintenance = Maintenance(
            monitor=self.monitor,
            store=self.store,
            overflow=self.overflow,
            due=self.due,
            measurements=Measurements(
                self.target_area, self.warmer, stuck, self.all_consumers, self.monitor.monotonic()
            ),
            quarantine=quarantine if settings.on_missing_data_log == "report" else None,
            timed=self.timed,
            sweeper=self.sweeper,
            browsers=self.browsers,
            wakeups=self.wakeups,
            settings=settings,
            others=[
                *([Duty("trace", self.recorder.write)] if self.recorder is not None else []),
                Duty("memory guard", self._look_at_memory),
                Duty("resize", self.resizing.step),
                Duty("sifting of topics", self._sift_topics),
                Duty("memory limit", AutoLimit(self.monitor, self.resizing, memory_figures).step),
                Duty("stuck consumers", stuck.tell),
                Duty("publishing", self.publisher.publish_left),
                Duty("dead letters", self.dead_letters.steps),
                Duty("duplicate windows", self.windows.warn),
                Duty("temporary destinations", self.temporaries.sweep),
                Duty("inactive destinations", self.inactive.step),
                Duty("idle destinations", self.idle.step),
                Duty("retention of topics", self.topics.trim),
                *([Duty("status", self.status.step)] if self.status is not None else []),
            ],
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

    def _look_at_memory(self) -> int:
        """Compare the process's memory with the ledger. Nothing is done by it. Requires: no lock."""
        if self.guard is not None:
            self.guard.look(self.monitor.monotonic(), self.budget.held_bytes)
        return 0

    def _sift_topics(self) -> int:
        """Let topics do some of what there is, and come back soon where there is more. Requires: no lock."""
        if not self.topics.sift():
            return 0
        self.wakeups.wake_maintenance()
        return 1

    def _make_room(self, wanted_bytes: int) -> None:
        """Take memory from lists and caches. Requires: the lock."""
        self.target_area.make_room(wanted_bytes, None)

    # ------------------------------------------------------------------ opening and closing

    def _restore(self) -> None:
        """Take over what opening found, and begin."""
        with self.monitor.lock:
            for queue in self.destinations.restore():
                begin_assigning(self.target_area, queue)
            self.topics.restore()
            subscriptions = self.store.subscriptions
            rows_bytes = subscriptions.rows_charge + self.store.index.idle.charge_bytes
            self.overhead.restore(self._census(), subscriptions.count, rows_bytes)
            self.topics.apply_retention_rules()
            for lane in self.destinations.restore_lanes():
                if lane.stored.pending_messages:
                    self.warmer.begin(lane)
            self.transactions.recover(self.topics.lane)
            if self.recorder is not None:
                self.recorder.begin(lane for queue in self.destinations.queues.values() for lane in queue.all_lanes())
            self.dead_letters.recover(was_killed=not self.recovery.clean)
            self.timed.restore(self._lanes())
            forgotten = self.delayed.restore()
            self.temporaries.restore()
        self.temporaries.sweep()
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
        for queue in (*self.destinations.queues.values(), *self.topics.by_name.values()):
            yield from queue.all_lanes()

    def _lane(self, number: int) -> LaneState | None:
        """Return the lane of that number, of a queue or subscription, if it is open. Requires: the lock."""
        destination, priority = (number & ~NON_PERSISTENT) >> LANE_SHIFT, number & LANE_MASK
        queue = self.destinations.by_number.get(destination) or self.topics.subscription(destination)
        if queue is None:
            return None
        return (queue.non_persistent_lanes if number & NON_PERSISTENT else queue.lanes)[priority]

    def _census(self) -> Census:
        """Return how much there is that is charged because it exists. Requires: the lock."""
        destinations, queues = self.store.destinations, self.destinations.queues
        return Census(
            destinations=len(destinations),
            name_bytes=destinations.name_bytes,
            open_queues=len(queues),
            counted=self.destinations.closed_counting,
            open_topics=len(self.topics.by_name),
            grouped=sum(queue.has_groups for queue in queues.values()),
        )

    def close(self, timeout: float | None = None) -> None:
        """Stop the threads, return what consumers hold, close the store. Twice is once; an interrupted one goes on.

        Of a store whose lock is broken only the journal is right: nothing in RAM is looked at any more.
        """
        monitor = self.monitor
        if self._is_ended:
            return
        try:
            if monitor.lock.failure is None:
                with monitor.lock, monitor.whole:
                    self._end_all()
        except Exception as error:
            self.background.stop(timeout)  # who closes lets the directory go: nothing may write there any more
            with suppress(StoreFailed), monitor.lock:
                self.store.journal.fail(f"the store could not be closed ({error})")  # a second close leaves no mark
            raise
        monitor.is_closed = True
        try:
            self.background.stop(timeout)
            if self.recorder is not None:
                self.recorder.close()
            self.store.close()
            if self.status is not None:
                self.status.end()
            if monitor.lock.failure is not None:
                self._close_tmp_storage()
            self._is_ended = True
        finally:
            with suppress(StoreFailed):
                monitor.run_deferred()

    def _end_all(self) -> None:
        """End what others have of this store. Requires: the lock."""
        monitor = self.monitor
        if not monitor.is_closed:
            monitor.is_closed = True
            monitor.deferred.clear()
        self.transactions.close()
        self.temporaries.delete_all()
        self.overflow.close()
        for queue in [*self.destinations.queues.values(), *self.topics.patterns, *self.topics.online()]:
            queue.end_consumers()
        for queue in [*self.destinations.queues.values(), *self.topics.by_name.values()]:
            if queue.admission is not None:
                queue.admission.close()
        self.space.close()

    def _close_tmp_storage(self) -> None:
        """Delete what can be deleted of it, whatever was broken into; the next open deletes the rest."""
        try:
            self.overflow.close()
        except Exception as error:
            logger.debug("tmp-storage is emptied at the next open: %s", error, event="tmp_storage_left")

    def _tell_broken(self, failure: StoreFailed) -> None:
        """Tell whoever waits outside the lock that it is broken: they look again, and get the failure.

        Requires: the lock.
        """
        logger.error("%s", failure, event="store_broken")
        self.wakeups.wake_loader()
        self.wakeups.wake_maintenance()
        for consumer in list(self.all_consumers()):
            consumer.find_out()

    def die_in_child(self) -> None:
        """Disable the copy of a forked child, which must never write: the parent owns the directory."""
        made_anew = getattr(self.monitor.lock, "_at_fork_reinit", None)
        if made_anew is not None:  # what stands in the place of threading may have none, and others must die too
            made_anew()
        self.monitor.is_closed = self._is_ended = True
        self.background.forget()
        self.store.journal.stop()
        for consumer in self.all_consumers():
            consumer.die()

    def all_consumers(self) -> Iterator[Taker]:
        """Yield every consumer of every queue and topic. Requires: the lock."""
        yield from (consumer for queue in self.destinations.queues.values() for consumer in queue.consumers())
        yield from self.topics.consumers()

    # ------------------------------------------------------------------ work and reports

    def load(self) -> bool:
        """Load for a list that runs low; where there is none, for the head of a queue. Return whether there was one."""
        return self.loader.step() or self.warmer.step()

    def step(self) -> int:
        """Do the background work that is due, in the caller's thread; return how many things were done."""
        # At the door, for all that it would take: a duty that is refused inside counts as one that fails.
        require_outside(self.monitor.lock, self.store.journal.sync_lock, self.store.checkpoint_lock)
        self.monitor.raise_if_closed()
        done = self.maintenance.step()
        while self.dead_letters.step() or self.topics.unmatched_sweeper.step() or self.background.load_once():
            done += 1
        if self.monitor.deferred:
            self.monitor.run_deferred()
        return done

    def statistics(self) -> Statistics:
        """Return a snapshot: of each destination, and of the rest. O(destinations + data logs), no disk.

        Nobody waits for it longer than for some hundred destinations or subscriptions.
        """
        with self.monitor.lock:
            numbers, topic_numbers = self.destinations.numbers(), self.topics.numbers()
        destinations: dict[str, DestinationStatistics] = {}
        for part in in_sections(numbers):
            with self.monitor.lock:
                for number in part:
                    queue = self.destinations.seen_numbered(number)
                    if queue is not None:
                        destinations[queue.name] = destination_statistics(queue, self.oldest.age_seconds(queue))
        topics: dict[str, TopicStatistics] = {}
        for number in topic_numbers:
            with self.monitor.lock:
                topic = self.topics.seen_numbered(number)
            if topic is not None:
                topics[topic.name] = statistics_of_topic(self.monitor, topic)
        self._observe_lists()
        with self.monitor.lock:
            return Statistics(
                dataclasses.replace(self.budget.statistics(), curve=self.target_area.watch.curve()),
                self.store.statistics(),
                self.overflow.statistics,
                destinations,
                topics,
                self.target_area.cache_statistics(),
                self._process_statistics(),
                self.maintenance.failing() | self.background.failing(),
                self.windows.forgotten,
                self._durations(),
            )

    def _observe_lists(self) -> None:
        """Bring the live curve up to now, some lists at a time. Requires: no lock."""
        with self.monitor.lock:
            lists = list(self.target_area.lists)
        for part in in_sections(lists):
            with self.monitor.lock, self.monitor.whole:
                for target in part:
                    if target in self.target_area.lists:
                        self.target_area.watch.look(target)

    def _durations(self) -> dict[str, DurationStatistics]:
        """Return how long what waits for disks and for messages took. Requires: the lock."""
        return {
            "sync": self.store.journal.sync_durations.statistics(),
            "checkpoint": self.store.checkpointer.durations.statistics(),
            "load": self.loader.durations.statistics(),
            "take": self.consumers.take_durations.statistics(),
        }

    def health(self) -> Health:
        """Return whether the store does all that it should. O(1), no disk."""
        return health_of(self.monitor, self.store, self.target_area, self.maintenance, self.background)

    def _status_of_the_whole(self) -> dict[str, Any]:
        """Return what a status tells of the store as a whole. O(lanes + data logs), no disk. Requires: no lock."""
        self._observe_lists()
        with self.monitor.lock:
            memory, store = self.budget.statistics(), self.store.statistics()
            tmp_storage, process = self.overflow.statistics, self._process_statistics()
            data_logs = self.store.live_bytes_by_data_log()
            curve, durations = self.target_area.watch.recent_curve(), self._durations()
            caches = self.target_area.cache_statistics()
        failing = self.maintenance.failing() | self.background.failing()
        process_id, resident_bytes = id_and_resident_bytes()
        return {
            "health": dataclasses.asdict(self.health()),
            "memory": {
                "limit_bytes": memory.limit_bytes,
                "held_bytes": memory.held_bytes,
                "held_bytes_max": memory.held_bytes_max,
                "holders": memory.holders,
                "recommended_limit_bytes": curve.recommended_limit_bytes,
                "curve": [[point.limit_bytes, point.hit_ratio] for point in curve.points] if curve.deliveries else [],
            },
            "store": store._asdict(),
            "tmp_storage": dataclasses.asdict(tmp_storage),
            "process": dataclasses.asdict(process) if process is not None else None,
            "failing": {name: dataclasses.asdict(found) for name, found in failing.items()},
            "durations": {name: dataclasses.asdict(found) for name, found in durations.items()},
            "caches": {name: dataclasses.asdict(found) for name, found in caches.items()},
            "forgotten_ids": self.windows.forgotten,
            "pid": process_id,
            "resident_bytes": resident_bytes,
            "data_logs": list(data_log_rows(data_logs)),
        }

    def _tell_failure(self) -> None:
        """Write the last status of a store that has failed, which says so."""
        if self.status is not None:
            with suppress(OSError):
                if self.monitor.lock.failure is None:
                    self.status.write()
                else:
                    self.status.write_failed(dataclasses.asdict(self.health()))

    @property
    def settings(self) -> Settings:
        """The settings, with the memory limit of the last resize."""
        return self.resizing.settings

    def _process_statistics(self) -> ProcessStatistics | None:
        return self.guard.statistics if self.guard is not None else None

    def _consumers_charge(self) -> int:
        """Return what consumers should be charged, from those that there are. O(consumers)."""
        consumers = list(self.all_consumers())
        assigned = sum(consumer.consumer_group is not consumer.consumer_group.shared for consumer in consumers)
        groups = {consumer.consumer_group.shared for consumer in consumers}
        assert self.target_area.listless_groups == sum(not group.lists for group in groups)
        return (
            sum(consumer.charge_bytes for consumer in consumers)
            + sum(group_charge(group.selector) for group in groups)
            + ASSIGNED_BYTES * assigned
            + sum(target.charge_bytes for target in self.target_area.lists)
            - self.target_area.consumer_memory.owed_bytes
        )

    def _existing_charge(self) -> int:
        """Return what should be charged because it exists, idle or in use, from what there is. O(that)."""
        store, topics = self.store, self.topics.by_name.values()
        subscriptions = [subscription for topic in topics for subscription in topic.subscriptions()]
        opened: list[DestinationState] = [*self.destinations.queues.values(), *topics, *subscriptions]
        return (
            self._census().charge_bytes
            + store.index.lanes_charge
            + store.subscriptions.charge_bytes
            + self.destinations.idle_charge
            + sum(lane.charged_bytes for queue in opened for lane in queue.all_lanes())
            + OPEN_SUBSCRIPTION_BYTES * len(subscriptions)
            + FAN_OUT_BYTES * sum(len(topic.fan_outs) for topic in topics)
            - self.existing.owed_bytes
        )

    def audit(self) -> None:
        """Recompute every charge from the live objects; AssertionError where the ledger disagrees. O(everything)."""
        with self.monitor.lock:
            self.browsers.release_given_back()
            self.budget._check()
            audited = self.target_area.audit()
            audited["head_queue_cache"] += self.warmer.loading_bytes
            audited["destinations"] = self._existing_charge()
            if self.recorder is not None:
                audited["trace"] = self.recorder.charge_bytes
            audited["keys"] = self.topics.keys_charge
            audited["unsynced"] = self.publisher.charge_bytes
            audited["consumers"] = self._consumers_charge()
            audited["transactions"], held_bytes = self.transactions.audit()
            audited["dispatch_area"] += held_bytes
            audited["duplicates"] = self.windows.held_bytes
            self.store.properties._check()
            audited["properties"] = self.store.properties.held_bytes
            queues = self.destinations.queues.values()
            groups = [queue.distribution.audit() for queue in queues]
            memory = self.target_area.groups
            assert memory.held_back_bytes == sum(held_back_bytes for _, held_back_bytes in groups)
            audited["groups"] = sum(held_bytes for held_bytes, _ in groups) - memory.owed_bytes
            audited["deadlines"] = self.deadlines.charge_bytes
            self.deadlines._check()
            for name, found in audited.items():
                held = self.budget.held_by(name)
                assert found == held, f"{name} holds {found} bytes, the ledger says {held}"


def _die_in_child() -> None:
    for die in list(_in_child):
        die()


after_fork_in_child(_die_in_child)
