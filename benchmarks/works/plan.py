"""The plan: which passes make up W1 to W12, in which order, and which of them take turns with the other side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from forebay.dispatch.config.sizes import KIB, MIB

from .host import BATCH_MESSAGES, MEMORY_LIMIT_BYTES, PRODUCERS
from .kahadb import LAG, Peer
from .python_queues import BATCHED, ONE_BY_ONE, PythonQueue
from .work import Headers, Work

_HEADERS_SAID: Final[dict[Headers, str]] = {
    "none": "no headers",
    "read": "4 headers",
    "selected": "4 headers, a selector for 1 %",
}
MESSAGES: Final = 200_000
ROUNDS: Final = 3
GROUPS: Final = ("W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "W10", "W11", "W12", "Python", "memory")
SLOW_GROUPS: Final = ("W4", "W5", "W8", "W9", "W11", "W12", "Python", "memory")
"""Groups whose passes take a minute or more. They run once, unless the user gives the number of rounds."""
TURNS: Final = 9
"""Short passes of each row in a round, where rows are compared pass by pass."""
TURNED_SHARE: Final = 4
"""Each of those passes has this part of the messages, so that the pass beside it is a second away."""

END_TO_END_LIMIT_BYTES: Final = 512 * MIB
"""The work that the broker of the other side is given."""

SEND: Final = "`send`"
SEND_MANY: Final = "`send_many`"
SINGLE: Final = "`send`, `take(1)`, `ack`"
BATCHED_PATH: Final = f"`send_many`, `take`, `ack` of {BATCH_MESSAGES}"
SINGLE_PATH_LAGGING: Final = f"{SINGLE}; {LAG:,} behind"
BATCHED_PATH_LAGGING: Final = f"{BATCHED_PATH}; {LAG:,} behind"
KAHADB_ADD: Final = "KahaDB add"
KAHADB_PATH: Final = "KahaDB add, ack"
KAHADB_CONCURRENT: Final = "KahaDB add, ack, concurrentStoreAndDispatch"

DURABLE_SEND: Final = "durable `send`, 1 producer"
DURABLE_SENDS: Final = f"durable `send`, {PRODUCERS} tasks of asyncio"
KAHADB_DURABLE_ADD: Final = "KahaDB durable add, 1 thread"
KAHADB_DURABLE_ADDS: Final = f"KahaDB durable add, {PRODUCERS} threads"

REOPEN: Final = "opening"
KAHADB_REOPEN: Final = "KahaDB opening"
KAHADB_CURSOR: Final = "KahaDB cursor of 200"
READ_BACK: Final = f"`take`, `ack` of {BATCH_MESSAGES}; stored by {SEND}"
READ_BACK_SLICES: Final = f"`take`, `ack` of {BATCH_MESSAGES}; stored by {SEND_MANY}"

END_TO_END_WAYS: Final = {
    f"`send`, `take` of {BATCH_MESSAGES}": (1, BATCH_MESSAGES),
    f"`send_many`, `take` of {BATCH_MESSAGES}": (BATCH_MESSAGES, BATCH_MESSAGES),
    "`send`, `take(1)`": (1, 1),
}
"""Messages of one send and of one take, by the name of the way."""

FILL: Final = "overflow: `send`"
DRAIN: Final = f"overflow: `take`, `ack` of {BATCH_MESSAGES}"
OVERFLOWN: Final = "overflow: memory"
BROKER_FILL: Final = "ActiveMQ overflow: send"
BROKER_DRAIN: Final = "ActiveMQ overflow: receive"

STUCK: Final = "stuck"
KAHADB_STUCK: Final = "KahaDB stuck"
CONTENDED: Final = "`send` beside a thread that computes"
FIND: Final = "one match by a selector; its header named before"


@dataclass(frozen=True, slots=True)
class Row:
    """A pass that is repeated in each round. The title names it, in the output and in ratios."""

    group: str
    title: str
    work: Work | Peer | PythonQueue
    beside: str = ""
    """Title of the row whose passes its own take turns with, so that each has a neighbour; "": there is none."""

    @property
    def is_ours(self) -> bool:
        return isinstance(self.work, Work)


@dataclass(frozen=True, slots=True)
class Depth:
    """A work over a deep backlog."""

    work: str
    body_bytes: int
    limit_bytes: int
    backlog: int

    @property
    def title(self) -> str:
        return f"{self.work}; {self.backlog:,} behind, {self.body_bytes:,} B"


def rows(messages: int, groups: Collection[str]) -> list[Row]:
    """Return the passes of one round, in their order: the two sides take turns. messages: of a W1 pass."""
    chosen = [row for row in _rows(messages) if row.group in groups]
    return [Row("floor", "floor", Work("floor", messages)), *chosen]


def in_turns(plan: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each comparison together: first the one without headers. Other rows come alone."""
    for _, compared in groupby(plan, key=lambda row: row.beside or row.title):
        yield list(compared)


def end_to_end(way: str, persistent: bool, in_loop: bool = False) -> str:
    """Return the title of a W6 row."""
    return f"{way}; {_kept(persistent)}{', asyncio' if in_loop else ''}"


def broker_end_to_end(persistent: bool) -> str:
    """Return the title of the other side's W6 row."""
    return f"ActiveMQ send, receive; {_kept(persistent)}"


def depths(messages: int) -> list[tuple[Depth, Depth, Depth]]:
    """Return three depths for each work: one to compare with the peer, and two that differ only in depth.

    The last two have bodies of 16 bytes, so that the deeper one needs one gigabyte of disk instead of eleven, and the
    smallest limit, so that neither is served from RAM.
    """
    return [
        (
            Depth(work, KIB, MEMORY_LIMIT_BYTES, 5 * messages),
            Depth(work, 16, MEMORY_LIMIT_BYTES_MIN, 5 * messages),
            Depth(work, 16, MEMORY_LIMIT_BYTES_MIN, 50 * messages),
        )
        for work in (SINGLE, BATCHED_PATH)
    ]


def broker_at_depth(messages: int) -> str:
    """Return the title of the other side's W8 row."""
    return f"ActiveMQ send, receive; {5 * messages:,} behind"


def header_works(messages: int) -> dict[str, Work]:
    """Return the works that W11 does without headers, with them, and with a selector, by name."""
    batch = BATCH_MESSAGES
    works = {
        SEND: Work("send", messages),
        SEND_MANY: Work("send", messages, batch=batch),
        SINGLE_PATH_LAGGING: Work("path", messages, backlog=LAG),
        BATCHED_PATH_LAGGING: Work("path", messages, batch=batch, backlog=LAG),
        READ_BACK: Work("read_back", 5 * messages),
        READ_BACK_SLICES: Work("read_back", 5 * messages, batch=batch),
    }
    for way, (sent, taken) in END_TO_END_WAYS.items():
        works[end_to_end(way, persistent=True)] = _threads(messages, sent, taken, persistent=True)
    return works


def with_headers(work: str, headers: Headers) -> str:
    """Return the title of a W11 row."""
    return f"{work}; {_HEADERS_SAID[headers]}"


def _rows(messages: int) -> Iterator[Row]:
    batch = BATCH_MESSAGES
    yield Row("W1", SEND, Work("send", messages))
    yield Row("W1", SEND_MANY, Work("send", messages, batch=batch))
    yield Row("W1", KAHADB_ADD, Peer("W1 sync", "W1-sync", messages))
    for lag in (LAG, 0):
        yield Row("W2", f"{SINGLE}; {lag:,} behind", Work("path", messages, backlog=lag))
        yield Row("W2", f"{BATCHED_PATH}; {lag:,} behind", Work("path", messages, batch=batch, backlog=lag))
    yield Row("W2", KAHADB_PATH, Peer("W2 sync", "W2-sync", messages))
    yield Row("W2", KAHADB_CONCURRENT, Peer("W2 async-on", "W2-async-on", messages))
    yield Row("W3", DURABLE_SEND, Work("synced", messages // 40))
    yield Row("W3", DURABLE_SENDS, Work("synced", messages // 4, producers=PRODUCERS))
    yield Row("W3", KAHADB_DURABLE_ADD, Peer("W3", "W3-add-1t", messages // 40))
    yield Row("W3", KAHADB_DURABLE_ADDS, Peer("W3", "W3-add-32t", messages // 40))
    yield Row("W4", REOPEN, Work("reopen", 5 * messages))
    yield Row("W5", READ_BACK, Work("read_back", 5 * messages))
    yield Row("W5", READ_BACK_SLICES, Work("read_back", 5 * messages, batch=batch))
    for group, title in (("W4", KAHADB_REOPEN), ("W5", KAHADB_CURSOR)):  # one command does both
        yield Row(group, title, Peer("W4", "W5-cursor-200", 5 * messages))
    yield from _end_to_end_rows(messages)
    overflow = 5 * messages // 2
    yield Row("W7", FILL, Work("fill", overflow))
    yield Row("W7", DRAIN, Work("drain", overflow))
    yield Row("W7", BROKER_FILL, Peer("W7", "W7-fill", overflow))
    yield Row("W7", BROKER_DRAIN, Peer("W7", "W7-drain", overflow))
    yield Row("W7", OVERFLOWN, Work("overflown", overflow))
    for depth in (depth for of_work in depths(messages) for depth in of_work):
        each = batch if depth.work == BATCHED_PATH else 1
        # Enough small messages are moved that no list can hold them, so that the deep backlog is read.
        moved = messages if depth.body_bytes == KIB else 5 * messages
        work = Work("path", moved, depth.body_bytes, each, limit_bytes=depth.limit_bytes, backlog=depth.backlog)
        yield Row("W8", depth.title, work)
    peer = Peer("W8", "W8-send+consume-at-depth", messages // 2, backlog=5 * messages)
    yield Row("W8", broker_at_depth(messages), peer)
    yield Row("W9", STUCK, Work("stuck", 1 + messages // 10_000))
    yield Row("W9", KAHADB_STUCK, Peer("W9 every", "W9-after-every", messages))
    yield Row("W10", CONTENDED, Work("contended", messages // 4))
    for title, work in header_works(messages // TURNED_SHARE).items():
        for headers in _HEADERS_SAID:
            compared = replace(work, headers=headers)
            yield Row("W11", with_headers(title, headers), compared, with_headers(title, "none"))
    yield Row("W12", FIND, Work("find", 50 * messages, 16))
    for name in ONE_BY_ONE + BATCHED:
        yield Row("Python", name, PythonQueue(name, messages))
    yield Row("memory", "memory", Work("memory", 5 * messages))


def _end_to_end_rows(messages: int) -> Iterator[Row]:
    for persistent in (True, False):
        for way, (batch, take) in END_TO_END_WAYS.items():
            work = _threads(messages, batch, take, persistent)
            yield Row("W6", end_to_end(way, persistent), work)
            yield Row("W6", end_to_end(way, persistent, in_loop=True), replace(work, kind="tasks"))
    # The fastest persistent way, but still slow, so it gets half as many messages.
    sent = Peer("W6 p:auto", "W6-persistent-auto", messages // 2, "-Dasyncsend=true")
    yield Row("W6", broker_end_to_end(True), sent)
    yield Row("W6", broker_end_to_end(False), Peer("W6 n:auto", "W6-nonpersistent-auto", messages))


def _threads(messages: int, batch: int, take: int, persistent: bool) -> Work:
    return Work("threads", messages, batch=batch, limit_bytes=END_TO_END_LIMIT_BYTES, take=take, persistent=persistent)


def _kept(persistent: bool) -> str:
    return "persistent" if persistent else "non-persistent"
