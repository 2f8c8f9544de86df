"""Events: what the broker process reports to its supervisor, as frames on a pipe.

Each call that promises something has two events: one before the call, one after its return. So the events that a kill
leaves in the pipe are complete but for one call of each thread: a call without its second event may have happened or
not. An incomplete last frame belongs to a call that was not made.
"""

from __future__ import annotations

import json
import struct
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

_FRAME: Final = struct.Struct("<HHId")  # kind, number of the producer or consumer, bytes that follow, when
_STOP: Final = struct.Struct("<Q")
TOOK: Final = struct.Struct("<dd")
"""Seconds that a take lasted, and seconds that its thread ran meanwhile."""

PRODUCER_SHIFT: Final = 40
"""A key is one message of the load: producer << 40 | n, n counting from 0."""
N_MASK: Final = (1 << PRODUCER_SHIFT) - 1
CAME_AGAIN: Final = 1 << 63
"""Flag in a key of a message that was delivered before: no order is promised for it."""


class Kind(IntEnum):
    SENDING = 1  # a producer calls send_many with its messages below `stop`
    SENT = 2  # the call returned
    SETTLING = 3  # a consumer took and verified the messages `keys`, and calls ack with them
    SETTLED = 4  # the call returned
    DAMAGED = 5  # a delivery that is not what was sent; `facts` says how
    OPENED = 6  # the store is open; `facts` is its recovery report
    FIRST = 7  # a consumer has taken its first messages; `facts` says how long after subscribing
    GAUGES = 8  # memory and counters; twice a second
    DONE = 9  # everything is sent, taken and acknowledged, and the store is closed
    FAILED = 10  # the process gives up; `facts` says why
    ACTED = 11  # the next act of the scenario was done, that is no kill; `facts` says what came of it
    LEFT = 12  # the messages `keys` were found in the queues when all consumers were through
    OBEYED = 13  # an order was carried out; `facts` says which, and what came of it
    TOOK = 14  # a take of a consumer whose takes are timed returned messages that were waiting; `took` is how long


@dataclass(frozen=True, slots=True)
class Event:
    """One frame. Its kind says which of the four properties reads its payload."""

    kind: Kind
    who: int
    at: float
    """Time of the event, in seconds of the machine's monotonic clock, which both processes read."""
    payload: bytes

    @property
    def stop(self) -> int:
        number: int = _STOP.unpack(self.payload)[0]
        return number

    @property
    def keys(self) -> array[int]:
        keys = array("Q")
        keys.frombytes(self.payload)
        return keys

    @property
    def took(self) -> tuple[float, float]:
        took, ran = TOOK.unpack(self.payload)
        return took, ran

    @property
    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(self.payload)
        return facts


def encode(
    kind: Kind, who: int = 0, payload: bytes | int | Mapping[str, object] = b"", at: float | None = None
) -> bytes:
    """Return the frame of an event. payload: packed keys, a stop, or facts. at: when, if not now."""
    if isinstance(payload, int):
        payload = _STOP.pack(payload)
    elif isinstance(payload, Mapping):
        payload = json.dumps(payload).encode()
    return _FRAME.pack(kind, who, len(payload), time.monotonic() if at is None else at) + payload


class Decoder:
    """Puts events together from the pieces that a pipe gives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield each event that is complete with this piece. The caller must exhaust it."""
        self._buffer += piece
        at = 0
        while len(self._buffer) - at >= _FRAME.size:
            kind, who, length, when = _FRAME.unpack_from(self._buffer, at)
            end = at + _FRAME.size + length
            if end > len(self._buffer):
                break
            yield Event(Kind(kind), who, when, bytes(self._buffer[at + _FRAME.size : end]))
            at = end
        del self._buffer[:at]
