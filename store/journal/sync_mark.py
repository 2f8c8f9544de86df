"""The sync mark in kr-store/state: how far the journal is known to be on the device, said outside of it.

A record says how far syncs had come when it was written, so damage is told from a torn tail by what follows. Nothing
follows the end. So after each sync its position is written here as well, and not synced: a kill leaves the newest
position, a power cut perhaps an older one, and whichever is found is true, because the bytes that it speaks of were on
the device before it was written.

It belongs to one life of a store: its checksums begin with the epoch that the marker has. With another marker, or
none, it says nothing.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from ..disk.disk import NO_SPACE, Disk, File
from ..disk.layout import STATE_DIRECTORY
from .marker import Marker

NAME: Final = f"{STATE_DIRECTORY}/synced"
SLOT_BYTES: Final = 16
SLOTS: Final = 256
"""They are written in turn, so that a position is an append: to seek gives the interpreter's lock up, which costs 5 ms
beside a thread that computes.
"""
_SLOT: Final = struct.Struct("<QI4x")


class SyncMark:
    """The sync mark of the life that begins. REQUIRES for all of it: one thread at a time."""

    def __init__(self, disk: Disk, store_id: bytes, epoch: int) -> None:
        """epoch: the one that the marker is about to get; the sync of the directory is left to that."""
        self._seed = _seed(store_id, epoch)
        self._slots_left = SLOTS
        self._file: File | None = None
        if disk.exists(NAME):
            disk.remove(NAME)
        file = disk.open(NAME, create=True)
        try:
            file.preallocate(SLOTS * SLOT_BYTES)
        except OSError as error:
            file.close()
            if error.errno not in NO_SPACE:
                raise
        else:
            self._file = file

    def note(self, position: int) -> None:
        """Write down that the journal is on the device up to there. REQUIRES: its syncs have returned.

        A full disk is passed over: an older position is true as well.
        """
        file = self._file
        if file is None:
            return
        if not self._slots_left:
            file.seek(0)
            self._slots_left = SLOTS
        self._slots_left -= 1
        try:
            file.append(_SLOT.pack(position, _checksum(position, self._seed)))
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def close(self) -> None:
        """Close the file. Twice is once."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_sync_mark(disk: Disk, marker: Marker) -> int:
    """Return the greatest position that the life of that marker wrote down; 0: none that verifies."""
    if not disk.exists(NAME):
        return 0
    file = disk.open_for_reading(NAME)
    try:
        data = file.read(0, SLOTS * SLOT_BYTES)
    finally:
        file.close()
    seed = _seed(marker.store_id, marker.epoch)
    slots = _SLOT.iter_unpack(data[: len(data) // SLOT_BYTES * SLOT_BYTES])
    return max((position for position, crc in slots if crc == _checksum(position, seed)), default=0)


def _seed(store_id: bytes, epoch: int) -> int:
    return zlib.crc32(store_id + epoch.to_bytes(4, "little"))


def _checksum(position: int, seed: int) -> int:
    return zlib.crc32(position.to_bytes(8, "little"), seed)
