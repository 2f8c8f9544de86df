"""DataLogFiles: makes the files of data logs with their space reserved, and removes them.

A crash may leave a file that has no content yet; recovery sets it aside.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ..disk.disk import NO_SPACE, Directory, Disk, File, known_free_bytes
from ..disk.layout import JOURNAL, data_log_name
from .data_log import DATA_LOG_HEADER_BYTES
from .reserve import DROPS_BYTES, DiskReserve


class NewDataLog(NamedTuple):
    """A file that is going to be a data log."""

    file: File
    capacity: int
    """Size up to which it is filled."""
    is_makeshift: bool
    """Whether the file is from the reserve, or lacks the space of a whole data log."""


class DataLogFiles:
    """The names of one journal's data logs on the disk. Errors are OSError, as the disk raised them."""

    def __init__(self, disk: Disk, reserve: DiskReserve, file_bytes: int) -> None:
        """Make it for a directory that exists. file_bytes: size of a data log."""
        self._disk = disk
        self._reserve = reserve
        self._file_bytes = file_bytes
        # Open from the first data log on: a sync that found no descriptor for it would fail the store.
        self._directory: Directory | None = None

    def create_first(self, data_log: int) -> NewDataLog:
        """Create the first data log of an open. On a full disk it has less space, or no reserved space at all.

        So an open succeeds on a full disk, and consumers can make room.
        """
        self._directory = self._disk.open_directory(JOURNAL)
        try:
            return NewDataLog(self._create(data_log, self._file_bytes), self._file_bytes, is_makeshift=False)
        except OSError as error:
            if error.errno not in NO_SPACE or not self._reserve.is_kept:
                raise
        wanted = self._file_bytes // 2
        while wanted >= 2 * DROPS_BYTES:
            if 2 * wanted <= known_free_bytes(self._disk):  # the index needs some of the space
                with suppress(OSError):
                    return NewDataLog(self._create(data_log, wanted), wanted, is_makeshift=True)
            wanted //= 2
        return NewDataLog(self._disk.open(data_log_name(data_log), create=True), self._file_bytes, is_makeshift=True)

    def create_next(self, data_log: int, size: int, *, is_adding: bool) -> NewDataLog:
        """Create a data log for a record of that size. On a full disk use the reserve, unless the record adds
        something.
        """
        needed = DATA_LOG_HEADER_BYTES + size
        try:
            return NewDataLog(
                self._create(data_log, max(self._file_bytes, needed)), self._file_bytes, is_makeshift=False
            )
        except OSError as error:
            reserved = None
            if not is_adding and error.errno in NO_SPACE:
                reserved = self._reserve.take(data_log_name(data_log), needed)
            if reserved is None:
                raise
            file, capacity = reserved
            return NewDataLog(file, capacity, is_makeshift=True)

    def replace_by_reserve(self, data_log: int) -> NewDataLog | None:
        """Make the reserve the data log of an id, in place of one that could not be begun. None: no reserve is left."""
        reserved = self._reserve.take(data_log_name(data_log), 1)
        return None if reserved is None else NewDataLog(*reserved, is_makeshift=True)

    def _create(self, data_log: int, size: int) -> File:
        """Create a file with reserved space and no content."""
        file = self._disk.open(data_log_name(data_log), create=True)
        try:
            file.preallocate(size)
        except OSError:
            self.abandon(data_log, file)
            raise
        return file

    def abandon(self, data_log: int, file: File) -> None:
        """Remove a data log that was not begun. Best effort: if the name stays, recovery sets the empty file aside."""
        file.close()
        with suppress(OSError):
            self._disk.remove(data_log_name(data_log))

    def sync_names(self) -> None:
        """Return once the names of the data logs are on the device.

        It needs no descriptor, so it is never refused one.
        """
        assert self._directory is not None
        self._directory.sync()

    def remove(self, data_logs: list[int]) -> None:
        """Unlink data logs, and make that durable. Requires: a drop record that names them is synced."""
        for data_log in data_logs:
            with suppress(FileNotFoundError):  # an earlier attempt removed it and failed at another one
                self._disk.remove(data_log_name(data_log))
        self.sync_names()

    def close(self) -> None:
        """Close the directory. A second call does nothing."""
        if self._directory is not None:
            self._directory.close()
