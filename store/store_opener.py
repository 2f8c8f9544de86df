"""Opening a store: recover its directory, begin a new data log, and return a DirectoryStore that is whole.

recovery/recovery.py describes what a crash leaves. If an open fails, it closes what it has opened, and the next attempt
finds the same directory.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from .checkpoint.checkpointer import checkpoint_of_replay
from .directory_store import DirectoryStore, StoreEnvironment, StoreOptions
from .disk.layout import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY
from .environment.clock import SteadyClock
from .environment.late_log import LateLogger
from .errors import StoreFailed
from .index.checkpoint_need import CheckpointNeed
from .index.delivery_counts import DeliveryCountTable, runs_max
from .index.index import Index
from .index.subscriptions import Subscriptions
from .journal.reserve import DiskReserve
from .journal.shutdown_marker import read_shutdown_marker
from .journal.sync_mark import SyncMark, read_sync_mark
from .metadata.index_reads import IndexReads
from .metadata.metadata_store import MetadataStore
from .recovery.opening import find_store_id, recover
from .recovery.recovery import RecoveredJournal, RecoveryReport
from .state.branches import Branches
from .state.journaled_state import JournaledState

logger = LateLogger("forebay.store")

STORE_ID_BYTES: Final = 16


def open_store(environment: StoreEnvironment, options: StoreOptions) -> tuple[DirectoryStore, RecoveryReport]:
    """Recover the directory and begin a new data log. Requires: the directory lock is held.

    Raises JournalCorrupt (nothing has changed), TooManyFiles or StoreFailed.
    """
    try:
        return _Opening(environment, options).run()
    except OSError as error:
        raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error


class _Opening:
    """One attempt to open a store."""

    def __init__(self, environment: StoreEnvironment, options: StoreOptions) -> None:
        """Make the directories and find out to which store they belong."""
        self._environment, self._options = environment, options
        self._began = environment.clock.monotonic()
        disk = environment.disk
        for directory in (JOURNAL, INDEX_DIRECTORY, STATE_DIRECTORY):
            disk.make_directory(directory)
        self._is_new = not disk.list(JOURNAL) and not disk.list(STATE_DIRECTORY)
        DiskReserve(disk, 0).clear()
        self._marker = marker = read_shutdown_marker(disk)
        found_id = marker.store_id if marker is not None else find_store_id(disk)
        self._store_id = found_id or environment.clock.random_bytes(STORE_ID_BYTES)
        if environment.archive is not None:
            environment.archive.prepare(self._store_id)

    def run(self) -> tuple[DirectoryStore, RecoveryReport]:
        """Return the open store. If this fails, it closes the files: the next attempt may need their descriptors."""
        metadata = self._environment.metadata(self._store_id)
        try:
            reads = IndexReads(metadata)
            journaled = self._make_state(metadata, reads)
            recovered = self._recover(journaled)
            store = self._make_store(journaled, reads, recovered)
        except BaseException:
            metadata.close()
            raise
        try:
            store.begin(recovered)
            return store, self._reported(store, recovered, keeps_index=metadata.is_persistent)
        except BaseException:
            store.abandon()
            raise

    def _make_state(self, metadata: MetadataStore, reads: IndexReads) -> JournaledState:
        """Return the parts that recovery brings up to the journal."""
        accounts, options = self._environment.accounts, self._options
        delivery_count_table = DeliveryCountTable(accounts.delivery_counts, runs_max(options.max_file_bytes))
        index = Index(
            account=accounts.index,
            cache_bytes=options.index_cache_bytes,
            read_block=reads.block,
            doubt=reads.doubt,
            delivery_count_table=delivery_count_table,
            read_fingerprints=reads.fingerprints,
            lanes_account=accounts.destinations,
            checkpoint_need=CheckpointNeed(options.max_checkpoint_adds),
        )
        duplicates, properties = self._environment.duplicates, self._environment.host_properties
        return JournaledState(
            self._environment.disk,
            metadata,
            index,
            Subscriptions(index, accounts.destinations),
            Branches(duplicates, properties),
            duplicates,
            properties,
        )

    def _recover(self, journaled: JournaledState) -> RecoveredJournal:
        """Bring index and tables up to the journal; return what recovery found."""
        environment = self._environment
        recovered = recover(
            journaled,
            self._marker,
            self._store_id,
            partial(checkpoint_of_replay, journaled),
            marked_end=read_sync_mark(environment.disk, self._marker),
            verifies_all=self._options.verifies_all,
            repair_salt=environment.random_salt if self._options.accepts_loss else None,
            on_progress=environment.on_progress,
        )
        journaled.branches.forget_open()
        journaled.properties.charge()
        journaled.index.keep_delayed(recovered.destinations.keys() | journaled.subscriptions.numbers())
        return recovered

    def _make_store(self, journaled: JournaledState, reads: IndexReads, recovered: RecoveredJournal) -> DirectoryStore:
        environment = self._environment
        steady_clock = SteadyClock(environment.clock.time_ms, environment.clock.monotonic)
        steady_clock.advance_to(journaled.index.latest_ms)
        # The sync mark has the new epoch. From here on a crash must not let an open use that epoch again.
        sync_mark = SyncMark(environment.disk, self._store_id, recovered.epoch + 1)
        try:
            return DirectoryStore(
                environment=environment,
                options=self._options,
                store_id=self._store_id,
                journaled=journaled,
                reads=reads,
                steady_clock=steady_clock,
                sync_mark=sync_mark,
                recovered=recovered,
                now=self._began,
            )
        except BaseException:
            sync_mark.close()
            raise

    def _reported(self, store: DirectoryStore, recovered: RecoveredJournal, *, keeps_index: bool) -> RecoveryReport:
        report = recovered.report(
            was_clean=self._is_new or (self._marker is not None and self._marker.is_clean),
            has_index=not self._is_new and keeps_index,
            prepared=len(store.branches.prepared),
            seconds=self._environment.clock.monotonic() - self._began,
        )
        logger.info("opened: %s", report, event="opened")
        return report
