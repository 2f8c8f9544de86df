"""Finds how far a journal can be read from a place: the next batch of a stream, and the lag of its reader."""

from __future__ import annotations

from typing import NamedTuple

from ...store.disk.disk import Disk, File
from ...store.disk.layout import JOURNAL, data_log_id, data_log_name
from ...store.format.record import HEADER_BYTES, STATE, RecordDamaged
from ...store.journal.data_log import DATA_LOG_HEADER_BYTES, RecordWalk, decode_data_log_header, seal_of


class Place(NamedTuple):
    """In one journal: everything before this offset of this data log is read."""

    data_log: int
    offset: int


def ahead(disk: Disk, start: Place, limit_bytes: int | None) -> tuple[Place, list[int], int]:
    """Return (the place up to which one may read, the data logs between, bytes).

    A limit is exceeded by at most one record.

    Reads the directory of a sealed data log, and the heads of another. A deleted data log is skipped here; reading it
    reports that.
    """
    place, passed, size = start, list[int](), 0
    while True:
        ids = sorted(filter(None, map(data_log_id, disk.list(JOURNAL))))
        later = next((data_log for data_log in ids if data_log > place.data_log), None)
        has_next = later is not None and _has_begun(disk, later)
        try:
            file = disk.open_for_reading(data_log_name(place.data_log))
        except FileNotFoundError:
            if later is None:
                return place, passed, size
        else:
            try:
                left = None if limit_bytes is None else limit_bytes - size
                end, is_end = _end_of(file, place, left)
            finally:
                file.close()
            size += end - place.offset
            place = Place(place.data_log, end)
            if not is_end:
                return place, passed, size
        if not has_next or later is None or (limit_bytes is not None and size >= limit_bytes):
            return place, passed, size
        if place.data_log != start.data_log:
            passed.append(place.data_log)
        place = Place(later, DATA_LOG_HEADER_BYTES)


def _has_begun(disk: Disk, data_log: int) -> bool:
    """Return whether the first record exists, so that the data log before it is finished."""
    try:
        file = disk.open_for_reading(data_log_name(data_log))
    except FileNotFoundError:
        return False
    try:
        header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
        first = next(
            iter(RecordWalk(file, header, DATA_LOG_HEADER_BYTES, next_log_sequence=header.first_log_sequence)), None
        )
        return first is not None and first[1].kind == STATE
    except RecordDamaged:
        return False
    finally:
        file.close()


def _end_of(file: File, place: Place, left: int | None) -> tuple[int, bool]:
    """Return (end of the last record that fits the remaining bytes, whether no record follows it)."""
    header = decode_data_log_header(file.read(0, DATA_LOG_HEADER_BYTES))
    seal = seal_of(file, header)
    if seal is not None and left is None:
        return file.size(), True
    if seal is not None and left is not None:
        begins = memoryview(seal[2])[HEADER_BYTES:-12].cast("I").tolist()
        ends = [begin for begin in (*begins[1:], seal[0], file.size()) if begin > place.offset]
        fitting = [end for end in ends if end - place.offset <= left] or ends[:1]
        end = fitting[-1] if fitting else place.offset
        return end, end == file.size() or not ends
    end = place.offset
    for _ in (walk := RecordWalk(file, header, place.offset)):
        if left is not None and walk.end - place.offset > left and end > place.offset:
            return end, False
        end = walk.end
    return end, True
