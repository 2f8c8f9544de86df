"""The reserve: disk space set aside, so that what makes room on a full disk has room itself.

Two files without content in the journal's directory. One, as large as a data log, becomes one by another name when a
full disk has no space for the next: there acknowledgements and drops go on while sends are refused. It holds the acks
of a whole data log, however small the messages of that. The other is given back to the file system when the index finds
no space for a checkpoint, without which no data log may be deleted. Both are made again when there is space.

A crash leaves files that mean nothing: opening removes them first, so that it has their space itself, and makes them
anew when it is done. A clean shutdown leaves none, unless the disk is full.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..disk.disk import NO_SPACE, Disk, File
from ..disk.layout import reserve_name
from ..errors import StoreFull
from ..format.record import DESTINATION, MESSAGE, PROPERTIES, RETURN, SUBSCRIBE

ADDING_KINDS: Final = frozenset((MESSAGE, DESTINATION, SUBSCRIBE, PROPERTIES))
"""Records that only add to the store; they are refused on a full disk. All others settle something, and go on."""

SETTLING: Final = -1
"""In the place of a record's kind: the record takes something away, whatever others of its kind do."""

LAST_BYTES: Final = 4096
"""Bytes at the end of what a full disk leaves: for drops alone, which give space back."""

LESSER_KINDS: Final = ADDING_KINDS | {RETURN}
"""Records of dead letters, which are not refused as sends are, and of delivery counts."""
LESSER_SHARE: Final = 2
"""Those take at most the first half of a makeshift data log: the rest is for acks."""

_JOURNAL_PART: Final = 1
_INDEX_PART: Final = 2
_INDEX_SHARE: Final = 4
"""The index's part is a data log's size divided by this."""


def spare_acks(kind: int, size: int, offset: int, makeshift_bytes: int | None) -> None:
    """Leave acks half of what a full disk has: refuse dead letters and delivery counts beyond. Raises StoreFull.

    makeshift_bytes: of the data log, where it was the reserve; else None.
    """
    if makeshift_bytes is not None and kind in LESSER_KINDS and offset + size > makeshift_bytes // LESSER_SHARE:
        raise StoreFull(size, 0, "the disk's free space")


class Reserve:
    """The two files of the reserve. Requires: the lock, for everything. Errors are OSError, as the disk gave them."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """file_bytes: of a data log; 0: there is no reserve, and it always counts as whole."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._wanted = {_JOURNAL_PART: file_bytes, _INDEX_PART: file_bytes // _INDEX_SHARE}
        self._held: dict[int, int] = {}
        """Bytes of each file that exists."""

    @property
    def missing_bytes(self) -> int:
        return sum(self._wanted.values()) - sum(self._held.values())

    def clear(self) -> None:
        """Remove both files. They may be those of an earlier process."""
        self._held.clear()
        for part in (_JOURNAL_PART, _INDEX_PART):
            with suppress(FileNotFoundError):
                self._disk.remove(reserve_name(part))

    def close(self) -> None:
        """Remove both files and make none again: from now on the reserve counts as whole."""
        self._file_bytes = 0
        self._wanted.clear()
        self.clear()

    def fill(self, least_bytes: int = 0) -> bool:
        """Make what is missing; the journal's part has at least these bytes. False: the disk has no space for it."""
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
        """Return the journal's part as a file of another name, and the bytes it has space for; None: gone, or too
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

    def lend(self) -> bool:
        """Give the index's part back to the file system. False: that was done already."""
        if _INDEX_PART not in self._held:
            return False
        self._give_back(_INDEX_PART)
        return True

    def _give_back(self, part: int) -> None:
        self._disk.remove(reserve_name(part))
        del self._held[part]


def limit_bytes(limit: int | float | None, disk: Disk, journal_bytes: int) -> int | None:
    """Return the bytes of a limit; a float is a share of what the journal has and the disk could give it now."""
    return int(limit * (disk.free_bytes() + journal_bytes)) if isinstance(limit, float) else limit
