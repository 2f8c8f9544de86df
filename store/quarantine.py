"""Quarantine: damaged bytes set aside, so that nothing is deleted that somebody may want to look at.

Bounded: when it holds so many parts nothing is added, and what is damaged
stays where it is. Nothing here is ever read again; delete it at will.
"""

from __future__ import annotations

from typing import Final

from .disk import Disk
from .files import QUARANTINE

PART_BYTES_MAX: Final = 1 << 20
"""Of one damaged record, what is copied."""
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
