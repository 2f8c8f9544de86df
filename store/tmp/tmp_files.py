"""TmpFiles: the files of tmp-storage, which are created, filled, read and deleted.

Bytes are counted before they are written. A file is deleted with its last live message. Nothing is ever synced: a crash
leaves any part of the files, and the next open deletes them unread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from cachetools import LRUCache

from ..disk.disk import Disk, File
from ..disk.layout import TMP_STORAGE, tmp_file_name, tmp_file_number
from ..disk.thrifty_disk import NO_DESCRIPTOR
from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..errors import StoreFailed, StoreFull
from ..journal.regions import ReadableFile, UnopenedDataLog
from .chunk import TmpFile
from .spilled_message import SpilledMessage, TmpRegion, encode

logger = LateLogger("forebay.store.tmp_storage")

FILE_CHARGE_BYTES: Final = 500
"""Charge of a file and its open handle."""
BATCH_BYTES_MAX: Final = 512 * 1024
"""Most bytes of one write, unless one message has more."""
ONE_LARGE_BYTES: Final = 256 * 1024
"""A larger message is written in two calls instead of being copied."""
READERS_MAX: Final = 64
FILES_PER_LIMIT: Final = 16
"""A file is full at this part of the limit, so that the newest file, which is never rewritten, has few dead bytes."""


class SpillBatch(NamedTuple):
    """Messages that are written at once and contiguously."""

    messages: Sequence[SpilledMessage]
    sequences: list[int]
    lengths: list[int]
    """Bytes of each message on disk."""
    size: int

    @property
    def is_one_large(self) -> bool:
        return self.size > ONE_LARGE_BYTES and len(self.messages) == 1

    @property
    def buffer_bytes(self) -> int:
        """Memory for joining the messages for the write. The body of one large message is not copied."""
        return self.size - (len(self.messages[0][2]) if self.is_one_large else 0)


class TmpFiles:
    """The files of one tmp-storage. The state lock guards them. Every method requires the state lock."""

    def __init__(
        self,
        disk: Disk,
        account: Account,
        *,
        limit_bytes: int,
        max_file_bytes: int,
        random_salt: Callable[[], int],
        on_space_freed: Callable[[], None],
    ) -> None:
        """Delete the files of an earlier process. Requires: the directory's lock. StoreFailed: they can't be listed.

        on_space_freed: called when a file is gone.
        """
        assert max_file_bytes < 1 << 31, "offsets are 32 bits"
        self._disk = disk
        self._account = account
        self._max_file_bytes = max_file_bytes
        self._random_salt = random_salt
        self.limit_bytes = limit_bytes
        # The files by number. Each has a live message.
        self.files: dict[int, TmpFile] = {}
        self._on_space_freed = on_space_freed
        # Bytes of unneeded files that the disk refused to delete.
        self._undeleted: dict[int, int] = {}
        self._readers: LRUCache[int, File] = LRUCache(maxsize=READERS_MAX)
        # The file that is written to.
        self.newest: TmpFile | None = None
        self._writer: File | None = None
        self._next_number = 1
        # Bytes that the files take on the disk.
        self.bytes = 0
        self.bytes_max = 0
        self._delete_leavings()

    def _delete_leavings(self) -> None:
        try:
            names = self._disk.list(TMP_STORAGE)
        except OSError as error:
            raise StoreFailed(f"{TMP_STORAGE} could not be listed ({error.strerror})") from error
        deleted = 0
        for name in names:
            number = tmp_file_number(name)
            if number is None:
                logger.warning("%s/%s is none of ours and stays", TMP_STORAGE, name, event="tmp_foreign_file")
                continue
            self._next_number = max(self._next_number, number + 1)
            try:
                self._disk.remove(f"{TMP_STORAGE}/{name}")
                deleted += 1
            except OSError as error:
                logger.warning(
                    "%s/%s could not be deleted (%s)", TMP_STORAGE, name, error.strerror, event="tmp_not_deleted"
                )
        logger.debug("emptied at open: %d files", deleted, event="tmp_emptied")

    @property
    def file_bytes(self) -> int:
        """Size up to which a file grows. A larger batch is a file of its own."""
        return min(self._max_file_bytes, self.limit_bytes // FILES_PER_LIMIT)

    @property
    def charge_bytes(self) -> int:
        """The charge of all files."""
        return FILE_CHARGE_BYTES * (len(self.files) + len(self._undeleted))

    # ------------------------------------------------------------------ writing

    def write(self, batches: Sequence[SpillBatch]) -> list[tuple[TmpFile, int]]:
        """Write batches; return file and offset of each. Requires: all of them fit the limit.

        On an error (OSError; StoreFull for memory) no part of them is left.
        """
        places: list[tuple[TmpFile, int]] = []
        touched: dict[TmpFile, tuple[int, File]] = {}
        try:
            for batch in batches:
                file, writer = self._room_for(batch.size)
                offset = file.size
                touched.setdefault(file, (offset, writer))
                # Count first, so that the disk never has more than is counted, whatever becomes of the write.
                file.size += batch.size
                self.bytes += batch.size
                self.bytes_max = max(self.bytes_max, self.bytes)
                parts = encode(file.salt, batch.messages)
                body = parts.pop() if batch.is_one_large else b""
                writer.append(b"".join(parts))
                if body:
                    writer.append(body)
                places.append((file, offset))
        except BaseException:
            self._take_back(touched)
            raise
        return places

    def _take_back(self, touched: dict[TmpFile, tuple[int, File]]) -> None:
        """Undo writes to files. If the disk refuses that too, the bytes stay counted.

        touched: the size of each file before, and its handle.
        """
        for file, (size, writer) in touched.items():
            if not size:
                self.delete(file)
                continue
            try:
                writer.truncate(size)
                writer.seek(size)
            except OSError:
                if file is self.newest:
                    self._end_newest()
                continue
            self.bytes -= file.size - size
            file.size = size

    def _room_for(self, size: int) -> tuple[TmpFile, File]:
        """Return the newest file and its handle. If it is full, create the next one."""
        if self.newest is not None and self.newest.size + size <= self.file_bytes:
            assert self._writer is not None
            return self.newest, self._writer
        self.delete_undeleted()
        if not self._account.reserve(FILE_CHARGE_BYTES):
            raise StoreFull(FILE_CHARGE_BYTES, 0, "memory_limit")
        number = self._next_number
        self._next_number += 1
        try:
            writer = self._create(tmp_file_name(number))
        except BaseException:
            self._account.release(FILE_CHARGE_BYTES)
            raise
        self._end_newest()
        self.newest = self.files[number] = TmpFile(number, self._random_salt())
        self._writer = writer
        logger.debug("created: tmp-%d.dat", number, event="tmp_created")
        return self.newest, writer

    def _create(self, name: str) -> File:
        try:
            return self._disk.open(name, create=True)
        except FileNotFoundError:
            self._disk.make_directory(TMP_STORAGE)
            return self._disk.open(name, create=True)

    def _end_newest(self) -> None:
        """End writing to the newest file."""
        if self.newest is not None and self._writer is not None:
            self._readers[self.newest.number] = self._writer
        self.newest = self._writer = None

    # ------------------------------------------------------- reading and deleting

    def region(self, file: TmpFile, offset: int) -> TmpRegion:
        """Return a read from offset on, without messages yet.

        If the file can't be opened, its messages are unreadable. If only a descriptor is missing, the read raises
        TooManyFiles.
        """
        reader: ReadableFile | None = None
        problem = ""
        try:
            reader = self._reader(file)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                reader = UnopenedDataLog(error)
            problem = f"tmp-{file.number}.dat could not be opened ({error.strerror})"
        return TmpRegion(reader, problem, file.number, file.salt, offset, [])

    def _reader(self, file: TmpFile) -> File:
        if file is self.newest:
            assert self._writer is not None
            return self._writer
        reader = self._readers.get(file.number)
        if reader is None:
            reader = self._readers[file.number] = self._disk.open_for_reading(tmp_file_name(file.number))
        return reader

    def give_up_readers(self) -> int:
        """Close the files that are open only for reading; return how many. Reads under way go on.

        Any thread may call it.
        """
        given_up, self._readers = len(self._readers), LRUCache(maxsize=READERS_MAX)
        return given_up

    def delete(self, file: TmpFile) -> None:
        """Delete a file without live messages. Reads under way go on: the handle is closed with the last of them."""
        if file is self.newest:
            self.newest = self._writer = None
        self._readers.pop(file.number, None)
        del self.files[file.number]
        self._undeleted[file.number] = file.size
        self.delete_undeleted()

    def delete_undeleted(self) -> None:
        """Try again to delete files that the disk refused to delete. Their bytes stay counted until they are gone."""
        for number, size in list(self._undeleted.items()):
            try:
                self._disk.remove(tmp_file_name(number))
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning(
                    "tmp-%d.dat could not be deleted (%s); tried again later",
                    number,
                    error.strerror,
                    event="tmp_not_deleted",
                )
                continue
            del self._undeleted[number]
            self.bytes -= size
            self._account.release(FILE_CHARGE_BYTES)
            logger.debug("deleted: tmp-%d.dat, %d bytes", number, size, event="tmp_deleted")
            self._on_space_freed()

    def sparsest(self) -> TmpFile | None:
        """Return the file with the lowest share of live bytes. None: no file is worth rewriting, or fits the limit.

        A file is worth it below 25 % live bytes, and below 50 % if three quarters of the limit are used. The file that
        is written to is never returned.
        """
        room_bytes = self.limit_bytes - self.bytes
        share = 2 if room_bytes < self.limit_bytes // 4 else 4
        sparse = [
            file
            for file in self.files.values()
            if file is not self.newest
            and not file.is_damaged
            and file.live_bytes * share < file.size
            and file.live_bytes <= room_bytes
        ]
        return min(sparse, key=lambda file: file.live_bytes / file.size, default=None)

    def _check(self) -> None:
        for number, file in self.files.items():
            assert file.number == number and file.chunks and 0 < file.live_bytes <= file.size
            assert file.live_bytes == sum(chunk.live_bytes for chunk in file.chunks)
        assert self.newest is None or self.newest is self.files[self.newest.number]
        assert (self.newest is None) == (self._writer is None)
        assert self._readers.keys() <= self.files.keys()
        assert self.bytes == sum(file.size for file in self.files.values()) + sum(self._undeleted.values())
        assert self.bytes <= self.bytes_max
