"""DiskReserve: disk space that is set aside, so that operations that make room on a full disk have room themselves.

It is two files without content in the journal's directory. One is as large as a data log. If a full disk has no space
for the next data log, this file is renamed to become it: acks and drops go on there while sends are refused. It has
room for the acks of a whole data log, however small its messages are. The other file is given back to the file system
if the index finds no space for a checkpoint, without which no data log may be deleted. Both files are made again when
there is space.

A crash may leave the files. Opening first removes them, to use their space itself, and makes them anew at its end. A
clean shutdown leaves none, unless the disk is full.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..disk.disk import NO_SPACE, Disk, File
from ..disk.layout import reserve_name
from ..format.record import DESTINATION, MESSAGE, PROPERTIES, RETURN, SUBSCRIBE

ADDING_KINDS: Final = frozenset((MESSAGE, DESTINATION, SUBSCRIBE, PROPERTIES))
"""Records that only add to the store. They are refused on a full disk; all others settle something and are written."""

SETTLING: Final = -1
"""Stands for the kind of a record that removes something, even if others of its kind do not."""

DROPS_BYTES: Final = 4096
"""The last bytes of what a full disk leaves, reserved for drops, which give space back."""

LESSER_KINDS: Final = ADDING_KINDS | {RETURN}
"""Records of dead letters, which are not refused as sends are, and of delivery counts."""
LESSER_DIVISOR: Final = 2
"""These take at most the first half of a makeshift data log; the rest is for acks."""

_JOURNAL_PART: Final = 1
_INDEX_PART: Final = 2
_INDEX_DIVISOR: Final = 4
"""The index's part has the size of a data log divided by this."""


class DiskReserve:
    """The two files of the reserve. Every method requires the lock. Errors are OSError, as the disk raised them."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """Make it without files.

        file_bytes: those of a data log; 0: there is no reserve, and it always counts as whole.
        """
        self._disk = disk
        self._file_bytes = file_bytes
        self._wanted = {_JOURNAL_PART: file_bytes, _INDEX_PART: file_bytes // _INDEX_DIVISOR}
        # Bytes of each file that exists.
        self._held: dict[int, int] = {}

    @property
    def is_kept(self) -> bool:
        """Whether there is a reserve at all."""
        return self._file_bytes > 0

    @property
    def missing_bytes(self) -> int:
        return sum(self._wanted.values()) - sum(self._held.values())

    def clear(self) -> None:
        """Remove both files, which may be those of an earlier process."""
        self._held.clear()
        for part in (_JOURNAL_PART, _INDEX_PART):
            with suppress(FileNotFoundError):
                self._disk.remove(reserve_name(part))

    def close(self) -> None:
        """Remove both files and make none again. From now on the reserve counts as whole."""
        self._file_bytes = 0
        self._wanted.clear()
        self.clear()

    def fill(self, least_bytes: int = 0) -> bool:
        """Make missing files; the journal's part has at least these bytes. False: the disk has no space for it."""
        if not self._file_bytes:
            return True
        self._wanted[_JOURNAL_PART] = max(self._file_bytes, least_bytes)
        return all(
            self._held.get(part, 0) >= wanted or self._make(part, wanted) for part, wanted in self._wanted.items()
        )

    def _make(self, part: int, size: int) -> bool:
        try:
            file = self._disk.open(reserve_name(part), create=part not in self._held)
            self._held.setdefault(part, 0)
            try:
                file.preallocate(size)
            finally:
                file.close()
        except OSError as error:
            if not self._held.get(part, 1):
                with suppress(OSError):
                    self._give_back(part)
            if error.errno not in NO_SPACE:
                raise
            return False
        self._held[part] = size
        return True

    def take(self, name: str, needed_bytes: int) -> tuple[File, int] | None:
        """Return the journal's part under another name, and the bytes for which it has space.

        None: it is gone, or too small.
        """
        held_bytes = self._held.get(_JOURNAL_PART, 0)
        if held_bytes < needed_bytes:
            return None
        file = self._disk.open(reserve_name(_JOURNAL_PART))
        try:
            self._disk.rename(reserve_name(_JOURNAL_PART), name)
        except OSError:
            file.close()
            raise
        del self._held[_JOURNAL_PART]
        return file, held_bytes

    def lend(self) -> bool:
        """Give the index's part back to the file system. Return False if that was done already."""
        if _INDEX_PART not in self._held:
            return False
        self._give_back(_INDEX_PART)
        return True

    def _give_back(self, part: int) -> None:
        self._disk.remove(reserve_name(part))
        del self._held[part]


def store_limit_bytes(limit: int | float | None, disk: Disk, journal_bytes: int) -> int | None:
    """Return a limit in bytes. A float is a share of what the journal has and the disk could add now."""
    return int(limit * (disk.free_bytes() + journal_bytes)) if isinstance(limit, float) else limit
