"""Leases: a named reader of the journal asks that data logs which it has not read yet are kept.

A reader is another process, and must not change anything else of the store. It replaces its file in leases/ as a whole,
each time that it has read further. The owner of the store reads the directory before each cleanup. A lease ends at its
time. Leases keep nothing while the journal has no room for another data log below `store_limit`. A damaged file is no
lease. A crash during a write leaves the old file or the new one. The file of an expired lease stays, because its reader
may be replacing it at any moment.

    "FBLEASE1"  data log u32  offset u32  expires u64 (ms)  crc u32
"""

from __future__ import annotations

import re
import struct
from contextlib import closing, suppress
from typing import Final, NamedTuple

from ..disk.disk import Disk
from ..environment.late_log import LateLogger
from ..errors import SettingsError
from ..format.record import crc32

logger = LateLogger("forebay.store")

LEASES: Final = "leases"
LEASE_FILES_MAX: Final = 4096
"""Most files of leases that are read, expired ones included. If there are more, all data logs are kept."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PREFIX: Final = "lease-"
_MAGIC: Final = b"FBLEASE1"
_LEASE: Final = struct.Struct("<8sIIQ")
_BYTES: Final = _LEASE.size + 4


class Lease(NamedTuple):
    """A request to keep a data log and all later ones, until the lease expires."""

    name: str
    data_log: int
    offset: int
    """Offset in that data log up to which the reader has read everything."""
    expires_ms: int


def validate_lease_name(name: str) -> None:
    """Raise SettingsError unless a file may have this name."""
    if not _NAME.fullmatch(name):
        raise SettingsError(f"lease={name!r} must be 1 to 64 letters, digits, '-', '_' and '.'")


class LeaseReader:
    """Reads the leases of one store. A problem is logged once, until there is another one."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # Why the last call did not read the leases.
        self._problem: str | None = None

    def read(self, now_ms: int) -> list[Lease]:
        """Return the leases that have not expired, by name. An unreadable file is no lease. O(files), one read each.

        If the directory can't be read, or has too many leases, all data logs are kept.
        """
        try:
            base_names = self._disk.list(LEASES)
        except OSError as error:
            return self._any(error.strerror or str(error), now_ms)
        # Only files that are named like a lease count, so that other files can't crowd leases out.
        names = [base_name.removeprefix(_PREFIX) for base_name in base_names if base_name.startswith(_PREFIX)]
        names = [name for name in names if _NAME.fullmatch(name)]
        if len(names) > LEASE_FILES_MAX:
            return self._any(f"it has more than {LEASE_FILES_MAX} files of leases", now_ms)
        self._problem = None
        leases = (_read(self._disk, name) for name in names)
        return [lease for lease in leases if lease is not None and lease.expires_ms > now_ms]

    def _any(self, problem: str, now_ms: int) -> list[Lease]:
        """Return a lease of everything, because it is not known what is leased."""
        if problem != self._problem:
            self._problem = problem
            logger.warning("leases/ cannot be read (%s): no data log is discarded", problem, event="leases_unreadable")
        return [Lease("unreadable", 1, 0, now_ms)]


def read_leases(disk: Disk, now_ms: int) -> list[Lease]:
    """Read the leases once, as LeaseReader.read does."""
    return LeaseReader(disk).read(now_ms)


def _read(disk: Disk, name: str) -> Lease | None:
    """Return the lease in a file. None: it can't be read, or is not whole."""
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
    """Replace the lease of a name as a whole. Durable on return."""
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
