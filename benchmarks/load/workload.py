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
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from forebay.store.message import Message

from .events import N_MASK, PRODUCER_SHIFT
from .scenario import Kind

if TYPE_CHECKING:
    from forebay import Delivery

Room = Callable[[int], int]
"""Returns how many messages of a producer, at least one, may go in one batch from n on, after waiting for it."""

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
    """The messages of a run, as the supervisor and the broker process both know them."""

    @property
    def counts(self) -> Sequence[int]:
        """Messages of each producer."""

    @property
    def total_bytes(self) -> int:
        """Bodies of all messages."""

    @property
    def destinations(self) -> Sequence[str]: ...

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Number of messages of each kind."""

    def lane(self, producer: int, n: int) -> int:
        """Return the number of a message's lane. Each producer's messages keep their order in each lane."""

    def batches(self, producer: int, start: int, room: Room) -> Iterator[Batch]:
        """Yield the batches that the producer has to send from n = start, in order."""

    def check(self, arrived: Sequence[Delivery | Message]) -> tuple[array[int], list[str]]:
        """Return the keys of messages that arrived as sent, and a sentence about each other one."""

    def as_plan(self) -> dict[str, Any]:
        """Return the plain JSON from which another process makes the same workload; see broker_process.from_plan."""


class Generated:
    """Messages shared out evenly among producers, and by each of them, in turn, among destinations.

    sizes: bytes of bodies, which take turns as well: message n of a producer has sizes[n // destinations % len(sizes)],
    so that each destination gets all of them.
    stuck_every: each so many-th message of a producer is of the kind "stuck"; None: there are none. Where it shares a
    factor with the number of sizes, these messages get only some of them.
    """

    def __init__(
        self,
        messages: int,
        sizes: Sequence[int],
        producers: int,
        seed: int,
        destinations: int = 1,
        persistent: bool = True,
        stuck_every: int | None = None,
    ) -> None:
        assert messages >= 1 and min(sizes) >= MIN_SIZE_BYTES
        self._sizes = sizes
        self._seed = seed
        self._persistent = persistent
        self._stuck_every = stuck_every
        self.counts = [messages // producers + (producer < messages % producers) for producer in range(producers)]
        self.destinations = ["load"] if destinations == 1 else [f"load.{number}" for number in range(destinations)]
        self.total_bytes = sum(map(self._bytes_below, self.counts))
        self._plan = {
            "messages": messages,
            "sizes": sizes,
            "producers": producers,
            "seed": seed,
            "destinations": destinations,
            "persistent": persistent,
            "stuck_every": stuck_every,
        }

    @property
    def kinds(self) -> Mapping[Kind, int]:
        stuck = sum(map(self._stuck_below, self.counts))
        rare = 0
        for count in self.counts:
            first_rare = _first_rare(count)
            rare += count - first_rare - self._stuck_below(count) + self._stuck_below(first_rare)
        return {"plain": sum(self.counts) - rare - stuck, "rare": rare, "stuck": stuck}

    def _stuck_below(self, n: int) -> int:
        return 0 if self._stuck_every is None else -(-n // self._stuck_every)

    def lane(self, producer: int, n: int) -> int:
        destinations = len(self.destinations)
        return producer * destinations + n % destinations

    def batches(self, producer: int, start: int, room: Room) -> Iterator[Batch]:
        fillers = self._fillers()
        destinations, stuck_every = self.destinations, self._stuck_every
        count = self.counts[producer]
        first_rare = _first_rare(count)
        first = start
        while first < count:
            stop = self._full(first, min(first + room(first), count))
            messages: dict[str, list[Message]] = {}
            for n in range(first, stop):
                key = _KEY.pack(producer << PRODUCER_SHIFT | n)
                filler, filler_crc32 = fillers[n // len(destinations) % len(fillers)]
                kind = "plain" if n < first_rare else "rare"
                if stuck_every is not None and n % stuck_every == 0:
                    kind = "stuck"
                messages.setdefault(destinations[n % len(destinations)], []).append(
                    Message(
                        b"".join((key, zlib.crc32(key, filler_crc32).to_bytes(4, "little"), filler)),
                        {"producer": producer, "n": n, "kind": kind},
                        persistent=self._persistent,
                    )
                )
            yield Batch(stop, messages)
            first = stop

    def _full(self, first: int, stop: int) -> int:
        """Return where a batch from first ends: it has BATCH_BYTES at most, or one message, and stop is the latest."""
        limit = self._bytes_below(first) + BATCH_BYTES
        return first + 1 + bisect_right(range(first + 2, stop + 1), limit, key=self._bytes_below)

    def _bytes_below(self, n: int) -> int:
        """Return the bytes of the first n bodies of a producer."""
        sizes, destinations = self._sizes, len(self.destinations)
        turns, begun = divmod(n, destinations)
        rounds, turn = divmod(turns, len(sizes))
        return destinations * (rounds * sum(sizes) + sum(sizes[:turn])) + begun * sizes[turn]

    def _fillers(self) -> list[tuple[memoryview, int]]:
        """Return some rounds of all sizes: windows into one noise, each with its checksum.

        So a body costs a copy and the checksum of eight bytes.
        """
        lengths = [size_bytes - _PREFIX.size for size_bytes in self._sizes] * max(1, _FILLERS // len(self._sizes))
        noise = memoryview(random.Random(self._seed).randbytes(max(lengths) + len(lengths)))
        windows = [noise[offset : offset + length] for offset, length in enumerate(lengths)]
        return [(window, zlib.crc32(window)) for window in windows]

    def check(self, arrived: Sequence[Delivery | Message]) -> tuple[array[int], list[str]]:
        sizes, destinations = self._sizes, len(self.destinations)
        keys = array("Q")
        damaged = []
        for message in arrived:
            body, headers = message.body, message.headers or {}
            if len(body) >= MIN_SIZE_BYTES:
                key, crc32 = _PREFIX.unpack_from(body)
                n = key & N_MASK
                if (
                    len(body) == sizes[n // destinations % len(sizes)]
                    and zlib.crc32(body[: _KEY.size], zlib.crc32(body[_PREFIX.size :])) == crc32
                    and headers.get("n") == n
                    and headers.get("producer") == key >> PRODUCER_SHIFT
                ):
                    keys.append(key)
                    continue
            damaged.append(f"producer {headers.get('producer')!r}, n {headers.get('n')!r}, {len(body)} bytes")
        return keys, damaged

    def as_plan(self) -> dict[str, Any]:
        return self._plan


def _first_rare(count: int) -> int:
    """Return the n from which on a producer's messages are rare."""
    return count - max(1, int(count * RARE_SHARE))
