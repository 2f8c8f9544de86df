"""Scan: read the journal of another process, and yield its intact records, in order, and each damaged place.

Recovery stops where records are no longer valid, because it must not guess. A scan goes on behind the damage, at the
next record that verifies. It only reads. A process may be writing meanwhile: a half written record at the end is a tail
and no damage, and data logs that the process deletes are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ..disk.disk import Disk, File
from ..disk.layout import JOURNAL, data_log_id, data_log_name
from ..format.record import MESSAGE, Header, RecordDamaged, decode_slice
from .data_log import DATA_LOG_HEADER_BYTES, DataLogHeader, RecordWalk, crc_of, find_records, record_at, used_bytes

RELISTINGS_MAX: Final = 3
"""How often the directory is listed again because a data log was deleted meanwhile. After that it is reported."""
LOOKS_MAX: Final = 3
"""How often a scan looks behind the end of a data log that grows meanwhile. After that the rest is left unseen."""


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record whose head verifies."""

    offset: int
    header: Header
    head: bytes
    """The record without a slice's messages."""
    bad_messages: tuple[int, ...] = ()
    """Places in the slice, from 0, of messages that do not verify."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no record. With a length of 0: a place where records are missing."""

    offset: int
    length: int
    problem: str
    is_tail: bool = False
    """Whether nothing behind it verifies, as where a crash, or this scan, has caught a write half done."""


def open_data_logs(disk: Disk, after: int = 0) -> Iterator[tuple[int, File | OSError]]:
    """Yield the id and the open file of each data log with an id above `after`, in order.

    A file stays open until the next but one is yielded. If a data log can't be opened, its error is yielded.
    """
    relistings = 0
    opened: list[File] = []
    ids = _listed(disk, after)
    try:
        while ids:
            data_log = ids.pop(0)
            try:
                file = disk.open_for_reading(data_log_name(data_log))
            except OSError as error:
                if isinstance(error, FileNotFoundError) and relistings < RELISTINGS_MAX:
                    relistings += 1
                    ids = _listed(disk, after)
                    continue
                yield data_log, error
            else:
                opened.append(file)
                if len(opened) > 2:
                    opened.pop(0).close()
                yield data_log, file
            after, relistings = data_log, 0
    finally:
        for file in opened:
            file.close()


def _listed(disk: Disk, after: int) -> list[int]:
    ids = filter(None, map(data_log_id, disk.list(JOURNAL)))
    return sorted(data_log for data_log in ids if data_log > after)


def _nobody(offset: int) -> None:
    """Do nothing about the unseen rest of a data log."""


def scan(
    file: File,
    header: DataLogHeader,
    *,
    offset: int | None = None,
    next_log_sequence: int | None = None,
    on_unseen: Callable[[int], object] = _nobody,
) -> Iterator[FoundRecord | Damage]:
    """Read a data log to its end and verify every byte. Without damage this is one pass, in reads of 1 MiB.

    offset, next_log_sequence: begin at that record, with that log sequence, instead of the first. on_unseen: called
        with an offset if the scan ends there although whole records follow, because the owner writes faster than the
        space behind the end can be searched.
    """
    looks = 0
    offset = DATA_LOG_HEADER_BYTES if offset is None else offset
    due: int | None = header.first_log_sequence if next_log_sequence is None else next_log_sequence
    expected = header.first_log_sequence if next_log_sequence is None else next_log_sequence
    while True:
        walk = RecordWalk(file, header, offset, next_log_sequence=due, verify_from=0)
        for at, record, head in walk:
            yield FoundRecord(at, record, head)
        offset, due, expected = walk.end, walk.next_log_sequence, walk.next_log_sequence or expected
        if walk.is_sealed:
            if used := used_bytes(file, offset):
                yield Damage(offset, used, f"{used} bytes behind the seal")
            return
        # Search first, then look again: any whole record behind this place was written after the one here. So if the
        # record here does not verify even then, no live process is just writing it.
        behind = next(find_records(file, header, offset + 1), None)
        if any(True for _ in RecordWalk(file, header, offset, next_log_sequence=due, verify_from=0)):
            looks += 1
            if looks == LOOKS_MAX:
                on_unseen(offset)
                return
            continue
        problem = walk.problem or "zeros where records were"
        if behind is None:
            if used := used_bytes(file, offset):
                yield Damage(offset, used, problem, is_tail=True)
            return
        at_offset = record_at(file, header, offset)
        if at_offset is None:
            yield _gap(offset, behind, expected, problem)
            offset, due = behind[0], None
            continue
        record, head = at_offset
        found = _found_by_halves(file, offset, record, head, problem)
        yield found
        if isinstance(found, Damage) and not found.length:
            due = None
        else:
            offset, due = offset + record.length, record.log_sequence + 1


def _gap(offset: int, behind: tuple[int, Header], expected: int, problem: str) -> Damage:
    """Return the damage from an offset up to the next whole record. expected: the log sequence that was due."""
    next_offset, next_header = behind
    lost = max(next_header.log_sequence - expected, 1)
    return Damage(offset, next_offset - offset, f"{problem}; records up to offset {next_offset} are lost: {lost}")


def _found_by_halves(file: File, offset: int, record: Header, head: bytes, problem: str) -> FoundRecord | Damage:
    """Return the record at which a walk stopped although its head verifies, or the damage there."""
    try:
        bad_messages = _bad_messages(file, offset, record, head) if record.kind == MESSAGE else ()
    except RecordDamaged:
        return Damage(offset, record.length, problem)
    return FoundRecord(offset, record, head, bad_messages) if bad_messages else Damage(offset, 0, problem)


def _bad_messages(file: File, offset: int, record: Header, head: bytes) -> tuple[int, ...]:
    table = decode_slice(record, head).table
    begin = offset + record.head_bytes
    bad_messages = []
    for index in range(record.entries):
        crc, length = table[3 * index : 3 * index + 2]
        if crc_of(file, begin, length) != crc:
            bad_messages.append(index)
        begin += length
    return tuple(bad_messages)
