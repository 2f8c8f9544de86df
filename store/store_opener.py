"""Opening a store: recover its directory, begin a new data log, and return a DirectoryStore that is whole.

recovery/recovery.py describes what a crash leaves. If anything fails on the way, what was opened is closed again, and
the next attempt finds what this one found.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from .checkpoint.checkpointer import checkpoint_of_replay
from .directory_store import DirectoryStore, StoreOptions, StoreSurroundings
from .disk.layout import INDEX_DIRECTORY, JOURNAL, STATE_DIRECTORY
from .environment.clock import SteadyClock
from .environment.late_log import LateLogger
from .errors import StoreFailed
from .index.delivery_counts import DeliveryCountTable, runs_max
from .index.index import Index
from .index.subscriptions import Subscriptions
from .journal.reserve import Reserve
from .journal.shutdown_marker import read_shutdown_marker
from .journal.sync_mark import SyncMark, read_sync_mark
from .metadata.index_reads import IndexReads
from .metadata.store import MetadataStore
from .recovery.opening import find_store_id, recover
from .recovery.recovery import Recovered, RecoveryReport
from .state.journaled_state import JournaledState
from .state.transactions import Branches

logger = LateLogger("forebay.store")

STORE_ID_BYTES: Final = 16


def open_store(surroundings: StoreSurroundings, options: StoreOptions) -> tuple[DirectoryStore, RecoveryReport]:
    """Recover the directory and begin a new data log. Requires: the directory lock is held.

    Raises JournalCorrupt (nothing has changed), TooManyFiles or StoreFailed.
    """
    try:
        return _Opening(surroundings, options).run()
    except OSError as error:
        raise StoreFailed(f"the store could not be opened ({error.strerror or error})") from error


class _Opening:
    """One attempt to open a store."""

    def __init__(self, surroundings: StoreSurroundings, options: StoreOptions) -> None:
        """Make the directories and find out to which store they belong."""
        self._surroundings, self._options = surroundings, options
        self._began = surroundings.clock.monotonic()
        disk = surroundings.disk
        for directory in (JOURNAL, INDEX_DIRECTORY, STATE_DIRECTORY):
            disk.make_directory(directory)
        self._is_new = not disk.list(JOURNAL) and not disk.list(STATE_DIRECTORY)
        Reserve(disk, 0).clear()
        self._marker = marker = read_shutdown_marker(disk)
        found_id = marker.store_id if marker is not None else find_store_id(disk)
        self._store_id = found_id or surroundings.clock.random_bytes(STORE_ID_BYTES)
        if surroundings.archive is not None:
            surroundings.archive.prepare(self._store_id)

    def run(self) -> tuple[DirectoryStore, RecoveryReport]:
        """Return the open store. If this fails, close the files: the next attempt may need their descriptors."""
        metadata = self._surroundings.metadata(self._store_id)
        try:
            reads = IndexReads(metadata)
            journaled = self._make_state(metadata, reads)
            found = self._recover(journaled)
            store = self._make_store(journaled, reads, found)
        except BaseException:
            metadata.close()
            raise
        try:
            store.begin(found)
            return store, self._reported(store, found, metadata.is_persistent)
        except BaseException:
            store.abandon()
            raise

    def _make_state(self, metadata: MetadataStore, reads: IndexReads) -> JournaledState:
        """Return the parts that recovery brings up to the journal."""
        accounts, options = self._surroundings.accounts, self._options
        attempts = DeliveryCountTable(accounts.attempts, runs_max(options.max_file_bytes))
        index = Index(
            accounts.index,
            options.index_cache_bytes,
            reads.block,
            reads.doubt,
            attempts,
            reads.fingerprints,
            accounts.existing,
        )
        duplicates, properties = self._surroundings.duplicates, self._surroundings.host_properties
        return JournaledState(
            self._surroundings.disk,
            metadata,
            index,
            Subscriptions(index, accounts.existing),
            Branches(duplicates, properties),
            duplicates,
            properties,
        )

    def _recover(self, journaled: JournaledState) -> Recovered:
        """Bring index and tables up to the journal; return what recovery found."""
        surroundings = self._surroundings
        found = recover(
            journaled,
            self._marker,
            self._store_id,
            partial(checkpoint_of_replay, journaled),
            synced=read_sync_mark(surroundings.disk, self._marker),
            verifies_all=self._options.verifies_all,
            repair_salt=surroundings.random_salt if self._options.accepts_loss else None,
            on_progress=surroundings.on_progress,
        )
        journaled.branches.forget_open()
        journaled.properties.charge()
        journaled.index.keep_put_off(found.destinations.keys() | journaled.subscriptions.numbers())
        return found

    def _make_store(self, journaled: JournaledState, reads: IndexReads, found: Recovered) -> DirectoryStore:
        surroundings = self._surroundings
        steady = SteadyClock(surroundings.clock.time_ms, surroundings.clock.monotonic)
        steady.advance_to(journaled.index.latest_ms)
        # From here on no epoch may be used twice, whatever a crash leaves: the mark is of the new one.
        mark = SyncMark(surroundings.disk, self._store_id, found.epoch + 1)
        try:
            return DirectoryStore(
                surroundings, self._options, self._store_id, journaled, reads, steady, mark, found, now=self._began
            )
        except BaseException:
            mark.close()
            raise

    def _reported(self, store: DirectoryStore, found: Recovered, keeps_index: bool) -> RecoveryReport:
        report = found.report(
            self._is_new or (self._marker is not None and self._marker.is_clean),
            not self._is_new and keeps_index,
            len(store.branches.prepared),
            self._surroundings.clock.monotonic() - self._began,
        )
        logger.info("opened: %s", report, event="opened")
        return report
