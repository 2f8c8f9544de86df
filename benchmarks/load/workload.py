"""Workload: the messages of a load test, and whether what arrives is what was sent.

Generated messages can be identified and verified by themselves, without a record of what was sent: a body begins with
its producer and number and a checksum of the whole. The same seed gives the same messages. Making and checking a
message costs about 3 µs.
"""

from __future__ import annotations

import random
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from forebay.store.message import Message

from .events import N_MASK, PRODUCER_SHIFT
from .scenario import ConsumerPlan, DestinationPlan, Kind

if TYPE_CHECKING:
    from forebay import Delivery

Room = Callable[[int], int]
"""Waits until a producer may send message n; returns how many messages, at least one, it may send from there on."""

BATCH_BYTES: Final = 256 * 1024
"""Bytes at which a batch is full, however few its messages. A batch is one call of send_many."""

_PREFIX: Final = struct.Struct("<QI")  # key, checksum of filler and key
_KEY: Final = struct.Struct("<Q")
_FILLERS: Final = 64

SIZE_BYTES_MIN: Final = 16
"""Least bytes of a body: its key and its checksum."""

RARE_EVERY: Final = 100
"""One message in this many of a producer is rare. The rare messages are the last ones."""


@dataclass(frozen=True, slots=True)
class LoadBatch:
    """The messages of a producer up to n = stop, by destination."""

    stop: int
    messages: Mapping[str, Sequence[Message]]


class Workload(Protocol):
    """The messages of a run, as the supervisor and the broker process both know them."""

    @property
    def counts(self) -> Sequence[int]:
        """Number of messages of each producer."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the bodies of all messages."""

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Number of messages of each kind."""

    def lane(self, producer: int, n: int) -> int:
        """Return the number of a message's lane. Each producer's messages keep their order in each lane."""

    def is_for(self, consumer: ConsumerPlan, producer: int, n: int) -> bool:
        """Return whether the consumer's selector matches message n of a producer."""

    def batches(self, producer: int, start: int, room: Room) -> Iterator[LoadBatch]:
        """Yield the batches that the producer has to send from n = start, in order."""

    def check(self, arrived: Sequence[Delivery | Message]) -> tuple[array[int], list[str]]:
        """Return the keys of messages that arrived as sent, and a sentence about each damaged message."""

    def as_plan(self) -> dict[str, Any]:
        """Return plain JSON from which broker_process.from_plan makes the same workload in another process."""


class Generated:
    """Messages shared out among destinations, and there evenly among producers, which send to its queues in turns.

    sizes: bytes of bodies, which take turns as well: message n of a producer has sizes[n // count % len(sizes)], where
    `count` queues are what it sends to, so that each of them gets all sizes.
    stuck_every: one message in this many of a producer is of the kind "stuck"; None: there are none. If this shares a
    factor with the number of sizes, stuck messages have only some of the sizes.
    keys: with more than one, each message has the header `key`, and all producers' messages together take turns.
    """

    def __init__(
        self,
        messages: int,
        sizes: Sequence[int],
        destinations: Sequence[DestinationPlan],
        seed: int,
        persistent: bool = True,
        stuck_every: int | None = None,
        keys: int = 1,
    ) -> None:
        assert messages >= 1 and min(sizes) >= SIZE_BYTES_MIN
        self._sizes = sizes
        self._seed = seed
        self._persistent = persistent
        self._stuck_every = stuck_every
        self._keys = keys
        self.counts: list[int] = []
        # The destinations to which each producer sends in turns.
        self._names: list[Sequence[str]] = []
        for destination, share in zip(destinations, _shares(messages, destinations), strict=True):
            producers, names = destination.producers, destination.names
            self.counts += [share // producers + (producer < share % producers) for producer in range(producers)]
            self._names += [names] * producers
        self._lanes = [0, *accumulate(map(len, self._names))]
        self.total_bytes = sum(self._bytes_below(producer, count) for producer, count in enumerate(self.counts))
        self._plan = {
            "messages": messages,
            "sizes": sizes,
            "destinations": [asdict(destination) for destination in destinations],
            "seed": seed,
            "persistent": persistent,
            "stuck_every": stuck_every,
            "keys": keys,
        }

    @classmethod
    def from_plan(cls, plan: Mapping[str, Any]) -> Generated:
        """Make the workload that `as_plan` described."""
        destinations = [DestinationPlan(**destination) for destination in plan["destinations"]]
        return cls(**{**plan, "destinations": destinations})

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
        return self._lanes[producer] + n % len(self._names[producer])

    def is_for(self, consumer: ConsumerPlan, producer: int, n: int) -> bool:
        if consumer.own_key:
            return self._key(producer, n) == consumer.number
        return consumer.kinds is None or self._kind(n, _first_rare(self.counts[producer])) in consumer.kinds

    def _key(self, producer: int, n: int) -> int:
        return (n * len(self.counts) + producer) % self._keys

    def _kind(self, n: int, first_rare: int) -> Kind:
        if self._stuck_every is not None and n % self._stuck_every == 0:
            return "stuck"
        return "plain" if n < first_rare else "rare"

    def batches(self, producer: int, start: int, room: Room) -> Iterator[LoadBatch]:
        fillers = self._fillers()
        names = self._names[producer]
        count = self.counts[producer]
        first_rare = _first_rare(count)
        first = start
        while first < count:
            stop = self._full(producer, first, min(first + room(first), count))
            messages: dict[str, list[Message]] = {}
            for n in range(first, stop):
                key = _KEY.pack(producer << PRODUCER_SHIFT | n)
                filler, filler_crc32 = fillers[n // len(names) % len(fillers)]
                headers: dict[str, Any] = {"producer": producer, "n": n, "kind": self._kind(n, first_rare)}
                if self._keys > 1:
                    headers["key"] = self._key(producer, n)
                body = b"".join((key, zlib.crc32(key, filler_crc32).to_bytes(4, "little"), filler))
                messages.setdefault(names[n % len(names)], []).append(
                    Message(body, headers, persistent=self._persistent)
                )
            yield LoadBatch(stop, messages)
            first = stop

    def _full(self, producer: int, first: int, stop: int) -> int:
        """Return the end of a batch that begins at first: at most BATCH_BYTES or one message, and not beyond stop."""
        bytes_below = partial(self._bytes_below, producer)
        return first + 1 + bisect_right(range(first + 2, stop + 1), bytes_below(first) + BATCH_BYTES, key=bytes_below)

    def _bytes_below(self, producer: int, n: int) -> int:
        """Return the bytes of the first n bodies of a producer."""
        sizes, destinations = self._sizes, len(self._names[producer])
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
        sizes, destinations = self._sizes, [len(names) for names in self._names]
        keys = array("Q")
        damaged = []
        for message in arrived:
            body, headers = message.body, message.headers or {}
            if len(body) >= SIZE_BYTES_MIN:
                key, crc32 = _PREFIX.unpack_from(body)
                producer, n = key >> PRODUCER_SHIFT, key & N_MASK
                if (
                    producer < len(destinations)
                    and len(body) == sizes[n // destinations[producer] % len(sizes)]
                    and zlib.crc32(body[: _KEY.size], zlib.crc32(body[_PREFIX.size :])) == crc32
                    and headers.get("n") == n
                    and headers.get("producer") == producer
                ):
                    keys.append(key)
                    continue
            damaged.append(f"producer {headers.get('producer')!r}, n {headers.get('n')!r}, {len(body)} bytes")
        return keys, damaged

    def as_plan(self) -> dict[str, Any]:
        return self._plan


def _first_rare(count: int) -> int:
    """Return the n from which on a producer's messages are rare."""
    return count - -(-count // RARE_EVERY)


def _shares(messages: int, destinations: Sequence[DestinationPlan]) -> list[int]:
    """Return how many of the messages go to each destination. The numbers add up to all messages."""
    totals = list(accumulate(destination.share for destination in destinations))
    ends = [round(messages * total / totals[-1]) for total in totals]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
