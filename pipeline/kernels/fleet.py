"""The stores of many directories, and a snapshot of the data logs of each journal that are to be read.

Planning reads the header of each data log. It also reads the newest data logs as far as needed to find the end of the
journal, as an open would, and the list of existing data logs. It writes nothing and takes no lock, so the owner may
continue.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...dispatch.store_directories import matching, stores_in
from ...store.disk.disk import Disk, File, OsDisk
from ...store.disk.layout import JOURNAL, check_path, data_log_id, data_log_name
from ...store.errors import SettingsError
from ...store.format.record import DROP, HEADER_BYTES, STATE, RecordDamaged, log_sequence_behind
from ...store.format.state_record import decode_state
from ...store.journal.data_log import (
    DATA_LOG_HEADER_BYTES,
    DataLogHeader,
    RecordWalk,
    UnknownVersion,
    attested_behind,
    decode_data_log_header,
)
from ...store.journal.scan import RELISTINGS_MAX, Damage, scan
from ...store.numbering import OFFSET_BITS

Directories = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, several, or a glob. A path is the directory given to `forebay.open`, or the directory of one broker in
it.
"""


class Store(NamedTuple):
    """One broker's store."""

    broker: str
    root: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part of one data log that is to be read."""

    data_log: int
    size_bytes: int = 0
    """Size when the part was planned."""
    is_newest: bool = True
    """Whether bytes at its end that do not verify are a tail. In other data logs they are damage."""
    next_log_sequence: int | None = None
    """Log sequence with which the next data log begins, if that has the next id."""
    begin: int = DATA_LOG_HEADER_BYTES
    """Offset of the first requested record."""
    end: int | None = None
    """Offset behind the last record. None: to the end."""
    salt: int | None = None
    """Salt of the planned data log, to detect a later one with the same id. None: any salt is fine."""
    problem: str | None = None
    """Why nothing can be read."""


def find_stores(directories: Directories) -> list[Store]:
    """Return every store in the directories, once, sorted. Raises SettingsError for a directory that is not a store."""
    found: dict[str, Store] = {}
    for directory in _paths(directories):
        for disk in stores_in(directory):
            root = os.path.realpath(disk.root)
            found[root] = Store(os.path.basename(root), root)
    return sorted(found.values())


def _paths(directories: Directories) -> Iterator[str]:
    given = [directories] if isinstance(directories, str | os.PathLike) else list(directories)
    if not given:
        raise SettingsError("no directory was named")
    for one in given:
        yield from matching(check_path("directory", one).removeprefix("file://"))


def plan(disk: Disk) -> list[Part]:
    """Return the data logs of a journal in order, each with the part to read, including missing ones."""
    for _ in range(RELISTINGS_MAX):
        try:
            return _plan(disk)
        except FileNotFoundError:
            continue  # the owner deleted a data log after the listing
    return _plan(disk)


class _Seen(NamedTuple):
    part: Part
    header: DataLogHeader | None


def _plan(disk: Disk) -> list[Part]:
    seen: list[_Seen] = []
    unreadable: list[Part] = []
    for data_log in sorted(filter(None, map(data_log_id, disk.list(JOURNAL)))):
        try:
            seen.append(_seen(disk, data_log))
        except FileNotFoundError:
            raise
        except OSError as error:
            problem = f"it cannot be read ({error.strerror or error})"
            unreadable.append(Part(data_log, is_newest=False, problem=problem))
    for at, (part, header) in enumerate(seen[:-1]):
        later = seen[at + 1]
        follows = later.header is not None and later.part.data_log == part.data_log + 1
        first = later.header.first_log_sequence if follows and later.header is not None else None
        seen[at] = _Seen(replace(part, is_newest=False, next_log_sequence=first), header)
    seen = _without_tail(disk, seen)
    existing = _existing(disk, seen)
    parts = [*(found.part for found in seen), *unreadable]
    if existing is None:
        return sorted(parts, key=lambda part: part.data_log)
    state_log, data_logs = existing
    parts = [part for part in parts if part.data_log in data_logs or part.data_log > state_log]
    there = {part.data_log for part in parts}
    parts += [
        Part(data_log, is_newest=False, problem="the data log is missing, and was not dropped")
        for data_log in data_logs - there
    ]
    return sorted(parts, key=lambda part: part.data_log)


def _seen(disk: Disk, data_log: int) -> _Seen:
    file = disk.open_for_reading(data_log_name(data_log))
    try:
        size = file.size()
        try:
            header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        except (RecordDamaged, UnknownVersion):
            return _Seen(Part(data_log, size), None)
        return _Seen(Part(data_log, size, salt=header.salt), header)
    finally:
        file.close()


def _without_tail(disk: Disk, seen: list[_Seen]) -> list[_Seen]:
    """Leave out the data logs behind the place where an open would end the journal.

    A power cut can leave an incomplete data log before the newest one, sealed and with whole ones behind it. The
    durable end tells whether that is a tail: the tail begins at the first place that does not verify and that no
    record knows to be durable. It reads the data logs completely that are not known to be durable: the last one or two.
    """
    ends_at: int | None = None
    durable_end = max((_durable_end(disk, found) for found in seen[-1:]), default=0)
    for at in range(len(seen) - 2, -1, -1):
        part = seen[at].part
        if durable_end >> OFFSET_BITS > part.data_log:
            break
        durable_end = max(durable_end, _durable_end(disk, seen[at]))
        end = _incomplete_at(disk, seen[at])
        if end is not None and part.data_log << OFFSET_BITS | end >= durable_end:
            ends_at = at
    if ends_at is None:
        return seen
    part, header = seen[ends_at]
    return [*seen[:ends_at], _Seen(replace(part, is_newest=True, next_log_sequence=None), header)]


def _incomplete_at(disk: Disk, found: _Seen) -> int | None:
    """Return the first place of a data log that is no record.

    None if it leads to the next data log. Reads all of it.
    """
    part, header = found
    if header is None:
        return 0
    file = disk.open_for_reading(data_log_name(part.data_log))
    try:
        end, next_log_sequence = DATA_LOG_HEADER_BYTES, header.first_log_sequence
        for record in scan(file, header):
            if isinstance(record, Damage) or record.bad_messages:
                return record.offset
            end = record.offset + record.header.length
            next_log_sequence = log_sequence_behind(record.header, record.head)
        return None if part.next_log_sequence in (None, next_log_sequence) else end
    finally:
        file.close()


def _durable_end(disk: Disk, found: _Seen) -> int:
    """Return the greatest durable end that an intact record of the data log attests."""
    if found.header is None:
        return 0
    file = disk.open_for_reading(data_log_name(found.part.data_log))
    try:
        return attested_behind(file, found.header, DATA_LOG_HEADER_BYTES)
    finally:
        file.close()


def _existing(disk: Disk, seen: list[_Seen]) -> tuple[int, set[int]] | None:
    """Return (data log of the newest state record, the existing data logs by it and by later drop records)."""
    dropped: set[int] = set()
    for part, header in reversed(seen):
        if header is None:
            continue
        file = disk.open_for_reading(data_log_name(part.data_log))
        try:
            existing = _stated(file, header, dropped)
        except RecordDamaged:
            return None
        finally:
            file.close()
        if existing is not None:
            return part.data_log, (existing | {part.data_log}) - dropped
    return None


def _stated(file: File, header: DataLogHeader, dropped: set[int]) -> set[int] | None:
    """Return the data logs that the state record of a data log names; add those of its drop records to `dropped`."""
    existing: set[int] | None = None
    for _, record, head in RecordWalk(file, header, DATA_LOG_HEADER_BYTES, next_log_sequence=header.first_log_sequence):
        if record.kind == STATE:
            existing = set(decode_state(head[HEADER_BYTES:]).data_logs)
        elif record.kind == DROP:
            dropped.update(decode_state(head[HEADER_BYTES:]).data_logs)
    return existing


def disk_of(store: Store) -> OsDisk:
    return OsDisk(store.root)
