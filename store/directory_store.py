"""DirectoryStore: makes the parts of a store of messages, gives them out, and closes them in order.

StoreLayer has it. Functions of the assembly that make the layers above, such as AdminLayer and TopicLayer, take a
DirectoryStore and give each part of a layer the parts of the store that it uses. No part of a layer has the whole
store. store_opener.py opens it. recovery/recovery.py describes what a crash leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from .checkpoint.attestation import Attestation
from .checkpoint.checkpointer import Checkpointer
from .destinations_file import DestinationsFile
from .disk.disk import Disk
from .environment.account import Account, OverdraftAccount, Unlimited
from .environment.clock import Clock, SteadyClock
from .environment.locks import OwnedLock, StoreLocks
from .environment.progress import OnProgress, tell_nobody
from .errors import StoreFailed
from .format.record import STATE
from .format.state_record import StateRecord, encode_state
from .index.deduplication import Deduplication
from .index.due_times import DueTimes
from .journal.journal import Journal
from .journal.journal_syncer import JournalSyncer
from .journal.reserve import store_limit_bytes
from .journal.shutdown_marker import ShutdownMarker, leave_shutdown_marker, write_shutdown_marker
from .journal.sync_mark import SyncMark
from .maintenance.archive import Archive
from .maintenance.cleanup import Cleanup
from .maintenance.data_log_remover import DataLogRemover
from .maintenance.data_log_retention import DataLogRetention
from .maintenance.disk_use import DiskUse
from .maintenance.relocation import Relocation, RelocationTarget
from .maintenance.time_search import TimeSearch
from .maintenance.trimmer import Trimmer
from .message_store import MessageStore
from .metadata.index_reads import IndexReads
from .metadata.metadata_store import MetadataStore
from .recovery.recovery import RecoveredJournal
from .state.journaled_state import JournaledState
from .state.property_table import PropertyTable
from .writers.destination_writer import DestinationWriter
from .writers.discard_writer import DiscardWriter
from .writers.property_writer import PropertyWriter
from .writers.return_writer import ReturnWriter
from .writers.subscription_writer import SubscriptionWriter
from .writers.transaction_writer import TransactionWriter


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Sizes and choices with which a store is opened."""

    index_cache_bytes: int
    """Memory for blocks of the index."""
    max_file_bytes: int
    """Size of a data log."""
    max_checkpoint_adds: int
    """Most messages added between two checkpoints."""
    verifies_all: bool = False
    """Whether opening reads every byte of the journal and refuses damage."""
    store_limit: int | float | None = None
    """Bytes of the journal above which nothing is added.

    A float is a share of the space that the disk has for it at open.
    """
    accepts_loss: bool = False
    """Whether damage to durable data is repaired and reported instead of refused."""
    relocation_target: RelocationTarget = RelocationTarget()
    """How large the journal may become before live messages are copied out of sparse data logs."""


@dataclass(frozen=True, slots=True)
class StoreAccounts:
    """The accounts that pay for the memory of a store. None: that memory is not counted."""

    index: Account
    """Pays for the blocks of the index."""
    relocation: Account = field(default_factory=Unlimited)
    """Pays for the messages that relocation reads."""
    delivery_counts: Account | None = None
    """Pays for delivery counts."""
    destinations: OverdraftAccount | None = None
    """Pays for lanes, and for the sets of messages that subscriptions have not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEnvironment:
    """The parts that a store is made with: those of the machine, and those of the layers above."""

    disk: Disk
    metadata: Callable[[bytes], MetadataStore]
    """Makes the metadata store for a store id."""
    clock: Clock
    state_lock: OwnedLock
    accounts: StoreAccounts
    archive: Archive | None = None
    """Keeps the data logs that cleanup removes; None: they are deleted."""
    duplicates: Deduplication = field(default_factory=Deduplication)
    """The ids that must not be stored again."""
    host_properties: PropertyTable = field(default_factory=PropertyTable)
    """The table of host properties."""
    on_progress: OnProgress = tell_nobody
    """Told how far the replay of the journal is while the store opens."""
    on_space_freed: Callable[[], None] = lambda: None
    """Called under the state lock when data logs were removed from the disk."""

    def random_salt(self) -> int:
        """Return the salt of a new data log."""
        return int.from_bytes(self.clock.random_bytes(4), "little")


class DirectoryStore:
    """A store of messages with all its parts. `store_opener.open_store` makes it."""

    def __init__(
        self,
        *,
        environment: StoreEnvironment,
        options: StoreOptions,
        store_id: bytes,
        journaled: JournaledState,
        reads: IndexReads,
        steady_clock: SteadyClock,
        sync_mark: SyncMark,
        recovered: RecoveredJournal,
        now: float,
    ) -> None:
        """Make the parts of a store from those that recovery has filled; `begin` begins the journal.

        reads: reads the rows of the index. sync_mark: has the new epoch. now: in monotonic seconds.
        """
        self._disk, self._state_lock, self._clock = environment.disk, environment.state_lock, environment.clock
        self._options, self._store_id = options, store_id
        self._journaled, self._reads, self._sync_mark = journaled, reads, sync_mark
        self.locks = StoreLocks(OwnedLock(), OwnedLock(), environment.state_lock)
        self._is_closing = self._is_ended = False
        # Says when messages are due and expire. It never goes back.
        self.steady_clock = steady_clock
        self.metadata_store, self.index = journaled.metadata, journaled.index
        self.subscriptions, self.branches = journaled.subscriptions, journaled.branches
        self.duplicates, self.host_properties = journaled.duplicates, journaled.properties
        self.destination_table, self.imports = recovered.destinations, recovered.imports
        self.journal = self._make_journal(environment, recovered)
        self.syncer = JournalSyncer(self.journal, self._disk, self._clock.monotonic, sync_mark.note)
        self.checkpointer = self._make_checkpointer(recovered.replay_position)
        self.message_store = self._make_message_store(reads)
        self.attestation = Attestation(self.journal, self.checkpointer, self._state_lock)
        self.disk_use = DiskUse(self.journal, self.index, sync_mark, self._state_lock)
        self.transaction_writer = TransactionWriter(
            branches=self.branches,
            journal=self.journal,
            index=self.index,
            now_ms=self.steady_clock.now_ms,
            duplicates=self.duplicates,
            properties=self.host_properties,
            acked_lane=self.subscriptions.ensure_acked_lane_numbered,
        )
        self.data_log_retention = self._make_data_log_retention()
        self.time_search = TimeSearch(self.index.cache, self._state_lock, self.journal.reader)
        self.cleanup = self._make_cleanup(environment, now)
        self.destination_writer = DestinationWriter(
            self.index,
            self.subscriptions,
            self.duplicates,
            self.host_properties,
            self.journal,
            self.destination_table,
        )
        self.return_writer = ReturnWriter(self.journal, self.index)
        self.subscription_writer = SubscriptionWriter(self.journal, self.subscriptions)
        self.property_writer = PropertyWriter(self.journal, self.host_properties, self.steady_clock.now_ms)
        self._destinations_file = DestinationsFile(
            self._disk,
            self.index,
            self.subscriptions,
            self.destination_table,
            self.message_store.plan,
            state_lock=self._state_lock,
            clock=self._clock,
        )

    def _make_journal(self, environment: StoreEnvironment, recovered: RecoveredJournal) -> Journal:
        return Journal(
            self._disk,
            self.locks,
            self._store_id,
            max_file_bytes=self._options.max_file_bytes,
            clock_ms=self._clock.time_ms,
            random_salt=environment.random_salt,
            begin_data_log=self._begin_data_log,
            has_reserve=True,
            store_limit_bytes=store_limit_bytes(self._options.store_limit, self._disk, sum(recovered.sizes.values())),
        )

    def _make_checkpointer(self, replay_position: int) -> Checkpointer:
        return Checkpointer(
            self._journaled,
            self.journal,
            self.syncer,
            self._clock,
            self.locks,
            replay_position=replay_position,
            root_state=self._root_state,
            give_up_readers=self.give_up_readers,
        )

    def _make_message_store(self, reads: IndexReads) -> MessageStore:
        return MessageStore(
            disk=self._disk,
            store_id=self._store_id,
            journal=self.journal,
            index=self.index,
            duplicates=self.duplicates,
            discard_writer=DiscardWriter(self.journal, self.duplicates),
            due_times=DueTimes(self.index, reads.timed),
        )

    def _make_data_log_retention(self) -> DataLogRetention:
        return DataLogRetention(
            disk=self._disk,
            index=self.index,
            subscriptions=self.subscriptions,
            branches=self.branches,
            journal=self.journal,
            checkpointer=self.checkpointer,
            destination_table=self.destination_table,
            clock=self._clock,
            state_lock=self._state_lock,
        )

    def _make_cleanup(self, environment: StoreEnvironment, now: float) -> Cleanup:
        """Return the cleanup. now: in monotonic seconds."""
        remover = DataLogRemover(
            self.index,
            self.journal,
            self.syncer,
            self.branches,
            environment.archive,
            self.locks,
            checkpointer=self.checkpointer,
            retention_reasons=self.data_log_retention.reasons,
            leases=self.data_log_retention.leases,
            on_space_freed=environment.on_space_freed,
        )
        relocation = Relocation(
            self.index,
            self.journal,
            self.branches,
            self.transaction_writer,
            self.locks,
            account=environment.accounts.relocation,
            data_log_bytes=self._options.max_file_bytes,
            relocatable=remover.relocatable,
            would_remove=remover.would_remove,
            target=self._options.relocation_target,
            now=now,
        )
        trimmer = Trimmer(
            self.subscriptions,
            self.time_search,
            self._state_lock,
            self.message_store.acknowledge,
            lambda: self.journal.data_log,
        )
        return Cleanup(
            remover=remover,
            relocation=relocation,
            trimmer=trimmer,
            fullness=self.journal.fullness,
            subscriptions=self.subscriptions,
            clock=self._clock,
            make_checkpoint=self.checkpointer.checkpoint,
        )

    # ------------------------------------------------------------------ opening and closing

    def begin(self, recovered: RecoveredJournal) -> None:
        """Record that a new epoch has begun, in its first data log, and checkpoint what recovery found.

        Requires: no other thread uses the store.
        """
        self.journal.add_older(recovered.sizes)
        epoch = recovered.epoch + 1
        # The marker comes before the first record of the epoch, so that no crash lets an open use the epoch again.
        write_shutdown_marker(self._disk, ShutdownMarker(self._store_id, epoch, recovered.end, is_clean=False))
        self._destinations_file.remove()
        with self._state_lock:
            self.journal.start(recovered.next_data_log, recovered.next_log_sequence, epoch)
        for data_log in recovered.sizes:
            self.index.use(data_log)
        self.syncer.sync()
        if recovered.leftovers:
            self.cleanup.remover.remove_files(list(recovered.leftovers))
        self._reads.serve(self.checkpointer.discard_index)
        self.subscriptions.shrink_all_to_rows()
        self.index.shrink_all_to_rows()
        self.checkpointer.checkpoint()

    def abandon(self) -> None:
        """Close the files as they are, because the layers above could not be made.

        The next open finds the same as after a kill.
        """
        self._is_ended = True
        self._close_files()

    def close(self) -> None:
        """Write a checkpoint, seal the newest data log, and leave the marker of a clean shutdown.

        A second call does nothing.

        After a close that was interrupted, this one only closes the files, and the next open recovers as after a kill.
        """
        if self._is_ended:
            return
        is_first, self._is_closing = not self._is_closing, True
        self.message_store.begin_closing()
        try:
            if is_first and self.journal.failure is None:
                self._end_cleanly()
        except OSError as error:
            raise StoreFailed(f"the store could not be closed cleanly ({error.strerror})") from error
        finally:
            self._close_files()
            self.syncer.close()  # may take 35 ms, so not under the lock
            self._is_ended = True

    def _end_cleanly(self) -> None:
        """Write a checkpoint, seal the newest data log, close the files, and leave the marker of a clean shutdown."""
        with self._state_lock:
            fullness = self.journal.fullness
            if not fullness.is_out_of_space:  # on a full disk the next open needs the remaining space
                fullness.reserve.close()
        self.journal.files.sync_names()
        self.checkpointer.checkpoint(is_closing=True)
        self._write_last_destinations()
        self._sync_mark.sync()
        self._close_files()  # first, because the marker may need one of their descriptors
        leave_shutdown_marker(
            self._disk, ShutdownMarker(self._store_id, self.journal.epoch, self.checkpointer.end, is_clean=True)
        )

    def _close_files(self) -> None:
        """Close journal, sync mark and index. A second call does nothing.

        No checkpoint may come later: it would take the closed index for a damaged one, and delete its files.
        """
        self.checkpointer.close()
        if self._state_lock.failure is None:
            with self._state_lock:
                self.journal.close()
        else:
            self.journal.close()  # no thread is admitted any more
        self._sync_mark.close()
        self.metadata_store.close()

    def give_up_readers(self) -> int:
        """Close the data logs that are open only for reading; return how many. Any thread may call it."""
        return self.journal.open_data_logs.give_up_readers()

    def write_destinations(self) -> None:
        """Write the destinations file if a checkpoint has brought something new and it is time. Requires: no lock."""
        with self.locks.checkpoint:
            if not self.journal.fullness.is_out_of_space:
                self._destinations_file.refresh(self.checkpointer.end)

    def _write_last_destinations(self) -> None:
        with self.locks.checkpoint:
            if self.journal.fullness.is_out_of_space:  # the next open needs the remaining space
                self._destinations_file.remove()
            else:
                self._destinations_file.write(is_closed=True)

    # ------------------------------------------------------------------ callbacks of the parts

    def _state(self, data_logs: Iterable[int]) -> StateRecord:
        state = StateRecord(
            next_sequences=dict(self.index.next_sequences()),
            data_logs=sorted(data_logs),
            branches=self.branches.prepared,
        )
        state.open_transactions = [branch.number for branch in self.branches.open]
        return self._journaled.restated(state, self.destination_table, self.imports)

    def _begin_data_log(self, data_log: int) -> tuple[int, int, bytes]:
        """Have the index count what uses a data log, as each add and ack expects, and return its first record."""
        self.index.use(data_log)
        existing = self.cleanup.not_dropped([*self.journal.sizes, data_log])
        return STATE, 0, encode_state(self._state(existing))

    def _root_state(self, next_log_sequence: int) -> StateRecord:
        data_logs = sorted(self.cleanup.not_dropped(self.journal.sizes))
        branches = [*self.branches.prepared, *self.branches.open]
        state = StateRecord(data_logs=data_logs, branches=branches, next_log_sequence=next_log_sequence)
        return self._journaled.restated(state, self.destination_table, self.imports)
