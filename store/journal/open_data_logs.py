"""OpenDataLogs: the files of data logs that a journal has open, for reads, and for the next sync.

A crash closes all of them. Bytes that were not synced may be gone after a power cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from cachetools import LRUCache

from ..disk.disk import Disk, File
from ..disk.layout import data_log_name
from ..disk.thrifty_disk import NO_DESCRIPTOR
from ..environment.locks import OwnedLock
from ..errors import StoreFailed
from .data_log import DATA_LOG_HEADER_BYTES, decode_data_log_header

T = TypeVar("T")

READERS_MAX: Final = 128


class UnsyncedWrites(NamedTuple):
    """The files and names that the next sync has to bring to the device."""

    sealed: tuple[File, ...]
    names: int
    """Number of data logs that were begun since their directory was synced. If it is 0, `sealed` is empty too."""
    newest: File


class OpenDataLogs:
    """The open files of one journal."""

    unsynced: UnsyncedWrites
    """The work of the next sync; set by the first `begin`. Requires: the lock.

    Every sync reads it, so a new tuple is made only for a change. It is replaced as a whole, so that an interruption
    leaves the old one or the new one.
    """

    def __init__(
        self,
        disk: Disk,
        sync_names: Callable[[], None],
        sync_lock: OwnedLock,
        fail: Callable[[str, OSError], StoreFailed],
    ) -> None:
        """Make it without files.

        sync_names: brings the names of the data logs to the device.
        sync_lock: is only tried here, in a lack of descriptors; JournalSyncer takes it for each sync.
        fail: stops the journal for a reason and an error of the disk, and returns the error to raise.
        """
        self._disk = disk
        self._sync_names = sync_names
        self._sync_lock = sync_lock
        self._fail = fail
        self._readers: LRUCache[int, tuple[File, int]] = LRUCache(maxsize=READERS_MAX)
        # The data log that is written to, its file and its salt.
        self._newest_id = 0
        self._newest: tuple[File, int] | None = None

    def begin(self, data_log: int, file: File, salt: int) -> None:
        """Take a new data log as the newest one. Requires: the lock."""
        sealed: tuple[File, ...] = ()
        names = 0
        if self._newest is not None:
            owed = self.unsynced
            sealed, names = (*owed.sealed, owed.newest), owed.names
        self._newest_id = data_log
        self._newest = self._readers[data_log] = file, salt
        self.unsynced = UnsyncedWrites(sealed, names + 1, file)

    # ------------------------------------------------------------------ reading

    def reader(self, data_log: int) -> tuple[File, int]:
        """Return an open file of the data log and its salt. It stays readable even if cleanup removes the name.

        Requires: the lock.
        """
        opened = self._readers.get(data_log)
        if opened is None:
            if data_log == self._newest_id:
                assert self._newest is not None
                opened = self._newest
            else:
                file = self.with_descriptor(lambda: self._disk.open_for_reading(data_log_name(data_log)))
                try:
                    salt = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).salt
                except BaseException:
                    file.close()  # nobody else has it yet
                    raise
                opened = file, salt
            self._readers[data_log] = opened
        return opened

    def give_up_readers(self) -> int:
        """Give up the files that are open only for reading; return how many. Reads under way go on.

        A file is closed when the last read through it ends. Any thread may call this.
        """
        given_up, self._readers = self._readers, LRUCache(maxsize=READERS_MAX)
        if self._newest is None:
            return len(given_up)
        first_unsynced = self._newest_id - len(self.unsynced.sealed)
        return len(given_up) - sum(data_log in given_up for data_log in range(first_unsynced, self._newest_id + 1))

    def with_descriptor(self, call: Callable[[], T]) -> T:
        """Return the result of a call.

        If there is no descriptor, sync data logs that are open only for that, and call again.

        Requires: the lock.
        """
        try:
            return call()
        except OSError as error:
            # Do not wait for the sync lock, because its holder may wait for the state lock. Its sync has the same
            # effect.
            has_sealed = self._newest is not None and bool(self.unsynced.sealed)
            if error.errno not in NO_DESCRIPTOR or not has_sealed or not self._sync_lock.try_acquire():
                raise
        try:
            for file in self.unsynced.sealed:
                file.sync()
        except OSError as error:
            raise self._fail("a journal sync failed", error) from error
        finally:
            self._sync_lock.release()
        self.unsynced = self.unsynced._replace(sealed=())
        self.give_up_readers()
        return call()

    # ------------------------------------------------------------------ syncing

    def sync(self, unsynced: UnsyncedWrites) -> None:
        """Bring that to the device. Raises OSError. Requires: the sync lock, so that no other sync goes on."""
        if unsynced.names:
            for file in unsynced.sealed:
                file.sync()
            self._sync_names()
        unsynced.newest.sync()

    def note_synced(self, synced: UnsyncedWrites) -> None:
        """Forget what is on the device, only now, so that an interrupted sync is repeated as a whole.

        Requires: the lock.
        """
        if synced.names:
            owed, done = self.unsynced, len(synced.sealed)
            self.unsynced = owed._replace(sealed=owed.sealed[done:], names=owed.names - synced.names)

    # ------------------------------------------------------------------ the end

    def forget(self, data_logs: list[int]) -> list[File]:
        """Forget data logs that are gone; return those of their files that were open. Requires: the lock.

        Let go of the files without the lock: the last handle of a removed file frees its pages, which takes long.
        """
        readers = self._readers
        return [readers.pop(data_log)[0] for data_log in data_logs if data_log in readers]

    def close(self) -> None:
        """Close the files. The operating system writes what was not synced. Requires: the lock."""
        for file, _ in self._readers.values():
            file.close()
        if self._newest is not None:
            for file in (*self.unsynced.sealed, self.unsynced.newest):
                file.close()
        self._readers.clear()
