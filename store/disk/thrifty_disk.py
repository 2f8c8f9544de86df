"""ThriftyDisk: a disk that closes open readers before it fails for want of a descriptor.

A store keeps up to 192 files open just to read them faster. A host with many connections may need those descriptors. If
an open meets EMFILE or ENFILE, the readers are closed and the call is made once more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeVar

from .disk import BackgroundSync, Directory, Disk, File, background_sync_of

NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""The errors by which the system says that the process, or the machine, has no file descriptor left."""

T = TypeVar("T")


def lacks_descriptors(error: BaseException | None) -> bool:
    """Return whether a missing descriptor caused an error, or was met on the way to it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
            return True
        error = error.__cause__ or error.__context__  # machine code sets no cause
    return False


class ThriftyDisk:
    """The `Disk` that it wraps, with this addition. No method is on a hot path."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._givers: list[Callable[[], int]] = []

    def add_giver(self, give_up: Callable[[], int]) -> None:
        """Add a function to call when descriptors are short. give_up: closes readers; any thread may call it."""
        self._givers.append(give_up)

    def open(self, name: str, *, create: bool = False) -> File:
        """Open a file. Without a free descriptor, give up readers and try again."""
        return self._tried_twice(lambda: self._disk.open(name, create=create))

    def open_for_reading(self, name: str) -> File:
        """Open a file for reading. Without a free descriptor, give up readers and try again."""
        return self._tried_twice(lambda: self._disk.open_for_reading(name))

    def exists(self, name: str) -> bool:
        """Return whether there is such a file or directory."""
        return self._disk.exists(name)

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory. Without a free descriptor, give up readers and try again."""
        return self._tried_twice(lambda: self._disk.list(directory))

    def make_directory(self, name: str) -> None:
        """Create a directory. Without a free descriptor, give up readers and try again."""
        self._tried_twice(lambda: self._disk.make_directory(name))

    def rename(self, name: str, to: str) -> None:
        """Rename a file, which needs no descriptor."""
        self._disk.rename(name, to)

    def remove(self, name: str) -> None:
        """Remove a file, which needs no descriptor."""
        self._disk.remove(name)

    def sync_directory(self, name: str) -> None:
        """Sync a directory. It needs a descriptor for a moment; if there is none, nothing was synced."""
        self._tried_twice(lambda: self._disk.sync_directory(name))

    def open_directory(self, name: str) -> Directory:
        """Open a directory. Without a free descriptor, give up readers and try again."""
        return self._tried_twice(lambda: self._disk.open_directory(name))

    def background_sync(self) -> BackgroundSync | None:
        """Return what the disk has for syncs in the background."""
        return background_sync_of(self._disk)

    def free_bytes(self) -> int:
        """Return how many bytes of the disk are free."""
        return self._disk.free_bytes()

    def _tried_twice(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR or not sum([give_up() for give_up in self._givers]):
                raise
        return call()
