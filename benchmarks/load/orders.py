"""Orders: what somebody has a broker process do beside its plan, such as who watches a demo and presses a key.

A line of JSON each, on the standard input behind the plan. A process that was
killed forgets those it had not carried out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, Literal, Protocol

OrderDeed = Literal["resize", "explain", "cleanup", "pace", "kill"]
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Order:
    """One of them. "kill" is carried out by the supervisor."""

    do: OrderDeed
    memory: int | None = None
    """The limit to resize to, in bytes."""
    pace: float | None = None
    """Messages a second of each consumer, until the process ends; None: as planned."""

    def as_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Order:
        return cls(**json.loads(line))


class Orderer(Protocol):
    """Who gives orders."""

    def fileno(self) -> int:
        """Return what is readable when there may be some."""
        ...

    def take(self) -> list[Order]:
        """Return those that were given since the call before. Does not wait."""
        ...


def lines(descriptor: int) -> Iterator[bytes]:
    """Yield each line until the end. Unbuffered, so that a thread that waits here keeps no process from ending."""
    rest = b""
    while piece := os.read(descriptor, _READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest
