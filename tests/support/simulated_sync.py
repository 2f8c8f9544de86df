"""SimulatedSync: a sync in the background of a SimulatedDisk, which is made at once, or when a test makes it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from forebay.store.disk.disk import File


class SyncsInBackground(Protocol):
    """A disk that says how its syncs in the background are made."""

    holds_background_syncs: bool
    """They wait for `SimulatedSync.make`, or for a thread that waits for them."""
    refuses_background_syncs: bool


class SimulatedSync:
    """A `BackgroundSync`. Its descriptor is that of a pipe, which a loop can watch."""

    def __init__(self, disk: SyncsInBackground) -> None:
        self._disk = disk
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        # What the sync under way syncs; None: none is under way.
        self._file: File | None = None
        self._error: OSError | None = None
        # Number of syncs that were begun.
        self.begun = 0

    def fileno(self) -> int:
        return self._reader

    def begin(self, file: File) -> bool:
        if self._disk.refuses_background_syncs:
            return False
        assert self._file is None, "the sync before this one has not ended"
        with suppress(BlockingIOError):
            os.read(self._reader, 100)
        self._file, self._error = file, None
        self.begun += 1
        if not self._disk.holds_background_syncs:
            self.make()
        return True

    def make(self) -> None:
        """Make the sync that is under way."""
        assert self._file is not None
        try:
            self._file.sync()
        except OSError as error:
            self._error = error
        self._file = None
        os.write(self._writer, b"x")

    def is_made(self) -> bool:
        return self._file is None

    def wait(self) -> None:
        if self._file is not None:
            self.make()
        if self._error is not None:
            raise self._error

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
