"""The report: what was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from forebay.dispatch.config.sizes import MIB, format_size

from .passes import Facts
from .traffic import Traffic


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement of one traffic under one limit."""

    limit_bytes: int
    facts: Facts
    lru_hit_ratio: float

    @property
    def hit_ratio(self) -> float:
        """Share of the deliveries for which no take waited for the disk."""
        return 1 - self.facts["waited"] / self.facts["deliveries"]

    @property
    def kept_ratio(self) -> float:
        """Share of the deliveries that never left RAM; approximate if messages were read for nothing."""
        return max(1 - self.facts["read"] / self.facts["deliveries"], 0.0)

    @property
    def rate(self) -> float:
        """Messages a second, sent, taken and acknowledged."""
        return self.facts["deliveries"] / self.facts["seconds"]


Peers = Mapping[str, Sequence[tuple[int, Facts]]]
"""Limit, and messages a second by kind of work, of forebay and KahaDB."""
_WORKS = ("fill", "drain", "consume", "path")


def report(
    about: Sequence[str],
    points: Mapping[Traffic, Sequence[Point]],
    peers: Peers,
    resize: Facts | None,
    curves: Sequence[tuple[int, Facts]],
) -> Iterator[str]:
    yield "# Hit ratio and throughput against memory"
    yield ""
    yield from (f"* {line}" for line in about)
    yield ""
    if points:
        yield from _traffics(points)
    if peers:
        yield from _peers(peers)
    if resize is not None:
        yield "## Another limit under full load"
        yield ""
        yield (
            f"Two threads that send, take and acknowledge in batches all the while ({resize['moved']:,.0f} messages). "
            f"The slowest `resize` down took {resize['down_seconds']:.2f} s, the slowest one up "
            f"{resize['up_seconds']:.2f} s (wanted: below 1 s); {resize['unsettled']:.0f} had not settled by then."
        )
        yield ""
    if curves:
        yield from _curves(curves)


def _traffics(points: Mapping[Traffic, Sequence[Point]]) -> Iterator[str]:
    yield (
        "*hit*: deliveries for which no `take` waited for the disk. *kept*: those whose message was not read back at "
        "all. *LRU*: hits of a plain LRU cache of messages over the same steps, which may use the whole limit and "
        "reads nothing ahead: what it does not have, it waits for. *messages/s*: sent, taken and acknowledged by one "
        "thread. *grew*: by how much the process was larger than before it opened the store, at most."
    )
    yield ""
    yield "![hit ratio and throughput against memory](memory.svg)"
    yield ""
    for traffic, measured in points.items():
        yield f"**{traffic.name}**: {traffic.sentence}"
        yield ""
        yield "| memory_limit | hit % | kept % | LRU % | messages/s | grew MiB |"
        yield "|---|---|---|---|---|---|"
        for point in measured:
            yield (
                f"| {format_size(point.limit_bytes)} | {_percent(point.hit_ratio)} | {_percent(point.kept_ratio)} "
                f"| {_percent(point.lru_hit_ratio)} | {point.rate:,.0f} | {point.facts['grew_bytes'] / MIB:.0f} |"
            )
        yield ""


def _peers(peers: Peers) -> Iterator[str]:
    yield "## Beside KahaDB with the same limit"
    yield ""
    yield (
        "Messages of 1 KiB a second over one queue. *fill*, *drain*: non-persistent ones far above the limit, so that "
        "they overflow to the disk. *consume*: the head of a persistent backlog; *path*: the same while as many are "
        "sent. KahaDB is driven through its broker in one process, its second, warm pass; its traffic can't be varied, "
        "and it tells no hit ratio. forebay moves batches of 256, as its consumer's prefetch allows."
    )
    yield ""
    yield "| memory_limit | | fill | drain | consume | path |"
    yield "|---|---|---|---|---|---|"
    for limit_bytes in sorted({limit for rows in peers.values() for limit, _ in rows}):
        for name, rows in peers.items():
            for facts in (facts for limit, facts in rows if limit == limit_bytes):
                cells = " | ".join(f"{facts[work]:,.0f}" if work in facts else "" for work in _WORKS)
                yield f"| {format_size(limit_bytes)} | {name} | {cells} |"
    yield ""


def _curves(curves: Sequence[tuple[int, Facts]]) -> Iterator[str]:
    yield "## The price of the live curve"
    yield ""
    yield (
        "CPU of the whole process for a message that is sent, taken and acknowledged over a standing backlog, medians "
        "of stretches with and without it that take turns in one store. Wanted: at most 2 %."
    )
    yield ""
    yield "| batch | without µs | with µs | more % |"
    yield "|---|---|---|---|"
    for batch, facts in curves:
        yield f"| {batch} | {facts['without_us']:.2f} | {facts['with_us']:.2f} | {100 * facts['part']:.1f} |"
    yield ""


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f}" if ratio > 0.99 else f"{100 * ratio:.1f}"
