"""Forebay: one open directory, the entry point for threads."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar, Unpack, overload

from ..cache.process.memory_guard import MemoryGuard
from ..cache.process.process_memory import return_free_memory, unique_set_bytes
from ..store.disk.disk import Disk, File, OsDisk
from ..store.disk.layout import DirectoryLock, PathArgument, archive_root, index_path, refusal, store_root
from ..store.disk.thrifty_disk import lacks_descriptors
from ..store.environment.clock import Clock, SystemClock
from ..store.environment.late_log import emit_late
from ..store.environment.locks import OwnedLock, holds_one
from ..store.environment.progress import OnProgress, tell_nobody
from ..store.errors import ArgumentError, SettingsError, StoreFailed, TooManyFiles
from ..store.maintenance.data_log_remover import CleanupReport
from ..store.metadata.memory_store import MemoryMetadataStore
from ..store.metadata.metadata_store import MetadataStore
from ..store.recovery.recovery import RecoveryReport
from .codecs import Codec
from .config.checks import check_bounds, check_clock, check_codec, check_disk, check_name, check_topic_name
from .config.policy import is_pattern
from .config.settings import Settings, SettingsFields, settings_from
from .consumer.consumer import Consumer
from .core.destinations.queue_state import QueueState
from .core.model.destination import CoreConsumer
from .engine.assembly.background import ExplainFunctions
from .engine.assembly.environment import Environment
from .engine.engine import Engine
from .engine.explained_store import ExplainedStore
from .engine.health import Health
from .engine.resizing import ResizeReport
from .engine.statistics import Statistics
from .engine.status_file import StatusFile
from .explain.cause import DataLogReport, Explanation
from .host_properties import Properties
from .queue import Queue, TemporaryQueue
from .topic import TemporaryTopic, Topic, TopicPattern
from .transactions.transaction import Transaction
from .typed import TypedQueue, TypedTopic

if TYPE_CHECKING:
    from .remote.admin_socket import AdminSocket
    from .remote.server import AdminServer

T = TypeVar("T")


class Forebay:
    """An open store, made by `forebay.open`. Thread-safe; a context manager; only for the process that opened it."""

    def __init__(self, engine: Engine, lock: DirectoryLock | None, admin: AdminServer | None = None) -> None:
        self._engine = engine
        self._parts = engine.forebay_parts
        self._lock = lock
        self._admin = admin
        self._closing = OwnedLock()

    @property
    def settings(self) -> Settings:
        """The settings, with the memory limit of the last resize."""
        return self._parts.resizing.settings

    @property
    def is_closed(self) -> bool:
        """Whether it is closed, or is being closed."""
        return self._engine.monitor.is_closed

    @property
    def recovery(self) -> RecoveryReport:
        """What opening the store did."""
        return self._engine.recovery

    @overload
    def queue(self, name: str) -> Queue: ...

    @overload
    def queue(self, name: str, *, codec: Codec[T]) -> TypedQueue[T]: ...

    def queue(self, name: str, *, codec: Codec[T] | None = None) -> Queue | TypedQueue[T]:
        """Return the queue of a name. The first call with that name creates it.

        Args:
            name: That of the queue; a topic may have the same name.
            codec: One of `forebay.codecs` or your own, to send and take values instead of bytes. None: bytes.

        Raises SettingsError for a name that is not valid; Closed for that of a temporary queue that is gone.
        """
        check_codec(codec)
        parts = self._engine.queue_parts
        queue_of_bytes = Queue(parts, parts.queues.open_or_create(check_name(name), parts.confirmer))
        return queue_of_bytes if codec is None else TypedQueue(queue_of_bytes, codec)

    @overload
    def topic(self, name: str) -> Topic: ...

    @overload
    def topic(self, name: str, *, codec: Codec[T]) -> TypedTopic[T]: ...

    def topic(self, name: str, *, codec: Codec[T] | None = None) -> Topic | TypedTopic[T]:
        """Return the topic of a name. The first call with that name creates it.

        Args:
            name: That of the topic; a queue may have the same name. A name with the word "*" or ">" is a pattern; the
                result is a TopicPattern, to which nothing can be sent.
            codec: As in `queue`.

        Raises SettingsError for a name that is not valid; Closed for that of a temporary topic that is gone.
        """
        check_codec(codec)
        checked, parts = check_topic_name(name), self._engine.topic_parts
        if is_pattern(checked) and not parts.topics.exists(checked):
            topic_of_bytes: Topic = TopicPattern(parts, checked)
        else:
            topic_of_bytes = Topic(parts, parts.topics.open_or_create(checked, parts.confirmer))
        return topic_of_bytes if codec is None else TypedTopic(topic_of_bytes, codec)

    @property
    def properties(self) -> Properties:
        """The small named values that the host keeps: bindings, sessions, cursors. See Properties."""
        return Properties(self._parts.properties)

    def temporary_queue(self) -> TemporaryQueue:
        """Make a queue with a name that nobody can guess, for replies. It ends with its `close` or that of the store.

        After a kill the next open deletes it. Once it is gone, `queue` refuses its name (Closed), so that no reply goes
        to a queue that nobody reads. All temporary queues share one dead-letter queue: the policy's `dead_letter_queue`
        with "temporary-queue" for {name}. It takes two records in the journal. StoreFull, Closed.
        """
        parts = self._engine.queue_parts
        return TemporaryQueue(parts, parts.temporaries.queue(parts.confirmer))

    def temporary_topic(self) -> TemporaryTopic:
        """Make a topic with a name that nobody can guess. It ends as a temporary queue does, with its subscriptions."""
        parts = self._engine.topic_parts
        return TemporaryTopic(parts, parts.temporaries.topic())

    def destinations(self) -> list[str]:
        """Return the names of all queues, sorted. Only of queues: `topics` returns those of topics."""
        with self._engine.monitor.lock:
            return self._engine.queue_parts.queues.names()

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        with self._engine.monitor.lock:
            return self._engine.topic_parts.topics.names()

    def transaction(self) -> Transaction:
        """Begin a transaction over any queues and topics of this store. StoreFull: memory_limit has no room for it."""
        return self._parts.transactions.begin()

    def prepared(self) -> list[Transaction]:
        """Return the prepared transactions that wait for their outcome, including those that survived a crash."""
        with self._engine.monitor.lock:
            self._engine.monitor.raise_if_closed()
            return self._parts.transactions.prepared()

    def statistics(self) -> Statistics:
        """Return a snapshot. O(destinations + data logs), no disk."""
        return self._parts.reports.statistics()

    def health(self) -> Health:
        """Return whether the store does everything it should, and a sentence for each problem.

        O(1), no disk; never raises.
        """
        return self._parts.check.health()

    def resize(self, memory_limit: int | str | None) -> ResizeReport:
        """Set the memory_limit until the next open; return the result.

        No charge above the new limit is admitted any more. The call waits for a checkpoint and loads, usually well
        under a second. Deliveries in flight can't be taken from their consumers. So the limit may still be falling when
        this returns, and reaches its value once enough of them are settled. Messages larger than the new limit stay
        deliverable.

        Args:
            memory_limit: As in Settings. "auto" begins with the present limit, and follows the machine from then on.

        Raises SettingsError, StoreFailed, Closed.
        """
        return self._parts.resizing.resize(memory_limit)

    def checkpoint(self) -> None:
        """Bring the index on disk up to now, so that the next open has nothing to replay. It syncs the journal."""
        monitor = self._engine.monitor
        monitor.raise_if_closed()
        self._parts.checkpointer.checkpoint()
        if monitor.deferred:  # its sync may have published what an interrupted call left
            monitor.run_deferred()

    def cleanup(self) -> CleanupReport:
        """Relocate messages out of sparse data logs, and delete or archive data logs that nothing needs, now and all at
        once.

        Afterwards the journal has at most twice the live bytes and three data logs, unless somebody writes meanwhile.
        """
        self._engine.monitor.raise_if_closed()
        return self._parts.cleanup.run()

    def explain(self, subject: int | str | bytes | Queue | Topic | Consumer | None = None) -> Explanation:
        """Explain a data log, a queue, a topic, a consumer, a transaction or the whole store, as data and as a
        sentence.

        For data logs and the whole store it reads the index, including its part on disk, and a record for each holder:
        about 50 ms for a million pending messages. No other call waits for it longer than a few milliseconds. For a
        queue, a topic or a consumer it takes O(in flight there), under the state lock. What is due happens first, as in
        a `take`: messages whose delay is over are offered, and deliveries after their ack deadline come back. Nothing
        else changes.

        Args:
            subject: The id of a data log (why it remains), a queue or its name (who holds its messages), a topic or its
                name (which subscriptions lag), a consumer (why it gets nothing), a durable subscription as
                "prices/audit", the xid of a prepared transaction as bytes (what it decides about), or None (who holds
                disk and memory).

        Raises SettingsError: there is no such data log, name or xid, or the object belongs to another store.
        """
        if isinstance(subject, Queue | Topic | Consumer):
            from .explain.queues import explain_subject

            return explain_subject(self._engine.explained, subject)
        if isinstance(subject, str):
            from .explain.queues import explain_named

            return explain_named(self._engine.explained, subject)
        if isinstance(subject, bytes):
            from .explain.prepared import explain_prepared

            return explain_prepared(self._engine.explained, subject)
        from .explain.whole import explain

        return explain(self._engine.explained, subject)

    def data_logs(self) -> list[DataLogReport]:
        """Return each data log, oldest first: its size, how much of it is pending, and why it remains.

        It costs as much as `explain` of the whole store, once for all of them.
        """
        from .explain.whole import report_data_logs

        return report_data_logs(self._engine.explained)

    def step(self) -> int:
        """Do the background work that is due, in this thread; return how many things were done.

        For background=False.
        """
        return self._engine.step()

    def close(self, timeout: float | None = None) -> None:
        """Stop, write a checkpoint, leave the marker of a clean shutdown, release the directory.

        A second call does nothing.

        A close that was interrupted (Ctrl-C) may be called again and does the rest; until then the directory is held.
        From a signal handler or finalizer inside a call of the store, it is done when that call has ended. From a
        callback of the store, it may return while another thread is closing.

        Args:
            timeout: Seconds to wait for each background thread; None: no limit.
        """
        check_bounds(timeout, None)
        if holds_one():
            self._engine.monitor.call_later(partial(self.close, timeout))
            return
        background, admin = self._engine.background_layer.background, self._admin
        if not background.has_current_thread and (admin is None or not admin.has_current_thread):
            with self._closing:
                self._close(timeout)
        elif self._closing.try_acquire():
            try:
                self._close(timeout)
            finally:
                self._closing.release()
        # Otherwise another thread closes the store, and waits for this thread.
        emit_late()

    def _close(self, timeout: float | None) -> None:
        if self._admin is not None:
            self._admin.stop()  # first, so that no new request comes; the present one gets Closed
        try:
            self._engine.close(timeout)
        except Exception:
            self._release_directory(timeout)
            raise
        self._release_directory(timeout)

    def _release_directory(self, timeout: float | None) -> None:
        """Release the directory, as the last step: nothing of this store runs any more.

        timeout: seconds to wait for the request that another process has made; None: no limit.
        """
        if self._admin is not None:
            self._admin.join(timeout)
        if self._lock is not None:
            self._lock.release()

    def __repr__(self) -> str:
        place = repr(self._lock.root) if self._lock is not None else "in memory"
        state = "closed" if self._engine.monitor.is_closed else "open"
        return f"<Forebay {place} {state}>"

    def __del__(self) -> None:
        """Warn about a store that was never closed.

        It takes no lock, because a finalizer may run inside any section.
        """
        engine = getattr(self, "_engine", None)
        if engine is None or self._lock is None or engine.monitor.is_closed:
            return
        warn = partial(_warn_of_unclosed, repr(self))
        if holds_one():
            engine.monitor.call_later(warn)
        else:
            warn()

    def __enter__(self) -> Forebay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _why_stuck(store: ExplainedStore, consumer: CoreConsumer) -> tuple[int, str] | None:
    from .explain.stuck import why_stuck  # imported with the first stuck consumer, not with the package

    return why_stuck(store, consumer)


def _in_short(store: ExplainedStore, queues: Sequence[QueueState]) -> str:
    from .explain.short import explain_in_short  # imported with the first status, not with the package

    return explain_in_short(store, queues)


_EXPLAINING: Final = ExplainFunctions(_why_stuck, _in_short)
_USED_LATER: Final = (
    "hashlib",
    "json",
    "msgspec.msgpack",
    "psutil",
    "socket",
    "forebay.dispatch.explain.queues",
    "forebay.dispatch.explain.short",
    "forebay.dispatch.explain.stuck",
    "forebay.dispatch.explain.whole",
    "forebay.store.maintenance.retention_reasons",
)
"""Modules that an open store will need. They are imported early, because no import succeeds without a descriptor."""


def _import_what_is_used_later() -> None:
    """Import these modules. TooManyFiles: the process has no descriptor left already."""
    try:
        for name in _USED_LATER:
            import_module(name)
    except OSError as error:
        if lacks_descriptors(error):
            raise TooManyFiles from error
        raise


def _warn_of_unclosed(what: str) -> None:
    problem = f"{what} was never closed: its directory stays held, and the next open replays"
    warnings.warn(problem, ResourceWarning, stacklevel=2)


def engine_on_disk(disk: Disk, clock: Clock, settings: Settings, on_progress: OnProgress = tell_nobody) -> Engine:
    """Open a store on a disk that is not a directory of the system.

    It has no lock, no index on disk, no status and no archive of its own. So each open replays the whole journal, and
    the caller must make sure that it is the only owner.
    """
    _import_what_is_used_later()

    def metadata(store_id: bytes, cache_bytes: int) -> MetadataStore:
        return MemoryMetadataStore(cache_bytes)

    return Engine(settings, Environment(disk, metadata, clock, on_progress=on_progress), _EXPLAINING)


def open_forebay(
    directory: PathArgument | None = None,
    settings: Settings | None = None,
    *,
    clock: Clock | None = None,
    disk: Disk | None = None,
    on_progress: OnProgress | None = None,
    **fields: Unpack[SettingsFields],
) -> Forebay:
    """Open a directory, make it if it does not exist, and recover what a crash left.

    fields: fields of Settings, which override those of settings.
    clock: replaces the time of the machine.
    disk: has the files, in the place of a directory. Nothing locks it, so the host must make sure that it is the only
        owner. The index is in RAM, so each open replays the whole journal. There is no status file and no
        `archive_directory`, and neither Spark nor the command line reads it.
    on_progress(done_bytes, total_bytes): called in this thread while the journal is replayed, first with none done and
        then after each data log. After a kill without an index, the replay is what takes seconds. The total begins anew
        if the whole journal must be replayed after all. If on_progress raises, the open ends with that error, and the
        next open begins anew.

    Raises SettingsError, StoreLocked, JournalCorrupt (nothing has changed), TooManyFiles (call again), StoreFailed.

        forebay.open("data", on_progress=lambda done, total: print(f"{done >> 20} of {total >> 20} MiB"))
    """
    chosen = settings_from(settings, fields)
    time: Clock = SystemClock() if clock is None else check_clock(clock)
    if on_progress is not None and not callable(on_progress):
        raise ArgumentError(f"on_progress must be callable, or None, not {on_progress!r}")
    tell = tell_nobody if on_progress is None else on_progress
    if disk is not None:
        return Forebay(_engine_of_caller(disk, time, chosen, directory, tell), None)
    if directory is None:
        raise ArgumentError("there is nothing to open: name a directory, or give a disk")
    return _open_directory(directory, time, chosen, tell)


def _engine_of_caller(
    disk: Disk, clock: Clock, settings: Settings, directory: object, on_progress: OnProgress
) -> Engine:
    if directory is not None:
        raise SettingsError("a disk is opened in the place of a directory: give one of the two")
    if settings.archive_directory is not None:
        raise SettingsError("a disk given by the caller has its archive in itself: leave archive_directory out")
    if settings.admin:
        raise SettingsError("admin=True serves a socket in a directory, and a disk given by the caller has none")
    return engine_on_disk(check_disk(disk), clock, settings, on_progress)


def _open_directory(directory: PathArgument, clock: Clock, chosen: Settings, on_progress: OnProgress) -> Forebay:
    _import_what_is_used_later()
    root = store_root(directory, chosen.broker_name)
    disk = OsDisk(root, maps=chosen.map_journal, fills=chosen.sync == "always")
    elsewhere = chosen.archive_directory if chosen.archive_data_logs else None
    archive_disk = OsDisk(archive_root(elsewhere, chosen.broker_name, root)) if elsewhere is not None else None
    lock = _acquired_lock(root, disk, chosen)
    admin_socket: AdminSocket | None = None
    trace: File | None = None
    try:
        if chosen.admin:
            admin_socket = _admin_socket(root)
        if chosen.record_trace is not None:
            from .planning.recorder import new_trace  # few need it: those who plan

            trace = new_trace(str(chosen.record_trace))
        environment = Environment(
            disk,
            partial(_metadata_store, root, chosen),
            clock,
            archive_disk=archive_disk,
            trace=trace,
            guard=MemoryGuard(unique_set_bytes, return_free_memory),
            status=StatusFile(root),
            on_progress=on_progress,
        )
        engine = Engine(chosen, environment, _EXPLAINING)
    except BaseException as error:
        if admin_socket is not None:
            admin_socket.discard()
        if trace is not None:
            trace.close()
        lock.release()
        if isinstance(error, StoreFailed) and lacks_descriptors(error):
            raise TooManyFiles from error
        raise
    if admin_socket is None:
        return Forebay(engine, lock)
    from .remote.server import AdminServer  # few need it: those who ask for it

    # A Forebay of its own for the same store, so that a store that was never closed can still be collected.
    return Forebay(engine, lock, AdminServer(admin_socket, Forebay(engine, None)))


def _acquired_lock(root: str, disk: OsDisk, chosen: Settings) -> DirectoryLock:
    lock = DirectoryLock(root)
    try:
        disk.make_directory("")
        lock.acquire(chosen.lock_wait_seconds)
    except OSError as error:
        if lacks_descriptors(error):
            raise TooManyFiles from error
        raise refusal(root, error) from error
    return lock


def _metadata_store(root: str, chosen: Settings, store_id: bytes, cache_bytes: int) -> MetadataStore:
    from ..store.metadata.sqlite import SqliteMetadataStore  # imported with the first store, not with the package

    on_disk = SqliteMetadataStore(
        index_path(root),
        store_id,
        chosen.index_page_size_bytes,
        cache_bytes,
        transaction_adds=chosen.index_transaction_adds,
    )
    if chosen.persistent_index:
        return on_disk
    on_disk.clear()  # nobody updates it from now on
    return MemoryMetadataStore(cache_bytes)


def _admin_socket(root: str) -> AdminSocket:
    from .remote.admin_socket import AdminSocket

    try:
        return AdminSocket(root)
    except OSError as error:
        if lacks_descriptors(error):
            raise TooManyFiles from error
        raise refusal(root, error) from error
