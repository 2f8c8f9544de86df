"""Work: the work that one pass of the benchmarks does with a store, and its measured facts.

A pass has one thread of the caller, unless the work says otherwise, and the two threads of the library, as in every
host. Each pass checks that all its messages came back, so that no figure is of a store that lost something. The caller
removes the directory with the stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal

import forebay
from forebay.cache.process.process_memory import unique_set_bytes
from forebay.dispatch.config.sizes import KIB, MIB

from . import end_to_end, headers
from .contention import contended
from .floor import floor
from .host import BATCH_MESSAGES, MEMORY_LIMIT_BYTES, WAIT_SECONDS, bodies, opened, store_of, touch_memory
from .overflow import drained, filled, overflown_memory
from .reopening import reopen, stuck
from .stopwatch import Facts, Stopwatch
from .syncing import synced

DATA_LOG_BYTES: Final = 32 * MIB
"""The default of `max_file_length`."""

RECORD_BYTES: Final = 160
"""Most bytes of a message and its ack in the journal besides its content."""

HEADER_BYTES: Final = 112
"""Most bytes of the four headers that a message has in W11 and W12."""

_SAMPLES: Final = 40
"""Samples of the process's memory while it fills, and as many while it drains."""


Kind = Literal[
    "floor",
    "send",
    "path",
    "synced",
    "reopen",
    "read_back",
    "threads",
    "tasks",
    "fill",
    "drain",
    "overflown",
    "stuck",
    "contended",
    "memory",
    "find",
]
"""floor: the bare machine. send: store messages. path: send, take and acknowledge each. synced: store them durably.
reopen: opening over a backlog. read_back: take and acknowledge what an earlier open stored. threads, tasks: a producer
and a consumer at the same time. fill, drain, overflown: non-persistent messages that RAM has no room for, stored, then
taken, and what the process needs for both. stuck: what stays on the disk for one message in each data log. contended:
store them beside a thread that computes. memory: the process while a backlog is stored and drained. find: one message
by a selector."""


Headers = Literal["none", "read", "selected"]
"""none: messages have no headers. read: they have four, of which the consumer reads two. selected: besides, it has a
selector that matches one in a hundred."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one pass, which its process gets as JSON."""

    kind: Kind
    messages: int
    """Number of messages; for the kind stuck, number of data logs."""
    body_bytes: int = KIB
    batch: int = 1
    """Messages of one call. 1: `send`, `take(1)` and a single `ack`."""
    _: KW_ONLY
    take: int = 1
    """Most messages of one take. For the kinds threads and tasks."""
    producers: int = 1
    """Number of producers. For the kind synced."""
    persistent: bool = True
    """For the kinds threads and tasks."""
    limit_bytes: int = MEMORY_LIMIT_BYTES
    backlog: int = 0
    """Messages that stay in the queue during the work, sent in the same way."""
    headers: Headers = "none"
    """For the kinds send, path, read_back and threads."""

    @property
    def disk_bytes(self) -> int:
        """Least bytes of disk for the pass, if nothing is cleaned up meanwhile."""
        if self.kind == "stuck":
            return 2 * self.messages * DATA_LOG_BYTES
        header_bytes = HEADER_BYTES if self.kind == "find" or self.headers != "none" else 0
        if self.kind == "synced":  # the least program beside it writes them again
            return 2 * self.messages * (self.body_bytes + RECORD_BYTES) + 128 * MIB
        return (self.messages + self.backlog) * (self.body_bytes + RECORD_BYTES + header_bytes) + 128 * MIB


def run(work: Work, directory: Path) -> Facts:
    """Do the work in a directory of its own, which must be empty."""
    messages, body_bytes = work.messages, work.body_bytes
    if work.headers != "none":
        return _with_headers(work, directory)
    match work.kind:
        case "floor":
            return floor(directory, messages)
        case "send":
            return _send(work, directory)
        case "path":
            return _path(work, directory)
        case "synced":
            return synced(directory, messages, body_bytes, work.producers)
        case "reopen":
            return reopen(directory, messages, partial(_fill, messages=messages, work=work))
        case "read_back":
            return _read_back(work, directory)
        case "threads" | "tasks":
            go = end_to_end.threads if work.kind == "threads" else end_to_end.tasks
            return go(directory, messages, body_bytes, work.limit_bytes, work.batch, work.take, work.persistent)
        case "fill":
            return filled(directory, messages, body_bytes)
        case "drain":
            return drained(directory, messages, body_bytes)
        case "overflown":
            return overflown_memory(directory, messages, body_bytes)
        case "stuck":
            return stuck(directory, messages, body_bytes)
        case "contended":
            return contended(directory, messages, body_bytes)
        case "memory":
            return _memory(work, directory)
        case "find":
            return headers.found(directory, messages, body_bytes)


def _with_headers(work: Work, directory: Path) -> Facts:
    messages, body_bytes, batch, selective = work.messages, work.body_bytes, work.batch, work.headers == "selected"
    match work.kind:
        case "send":
            return headers.sent(directory, messages, body_bytes, batch, selective)
        case "path":
            return headers.crossed(directory, messages, body_bytes, batch, selective, work.backlog)
        case "read_back":
            return headers.read_back(directory, messages, body_bytes, batch, selective)
        case "threads":
            return headers.threads(directory, messages, body_bytes, work.limit_bytes, batch, work.take, selective)
        case other:
            raise ValueError(f"the work {other} has no headers")


# ---------------------------------------------------------------------- the kinds of work


def _send(work: Work, directory: Path) -> Facts:
    with opened(directory) as bay:
        queue = bay.queue("bench")
        with Stopwatch() as watch:
            _fill(queue, work.messages, work)
        assert queue.depth == work.messages
    index = next(store_of(directory).glob("*/kr-store"))
    return watch.facts() | {"disk_bytes": _disk_bytes(directory), "index_bytes": _disk_bytes(index)}


def _path(work: Work, directory: Path) -> Facts:
    with opened(directory, work.limit_bytes) as bay:
        queue = bay.queue("bench")
        _fill(queue, work.backlog, work)
        bay.checkpoint()
        touch_memory(directory, work.messages * (work.body_bytes + RECORD_BYTES))
        with queue.subscribe() as consumer:
            cross = _cross_singly if work.batch == 1 else _cross_in_batches
            with Stopwatch() as watch:
                cross(queue, consumer, work)
        assert queue.depth == work.backlog
        misses = bay.statistics().destinations["bench"].misses
    return watch.facts() | {"misses": misses}


def _read_back(work: Work, directory: Path) -> Facts:
    with opened(directory) as bay:
        _fill(bay.queue("bench"), work.messages, work)
    with opened(directory) as bay:
        queue = bay.queue("bench")
        with Stopwatch() as watch, queue.subscribe() as consumer:
            for _ in _drained(consumer, work):
                pass
        misses = bay.statistics().destinations["bench"].misses
    return watch.facts() | {"misses": misses}


def _memory(work: Work, directory: Path) -> Facts:
    before_bytes = unique_set_bytes()
    samples: list[int] = []
    pause = -(-work.messages // _SAMPLES)
    with opened(directory) as bay:
        queue = bay.queue("bench")
        made = bodies(work.body_bytes, work.messages)
        while queue.send_many(forebay.Message(body) for body in islice(made, pause)):
            samples.append(unique_set_bytes())
        with queue.subscribe() as consumer:
            for settled in _drained(consumer, work):
                if settled >= pause * (len(samples) - _SAMPLES):
                    samples.append(unique_set_bytes())
        held_bytes_max = bay.statistics().memory.held_bytes_max
    return {"uss_growth_bytes": max(samples) - before_bytes, "held_bytes_max": held_bytes_max}


# ---------------------------------------------------------------------- their loops


def _fill(queue: forebay.Queue, messages: int, work: Work) -> None:
    made = bodies(work.body_bytes, messages)
    if work.batch == 1:
        send = queue.send
        for body in made:
            send(body)
    else:
        while part := [forebay.Message(body) for body in islice(made, work.batch)]:
            queue.send_many(part)


def _cross_singly(queue: forebay.Queue, consumer: forebay.Consumer, work: Work) -> None:
    send, take, ack = queue.send, consumer.take, consumer.ack
    for body in bodies(work.body_bytes, work.messages):
        send(body)
        [delivery] = take(1, timeout=WAIT_SECONDS)
        ack(delivery)


def _cross_in_batches(queue: forebay.Queue, consumer: forebay.Consumer, work: Work) -> None:
    made = bodies(work.body_bytes, work.messages)
    while batch := [forebay.Message(body) for body in islice(made, work.batch)]:
        queue.send_many(batch)
        missing = len(batch)
        while missing:
            deliveries = consumer.take(missing, timeout=WAIT_SECONDS)
            assert deliveries, "the queue ran dry"
            consumer.ack(deliveries)
            missing -= len(deliveries)


def _drained(consumer: forebay.Consumer, work: Work) -> Iterator[int]:
    """Take and acknowledge everything; yield the number of settled messages after each batch."""
    settled = body_bytes = 0
    while settled < work.messages:
        deliveries = consumer.take(BATCH_MESSAGES, timeout=WAIT_SECONDS)
        assert deliveries, "the queue ran dry"
        body_bytes += sum([len(delivery.body) for delivery in deliveries])
        consumer.ack(deliveries)
        settled += len(deliveries)
        yield settled
    assert body_bytes == work.messages * work.body_bytes


def _disk_bytes(directory: Path) -> int:
    """Return the bytes of disk that the files in a directory take."""
    return sum(512 * path.stat().st_blocks for path in directory.rglob("*") if path.is_file())
