"""Inode: one file of a simulated disk, with what leads from its bytes back to those that a power cut leaves.

Zeros at its end cost nothing: a preallocated data log takes the RAM, and the
time to copy, of what was written to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

SECTOR_BYTES: Final = 512
WAITING_MAX: Final = 1024
"""Changes that wait for a sync. Of more the older half has arrived, as a system writes back what has waited long."""

Arrived = Callable[[], bool]


class Luck(NamedTuple):
    """Who decides what of one file arrived: asked for each version of a sector and each size, the newest first."""

    sector: Arrived
    size: Arrived
    stale: Callable[[], bytes] | None = None
    """Gives what lies where sectors beyond the synced size did not arrive; None: zeros."""


class _Write(NamedTuple):
    """A change of a file since its last sync, with what undoes it."""

    offset: int
    old: bytes
    """What was overwritten or cut, with zeros where the file was shorter. What was cut may go on with zeros."""
    size_before: int
    size_after: int

    @property
    def end(self) -> int:
        return self.size_before if self.size_after < self.size_before else self.offset + len(self.old)


class Inode:
    """A file's bytes as a reader sees them, with what leads back to those that are durable."""

    __slots__ = ("_content", "_digest", "_lost", "_shared", "_unsynced", "size")

    def __init__(self, content: bytearray, size: int) -> None:
        # Up to the size; zeros follow where it is shorter.
        self._content = content
        self.size = size
        self._digest = 0  # once somebody asked and until something changes
        self._unsynced: list[_Write] = []
        # By sector, what the device holds where a sync failed: the page counts as clean, readers see newer bytes.
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
        return found.ljust(min(length, self.size - offset), b"\0")

    def digest(self) -> int:
        """A number for what a reader sees. O(bytes that were written) after a change."""
        self._digest = self._digest or hash((bytes(self._content.rstrip(b"\0")), self.size))
        return self._digest

    def damage(self, offset: int, length: int) -> memoryview:
        """These bytes, to be changed for readers and on the device alike."""
        assert offset + length <= self.size, f"the file has only {self.size} bytes"
        return memoryview(self._owned_content(offset + length))[offset : offset + length]

    def _owned_content(self, reach: int = 0) -> bytearray:
        """To be changed, and at least so long."""
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
        """Let the oldest of them be durable."""
        if self._lost:
            for write in self._unsynced[:changes]:
                for sector in _sectors(write.offset, write.end):
                    self._lost.pop(sector, None)
        del self._unsynced[:changes]

    def lose(self) -> None:
        """A sync failed: the pages count as clean, and what they held has not arrived. Sizes may still follow."""
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
        """Undo, from the newest change on, what had not arrived. Returns what remains, and those sectors that had."""
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
