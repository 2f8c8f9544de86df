"""Journal: append records to rolling data logs, and read them by location.

When `append` returns, the operating system has the record, so the record survives a kill of the process. It survives a
power cut once a sync has brought it to the device: journal_syncer.py makes the syncs. With sync "always" no message is
confirmed before a sync. Then single messages are gathered in RAM, and one write before the sync hands all of them to
the operating system. A crash may leave torn bytes at the end of the newest data log; recovery cuts them off.

The thread that appends also writes, under the state lock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from ..disk.disk import (
    NO_SPACE,
    Disk,
    File,
    filled_bytes,
    is_filled_ahead,
    known_free_bytes,
)
from ..disk.thrifty_disk import NO_DESCRIPTOR
from ..environment.locks import AllOrBroken, StoreLocks
from ..errors import Closed, ForebayError, StoreFailed, StoreFull, TooManyFiles
from ..format.contents import Contents
from ..format.record import (
    ACK,
    ACK_BYTES,
    DIRECTORY,
    ENTRY_BYTES,
    HEADER_BYTES,
    MAGIC,
    MESSAGE,
    ONE_BYTES,
    RELOCATED,
    SLICE_BYTES,
    WORD_SHIFT,
    encode,
    encode_ack,
    encode_one,
    encode_slice,
    stamp,
)
from ..numbering import OFFSET_BITS
from .data_log import (
    DATA_LOG_HEADER_BYTES,
    RECORDS_MAX,
    DataLogHeader,
    directory_payload,
    encode_header,
)
from .data_log_files import DataLogFiles, NewDataLog
from .fullness import ASK_EACH_TIME, Fullness
from .open_data_logs import OpenDataLogs, UnsyncedWrites
from .reserve import SETTLING, DiskReserve

GATHERED_BYTES_MAX: Final = 64 * 1024 - 1
"""A larger write would release the interpreter's lock. See os_file.FILLED_APPEND_BYTES."""

_NEXT_RECORD: Final = 1 << WORD_SHIFT
"""Adds one to the log sequence, which stands above the magic number in the first word of a record's head."""

_REFUSE_ALL: Final = -1
"""The unchecked end of a journal that admits no append: it is closed, has failed, or is between two data logs."""


class Journal:
    """The writer of the journal. The state lock guards it."""

    _write: Callable[[bytes], None]
    """Appends a record to the newest data log.

    It is the file's own `append`, or `_write_behind`, which first writes the gathered messages. `_choose_writes` binds
    it for each data log. So the path of a record asks no flag, and calls no method between the journal and the file.
    """
    _write_message: Callable[[bytes], None]
    """Appends a single message.

    It is the file's own `append`, too, or `_gather`, which keeps the message in RAM until the next sync.
    """
    _unchecked_end: int
    """Records that end at or before this offset are appended without a check. Any other append calls `_make_space`
    first: with ASK_EACH_TIME or _REFUSE_ALL every append does.
    """
    _stamp: bytes
    """Epoch and durable end, encoded for the header of the next record."""
    _salt: Any
    """An int, kept as an object, because machine code would make a new object for each checksum."""

    def __init__(
        self,
        disk: Disk,
        locks: StoreLocks,
        store_id: bytes,
        *,
        max_file_bytes: int,
        clock_ms: Callable[[], int],
        random_salt: Callable[[], int],
        begin_data_log: Callable[[int], tuple[int, int, bytes]],
        has_reserve: bool = False,
        store_limit_bytes: int | None = None,
    ) -> None:
        """Make the journal of a store; `start` begins its first data log.

        begin_data_log: prepares the caller for a data log with this id, and returns (kind, count, payload) of its first
            record, which restates all that deleted data logs no longer say.
        has_reserve: space is set aside for a full disk.
        store_limit_bytes: bytes of records above which nothing more is added; records that settle something are still
            written.
        """
        self._disk = disk
        self.locks: Final = locks
        state_lock = self._state_lock = locks.state
        # An interruption (Ctrl-C, a signal handler, no memory) of such a block may leave the state in RAM wrong, which
        # could lose messages that are confirmed later. So it breaks the lock. The journal is right: reopen the store.
        self.all_or_broken = AllOrBroken(state_lock)
        # The same, for hot paths with a `try` of their own.
        self.break_by = state_lock.break_by
        state_lock.on_broken.append(self.stop)
        self._store_id, self._max_file_bytes = store_id, max_file_bytes
        self._clock_ms, self._random_salt = clock_ms, random_salt
        self._begin_data_log = begin_data_log
        reserve = DiskReserve(disk, max_file_bytes if has_reserve else 0)
        self.fullness: Final = Fullness(
            disk, reserve, max_file_bytes, store_limit_bytes, lambda: self.journal_bytes, self.fail
        )
        self.files: Final = DataLogFiles(disk, reserve, max_file_bytes)
        self.open_data_logs: Final = OpenDataLogs(disk, self.files.sync_names, locks.sync, self.fail)
        self._file: File | None = None
        # Whether single messages are gathered where the file's space is filled ahead.
        self._gathers = False
        # Single messages that are written with the next sync.
        self._gathered: list[bytes] = []
        # Up to which offset messages are gathered, and up to which one the file's space is filled.
        self._gather_end = self._filled_end = 0
        self._unchecked_end = _REFUSE_ALL
        # The salt of the newest data log, with which the checksum of each of its records begins.
        self._salt = 0
        # The log sequence of the next record and the magic number, as they stand in its header.
        self._sequence_word = MAGIC
        # Where each record of the newest data log begins.
        self._offsets = array("I")
        # Each record carries it, so that no remains of an earlier write are taken for records. It grows with each open,
        # and with each write that found no space.
        self.epoch = 0
        # Where the next record begins in the newest data log.
        self.offset = 0
        # Bytes of the data logs that this process has sealed.
        self._sealed_bytes = 0
        # Id of the newest data log. Only this one is written to.
        self.data_log = 0
        # Everything before this is on the device. JournalSyncer notes it here, because records tell it.
        self.durable_end = 0
        # The durable end that the newest record tells, not counting slices, acks of one run, and directories.
        self.attested_end = 0
        # Bytes of each sealed data log; 0 of the newest, whose bytes are `offset`.
        self.sizes: dict[int, int] = {}
        # All of `sizes` added up, because at the store's limit every append asks for the bytes of the journal.
        self._older_bytes = 0
        # Why nothing is written any more; None: the journal has not failed. To raise it, call its `again`.
        self.failure: StoreFailed | None = None

    # ------------------------------------------------------------------ opening

    def add_older(self, sizes: Mapping[int, int]) -> None:
        """Add the data logs of earlier processes, with the bytes of each. Requires: `start` has not been called."""
        self.sizes.update(sizes)
        self._older_bytes += sum(sizes.values())

    def start(self, data_log: int, next_log_sequence: int, epoch: int) -> None:
        """Begin a new data log with that id; its first record has that log sequence.

        Every open begins a new data log, so files of an earlier process are never written again.
        """
        self.epoch = epoch
        self._restamp()
        self._sequence_word = next_log_sequence << WORD_SHIFT | MAGIC
        self._start_data_log(data_log, self.files.create_first(data_log))

    def gather_messages(self) -> None:
        """Gather single messages from now on, because each of them waits for a sync before it is confirmed."""
        self._gathers = True
        if self._file is not None:
            self._choose_writes(self._file)

    @property
    def end(self) -> int:
        """Position behind the newest record. Requires: the lock."""
        return self.data_log << OFFSET_BITS | self.offset

    @property
    def next_log_sequence(self) -> int:
        """Log sequence of the next record. Requires: the lock."""
        return self._sequence_word >> WORD_SHIFT

    def reader(self, data_log: int) -> tuple[File, int]:
        """Return an open file of a data log and its salt, as OpenDataLogs.reader does. Requires: the lock.

        Everything that was appended by now can be read from it, unless the journal has failed.
        """
        if self._gathered and self.failure is None:
            self._write_gathered()
        return self.open_data_logs.reader(data_log)

    # ---------------------------------------------------------------- appending

    def append_one(
        self,
        flags: int,
        destination_number: int,
        sequence: int,
        timestamp: int,
        properties: bytes,
        body: bytes,
        content_bytes: int,
    ) -> int:
        """Append a slice of one message; return its offset in `data_log`. Requires: the lock.

        Head and body are one write, unless messages are gathered (`_gather`). A content above SLICE_CONTENT_BYTES_MAX
        takes two, so that its body is not copied; a kill between them leaves a torn record, which the next open cuts
        off. flags: the priority and the other flags of a slice. content_bytes: properties and body together.
        """
        if not destination_number:  # NO_DESTINATION
            raise Closed("the queue or topic")
        size = ONE_BYTES + content_bytes
        if self.offset + size > self._unchecked_end:
            self._make_space(size, flags=flags)
        offset = self.offset
        data = encode_one(
            self._salt,
            self._sequence_word,
            self._stamp,
            flags,
            destination_number,
            sequence,
            timestamp,
            properties,
            body,
            content_bytes,
        )
        try:  # _append, written inline, with _write_message and a body that is not copied
            self._write_message(data)
            if len(data) != size:
                self._write(body)
        except OSError as error:
            self._refuse(error, size)
        self._sequence_word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + size
        return offset

    def append_slice(
        self,
        flags: int,
        destination_number: int,
        sequence: int,
        timestamp: int,
        contents: Contents,
        lengths: list[int] | None = None,
    ) -> tuple[int, list[int]]:
        """Append messages as one slice; return its offset and the length of each message's content.

        lengths: the lengths of the contents, if the caller has them. A message above SLICE_CONTENT_BYTES_MAX must come
            alone.

        Requires: the lock.
        """
        if len(contents) == 1:
            properties, body = contents.properties[0], contents.bodies[0]
            length = len(properties) + len(body)
            return self.append_one(flags, destination_number, sequence, timestamp, properties, body, length), [length]
        if not destination_number:  # NO_DESTINATION
            raise Closed("the queue or topic")
        if lengths is None:
            lengths = contents.lengths()
        size = SLICE_BYTES + ENTRY_BYTES * len(lengths) + sum(lengths)
        if self.offset + size > self._unchecked_end:
            self._make_space(size, flags=flags)
        head = self._salt, self._sequence_word, self.epoch, self.durable_end
        data = encode_slice(*head, flags, destination_number, sequence, timestamp, contents, lengths)
        return self._append(data), lengths

    def append_ack(self, priority: int, destination_number: int, first: int, count: int) -> None:
        """Append an ack of one run. Requires: the lock."""
        if not destination_number:  # NO_DESTINATION
            raise Closed("the queue or topic")
        if self.offset + ACK_BYTES > self._unchecked_end:
            self._make_space(ACK_BYTES, ACK)
        offset = self.offset
        data = encode_ack(self._salt, self._sequence_word, self._stamp, priority, destination_number, first, count)
        try:  # _append, written inline
            self._write(data)
        except OSError as error:
            self._refuse(error, ACK_BYTES)
        self._sequence_word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + ACK_BYTES

    def append(self, kind: int, flags: int, count: int, payload: bytes, *, settles: bool = False) -> int:
        """Append a record of any kind but a slice; return its offset in `data_log`. Requires: the lock.

        settles: the record removes something. A full disk does not refuse it, whatever its kind.
        """
        size = HEADER_BYTES + len(payload)
        with self.all_or_broken:
            if self.offset + size > self._unchecked_end:
                self._make_space(size, SETTLING if settles else kind)
            record = encode(self._salt, self._sequence_word, self.epoch, self.durable_end, kind, flags, count, payload)
            offset = self._append(record)
        self.attested_end = self.durable_end
        return offset

    def keep_together(self, size: int, records: int) -> None:
        """Make room for `records` records of `size` bytes in all, so that they are all in one data log.

        Requires: the lock.
        """
        if len(self._offsets) + records > RECORDS_MAX and len(self._offsets) > 1:
            self.roll(size)
        if self.offset + size > self._unchecked_end:
            self._make_space(size, flags=RELOCATED)

    def require_space(self, size: int) -> None:
        """Make room for a record that a send needs, of any kind. Raise as for a message. Requires: the lock."""
        if self.offset + size > self._unchecked_end:
            self._make_space(size)

    # ------------------------------------------------------------------ gathering single messages

    def _choose_writes(self, file: File) -> None:
        """Bind `_write` and `_write_message` for a new data log. Requires: nothing is gathered.

        Each data log needs a new choice: it has a file of its own, and only the file knows whether its space is filled
        ahead.
        """
        if self._gathers and is_filled_ahead(file):
            self._write, self._write_message = self._write_behind, self._gather
            self._gather_end = self._filled_end = 0
        else:
            self._write = self._write_message = file.append

    def _gather(self, data: bytes) -> None:
        """Append a single message that waits for a sync: keep it in RAM until the write before that sync.

        One write of 16 KiB costs a fraction of 16 writes. Messages are gathered only for space that is filled, because
        their write must not find the disk full. Every other record is written behind the gathered messages, so the disk
        always has a beginning of the journal. A kill before the sync loses messages that no call has confirmed.
        """
        if self.offset + len(data) <= self._gather_end:
            self._gathered.append(data)
        else:
            self._gather_anew(data)

    def _gather_anew(self, data: bytes) -> None:
        """Write the gathered messages, and begin to gather again with this one.

        If the message is large, or no filled space is left for it, it is written at once. That write fills the space
        that comes next, or finds the disk full before anybody counts on the message.
        """
        assert self._file is not None
        if self._gathered:
            self._write_gathered()
        self._filled_end = filled_bytes(self._file)
        self._gather_end = min(self.offset + GATHERED_BYTES_MAX, self._filled_end)
        if self.offset + len(data) <= self._gather_end:
            self._gathered.append(data)
        else:
            self._file.append(data)

    def _write_behind(self, data: bytes) -> None:
        """Write the gathered messages, then a record behind them."""
        if self._gathered:
            self._write_gathered()
        assert self._file is not None
        self._file.append(data)

    def _write_gathered(self) -> None:
        """Write the gathered messages. StoreFailed: they could not be written. Requires: the lock."""
        assert self._file is not None
        try:
            gathered, self._gathered = self._gathered, []
            self._gather_end = min(self.offset + GATHERED_BYTES_MAX, self._filled_end)
            self._file.append(b"".join(gathered))
        except OSError as error:
            raise self.fail("a journal write failed", error) from error
        except BaseException as error:
            self.break_by(error)
            raise

    # ------------------------------------------------------------------ what becomes of a write

    def _append(self, data: bytes) -> int:
        """Write a record for which there is room, and count it; return its offset."""
        offset = self.offset
        try:
            self._write(data)
        except OSError as error:
            self._refuse(error, len(data))
        self._sequence_word += _NEXT_RECORD
        self._offsets.append(offset)
        self.offset = offset + len(data)
        return offset

    def _refuse(self, error: OSError, needed_bytes: int) -> NoReturn:
        """Raise the error of a write that failed.

        If the disk had no space, the next record gets a new epoch, so that remains of the write are never taken for
        records. Any other error fails the journal.
        """
        if error.errno in NO_SPACE:
            self.epoch += 1
            self._restamp()
            assert self._file is not None and not self._gathered
            self._file.seek(self.offset)
            self.fullness.disk_refused()
            raise StoreFull(needed_bytes, known_free_bytes(self._disk), "the disk's free space") from error
        raise self.fail("a journal write failed", error) from error

    def _restamp(self) -> None:
        """Encode epoch and durable end anew, because one of them has changed."""
        self._stamp = stamp(self.epoch, self.durable_end)

    def fail(self, reason: str, error: OSError | None = None) -> StoreFailed:
        """Refuse every write from now on; return the error to raise. Requires: the lock.

        error: what the disk answered, which is told with the reason.
        """
        if self.failure is not None:
            failure = self.failure
        elif error is None:
            failure = StoreFailed(reason)
        else:
            failure = StoreFailed(f"{reason} ({error.strerror})")
            # A copy, because the error itself keeps the frames that it passed, and so the message that was written.
            failure.__cause__ = OSError(error.errno, error.strerror, error.filename)
        self.stop(failure)
        return failure.again()

    def stop(self, failure: StoreFailed | None = None) -> None:
        """Refuse all later appends, with the first failure or, without one, as a closed store. Requires: the lock."""
        self._unchecked_end = _REFUSE_ALL
        self.failure = self.failure or failure

    # ------------------------------------------------------------------ space

    def _make_space(self, size: int, kind: int = MESSAGE, flags: int = 0) -> None:
        """Make room for an append that would pass the unchecked end.

        Raise the reason if there is no room: a failed or closed journal, a write stall, a full disk. If the record fits
        into the newest data log, the unchecked end moves; if not, the next data log begins. flags: those of a slice.
        """
        if self._unchecked_end == _REFUSE_ALL:
            raise self.failure.again() if self.failure is not None else Closed("the store")
        fullness = self.fullness
        if kind == MESSAGE:
            fullness.refuse_stalled(flags)
        is_adding = fullness.is_adding(kind)
        if is_adding:
            fullness.refuse_if_full(size, flags, self.try_resume)
        fullness.keep_space_for_acks(kind, size, self.offset)
        if fullness.is_beyond(kind, self.offset + size, len(self._offsets)):
            if len(self._offsets) > 1:
                self.roll(size, is_adding=is_adding)
                if is_adding and fullness.is_makeshift:
                    fullness.refuse_if_full(size, flags, self.try_resume)
                fullness.keep_space_for_acks(kind, size, self.offset)
            if fullness.is_admitting:  # a record that is larger than a file gets a larger file
                self._unchecked_end = max(self.offset + size, self._unchecked_end)
        else:
            self._move_unchecked_end(size)

    def set_write_stall(self, limit: str | None) -> None:
        """Refuse new messages with StoreFull, which names that limit; None: admit them again. Requires: the lock.

        Records that are not messages are still written. So are relocated copies and dead letters, because each of them
        replaces another message. During a stall every append calls `_make_space`.
        """
        self.fullness.set_stall(limit)
        if self._unchecked_end != _REFUSE_ALL:
            self._move_unchecked_end()

    def _move_unchecked_end(self, size: int = 0) -> None:
        """Move the unchecked end to where `fullness` puts it now. size: bytes to be appended next."""
        self._unchecked_end = self.fullness.unchecked_end(self.offset, len(self._offsets), size)

    def try_resume(self) -> bool:
        """Go on as on a disk that is not full, if it has space now. False: the disk is still full. Requires: the lock.

        This fills the reserve, leaves a makeshift data log, and notes room below the store's limit.
        """
        if self.fullness.is_disk_full and self._unchecked_end != _REFUSE_ALL:
            try:
                self._resume()
            except StoreFull:
                return False
        return self.fullness.note_space()

    def _resume(self) -> None:
        """Fill the reserve, if the disk has space, and go on as on a disk that is not full. Raises StoreFull."""
        if not self.fullness.try_end():
            return
        if self.fullness.is_makeshift:
            with self.all_or_broken:
                self.roll()
        else:
            self._move_unchecked_end()

    def lend_space(self) -> bool:
        """Give a part of the reserve to the index, which finds no space. False: none is left.

        Requires: no state lock.
        """
        with self._state_lock:
            is_lent = self.fullness.lend_reserve()
            if is_lent:
                self._unchecked_end = min(self._unchecked_end, ASK_EACH_TIME)
            return is_lent

    # ------------------------------------------------------------------ beginning and ending data logs

    def roll(self, size: int = 0, *, is_adding: bool = True) -> None:
        """Seal the newest data log and begin the next one. Raises StoreFull: neither was done. Requires: the lock.

        size: bytes of the record that must fit. is_adding: the record adds messages, so it may not use the reserve.
        """
        if self._gathered and self.failure is None:
            # First, because the disk may refuse a new data log. The file must then go on where the journal ends.
            self._write_gathered()
        old_id, next_id = self.data_log, self.data_log + 1
        # Get the space before the seal. Behind the seal the journal can go on only in a new data log, because recovery
        # sees nothing behind a seal.
        try:
            new = self.open_data_logs.with_descriptor(
                lambda: self.files.create_next(next_id, size, is_adding=is_adding)
            )
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyFiles from error  # nothing was begun
            self._refuse(error, max(self._max_file_bytes, size))
        try:
            self.seal()
        except ForebayError:
            self.files.abandon(next_id, new.file)
            raise
        self.sizes[old_id] = self.offset
        self._older_bytes += self.offset
        self._sealed_bytes += self.offset
        try:
            try:
                self._start_data_log(next_id, new)
            except OSError as error:
                # There is space for a data log, but not for a record that is larger: the reserve has more.
                reserved = self.files.replace_by_reserve(next_id) if error.errno in NO_SPACE else None
                if reserved is None:
                    raise
                self._start_data_log(next_id, reserved)
        except OSError as error:
            raise self.fail("the next data log could not be begun", error) from error

    def seal(self) -> None:
        """End the newest data log with its directory, so that nothing follows. Requires: the lock.

        If the disk has no space for the directory, the data log ends with its last record, like one that recovery has
        cut.
        """
        if self.failure is not None:
            raise self.failure.again()
        old, old_end = self._file, self.offset
        assert old is not None
        payload = directory_payload(self._offsets, old_end)
        seal = encode(self._salt, self._sequence_word, self.epoch, self.durable_end, DIRECTORY, 0, 0, payload)
        try:
            self._write(seal)
            old.truncate(old_end + len(seal))
        except OSError as error:
            if error.errno not in NO_SPACE:
                self._refuse(error, len(seal))
            self._end_unsealed(old)
            return
        self._sequence_word += _NEXT_RECORD
        self.offset = old_end + len(seal)
        self._unchecked_end = _REFUSE_ALL

    def _end_unsealed(self, old: File) -> None:
        self.epoch += 1
        self._restamp()
        try:
            old.seek(self.offset)
            old.truncate(self.offset)
        except OSError as error:
            raise self.fail("a data log could not be cut", error) from error
        self._unchecked_end = _REFUSE_ALL

    def _start_data_log(self, data_log: int, new: NewDataLog) -> None:
        file, salt = new.file, self._random_salt()
        header = DataLogHeader(salt, self._store_id, data_log, self.epoch, self.next_log_sequence, self._clock_ms())
        self.data_log = data_log
        self.sizes[data_log] = 0
        kind, count, payload = self._begin_data_log(data_log)
        first = encode(salt, self._sequence_word, self.epoch, self.durable_end, kind, 0, count, payload)
        try:
            file.append(encode_header(header) + first)
        except OSError:
            file.close()  # nobody else has it yet
            raise
        self.attested_end = self.durable_end
        self._file = file
        self._choose_writes(file)
        self._salt, self._offsets = salt, array("I", (DATA_LOG_HEADER_BYTES,))
        self._sequence_word += _NEXT_RECORD
        self.offset = DATA_LOG_HEADER_BYTES + len(first)
        self.open_data_logs.begin(data_log, file, salt)
        self.fullness.begin_data_log(new.capacity, self.offset, is_makeshift=new.is_makeshift)
        self._move_unchecked_end()

    # ------------------------------------------------------------------ what a sync asks for

    def write_before_sync(self) -> tuple[int, UnsyncedWrites]:
        """Write what is gathered; return what a sync brings to the device: up to which end, and what files.

        Requires: the lock.
        """
        if self.failure is not None:  # also where the lock is broken, which stops the journal
            raise (self._state_lock.failure or self.failure).again()
        if self._gathered:
            self._write_gathered()
        return self.end, self.open_data_logs.unsynced

    def note_synced(self, journal_end: int, unsynced: UnsyncedWrites) -> None:
        """Note that what `write_before_sync` has returned is on the device. Requires: the lock."""
        if unsynced.names:
            self.open_data_logs.note_synced(unsynced)
        if journal_end > self.durable_end:
            self.durable_end = journal_end
            self._restamp()

    # ------------------------------------------------------------------ sizes, and the end

    @property
    def journal_bytes(self) -> int:
        """Bytes of all data logs up to the end of the newest record. Requires: the lock. O(1)."""
        return self._older_bytes + self.offset

    @property
    def appended_bytes(self) -> int:
        """Bytes written since the open. Requires: the lock."""
        return self._sealed_bytes + self.offset

    def forget(self, data_logs: list[int]) -> list[File]:
        """Forget data logs that are gone; return files to let go of without the lock. Requires: the lock."""
        for data_log in data_logs:
            self._older_bytes -= self.sizes.pop(data_log, 0)
        return self.open_data_logs.forget(data_logs)

    def close(self) -> None:
        """Close the files. Requires: the lock.

        The operating system writes what was not synced. What is gathered is lost, as in a kill: no call has confirmed
        it. A close that is not interrupted finds nothing gathered, because its checkpoint has sealed the data log.
        """
        self._unchecked_end = _REFUSE_ALL
        self.open_data_logs.close()
        self.files.close()

    def _check(self) -> None:
        assert self._older_bytes == sum(self.sizes.values())
        assert not self.sizes.get(self.data_log), "the bytes of the newest data log are `offset`"
