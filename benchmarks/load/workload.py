"""Workload: the messages of a load test, and whether what arrives is what was sent.

Generated messages can be told apart and verified by themselves, without a
memory of what was sent: a body begins with its producer and n and a checksum
of the whole. They are the same for the same seed. Making and checking one
costs ~3 µs.
"""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from forebay.store.message import Message

from .events import N_MASK, PRODUCER_SHIFT

if TYPE_CHECKING:
    from forebay import Delivery

BATCH_BYTES: Final = 256 * 1024
"""A batch is one call of send_many; with so many bytes it is full, however few its messages."""

_PREFIX: Final = struct.Struct("<QI")  # key, checksum of filler and key
_KEY: Final = struct.Struct("<Q")
_FILLERS: Final = 64

MIN_SIZE_BYTES: Final = 16
"""Below it a body has no room for its key and checksum."""

RARE_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Batch:
    """The messages of a producer up to n = stop, by destination."""

    stop: int
    messages: Mapping[str, Sequence[Message]]


class Workload(Protocol):
    """What the supervisor and the broker process both know about the messages."""

    @property
    def counts(self) -> Sequence[int]:
        """Messages of each producer."""

    @property
    def total_bytes(self) -> int:
        """Bodies of all messages."""

    @property
    def destinations(self) -> Sequence[str]: ...

    @property
    def lanes(self) -> Sequence[int] | None:
        """For one producer with several lanes, the lane of each of its messages; None: a producer is a lane."""

    def batches(self, producer: int, start: int, batch_messages: int) -> Iterator[Batch]:
        """What the producer has to send from n = start, in order, by at most so many."""

    def check(self, deliveries: Sequence[Delivery]) -> tuple[array[int], list[str]]:
        """The keys of those that are what was sent, and a sentence about each other one."""

    def as_plan(self) -> dict[str, Any]:
        """What `from_plan` makes the same workload from, in another process. Plain JSON."""


class Generated:
    """Messages of one size to one destination, shared out evenly among producers."""

    destinations = ("load",)
    lanes = None

    def __init__(self, messages: int, size_bytes: int, producers: int, seed: int) -> None:
        assert messages >= 1 and size_bytes >= MIN_SIZE_BYTES
        self._size_bytes = size_bytes
        self._seed = seed
        self.counts = [messages // producers + (producer < messages % producers) for producer in range(producers)]
        self._plan = {"messages": messages, "size_bytes": size_bytes, "producers": producers, "seed": seed}
        self.total_bytes = messages * size_bytes

    def batches(self, producer: int, start: int, batch_messages: int) -> Iterator[Batch]:
        fillers = self._fillers()
        count = self.counts[producer]
        step = max(1, min(batch_messages, BATCH_BYTES // self._size_bytes))
        first_rare = count - max(1, int(count * RARE_SHARE))
        for first in range(start, count, step):
            stop = min(first + step, count)
            messages = []
            for n in range(first, stop):
                key = _KEY.pack(producer << PRODUCER_SHIFT | n)
                filler, filler_crc32 = fillers[n % _FILLERS]
                messages.append(
                    Message(
                        b"".join((key, zlib.crc32(key, filler_crc32).to_bytes(4, "little"), filler)),
                        {"producer": producer, "n": n, "kind": "plain" if n < first_rare else "rare"},
                    )
                )
            yield Batch(stop, {self.destinations[0]: messages})

    def _fillers(self) -> list[tuple[memoryview, int]]:
        """Windows into one noise, each with its checksum: a body costs a copy and the checksum of eight bytes."""
        length = self._size_bytes - _PREFIX.size
        noise = memoryview(random.Random(self._seed).randbytes(length + _FILLERS))
        windows = [noise[offset : offset + length] for offset in range(_FILLERS)]
        return [(window, zlib.crc32(window)) for window in windows]

    def check(self, deliveries: Sequence[Delivery]) -> tuple[array[int], list[str]]:
        keys = array("Q")
        damaged = []
        for delivery in deliveries:
            body, headers = delivery.body, delivery.headers
            if len(body) == self._size_bytes:
                key, crc32 = _PREFIX.unpack_from(body)
                if (
                    zlib.crc32(body[: _KEY.size], zlib.crc32(body[_PREFIX.size :])) == crc32
                    and headers.get("n") == key & N_MASK
                    and headers.get("producer") == key >> PRODUCER_SHIFT
                ):
                    keys.append(key)
                    continue
            damaged.append(f"producer {headers.get('producer')!r}, n {headers.get('n')!r}, {len(body)} bytes")
        return keys, damaged

    def as_plan(self) -> dict[str, Any]:
        return self._plan


def from_plan(plan: Mapping[str, Any]) -> Workload:
    """The workload that `as_plan` described."""
    if "path" in plan:
        from .input_file import InputFile

        return InputFile(plan["path"])
    return Generated(**plan)
