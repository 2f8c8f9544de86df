"""Measuring: the two processes of a point. One fills a store, works with it and is killed; the other opens it again."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import forebay
from forebay.cache.process.process_memory import unique_set_bytes
from forebay.dispatch.config.sizes import MIB

from ..works.host import MEMORY_LIMIT_BYTES, WAIT_SECONDS
from ..works.process import PREFIX, PassFailed
from ..works.stopwatch import Facts, Stopwatch
from .point import Point

_NOISE: Final = random.Random(42).randbytes(2 * MIB)
_STRIDE_BYTES: Final = 977
_LOOKS: Final = 8
"""Samples of the process's memory in the measured stretch."""
# Consumers of rare messages would be reported as slow, and thousands of reports would distort the measurement.
_POLICIES: Final = {">": forebay.DestinationPolicy(slow_consumer_seconds=None)}


def measure(point: Point, directory: Path) -> Facts:
    """Measure a point: seconds, cpu_seconds, others_seconds, uss_bytes, held_bytes, open_seconds. Raises PassFailed."""
    with TemporaryDirectory(dir=directory, prefix=PREFIX) as place:
        os.sync()  # otherwise the kernel would still write data of the previous point
        facts = _process("work", point, place, -signal.SIGKILL)
        return facts | _process("reopen", point, place, 0)


def _process(what: str, point: Point, place: str, wanted: int) -> Facts:
    # -P: a forebay in the current directory must not be taken for the one that is measured.
    command = [sys.executable, "-P", "-m", __name__, what, json.dumps(dataclasses.asdict(point)), place]
    ended = subprocess.run(command, stdout=subprocess.PIPE)
    if ended.returncode != wanted:
        raise PassFailed(f"{what} of {point} ended with exit code {ended.returncode}")
    facts: Facts = json.loads(ended.stdout)
    return facts


def main() -> None:
    """Do the work that the arguments describe, in this fresh process, and print its facts."""
    what, text, place = sys.argv[1:]
    point = Point(**json.loads(text))
    print(json.dumps(work(point, place) if what == "work" else reopen(point, place)), flush=True)
    if what == "work":
        os.kill(os.getpid(), signal.SIGKILL)


def work(point: Point, place: str) -> Facts:
    """Do the work and leave the store open, for the kill."""
    before_bytes = unique_set_bytes()
    bay = _opened(place)
    queues = [bay.queue(f"scale.{number}") for number in range(point.queues)]
    for first in range(0, point.depth, point.chunk_messages):
        _send(queues, point, range(first, min(first + point.chunk_messages, point.depth)))
    bay.checkpoint()
    consumers = list(_subscribed(queues, point))
    looks = [unique_set_bytes()]
    taken = dict.fromkeys(("seconds", "cpu_seconds", "others_seconds"), 0.0)
    chunks = [range(first, first + point.chunk_messages) for first in range(0, point.messages, point.chunk_messages)]
    stretch = -(-len(chunks) // _LOOKS)
    for number in range(0, len(chunks), stretch):
        with Stopwatch() as watch:
            for chunk in chunks[number : number + stretch]:
                _send(queues, point, chunk)
                _take(consumers, point, chunk)
        facts = watch.facts()
        taken = {name: seconds + facts[name] for name, seconds in taken.items()}
        looks.append(unique_set_bytes())
    assert sum(queue.depth for queue in queues) == point.depth
    held_bytes_max = bay.statistics().memory.held_bytes_max
    return {**taken, "uss_bytes": max(looks) - before_bytes, "held_bytes": held_bytes_max}


def reopen(point: Point, place: str) -> Facts:
    begun = time.perf_counter()
    bay = _opened(place)
    seconds = time.perf_counter() - begun
    with bay:
        pending = bay.statistics().store.pending_messages
        assert pending == point.depth, f"{pending} of {point.depth} messages are there"
    return {"open_seconds": seconds}


def _opened(place: str) -> forebay.Forebay:
    return forebay.open(place, memory_limit=MEMORY_LIMIT_BYTES, sync="never", policies=_POLICIES)


def _subscribed(queues: list[forebay.Queue], point: Point) -> Iterator[forebay.Consumer]:
    for queue in queues:
        for _ in range(point.consumers):
            if not point.selectors:
                yield queue.subscribe()
            for number in range(point.selectors):
                yield queue.subscribe(selector=f"key = {number}")


def _send(queues: list[forebay.Queue], point: Point, numbers: range) -> None:
    if len(queues) > 1:
        for number in numbers:
            queues[number % len(queues)].send(_body(point, number))
        return
    selectors = point.selectors
    queues[0].send_many(
        forebay.Message(_body(point, number), {"key": number % selectors} if selectors else None) for number in numbers
    )


def _body(point: Point, number: int) -> bytes:
    """Return a body as a new object, as a broker gets its messages."""
    at = number * _STRIDE_BYTES % MIB
    return _NOISE[at : at + point.body_bytes]


def _take(consumers: list[forebay.Consumer], point: Point, numbers: range) -> None:
    """Take a chunk of messages, from one consumer after the other."""
    at_once = point.taken_at_once or point.chunk_messages
    for number in numbers[::at_once]:
        consumer = consumers[number // at_once % len(consumers)]
        missing = at_once
        while missing:
            deliveries = consumer.take(missing, timeout=WAIT_SECONDS)
            assert deliveries, "the queue ran dry"
            assert all(len(delivery.body) == point.body_bytes for delivery in deliveries)
            consumer.ack(deliveries)
            missing -= len(deliveries)


if __name__ == "__main__":
    main()
