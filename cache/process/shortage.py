"""Shortage: how much RAM the machine and the process's control groups have left, and how long tasks wait for it.

The figures are read anew each time from /proc and the control groups, version 2 and version 1, without another package.
Figures that the system does not have are left out.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .process_memory import lines_of, memory_groups

_DIGITS_MAX: Final = 20
"""Digits of a 64-bit number."""
_NO_LIMIT_BYTES: Final = 1 << 62
"""Version 1 expresses "no limit" by a number about as large."""


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """The RAM of the machine or of one control group, in bytes."""

    total_bytes: int
    available_bytes: int
    """Bytes that can be had without taking memory from a process. Unused file pages count as free."""


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The figures of one look at the system."""

    rooms: tuple[MemoryRoom, ...]
    """Rooms of the machine, and of each group above the process that has a limit."""
    stalled_seconds: float | None
    """How long a task of the process's group waited for memory, since the group was made. None: not known."""


def read_memory_figures(root: str = "/") -> MemoryFigures | None:
    """Return the memory figures of the system. None: it has none. Reads a few small files.

    root: the folder that has `proc` and `sys`.
    """
    membership, groups = posixpath.join(root, "proc/self/cgroup"), posixpath.join(root, "sys/fs/cgroup")
    rooms = [*_machine(root)]
    limits: tuple[str, ...]
    stalled_seconds = _stalled_seconds(posixpath.join(root, "proc/pressure/memory"))
    for directory, limit_name in memory_groups(membership, groups):
        if limit_name == "memory.max":
            limits, usage, inactive = ("memory.max", "memory.high"), "memory.current", "inactive_file"
            # The process's own group comes last, because what stalls it counts, not what stalls its neighbours.
            own_seconds = _stalled_seconds(posixpath.join(directory, "memory.pressure"))
            stalled_seconds = stalled_seconds if own_seconds is None else own_seconds
        else:
            limits, usage, inactive = (limit_name,), "memory.usage_in_bytes", "total_inactive_file"
        rooms += _group(directory, limits, usage, inactive)
    return MemoryFigures(tuple(rooms), stalled_seconds) if rooms else None


def _machine(root: str) -> Iterator[MemoryRoom]:
    found = {}
    for line in lines_of(posixpath.join(root, "proc/meminfo")):
        name, _, value = line.partition(":")
        number = value.split()[:1]
        kilobytes = _integer(number[0]) if number else None
        if name in ("MemTotal", "MemAvailable") and kilobytes is not None:
            found[name] = kilobytes * 1024
    if len(found) == 2:
        yield MemoryRoom(found["MemTotal"], found["MemAvailable"])


def _group(directory: str, limit_names: tuple[str, ...], usage_name: str, inactive_name: str) -> Iterator[MemoryRoom]:
    limits = [_number(posixpath.join(directory, name)) for name in limit_names]
    known = [limit for limit in limits if limit is not None and limit < _NO_LIMIT_BYTES]
    usage = _number(posixpath.join(directory, usage_name))
    if not known or usage is None:
        return
    inactive = 0
    for line in lines_of(posixpath.join(directory, "memory.stat")):
        name, _, value = line.strip().partition(" ")
        if name == inactive_name:
            inactive = _integer(value) or 0
    yield MemoryRoom(min(known), max(min(known) - max(usage - inactive, 0), 0))


def _stalled_seconds(path: str) -> float | None:
    """Return the total in the line "some" of a pressure file, which counts microseconds."""
    for line in lines_of(path):
        words = line.split()
        if words[:1] == ["some"] and words[-1].startswith("total="):
            microseconds = _integer(words[-1].removeprefix("total="))
            return microseconds / 1e6 if microseconds is not None else None
    return None


def _number(path: str) -> int | None:
    """Return the number in a file. None: it says "max", or does not exist."""
    return _integer(next(iter(lines_of(path)), "").strip())


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _DIGITS_MAX and text.isdecimal() else None
