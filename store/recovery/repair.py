"""Repair: with `on_missing_data_log="report"`, turn a journal that would be refused as corrupt into a usable one.

Each damaged range becomes one *lost record*. Its head takes the first 40 bytes of the range, and says which log
sequence was due and how many records are lost. Intact records stay where they are, so places in the index stay valid. A
data log that is missing or completely unreadable is replaced by one that has only a lost record. After that the journal
is an ordinary one: it opens in either mode, and the damage is not reported again.

Bytes are copied to the quarantine before they are overwritten or cut, and unreadable data logs are moved there. If the
disk has no space for copies, nothing is repaired. The quarantine is bounded: the report of a place says of how many
bytes it has no copy. A crash leaves the remaining damage, which the next open repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from ..disk.disk import Disk, File
from ..disk.layout import JOURNAL, damage_name, data_log_id, data_log_name
from ..environment.late_log import LateLogger
from ..format.record import DROP, HEADER_BYTES, LOST, LOST_BYTES, STATE, Header, RecordDamaged, encode_lost
from ..format.state_record import decode_state
from ..journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    RecordWalk,
    UnknownVersion,
    decode_data_log_header,
    encode_header,
    find_records,
    record_at,
    used_bytes,
)
from ..journal.forward_reader import initial_of
from ..numbering import OFFSET_BITS
from ..quarantine import (
    PART_BYTES_MAX,
    data_logs_kept_of,
    is_copy,
    quarantine_bytes,
    quarantine_data_log,
)

logger = LateLogger("forebay.store.recovery")

LOST_DATA_LOG_BYTES: Final = DATA_LOG_HEADER_BYTES + LOST_BYTES
"""Size of a data log that replaces a lost one."""


@dataclass(frozen=True, slots=True)
class DamagedPlace:
    """A place of the journal that was given up. Intact records before and behind it are served."""

    data_log: int
    offset: int
    lost_bytes: int
    lost_records: int | None
    """Records that are lost, with 1 to 256 messages each. They may include acks, so messages may come again.

    None: unknown.
    """
    problem: str
    unkept_bytes: int = 0
    """Bytes that the repair overwrote, cut or deleted and of which the bounded quarantine has no copy."""

    def __str__(self) -> str:
        records = "an unknown number of" if self.lost_records is None else self.lost_records
        place = f"data-{self.data_log}.log at offset {self.offset}"
        unkept = f"; the quarantine has no copy of {self.unkept_bytes} of the bytes" if self.unkept_bytes else ""
        return f"{place}: {self.problem}; {self.lost_bytes} bytes and {records} records are lost{unkept}"


class _Place(NamedTuple):
    offset: int
    length: int
    sequence: int
    """The log sequence that was due there."""
    epoch: int
    records: int
    problem: str


@dataclass(slots=True)
class _Stretch:
    """The readable part of a data log."""

    header: DataLogHeader
    places: list[_Place]
    """Damaged places with something intact behind them."""
    end: int
    next_log_sequence: int
    epoch: int
    is_whole: bool
    problem: str


class Repair:
    """The repair of one directory. Requires: nobody else uses the disk."""

    def __init__(self, disk: Disk, store_id: bytes, durable_end: int, random_salt: Callable[[], int]) -> None:
        """Prepare a repair. durable_end: the greatest durable end that the index or a marker knew."""
        self._disk = disk
        self._store_id = store_id
        # The greatest durable end that is known. `run` raises it to those that records tell.
        self.durable_end = durable_end
        self._random_salt = random_salt
        self._places: list[DamagedPlace] = []
        # Data logs that the newest state record names.
        self._existing: set[int] = set()
        self._dropped: set[int] = set()

    def run(self, expected: Iterable[int]) -> list[DamagedPlace]:
        """Repair all damage that is no torn tail. expected: the data logs that exist, by what the index knew."""
        ids = sorted(filter(None, map(data_log_id, self._disk.list(JOURNAL))))
        try:
            read = self._read_all(ids)
        except UnknownVersion:
            return []  # nothing has changed, and recovery refuses it
        good = [data_log for data_log in ids if read[data_log] is not None]
        newest = good[-1] if good else 0
        unreadable = [
            data_log
            for data_log in ids
            if read[data_log] is None and data_log < newest and data_log << OFFSET_BITS < self.durable_end
        ]
        kept = data_logs_kept_of(self._disk, unreadable)
        for data_log in unreadable:
            unkept_bytes = 0 if data_log in kept else self._used_bytes(data_log)
            quarantine_data_log(self._disk, data_log)
            self._replace(data_log, read, "nothing in it can be read", unkept_bytes)
        for data_log in sorted(self._existing.union(expected) - self._dropped - set(ids)):
            if data_log < newest:
                self._replace(data_log, read, "the data log is missing")
        known = sorted(data_log for data_log in read if read[data_log] is not None)
        for data_log, behind in zip_longest(known, known[1:]):
            stretch = read[data_log]
            if stretch is not None and data_log in good:
                # Behind a whole data log, the next ones may have been dropped. A data log that breaks off is damaged.
                is_next = behind == data_log + 1 or not stretch.is_whole
                self._patch(data_log, stretch, read[behind] if behind is not None and is_next else None)
        for place in self._places:
            logger.error("%s", place, event="journal_damaged")
        return self._places

    # ------------------------------------------------------------------ reading

    def _read_all(self, ids: Iterable[int]) -> dict[int, _Stretch | None]:
        read: dict[int, _Stretch | None] = {}
        least_sequence = 0
        for data_log in ids:
            stretch = read[data_log] = self._read(data_log, least_sequence)
            if stretch is not None:
                least_sequence = stretch.next_log_sequence
        return read

    def _read(self, data_log: int, least_sequence: int) -> _Stretch | None:
        """Return the readable part of a data log. None: neither its header nor its first records can be determined.

        least_sequence: the log sequence behind the previous data log.
        """
        file = self._disk.open_for_reading(data_log_name(data_log))
        try:
            header = self._header(data_log, file, least_sequence)
            return self._stretch(file, header) if header is not None else None
        finally:
            file.close()

    def _header(self, data_log: int, file: File, least_sequence: int) -> DataLogHeader | None:
        """Return the header. If its bytes are damaged, return the header that two consecutive records prove."""
        data = file.read(0, DATA_LOG_HEADER_BYTES)
        try:
            header = decode_data_log_header(data)
        except RecordDamaged:
            return self._proven_header(data_log, file, least_sequence)
        return header if header.data_log == data_log and header.store_id == self._store_id else None

    def _proven_header(self, data_log: int, file: File, least_sequence: int) -> DataLogHeader | None:
        """Return the header that the first two records prove. None: they do not.

        If the salt is intact, any record verifies with it. If the salt is damaged, it is computed from the first
        record, whose checksum continues from the salt; the second record confirms it. The first log sequence is that of
        the first record. If that record is damaged, the first log sequence is the one in the damaged header, provided
        that it lies between the previous data log and the first intact record.
        """
        data = file.read(0, DATA_LOG_HEADER_BYTES + PART_BYTES_MAX)
        header = DataLogHeader(int.from_bytes(data[12:16], "little"), self._store_id, data_log, 0, 0, 0)
        found = next(find_records(file, header, DATA_LOG_HEADER_BYTES), None)
        if found is None:
            first = data[DATA_LOG_HEADER_BYTES:]
            length = int.from_bytes(first[4:8], "little")
            if not HEADER_BYTES <= length <= len(first):
                return None
            header = header._replace(salt=initial_of(first[4:length], int.from_bytes(first[:4], "little")))
            found = next(find_records(file, header, DATA_LOG_HEADER_BYTES), None)
            if found is None or record_at(file, header, DATA_LOG_HEADER_BYTES + length) is None:
                return None
            if found[1].kind not in (STATE, LOST):
                return None  # no data log begins so: everything has moved, and is not where other records say
        offset, record = found
        noted = int.from_bytes(data[40:48], "little")
        is_first = offset == DATA_LOG_HEADER_BYTES
        first_log_sequence = (
            record.log_sequence if is_first else min(max(noted, least_sequence), record.log_sequence - 1)
        )
        return header._replace(epoch=record.epoch, first_log_sequence=first_log_sequence)

    def _stretch(self, file: File, header: DataLogHeader) -> _Stretch:
        places: list[_Place] = []
        offset, epoch = DATA_LOG_HEADER_BYTES, header.epoch
        due, next_due = header.first_log_sequence, header.first_log_sequence
        follows: int | None = due
        while True:
            walk = RecordWalk(file, header, offset, next_log_sequence=follows)
            for _, record, head in walk:
                self._note(header.data_log, record, head)
            self.durable_end = max(self.durable_end, walk.durable_end)
            offset, epoch = walk.end, max(epoch, walk.epoch)
            next_due = walk.next_log_sequence if walk.next_log_sequence is not None else next_due
            problem = walk.problem or "zeros where records were"
            is_whole = walk.is_sealed or offset == file.size()
            found = None if is_whole else next(find_records(file, header, offset + 1), None)
            is_odd = found is not None and (found[0] - offset < HEADER_BYTES or found[1].log_sequence <= next_due)
            if found is None or is_odd or record_at(file, header, offset) is not None:
                return _Stretch(header, places, offset, next_due, epoch, is_whole, problem)
            records = found[1].log_sequence - next_due
            places.append(_Place(offset, found[0] - offset, next_due, epoch, records, problem))
            offset, follows = found[0], None

    def _note(self, data_log: int, record: Header, head: bytes) -> None:
        if record.kind in (STATE, DROP):
            try:
                named = decode_state(head[HEADER_BYTES:]).data_logs
            except RecordDamaged:
                return
            if record.kind == STATE:
                self._existing = {*named, data_log}
            else:
                self._dropped.update(named)

    # ------------------------------------------------------------------ writing

    def _patch(self, data_log: int, stretch: _Stretch, later: _Stretch | None) -> None:
        file = self._disk.open(data_log_name(data_log))
        try:
            data = encode_header(stretch.header)
            if file.read(0, DATA_LOG_HEADER_BYTES) != data:
                self._write(file, data_log, 0, data, DATA_LOG_HEADER_BYTES, 0, "the header was made again")
            for place in stretch.places:
                lost = encode_lost(stretch.header.salt, place.sequence, place.epoch, place.records, place.length)
                self._write(file, data_log, place.offset, lost, place.length, place.records, place.problem)
            if later is not None:
                self._finish(file, data_log, stretch, later.header.first_log_sequence)
            file.sync()
        finally:
            file.close()

    def _finish(self, file: File, data_log: int, stretch: _Stretch, next_first: int) -> None:
        """End a data log before damage with no intact record behind it. The journal goes on in the next data log."""
        records = next_first - stretch.next_log_sequence
        is_durable = (data_log << OFFSET_BITS | stretch.end) < self.durable_end
        is_sealed = stretch.is_whole and stretch.end != file.size()
        if records < 0 or not is_durable or is_sealed or (stretch.is_whole and not records):
            return
        # The next data log has begun, so this one has ended, and no part of its size is preallocated space.
        lost_bytes = file.size() - stretch.end
        used = used_bytes(file, stretch.end)
        unkept_bytes = used - self._copy(file, data_log, stretch.end, used)
        file.truncate(stretch.end)
        if records:
            file.seek(stretch.end)
            file.append(encode_lost(stretch.header.salt, stretch.next_log_sequence, stretch.epoch, records, LOST_BYTES))
        self._places.append(DamagedPlace(data_log, stretch.end, lost_bytes, records, stretch.problem, unkept_bytes))

    def _write(
        self, file: File, data_log: int, offset: int, data: bytes, length: int, records: int, problem: str
    ) -> None:
        unkept_bytes = max(len(data) - self._copy(file, data_log, offset, length), 0)
        file.seek(offset)
        file.append(data)
        self._places.append(DamagedPlace(data_log, offset, length if records else 0, records, problem, unkept_bytes))

    def _copy(self, file: File, data_log: int, offset: int, length: int) -> int:
        """Copy damaged bytes to the quarantine; return of how many bytes it has a copy."""
        data, name = file.read(offset, min(length, PART_BYTES_MAX)), damage_name(data_log, offset)
        if not data:
            return 0
        # The quarantine may have a copy of this name already, from an earlier repair at this place.
        is_there = self._disk.exists(name)
        is_kept = is_copy(self._disk, name, data) if is_there else quarantine_bytes(self._disk, name, data)
        return len(data) if is_kept else 0

    def _used_bytes(self, data_log: int) -> int:
        with closing(self._disk.open_for_reading(data_log_name(data_log))) as file:
            return used_bytes(file, 0)

    def _replace(self, data_log: int, read: dict[int, _Stretch | None], problem: str, unkept_bytes: int = 0) -> None:
        """Replace a data log by one that has only a lost record."""
        known = sorted((other, stretch) for other, stretch in read.items() if stretch is not None)
        later = next(stretch for other, stretch in known if other > data_log)
        earlier = next((stretch for other, stretch in reversed(known) if other < data_log), None)
        behind = later.header.first_log_sequence
        first = min(earlier.next_log_sequence, behind) if earlier is not None else behind
        epoch = earlier.epoch if earlier is not None else later.header.epoch
        header = DataLogHeader(self._random_salt(), self._store_id, data_log, epoch, first, 0)
        file = self._disk.open(data_log_name(data_log), create=True)
        try:
            lost = encode_lost(header.salt, first, epoch, behind - first, LOST_BYTES)
            file.append(encode_header(header) + lost)
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(JOURNAL)
        read[data_log] = _Stretch(header, [], DATA_LOG_HEADER_BYTES + LOST_BYTES, behind, epoch, True, problem)
        self._places.append(DamagedPlace(data_log, 0, 0, behind - first or None, problem, unkept_bytes))
