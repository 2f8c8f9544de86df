"""Sends that are durable when they return, beside the bare rate at which the disk makes an appended KiB durable."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import forebay
import forebay.aio

from .host import bodies, opened, settings, store_of
from .stopwatch import Facts, Stopwatch

BARE_SYNCS: Final = 2000
_sync = getattr(os, "fdatasync", os.fsync)


def synced(directory: Path, messages: int, body_bytes: int, producers: int) -> Facts:
    """times_bare: how many messages were stored in the time of one bare sync.

    1 producer: a thread. More: that many tasks of one loop, each of which
    awaits its send before the next. The bare rate is that of just before and
    just after.
    """
    syncs = min(BARE_SYNCS, messages)
    before = bare_seconds(directory, syncs, body_bytes)
    if producers == 1:
        facts = _from_a_thread(directory, messages, body_bytes)
    else:
        facts = asyncio.run(_from_tasks(directory, messages, body_bytes, producers))
    bare = (before + bare_seconds(directory, syncs, body_bytes)) / (2 * syncs)
    return facts | {"times_bare": bare * messages / facts["seconds"]}


def _from_a_thread(directory: Path, messages: int, body_bytes: int) -> Facts:
    with opened(directory, sync="always") as bay:
        queue = bay.queue("bench")
        with Stopwatch() as watch:
            for body in bodies(body_bytes, messages):
                queue.send(body)
        assert queue.depth == messages
    return watch.facts()


async def _from_tasks(directory: Path, messages: int, body_bytes: int, producers: int) -> Facts:
    async with forebay.aio.open(store_of(directory), **settings(sync="always")) as bay:
        queue = await bay.queue("bench")
        shared = bodies(body_bytes, messages)

        async def produce() -> None:
            for body in shared:
                await queue.send(body)

        with Stopwatch() as watch:
            await asyncio.gather(*(produce() for _ in range(producers)))
        assert queue.depth == messages
    return watch.facts()


def bare_seconds(directory: Path, syncs: int, body_bytes: int) -> float:
    """Append a body to a growing file and make it durable, so many times."""
    path = directory / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    begun = time.perf_counter()
    for body in bodies(body_bytes, syncs):
        os.write(descriptor, body)
        _sync(descriptor)
    seconds = time.perf_counter() - begun
    os.close(descriptor)
    path.unlink()
    return seconds
