"""Leases: a named reader of the journal asks that what it has not read yet is not deleted.

A reader is another process, which must not touch anything else of the store. It replaces its file in leases/ whole, as
often as it goes on; the owner looks there before each cleanup. A lease ends by itself at its time, and does not count
while the journal has no room for another data log below `store_limit`. What is damaged there is no lease: a crash
between two writes leaves the old or the new one.

    "FBLEASE1"  data log u32  offset u32  expires u64 (ms)  crc u32
"""

from __future__ import annotations

import re
import struct
from contextlib import closing, suppress
from typing import Final, NamedTuple

from ..disk.disk import Disk
from ..errors import SettingsError
from ..format.record import crc32
from ..late_log import LateLogger

logger = LateLogger("forebay.store")

LEASES: Final = "leases"
LEASES_MAX: Final = 256
"""Leases that are looked at; more are no leases."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PREFIX: Final = "lease-"
_MAGIC: Final = b"FBLEASE1"
_LEASE: Final = struct.Struct("<8sIIQ")
_BYTES: Final = _LEASE.size + 4


class Lease(NamedTuple):
    """A request to keep all data logs from that one on until it expires."""

    name: str
    data_log: int
    offset: int
    """Offset in it up to which the reader has read everything."""
    expires_ms: int


def validate_lease_name(name: str) -> None:
    """Raise SettingsError unless a file may be called so."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"lease={name!r} must be 1 to 64 letters, digits, '-', '_' and '.'")


class LeaseReader:
    """Reads the leases of one store. What keeps it from that is logged once, until it is another thing."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._problem: int | None = None
        """Why the directory could not be read the last time: an errno."""

    def read(self, now_ms: int) -> list[Lease]:
        """Return the leases that have not expired, by name. What cannot be read is none. A read each.

        Where the directory itself cannot be read there may be any, so everything is kept.
        """
        try:
            names = self._disk.list(LEASES)
        except OSError as error:
            if error.errno != self._problem:
                self._problem = error.errno
                logger.warning(
                    "leases/ cannot be read (%s): no data log is discarded", error.strerror, event="leases_unreadable"
                )
            return [Lease("unreadable", 1, 0, now_ms)]
        self._problem = None
        found = []
        for base_name in names[:LEASES_MAX]:
            name = base_name.removeprefix(_PREFIX)
            if name == base_name or not _NAME.fullmatch(name):
                continue
            lease = _read(self._disk, name)
            if lease is not None and lease.expires_ms > now_ms:
                found.append(lease)
        return found


def read_leases(disk: Disk, now_ms: int) -> list[Lease]:
    """Read the leases once, as LeaseReader.read."""
    return LeaseReader(disk).read(now_ms)


def _read(disk: Disk, name: str) -> Lease | None:
    """Return the lease of a file; None: it can't be read, or is not whole."""
    try:
        with closing(disk.open_for_reading(f"{LEASES}/{_PREFIX}{name}")) as file:
            return _decoded(name, file.read(0, _BYTES + 1))
    except OSError:
        return None


def _decoded(name: str, data: bytes) -> Lease | None:
    if len(data) != _BYTES or int.from_bytes(data[_LEASE.size :], "little") != crc32(data[: _LEASE.size]):
        return None
    magic, data_log, offset, expires_ms = _LEASE.unpack_from(data)
    return Lease(name, data_log, offset, expires_ms) if magic == _MAGIC else None


def write_lease(disk: Disk, lease: Lease) -> None:
    """Replace the lease of that name, all or nothing. Durable on return."""
    validate_lease_name(lease.name)
    data = _LEASE.pack(_MAGIC, lease.data_log, lease.offset, lease.expires_ms)
    disk.make_directory(LEASES)
    part = f"{LEASES}/part-{lease.name}"
    with suppress(FileNotFoundError):
        disk.remove(part)
    file = disk.open(part, create=True)
    try:
        file.append(data + crc32(data).to_bytes(4, "little"))
        file.sync()
    finally:
        file.close()
    disk.rename(part, f"{LEASES}/{_PREFIX}{lease.name}")
    disk.sync_directory(LEASES)


def end_lease(disk: Disk, name: str) -> None:
    """Remove a lease, so that nothing is kept for it any more. One that is not there is passed over."""
    validate_lease_name(name)
    with suppress(FileNotFoundError):
        disk.remove(f"{LEASES}/{_PREFIX}{name}")
        disk.sync_directory(LEASES)
