"""Calibration: the floor, which is what the machine needs just then for a fixed piece of plain Python."""

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
    """The fixture by which a suite measures."""

    def __call__(self, operations: int, make: Callable[[], State], work: Callable[[State], Any]) -> None:
        """Time work on what make has made, in each round anew. operations: how many there are in one round."""


def floor_seconds() -> float:
    """CPU seconds of one step of what any store of messages does: a call, a header, a checksum, a copy, a lookup."""
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
