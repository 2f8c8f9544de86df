"""Measure non-persistent messages that the memory limit has no room for, sent and then taken."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

import forebay
from forebay.cache.process.process_memory import unique_set_bytes

from .host import BATCH_MESSAGES, WAIT_SECONDS, bodies, opened
from .stopwatch import Facts, Stopwatch

_SAMPLES: Final = 40
"""Samples of the process's memory while it fills, and as many while it drains."""


def filled(directory: Path, messages: int, body_bytes: int) -> Facts:
    """Send all messages one by one, while no consumer takes any."""
    with opened(directory) as bay:
        queue = bay.queue("bench")
        with Stopwatch() as watch:
            _fill(queue, messages, body_bytes)
        assert queue.depth == messages
        return watch.facts()


def drained(directory: Path, messages: int, body_bytes: int) -> Facts:
    """Take and acknowledge all messages in batches, after all were sent."""
    with opened(directory) as bay:
        queue = bay.queue("bench")
        _fill(queue, messages, body_bytes)
        with Stopwatch() as watch:
            _drain(queue, messages)
        return watch.facts()


def overflown_memory(directory: Path, messages: int, body_bytes: int) -> Facts:
    """Fill and drain, and return uss_growth_bytes: the most that the process grew meanwhile."""
    before_bytes = unique_set_bytes()
    samples: list[int] = []

    def look() -> None:
        samples.append(unique_set_bytes())

    with opened(directory) as bay:
        queue = bay.queue("bench")
        _fill(queue, messages, body_bytes, look)
        _drain(queue, messages, look)
        held_bytes_max = bay.statistics().memory.held_bytes_max
    return {"uss_growth_bytes": max(samples) - before_bytes, "held_bytes_max": held_bytes_max}


def _nothing() -> None: ...


def _fill(queue: forebay.Queue, messages: int, body_bytes: int, look: Callable[[], None] = _nothing) -> None:
    made, send, pause = bodies(body_bytes, messages), queue.send, -(-messages // _SAMPLES)
    for _ in range(_SAMPLES):
        for body in islice(made, pause):
            send(body, persistent=False)
        look()


def _drain(queue: forebay.Queue, messages: int, look: Callable[[], None] = _nothing) -> None:
    pause, settled, next_look = -(-messages // _SAMPLES), 0, 0
    with queue.subscribe() as consumer:
        while settled < messages:
            deliveries = consumer.take(BATCH_MESSAGES, timeout=WAIT_SECONDS)
            assert deliveries, "the queue ran dry"
            consumer.ack(deliveries)
            settled += len(deliveries)
            if settled >= next_look:
                look()
                next_look += pause
