"""BackgroundSyncs: the syncs that a journal has the disk make while the thread that began them goes on.

One is under way at a time, for all event loops of a store. It holds no lock, because a loop may end at any time. So
whoever moves the durable end next waits for it first: the system tells an error of a sync only once, and the next one
would seem to succeed. (OpenDataLogs.with_descriptor moves no durable end, and does not wait.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..disk.disk import BackgroundSync, Disk, SyncSignal, background_sync_of
from .open_data_logs import UnsyncedWrites


class BegunSync(NamedTuple):
    """A sync that was begun and that nobody has ended."""

    sync: BackgroundSync
    journal_end: int
    """Everything before it is durable when the sync is made."""
    unsynced: UnsyncedWrites
    began: float


class BackgroundSyncs:
    """The sync lock guards it, but for `is_possible`, which anybody may read."""

    def __init__(self, disk: Disk, monotonic: Callable[[], float]) -> None:
        self._disk = disk
        self._monotonic = monotonic
        # Made by the first `begin`. To free one may take 35 ms.
        self._sync: BackgroundSync | None = None
        # What is under way, or was made and not ended yet.
        self.begun: BegunSync | None = None
        # Whether the disk makes syncs in the background, as far as is known.
        self.is_possible = True

    def begin(self, journal_end: int, unsynced: UnsyncedWrites, signal: SyncSignal | None) -> SyncSignal | None:
        """Begin a sync of the newest data log; return what signals that it is made. None: it can't be begun.

        signal: what an earlier call has returned to the same event loop. Requires: nothing is begun, and no name must
        be synced.
        """
        sync = self._sync = self._sync or background_sync_of(self._disk)
        if sync is not None:
            try:
                signal = signal or sync.new_signal()
            except OSError:
                return None  # the process has no descriptor left now
            begun = BegunSync(sync, journal_end, unsynced, self._monotonic())
            if sync.begin(unsynced.newest, signal):
                self.begun = begun
                return signal
        self.is_possible = False
        return None

    def wait(self) -> BegunSync | None:
        """Wait for the sync that was begun; return it, which has ended. None: nothing was begun.

        Raise the OSError of a sync that failed. Each later call raises it too.
        """
        begun = self.begun
        if begun is not None:
            begun.sync.wait()
            self.begun = None
        return begun

    def close(self) -> None:
        """Free what `begin` has made. Requires: the journal is closed."""
        self._sync = None
