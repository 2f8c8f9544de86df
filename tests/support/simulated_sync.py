"""SimulatedSync: a sync in the background of a SimulatedDisk, which is made at once, or when a test makes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from forebay.store.disk.disk import File


class SimulatedSync:
    """A `BackgroundSync`. Its descriptor is that of a pipe, which a loop can watch."""

    def __init__(self, is_held: Callable[[], bool]) -> None:
        """is_held: returns whether the next sync waits for `make`, or for a thread that waits for it."""
        self._is_held = is_held
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        # What the sync under way syncs; None: none is under way.
        self._file: File | None = None
        self._error: OSError | None = None
        # Number of syncs that were begun.
        self.begun = 0

    def fileno(self) -> int:
        return self._reader

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reader, 100)

    def begin(self, file: File) -> bool:
        assert self._file is None, "the sync before this one has not ended"
        self._file, self._error = file, None
        self.begun += 1
        if not self._is_held():
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
        if self._error is not None:
            raise self._error
        return self._file is None

    def wait(self) -> None:
        if self._file is not None:
            self.make()
        self.is_made()

    def __del__(self) -> None:
        os.close(self._reader)
        os.close(self._writer)
