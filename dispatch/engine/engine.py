"""The engine behind one open directory: the wiring of the floors, the one state lock, the two background threads.

Three locks, always taken in this order: checkpoint lock, sync lock, state
lock. Callbacks of users are called under none of them. Everything in the
background is a step that can be called by hand (`background=False`).
"""

from __future__ import annotations

import dataclasses
import heapq
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ...cache.budget import Budget
from ...cache.process.guard import MemoryGuard
from ...cache.shares import Shares
from ...cache.spill.overflow import Overflow
from ...store.clock import Clock
from ...store.disk.disk import Disk, File
from ...store.disk.layout import after_fork_in_child
from ...store.errors import Closed, ForebayError, StoreFailed
from ...store.format.record import SLICE_MESSAGES_MAX
from ...store.format.state import QUEUE
from ...store.ingest.ingest import open_and_ingest
from ...store.journal.reading import StoredMessage
from ...store.maintenance.archive import Archive
from ...store.message_store import MessageStore, StoreOptions
from ...store.metadata.store import MetadataStore
from ...store.numbering import LANE_SHIFT
from ...store.sequence_set import SequenceSet
from ..admin.browse import Browsers
from ..admin.expiry import Timing
from ..admission.deduplication import DuplicateWindows
from ..admission.limits import limit
from ..admission.overhead import QUEUE_BYTES, DestinationOverhead
from ..admission.wait_line import Space
from ..config.settings import Settings
from ..consumer.consumer import Consumer
from ..core.lists import TargetArea
from ..core.load_requests import LOOK_SECONDS
from ..core.non_persistent import NonPersistentLaneState
from ..core.publisher import Confirmer
from ..core.queue_area import LaneState, PersistentLaneState, QueueArea
from ..core.redelivery import ATTEMPTS_BYTES, Redelivery
from ..distribution import exclusive
from ..distribution.grouped import deal, know_groups
from ..loading.eager import EagerLoader
from ..loading.warmer import CacheWarmer
from ..planning.observer import CurveWatch
from ..planning.recorder import RecordedTargetArea, Recorder
from ..producer.limited_queue import LimitedConsumer
from ..selectors.selector import Selector
from ..topics.registry import Topics
from ..topics.state import TopicState
from ..transactions.registry import TransactionRegistry
from .maintenance import Maintenance
from .resizing import READ_BUFFER_BYTES, RELOCATION_BYTES, WRITE_BUFFER_BYTES, Resizing, shares_of, temp_limit_bytes
from .statistics import Statistics, TopicStatistics, destination_statistics, statistics_of_topic

if TYPE_CHECKING:
    from ..topics.fan_out import FanOut

logger = logging.getLogger("forebay.dispatch")

DIRECTORY_BYTES_MAX: Final = 1 << 20

_in_child: weakref.WeakSet[partial[None]] = weakref.WeakSet()
"""Of each engine that still is: what a child does with its copy behind a fork."""


class Engine(Confirmer):
    """Made by Forebay; what queues and consumers call. See the module."""

    guard: MemoryGuard | None = None
    _is_stopping = False

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes, int], MetadataStore],
        settings: Settings,
        clock: Clock,
        archive_disk: Disk | None = None,
        trace: File | None = None,
    ) -> None:
        """metadata(store id, cache bytes) makes the metadata store. archive_disk: where the archive is, if not in disk.

        trace: an empty file to record in. REQUIRES: the directory lock is held.
        """
        self.settings = settings
        self.lock = threading.Lock()
        self.clock_ms, self.monotonic = clock.time_ms, clock.monotonic
        self.syncs_always = settings.sync == "always"
        self.is_closed = False
        self.budget = Budget(settings.memory_limit_bytes)
        shares = shares_of(settings)
        index_holder = self.budget.holder("index", guaranteed_bytes=shares.index_guaranteed_bytes)
        self._charge_whole(shares)
        self.metadata_store: MetadataStore

        def make_metadata_store(store_id: bytes) -> MetadataStore:
            self.metadata_store = metadata(store_id, shares.metadata_bytes)
            return self.metadata_store

        self.windows = DuplicateWindows(settings, self.budget.holder("duplicates"), shares)
        self.store = MessageStore(
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
            state_lock=self.lock,
            account=index_holder,
            archive=Archive(disk, archive_disk) if settings.archive_data_logs else None,
            relocation_account=self.budget.holder("relocation", guaranteed_bytes=RELOCATION_BYTES),
            duplicates=self.windows.persistent,
            attempts_account=self.budget.holder("attempts", guaranteed_bytes=ATTEMPTS_BYTES),
        )
        self.slice_messages_max = SLICE_MESSAGES_MAX if settings.use_vectored_io else 1
        self.limit_messages(settings)
        self.unpublished: deque[tuple[int, LaneState, Sequence[StoredMessage] | range]] = deque()
        """With sync "always": stored messages that may be dispatched once they are durable."""
        reading = self.budget.holder("read_buffers", guaranteed_bytes=READ_BUFFER_BYTES)
        self.overflow = self._make_overflow(disk, clock)
        assert self.budget.free_bytes == shares.available_bytes
        self.recorder = Recorder(trace, settings, self.lock) if trace is not None else None
        self.targets = self._make_targets(shares, clock)
        self.loader = EagerLoader(self.targets, reading)
        self._queues_by_number: dict[int, QueueArea] = {}
        self.resizing = Resizing(self, shares)
        self.transactions = TransactionRegistry(self, self.budget.holder("transactions"))
        self.redelivery = Redelivery(self)
        self.queues: dict[str, QueueArea] = {}
        self.topics = Topics(self, reading)
        self.timing = Timing(self)
        self.browsers = Browsers(self, self.budget.holder("browsers"), reading)
        self._parked: list[tuple[float, int, LaneState, int]] = []
        self._parked_count = 0
        self._threads: list[threading.Thread] = []
        self._load_wanted = threading.Event()
        self._housekeeping_wanted = threading.Event()
        message_bytes_max = self.max_message_bytes
        self.recovery = open_and_ingest(disk, self.store, self.lock, reading, message_bytes_max=message_bytes_max)
        self._begin()

    def _make_overflow(self, disk: Disk, clock: Clock) -> Overflow:
        """tmp-storage, emptied."""
        overflow = Overflow(
            disk,
            self.budget,
            limit_bytes=temp_limit_bytes(self.settings, disk),
            max_file_bytes=self.settings.max_file_length_bytes,
            random_salt=lambda: int.from_bytes(clock.random_bytes(4), "little"),
            paid_buffer_bytes=WRITE_BUFFER_BYTES - DIRECTORY_BYTES_MAX,
        )
        overflow.make_room = lambda wanted_bytes: self.targets.make_room(wanted_bytes, None)
        return overflow

    def _make_targets(self, shares: Shares, clock: Clock) -> TargetArea:
        make = partial(RecordedTargetArea, self.recorder) if self.recorder is not None else TargetArea
        targets: TargetArea = make(
            self.store, self.budget, shares, self.lock, syncs_always=self.syncs_always, overflow=self.overflow
        )
        if self.settings.background:
            targets.read_ahead.switch_on(clock)
        targets.watch = CurveWatch(targets, shares.limit_bytes, partial(shares_of, self.settings))
        return targets

    def _charge_whole(self, shares: Shares) -> None:
        """What the metadata store has in RAM, and the buffers of writing, whatever they hold now."""
        for name, charge in (("metadata_store", shares.metadata_bytes), ("write_buffers", WRITE_BUFFER_BYTES)):
            reserved = self.budget.holder(name).reserve(charge)
            assert reserved, "the smallest memory limit has room for the fixed parts"

    def limit_messages(self, settings: Settings) -> None:
        """How large a message may be."""
        self.max_message_bytes = min(settings.max_message_size_bytes, settings.memory_limit_bytes)
        self.is_limited_by_setting = settings.max_message_size_bytes <= settings.memory_limit_bytes

    def _begin(self) -> None:
        self.open_epoch = self.store.journal.epoch
        self.space = Space(self)
        self.windows.ask_for_room(lambda wanted_bytes: self.targets.make_room(wanted_bytes, None))
        reading = self.budget.holders["read_buffers"]
        self.heads = self.targets.heads = CacheWarmer(self.targets, reading, self._queues_by_number)
        self.overhead = DestinationOverhead(self, self.budget.holder("destinations"))
        with self.lock:
            for destination in self.store.destinations.values():
                if destination.kind == QUEUE:
                    known = self._add_queue(destination.number, destination.name)
                    if destination.has_groups:
                        know_groups(known)
            self.topics.restore()
            self.overhead.restore()
            for lane in list(self.store.index.lanes.values()):
                queue = self._queues_by_number.get(lane.destination)
                if queue is not None:
                    area = queue.areas[lane.priority] = queue.make_lane_area(lane.priority)
                    if lane.pending_messages:
                        self.heads.begin(area)
            self.transactions.recover()
            if self.recorder is not None:
                self.recorder.begin(area for queue in self.queues.values() for area in queue.lane_areas())
                self.recorder.wants_writing = self._housekeeping_wanted.set
            self.redelivery.dead_letters.recover(was_killed=not self.recovery.clean)
            self.timing.restore()
        self.housekeeper = Maintenance(self)
        self._die = partial(Engine.die_in_child, self)
        _in_child.add(self._die)
        if self.settings.background:
            self.targets.wake_loader = self._load_wanted.set
            self._load_wanted.set()
            for name, loop in (("loader", self._load_loop), ("housekeeper", self._housekeeping_loop)):
                thread = threading.Thread(target=loop, name=f"forebay-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)

    # ------------------------------------------------------------------ destinations

    def queue_area(self, name: str, caller: Confirmer | None = None) -> QueueArea:
        """The queue of that name; a new one is recorded in the journal. caller: None is a thread."""
        self.raise_closed()
        area = self.queues.get(name)
        if area is not None:
            return area
        with self.lock:
            self.raise_closed()
            area = self.queue_locked(name)
            position = self.store.journal.end
        (caller or self).after_write(position)
        return area

    def queue_locked(self, name: str) -> QueueArea:
        """As queue_area, without a sync. REQUIRES: the lock."""
        area = self.queues.get(name)
        if area is None:
            with self.overhead.one_more(QUEUE_BYTES):
                area = self._add_queue(self.store.create_destination(name).number, name)
        return area

    def _add_queue(self, number: int, name: str) -> QueueArea:
        area = self.queues[name] = self._queues_by_number[number] = QueueArea(self.targets, number, name)
        self.windows.watch(area)
        limit(self, area)
        return area

    def remove_queue(self, queue: QueueArea) -> None:
        """It is deleted: nothing that was sent to it arrives any more. REQUIRES: the lock."""
        del self.queues[queue.name], self._queues_by_number[queue.number]
        self.timing.forget(queue)
        self.windows.forget(queue)
        self.overhead.one_less(QUEUE_BYTES)
        self.unpublished = deque(entry for entry in self.unpublished if entry[1].queue is not queue)

    def create_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        with self.lock:
            if queue.is_deleted:
                raise Closed("the queue")
            return queue.areas[priority] or self._add_lane(queue, priority)

    def _add_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        area = queue.areas[priority] = queue.make_lane_area(priority)
        self.targets.add_lane(area)
        volatile = queue.non_persistent_lanes[priority]
        if volatile is not None:
            volatile.persistent = area
        return area

    def lane_area(self, number: int) -> PersistentLaneState:
        """The lane of that number, of a queue that exists. REQUIRES: the lock."""
        destination, priority = number >> LANE_SHIFT, number & ((1 << LANE_SHIFT) - 1)
        queue = self._queues_by_number[destination]
        return queue.areas[priority] or self._add_lane(queue, priority)

    def create_non_persistent_lane(self, queue: QueueArea, priority: int) -> NonPersistentLaneState:
        """The same for non-persistent messages."""
        with self.lock:
            if queue.is_deleted:
                raise Closed("the queue")
            return self.non_persistent_lane(queue, priority)

    def non_persistent_lane(
        self, queue: QueueArea, priority: int, fan_out: FanOut | None = None
    ) -> NonPersistentLaneState:
        """Made on first use. fan_out: what a subscription's lane is part of. REQUIRES: the lock."""
        area = queue.non_persistent_lanes[priority]
        if area is None:
            lane = self.overflow.lane(queue.number, priority, fan_out.pool if fan_out is not None else None)
            prefix = fan_out.id_prefix if fan_out is not None else self.volatile_prefix(queue.number, priority)
            area = queue.non_persistent_lanes[priority] = NonPersistentLaneState(queue, lane, prefix, self.overflow)
            area.persistent = queue.areas[priority]
            self.targets.add_lane(area)
        return area

    def volatile_prefix(self, destination: int, priority: int) -> str:
        """Of ids of non-persistent messages: they carry the epoch, because each open counts from 0."""
        return f"{self.store.id_prefix(destination, priority)}e{self.open_epoch}-"

    def subscribe(
        self,
        queue: QueueArea,
        selector: Selector | None,
        prefetch: int,
        on_ready: Callable[[], None] | None,
        *,
        is_exclusive: bool = False,
        priority: int = 0,
        on_slow: Callable[[Consumer], None] | None = None,
    ) -> Consumer:
        with self.lock:
            self.raise_closed()
            if queue.is_deleted:
                raise Closed("the queue")
            kind = Consumer if queue.admission is None else LimitedConsumer
            if priority:
                deal(queue)
            consumer = self.attach(queue, selector, prefetch, on_ready, kind, priority=priority, on_slow=on_slow)
            if is_exclusive:
                exclusive.line_up(queue, consumer)
        if self.targets.ready:
            self.call_ready()
        return consumer

    def attach(
        self,
        queue: QueueArea,
        selector: Selector | None,
        prefetch: int,
        on_ready: Callable[[], None] | None,
        consumer_type: type[Consumer] = Consumer,
        priority: int = 0,
        on_slow: Callable[[Consumer], None] | None = None,
    ) -> Consumer:
        """REQUIRES: the lock."""
        consumer_group = self.targets.subscribe(queue, selector)
        consumer = consumer_type(self, queue, consumer_group, prefetch, on_ready)
        consumer.priority, consumer.on_slow = priority, on_slow
        consumer_group.consumers.append(consumer)
        if queue.dealer is not None:
            queue.dealer.join(consumer, consumer_group)
        consumer.arm()
        if self.targets.starving(consumer.consumer_group) is not None:
            self.targets.wake(consumer_group)
        return consumer

    # ------------------------------------------------------------------ after a write

    def after_write(self, position: int) -> None:
        """What a confirmed call still owes: the sync, publication, a checkpoint that is due. REQUIRES: no lock."""
        if self.syncs_always:
            self.store.journal.sync(position)
            if self.unpublished:
                self._publish()
        store = self.store  # asked here, not by a call: each message comes by twice
        if (store.adds >= store.checkpoint_adds or store.index.is_filling) and not self.leave_checkpoint():
            store.checkpoint()
        if self.targets.ready:
            self.call_ready()

    def position(self) -> int:
        """Where the journal ends now. REQUIRES: no lock."""
        with self.lock:
            return self.store.journal.end

    def _publish(self) -> None:
        """Dispatch what has become durable, in the order in which it was stored."""
        with self.lock:
            durable = self.store.journal.durable
            while self.unpublished and self.unpublished[0][0] <= durable:
                _, area, messages = self.unpublished.popleft()
                self.targets.publish(area, messages)

    def arrive(self, area: LaneState, messages: Sequence[StoredMessage] | range) -> None:
        """Stored by a commit: dispatch them as soon as that is safe. REQUIRES: the lock."""
        if self.syncs_always:
            self.unpublished.append((self.store.journal.end, area, messages))
        else:
            self.targets.publish(area, messages)

    def leave_checkpoint(self) -> bool:
        """Leave the checkpoint that is due to the housekeeper; False: nobody else does it, or not in time."""
        if not self._threads or self.store.is_checkpoint_urgent:
            return False
        if not self._housekeeping_wanted.is_set():  # asked first: while it comes, each message asks again
            self._housekeeping_wanted.set()
        return True

    def call_ready(self) -> None:
        """Call the callbacks that are due; one that raises is logged and hurts nobody else. REQUIRES: no lock."""
        with self.lock:
            ready, self.targets.ready = deque(self.targets.ready), []
        try:
            while ready:
                try:
                    ready.popleft()()
                except Exception:
                    logger.exception("an on_ready callback raised")
        finally:
            if ready:  # interrupted: the others are called with those of the next call
                with self.lock:
                    self.targets.ready[:0] = ready

    # ------------------------------------------------------------------ parked messages

    def park(self, delay: float, area: LaneState, sequence: int) -> None:
        """Offer a message again only after delay seconds. Meanwhile RAM has its number only. REQUIRES: the lock."""
        self._parked_count += 1
        area.parked.add(sequence)
        heapq.heappush(self._parked, (self.monotonic() + delay, self._parked_count, area, sequence))
        if self._parked[0][1] == self._parked_count:
            self._housekeeping_wanted.set()  # it sleeps until something that is due later

    def unpark(self, area: LaneState, gone: SequenceSet) -> None:
        """These are gone and wait for nothing. O(parked). REQUIRES: the lock."""
        if not area.parked:
            return
        area.parked = {sequence for sequence in area.parked if sequence not in gone}
        self._parked = [entry for entry in self._parked if entry[2] is not area or entry[3] not in gone]
        heapq.heapify(self._parked)

    def parked(self) -> Iterator[tuple[float, LaneState, int]]:
        """When each is due, its lane and its sequence, in no order. REQUIRES: the lock."""
        return ((due, area, sequence) for due, _, area, sequence in self._parked)

    def next_due(self) -> float | None:
        """When the next message is due, of those that were put off by a nack or by their senders."""
        parked = self._parked[0][0] if self._parked else None
        seconds = self.timing.due_seconds
        if seconds is None:
            return parked
        due = self.monotonic() + seconds
        return due if parked is None else min(due, parked)

    def release_due(self) -> int:
        """Offer the messages whose time has come. REQUIRES: the lock."""
        released = self.timing.release_due()
        while self._parked and self._parked[0][0] <= self.monotonic():
            _, _, area, sequence = heapq.heappop(self._parked)
            area.parked.discard(sequence)
            self.targets.offer_again(area, (sequence, b"", None, 0))
            released += 1
        return released

    # ------------------------------------------------------------------ background

    def wake_housekeeper(self) -> None:
        """There is something to do in the background now."""
        self._housekeeping_wanted.set()

    def step(self) -> int:
        """Do the background work that is due now, in the caller's thread; how many things were done."""
        self.raise_closed()
        done = self.housekeep()
        while self.redelivery.dead_letters.step() or self.topics.unmatched_sweeper.step() or self._load():
            done += 1
        if self.targets.ready:
            self.call_ready()
        return done

    def housekeep(self) -> int:
        """What is due now; how many things were done. REQUIRES: no lock."""
        return self.housekeeper.step()

    def _load(self) -> bool:
        """Load for a list that runs low; where there is none, for the head of a queue."""
        return self.loader.step() or self.heads.step()

    def _load_loop(self) -> None:
        while not self._is_stopping:
            self._load_wanted.wait(LOOK_SECONDS if self.targets.read_ahead.lists else None)
            self._load_wanted.clear()
            while not self._is_stopping and self._guarded(self._load):
                if self.targets.ready:
                    self.call_ready()
            if self.targets.ready:
                self.call_ready()

    def _housekeeping_loop(self) -> None:
        while not self._is_stopping:
            self._housekeeping_wanted.wait(self.housekeeper.pause())
            self._housekeeping_wanted.clear()
            if not self._is_stopping:
                self._guarded(self.housekeep)
                if self.targets.ready:
                    self.call_ready()

    def _guarded(self, work: Callable[[], int]) -> int:
        """A background thread outlives what its work raises; a failed store tells its callers itself."""
        try:
            return work()
        except StoreFailed:
            self._is_stopping = True
        except ForebayError as error:
            logger.warning("background work: %s", error)
        except Exception:
            if not self._is_stopping:
                logger.exception("background work failed")
        return 0

    # ------------------------------------------------------------------ the rest

    def raise_closed(self) -> None:
        if self.is_closed:
            raise Closed("the store")

    def statistics(self) -> Statistics:
        with self.lock:
            destinations = {name: destination_statistics(queue) for name, queue in self.queues.items()}
            topics = {name: statistics_of_topic(topic) for name, topic in self.topics.areas.items()}
            return Statistics(
                dataclasses.replace(self.budget.statistics(), curve=self.targets.watch.curve()),
                self.store.statistics(),
                self.overflow.statistics,
                destinations,
                topics,
                self.targets.cache_statistics(),
                self.guard.statistics if self.guard is not None else None,
            )

    def topic_statistics(self, topic: TopicState) -> TopicStatistics:
        with self.lock:
            return statistics_of_topic(topic)

    def audit(self) -> None:
        """Recompute every charge from the live objects; AssertionError where the ledger disagrees. O(everything)."""
        with self.lock:
            self.browsers.settle()
            self.budget._check()
            audited = self.targets.audit()
            audited["destinations"] = self.overhead.audit()
            audited["transactions"], held_bytes = self.transactions.audit()
            audited["dispatch_area"] += held_bytes
            audited["duplicates"] = self.windows.held_bytes
            for name, found in audited.items():
                held = self.budget.holders[name].held_bytes
                assert found == held, f"{name} holds {found} bytes, the ledger says {held}"

    def close(self, timeout: float | None = None) -> None:
        """Stop the threads, return what consumers hold, close the store. Twice is once."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.transactions.close()
            self.overflow.close()
            for consumer in list(self.all_consumers()):
                consumer.close_locked()
            for queue in [*self.queues.values(), *self.topics.areas.values()]:
                if queue.admission is not None:
                    queue.admission.close()
            self.space.close()
            self.targets.ready.clear()
        self._is_stopping = True
        self._load_wanted.set()
        self._housekeeping_wanted.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)
        if self.recorder is not None:
            self.recorder.close()
        self.store.close()

    def die_in_child(self) -> None:
        """After a fork the child's copy must never write: the parent owns the directory."""
        made_anew = getattr(self.lock, "_at_fork_reinit", None)
        if made_anew is not None:  # what stands in the place of threading may have none, and others must die too
            made_anew()
        self.is_closed = True
        self._is_stopping = True
        self.store.journal.stop()
        for consumer in self.all_consumers():
            consumer.die()

    def all_consumers(self) -> Iterator[Consumer]:
        yield from (consumer for queue in self.queues.values() for consumer in queue.consumers())
        yield from self.topics.consumers()


def _die_in_child() -> None:
    for die in list(_in_child):
        die()


after_fork_in_child(_die_in_child)
