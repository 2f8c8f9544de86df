"""A disk in memory that loses, tears and fails on demand: what the crash tests run the store on.

It keeps apart what a reader sees and what a power cut leaves: the sectors that
were written and the size of each file since its last sync, the names in each
directory since its last sync. A crash forks an image and leaves the receiver
as it was, so that a test can cut the power at every call of one run:

    disk.on_call = lambda call, name: check(disk.crash_power(random, PowerCut.ANY))

What is assumed: a sector is never torn, and is found in one of the versions
that it had; a file's size changes, and the changes of one name, arrive in
order; a rename arrives whole. Everything else arrives in any order or never.
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
    """A change of names, durable when each directory in unsynced was synced. A name with None is gone."""

    unsynced: frozenset[str]
    names: dict[str, Inode | None]


@dataclass(slots=True)
class _Fault:
    """An order to fail: see `SimulatedDisk.fail`."""

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
    """A `File` of a `SimulatedDisk`. It stays with the image that it was opened on, whatever is forked from that."""

    __slots__ = ("_disk", "_inode", "_name", "_position", "_writable")

    def __init__(self, disk: SimulatedDisk, name: str, inode: Inode, writable: bool) -> None:
        self._disk = disk
        self._name = name
        self._inode: Inode | None = inode
        self._writable = writable
        self._position = 0

    def append(self, data: bytes) -> None:
        """See `File.append`."""
        inode = self._opened(to_write=True)
        fault = self._disk._enter("write", self._name)
        if fault is not None:
            if fault.written_bytes:
                inode.write(self._position, data[: fault.written_bytes])
            raise _error(fault.error, self._name)
        self._disk._take_space(self._name, self._position + len(data) - inode.size)
        inode.write(self._position, data)
        self._position += len(data)

    def seek(self, position: int) -> None:
        """See `File.seek`."""
        self._opened()
        self._position = position

    def read(self, offset: int, length: int) -> bytes:
        """See `File.read`."""
        inode = self._opened()
        self._disk._call("read", self._name)
        data = inode.read(offset, length)
        self._disk.read_bytes += len(data)
        return data

    def read_into(self, offset: int, into: memoryview) -> int:
        """See `File.read_into`."""
        data = self.read(offset, len(into))
        into[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        """See `File.sync`."""
        inode = self._opened()
        fault = self._disk._enter("sync", self._name)
        if fault is None:
            inode.sync()
            return
        inode.lose()
        if fault.error:
            raise _error(fault.error, self._name)
        self._disk.fail(None, 1, errno.EIO, sticky=True)

    def truncate(self, length: int) -> None:
        """See `File.truncate`."""
        inode = self._opened(to_write=True)
        self._disk._call("truncate", self._name)
        self._disk._take_space(self._name, length - inode.size)
        if length < inode.size:
            self._disk._discard(inode)
        inode.resize(length)

    def preallocate(self, length: int) -> None:
        """See `File.preallocate`."""
        inode = self._opened(to_write=True)
        self._disk._call("preallocate", self._name)
        if length > inode.size:
            self._disk._take_space(self._name, length - inode.size)
            inode.resize(length)

    def size(self) -> int:
        """See `File.size`."""
        inode = self._opened()
        self._disk._call("size", self._name)
        return inode.size

    def close(self) -> None:
        """See `File.close`."""
        self._inode = None

    def _opened(self, *, to_write: bool = False) -> Inode:
        if self._inode is None or (to_write and not self._writable):
            raise _error(errno.EBADF, self._name)
        return self._inode


class SimulatedDirectory:
    """A directory of a SimulatedDisk that is open."""

    def __init__(self, disk: SimulatedDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def sync(self) -> None:
        """See `Directory.sync`."""
        self._disk.sync_directory(self._name)

    def close(self) -> None:
        """See `Directory.close`."""


class SimulatedDisk:
    """A `Disk` in memory. Forking an image copies no bytes of a file before one of the two writes to it."""

    def __init__(self, capacity_bytes: int = 1 << 40) -> None:
        # What the files may hold together; beyond it writes fail with ENOSPC. May be changed at any time.
        self.capacity_bytes = capacity_bytes
        # Called with the call and the name before each of MUTATING_CALLS, to fork an image of just then.
        self.on_call: Callable[[str, str], None] | None = None
        # Calls so far of each kind, failed ones included.
        self.calls: dict[str, int] = _NO_CALLS.copy()
        self.read_bytes = 0
        """Calls so far of each kind, failed ones included."""
        self._faults: list[_Fault] = []
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._changes: list[_Change] = []
        self._discarded: tuple[Inode, ...] = ()

    # What the store calls.

    def open(self, name: str, *, create: bool = False) -> SimulatedFile:
        """See `Disk.open`."""
        self._call("create" if create else "open", name)
        if not create:
            return SimulatedFile(self, name, self._file(name), True)
        if name in self._names:
            raise _error(errno.EEXIST, name)
        inode = Inode(bytearray(), 0)
        self._change({name: inode})
        return SimulatedFile(self, name, inode, True)

    def open_for_reading(self, name: str) -> SimulatedFile:
        """See `Disk.open_for_reading`."""
        self._call("open", name)
        return SimulatedFile(self, name, self._file(name), False)

    def exists(self, name: str) -> bool:
        """See `Disk.exists`."""
        self._call("exists", name)
        return not name or name in self._names

    def list(self, directory: str) -> list[str]:
        """See `Disk.list`."""
        self._call("list", directory)
        return sorted(name.rpartition("/")[2] for name in tuple(self._names) if _parent(name) == directory)

    def make_directory(self, name: str) -> None:
        """See `Disk.make_directory`."""
        if not name:
            return
        self.make_directory(_parent(name))
        self._call("make_directory", name)
        if name not in self._names:
            self._change({name: _DIRECTORY})
        elif self._names[name] is not _DIRECTORY:
            raise _error(errno.EEXIST, name)
        self.sync_directory(_parent(name))

    def rename(self, name: str, to: str) -> None:
        """See `Disk.rename`."""
        self._call("rename", name)
        inode = self._file(name)
        if name == to:
            return
        if to in self._names:
            self._discard(self._file(to))
        self._change({name: None, to: inode})

    def remove(self, name: str) -> None:
        """See `Disk.remove`."""
        self._call("remove", name)
        self._discard(self._file(name))
        self._change({name: None})

    def sync_directory(self, name: str) -> None:
        """See `Disk.sync_directory`."""
        self._call("sync_directory", name)
        self._directory(name)
        changes = [_Change(change.unsynced - {name}, change.names) for change in self._changes]
        self._changes = _apply(changes, self._durable_names, lambda change: not change.unsynced)

    def open_directory(self, name: str) -> SimulatedDirectory:
        """See `Disk.open_directory`."""
        return SimulatedDirectory(self, name)

    def free_bytes(self) -> int:
        """See `Disk.free_bytes`."""
        self._call("free_bytes", "")
        return self._free_bytes()

    # What a test does to it.

    def fail(self, call: str | None, nth: int, error: int, *, sticky: bool = False, written_bytes: int = 0) -> None:
        """From now on, let the nth call of a kind (None: of any kind) raise OSError(error); sticky: all after it too.

        A failed write leaves the first written_bytes of its data behind. A
        failed sync takes the pages for clean: readers go on seeing what was
        written, no later sync makes it durable. Other failed calls do nothing.
        """
        assert nth >= 1 and (call is None or call in self.calls), f"no call {nth} of {call!r}"
        self._faults.append(_Fault(call, nth, error, sticky, written_bytes))

    def stop_in_sync(self, nth: int) -> None:
        """Let the file system stop under the nth sync of a file from now on: every call after that one fails.

        The sync itself reports success, and nothing of what it was for has
        arrived: so does ext4 of a sync that is under way in preallocated
        space when it meets an error or is shut down.
        """
        self.fail("sync", nth, 0)

    def cure(self) -> None:
        """Forget all that `fail` ordered."""
        self._faults.clear()

    def crash_process(self) -> SimulatedDisk:
        """What the next process finds after a kill: all that was written, with what was not synced still to be lost.

        For a kill inside a write, let that write fail with written_bytes first.
        """
        forks = {_DIRECTORY: _DIRECTORY}

        def fork(inode: Inode) -> Inode:
            if inode not in forks:
                forks[inode] = inode.fork()
            return forks[inode]

        image = SimulatedDisk(self.capacity_bytes)
        image._names = {name: fork(inode) for name, inode in self._names.items()}
        image._durable_names = {name: fork(inode) for name, inode in self._durable_names.items()}
        image._changes = [
            change._replace(names={name: inode and fork(inode) for name, inode in change.names.items()})
            for change in self._changes
        ]
        image._discarded = self._discarded
        return image

    def crash_power(self, random: Random, mode: PowerCut) -> SimulatedDisk:
        """What is there when power returns: all that was synced, and of the rest what mode and random say."""
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
        """All that PowerCut.ANY may leave of this moment, first what KEPT leaves, last what SYNCED leaves.

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
        """Whether a power cut could take anything away: a state where it cannot proves nothing."""
        return bool(self._changes) or any(inode.has_unsynced() for inode in self._names.values())

    def image(self) -> dict[str, bytes]:
        """All files as a reader sees them, by name: to compare two disks."""
        return {name: inode.read(0, inode.size) for name, inode in self._names.items() if inode is not _DIRECTORY}

    def digest(self) -> int:
        """A number for all files as a reader sees them: to count distinct states. Costs O(bytes of changed files)."""
        return hash(frozenset((name, found.digest()) for name, found in self._names.items() if found is not _DIRECTORY))

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Turn one bit over, for readers and on the device alike."""
        self._file(name).damage(offset, 1)[0] ^= 1 << bit

    def zero(self, name: str, offset: int, length: int) -> None:
        """Put zeros over what is there, for readers and on the device alike."""
        self._file(name).damage(offset, length)[:] = bytes(length)

    # What both rest on.

    def _enter(self, call: str, name: str) -> _Fault | None:
        self.calls[call] += 1
        if self.on_call is not None and call in MUTATING_CALLS:
            self.on_call(call, name)
        due = self._faults and [fault for fault in self._faults if fault.is_due(call)]
        return due[-1] if due else None

    def _call(self, call: str, name: str) -> None:
        fault = self._enter(call, name)
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
        change = _Change(directories, names)
        _apply([change], self._names, lambda change: True)
        self._changes.append(change)

    def _discard(self, inode: Inode) -> None:
        """Keep the bytes of the last few files that went: they still lie on the device."""
        self._discarded = (*self._discarded[-3:], inode.fork())

    def _free_bytes(self) -> int:
        return self.capacity_bytes - sum(inode.size for inode in tuple(self._names.values()))

    def _take_space(self, name: str, growth: int) -> None:
        if growth > 0 and growth > self._free_bytes():
            raise _error(errno.ENOSPC, name)

    def _cut(self, name_arrived: Arrived, luck: Callable[[], Luck]) -> SimulatedDisk:
        names = self._durable_names.copy()
        _apply(self._changes, names, lambda change: name_arrived())
        image = SimulatedDisk(self.capacity_bytes)
        image._names = {
            name: inode.after_power_cut(luck()) if inode.has_unsynced() else _fork(inode)
            for name, inode in names.items()
        }
        image._durable_names = image._names.copy()
        image._discarded = self._discarded
        return image


class _Script:
    """Answers given beforehand, then yes; keeps all that it gave, and so leads through all there are."""

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
        """The script that differs in the last yes that can become a no."""
        answers = self._given
        while answers and not answers[-1]:
            answers.pop()
        return _Script([*answers[:-1], False]) if answers else None


def _apply(changes: list[_Change], names: dict[str, Inode], arrived: Callable[[_Change], bool]) -> list[_Change]:
    """Carry out on names the changes that arrived; returns the others, and with each all that were built on it."""
    waiting: list[_Change] = []
    undecided: set[str] = set()
    for change in changes:
        if any(name in undecided or _parent(name) in undecided for name in change.names) or not arrived(change):
            undecided.update(change.names)
            waiting.append(change)
            continue
        for name, inode in change.names.items():
            if inode is None:
                names.pop(name, None)
            else:
                names[name] = inode
    return waiting


def _fork(inode: Inode) -> Inode:
    return inode if inode is _DIRECTORY else inode.fork()


def _coin(random: Random) -> Arrived:
    """A coin of its own bias, for what is rare with a fair one: one file wholly there, another wholly gone."""
    share = random.choice((0.0, 0.25, 0.5, 0.75, 1.0))
    return lambda: random.random() < share


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _error(error: int, name: str) -> OSError:
    return OSError(error, os.strerror(error), name)
