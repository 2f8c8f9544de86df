"""Journal: append records to rolling data logs, make them durable, and read them by location.

When `append` returns, the operating system has the record, so a killed process loses nothing of it. The record survives
a power cut once `sync` has returned for its position. A crash may leave torn bytes at the end of the newest data log;
recovery cuts them off.

The caller itself writes, under the state lock and without another thread. The first caller that needs a sync makes it,
for all callers that have appended by then.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NoReturn, TypeVar

from cachetools import LRUCache

from ..disk.disk import NO_SPACE, Directory, Disk, File, known_free_bytes
from ..disk.layout import JOURNAL, data_log_name
from ..disk.thrifty_disk import NO_DESCRIPTOR
from ..environment.locks import AllOrBroken, OwnedLock, require_outside
from ..errors import Closed, ForebayError, StoreFailed, StoreFull, TooManyFiles
from ..format.record import (
    ACK,
    ACK_BYTES,
    DIRECTORY,
    DROP,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    MESSAGE,
    ONE_BYTES,
    RELOCATED,
    SLICE_BYTES,
    TRANSACTIONAL,
    WORD_SHIFT,
    content_lengths,
    encode,
    encode_ack,
    encode_one,
    encode_slice,
    stamp,
)
from ..numbering import OFFSET_BITS, OFFSET_MASK
from ..structures.histogram import DurationHistogram
from .data_log import (
    DATA_LOG_HEADER_BYTES,
    RECORDS_MAX,
    DataLogHeader,
    decode_data_log_header,
    directory_payload,
    encode_header,
)
from .reserve import ADDING_KINDS, LAST_BYTES, SETTLING, Reserve, spare_acks

T = TypeVar("T")

READERS_MAX: Final = 128
_NEXT_RECORD: Final = 1 << WORD_SHIFT
"""What each record adds to the first word of its head, in which the log sequence stands above the magic number."""


def location_text(position: int) -> str:
    """Return a position as logs print it: data log id, colon, offset."""
    return f"{position >> OFFSET_BITS}:{position & OFFSET_MASK}"


def _nobody(position: int) -> None:
    """Do nothing after a sync."""


class Journal:
    """The writer of the journal.

    Appends and rolls require the lock. `sync` takes its own lock first, and is called without the state lock.
    """

    _write: Callable[[bytes], None]
    """Appends to the newest data log. It is the file's own method, so that no record has to look it up."""
    _stamp: bytes
    """Epoch and durable position, encoded for the header of the next record."""
    _refused_bytes: int
    """Bytes of a record that `store_limit_bytes` refused and that has no room yet; 0: there is none."""
    _salt: Any
    """An int, kept as an object, because machine code would make a new object for each checksum."""

    def __init__(
        self,
        disk: Disk,
        state_lock: OwnedLock,
        store_id: bytes,
        *,
        max_file_bytes: int,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        random_salt: Callable[[], int],
        first_record: Callable[[], tuple[int, int, bytes]],
        has_reserve: bool = False,
        store_limit_bytes: int | None = None,
    ) -> None:
        """Make the journal of a store; `start` begins its first data log.

        first_record: returns (kind, count, payload) of the record that opens each data log. It restates all that
            deleted data logs no longer say.
        has_reserve: space is set aside for a full disk.
        store_limit_bytes: bytes of records above which nothing more is added; records that settle something are still
            written.
        """
        self._disk = disk
        self._state_lock = state_lock
        self.sync_lock = OwnedLock()
        # An interrupted write (Ctrl-C, a signal handler, no memory) may leave the state in RAM wrong, so that messages
        # confirmed later could be lost. Only the journal is right then: reopen the store.
        self.all_or_broken = AllOrBroken(state_lock)
        # The same, for hot paths with a `try` of their own.
        self.break_by = state_lock.break_by
        state_lock.on_broken.append(self._break)
        self._store_id, self._max_file_bytes = store_id, max_file_bytes
        self._clock_ms, self._monotonic = clock_ms, monotonic
        self._random_salt = random_salt
        self._first_record = first_record
        self._has_reserve = has_reserve
        self.reserve = Reserve(disk, max_file_bytes if has_reserve else 0)
        self.store_limit_bytes = store_limit_bytes
        # Size up to which the newest data log is filled.
        self._capacity = max_file_bytes
        # Whether the newest data log is from the reserve, or lacks the space of a whole one.
        self._is_makeshift = False
        # Whether the disk is full, so that nothing more is added: the data log is makeshift, or the reserve incomplete.
        self.is_full = False
        self._readers: LRUCache[int, tuple[File, int]] = LRUCache(maxsize=READERS_MAX)
        self._unsynced: list[File] = []
        # Number of data logs that were begun since their directory was synced.
        self._unsynced_names = 0
        self._on_synced: Callable[[int], object] = _nobody
        self._file: File | None = None
        # Open since `start`, because a sync that finds no descriptor would fail the store.
        self._directory: Directory | None = None
        # Where the fast path of the newest data log ends; 0: each append asks for room; -1: closed or failed.
        self._limit = -1
        # The log sequence of the next record and the magic number, as they stand in its header.
        self._salt, self._word = 0, MAGIC
        self._offsets = array("I")
        # Bytes of the header and the first record of the newest data log.
        self._first_bytes = 0
        # Whether the disk refused a record that adds something, and nothing has shown since that there is space.
        self.is_refusing = False
        self._refused_bytes = 0
        # Whether dead letters are being added. They replace other messages, so they go on while sends are refused.
        self.accepts_replacements = False
        # The limit that stops new messages (a write stall). None: there is no stall.
        self._stall: str | None = None
        self.epoch = self.offset = self._sealed_bytes = 0
        # Id of the newest data log, to which is written.
        self.data_log = 0
        # Position up to which everything is on the device.
        self.durable = 0
        # The durable position in the newest record, except slices, messages and acks, which may have a later one.
        self.attested = 0
        # How long the device took for each sync, without waits for another sync. The state lock guards it.
        self.sync_durations = DurationHistogram()
        # Bytes of each data log.
        self.sizes: dict[int, int] = {}
        self.failure: StoreFailed | None = None

    # ------------------------------------------------------------------ opening

    def start(
        self, data_log: int, next_log_sequence: int, epoch: int, on_synced: Callable[[int], object] = _nobody
    ) -> None:
        """Begin a new data log with that id; its first record has that log sequence.

        on_synced: called under the sync lock with each position that is on the device, before any caller learns of it.

        Every open begins a new data log, so files of an earlier process are never written again.
        """
        self.epoch, self._on_synced = epoch, on_synced
        self._stamp = stamp(epoch, self.durable)
        self._word = next_log_sequence << WORD_SHIFT | MAGIC
        self._directory = self._disk.open_directory(JOURNAL)
        file, self._capacity, self._is_makeshift = self._create_first(data_log)
        self._start_data_log(data_log, file)

    @property
    def end(self) -> int:
        """Position behind the newest record. Requires: the lock."""
        return self.data_log << OFFSET_BITS | self.offset

    @property
    def next_log_sequence(self) -> int:
        """Log sequence of the next record. Requires: the lock."""
        return self._word >> WORD_SHIFT

    # ---------------------------------------------------------------- appending

    def append_one(
        self,
        flags: int,
        destination: int,
        sequence: int,
        timestamp: int,
        properties: bytes,
        body: bytes,
        content_bytes: int,
    ) -> int:
        """Append a slice of one message; return its offset in `data_log`. Requires: the lock.

        It makes one write, or two if the content is above SLICE_CONTENT_BYTES_MAX: the body is then not copied. A kill
        between the two leaves a torn record, which the next open cuts off. flags: the priority and the other flags of a
        slice. content_bytes: properties and body together.
        """
        if not destination:  # NO_DESTINATION
            raise Closed("the queue or topic")
        size = ONE_BYTES + content_bytes
        if self.offset + size > self._limit:
            self._make_room(size, flags=flags)
        offset = self.offset
        data = encode_one(
            self._salt,
            self._word,
            self._stamp,
            flags,
            destination,
            sequence,
            timestamp,
            properties,
            body,
            content_bytes,
        )
        try:
            self._write(data)
            if len(data) != size:
                self._write(body)
        except OSError as error:
            self._refuse(error, size)
        self._word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + size
        return offset

    def append_slice(
        self, flags: int, destination: int, sequence: int, timestamp: int, contents: list[tuple[bytes, bytes]]
    ) -> tuple[int, list[int]]:
        """Append (properties, body) pairs as one slice; return its offset and the content length of each.

        A message above SLICE_CONTENT_BYTES_MAX must come alone. It makes one write, or two for such a message.
        Requires: the lock.
        """
        if len(contents) == 1:
            ((properties, body),) = contents
            length = len(properties) + len(body)
            return self.append_one(flags, destination, sequence, timestamp, properties, body, length), [length]
        if not destination:  # NO_DESTINATION
            raise Closed("the queue or topic")
        lengths = content_lengths(contents)
        size = SLICE_BYTES + ENTRY_BYTES * len(lengths) + sum(lengths)
        if self.offset + size > self._limit:
            self._make_room(size, flags=flags)
        head = self._salt, self._word, self.epoch, self.durable
        return self._append(encode_slice(*head, flags, destination, sequence, timestamp, contents, lengths)), lengths

    def append_ack(self, priority: int, destination: int, first: int, count: int) -> None:
        """Append an ack of one run with one write. Requires: the lock."""
        if not destination:  # NO_DESTINATION
            raise Closed("the queue or topic")
        if self.offset + ACK_BYTES > self._limit:
            self._make_room(ACK_BYTES, ACK)
        offset = self.offset
        data = encode_ack(self._salt, self._word, self._stamp, priority, destination, first, count)
        try:
            self._write(data)
        except OSError as error:
            self._refuse(error, ACK_BYTES)
        self._word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + ACK_BYTES

    def append(self, kind: int, flags: int, count: int, payload: bytes, *, settles: bool = False) -> int:
        """Append a record of any kind but a slice; return its offset in `data_log`. Requires: the lock.

        settles: the record removes something, so a full disk does not refuse it, as it may others of its kind.
        """
        size = HEADER_BYTES + len(payload)
        with self.all_or_broken:
            if self.offset + size > self._limit:
                self._make_room(size, SETTLING if settles else kind)
            offset = self._append(encode(self._salt, self._word, self.epoch, self.durable, kind, flags, count, payload))
        self.attested = self.durable
        return offset

    def keep_together(self, size: int, records: int) -> None:
        """Make room for `records` records of `size` bytes in all, so that they are all in one data log.

        Requires: the lock.
        """
        if len(self._offsets) + records > RECORDS_MAX and len(self._offsets) > 1:
            self.roll(size)
        if self.offset + size > self._limit:
            self._make_room(size, flags=RELOCATED)

    def _append(self, data: bytes) -> int:
        offset = self.offset
        try:
            self._write(data)
        except OSError as error:
            self._refuse(error, len(data))
        self._word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + len(data)
        return offset

    def _refuse(self, error: OSError, needed_bytes: int) -> NoReturn:
        """Raise the error of a write that failed.

        What follows gets a new epoch, so that remains of the write are never taken for records.
        """
        if error.errno in NO_SPACE:
            self._begin_epoch()
            assert self._file is not None
            self._file.seek(self.offset)
            self.is_refusing = True
            raise StoreFull(needed_bytes, known_free_bytes(self._disk), "the disk's free space") from error
        raise self.fail(f"a journal write failed ({error.strerror})") from error

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self._stamp = stamp(self.epoch, self.durable)

    def fail(self, reason: str) -> StoreFailed:
        """Refuse every write from now on; return the error to raise."""
        self._limit = -1
        self.failure = self.failure or StoreFailed(reason)
        return self.failure

    @contextmanager
    def accepting_replacements(self) -> Iterator[None]:
        """Let records in the block use the reserve, because they replace messages, as a dead letter does.

        Requires: the lock throughout.
        """
        self.accepts_replacements = True
        try:
            with self.all_or_broken:
                yield
        finally:
            self.accepts_replacements = False

    def _break(self, failure: StoreFailed) -> None:
        self._limit = -1
        self.failure = self.failure or failure

    def stop(self) -> None:
        """Refuse all later appends. Requires: the lock."""
        self._limit = -1

    # ------------------------------------------------------------------ rolling

    def _make_room(self, size: int, kind: int = MESSAGE, flags: int = 0) -> None:
        """Make room for an append that would pass `_limit`. Up to that limit, appends need no check.

        Raise the reason if there is no room: a failed or closed journal, a write stall, a full disk. Otherwise a record
        that fits into the data log raises the limit, and one that does not begins the next data log. flags: those of a
        slice.
        """
        if self._limit < 0:
            raise self.failure or Closed("the store")
        if self._stall is not None and kind == MESSAGE:
            self._refuse_stalled(flags)
        is_adding = kind in ADDING_KINDS and not self.accepts_replacements
        if is_adding:
            self._admit(size, flags)
        spare_acks(kind, size, self.offset, self._capacity if self._is_makeshift else None)
        capacity = self._capacity
        if self.is_full and kind != DROP:
            capacity -= min(LAST_BYTES, capacity // 8)
        if self.offset + size > capacity or len(self._offsets) >= RECORDS_MAX:
            if len(self._offsets) > 1:
                self.roll(size, is_adding=is_adding)
                spare_acks(kind, size, self.offset, self._capacity if self._is_makeshift else None)
            if not self.is_full and self._stall is None:  # a record that is larger than a file gets a larger file
                self._limit = max(self.offset + size, self._limit)
        else:
            self._set_limit(size)

    def set_write_stall(self, limit: str | None) -> None:
        """Refuse new messages with StoreFull, which names that limit; None: admit them again. Requires: the lock.

        Relocated copies and dead letters are still written, because each replaces another message, and so are records
        that are not messages. During a stall every append takes the slow path; without one none does.
        """
        self._stall = limit
        if self._limit >= 0:
            self._set_limit(0)

    @property
    def is_write_stalled(self) -> bool:
        """Whether new messages are refused, whatever space the disk has."""
        return self._stall is not None

    def _refuse_stalled(self, flags: int) -> None:
        takes_a_place = flags & RELOCATED or (self.accepts_replacements and flags & TRANSACTIONAL)
        if self._stall is not None and not takes_a_place:
            raise StoreFull(1, 0, self._stall)

    def _admit(self, size: int, flags: int) -> None:
        """Raise StoreFull for a record that only adds, if it exceeds the store's limit or would use the reserve.

        A copy that a relocation makes is no send, and a record above the whole limit fits at no time: neither of them
        says that the store is full.
        """
        limit = self.store_limit_bytes
        if limit is not None and self.journal_bytes + size > limit:
            if size <= limit and not flags & RELOCATED:
                self._refused_bytes = size
            raise StoreFull(size, max(limit - self.journal_bytes, 0), "store_limit")
        self._refused_bytes = 0
        if self.is_full:
            self.is_refusing = True
            needed_bytes = self._max_file_bytes + self.reserve.missing_bytes
            if known_free_bytes(self._disk) < needed_bytes or not self.refill():
                raise StoreFull(needed_bytes, known_free_bytes(self._disk), "the disk's free space")
        self.is_refusing = False

    @property
    def is_out_of_space(self) -> bool:
        """Whether the disk has only the reserve left, or has refused a record that adds something."""
        return self.is_full or self.is_refusing

    @property
    def is_at_limit(self) -> bool:
        """Whether `store_limit_bytes` refused a record that has no room yet, as far as the last cleanup knows."""
        return self._refused_bytes > 0

    @property
    def is_short_of_room(self) -> bool:
        """Whether another data log would not fit. Then nothing is kept for a lease."""
        return self.is_full or self._is_above_limit(self._max_file_bytes)

    def _is_above_limit(self, size: int) -> bool:
        """Return whether so many more bytes would exceed `store_limit_bytes`."""
        limit = self.store_limit_bytes
        return limit is not None and self.journal_bytes + size > limit

    def _set_limit(self, size: int) -> None:
        """Set the limit up to which appends need no check.

        It also bounds the number of records that the directory can have.
        """
        if self.is_full or self._stall is not None:
            self._limit = 0
            return
        records_left = max(RECORDS_MAX - len(self._offsets), 1)
        limit = min(self._capacity, self.offset + max(HEADER_BYTES * records_left, size))
        if self.store_limit_bytes is not None:
            limit = min(limit, self.store_limit_bytes - sum(self.sizes.values()))
        self._limit = max(limit, 0)

    # ------------------------------------------------------------------ a full disk

    def refill(self) -> bool:
        """Fill the reserve, leave a makeshift data log, and note room below the limit. False: the disk is still full.

        Requires: the lock.
        """
        if self.is_full and self._limit >= 0:
            try:
                if self._fill_reserve():
                    if self._is_makeshift:
                        with self.all_or_broken:
                            self.roll()
                    else:
                        self.is_full = False
                        self._set_limit(0)
            except StoreFull:
                return False
        self.is_refusing = self.is_full
        if not self._is_above_limit(self._refused_bytes):
            self._refused_bytes = 0
        return not self.is_full

    def lend(self) -> bool:
        """Give a part of the reserve to the index, which finds no space. False: none is left.

        Requires: no state lock.
        """
        with self._state_lock:
            try:
                if not self.reserve.lend():
                    return False
            except OSError as error:
                raise self.fail(f"the reserve could not be given back ({error.strerror})") from error
            self.is_full = True
            self._limit = min(self._limit, 0)
            return True

    def _fill_reserve(self) -> bool:
        # Four times the record that opens a data log, because destinations may be added before the space is needed.
        try:
            return self.reserve.fill(4 * self._first_bytes)
        except OSError as error:
            raise self.fail(f"the reserve could not be made ({error.strerror})") from error

    # ------------------------------------------------------------------ beginning and ending data logs

    def roll(self, size: int = 0, *, is_adding: bool = True) -> None:
        """Seal the newest data log and begin the next one. Raises StoreFull: neither was done. Requires: the lock.

        size: bytes of the record that must fit. is_adding: the record adds messages, so it is refused without space on
            the disk; others may use the reserve.
        """
        old, old_id, next_id = self._file, self.data_log, self.data_log + 1
        assert old is not None
        # Get the space first, because recovery would not see anything that is written behind a seal.
        try:
            file, capacity, is_makeshift = self._with_descriptor(lambda: self._create_next(next_id, size, is_adding))
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyFiles from error  # nothing was begun
            self._refuse(error, max(self._max_file_bytes, size))
        try:
            self.seal()
        except ForebayError:
            self._abandon(next_id, file)
            raise
        self.sizes[old_id] = self.offset
        self._sealed_bytes += self.offset
        self._unsynced.append(old)
        self._capacity, self._is_makeshift = capacity, is_makeshift
        try:
            self._start_data_log(next_id, file)
        except OSError as error:
            raise self.fail(f"the next data log could not be begun ({error.strerror})") from error

    def seal(self) -> None:
        """End the newest data log with its directory, so that nothing follows. Requires: the lock.

        If the disk has no space for the directory, the data log ends with its last record, like one that recovery has
        cut.
        """
        if self.failure is not None:
            raise self.failure
        old, old_end = self._file, self.offset
        assert old is not None
        payload = directory_payload(self._offsets, old_end)
        seal = encode(self._salt, self._word, self.epoch, self.durable, DIRECTORY, 0, 0, payload)
        try:
            old.append(seal)
            old.truncate(old_end + len(seal))
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._refuse(error, len(seal))
            self._end_unsealed(old)
            return
        self._word += _NEXT_RECORD
        self.offset = old_end + len(seal)
        self._limit = -1

    def _end_unsealed(self, old: File) -> None:
        self._begin_epoch()
        try:
            old.seek(self.offset)
            old.truncate(self.offset)
        except OSError as error:
            raise self.fail(f"a data log could not be cut ({error.strerror})") from error
        self._limit = -1

    def _create_first(self, data_log: int) -> tuple[File, int, bool]:
        """Return the file, its capacity, and whether it is makeshift: on a full disk it has less space, or none for
        sure.

        So an open succeeds on a full disk, and consumers can make room.
        """
        try:
            return self._create_data_log(data_log, self._max_file_bytes), self._max_file_bytes, False
        except OSError as error:
            if error.errno not in NO_SPACE or not self._has_reserve:
                raise
        wanted = self._max_file_bytes // 2
        while wanted >= 2 * LAST_BYTES:
            if 2 * wanted <= known_free_bytes(self._disk):  # the index needs some of the space
                with suppress(OSError):
                    return self._create_data_log(data_log, wanted), wanted, True
            wanted //= 2
        return self._disk.open(data_log_name(data_log), create=True), self._max_file_bytes, True

    def _create_next(self, data_log: int, size: int, is_adding: bool) -> tuple[File, int, bool]:
        """Return what _create_first does; on a full disk use the reserve, or raise OSError."""
        needed = DATA_LOG_HEADER_BYTES + size
        try:
            return self._create_data_log(data_log, max(self._max_file_bytes, needed)), self._max_file_bytes, False
        except OSError as error:
            reserved = None
            if not is_adding and error.errno in NO_SPACE:
                reserved = self.reserve.take(data_log_name(data_log), needed)
            if reserved is None:
                raise
            return *reserved, True

    def _create_data_log(self, data_log: int, size: int) -> File:
        """Create a file with reserved space and no content."""
        file = self._disk.open(data_log_name(data_log), create=True)
        try:
            file.preallocate(size)
        except OSError:
            self._abandon(data_log, file)
            raise
        return file

    def _abandon(self, data_log: int, file: File) -> None:
        """Remove a data log that was not begun. Best effort: if the name stays, recovery sets the empty file aside."""
        file.close()
        with suppress(OSError):
            self._disk.remove(data_log_name(data_log))

    def _start_data_log(self, data_log: int, file: File) -> None:
        salt = self._random_salt()
        header = DataLogHeader(salt, self._store_id, data_log, self.epoch, self._word >> WORD_SHIFT, self._clock_ms())
        self.data_log = data_log
        self.sizes[data_log] = 0
        kind, count, payload = self._first_record()
        first = encode(salt, self._word, self.epoch, self.durable, kind, 0, count, payload)
        file.append(encode_header(header) + first)
        self.attested = self.durable
        self._file, self._write = file, file.append
        self._salt, self._offsets = salt, array("I", (DATA_LOG_HEADER_BYTES,))
        self._word += _NEXT_RECORD
        self.offset = self._first_bytes = DATA_LOG_HEADER_BYTES + len(first)
        self._readers[data_log] = file, salt
        self._unsynced_names += 1
        self.is_full = self._is_makeshift or not self._fill_reserve()
        self._set_limit(0)

    # ------------------------------------------------------------------ syncing

    def sync_directory(self) -> None:
        """Return once the names of the data logs are on the device.

        It needs no descriptor, so it is never refused one.
        """
        assert self._directory is not None
        self._directory.sync()

    def sync(self, position: int | None = None) -> None:
        """Return once everything up to position (None: up to now) is on the device. Requires: no state lock.

        One caller syncs for all that have appended before. The others find the sync done.
        """
        if position is not None and self.durable >= position:
            return
        require_outside(self._state_lock)
        with self.sync_lock:
            if position is not None and self.durable >= position:
                return
            with self._state_lock:
                if self.failure is not None:
                    raise self.failure
                end, newest = self.end, self._file
                sealed, names = self._unsynced.copy(), self._unsynced_names
            assert newest is not None
            began = self._monotonic()
            try:
                for file in sealed:
                    file.sync()
                if names:
                    self.sync_directory()
                newest.sync()
            except OSError as error:
                with self._state_lock:
                    raise self.fail(f"a journal sync failed ({error.strerror})") from error
            seconds = self._monotonic() - began
            self._on_synced(end)
            with self._state_lock:
                self.sync_durations.record(seconds)
                # Forget them only now, so that an interrupted sync is repeated as a whole.
                del self._unsynced[: len(sealed)]
                self._unsynced_names -= names
                self._note_durable(max(self.durable, end))

    def sync_at_standstill(self) -> None:
        """Make everything up to now durable. Requires: sync lock and state lock."""
        if self.failure is not None:
            raise self.failure
        assert self._file is not None
        began = self._monotonic()
        try:
            for file in self._unsynced:
                file.sync()
            if self._unsynced_names:
                self.sync_directory()
            self._file.sync()
        except OSError as error:
            raise self.fail(f"a journal sync failed ({error.strerror})") from error
        self.sync_durations.record(self._monotonic() - began)
        self._on_synced(self.end)
        self._unsynced.clear()
        self._unsynced_names = 0
        self._note_durable(self.end)

    def _note_durable(self, position: int) -> None:
        self.durable = position
        self._stamp = stamp(self.epoch, position)

    # ------------------------------------------------------------------ reading

    def reader(self, data_log: int) -> tuple[File, int]:
        """Return an open file of the data log and its salt. It stays readable even if cleanup removes the name.

        Requires: the lock.
        """
        found = self._readers.get(data_log)
        if found is None:
            if data_log == self.data_log:
                assert self._file is not None
                found = self._file, self._salt
            else:
                file = self._with_descriptor(lambda: self._disk.open_for_reading(data_log_name(data_log)))
                found = file, decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES)).salt
            self._readers[data_log] = found
        return found

    def give_up_readers(self) -> int:
        """Close the files that are open only for reading; return how many. Reads under way go on.

        Any thread may call it: readers keep the files that they already have.
        """
        given_up, self._readers = len(self._readers), LRUCache(maxsize=READERS_MAX)
        return given_up

    def _with_descriptor(self, call: Callable[[], T]) -> T:
        """Return the result of a call.

        If there is no descriptor, sync data logs that are open only for that, and call again.

        Requires: the lock.
        """
        try:
            return call()
        except OSError as error:
            # Do not wait for the sync lock, because its holder may wait for the state lock. Its sync has the same
            # effect.
            if error.errno not in NO_DESCRIPTOR or not self._unsynced or not self.sync_lock.try_acquire():
                raise
        try:
            for file in self._unsynced:
                file.sync()
        except OSError as error:
            raise self.fail(f"a journal sync failed ({error.strerror})") from error
        finally:
            self.sync_lock.release()
        self._unsynced.clear()
        self.give_up_readers()
        return call()

    @property
    def journal_bytes(self) -> int:
        """Bytes of all data logs up to the end of the newest record. Requires: the lock."""
        return sum(self.sizes.values()) + self.offset

    @property
    def syncs(self) -> int:
        """Number of syncs since the open."""
        return self.sync_durations.count

    @property
    def appended_bytes(self) -> int:
        """Bytes written since the open. Requires: the lock."""
        return self._sealed_bytes + self.offset

    def remove(self, data_logs: list[int]) -> None:
        """Unlink data logs, and make that durable. Requires: a drop record that names them is synced."""
        for data_log in data_logs:
            with suppress(FileNotFoundError):  # an earlier attempt removed it and failed at another one
                self._disk.remove(data_log_name(data_log))
        self.sync_directory()

    def forget(self, data_logs: list[int]) -> None:
        """Forget data logs that are gone. Requires: the lock."""
        for data_log in data_logs:
            self._readers.pop(data_log, None)
            self.sizes.pop(data_log, None)

    def close(self) -> None:
        """Close the files. The operating system writes what was not synced. Requires: the lock."""
        self._limit = -1
        for file in [*(file for file, _ in self._readers.values()), *self._unsynced, self._file]:
            if file is not None:
                file.close()
        self._readers.clear()
        self._unsynced.clear()
        if self._directory is not None:
            self._directory.close()
