"""The shutdown marker in kr-store/state: which journal the index belongs to, and how the last process ended.

Without the marker the next open makes a full replay. The marker is replaced as a whole (write, sync, rename, sync of
the directory), so a crash leaves the old one or the new one.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from ..disk.disk import NO_SPACE, Disk
from ..disk.layout import STATE_DIRECTORY
from ..environment.late_log import LateLogger

logger = LateLogger("forebay.store")

_NAME: Final = f"{STATE_DIRECTORY}/mark"
_NEW_NAME: Final = f"{STATE_DIRECTORY}/mark.new"
_FORM: Final = struct.Struct("<8s16sIQB")
_MAGIC: Final = b"FBMARK01"


class ShutdownMarker(NamedTuple):
    store_id: bytes
    epoch: int
    durable_end: int
    """The durable end of the journal when the marker was written."""
    is_clean: bool


def read_shutdown_marker(disk: Disk) -> ShutdownMarker | None:
    """Return the marker. None: there is none, or none that verifies."""
    if not disk.exists(_NAME):
        return None
    file = disk.open_for_reading(_NAME)
    try:
        data = file.read(0, _FORM.size + 4)
    finally:
        file.close()
    if len(data) != _FORM.size + 4 or zlib.crc32(data[:-4]).to_bytes(4, "little") != data[-4:]:
        return None
    magic, store_id, epoch, durable_end, is_clean = _FORM.unpack(data[:-4])
    return ShutdownMarker(store_id, epoch, durable_end, bool(is_clean)) if magic == _MAGIC else None


def write_shutdown_marker(disk: Disk, marker: ShutdownMarker) -> None:
    if disk.exists(_NEW_NAME):
        disk.remove(_NEW_NAME)
    data = _FORM.pack(_MAGIC, marker.store_id, marker.epoch, marker.durable_end, marker.is_clean)
    file = disk.open(_NEW_NAME, create=True)
    try:
        file.append(data + zlib.crc32(data).to_bytes(4, "little"))
        file.sync()
    finally:
        file.close()
    disk.rename(_NEW_NAME, _NAME)
    disk.sync_directory(STATE_DIRECTORY)


def leave_shutdown_marker(disk: Disk, marker: ShutdownMarker) -> None:
    """Write the marker of a clean shutdown. A full disk may have no space for it; then the next open replays."""
    try:
        write_shutdown_marker(disk, marker)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        logger.warning(
            "the marker of a clean shutdown found no space: the next open replays the journal",
            event="clean_mark_without_space",
        )
