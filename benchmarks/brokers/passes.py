"""The pass of a broker: the phases store, path and backlog over one server, each with a limit of messages and time."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from forebay.benchmarks.works.host import BATCH_MESSAGES, bodies
from forebay.benchmarks.works.stopwatch import Facts
from forebay.dispatch.config.sizes import KIB

from .broker import Broker, BrokerFailed
from .server import Memory

BODY_BYTES: Final = KIB
_SAMPLES: Final = 20
"""Samples of memory while the backlog fills. The clock does not run during a sample."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The messages and the seconds at which a phase ends, whichever comes first."""

    messages: int
    seconds: float
    backlog_messages: int
    backlog_seconds: float


async def measured(broker: Broker, place: Path, sizes: Sizes) -> tuple[str, Facts]:
    """Do a pass; return the versions, and its facts: rates of each phase, messages of the backlog, memory."""
    versions = await broker.start(place)
    found = await _Pass(broker, sizes).facts()
    await broker.disconnect()
    return versions, found


class _Pass:
    def __init__(self, broker: Broker, sizes: Sizes) -> None:
        self._broker = broker
        self._sizes = sizes
        self._made = bodies(BODY_BYTES, 10 * (sizes.messages + sizes.backlog_messages))

    async def facts(self) -> Facts:
        sizes = self._sizes
        empty = self._broker.memory()
        stored, seconds = await self._repeat(self._store_one, 1, sizes.messages, sizes.seconds)
        facts: Facts = {"store": stored / seconds}
        await self._drain(stored, float("inf"))
        for name, step, size in (("singles", self._single, 1), ("batches", self._batch, BATCH_MESSAGES)):
            moved, seconds = await self._repeat(step, size, sizes.messages, sizes.seconds)
            facts[name] = moved / seconds
        full = [empty]
        backlog, seconds = await self._fill(full)
        facts |= {"fill": backlog / seconds, "backlog_messages": backlog}
        drained, seconds = await self._drain(backlog, sizes.backlog_seconds)
        facts |= {"drain": drained / seconds, "drained_messages": drained}
        return facts | {
            "empty_rss_bytes": empty.rss_bytes,
            "rss_bytes": max(memory.rss_bytes for memory in full),
            "pss_bytes": max(memory.pss_bytes for memory in full),
        }

    async def _store_one(self) -> None:
        await self._broker.put_one(next(self._made))

    async def _store_batch(self) -> None:
        await self._broker.put_batch(list(islice(self._made, BATCH_MESSAGES)))

    async def _single(self) -> None:
        await self._store_one()
        await self._take(1)

    async def _batch(self) -> None:
        await self._store_batch()
        await self._take(BATCH_MESSAGES)

    async def _take(self, messages: int) -> None:
        found = await self._broker.take_ack(messages)
        if found != messages * BODY_BYTES:
            raise BrokerFailed(f"{messages} messages had bodies of {found} bytes")

    async def _fill(self, samples: list[Memory]) -> tuple[int, float]:
        sizes = self._sizes
        part = -(-sizes.backlog_messages // _SAMPLES)
        filled, seconds = 0, 0.0
        while filled < sizes.backlog_messages and seconds < sizes.backlog_seconds:
            left = min(part, sizes.backlog_messages - filled), sizes.backlog_seconds - seconds
            more, took = await self._repeat(self._store_batch, BATCH_MESSAGES, *left)
            filled, seconds = filled + more, seconds + took
            samples.append(self._broker.memory())
        return filled, seconds

    async def _drain(self, messages: int, seconds: float) -> tuple[int, float]:
        left = messages

        async def step() -> None:
            nonlocal left
            taken = min(left, BATCH_MESSAGES)
            await self._take(taken)
            left -= taken

        _, took = await self._repeat(step, BATCH_MESSAGES, messages, seconds)
        return messages - left, took

    @staticmethod
    async def _repeat(
        step: Callable[[], Awaitable[None]], step_messages: int, messages: int, seconds: float
    ) -> tuple[int, float]:
        """Do steps up to a number of messages or for a time; return messages and seconds."""
        moved, begun = 0, time.perf_counter()
        ends = begun + seconds
        while moved < messages and time.perf_counter() < ends:
            await step()
            moved += step_messages
        return moved, time.perf_counter() - begun
