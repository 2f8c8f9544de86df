"""The reserve: disk space set aside, so that work which frees space on a full disk has room itself.

The reserve is two empty files in the journal's directory. The first has the size of a data log. When a full disk has no
space for the next data log, the file is renamed and becomes that data log. Acks and drops continue there while sends
are refused; it has room for the acks of a whole data log, however small the messages. The second is given back to the
file system when the index finds no space for a checkpoint, because without a checkpoint no data log may be deleted.
Both are made again when there is space.

After a crash the files have no meaning. Opening removes them first, to use their space, and makes them again at the
end. A clean shutdown leaves none, unless the disk is full.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..disk.disk import NO_SPACE, Disk, File
from ..disk.layout import reserve_name
from ..errors import StoreFull
from ..format.record import DESTINATION, MESSAGE, PROPERTIES, RETURN, SUBSCRIBE

ADDING_KINDS: Final = frozenset((MESSAGE, DESTINATION, SUBSCRIBE, PROPERTIES))
"""Records that only add to the store. A full disk refuses them. All other records settle something and are written."""

SETTLING: Final = -1
"""Replaces the kind of a record that removes something, whatever other records of its kind do."""

LAST_BYTES: Final = 4096
"""Last bytes of a full disk's data log. They are kept for drop records, which give space back."""

LESSER_KINDS: Final = ADDING_KINDS | {RETURN}
"""Records of dead letters, which are not refused as sends are, and of delivery counts."""
LESSER_SHARE: Final = 2
"""These records may use at most the first half of a makeshift data log. The rest is for acks."""

_JOURNAL_PART: Final = 1
_INDEX_PART: Final = 2
_INDEX_SHARE: Final = 4
"""The index's part of the reserve is the size of a data log divided by this."""


def spare_acks(kind: int, size: int, offset: int, makeshift_bytes: int | None) -> None:
    """Keep half of a full disk's data log for acks: refuse dead letters and delivery counts beyond it.

    Raises StoreFull.

    makeshift_bytes: size of the data log if it was the reserve; else None.
    """
    if makeshift_bytes is not None and kind in LESSER_KINDS and offset + size > makeshift_bytes // LESSER_SHARE:
        raise StoreFull(size, 0, "the disk's free space")


class Reserve:
    """The two files of the reserve. Every method requires the lock. Errors are OSError, as the disk gave them."""

    def __init__(self, disk: Disk, file_bytes: int) -> None:
        """file_bytes: size of a data log; 0: there is no reserve, and it always counts as whole."""
        self._disk = disk
        self._file_bytes = file_bytes
        self._wanted = {_JOURNAL_PART: file_bytes, _INDEX_PART: file_bytes // _INDEX_SHARE}
        # Bytes of each file that exists.
        self._held: dict[int, int] = {}

    @property
    def missing_bytes(self) -> int:
        return sum(self._wanted.values()) - sum(self._held.values())

    def clear(self) -> None:
        """Remove both files. They may belong to an earlier process."""
        self._held.clear()
        for part in (_JOURNAL_PART, _INDEX_PART):
            with suppress(FileNotFoundError):
                self._disk.remove(reserve_name(part))

    def close(self) -> None:
        """Remove both files and make no new ones. From now on the reserve counts as whole."""
        self._file_bytes = 0
        self._wanted.clear()
        self.clear()

    def fill(self, least_bytes: int = 0) -> bool:
        """Make the missing files.

        The journal's part gets at least least_bytes. Return False if the disk has no space for it.
        """
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
        """Return the journal's part as a file of another name, and its size. None if it is gone or too small."""
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


def limit_bytes(limit: int | float | None, disk: Disk, journal_bytes: int) -> int | None:
    """Return a limit in bytes. A float is a share of the journal's size plus the space that the disk has now."""
    return int(limit * (disk.free_bytes() + journal_bytes)) if isinstance(limit, float) else limit
