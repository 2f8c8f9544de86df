"""Fullness: whether the journal has room for a record, and why not.

Three things stop records that only add: a full disk, the store's limit, and a write stall. None of the three stops
records that settle something, because such records make room. The journal appends without asking up to an offset, the
unchecked end; it asks here about a record that would pass that offset.

All this is in RAM. An open finds it anew from the disk's free space and the data logs that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from ..disk.disk import Disk, known_free_bytes
from ..errors import StoreFailed, StoreFull
from ..format.record import DROP, HEADER_BYTES, RELOCATED, TRANSACTIONAL
from .data_log import RECORDS_MAX
from .reserve import ADDING_KINDS, DROPS_BYTES, LESSER_DIVISOR, LESSER_KINDS, DiskReserve

ASK_EACH_TIME: Final = 0
"""The unchecked end of a journal that asks before each append: it lies below the end of every record."""


class Fullness:
    """Admits the records of one journal, or refuses them for want of room.

    The journal reports what happened; other objects only read. Methods require the lock. An answer that is read without
    the lock may be one record old.
    """

    def __init__(
        self,
        disk: Disk,
        reserve: DiskReserve,
        file_bytes: int,
        limit_bytes: int | None,
        journal_bytes: Callable[[], int],
        fail: Callable[[str, OSError], StoreFailed],
    ) -> None:
        """Make it for a journal without data logs.

        file_bytes: size of a data log.
        limit_bytes: bytes of the journal above which nothing is added; None: there is no limit.
        journal_bytes: returns what the journal has now.
        fail: stops the journal for a reason and an error of the disk, and returns the error to raise.
        """
        self._disk = disk
        self.reserve: Final = reserve
        self._file_bytes = file_bytes
        self.limit_bytes: Final = limit_bytes
        self._journal_bytes = journal_bytes
        self._fail = fail
        # Size up to which the newest data log is filled.
        self.capacity = file_bytes
        # Whether the newest data log is from the reserve, or lacks the space of a whole one.
        self.is_makeshift = False
        # Whether the disk is full, so that nothing more is added: the data log is makeshift, or the reserve incomplete.
        self.is_disk_full = False
        # Whether the disk refused a record that adds something, and nothing has shown since that there is space.
        self.has_disk_refused = False
        # Bytes of the last record that the store's limit refused; 0: no such record, or there is room for it now.
        self._refused_bytes = 0
        # Bytes of the header and the first record of the newest data log.
        self.first_bytes = 0
        # Whether dead letters are being added. They replace other messages, so they go on while sends are refused.
        self.accepts_replacements = False
        # The limit that stops new messages (a write stall). None: there is no stall.
        self.stall: str | None = None

    @property
    def is_admitting(self) -> bool:
        """Whether neither a full disk nor a stall stops anything, so that appends need not ask each time."""
        return not self.is_disk_full and self.stall is None

    @property
    def is_out_of_space(self) -> bool:
        """Whether the disk has only the reserve left, or has refused a record that adds something."""
        return self.is_disk_full or self.has_disk_refused

    @property
    def is_at_limit(self) -> bool:
        """Whether the store's limit refused a record, and no cleanup since then has found room for it."""
        return self._refused_bytes > 0

    @property
    def refuses_messages(self) -> bool:
        """Whether sends are refused: the disk has only the reserve left, or the store's limit refused a record."""
        return self.is_out_of_space or self.is_at_limit

    @property
    def is_short_of_space(self) -> bool:
        """Whether another data log would not fit. Then nothing is kept for a lease."""
        return self.is_disk_full or self._is_above_limit(self._file_bytes)

    def _is_above_limit(self, size: int) -> bool:
        """Return whether `size` more bytes would exceed the store's limit."""
        return self.limit_bytes is not None and self._journal_bytes() + size > self.limit_bytes

    def set_stall(self, limit: str | None) -> None:
        """Refuse new messages with StoreFull, which names that limit (a write stall); None: admit them again."""
        self.stall = limit

    @contextmanager
    def accepting_replacements(self) -> Iterator[None]:
        """Admit messages in the block as records that settle, because they replace others, as dead letters do."""
        self.accepts_replacements = True
        try:
            yield
        finally:
            self.accepts_replacements = False

    # ------------------------------------------------------------------ one record

    def refuse_stalled(self, flags: int) -> None:
        """Raise StoreFull for a message during a write stall, unless it replaces another one."""
        takes_a_place = flags & RELOCATED or (self.accepts_replacements and flags & TRANSACTIONAL)
        if self.stall is not None and not takes_a_place:
            raise StoreFull(1, 0, self.stall)

    def is_adding(self, kind: int) -> bool:
        """Return whether records of a kind only add. A full disk refuses these, and no records that settle."""
        return kind in ADDING_KINDS and not self.accepts_replacements

    def refuse_if_full(self, size: int, flags: int, try_resume: Callable[[], bool]) -> None:
        """Raise StoreFull for a record that only adds, if it exceeds the store's limit or would use the reserve.

        Two refusals do not mean that the store is full: that of a relocated copy, which is no send, and that of a
        record larger than the whole limit, which never fits.

        try_resume: ends the fullness of the disk if it has space now; returns False if it is still full.
        """
        limit = self.limit_bytes
        if limit is not None and self._journal_bytes() + size > limit:
            if size <= limit and not flags & RELOCATED:
                self._refused_bytes = size
            raise StoreFull(size, max(limit - self._journal_bytes(), 0), "store_limit")
        self._refused_bytes = 0
        if self.is_disk_full:
            self.has_disk_refused = True
            needed_bytes = self._file_bytes + self.reserve.missing_bytes
            if known_free_bytes(self._disk) < needed_bytes or not try_resume():
                raise StoreFull(needed_bytes, known_free_bytes(self._disk), "the disk's free space")
        self.has_disk_refused = False

    def keep_space_for_acks(self, kind: int, size: int, offset: int) -> None:
        """Raise StoreFull for a dead letter or delivery count in the second half of a full disk's data log.

        That half is for acks.
        """
        if self.is_makeshift and kind in LESSER_KINDS and offset + size > self.capacity // LESSER_DIVISOR:
            raise StoreFull(size, 0, "the disk's free space")

    def is_beyond(self, kind: int, end: int, records: int) -> bool:
        """Return whether a record of a kind, which would end at `end`, must go to the next data log.

        On a full disk the last bytes of a data log are for drop records. records: how many the newest data log has.
        """
        capacity = self.capacity
        if self.is_disk_full and kind != DROP:
            capacity -= min(DROPS_BYTES, capacity // 8)
        return end > capacity or records >= RECORDS_MAX

    def unchecked_end(self, offset: int, records: int, size: int) -> int:
        """Return the offset up to which appends need no check. ASK_EACH_TIME: every append needs one.

        The offset also bounds the number of records, because the directory has room for RECORDS_MAX.

        offset, records: the end of the newest data log, and how many records it has. size: bytes to be appended next.
        """
        if not self.is_admitting:
            return ASK_EACH_TIME
        records_left = max(RECORDS_MAX - records, 1)
        end = min(self.capacity, offset + max(HEADER_BYTES * records_left, size))
        if self.limit_bytes is not None:
            end = min(end, self.limit_bytes - self._journal_bytes() + offset)
        return max(end, ASK_EACH_TIME)

    # ------------------------------------------------------------------ a full disk

    def begin_data_log(self, capacity: int, first_bytes: int, *, is_makeshift: bool) -> None:
        """Note the space of a new data log, and fill the reserve.

        first_bytes: those of its header and its first record.
        """
        self.capacity, self.is_makeshift, self.first_bytes = capacity, is_makeshift, first_bytes
        self.is_disk_full = is_makeshift or not self.fill_reserve()

    def fill_reserve(self) -> bool:
        """Make what is missing of the reserve. False: the disk has no space for it."""
        # Four times the record that opens a data log, because destinations may be added before the space is needed.
        try:
            return self.reserve.fill(4 * self.first_bytes)
        except OSError as error:
            raise self._fail("the reserve could not be made", error) from error

    def try_end(self) -> bool:
        """Fill the reserve. The disk is then full no more, unless the newest data log is makeshift.

        False: the disk has no space for the reserve.
        """
        if not self.fill_reserve():
            return False
        self.is_disk_full = self.is_makeshift
        return True

    def disk_refused(self) -> None:
        """Note that the disk had no space for a record."""
        self.has_disk_refused = True

    def lend_reserve(self) -> bool:
        """Give a part of the reserve to the index, after which the disk counts as full. False: none is left."""
        try:
            is_lent = self.reserve.release_index_part()
        except OSError as error:
            raise self._fail("the reserve could not be given back", error) from error
        self.is_disk_full |= is_lent
        return is_lent

    def note_space(self) -> bool:
        """Forget refusals that would not be repeated now. Return whether the disk has space."""
        self.has_disk_refused = self.is_disk_full
        if not self._is_above_limit(self._refused_bytes):
            self._refused_bytes = 0
        return not self.is_disk_full

    def _check(self) -> None:
        """Assert what holds between any two calls."""
        assert self.is_disk_full or not self.is_makeshift, "a makeshift data log is there only on a full disk"
        assert self.is_makeshift or self.capacity == self._file_bytes, "a data log has the space of a whole one"
        assert 0 <= self._refused_bytes <= (self.limit_bytes or 0), "the limit refused what it can admit later"
        assert not self.accepts_replacements, "replacements are accepted in one block only"
