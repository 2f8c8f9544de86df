"""The quarantine: copies of damaged bytes, so that nothing is deleted that somebody may want to examine.

The quarantine is bounded. Once it has its maximum of parts, nothing is added, and damaged bytes stay where they are.
The library never reads it; delete it at any time.
"""

from __future__ import annotations

from typing import Final

from ..disk.disk import Disk
from ..disk.layout import QUARANTINE, damage_name
from ..format.properties import decode_properties
from ..format.record import RecordDamaged
from ..journal.reading import Region, read_regions

PART_BYTES_MAX: Final = 1 << 20
"""Most bytes of one damaged record that are copied."""
PARTS_MAX: Final = 64


def set_aside(disk: Disk, name: str, data: bytes) -> bool:
    """Keep a copy of damaged bytes under a name, durable on return. False: the quarantine is full."""
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
    return set_aside(disk, damage_name(region.data_log, region.offset), data)
