"""JournalSyncer: bring the records of a journal to the device, once for all callers that wait for it.

A record survives a power cut once a sync has returned for its end. The first thread that needs a sync makes it, for all
records that were appended by then (group commit). A failed sync fails the journal and is never tried again. After a
crash in the middle of a sync, any part of what it was to bring to the device may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ..disk.disk import Disk, SyncSignal
from ..environment.bare_lock import bare_lock
from ..errors import NestedCall, StoreFailed
from ..structures.histogram import DurationHistogram
from .background_syncs import BackgroundSyncs
from .journal import Journal
from .open_data_logs import UnsyncedWrites

SyncListener: TypeAlias = Callable[[], None]
"""Called under the lock when `sync` or `try_end_sync` has ended a sync, once `Journal.durable_end` says so."""


def _nobody(durable_end: int) -> None:
    """Tell nobody how far the journal is durable."""


def _nothing() -> None:
    """Do nothing after a sync."""


class JournalSyncer:
    """Makes the syncs of one journal. It takes the sync lock first, then the state lock."""

    def __init__(
        self,
        journal: Journal,
        disk: Disk,
        monotonic: Callable[[], float],
        on_synced: Callable[[int], object] = _nobody,
    ) -> None:
        """on_synced: called under the sync lock with each durable end, before any caller learns of it."""
        self._journal = journal
        self._open_data_logs = journal.open_data_logs
        self._sync_lock, self._state_lock = journal.locks.sync, journal.locks.state
        # The state lock for syncs, which ask once whether this thread holds it: docs/decisions/0017-nested-calls.md.
        self._bare_state_lock = bare_lock(journal.locks.state)
        self._monotonic = monotonic
        self._on_synced = on_synced
        self._listener: SyncListener = _nothing
        self._background_syncs: Final = BackgroundSyncs(disk, monotonic)
        # How long each sync took, without waits for another sync. The state lock guards it.
        self.durations: Final = DurationHistogram()

    def tell_of_syncs(self, listener: SyncListener) -> None:
        """Call the listener in each `sync` from now on. There is at most one.

        The constructor can't take it, because whoever publishes messages is made with the journal.

        With sync "always" the listener publishes the messages that the sync has made durable, so no caller has to take
        the lock again for that.
        """
        assert self._listener is _nothing
        self._listener = listener

    def sync(self, end: int | None = None) -> bool:
        """Return once everything before `end` (None: before now) is on the device. Requires: no state lock.

        True: this call made a sync, or ended one that `begin_sync` had begun, and the SyncListener was called. False:
        others have synced so far already.

        One caller syncs for all that have appended before. The others find the sync done.
        """
        journal = self._journal
        if end is not None and journal.durable_end >= end:
            return False
        if self._state_lock.is_owned():
            raise NestedCall
        with self._sync_lock:
            if end is not None and journal.durable_end >= end:
                return False
            if self._background_syncs.begun is not None:
                self._end_begun()
                if end is not None and journal.durable_end >= end:
                    return True
            with self._bare_state_lock:
                journal_end, unsynced = journal.write_before_sync()
            began = self._monotonic()
            try:
                self._open_data_logs.sync(unsynced)
            except OSError as error:
                raise self._fail(error) from error
            self._note_synced(journal_end, unsynced, self._monotonic() - began)
        return True

    def sync_at_standstill(self) -> None:
        """Make everything up to now durable. Requires: sync lock and state lock.

        The SyncListener is not called, because the caller is in the middle of a change. Whoever waits for a sync finds
        it made, and does then what the listener would have done.
        """
        journal_end, unsynced = self._journal.write_before_sync()
        began = self._monotonic()
        try:
            self._background_syncs.wait()
            self._open_data_logs.sync(unsynced)
        except OSError as error:
            raise self._journal.fail("a journal sync failed", error) from error
        self.durations.record(self._monotonic() - began)
        self._on_synced(journal_end)
        self._journal.note_synced(journal_end, unsynced)

    # ------------------------------------------------------------------ in the background

    @property
    def syncs_in_background(self) -> bool:
        """Whether `begin_sync` may succeed, as far as is known. No lock need be held."""
        return self._background_syncs.is_possible

    def begin_sync(self, end: int, signal: SyncSignal | None) -> SyncSignal | None:
        """Begin a sync of everything before now, which `try_end_sync` ends; return at once. Requires: no state lock.

        Return what signals that the sync is made. None: call `sync`, because everything before `end` is durable, a sync
        is under way, a name must be synced too, or the disk makes no sync in the background. signal: what an earlier
        call has returned to the same event loop; None: there was none.
        """
        background = self._background_syncs
        if not background.is_possible or self._journal.durable_end >= end:
            return None
        if self._state_lock.is_owned():
            raise NestedCall
        if not self._sync_lock.try_acquire():
            return None
        try:
            if background.begun is not None:
                return None
            with self._bare_state_lock:
                journal_end, unsynced = self._journal.write_before_sync()
            if unsynced.names:
                return None
            try:
                return background.begin(journal_end, unsynced, signal)
            except BaseException as error:
                self._state_lock.break_between(error)  # nobody would learn of an error of this sync
                raise
        finally:
            self._sync_lock.release()

    def try_end_sync(self) -> bool:
        """End the sync that `begin_sync` has begun, if it is made, as `sync` ends. Requires: no state lock.

        False: it is not made yet, or another thread has ended it or is about to: call `sync`.
        """
        if self._state_lock.is_owned():
            raise NestedCall
        if not self._sync_lock.try_acquire():
            return False
        try:
            begun = self._background_syncs.begun
            if begun is None or not begun.sync.is_made():
                return False
            self._end_begun()
            return True
        finally:
            self._sync_lock.release()

    def _end_begun(self) -> None:
        """Wait for the sync that `begin_sync` has begun, and end it. Requires: the sync lock, no state lock."""
        try:
            ended = self._background_syncs.wait()
        except OSError as error:
            raise self._fail(error) from error
        if ended is not None:
            self._note_synced(ended.journal_end, ended.unsynced, self._monotonic() - ended.began)

    def close(self) -> None:
        """Free what syncs in the background have taken; it may take 35 ms. Requires: the journal is closed."""
        self._background_syncs.close()

    # ------------------------------------------------------------------ the outcome

    def _fail(self, error: OSError) -> StoreFailed:
        """Fail the journal because of an error of a sync; return the error to raise.

        Requires: the sync lock, no state lock.
        """
        with self._state_lock:
            return self._journal.fail("a journal sync failed", error)

    def _note_synced(self, journal_end: int, unsynced: UnsyncedWrites, seconds: float) -> None:
        """Note that a sync has ended, and tell the SyncListener. Requires: the sync lock, no state lock."""
        self._on_synced(journal_end)
        with self._bare_state_lock:
            if self._state_lock.failure is not None:
                raise self._state_lock.failure.again()
            self.durations.record(seconds)
            self._journal.note_synced(journal_end, unsynced)
            self._listener()
