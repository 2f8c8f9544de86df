"""Orders: commands for a broker process in addition to its plan, such as those of a spectator who presses a key.

Each order is a line of JSON on standard input after the plan. A killed process forgets orders that it had not carried
out.
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
    """One order. The supervisor itself carries out "kill"."""

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
    """A source of orders."""

    def fileno(self) -> int:
        """Return a file descriptor that is readable when there may be orders."""
        ...

    def take(self) -> list[Order]:
        """Return the orders given since the previous call. Does not wait."""
        ...


def lines(descriptor: int) -> Iterator[bytes]:
    """Yield each line until the end. Unbuffered, so that a thread that waits here does not keep the process alive."""
    rest = b""
    while piece := os.read(descriptor, _READ_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest
