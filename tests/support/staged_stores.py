"""Helpers for tests of retention reasons: a small store whose data logs begin where a test wants."""

from __future__ import annotations

from typing import Any

from simulated_bay import SimulatedBay

from forebay import Message

FILLER = 30
FILLER_BYTES = 1000


def roll(simulated: SimulatedBay) -> None:
    """Begin the next data log."""
    with simulated.lock:
        simulated.journal.roll()


def newest(simulated: SimulatedBay) -> int:
    return simulated.journal.data_log


def send(simulated: SimulatedBay, name: str, *bodies: bytes, priority: int = 4) -> None:
    simulated.queue(name).send_many(Message(body, priority=priority) for body in bodies)


def settle(simulated: SimulatedBay, name: str, count: int) -> None:
    """Take and acknowledge the first messages of a queue."""
    with simulated.queue(name).subscribe() as consumer:
        consumer.ack(consumer.take(count))


def small_bay(**fields: Any) -> SimulatedBay:
    return SimulatedBay(max_file_length="64KiB", index_cache_size="256KiB", **fields)


def fill(bay: SimulatedBay) -> None:
    """Fill the rest of a data log with messages that are sent and acknowledged."""
    send(bay, "filler", *[bytes(FILLER_BYTES)] * FILLER)
    settle(bay, "filler", FILLER)
    roll(bay)
