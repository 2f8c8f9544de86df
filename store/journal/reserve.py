"""DiskReserve: disk space that is set aside for operations that make room on a full disk.

The reserve is two files without content in the journal's directory:

- The journal's part is as large as a data log. If a full disk has no space for the next data log, this file is renamed
  to become it. Acks and drops go on there while sends are refused. There is room for the acks of a whole data log,
  however small its messages are.
- The index's part is given back to the file system if the index finds no space for a checkpoint. Without a checkpoint,
  no data log may be deleted.

Both files are made again when there is space. A crash may leave them. Opening first removes them, because it needs
their space itself, and makes them anew at its end. A clean shutdown leaves none, unless the disk is full.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..disk.disk import NO_SPACE, Disk, File
from ..disk.layout import reserve_name
from ..format.record import DESTINATION, MESSAGE, PROPERTIES, RETURN, SUBSCRIBE

ADDING_KINDS: Final = frozenset((MESSAGE, DESTINATION, SUBSCRIBE, PROPERTIES))
"""Kinds of records that only add to the store. A full disk refuses them, unless they replace others
(`Fullness.accepting_replacements`). All other kinds are written.
"""

SETTLING: Final = -1
"""Stands in for the kind of a record that removes something, where other records of the kind add something."""

DROPS_BYTES: Final = 4096
"""The last bytes of a full disk's data log, reserved for drop records, which give space back."""

LESSER_KINDS: Final = ADDING_KINDS | {RETURN}
"""Kinds of records that a full disk still accepts, but less readily than acks: delivery counts, and within
`Fullness.accepting_replacements` also dead letters and what else replaces messages.
"""
LESSER_DIVISOR: Final = 2
"""LESSER_KINDS take at most the first half of a makeshift data log. The other half is for acks."""

_JOURNAL_PART: Final = 1
_INDEX_PART: Final = 2
_INDEX_DIVISOR: Final = 4
"""The index's part has the size of a data log divided by this."""


class DiskReserve:
    """The two files of the reserve. Every method requires the lock. Errors are OSError, as the disk raised them."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """Make it without files.

        file_bytes: size of a data log; 0: there is no reserve, and it always counts as whole.
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
        """Remove both files. An earlier process may have made them."""
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
        """Make missing files, the journal's part with at least `least_bytes`. False: the disk has no space for them."""
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
        """Rename the journal's part; return the file, and the bytes for which it has space. None: it is gone, or too
        small.
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

    def release_index_part(self) -> bool:
        """Give the index's part back to the file system. Return False if that was done already."""
        if _INDEX_PART not in self._held:
            return False
        self._give_back(_INDEX_PART)
        return True

    def _give_back(self, part: int) -> None:
        self._disk.remove(reserve_name(part))
        del self._held[part]


def store_limit_bytes(limit: int | float | None, disk: Disk, journal_bytes: int) -> int | None:
    """Return a limit in bytes. A float is a share of the bytes that the journal has and that the disk has free now."""
    return int(limit * (disk.free_bytes() + journal_bytes)) if isinstance(limit, float) else limit
