"""DirectoryStore: makes the parts of a store of messages, opens and closes them in order, and gives them out.

Only the Engine has it: it makes the layers above the store, and gives each of them the parts that it uses.
recovery/recovery.py describes what a crash leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from .checkpoint.attestation import Attestation
from .checkpoint.checkpointer import Checkpointer, checkpoint_of_replay
from .destinations_file import DestinationsFile
from .disk.disk import Disk
from .disk.layout import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY
from .environment.account import Account, OpenAccount, Unlimited
from .environment.clock import Clock, SteadyClock
from .environment.late_log import LateLogger
from .environment.locks import OwnedLock
from .environment.progress import OnProgress, tell_nobody
from .errors import StoreFailed
from .format.destination_table import DestinationTable
from .format.imports import Imports
from .format.record import (
    STATE,
)
from .format.state import (
    State,
    encode_state,
)
from .index.block import BlockDamaged
from .index.deduplication import Deduplication
from .index.delivery_counts import DeliveryCountTable, runs_max
from .index.due_times import DueTimes
from .index.index import Index
from .index.subscriptions import Subscriptions
from .journal.journal import Journal
from .journal.reserve import Reserve, limit_bytes
from .journal.shutdown_marker import ShutdownMarker, leave_shutdown_marker, read_shutdown_marker, write_shutdown_marker
from .journal.sync_mark import SyncMark, read_sync_mark
from .maintenance.archive import Archive
from .maintenance.cleaner import Cleaner
from .maintenance.positions import Positions
from .maintenance.relocation import Relocation
from .maintenance.trimmer import Trimmer
from .message_store import MessageStore
from .metadata.store import MetadataDamaged, MetadataStore
from .records.destination_records import DestinationRecords
from .records.discard_records import DiscardRecords
from .records.property_records import PropertyRecords
from .records.return_records import ReturnRecords
from .records.subscription_records import SubscriptionRecords
from .recovery.opening import find_store_id, recover
from .recovery.recovery import Recovered, RecoveryReport
from .space.cleanup import Cleanup
from .space.data_log_retention import DataLogRetention
from .space.disk_use import DiskUse
from .state.journaled_state import JournaledState
from .state.property_table import PropertyTable
from .state.transactions import Branches, TransactionRecords

logger = LateLogger("forebay.store")

STORE_ID_BYTES: Final = 16


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


class DirectoryStore:
    """A store of messages. Construct it, then `open` it once, which sets the attributes without a value here."""

    def __init__(
        self,
        disk: Disk,
        metadata: Callable[[bytes], MetadataStore],
        options: StoreOptions,
        clock: Clock,
        *,
        state_lock: OwnedLock,
        account: Account,
        relocation_account: Account | None = None,
        attempts_account: Account | None = None,
        existing: OpenAccount | None = None,
        archive: Archive | None = None,
        duplicates: Deduplication | None = None,
        on_progress: OnProgress = tell_nobody,
        host_properties: PropertyTable | None = None,
    ) -> None:
        """Make a store that `open` will open. With an account of None, that memory is not counted.

        metadata: makes the metadata store for a store id.
        account: pays for the blocks of the index.
        relocation_account: pays for what relocation reads.
        attempts_account: pays for delivery counts.
        existing: pays for lanes, and for messages that subscriptions have acknowledged out of order.
        archive: keeps the data logs that cleanup removes; None: they are deleted.
        duplicates: the ids that must not be stored again; None: there are none.
        on_progress: told how far the replay of the journal is while the store opens.
        host_properties: the table of host properties; None: they are not counted.
        """
        self._on_progress = on_progress
        self._disk = disk
        self._archive = archive
        self._make_metadata = metadata
        self._lock = state_lock
        self._relocation_account = relocation_account or Unlimited()
        self._options = options
        self._clock = clock
        self._checkpoint_lock = OwnedLock()
        self._metadata: MetadataStore | None = None
        self._mark: SyncMark | None = None
        self._is_closing = self._is_ended = False
        self._is_serving = False
        # Whether there is a journal, which may have files open.
        self._is_wired = False
        self._store_id = b""
        # The time by which messages are due and expire: it never goes back.
        self.steady = SteadyClock(clock.time_ms, clock.monotonic)
        attempts = DeliveryCountTable(attempts_account, runs_max(options.max_file_bytes))
        cache_bytes = options.index_cache_bytes
        self.index = Index(
            account, cache_bytes, self._read_block, self._doubt_index, attempts, self._read_fingerprints, existing
        )
        self.subscriptions = Subscriptions(self.index, existing)
        self.duplicates = duplicates or Deduplication()
        self.host_properties = host_properties or PropertyTable()
        self.branches = Branches(self.duplicates, self.host_properties)
        self._timetable = DueTimes(self.index, self._timed_blocks)
        self.destination_table = DestinationTable()
        self.imports: Imports
        self.journal: Journal
        self.message_store: MessageStore
        self.checkpointer: Checkpointer
        self.attestation: Attestation
        self.transaction_records: TransactionRecords
        self.retention: DataLogRetention
        self.positions: Positions
        self.cleanup: Cleanup
        self.destination_records: DestinationRecords
        self.return_records: ReturnRecords
        self.subscription_records: SubscriptionRecords
        self.property_records: PropertyRecords
        self.disk_use: DiskUse
        self._journaled: JournaledState
        self._destinations_file: DestinationsFile

    @property
    def metadata_store(self) -> MetadataStore:
        """The store of the index. Requires: this store was opened."""
        assert self._metadata is not None
        return self._metadata

    # ------------------------------------------------------------------ opening and closing

    def open(self) -> RecoveryReport:
        """Recover the directory and begin a new data log. Requires: the directory lock is held.

        Raises JournalCorrupt (nothing has changed), TooManyFiles or StoreFailed.
        """
        began = self._clock.monotonic()
        try:
            return self._open(began)
        except OSError as error:
            self._let_go()
            raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Close the files of a store that could not be opened, because the next attempt may need their descriptors."""
        if self._is_wired:
            with self._lock:
                self.journal.close()
        if self._mark is not None:
            self._mark.close()
        if self._metadata is not None:
            self._metadata.close()

    def _open(self, began: float) -> RecoveryReport:
        is_new, marker = self._identify_directory()
        metadata = self._metadata = self._make_metadata(self._store_id)
        found = self._recover(metadata, marker)
        self._make_journal(found)
        self._wire(began, found.replay_position)
        self._begin_epoch(found)
        self._is_serving = True
        self.subscriptions.put_away_all()
        self.index.put_away_all()
        self.message_store.checkpoint()
        report = found.report(
            is_new or (marker is not None and marker.is_clean),
            not is_new and metadata.is_persistent,
            len(self.branches.prepared),
            self._clock.monotonic() - began,
        )
        logger.info("opened: %s", report, event="opened")
        return report

    def _identify_directory(self) -> tuple[bool, ShutdownMarker | None]:
        """Make the directories and find out to which store they belong; return whether they are new, and the marker."""
        for directory in (JOURNAL, INDEX_DIRECTORY, STATE_DIRECTORY):
            self._disk.make_directory(directory)
        is_new = not self._disk.list(JOURNAL) and not self._disk.list(STATE_DIRECTORY)
        Reserve(self._disk, 0).clear()
        marker = read_shutdown_marker(self._disk)
        found_id = marker.store_id if marker is not None else find_store_id(self._disk)
        self._store_id = found_id or self._clock.random_bytes(STORE_ID_BYTES)
        if self._archive is not None:
            self._archive.prepare(self._store_id)
        return is_new, marker

    def _recover(self, metadata: MetadataStore, marker: ShutdownMarker | None) -> Recovered:
        """Bring index and tables up to the journal; return what recovery found."""
        self._journaled = self._gathered(metadata)
        found = recover(
            self._journaled,
            marker,
            self._store_id,
            partial(checkpoint_of_replay, self._journaled),
            synced=read_sync_mark(self._disk, marker),
            verifies_all=self._options.verifies_all,
            repair_salt=self._random_salt if self._options.accepts_loss else None,
            on_progress=self._on_progress,
        )
        self.branches.forget_open()
        self.host_properties.charge()
        self.index.keep_put_off(found.destinations.keys() | self.subscriptions.numbers())
        self.steady.advance_to(self.index.latest_ms)
        self.destination_table, self.imports = found.destinations, found.imports
        return found

    def _make_journal(self, found: Recovered) -> None:
        self.journal = Journal(
            self._disk,
            self._lock,
            self._store_id,
            max_file_bytes=self._options.max_file_bytes,
            clock_ms=self._clock.time_ms,
            monotonic=self._clock.monotonic,
            random_salt=self._random_salt,
            first_record=self._first_record,
            has_reserve=True,
            store_limit_bytes=limit_bytes(self._options.store_limit, self._disk, sum(found.sizes.values())),
        )

    def _begin_epoch(self, found: Recovered) -> None:
        """Record that a new epoch has begun, in its first data log."""
        self.journal.sizes.update(found.sizes)
        # Do this before the first record of the epoch: after a crash from here on, no epoch may be used twice.
        epoch = found.epoch + 1
        self._mark = SyncMark(self._disk, self._store_id, epoch)
        self.disk_use = DiskUse(self.journal, self.index, self._mark, self._lock)
        write_shutdown_marker(self._disk, ShutdownMarker(self._store_id, epoch, found.end, False))
        self._destinations_file.remove()
        with self._lock:
            self.journal.start(found.next_data_log, found.next_log_sequence, epoch, self._mark.note)
        for data_log in found.sizes:
            self.index.use(data_log)
        self.journal.sync()
        if found.leftovers:
            self.cleanup.cleaner.discard(list(found.leftovers))

    def _gathered(self, metadata: MetadataStore) -> JournaledState:
        """Return the parts that recovery brings up to the journal."""
        return JournaledState(
            self._disk,
            metadata,
            self.index,
            self.subscriptions,
            self.branches,
            self.duplicates,
            self.host_properties,
        )

    def _wire(self, now: float, replay_position: int) -> None:
        """Make the parts that need journal and index. replay_position: where a replay would begin now."""
        self._is_wired = True
        self.checkpointer = Checkpointer(
            self._journaled,
            self.journal,
            self._clock,
            lock=self._checkpoint_lock,
            state_lock=self._lock,
            replay_position=replay_position,
            root_state=self._root_state,
            give_up_readers=self.give_up_readers,
        )
        self.message_store = MessageStore(
            self._disk,
            self._store_id,
            self.journal,
            self.index,
            self.duplicates,
            DiscardRecords(self.journal, self.duplicates),
            self._timetable,
            self.checkpointer,
            checkpoint_lock=self._checkpoint_lock,
            state_lock=self._lock,
            max_checkpoint_adds=self._options.max_checkpoint_adds,
        )
        self.attestation = Attestation(self.journal, self.checkpointer, self._lock)
        self.transaction_records = TransactionRecords(
            self.branches,
            self.journal,
            self.index,
            self.steady.now_ms,
            self.duplicates,
            self.host_properties,
            self.subscriptions.lane_numbered,
        )
        self.retention = DataLogRetention(
            self._disk,
            self.index,
            self.subscriptions,
            self.branches,
            self.journal,
            self.checkpointer,
            self.destination_table,
            self._clock,
            self._lock,
        )
        self.positions = Positions(self.index.cache, self._lock, self.journal.reader)
        self.cleanup = self._made_cleanup(now)
        rules = self.cleanup.trimmer.rules
        self.destination_records = DestinationRecords(
            self.index,
            self.subscriptions,
            self.duplicates,
            self.host_properties,
            self.journal,
            self.destination_table,
            rules,
        )
        self.return_records = ReturnRecords(self.journal, self.index)
        self.subscription_records = SubscriptionRecords(self.journal, self.subscriptions, rules)
        self.property_records = PropertyRecords(self.journal, self.host_properties, self.steady.now_ms)
        self._destinations_file = DestinationsFile(
            self._disk,
            self.index,
            self.subscriptions,
            self.destination_table,
            self.message_store.plan,
            state_lock=self._lock,
            clock=self._clock,
        )

    def _made_cleanup(self, now: float) -> Cleanup:
        """Return the cleanup. now: in monotonic seconds."""
        cleaner = Cleaner(
            self.index,
            self.journal,
            self.branches,
            self._archive,
            checkpoint_lock=self._checkpoint_lock,
            state_lock=self._lock,
            replay_position=lambda: self.checkpointer.replay_position,
            is_full=lambda: self.message_store.is_full,
            retention_reasons=self.retention.reasons,
            leases=self.retention.leases,
        )
        relocation = Relocation(
            self.index,
            self.journal,
            self.branches,
            self.transaction_records,
            checkpoint_lock=self._checkpoint_lock,
            state_lock=self._lock,
            account=self._relocation_account,
            data_log_bytes=self._options.max_file_bytes,
            sealed=cleaner.sealed,
            now=now,
        )
        trimmer = Trimmer(
            self.subscriptions,
            self.positions,
            self._lock,
            self.message_store.acknowledge,
            lambda: self.journal.data_log,
        )
        return Cleanup(
            cleaner, relocation, trimmer, self.journal, self.subscriptions, self._clock, self.message_store.checkpoint
        )

    def _random_salt(self) -> int:
        return int.from_bytes(self._clock.random_bytes(4), "little")

    def close(self) -> None:
        """Write a checkpoint, seal the newest data log, and leave the marker of a clean shutdown.

        A second call does nothing.

        If an earlier close was interrupted, this one closes the files and the next open does the rest.
        """
        if self._is_ended:
            return
        is_first, self._is_closing = not self._is_closing, True
        self.message_store.end()
        try:
            if is_first and self.journal.failure is None:
                with self._lock:
                    if not self.journal.is_out_of_space:  # on a full disk the next open needs the remaining space
                        self.journal.reserve.close()
                self.journal.sync_directory()
                self.message_store.checkpoint(is_closing=True)
                self._write_last_destinations()
                assert self._mark is not None
                self._mark.sync()
                self._close_files()  # the marker may find no descriptor but theirs
                leave_shutdown_marker(
                    self._disk, ShutdownMarker(self._store_id, self.journal.epoch, self.checkpointer.end, True)
                )
        except OSError as error:
            raise StoreFailed(f"the store could not be closed cleanly ({error.strerror})") from error
        finally:
            self._close_files()
            self._is_ended = True

    def _close_files(self) -> None:
        """Close journal, sync mark and index. A second call does nothing."""
        if self._lock.failure is None:
            with self._lock:
                self.journal.close()
        else:
            self.journal.close()  # no thread is admitted any more
        if self._mark is not None:
            self._mark.close()
        if self._metadata is not None:
            self._metadata.close()

    def give_up_readers(self) -> int:
        """Close the data logs that are open only for reading; return how many. Any thread may call it."""
        return self.journal.give_up_readers() if self._is_serving else 0

    def write_destinations(self) -> None:
        """Write the destinations file if a checkpoint has brought something new and it is time. Requires: no lock."""
        with self._checkpoint_lock:
            if not self.journal.is_out_of_space:
                self._destinations_file.refresh(self.checkpointer.end)

    def _write_last_destinations(self) -> None:
        with self._checkpoint_lock:
            if self.journal.is_out_of_space:  # the next open needs the remaining space
                self._destinations_file.remove()
            else:
                self._destinations_file.write(is_closed=True)

    # ------------------------------------------------------------------ callbacks of the parts

    def _state(self, data_logs: Iterable[int]) -> State:
        state = State([], dict(self.index.next_sequences()), sorted(data_logs), self.branches.prepared)
        state.open_transactions = [branch.number for branch in self.branches.open]
        return self._journaled.restated(state, self.destination_table, self.imports)

    def _first_record(self) -> tuple[int, int, bytes]:
        self.index.use(self.journal.data_log)
        existing = (set(self.journal.sizes) | {self.journal.data_log}) - self.cleanup.cleaner.dropped
        return STATE, 0, encode_state(self._state(existing))

    def _root_state(self, next_log_sequence: int) -> State:
        data_logs = sorted(set(self.journal.sizes) - self.cleanup.cleaner.dropped)
        branches = [*self.branches.prepared, *self.branches.open]
        state = State([], {}, data_logs, branches, next_log_sequence=next_log_sequence)
        return self._journaled.restated(state, self.destination_table, self.imports)

    def _read_block(self, lane_number: int, block: int) -> bytes:
        assert self._metadata is not None
        try:
            return self._metadata.read_block(lane_number, block)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _read_fingerprints(
        self, lane_number: int, first: int, last: int, names: Set[str]
    ) -> list[tuple[int, str, bytes]]:
        assert self._metadata is not None
        try:
            return self._metadata.fingerprints(lane_number, first, last, names)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _timed_blocks(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        assert self._metadata is not None
        try:
            return self._metadata.timed(kind, lane_number, behind, until_ms, most)
        except MetadataDamaged as damage:
            self._doubt_index(damage)
            raise

    def _doubt_index(self, damage: MetadataDamaged | BlockDamaged) -> None:
        """Raise StoreFailed for damage in an index that is in use.

        While opening, recovery rebuilds the index at once.
        """
        if self._is_serving:
            raise self.checkpointer.distrust(damage) from damage
