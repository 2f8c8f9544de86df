"""The parts of an open Forebay, for tests. A change that moves a part changes only this module.

Tests that need anything else use a private name; tests/house/test_tidy.py counts these uses and refuses further ones.

`Inside` gives the parts of a Forebay, or of the one that a queue, a topic or a
consumer belongs to. A SimulatedBay is one itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import MethodType
from typing import Any, cast

from forebay.cache.accounting.budget import Budget
from forebay.cache.accounting.charge import charge_of_all
from forebay.cache.accounting.overdraft import Overdraft
from forebay.cache.messages.memory_registry import MemoryRegistry
from forebay.cache.process.memory_guard import MemoryGuard
from forebay.cache.process.shortage import MemoryFigures
from forebay.cache.spill.overflow import Overflow
from forebay.dispatch.admin.browse import Browsers
from forebay.dispatch.admin.dead_letter_writer import DeadLetterWriter
from forebay.dispatch.admin.dead_letters import DeadLetterMover
from forebay.dispatch.admission.duplicate_windows import DuplicateWindows
from forebay.dispatch.config.settings import Settings
from forebay.dispatch.consumer.consumer import Consumer
from forebay.dispatch.consumer.consumer_registry import ConsumerRegistry
from forebay.dispatch.consumer.ending import ConsumerEnding
from forebay.dispatch.core.areas.dispatch_area import DispatchArea
from forebay.dispatch.core.areas.list_registry import ListRegistry
from forebay.dispatch.core.areas.load_requests import LoadRequests
from forebay.dispatch.core.areas.target_area import TargetArea
from forebay.dispatch.core.destinations.destination_state import NamedDestinationState
from forebay.dispatch.core.destinations.queue_state import QueueState
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.core.memory.reclaim import Reclaim
from forebay.dispatch.core.memory.watermarks import Watermarks
from forebay.dispatch.core.model.destination import DestinationStateParts, LaneState, TargetList
from forebay.dispatch.core.monitor import Monitor
from forebay.dispatch.core.redelivery.redelivery import Redelivery
from forebay.dispatch.core.redelivery.timed_lanes import TimedLanes
from forebay.dispatch.distribution.distribution_chooser import DistributionChooser
from forebay.dispatch.engine import engine as engines
from forebay.dispatch.engine.assembly.background import ExplainFunctions
from forebay.dispatch.engine.assembly.environment import Environment
from forebay.dispatch.engine.background import BackgroundRequests
from forebay.dispatch.engine.engine import Engine
from forebay.dispatch.engine.resizing import Resizing
from forebay.dispatch.engine.status import StatusOutput
from forebay.dispatch.explain.cause import Explanation
from forebay.dispatch.explain.queues import explain_subject
from forebay.dispatch.explain.short import explain_in_short
from forebay.dispatch.explain.stuck import why_stuck
from forebay.dispatch.forebay import Forebay
from forebay.dispatch.loading.eager_loader import EagerLoader
from forebay.dispatch.loading.warmer import CacheWarmer
from forebay.dispatch.planning.recorder import Recorder
from forebay.dispatch.producer.sender_parts import SenderParts
from forebay.dispatch.producer.space_lines import SpaceLines
from forebay.dispatch.queue import Queue
from forebay.dispatch.topic import Topic
from forebay.dispatch.topics.state.topic_state import TopicState
from forebay.dispatch.topics.subscriptions.subscription_registry import SubscriptionRegistry
from forebay.dispatch.transactions.transaction_registry import TransactionRegistry
from forebay.store.directory_store import DirectoryStore
from forebay.store.disk.disk import Disk, File
from forebay.store.environment.bare_lock import BareLock
from forebay.store.environment.clock import Clock
from forebay.store.environment.locks import OwnedLock
from forebay.store.index.index import Index
from forebay.store.journal.journal import Journal
from forebay.store.journal.journal_syncer import JournalSyncer
from forebay.store.maintenance.relocation import Relocation, RelocationTarget
from forebay.store.metadata.metadata_store import MetadataStore


def open_forebay(
    disk: Disk,
    metadata: MetadataStore | Callable[[bytes, int], MetadataStore],
    settings: Settings,
    clock: Clock,
    *,
    archive_disk: Disk | None = None,
    trace: File | None = None,
    status: StatusOutput | None = None,
    memory_figures: Callable[[], MemoryFigures | None] = lambda: None,
    memory_rule: MemoryRule | None = None,
    relocation_target: RelocationTarget | None = None,
) -> Forebay:
    """Open a Forebay on a disk, a metadata store and a clock of the test's.

    metadata: the metadata store, or a function that makes it from store id and cache bytes. memory_figures: returns the
    memory figures of the system; by default it has none. memory_rule, relocation_target: None: the library's own.
    """
    make = metadata if callable(metadata) else lambda store_id, cache_bytes: metadata
    environment = Environment(
        disk,
        make,
        clock,
        archive_disk=archive_disk,
        trace=trace,
        memory_figures=memory_figures,
        status=status,
        memory_rule=memory_rule or MemoryRule(),
        relocation_target=relocation_target or RelocationTarget(),
    )
    return Forebay(Engine(settings, environment, ExplainFunctions(why_stuck, explain_in_short)), None)


class Inside:
    """The parts of one open Forebay."""

    def __init__(self, opened: Forebay | Queue | Topic | Consumer) -> None:
        self.__engine: Engine = opened._engine if isinstance(opened, Forebay) else engine_of(opened.monitor)
        self.__layers = self.__engine.layers
        self.__topics = self.__layers.clients.topic_layer.topics

    # ------------------------------------------------------------------ the layers

    @property
    def lock(self) -> OwnedLock:
        return self.__engine.monitor.lock

    @lock.setter
    def lock(self, lock: OwnedLock) -> None:
        """Replace the state lock, for sections of every kind."""
        monitor = self.__engine.monitor
        monitor.lock = lock
        monitor.bare_lock = BareLock(lock.__enter__, partial(lock.__exit__, None, None, None))

    @property
    def settings(self) -> Settings:
        return self.__engine.background_layer.resizing.settings

    @property
    def store(self) -> DirectoryStore:
        return self.__layers.store_layer.directory

    @property
    def subscription_registry(self) -> SubscriptionRegistry:
        return self.__layers.clients.topic_layer.subscription_registry

    @property
    def journal(self) -> Journal:
        return self.store.journal

    @property
    def syncer(self) -> JournalSyncer:
        return self.store.syncer

    @property
    def index(self) -> Index:
        return self.store.index

    @property
    def relocation(self) -> Relocation:
        return self.store.cleanup.relocation

    @property
    def metadata_store(self) -> MetadataStore:
        return self.store.metadata_store

    @property
    def budget(self) -> Budget:
        return self.__layers.foundation.budget

    @property
    def overflow(self) -> Overflow:
        return self.__layers.store_layer.overflow

    # ------------------------------------------------------------------ dispatch

    @property
    def watermarks(self) -> Watermarks:
        return self.__layers.areas.watermarks

    @property
    def target_area(self) -> TargetArea:
        return self.__layers.areas.target_area

    @property
    def list_registry(self) -> ListRegistry:
        return self.__layers.areas.list_registry

    @property
    def reclaim(self) -> Reclaim:
        return self.__layers.areas.watermarks.reclaim

    @property
    def dispatch_area(self) -> DispatchArea:
        return self.__layers.areas.dispatch_area

    @property
    def loads(self) -> LoadRequests:
        return self.__layers.areas.loads

    @property
    def destination_state_parts(self) -> DestinationStateParts:
        return self.__layers.areas.destination_state_parts

    @property
    def distribution_chooser(self) -> DistributionChooser:
        return self.__layers.areas.distribution_chooser

    @property
    def consumer_memory(self) -> Overdraft:
        return self.__layers.areas.memory.consumer_memory

    @property
    def memories(self) -> MemoryRegistry:
        return self.__layers.areas.memory.memories

    def lists(self) -> list[TargetList]:
        return list(self.__layers.areas.watermarks.lists)

    def queue_state(self, name: str = "orders") -> QueueState:
        """Return the state of an existing queue. For a closed queue it is a separate object, only to be read."""
        queues = self.__layers.core.queues
        if name in queues.by_name:
            return queues.by_name[name]
        with self.__engine.monitor.lock:
            found = queues.named_for_report(name)
        assert found is not None, name
        return found

    def open_queues(self) -> list[str]:
        """Return the names of the open queues, sorted."""
        return sorted(self.__layers.core.queues.by_name)

    def close_idle(self) -> int:
        """Close every queue and topic that can be closed; return how many."""
        monitor, known = self.__engine.monitor, self.__layers.core.queues
        with monitor.lock, monitor.all_or_broken:
            undecided, queues = self.transactions.destination_numbers(), list(known.by_name.values())
            topics = list(self.__topics.by_name.values())
            closed = sum(known.close_idle(queue, undecided) for queue in queues)
            return closed + sum(self.__topics.close_idle(topic, undecided) for topic in topics)

    def open_topics(self) -> list[str]:
        """Return the names of the open topics, sorted."""
        return sorted(self.__topics.by_name)

    def held_open(self, name: str = "orders") -> AbstractContextManager[QueueState]:
        """Hold a queue open, as a call under way does."""
        return self.__layers.core.queues.held_open(self.queue_state(name))

    def topic_state(self, name: str = "prices") -> TopicState:
        return self.__topics.by_name[name]

    def lane(self, queue: NamedDestinationState, priority: int) -> PersistentLaneState:
        """Return the persistent lane of a priority, made if needed."""
        return self.__layers.core.owners.destinations.lanes.create(queue, priority)

    def consumers(self, name: str = "orders") -> list[Consumer]:
        """Return the consumers of a queue."""
        return cast(list[Consumer], list(self.queue_state(name).consumers()))

    def let_loader_stand_back(self, clock: Clock) -> None:
        """Let the loader leave lists to consumers that never pause, as it does if a thread loads."""
        self.loads.trials.judge_by(clock)

    @property
    def dead_letters(self) -> DeadLetterMover:
        return self.__layers.admin.dead_letters

    @property
    def dead_letter_writer(self) -> DeadLetterWriter:
        return self.__layers.clients.dead_lettering.writer

    @property
    def loader(self) -> EagerLoader:
        return self.__layers.core.loader

    @property
    def warmer(self) -> CacheWarmer:
        return self.__layers.core.warmer

    @property
    def windows(self) -> DuplicateWindows:
        return self.__layers.store_layer.windows

    @property
    def redelivery(self) -> Redelivery:
        return self.__layers.redelivery_layer.redelivery

    @property
    def space(self) -> SpaceLines:
        return self.__layers.clients.space

    @property
    def timed(self) -> TimedLanes:
        return self.__layers.redelivery_layer.timed

    @property
    def transactions(self) -> TransactionRegistry:
        return self.__layers.core.transactions

    @property
    def browsers(self) -> Browsers:
        return self.__layers.admin.browsers

    @property
    def recorder(self) -> Recorder | None:
        return self.__layers.recorder

    @property
    def resizing(self) -> Resizing:
        return self.__engine.background_layer.resizing

    @property
    def message_limit(self) -> tuple[int, bool]:
        """The largest size of a message, and whether a setting rather than the memory limit says so."""
        return self.sender_parts.max_message_bytes, self.sender_parts.is_limited_by_setting

    @property
    def sender_parts(self) -> SenderParts:
        return self.__layers.clients.sender_parts

    @property
    def ending(self) -> ConsumerEnding:
        """The owner that drains and closes consumers."""
        redelivery_layer, dispatch_area = self.__layers.redelivery_layer, self.dispatch_area
        registry = ConsumerRegistry(self.consumer_memory, redelivery_layer.deadlines, redelivery_layer.redelivery)
        return ConsumerEnding(self.__engine.monitor, dispatch_area, registry)

    @property
    def unpublished(self) -> Any:
        """With sync "always": messages that are stored and must become durable before they are dispatched."""
        return self.__layers.core.publisher.unpublished

    def hold_unsynced(self, lane: Any, messages: Any) -> None:
        """Let stored messages wait until they are durable. Requires: the lock."""
        charge = charge_of_all(messages)
        self.__layers.core.publisher.hold_until_durable(lane, messages, charge)

    @contextmanager
    def unconfirmed(self) -> Iterator[None]:
        """Let writing calls return at once during the block, with nothing synced or published."""
        confirm = self.__layers.core.confirmer.confirm
        self.__layers.core.confirmer.confirm = lambda journal_end: None  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.__layers.core.confirmer.confirm = confirm  # type: ignore[method-assign]

    # ------------------------------------------------------------------ work in the background

    def journal_end(self) -> int:
        """Return where the journal ends, as writers see it."""
        with self.__engine.monitor.lock:
            return self.__layers.core.confirmer.journal_end

    def step(self) -> int:
        return self.__engine.step()

    def housekeep(self) -> int:
        return self.__engine.background_layer.task_runner.step()

    def pause(self) -> float:
        """Return the seconds until the housekeeper has something to do."""
        return self.__engine.background_layer.task_runner.pause()

    def give_up_readers(self) -> None:
        """Close all files that are open only for reading."""
        self.__layers.store_layer.directory.give_up_readers()
        self.__layers.store_layer.overflow.storage.give_up_readers()

    def lock_is_free(self) -> None:
        assert not self.__engine.monitor.lock.is_owned()

    def run_nested_calls(self) -> None:
        """Run calls that came from inside another call and were left, as the background does."""
        if self.__engine.monitor.nested_calls:
            self.__engine.monitor.run_deferred()

    def call_ready(self) -> None:
        """Call `on_ready` of consumers that have become ready."""
        self.__engine.monitor.run_deferred()

    def parked(self) -> list[tuple[float, LaneState, int]]:
        """Return (time, lane, sequence) of messages that wait for their redelivery."""
        layers, found = self.__layers, []
        now, now_ms = self.__engine.monitor.monotonic(), self.store.steady_clock.now_ms()
        for number, waiting in list(self.index.delayed.items()):
            lane = layers.foundation.upcalls.lane(number)
            for first, last in layers.redelivery_layer.delayed.runs(lane) if lane is not None else ():
                for sequence in range(first, last + 1):
                    if lane is not None and lane.pending_lane.is_pending(sequence):
                        found.append((now + (waiting.due_at(sequence) - now_ms) / 1000, lane, sequence))
        return found

    def let_pass(self, seconds: float) -> None:
        """Let time pass on the test's clock, and offer all messages that are due then."""
        engine = self.__engine
        clock: Any = cast("MethodType", engine.monitor.monotonic).__self__
        clock.advance(seconds)
        with engine.monitor.lock:
            while self.__layers.redelivery_layer.due.release_due():
                pass

    def next_due(self) -> float | None:
        return self.__layers.redelivery_layer.due.next_due

    def release_due(self) -> int:
        """Release the messages that are due; return how many."""
        return self.__layers.redelivery_layer.due.release_due()

    @property
    def background_requests(self) -> BackgroundRequests:
        return self.__layers.foundation.background_requests

    @property
    def threads(self) -> list[threading.Thread]:
        """The background threads, with the loader's first."""
        return self.__engine.background_layer.background._threads

    def stop_loading(self) -> None:
        """Stop both background threads, and wait for the loader's."""
        self.__engine.background_layer.background._is_stopping = True
        self.background_requests.loader.set()
        self.threads[0].join()

    def stop_threads(self) -> None:
        """Stop the background threads, and wait for them."""
        self.__engine.background_layer.background._is_stopping = True
        self.background_requests.loader.set()
        self.background_requests.housekeeper.set()
        for thread in self.threads:
            thread.join()

    def has_thread(self, thread: threading.Thread) -> None:
        """Let a thread count as the background thread."""
        self.__engine.background_layer.background._threads = [thread]
        self.background_requests.has_threads = True

    def guard_with(self, guard: MemoryGuard) -> None:
        self.__engine.background_layer.process.guard = guard

    def set_monotonic(self, monotonic: Callable[[], float]) -> None:
        self.__engine.monitor.monotonic = monotonic

    def disable_in_child(self) -> None:
        """Disable the store, as a child does with its copy after a fork."""
        self.__engine.disable_in_child()

    # ------------------------------------------------------------------ checks

    def audit(self) -> None:
        """Assert that the ledger agrees with the live objects. O(everything)."""
        self.__engine.ledger_audit.run()

    def check(self) -> None:
        """Assert that the ledger agrees with the live objects, and check every structure. O(everything)."""
        self.audit()
        for target in self.watermarks.lists:
            target._check()
        for memory in self.memories.all:
            memory.pending_cache._check()
            memory.head_queue_cache._check()
        self.index._check()
        self.journal._check()
        self.overflow._check()


def inside(opened: Forebay | Queue | Topic | Consumer) -> Inside:
    return Inside(opened)


def engine_of(monitor: Monitor) -> Engine:
    """Return the open engine with this monitor."""
    found: Engine
    [found] = [die.args[0] for die in list(engines._in_child) if die.args[0].monitor is monitor]
    return found


def queue_of(consumer: Consumer) -> Queue:
    assert isinstance(consumer.destination, QueueState)
    return Queue(engine_of(consumer.monitor).queue_parts, consumer.destination)


def explain(subject: Queue | Consumer) -> Explanation:
    """Return what `Forebay.explain` says of a queue or consumer."""
    return explain_subject(engine_of(subject.monitor).explained, subject)
