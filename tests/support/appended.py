"""A preallocated file of the operating system, and what was appended to it."""

from __future__ import annotations

from forebay.store.disk.disk import OsDisk
from forebay.store.disk.os_file import OsFile


def preallocated(disk: OsDisk, space_bytes: int) -> OsFile:
    """Return a new file with so much space."""
    file = disk.open("log", create=True)
    file.preallocate(space_bytes)
    return file


def contents(file: OsFile) -> bytes:
    """Return all that is in the file, its zeros included."""
    return file.read(0, file.size() + 1)
