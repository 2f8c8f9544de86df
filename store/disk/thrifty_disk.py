"""A disk that closes the store's own open readers before it fails for lack of a file descriptor.

A store keeps up to 192 files open only to read them faster. A host with many connections may need those descriptors. If
an open fails with EMFILE or ENFILE, the readers are closed and the open is tried once more.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeVar

from .disk import Directory, Disk, File

NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""The errors that mean that the process, or the machine, has no file descriptor left."""

T = TypeVar("T")


def lacks_descriptors(error: BaseException | None) -> bool:
    """Return whether the lack of a descriptor caused an error, or happened on the way to it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTOR:
            return True
        error = error.__cause__ or error.__context__  # compiled code sets no cause
    return False


class ThriftyDisk:
    """A `Disk` that passes all calls on, and closes readers if descriptors are short. It is not on a hot path."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._givers: list[Callable[[], int]] = []

    def add_giver(self, give_up: Callable[[], int]) -> None:
        """Register a callback for a lack of descriptors. give_up: closes readers, in any thread; returns how many."""
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
        """Sync a directory. It needs a descriptor for a moment; without one nothing was synced."""
        self._tried_twice(lambda: self._disk.sync_directory(name))

    def open_directory(self, name: str) -> Directory:
        """Open a directory. Without a free descriptor, give up readers and try again."""
        return self._tried_twice(lambda: self._disk.open_directory(name))

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
