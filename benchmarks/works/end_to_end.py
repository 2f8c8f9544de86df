"""Measure a producer and a consumer at the same time in one process. Neither waits for the other."""

from __future__ import annotations

import asyncio
import threading
from itertools import islice
from pathlib import Path

import forebay
import forebay.aio

from .host import WAIT_SECONDS, bodies, opened, settings, store_of
from .stopwatch import Facts, Stopwatch


def threads(
    directory: Path, messages: int, body_bytes: int, limit_bytes: int, batch: int, take: int, persistent: bool
) -> Facts:
    """Send in one thread, take and acknowledge in this one.

    batch: messages of a send_many; 1: use send. take: most messages of one take.
    """
    failures: list[BaseException] = []
    with opened(directory, limit_bytes) as bay:
        queue = bay.queue("bench")

        def produce() -> None:
            try:
                _send(queue, messages, body_bytes, batch, persistent)
            except BaseException as failure:
                failures.append(failure)

        producer = threading.Thread(target=produce)
        with queue.subscribe() as consumer, Stopwatch() as watch:
            producer.start()
            settled = 0
            while settled < messages:
                deliveries = consumer.take(take, timeout=WAIT_SECONDS)
                assert deliveries, failures or "the queue ran dry"
                consumer.ack(deliveries if take > 1 else deliveries[0])
                settled += len(deliveries)
            producer.join()
        assert not failures and queue.depth == 0
    return watch.facts()


def tasks(
    directory: Path, messages: int, body_bytes: int, limit_bytes: int, batch: int, take: int, persistent: bool
) -> Facts:
    """Send in one task of a loop, take and acknowledge in another."""
    return asyncio.run(_tasks(directory, messages, body_bytes, limit_bytes, batch, take, persistent))


async def _tasks(
    directory: Path, messages: int, body_bytes: int, limit_bytes: int, batch: int, take: int, persistent: bool
) -> Facts:
    async with forebay.aio.open(store_of(directory), **settings(limit_bytes)) as bay:
        queue = await bay.queue("bench")

        async def produce() -> None:
            made = bodies(body_bytes, messages)
            if batch == 1:
                for body in made:
                    await queue.send(body, persistent=persistent)
            else:
                while part := [forebay.Message(body, persistent=persistent) for body in islice(made, batch)]:
                    await queue.send_many(part)

        async with queue.subscribe() as consumer:
            with Stopwatch() as watch:
                producer = asyncio.create_task(produce())
                settled = 0
                while settled < messages:
                    deliveries = await consumer.take(take, timeout=WAIT_SECONDS)
                    assert deliveries, "the queue ran dry"
                    await consumer.ack(deliveries if take > 1 else deliveries[0])
                    settled += len(deliveries)
                await producer
        assert queue.depth == 0
    return watch.facts()


def _send(queue: forebay.Queue, messages: int, body_bytes: int, batch: int, persistent: bool) -> None:
    made = bodies(body_bytes, messages)
    if batch == 1:
        send = queue.send
        for body in made:
            send(body, persistent=persistent)
    else:
        while part := [forebay.Message(body, persistent=persistent) for body in islice(made, batch)]:
            queue.send_many(part)
