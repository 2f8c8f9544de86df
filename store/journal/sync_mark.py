"""SyncMark: how far the journal is known to be on the device, in a file of its own in kr-store/state.

Each record of the journal says how far syncs had come when it was written. So later records tell whether a damaged
place was durable. But no record follows the last one. So each sync also writes its durable end into the mark, without
syncing the mark. A kill leaves the newest durable end, and a power cut perhaps an older one. Each of them is true,
because the bytes before it were on the device when it was written.

A mark belongs to one life of a store: its checksums begin with the id and the epoch of the shutdown marker. With
another marker, or none, the mark says nothing. The mark is optional: if it can't be written or read, recovery uses the
journal, the index and the marker.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final
from zlib import crc32

from ..disk.disk import Disk, File
from ..disk.layout import DATA_LOG_ID_MAX, STATE_DIRECTORY
from ..environment.late_log import LateLogger
from ..numbering import OFFSET_BITS
from .shutdown_marker import ShutdownMarker, read_shutdown_marker

logger = LateLogger("forebay.store")

SYNC_MARK: Final = f"{STATE_DIRECTORY}/synced"
SLOT_BYTES: Final = 16
SLOTS: Final = 256
"""Positions are written to the slots in turn, so that each is an append.

A seek would release the interpreter's lock, which costs 5 ms beside a thread that computes.
"""
_SLOT: Final = struct.Struct("<QI4x")
_END: Final = struct.Struct("<Q")


class SyncMark:
    """The sync mark of the present life. Requires for all methods: one thread at a time."""

    def __init__(self, disk: Disk, store_id: bytes, epoch: int) -> None:
        """Begin a new mark.

        epoch: the epoch that the shutdown marker is about to get. Writing the marker will sync the directory.
        """
        self._disk = disk
        self._seed = _seed(store_id, epoch)
        self._slots_left = 0
        self._file: File | None = None
        # The file's own `append`, bound once so that no sync looks it up. None: there is no file.
        self._append: Callable[[bytes], None] | None = None
        self._is_closed = False
        self._logged: set[int | None] = set()
        # Number of syncs whose durable end could not be written.
        self.failures = 0
        self._begin_again()

    def note(self, durable_end: int) -> None:
        """Write the durable end of the journal. Requires: the sync up to there has returned.

        A failure is counted, and logged once for each cause. The older durable end in the file is still true.
        """
        if not self._slots_left:
            self._begin_again()
        self._slots_left -= 1
        append = self._append
        if append is None:
            self.failures += not self._is_closed
            return
        try:
            append(_SLOT.pack(durable_end, crc32(_END.pack(durable_end), self._seed)))
        except OSError as error:
            self.failures += 1
            self._log(error)

    def sync(self) -> None:
        """Make the mark durable, so that a clean shutdown is durable as a whole. A failure is logged."""
        if self._file is not None:
            try:
                self._file.sync()
            except OSError as error:
                self._log(error)

    def close(self) -> None:
        """Close the file, which stays on disk. A second call does nothing."""
        self._is_closed = True
        self._append = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin_again(self) -> None:
        """Go back to the first slot, or make the file if an earlier attempt failed."""
        self._slots_left = SLOTS
        if self._is_closed:
            return
        try:
            if self._file is None:
                self._file = self._created()
                self._append = self._file.append
            self._file.seek(0)
        except OSError as error:
            self._log(error)

    def _created(self) -> File:
        if self._disk.exists(SYNC_MARK):
            self._disk.remove(SYNC_MARK)
        file = self._disk.open(SYNC_MARK, create=True)
        try:
            # Write the file instead of preallocating it: preallocated space is not mapped, so a file system that has
            # stopped would refuse writes to it.
            file.append(bytes(SLOTS * SLOT_BYTES))
        except OSError:
            file.close()
            raise
        return file

    def _log(self, error: OSError) -> None:
        if error.errno not in self._logged:
            self._logged.add(error.errno)
            logger.warning(
                "%s can't be written (%s): after a kill, damage to the newest records may be taken for a torn tail",
                SYNC_MARK,
                error.strerror or error,
                event="sync_mark_not_written",
            )


def read_sync_mark(disk: Disk, marker: ShutdownMarker | None) -> int:
    """Return the greatest durable end that the life of this marker wrote; 0: none verifies.

    It accepts only what is possible. If the file can't be read, that is logged.
    """
    if marker is None:
        return 0
    try:
        data = _slots(disk)
    except OSError as error:
        logger.warning(
            "%s can't be read (%s): damage to the newest records may be taken for a torn tail",
            SYNC_MARK,
            error.strerror or error,
            event="sync_mark_not_read",
        )
        return 0
    seed = _seed(marker.store_id, marker.epoch)
    used = -(-len(data.rstrip(b"\0")) // SLOT_BYTES) * SLOT_BYTES  # a short life leaves most slots as they were made
    slots = _SLOT.iter_unpack(data[: min(used, len(data) // SLOT_BYTES * SLOT_BYTES)])
    possible = [slot for slot in slots if 0 < slot[0] >> OFFSET_BITS <= DATA_LOG_ID_MAX]
    for durable_end, crc in sorted(possible, reverse=True):  # nearly always the first one verifies
        if crc == crc32(_END.pack(durable_end), seed):
            return int(durable_end)
    return 0


def read_durable_end(disk: Disk) -> int:
    """Return the durable end of the journal, by what kr-store/state says; 0: nothing.

    If a process may be writing, ask before reading the journal: then the journal has everything up to it.
    """
    try:
        marker = read_shutdown_marker(disk)
    except OSError:
        return 0
    return max(marker.durable_end, read_sync_mark(disk, marker)) if marker is not None else 0


def _slots(disk: Disk) -> bytes:
    if not disk.exists(SYNC_MARK):
        return b""
    file = disk.open_for_reading(SYNC_MARK)
    try:
        return file.read(0, SLOTS * SLOT_BYTES)
    finally:
        file.close()


def _seed(store_id: bytes, epoch: int) -> int:
    return crc32(store_id + epoch.to_bytes(4, "little"))
