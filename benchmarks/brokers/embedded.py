"""forebay itself, called from the same loop as the clients: no server, no hop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import psutil

import forebay
from forebay.benchmarks.works.host import MEMORY_LIMIT_BYTES, store_of

from .broker import WAIT_SECONDS, Broker, BrokerFailed
from .server import Memory


class Embedded(Broker):
    """An embedded store. sync: the setting of that name."""

    def __init__(self, sync: Literal["always", "interval", "never"]) -> None:
        self._sync = sync
        self._bay: forebay.Forebay | None = None

    @classmethod
    def missing(cls) -> str:
        return ""

    async def start(self, place: Path) -> str:
        self._bay = forebay.open(store_of(place), memory_limit=MEMORY_LIMIT_BYTES, sync=self._sync)
        self._queue = self._bay.queue("bench")
        self._consumer = self._queue.subscribe()
        return f"forebay {forebay.__version__}"

    async def put_one(self, body: bytes) -> None:
        self._queue.send(body)

    async def put_batch(self, bodies: Sequence[bytes]) -> None:
        self._queue.send_many([forebay.Message(body) for body in bodies])

    async def take_ack(self, messages: int) -> int:
        size = 0
        while messages:
            deliveries = self._consumer.take(messages, timeout=WAIT_SECONDS)
            if not deliveries:
                raise BrokerFailed("forebay has nothing more in the queue")
            size += sum(len(delivery.body) for delivery in deliveries)
            self._consumer.ack(deliveries)
            messages -= len(deliveries)
        return size

    def memory(self) -> Memory:
        return Memory.of_process(psutil.Process())

    def stop(self) -> None:
        if self._bay is not None:
            self._bay.close()
