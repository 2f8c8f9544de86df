"""Measure the works of W1, W2, W5 and W6 with headers and with a selector, and the search for one message.

Each message has four headers, of which the consumer reads two. With a selector the consumer gets one message in a
hundred, and the others stay. Headers are made before the clock starts, because making them is the host's work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import psutil

import forebay
from forebay.store.message import HeaderValue

from .host import BATCH_MESSAGES, WAIT_SECONDS, bodies, opened
from .stopwatch import Facts, Stopwatch

ONE_IN: Final = 100
RARE: Final = 7
FIND_SECONDS: Final = 600.0
_FILL_MESSAGES: Final = 100_000

HEADERS: Final[Sequence[dict[str, HeaderValue]]] = [
    {"region": ("eu", "us", "ap")[part % 3], "part": part, "customer": f"customer {part:08}", "price": part / 8}
    for part in range(ONE_IN)
]


def sent(directory: Path, messages: int, body_bytes: int, batch: int, selective: bool) -> Facts:
    """Send all messages. With a selector, a consumer takes its part while the clock does not run."""
    with opened(directory) as bay:
        queue = bay.queue("bench")
        if not selective:
            with Stopwatch() as watch:
                _send(queue, messages, body_bytes, batch)
        else:
            with _consumer(queue, selective) as consumer:
                with Stopwatch() as watch:
                    _send(queue, messages, body_bytes, batch)
                _take(consumer, _wanted(0, messages, selective))
    return watch.facts()


def crossed(directory: Path, messages: int, body_bytes: int, batch: int, selective: bool, backlog: int) -> Facts:
    """Send, take and acknowledge in turns, over a backlog with the same share of wanted messages."""
    with opened(directory) as bay:
        queue = bay.queue("bench")
        _send(queue, backlog, body_bytes, batch)
        bay.checkpoint()
        with _consumer(queue, selective) as consumer, Stopwatch() as watch:
            if batch == 1:
                _cross_singly(queue, consumer, messages, body_bytes, selective)
            else:
                _cross_in_batches(queue, consumer, messages, body_bytes, batch, selective)
    return watch.facts()


def read_back(directory: Path, messages: int, body_bytes: int, batch: int, selective: bool) -> Facts:
    """Take and acknowledge messages that an earlier open stored."""
    with opened(directory) as bay:
        _send(bay.queue("bench"), messages, body_bytes, batch)
    with opened(directory) as bay:
        queue = bay.queue("bench")
        with Stopwatch() as watch, _consumer(queue, selective) as consumer:
            _take(consumer, _wanted(0, messages, selective))
    return watch.facts()


def threads(
    directory: Path, messages: int, body_bytes: int, limit_bytes: int, batch: int, take: int, selective: bool
) -> Facts:
    """Send in one thread, take and acknowledge in this one."""
    failures: list[BaseException] = []
    with opened(directory, limit_bytes) as bay:
        queue = bay.queue("bench")

        def produce() -> None:
            try:
                _send(queue, messages, body_bytes, batch)
            except BaseException as failure:
                failures.append(failure)

        producer = threading.Thread(target=produce)
        with _consumer(queue, selective) as consumer, Stopwatch() as watch:
            producer.start()
            _take(consumer, _wanted(0, messages, selective), take)
            producer.join()
        assert not failures, failures
    return watch.facts()


def found(directory: Path, messages: int, body_bytes: int) -> Facts:
    """Find the one message in the middle whose number a selector names: find_seconds, read_bytes, first_seconds.

    A first search examines each block, because no selector has named the header before: first_seconds. The second one
    is made after the store was closed and opened again. read_bytes: all bytes that this process read from the system
    for it, whether from the disk or from the page cache.
    """
    with opened(directory) as bay:
        queue, numbers = bay.queue("bench"), iter(range(messages))
        made = bodies(body_bytes, messages)
        while queue.send_many(
            forebay.Message(body, HEADERS[number % ONE_IN] | {"part": number})
            for body, number in zip(islice(made, _FILL_MESSAGES), numbers, strict=False)
        ):
            pass
        assert queue.depth == messages
    with opened(directory) as bay:
        first_seconds = _search(bay.queue("bench"), messages // 2).facts()["seconds"]
    with opened(directory) as bay:
        queue = bay.queue("bench")
        read_bytes = _read_bytes()
        facts = _search(queue, messages // 2).facts()
    found_bytes = _read_bytes() - read_bytes
    return facts | {"find_seconds": facts["seconds"], "read_bytes": found_bytes, "first_seconds": first_seconds}


def _search(queue: forebay.Queue, part: int) -> Stopwatch:
    """Find the one message of that part, and give it back."""
    with Stopwatch() as watch, queue.subscribe(selector=f"part = {part}") as consumer:
        [delivery] = consumer.take(1, timeout=FIND_SECONDS)
        assert delivery.headers["part"] == part
        consumer.release(delivery)
    return watch


# ---------------------------------------------------------------------- their loops


def _consumer(queue: forebay.Queue, selective: bool) -> forebay.Consumer:
    return queue.subscribe(selector=f"part = {RARE}") if selective else queue.subscribe()


def _send(queue: forebay.Queue, messages: int, body_bytes: int, batch: int) -> None:
    made = _made(messages, body_bytes)
    if batch == 1:
        send = queue.send
        for body, headers in made:
            send(body, headers=headers)
    else:
        while part := _messages(made, batch):
            queue.send_many(part)


def _cross_singly(
    queue: forebay.Queue, consumer: forebay.Consumer, messages: int, body_bytes: int, selective: bool
) -> None:
    send, take, ack = queue.send, consumer.take, consumer.ack
    for body, headers in _made(messages, body_bytes):
        send(body, headers=headers)
        if not selective or headers["part"] == RARE:
            [delivery] = take(1, timeout=WAIT_SECONDS)
            _read_two(delivery)
            ack(delivery)


def _cross_in_batches(
    queue: forebay.Queue, consumer: forebay.Consumer, messages: int, body_bytes: int, batch: int, selective: bool
) -> None:
    made = _made(messages, body_bytes)
    number = 0
    while part := _messages(made, batch):
        queue.send_many(part)
        _take(consumer, _wanted(number, number + len(part), selective))
        number += len(part)


def _made(messages: int, body_bytes: int) -> Iterator[tuple[bytes, dict[str, HeaderValue]]]:
    return zip(bodies(body_bytes, messages), cycle(HEADERS), strict=False)


def _messages(made: Iterator[tuple[bytes, dict[str, HeaderValue]]], batch: int) -> list[forebay.Message]:
    return [forebay.Message(body, headers) for body, headers in islice(made, batch)]


def _take(consumer: forebay.Consumer, messages: int, take: int = BATCH_MESSAGES) -> None:
    """Take this many messages, look at two headers of each, and acknowledge them."""
    while messages:
        deliveries = consumer.take(min(take, messages), timeout=WAIT_SECONDS)
        assert deliveries, "the queue ran dry"
        for delivery in deliveries:
            _read_two(delivery)
        consumer.ack(deliveries if take > 1 else deliveries[0])
        messages -= len(deliveries)


def _read_two(delivery: forebay.Delivery) -> None:
    headers = delivery.headers
    headers["region"], headers["part"]


def _wanted(first: int, end: int, selective: bool) -> int:
    """Return how many of the messages with these numbers the consumer gets."""
    return len(range(first + (RARE - first) % ONE_IN, end, ONE_IN)) if selective else end - first


def _read_bytes() -> int:
    return int(psutil.Process().io_counters().read_chars)
