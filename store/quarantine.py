"""The quarantine: data logs and damaged bytes that can't be used, so that somebody can examine them.

It has at most DATA_LOGS_MAX data logs, and at most PARTS_MAX *parts*, which are copies of damaged bytes. The newest
data logs are kept, and a warning names each older one that is deleted for them. If there are PARTS_MAX parts, none is
added: the damaged bytes of a message stay where they are, and a repair reports of how many bytes there is no copy.

Nothing here is served again. Opening reads only the names of data logs, and a repair compares a part with the bytes
that it would copy under the same name. Delete the quarantine at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from .disk.disk import Disk
from .disk.layout import JOURNAL, QUARANTINE, damage_name, data_log_id, data_log_name
from .environment.late_log import LateLogger
from .format.message_properties import decode_properties
from .format.record import RecordDamaged
from .journal.regions import Region, read_regions

logger = LateLogger("forebay.store.recovery")

DATA_LOGS_MAX: Final = 16
PART_BYTES_MAX: Final = 1 << 20
"""Most bytes of one damaged record that are copied."""
PARTS_MAX: Final = 64

_UNFINISHED: Final = ".part"
"""Ends the name of a copy that is not complete yet. If a crash leaves one, it does not count as a part, and is made
again when the same damage is met.
"""


def quarantined_data_logs(disk: Disk) -> list[int]:
    """Return the ids of the data logs in the quarantine, the oldest first."""
    return sorted(filter(None, map(data_log_id, disk.list(QUARANTINE))))


def data_logs_kept_of(disk: Disk, added: Iterable[int]) -> set[int]:
    """Return which of these data logs will be left in the quarantine after all of them were moved there."""
    there = set(quarantined_data_logs(disk))
    return set(sorted(there.union(added))[-DATA_LOGS_MAX:]) - there


def quarantine_data_log(disk: Disk, data_log: int) -> None:
    """Move a data log out of the journal into the quarantine, durable on return.

    If it has more than DATA_LOGS_MAX then, the oldest is deleted, and a warning names it. If it has a data log of that
    id already, this one stays, and the one in the journal is deleted: it is the one with which a repair replaced it,
    without messages.
    """
    disk.make_directory(QUARANTINE)
    if disk.exists(_data_log_name_here(data_log)):
        disk.remove(data_log_name(data_log))
    else:
        disk.rename(data_log_name(data_log), _data_log_name_here(data_log))
    for oldest in quarantined_data_logs(disk)[:-DATA_LOGS_MAX]:
        disk.remove(_data_log_name_here(oldest))
        logger.warning(
            "data-%d.log was deleted from the quarantine, which keeps %d data logs",
            oldest,
            DATA_LOGS_MAX,
            event="quarantined_data_log_deleted",
        )
    disk.sync_directory(QUARANTINE)
    disk.sync_directory(JOURNAL)


def _data_log_name_here(data_log: int) -> str:
    return f"{QUARANTINE}/{data_log_name(data_log).rpartition('/')[2]}"


def quarantine_bytes(disk: Disk, name: str, data: bytes) -> bool:
    """Keep a copy of damaged bytes under a name, durable on return. False: the quarantine has its maximum of parts.

    A part that has the name already stays as it is, whatever its bytes are: see is_copy. A copy has its name only once
    it is complete, so that one which found no space is not taken for it.
    """
    disk.make_directory(QUARANTINE)
    if disk.exists(name):
        return True
    with suppress(FileNotFoundError):
        disk.remove(name + _UNFINISHED)
    others = disk.list(QUARANTINE)
    if sum(not other.endswith(_UNFINISHED) and data_log_id(other) is None for other in others) >= PARTS_MAX:
        return False
    file = disk.open(name + _UNFINISHED, create=True)
    try:
        try:
            file.append(data[:PART_BYTES_MAX])
            file.sync()
        finally:
            file.close()
        disk.rename(name + _UNFINISHED, name)
    except OSError:
        with suppress(OSError):
            disk.remove(name + _UNFINISHED)
        raise
    disk.sync_directory(QUARANTINE)
    return True


def is_copy(disk: Disk, name: str, data: bytes) -> bool:
    """Return whether a part has just these bytes, at most PART_BYTES_MAX. FileNotFoundError: there is no such part."""
    file = disk.open(name)
    try:
        return file.size() == len(data) and file.read(0, len(data)) == data
    finally:
        file.close()


def quarantine_message(disk: Disk, region: Region) -> bool:
    """Keep a copy of the record of a message that does not verify or can't be decoded.

    Return False if the message can be read after all, if the disk failed to read it (which may pass), or if the
    quarantine is full.
    """
    messages, _ = read_regions([region])
    try:
        data = region.file.read(region.offset, region.length)
        if messages:
            decode_properties(messages[0][1])
            return False
    except OSError:
        return False
    except RecordDamaged:
        pass  # its checksum is right, but its headers can't be decoded
    return quarantine_bytes(disk, damage_name(region.data_log, region.offset), data)
