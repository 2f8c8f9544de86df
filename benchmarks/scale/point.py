"""Point: one store to measure, and the curves that are made of such points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from forebay.dispatch.config.sizes import KIB, MIB

CHUNK_MESSAGES: Final = 256
CHUNK_BYTES: Final = 4 * MIB
"""Bytes that are sent before they are taken, which is the constant lag of consumers."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measured store, which its process gets as JSON."""

    curve: str
    value: int
    messages: int
    """Messages of the measured stretch, in whole chunks."""
    depth: int = 0
    """Messages that stay in the queues during the work, and when the process is killed."""
    body_bytes: int = KIB
    queues: int = 1
    consumers: int = 1
    """Number of equal consumers of each queue."""
    selectors: int = 0
    """Consumers with a selector each, which match different messages; 0: nobody has one."""
    taken_at_once: int | None = None
    """Messages of one take; None: a chunk."""

    @property
    def chunk_messages(self) -> int:
        return max(1, min(CHUNK_MESSAGES, CHUNK_BYTES // self.body_bytes))

    @property
    def disk_bytes(self) -> int:
        """Least bytes of disk for the point, if nothing is cleaned up meanwhile."""
        return (self.messages + self.depth) * (self.body_bytes + 160) + 128 * MIB


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    axis: str
    about: str
    points: tuple[Point, ...]


def curves(*, deep: bool) -> list[Curve]:
    """Return all curves. deep: with ten million messages, which take about 2 GB of disk and some minutes."""
    depths = (10_000, 100_000, 1_000_000, *((10_000_000,) if deep else ()))
    return [
        Curve(
            "depth",
            "messages in the queue",
            "Bodies of 100 bytes, in batches of 256: each is read back from behind the whole backlog.",
            tuple(_point("depth", depth, 100_000, depth=depth, body_bytes=100) for depth in depths),
        ),
        Curve(
            "size",
            "bytes of a body",
            "In batches of 256, behind a backlog of up to 10,000.",
            tuple(
                _point(
                    "size", size, min(100_000, 128 * MIB // size), depth=min(10_000, 64 * MIB // size), body_bytes=size
                )
                for size in (16, 256, 4 * KIB, 64 * KIB, MIB)
            ),
        ),
        Curve(
            "consumers",
            "consumers of one queue",
            "Equal ones, which take and acknowledge 16 at a time, in turn.",
            tuple(_point("consumers", n, 100_000, consumers=n, taken_at_once=16) for n in (1, 10, 100, 1_000)),
        ),
        Curve(
            "destinations",
            "queues",
            "One message to each queue in turn, and a consumer in each that takes one at a time; 10,000 pending.",
            tuple(
                _point("destinations", n, 20_000, depth=10_000, queues=n, taken_at_once=1)
                for n in (1, 10, 100, 1_000, 10_000)
            ),
        ),
        Curve(
            "selectors",
            "selectors on one queue",
            "A consumer for each, which takes one at a time. Each message is asked of each selector.",
            tuple(
                _point("selectors", n, min(20_000, 300_000 // n), selectors=n, taken_at_once=1)
                for n in (1, 10, 100, 1_000, 10_000)
            ),
        ),
    ]


def _point(curve: str, value: int, messages: int, **fields: int) -> Point:
    point = Point(curve, value, messages, **fields)
    return replace(point, messages=max(1, messages // point.chunk_messages) * point.chunk_messages)
