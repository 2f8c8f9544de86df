"""The quarantine: damaged bytes set aside, so that nothing is deleted that somebody may want to look at.

The quarantine is bounded: when it holds so many parts nothing is added, and what is damaged stays where it is. Nothing
here is ever read again; delete it at will.
"""

from __future__ import annotations

from typing import Final

from ..disk.disk import Disk
from ..disk.layout import QUARANTINE, damage_name
from ..format.properties import decode_properties
from ..format.record import RecordDamaged
from ..journal.reading import Region, read_regions

PART_BYTES_MAX: Final = 1 << 20
"""Bytes of one damaged record that are copied."""
PARTS_MAX: Final = 64


def set_aside(disk: Disk, name: str, data: bytes) -> bool:
    """Keep a copy of damaged bytes under that name, durable on return. False: the quarantine is full."""
    disk.make_directory(QUARANTINE)
    if disk.exists(name):
        return True
    if len(disk.list(QUARANTINE)) >= PARTS_MAX:
        return False
    file = disk.open(name, create=True)
    try:
        file.append(data[:PART_BYTES_MAX])
        file.sync()
    finally:
        file.close()
    disk.sync_directory(QUARANTINE)
    return True


def set_aside_message(disk: Disk, region: Region) -> bool:
    """Keep a copy of the record in which one message lies, when that does not verify or makes no sense.

    False: it can be read after all, the disk failed to read it, which may pass, or the quarantine is full.
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
        pass  # its checksum is right, and its headers make no sense
    return set_aside(disk, damage_name(region.data_log, region.offset), data)
