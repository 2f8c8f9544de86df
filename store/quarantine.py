"""The quarantine: copies of damaged bytes, so that nothing is deleted that somebody may want to examine.

The quarantine is bounded. Once it has its maximum of parts, nothing is added, and damaged bytes stay where they are.
The library never reads it; delete it at any time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from .disk.disk import Disk
from .disk.layout import QUARANTINE, damage_name
from .format.message_properties import decode_properties
from .format.record import RecordDamaged
from .journal.regions import Region, read_regions

PART_BYTES_MAX: Final = 1 << 20
"""Most bytes of one damaged record that are copied."""
PARTS_MAX: Final = 64

_UNFINISHED: Final = ".part"
"""Ends the name of a copy that is not complete yet. One that a crash leaves takes no place of a part, and is made again
with the same damage.
"""


def quarantine_bytes(disk: Disk, name: str, data: bytes) -> bool:
    """Keep a copy of damaged bytes under a name, durable on return. False: the quarantine is full.

    A part that has the name already stays as it is, whatever its bytes are: see is_copy. A copy has its name only once
    it is complete, so that one which found no space is not taken for it.
    """
    disk.make_directory(QUARANTINE)
    if disk.exists(name):
        return True
    with suppress(FileNotFoundError):
        disk.remove(name + _UNFINISHED)
    if sum(not kept.endswith(_UNFINISHED) for kept in disk.list(QUARANTINE)) >= PARTS_MAX:
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
