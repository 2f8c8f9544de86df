"""The plan: which passes make up the benchmarks, what is compared with what, and which figures are wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from forebay.dispatch.settings import MIN_MEMORY_LIMIT_BYTES
from forebay.dispatch.sizes import KIB, MIB

from .bench_kahadb import LAG, Peer
from .bench_work import BATCH_MESSAGES, MEMORY_LIMIT_BYTES, Work

MESSAGES: Final = 200_000
ROUNDS: Final = 5
GROUPS: Final = ("W1", "W2", "W4", "W5", "W8", "W9", "memory")

USS_GROWTH_BYTES_WANTED: Final = MEMORY_LIMIT_BYTES * 5 // 4 + 40 * MIB
DEPTH_RATIO_WANTED: Final = 0.9

_SEND: Final = "`send`"
_SEND_MANY: Final = "`send_many`"
_SINGLE: Final = "`send`, `take(1)`, `ack`"
_BATCHED: Final = f"`send_many`, `take`, `ack` of {BATCH_MESSAGES}"
_KAHADB_ADD: Final = "KahaDB add"
_KAHADB_PATH: Final = "KahaDB add, ack"
_KAHADB_CONCURRENT: Final = "KahaDB add, ack, concurrentStoreAndDispatch"


REOPEN: Final = "opening"
KAHADB_REOPEN: Final = "KahaDB opening"
REOPEN_SECONDS_WANTED: Final = {"clean_seconds": 0.12, "kill_seconds": 0.5, "index_lost_seconds": 2.0}
"""Over a million messages."""
STUCK: Final = "stuck"
KAHADB_STUCK: Final = "KahaDB stuck"
DATA_LOGS_LEFT_WANTED: Final = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A pass that is repeated in each round. The title names it, in the output and in ratios."""

    group: str
    title: str
    work: Work | Peer
    cpu_us_wanted: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """What the rate of one row should be over the rate of another."""

    title: str
    over: str
    must: float
    aim: float


@dataclass(frozen=True, slots=True)
class Depth:
    """The same work over a shallow and over a deep backlog: the rates should not differ."""

    work: str
    body_bytes: int
    limit_bytes: int
    backlogs: tuple[int, int]
    titles: tuple[str, str]


PEER_RATIOS: Final = (
    Ratio(_SEND, _KAHADB_ADD, 4, 7),
    Ratio(_SEND_MANY, _KAHADB_ADD, 10, 20),
    Ratio(f"{_SINGLE}; {LAG:,} behind", _KAHADB_PATH, 3, 4.5),
    Ratio(f"{_BATCHED}; {LAG:,} behind", _KAHADB_CONCURRENT, 3, 6),
)


def rows(messages: int, groups: Collection[str], has_kahadb: bool) -> list[Row]:
    """The passes of one round, in their order: the two sides take turns. messages: of a W1 pass."""
    chosen = [row for row in _rows(messages) if row.group in groups and (has_kahadb or isinstance(row.work, Work))]
    return [Row("floor", "floor", Work("floor", messages)), *chosen]


def depths(messages: int) -> list[Depth]:
    """Under the usual limit the shallow backlog is served from RAM; under the smallest one, neither is.

    Bodies of 16 bytes for the deepest, so that it needs a gigabyte of disk and not eleven.
    """
    shallow = messages // 20
    return [
        Depth(
            work,
            body_bytes,
            limit_bytes,
            (shallow, deep),
            (_deep(work, body_bytes, shallow), _deep(work, body_bytes, deep)),
        )
        for body_bytes, limit_bytes, deep in (
            (KIB, MEMORY_LIMIT_BYTES, 5 * messages),
            (16, MIN_MEMORY_LIMIT_BYTES, 50 * messages),
        )
        for work in (_SINGLE, _BATCHED)
    ]


def _rows(messages: int) -> Iterator[Row]:
    batched = BATCH_MESSAGES
    yield Row("W1", _SEND, Work("send", messages))
    yield Row("W1", _SEND_MANY, Work("send", messages, batch=batched))
    yield Row("W1", _KAHADB_ADD, Peer("W1 sync", messages))
    for lag in (LAG, 0):
        yield Row("W2", f"{_SINGLE}; {lag:,} behind", Work("path", messages, backlog=lag), 5.5)
        yield Row("W2", f"{_BATCHED}; {lag:,} behind", Work("path", messages, batch=batched, backlog=lag), 3.0)
    yield Row("W2", _KAHADB_PATH, Peer("W2 sync", messages))
    yield Row("W2", _KAHADB_CONCURRENT, Peer("W2 async-on", messages))
    yield Row("W4", REOPEN, Work("reopen", 5 * messages))
    yield Row("W4", KAHADB_REOPEN, Peer("W4", 5 * messages))
    yield Row("W5", f"`take`, `ack` of {batched}; stored by {_SEND}", Work("read_back", 5 * messages))
    yield Row(
        "W5", f"`take`, `ack` of {batched}; stored by {_SEND_MANY}", Work("read_back", 5 * messages, batch=batched)
    )
    for depth in depths(messages):
        for backlog, title in zip(depth.backlogs, depth.titles, strict=True):
            batch = batched if depth.work == _BATCHED else 1
            # Small ones are moved in numbers that no list of targets can hold, so that a deep backlog is read.
            moved = messages if depth.body_bytes == KIB else 5 * messages
            yield Row("W8", title, Work("path", moved, depth.body_bytes, batch, depth.limit_bytes, backlog))
    yield Row("W9", STUCK, Work("stuck", 1 + messages // 10_000))
    yield Row("W9", KAHADB_STUCK, Peer("W9 every", messages))
    yield Row("memory", "memory", Work("memory", 5 * messages))


def _deep(work: str, body_bytes: int, backlog: int) -> str:
    return f"{work}; {backlog:,} behind, {body_bytes:,} B"
