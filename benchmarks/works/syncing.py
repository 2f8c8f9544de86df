"""Measure sends that are durable when they return, and the bare rate at which the disk makes a written KiB durable.

There are two bare rates. The sync of a growing file also waits for the file system's own records of the size. A sync
over zeros that were written before does not; data logs of a store with sync="always" are written in this way. Targets,
and the figures of KahaDB's driver, are multiples of the first rate. The second rate is printed beside it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import forebay
import forebay.aio

from .host import bodies, opened, settings, store_of
from .minimal import durable_seconds
from .stopwatch import Facts, Stopwatch

BARE_SYNCS: Final = 2000
_sync = getattr(os, "fdatasync", os.fsync)


def synced(directory: Path, messages: int, body_bytes: int, producers: int) -> Facts:
    """Return how many messages were stored in the time of one bare sync of a growing file: times_bare.
    times_overwriting: the same in the time of one bare sync over zeros.

    1 producer is a thread. More producers are tasks of one loop, each of which awaits its send before the next. The
    least program does the same work just after, and its facts begin with `least_`. The bare rates are measured just
    before and just after.
    """
    syncs = min(BARE_SYNCS, messages)
    before = _bare(directory, syncs, body_bytes)
    if producers == 1:
        facts = _from_a_thread(directory, messages, body_bytes)
    else:
        facts = asyncio.run(_from_tasks(directory, messages, body_bytes, producers))
    after = _bare(directory, syncs, body_bytes)
    facts |= _times(before, after, messages / facts["seconds"])
    if producers > 1:
        seconds, cpu_seconds = durable_seconds(directory, messages, body_bytes, producers)
        least = _times(after, _bare(directory, syncs, body_bytes), messages / seconds)
        least |= {"seconds": seconds, "cpu_seconds": cpu_seconds}
        facts |= {f"least_{name}": value for name, value in least.items()}
    return facts


def _bare(directory: Path, syncs: int, body_bytes: int) -> tuple[float, float]:
    """Return the seconds of one sync of a growing file, and of one sync over zeros."""
    grown = bare_seconds(directory, syncs, body_bytes)
    return grown / syncs, bare_seconds(directory, syncs, body_bytes, grows=False) / syncs


def _times(before: tuple[float, float], after: tuple[float, float], rate: float) -> Facts:
    """Return how many messages of this rate are stored in the time of one sync, and that time, for both rates."""
    growing, overwriting = ((first + second) / 2 for first, second in zip(before, after, strict=True))
    return {
        "bare_seconds": growing,
        "overwriting_seconds": overwriting,
        "times_bare": growing * rate,
        "times_overwriting": overwriting * rate,
    }


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


def bare_seconds(directory: Path, syncs: int, body_bytes: int, *, grows: bool = True) -> float:
    """Return the seconds to append a body to a growing file and make it durable, `syncs` times.

    grows: False: write the bodies over zeros that are already on the disk.
    """
    path = directory / "bare"
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    if not grows:
        for _ in range(syncs):
            os.write(descriptor, bytes(body_bytes))
        os.fsync(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
    begun = time.perf_counter()
    for body in bodies(body_bytes, syncs):
        os.write(descriptor, body)
        _sync(descriptor)
    seconds = time.perf_counter() - begun
    os.close(descriptor)
    path.unlink()
    return seconds
