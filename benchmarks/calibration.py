"""Calibration: the floor, which is the CPU time that the machine needs just then for a fixed piece of plain Python."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

State = TypeVar("State")

_ROUNDS: Final = 9
_STEPS: Final = 5000


class AgainstFloor(Protocol):
    """The fixture with which a suite measures CPU time in units of the floor."""

    def __call__(self, operations: int, make: Callable[[], State], work: Callable[[State], Any]) -> None:
        """Time `work` on a state that `make` makes for each round. operations: number of operations in one round."""


def floor_seconds() -> float:
    """Return the CPU seconds of one step of the floor: a call, a header, a checksum, a copy, a lookup."""
    return min(_round_seconds() for _ in range(_ROUNDS)) / _STEPS


def _round_seconds() -> float:
    header, noise, places = struct.Struct("<IIQQ"), bytes(range(256)) * 8, dict[int, tuple[int, bytes]]()

    def step(number: int) -> None:
        body = noise[number & 255 : (number & 255) + 1024]
        head = header.pack(1024, zlib.crc32(body[:64]), number, 7)
        places[number] = (len(head), body)
        places.pop(number - 100, None)

    begun = time.process_time()
    for number in range(_STEPS):
        step(number)
    return time.process_time() - begun
