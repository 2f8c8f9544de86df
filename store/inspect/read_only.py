"""A read-only open: the index that opening a store would make, for a process that neither owns nor changes it.

The journal is replayed as in a recovery, from the data logs alone, into blocks in RAM: about 11 bytes for each pending
message. A process may be writing meanwhile, so the journal ends where records of the newest data log stop to verify. A
journal that recovery would refuse is refused here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from ..disk.disk import Directory, Disk, File
from ..disk.layout import JOURNAL, data_log_id, data_log_name
from ..environment.account import Unlimited
from ..environment.locks import OwnedLock
from ..environment.progress import OnProgress, tell_nobody
from ..format.state_record import Destination, StateRecord
from ..index.deduplication import Deduplication
from ..index.index import Index
from ..index.subscriptions import Subscriptions
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    RecordWalk,
    decode_data_log_header,
    find_records,
)
from ..maintenance.leases import read_leases
from ..maintenance.retention_reasons import RetentionReasons
from ..metadata.memory_store import MemoryMetadataStore
from ..numbering import OFFSET_BITS, OFFSET_MASK
from ..recovery.opening import find_store_id
from ..recovery.recovery import JournalEnd, JournalTail, Recovery
from ..state.branches import Branches
from ..state.journaled_state import JournaledState
from ..state.property_table import PropertyTable

TRIES_MAX: Final = 4
"""Attempts if the owner deletes data logs meanwhile. After that the missing data log is reported."""
HELD_FILES_MAX: Final = 256
"""Data logs that are kept open from the listing on, so that they stay readable when their names are removed."""

_INDEX_BYTES: Final = 1 << 50
"""Size of the block cache. No block must ever leave it, because there is no row to read it back from."""


@dataclass(frozen=True, slots=True)
class ReadOnlyStore:
    """A store as a read-only open found it. sizes: bytes of each data log."""

    retention_reasons: RetentionReasons
    sizes: dict[int, int]
    index: Index
    """The index, with all blocks in RAM."""
    subscriptions: Subscriptions
    destinations: Mapping[int, Destination]
    duplicates: Deduplication
    """The last ids of each producer whose ids count once."""
    reader: Callable[[int], tuple[File, int]]
    """Returns an open file of a data log, and its salt."""


def open_read_only(disk: Disk, now_ms: int = 0, on_progress: OnProgress = tell_nobody) -> ReadOnlyStore:
    """Replay the journal. Raises JournalCorrupt, or OSError if it can't be read. Every data log is read once.

    now_ms: leases that have expired by then do not count. on_progress: called after each data log.
    """
    for _ in range(TRIES_MAX - 1):
        try:
            return _open(disk, now_ms, on_progress)
        except FileNotFoundError:
            continue  # the owner deleted a data log after the listing
    return _open(disk, now_ms, on_progress)


def _open(disk: Disk, now_ms: int, on_progress: OnProgress) -> ReadOnlyStore:
    index = Index(account=Unlimited(), cache_bytes=_INDEX_BYTES, read_block=_no_block)
    held = _ReadOnlyDisk(disk)
    try:
        subscriptions = Subscriptions(index)
        duplicates = Deduplication(window_of=lambda name: 1, limit_bytes=_INDEX_BYTES)
        properties = PropertyTable()
        branches = Branches(duplicates, properties)
        journaled = JournaledState(held, MemoryMetadataStore(), index, subscriptions, branches, duplicates, properties)
        recovery = Recovery(
            journaled,
            None,
            find_store_id(disk) or b"",
            _no_checkpoint,
            tail=_ForeignTail(held),
            on_progress=on_progress,
        )
        found = recovery.run()
    finally:
        held.close()

    def reader(data_log: int) -> tuple[File, int]:
        file = disk.open_for_reading(data_log_name(data_log))
        try:
            return file, decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).salt
        except BaseException:
            file.close()
            raise

    newest = max(found.sizes, default=0)
    for data_log in found.sizes:
        index.use(data_log)
    lock, undecided = OwnedLock(), branches.data_logs()
    leases = read_leases(disk, now_ms)
    retention_reasons = RetentionReasons(
        index,
        lock,
        found.destinations,
        newest,
        reader,
        transactions=undecided,
        leases=leases,
        durable=subscriptions.encoded,
    )
    return ReadOnlyStore(retention_reasons, found.sizes, index, subscriptions, found.destinations, duplicates, reader)


def _no_block(lane_number: int, block: int) -> bytes:
    raise AssertionError("no block left RAM")


def _no_checkpoint(position: int, epoch: int, state: StateRecord) -> None:
    raise AssertionError("the index was never crowded")


class _ForeignTail(JournalTail):
    """The end of a journal that another process may be writing. Nothing is changed there."""

    may_cut: ClassVar[bool] = False

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def is_being_written(self, end: JournalEnd, headers: Mapping[int, DataLogHeader | None]) -> bool:
        """Return whether the owner is writing there: search behind the end for intact records and walk again."""
        data_log, offset = end.position >> OFFSET_BITS, end.position & OFFSET_MASK
        header = headers.get(data_log)
        rest = [found for found in end.rest if headers[found] is not None]
        if not rest:
            return True  # without a header, the next data log is just being begun
        if rest != [data_log] or header is None:
            return False
        file = self._disk.open_for_reading(data_log_name(data_log))
        try:
            is_last = next(find_records(file, header, offset + 1), None) is None
            # Search before the second look: anything whole behind this place was written after it.
            return is_last or any(True for _ in RecordWalk(file, header, offset, verify_from=0))
        finally:
            file.close()


class _ReadOnlyFile:
    """A file of another process. Syncing is its owner's business; every other call except reading is a mistake."""

    def __init__(self, file: File) -> None:
        self.read = file.read
        self.read_into = file.read_into
        self.size = file.size
        self._close = file.close

    def close(self) -> None:
        self._close()

    def sync(self) -> None:
        """Do nothing: nothing was written."""

    def append(self, data: bytes) -> None:
        raise AssertionError("a read-only store writes nothing")

    def seek(self, position: int) -> None:
        raise AssertionError("a read-only store writes nothing")

    def truncate(self, length: int) -> None:
        raise AssertionError("a read-only store writes nothing")

    def preallocate(self, length: int) -> None:
        raise AssertionError("a read-only store writes nothing")


class _HeldFile(_ReadOnlyFile):
    """A file that stays open until the replay is over."""

    def close(self) -> None:
        """Leave the file open until the replay is over."""


class _ReadOnlyDisk:
    """A disk that another process owns. Calls that would change it fail."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._held: dict[str, File] = {}
        self.exists = disk.exists
        self.free_bytes = disk.free_bytes

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory; for the journal, open the oldest data logs at once.

        FileNotFoundError: one is gone already.
        """
        names = self._disk.list(directory)
        if directory == JOURNAL:
            data_logs = [data_log_name(data_log) for data_log in sorted(filter(None, map(data_log_id, names)))]
            for name in data_logs[:HELD_FILES_MAX]:
                self._held[name] = self._disk.open_for_reading(name)
        return names

    def close(self) -> None:
        for file in self._held.values():
            file.close()
        self._held.clear()

    def open(self, name: str, *, create: bool = False) -> File:
        assert not create, "a read-only store writes nothing"
        return self.open_for_reading(name)

    def open_for_reading(self, name: str) -> File:
        held = self._held.get(name)
        return _HeldFile(held) if held is not None else _ReadOnlyFile(self._disk.open_for_reading(name))

    def sync_directory(self, name: str) -> None:
        """Do nothing: nothing was written."""

    def open_directory(self, name: str) -> Directory:
        raise AssertionError("a read-only store writes nothing")

    def make_directory(self, name: str) -> None:
        raise AssertionError("a read-only store writes nothing")

    def rename(self, name: str, to: str) -> None:
        raise AssertionError("a read-only store writes nothing")

    def remove(self, name: str) -> None:
        raise AssertionError("a read-only store writes nothing")
