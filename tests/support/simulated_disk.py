"""A disk in memory that loses data and fails on demand, on which the crash tests run the store.

The disk tells apart what a reader sees and what a power cut leaves: the sectors and sizes of each file that changed
since its last sync, and the names that changed in each directory since its last sync. A crash forks an image and leaves
the disk as it was, so that a test can cut the power at every call of one run:

    disk.on_call = lambda call, name: check(disk.crash_power(random, PowerCut.ANY))

Assumptions: a sector is never torn, and a power cut leaves one of the versions that it had. Changes of a file's size,
and changes of one name, arrive in order. A rename arrives whole. Everything else arrives in any order or never.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from simulated_inode import Arrived, Inode, Luck, always, never
from simulated_sync import SimulatedSync

from forebay.store.disk.disk import is_inside

MUTATING_CALLS: Final = frozenset(
    ("create", "write", "sync", "truncate", "preallocate", "rename", "remove", "make_directory", "sync_directory")
)
READING_CALLS: Final = frozenset(("open", "read", "size", "exists", "list", "free_bytes"))

_NO_CALLS: Final = dict.fromkeys(sorted(MUTATING_CALLS | READING_CALLS), 0)


class PowerCut(Enum):
    """How a power cut treats what was not synced."""

    KEPT = "all of it arrived"
    SYNCED = "none of it arrived"
    ANY = "any sectors, any sizes, any names arrived"
    EXTENDED = "all sizes arrived, any sectors and names: what is missing reads as zeros"
    STALE = "as EXTENDED, but what is missing beyond the synced size reads as something that other files held"


_DIRECTORY: Final = Inode(bytearray(), 0)


class _Change(NamedTuple):
    """A change of names, durable once each directory in `unsynced` is synced. None in place of a file: removed."""

    unsynced: frozenset[str]
    names: dict[str, Inode | None]


@dataclass(slots=True)
class _Fault:
    """One fault that `SimulatedDisk.fail` has ordered."""

    call: str | None
    calls_left: int
    error: int
    sticky: bool
    written_bytes: int

    def is_due(self, call: str) -> bool:
        if self.call is not None and self.call != call:
            return False
        self.calls_left -= 1
        return self.calls_left == 0 or (self.sticky and self.calls_left < 0)


class SimulatedFile:
    """A `File` of a `SimulatedDisk`. It belongs to the image on which it was opened; forks do not affect it."""

    __slots__ = ("_disk", "_inode", "_name", "_position", "_writable")

    def __init__(self, disk: SimulatedDisk, name: str, inode: Inode, writable: bool) -> None:
        self._disk = disk
        self._name = name
        self._inode: Inode | None = inode
        self._writable = writable
        self._position = 0

    @property
    def is_filled_ahead(self) -> bool:
        """Whether preallocated space is filled ahead."""
        return self._disk.fills

    @property
    def filled_bytes(self) -> int:
        """Bytes from the start of the file where appends find space for sure."""
        return min(self._opened().size, self._disk.filled_bytes) if self._disk.fills else 0

    def append(self, data: bytes) -> None:
        """Write at the position and move it, or fail as ordered, with part of the data written."""
        inode = self._opened(to_write=True)
        fault = self._disk.enter("write", self._name)
        if fault is not None:
            if fault.written_bytes:
                inode.write(self._position, data[: fault.written_bytes])
            raise _error(fault.error, self._name)
        self._disk.take_space(self._name, self._position + len(data) - inode.size)
        inode.write(self._position, data)
        self._position += len(data)

    def seek(self, position: int) -> None:
        """Set the position at which `append` writes. No call of the disk."""
        self._opened()
        self._position = position

    def read(self, offset: int, length: int) -> bytes:
        """Return up to length bytes, fewer at the end of the file. Counts into `read_bytes`."""
        inode = self._opened()
        self._disk.note_call("read", self._name)
        data = inode.read(offset, length)
        self._disk.read_bytes += len(data)
        return data

    def read_into(self, offset: int, into: memoryview) -> int:
        """Read into a buffer; return how many bytes it got."""
        data = self.read(offset, len(into))
        into[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        """Make the content and size of the file durable, unless a fault loses the pages."""
        inode = self._opened()
        fault = self._disk.enter("sync", self._name)
        if fault is None:
            inode.sync()
            return
        inode.lose()
        if fault.error:
            raise _error(fault.error, self._name)
        self._disk.fail(None, 1, errno.EIO, sticky=True)

    def truncate(self, length: int) -> None:
        """Cut the file, or extend it with zeros. Durable after the next sync."""
        inode = self._opened(to_write=True)
        self._disk.note_call("truncate", self._name)
        self._disk.take_space(self._name, length - inode.size)
        if length < inode.size:
            self._disk._discard(inode)
        inode.resize(length)

    def preallocate(self, length: int) -> None:
        """Extend the file with zeros to at least this length, which takes space of the disk."""
        inode = self._opened(to_write=True)
        self._disk.note_call("preallocate", self._name)
        if length > inode.size:
            self._disk.take_space(self._name, length - inode.size)
            inode.resize(length)

    def size(self) -> int:
        """Return the size as a reader sees it."""
        inode = self._opened()
        self._disk.note_call("size", self._name)
        return inode.size

    def close(self) -> None:
        """Forget the file. Nothing is synced."""
        self._inode = None

    def _opened(self, *, to_write: bool = False) -> Inode:
        if self._inode is None or (to_write and not self._writable):
            raise _error(errno.EBADF, self._name)
        return self._inode


class SimulatedDirectory:
    """An open directory of a SimulatedDisk."""

    def __init__(self, disk: SimulatedDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def sync(self) -> None:
        """Make the names in the directory durable."""
        self._disk.sync_directory(self._name)

    def close(self) -> None:
        """Do nothing, because the disk keeps no descriptors."""


class SimulatedDisk:
    """A `Disk` in memory. Forking an image copies no bytes of a file before one of the two writes to it."""

    def __init__(self, capacity_bytes: int = 1 << 40, *, fills: bool = False, in_background: bool = False) -> None:
        """fills: preallocated space is filled ahead, as OsDisk does for a store with sync="always".

        in_background: the disk offers syncs in the background, as OsDisk does on Linux.
        """
        self.fills = fills
        self.in_background = in_background
        # Whether syncs in the background are made only when a test, or a thread that waits for one, makes them.
        self.holds_background_syncs = False
        self.refuses_background_syncs = False
        # Those that were handed out, in order.
        self.background_syncs: list[SimulatedSync] = []
        # Most bytes that are filled of each file. A test may change it at any time.
        self.filled_bytes = 1 << 40
        # Bytes of all files together; beyond it writes fail with ENOSPC. A test may change it at any time.
        self.capacity_bytes = capacity_bytes
        # Called with the call and the name before each of MUTATING_CALLS, so that a test can fork an image then.
        self.on_call: Callable[[str, str], None] | None = None
        # Calls so far of each kind, failed ones included.
        self.calls: dict[str, int] = _NO_CALLS.copy()
        self.read_bytes = 0
        """Bytes that reads have returned so far."""
        self._faults: list[_Fault] = []
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[_Change] = []
        self._discarded: tuple[Inode, ...] = ()

    # Calls of the store.

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        """Open an existing file to read and write, or make a new one if `create`. OSError otherwise."""
        self.note_call("create" if create else "open", name)
        if not create:
            return SimulatedFile(self, name, self._file(name), True)
        if name in self._names:
            raise _error(errno.EEXIST, name)
        inode = Inode(bytearray(), 0)
        self._change({name: inode})
        return SimulatedFile(self, name, inode, True)

    def open_for_reading(self, name: str) -> SimulatedFile:
        """Open an existing file to read. FileNotFoundError."""
        self.note_call("open", name)
        return SimulatedFile(self, name, self._file(name), False)

    def exists(self, name: str) -> bool:
        """Return whether a file or directory has this name. The root always exists."""
        self.note_call("exists", name)
        return not name or name in self._names

    def list(self, directory: str) -> list[str]:
        """Return the base names in a directory, sorted."""
        self.note_call("list", directory)
        parted = [name.rpartition("/") for name in tuple(self._names)]
        return sorted(name for parent, _, name in parted if parent == directory)

    def directories(self) -> tuple[str, ...]:
        """Return the names of all directories but the root."""
        return tuple(name for name, inode in self._names.items() if inode is _DIRECTORY)

    def make_directory(self, name: str) -> None:
        """Make a directory and its parents, as far as they are missing, and sync their names."""
        if not name:
            return
        self.make_directory(_parent(name))
        self.note_call("make_directory", name)
        if name not in self._names:
            self._change({name: _DIRECTORY})
        elif self._names[name] is not _DIRECTORY:
            raise _error(errno.EEXIST, name)
        self.sync_directory(_parent(name))

    def rename(self, name: str, to: str) -> None:
        """Give a file another name, in place of any file there. Durable once both directories are synced."""
        self.note_call("rename", name)
        inode = self._file(name)
        if name == to:
            return
        if to in self._names:
            self._discard(self._file(to))
        self._change({name: None, to: inode})

    def remove(self, name: str) -> None:
        """Remove a name. Durable once its directory is synced; until then a power cut brings the file back."""
        self.note_call("remove", name)
        self._discard(self._file(name))
        self._change({name: None})

    def sync_directory(self, name: str) -> None:
        """Make all changes of names in a directory durable."""
        self.note_call("sync_directory", name)
        self._directory(name)
        if self._changes:
            changes = [_Change(change.unsynced - {name}, change.names) for change in self._changes]
            self._changes = _apply(changes, self._durable_names, lambda change: not change.unsynced)

    def open_directory(self, name: str) -> SimulatedDirectory:
        """Return the directory, to sync it."""
        return SimulatedDirectory(self, name)

    def background_sync(self) -> SimulatedSync | None:
        """Return a new SimulatedSync, if the disk offers syncs in the background."""
        if not self.in_background:
            return None
        self.background_syncs.append(SimulatedSync(self))
        return self.background_syncs[-1]

    def free_bytes(self) -> int:
        """Return how many bytes the capacity still has room for."""
        self.note_call("free_bytes", "")
        return self._free_bytes()

    # Calls of a test.

    def fail(self, call: str | None, nth: int, error: int, *, sticky: bool = False, written_bytes: int = 0) -> None:
        """From now on, let the nth call of a kind (None: of any kind) raise OSError(error); sticky: all after it too.

        A failed write leaves the first written_bytes of its data behind. A
        failed sync marks the pages clean: readers still see the written bytes,
        but no later sync makes them durable. Other failed calls do nothing.
        """
        assert nth >= 1 and (call is None or call in self.calls), f"no call {nth} of {call!r}"
        self._faults.append(_Fault(call, nth, error, sticky, written_bytes))

    def stop_in_sync(self, nth: int) -> None:
        """Let the file system stop under the nth sync of a file from now on: every call after that one fails.

        The sync itself reports success, but nothing of its data has arrived.
        ext4 does this for a sync in preallocated space that is under way
        when the file system meets an error or is shut down.
        """
        self.fail("sync", nth, 0)

    def cure(self) -> None:
        """Forget all that `fail` ordered."""
        self._faults.clear()

    def crash_process(self) -> SimulatedDisk:
        """Return the disk that the next process finds after a kill: all writes, some of them still unsynced.

        For a kill inside a write, let that write fail with written_bytes first.
        """
        forks = {_DIRECTORY: _DIRECTORY}

        def fork(inode: Inode) -> Inode:
            found = forks.get(inode)
            if found is None:
                found = forks[inode] = inode.fork()
            return found

        image = SimulatedDisk(self.capacity_bytes, fills=self.fills, in_background=self.in_background)
        image._names = {name: fork(inode) for name, inode in self._names.items()}
        image._durable_names = {name: fork(inode) for name, inode in self._durable_names.items()}
        image._changes = [
            change._replace(names={name: inode and fork(inode) for name, inode in change.names.items()})
            for change in self._changes
        ]
        image._discarded = self._discarded
        return image

    def crash_power(self, random: Random, mode: PowerCut) -> SimulatedDisk:
        """Return the disk after a power cut: all that was synced, and of the rest what mode and random decide."""
        if mode is PowerCut.KEPT:
            return self._cut(always, lambda: Luck(always, always))
        if mode is PowerCut.SYNCED:
            return self._cut(never, lambda: Luck(never, never))

        def stale() -> bytes:
            held = random.choice([*self._discarded, *self._names.values()])
            return held.read(0, held.size)

        def luck() -> Luck:
            size = _coin(random) if mode is PowerCut.ANY else always
            return Luck(_coin(random), size, stale if mode is PowerCut.STALE else None)

        return self._cut(_coin(random), luck)

    def every_power_cut(self) -> Iterator[SimulatedDisk]:
        """Yield all disks that PowerCut.ANY may leave at this moment, from that of KEPT to that of SYNCED.

        There are up to two to the power of the unsynced sectors, sizes and
        names, so take a few; some come more than once.
        """
        disk = self.crash_process()
        script: _Script | None = _Script([])
        while script is not None:
            yield disk._cut(script.answer, script.luck)
            script = script.next()

    @property
    def has_unsynced(self) -> bool:
        """Whether a power cut could lose anything. If it can't, a test of it proves nothing."""
        return bool(self._changes) or any(inode.has_unsynced() for inode in self._names.values())

    def image(self) -> dict[str, bytes]:
        """Return the content of all files as a reader sees them, by name, to compare two disks."""
        return {name: inode.read(0, inode.size) for name, inode in self._names.items() if inode is not _DIRECTORY}

    def digest(self) -> int:
        """Return a hash of all files as a reader sees them, to count distinct states. O(bytes of changed files)."""
        return hash(frozenset((name, found.digest()) for name, found in self._names.items() if found is not _DIRECTORY))

    def recovery_digest(self) -> int:
        """Return a hash of all that a recovery may see: `digest`, the directories, and the capacity."""
        directories = frozenset(name for name, found in self._names.items() if found is _DIRECTORY)
        return hash((self.digest(), directories, self.capacity_bytes))

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Invert one bit, for readers and on the device alike."""
        self._file(name).damage(offset, 1)[0] ^= 1 << bit

    def zero(self, name: str, offset: int, length: int) -> None:
        """Overwrite bytes with zeros, for readers and on the device alike."""
        self._file(name).damage(offset, length)[:] = bytes(length)

    # Shared by both.

    def enter(self, call: str, name: str) -> _Fault | None:
        self.calls[call] += 1
        if self.on_call is not None and call in MUTATING_CALLS:
            self.on_call(call, name)
        if not self._faults:
            return None
        due = [fault for fault in self._faults if fault.is_due(call)]
        return due[-1] if due else None

    def note_call(self, call: str, name: str) -> None:
        if self.on_call is None and not self._faults:
            self.calls[call] += 1
            return
        fault = self.enter(call, name)
        if fault is not None:
            raise _error(fault.error, name)

    def _file(self, name: str) -> Inode:
        assert is_inside(name), f"{name!r} leaves the store's directory"
        inode = self._names.get(name)
        if inode is None:
            raise _error(errno.ENOENT, name)
        if inode is _DIRECTORY:
            raise _error(errno.EISDIR, name)
        return inode

    def _directory(self, name: str) -> None:
        if name and self._names.get(name) is not _DIRECTORY:
            raise _error(errno.ENOTDIR if name in self._names else errno.ENOENT, name)

    def _change(self, names: dict[str, Inode | None]) -> None:
        directories = frozenset(_parent(name) for name in names)
        for directory in directories:
            self._directory(directory)
        _rename(names, self._names)
        self._changes.append(_Change(directories, names))

    def _discard(self, inode: Inode) -> None:
        """Keep the bytes of the last few removed files, because they are still on the device."""
        self._discarded = (*self._discarded[-3:], inode.fork())

    def _free_bytes(self) -> int:
        return self.capacity_bytes - sum([inode.size for inode in tuple(self._names.values())])

    def take_space(self, name: str, growth: int) -> None:
        if growth > 0 and growth > self._free_bytes():
            raise _error(errno.ENOSPC, name)

    def _cut(self, name_arrived: Arrived, luck: Callable[[], Luck]) -> SimulatedDisk:
        names = self._durable_names.copy()
        _apply(self._changes, names, lambda change: name_arrived())
        image = SimulatedDisk(self.capacity_bytes, fills=self.fills, in_background=self.in_background)
        image._names = {
            name: inode.after_power_cut(luck()) if inode.has_unsynced() else _fork(inode)
            for name, inode in names.items()
        }
        image._durable_names = image._names.copy()
        image._discarded = self._discarded
        return image


class _Script:
    """Gives the answers of a list, then yes. It records all answers, and so leads to the next list of answers."""

    def __init__(self, answers: list[bool]) -> None:
        self._answers = answers
        self._given: list[bool] = []

    def answer(self) -> bool:
        asked = len(self._given)
        self._given.append(self._answers[asked] if asked < len(self._answers) else True)
        return self._given[-1]

    def luck(self) -> Luck:
        return Luck(self.answer, self.answer)

    def next(self) -> _Script | None:
        """Return the script in which the last yes is a no. None: all scripts have been tried."""
        answers = self._given
        while answers and not answers[-1]:
            answers.pop()
        return _Script([*answers[:-1], False]) if answers else None


def _apply(changes: list[_Change], names: dict[str, Inode], arrived: Callable[[_Change], bool]) -> list[_Change]:
    """Apply the changes that arrived to `names`; return the others, with all later changes that depend on them."""
    waiting: list[_Change] = []
    undecided: set[str] = set()
    for change in changes:
        is_undecided = undecided and any(name in undecided or _parent(name) in undecided for name in change.names)
        if is_undecided or not arrived(change):
            undecided.update(change.names)
            waiting.append(change)
        else:
            _rename(change.names, names)
    return waiting


def _rename(changed: dict[str, Inode | None], names: dict[str, Inode]) -> None:
    """Make a change of names."""
    for name, inode in changed.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


def _fork(inode: Inode) -> Inode:
    return inode if inode is _DIRECTORY else inode.fork()


def _coin(random: Random) -> Arrived:
    """Return a coin with a random bias. With a fair coin, a file that is whole or gone altogether would be rare."""
    share = random.choice((0.0, 0.25, 0.5, 0.75, 1.0))
    return lambda: random.random() < share


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _error(error: int, name: str) -> OSError:
    return OSError(error, os.strerror(error), name)
