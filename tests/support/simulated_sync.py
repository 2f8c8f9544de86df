"""SimulatedSync: a sync in the background of a SimulatedDisk, which is made at once, or when a test makes it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from forebay.store.disk.disk import File, SyncSignal


class SyncsInBackground(Protocol):
    """A disk that says how its syncs in the background are made."""

    holds_background_syncs: bool
    """They wait for `SimulatedSync.make`, or for a thread that waits for them."""
    refuses_background_syncs: bool


class SimulatedSignal:
    """A `SyncSignal`: a pipe, which a loop can watch."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)

    def fileno(self) -> int:
        return self._reader

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, 100)

    def give(self) -> None:
        os.write(self._writer, b"x")

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class SimulatedSync:
    """A `BackgroundSync`."""

    def __init__(self, disk: SyncsInBackground) -> None:
        self._disk = disk
        # What the sync under way syncs; None: none is under way.
        self._file: File | None = None
        self._signal: SimulatedSignal | None = None
        self._error: OSError | None = None
        # Number of syncs that were begun.
        self.begun = 0

    def new_signal(self) -> SimulatedSignal:
        return SimulatedSignal()

    def begin(self, file: File, signal: SyncSignal) -> bool:
        if self._disk.refuses_background_syncs:
            return False
        assert self._file is None, "the sync before this one has not ended"
        assert isinstance(signal, SimulatedSignal)
        self._file, self._signal, self._error = file, signal, None
        self.begun += 1
        if not self._disk.holds_background_syncs:
            self.make()
        return True

    def make(self) -> None:
        """Make the sync that is under way."""
        assert self._file is not None and self._signal is not None
        try:
            self._file.sync()
        except OSError as error:
            self._error = error
        self._signal.give()
        self._file = self._signal = None

    def is_made(self) -> bool:
        return self._file is None

    def wait(self) -> None:
        if self._file is not None:
            self.make()
        if self._error is not None:
            raise self._error
