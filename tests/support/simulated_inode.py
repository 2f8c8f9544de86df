"""Inode: one file of a simulated disk, with the changes that a power cut may undo.

Zeros at the end cost nothing: a preallocated data log takes only the RAM, and the time to copy, of its written bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512
WAITING_MAX: Final = 1024
"""Most changes that wait for a sync. Beyond it the older half arrives, as a system writes back old changes."""

Arrived = Callable[[], bool]


class Luck(NamedTuple):
    """Decides which changes of one file arrived: asked for each version of a sector and each size, newest first."""

    sector: Arrived
    size: Arrived
    stale: Callable[[], bytes] | None = None
    """Returns the bytes in place of sectors beyond the synced size that did not arrive; None: zeros."""


class _Write(NamedTuple):
    """A change of a file since its last sync, with the bytes that undo it."""

    offset: int
    old: bytes
    """The bytes that were overwritten or cut, with zeros where the file was shorter. Cut zeros may be left out."""
    size_before: int
    size_after: int

    @property
    def end(self) -> int:
        return self.size_before if self.size_after < self.size_before else self.offset + len(self.old)


class Inode:
    """A file's bytes as a reader sees them, with the changes that lead back to the durable bytes."""

    __slots__ = ("_content", "_digest", "_lost", "_shared", "_unsynced", "size")

    def __init__(self, content: bytearray, size: int) -> None:
        # Content up to the size; if it is shorter, zeros follow.
        self._content = content
        self.size = size
        self._digest = 0  # 0: not computed since the last change
        self._unsynced: list[_Write] = []
        # By sector, the bytes on the device after a failed sync: the page counts as clean, and readers see newer bytes.
        self._lost: dict[int, bytes] = {}
        # An image forked from this one, or the one it was forked from, has the same content: copy before a change.
        self._shared = False

    def fork(self) -> Inode:
        self._shared = True
        inode = Inode(self._content, self.size)
        inode._unsynced, inode._lost = self._unsynced.copy(), self._lost.copy()
        inode._digest, inode._shared = self._digest, True
        return inode

    def read(self, offset: int, length: int) -> bytes:
        found = bytes(memoryview(self._content)[offset : offset + length])
        if len(found) == length:
            return found
        return found.ljust(min(length, self.size - offset), b"\0")

    def digest(self) -> int:
        """Return a hash of the bytes that a reader sees. O(written bytes) after a change."""
        self._digest = self._digest or hash((bytes(self._content.rstrip(b"\0")), self.size))
        return self._digest

    def damage(self, offset: int, length: int) -> memoryview:
        """Return these bytes, to be changed for readers and on the device alike."""
        assert offset + length <= self.size, f"the file has only {self.size} bytes"
        return memoryview(self._owned_content(offset + length))[offset : offset + length]

    def _owned_content(self, reach: int = 0) -> bytearray:
        """Return the content to be changed, extended to at least `reach` bytes."""
        self._digest = 0
        if self._shared:
            self._content = bytearray(self._content)
            self._shared = False
        _reach(self._content, reach)
        return self._content

    def write(self, offset: int, data: bytes) -> None:
        content = self._owned_content(offset)
        size, end = self.size, offset + len(data)
        old = bytes(content[offset:end]).ljust(len(data), b"\0")
        content[offset:end] = data
        self.size = max(size, end)
        self._unsynced.append(_Write(offset, old, size, self.size))
        if len(self._unsynced) > WAITING_MAX:
            self._arrive(WAITING_MAX // 2)

    def resize(self, length: int) -> None:
        content, size = self._owned_content(), self.size
        self._unsynced.append(_Write(min(size, length), bytes(content[length:]), size, length))
        del content[length:]
        self.size = length

    def sync(self) -> None:
        self._arrive(len(self._unsynced))

    def _arrive(self, changes: int) -> None:
        """Make the oldest changes durable."""
        if self._lost:
            for write in self._unsynced[:changes]:
                for sector in _sectors(write.offset, write.end):
                    self._lost.pop(sector, None)
        del self._unsynced[:changes]

    def lose(self) -> None:
        """Fail a sync: the pages count as clean, but their bytes do not arrive. Sizes may still arrive later."""
        durable = self._walk_back(Luck(never, always))[0]
        for write in self._unsynced:
            for sector in _sectors(write.offset, write.end):
                self._lost.setdefault(sector, durable.read(sector * SECTOR_BYTES, SECTOR_BYTES))
        self._unsynced = [
            write if write.size_after < write.size_before else write._replace(old=b"")
            for write in self._unsynced
            if write.size_after != write.size_before
        ]

    def has_unsynced(self) -> bool:
        return bool(self._unsynced or self._lost)

    def after_power_cut(self, luck: Luck) -> Inode:
        left, arrived = self._walk_back(luck)
        if luck.stale is not None and self._unsynced:
            stale = luck.stale()
            synced_size = min(self._unsynced[0].size_before, *(write.size_after for write in self._unsynced))
            for sector in _sectors(synced_size + SECTOR_BYTES - 1, left.size):
                if sector not in arrived:
                    at = sector * SECTOR_BYTES
                    _put(left._content, at, stale[at : min(at + SECTOR_BYTES, left.size)])
        return left

    def _walk_back(self, luck: Luck) -> tuple[Inode, set[int]]:
        """Undo the changes that did not arrive, newest first. Return the result, and the sectors that arrived."""
        content, size = bytearray(self._content), self.size
        arrived: set[int] = set()
        size_arrived = False
        for write in reversed(self._unsynced):
            offset, old, size_before, size_after = write
            end = write.end
            if size_before != size_after and not size_arrived:
                size_arrived = luck.size()
                if not size_arrived:
                    size = size_before
                    if size_after < size_before:
                        # The blocks were never given back, so what was written there since is in others, out of sight.
                        whole = offset + -offset % SECTOR_BYTES
                        content[whole:end] = bytes(max(min(end, len(content)) - whole, 0))
                        _put(content, whole, old[whole - offset :])
                        arrived.difference_update(_sectors(whole, end))
                        end = min(end, whole)
            if size_after < size_before and size_arrived:
                arrived.update(_sectors(offset, size_before))
                continue
            for sector in _sectors(offset, end):
                if sector in arrived:
                    continue
                if luck.sector():
                    arrived.add(sector)
                    continue
                start = max(offset, sector * SECTOR_BYTES)
                stop = min(end, (sector + 1) * SECTOR_BYTES)
                _put(content, start, old[start - offset : stop - offset].ljust(stop - start, b"\0"))
        for sector, device in self._lost.items():
            if sector not in arrived and not luck.sector():
                _put(content, sector * SECTOR_BYTES, device)
        del content[size:]
        return Inode(content, size), arrived


def _put(content: bytearray, at: int, data: bytes) -> None:
    _reach(content, at)
    content[at : at + len(data)] = data


def _reach(content: bytearray, length: int) -> None:
    if len(content) < length:
        content.extend(bytes(length - len(content)))


def always() -> bool:
    return True


def never() -> bool:
    return False


def _sectors(start: int, end: int) -> range:
    return range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES))
