"""A queue whose policy limits it, in an event loop: tasks wait for room in one line with the threads that do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ..store.errors import ForebayError
from ..store.message import DEFAULT_PRIORITY, Headers, Message
from .admission import Admission
from .async_queue import PART_BYTES_MAX, AsyncQueue
from .async_transaction import AsyncTransaction, inner_transaction
from .limited_queue import LimitedQueue
from .loop_engine import LoopEngine
from .waiting_line import Bell

if TYPE_CHECKING:
    from .async_forebay import AsyncForebay
    from .queue_area import QueueArea

T = TypeVar("T")

ADMITTED_TOGETHER_MAX: Final = 256


class AdmittedQueue(LimitedQueue):
    """A LimitedQueue for what was admitted before: `admitted` messages, and no more."""

    admitted = 0

    def _admit(self, sizes: Sequence[int]) -> int:
        count = min(self.admitted, len(sizes))
        assert count, "whoever sends has waited for room"
        self.admitted -= count
        return count


class AsyncLimitedQueue(AsyncQueue):
    """As AsyncQueue, within `max_messages` and `max_bytes` of its DestinationPolicy."""

    _sender: AdmittedQueue

    def __init__(self, bay: AsyncForebay, engine: LoopEngine, area: QueueArea) -> None:
        super().__init__(bay, engine, AdmittedQueue(engine, area))
        assert area.admission is not None
        self._admission: Admission = area.admission

    async def send(
        self,
        body: bytes,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: AsyncTransaction | None = None,
        persistent: bool = True,
        producer: str | None = None,
    ) -> str:
        """As AsyncQueue.send. Where the queue is full it waits or raises StoreFull, as its policy says.

        Cancelled while it waits, it is not stored.
        """
        message = Message(body, headers, priority, message_id, producer=producer)
        sizes = (self._size(message),)
        await self._room(sizes)
        own_id = self._within(
            sizes,
            lambda: self._sender.send(
                body,
                headers=headers,
                priority=priority,
                message_id=message_id,
                transaction=inner_transaction(transaction),
                persistent=persistent,
                producer=producer,
            ),
        )
        if self._engine.owed:
            await self._engine.confirm()
        return own_id

    async def send_many(self, messages: Iterable[Message], *, transaction: AsyncTransaction | None = None) -> list[str]:
        """As AsyncQueue.send_many, in parts, as there is room."""
        if not isinstance(messages, Iterable):
            return self._sender.send_many(messages)  # which refuses it
        ids: list[str] = []
        batch: list[Message] = []
        batch_bytes = 0
        try:
            for message in messages:
                batch_bytes += self._size(message)
                batch.append(message)
                if len(batch) >= ADMITTED_TOGETHER_MAX or batch_bytes >= PART_BYTES_MAX:
                    await self._send_batch(batch, ids, transaction)
                    batch, batch_bytes = [], 0
            if batch:
                await self._send_batch(batch, ids, transaction)
        except ForebayError as error:
            error.stored = len(ids) + getattr(error, "stored", 0)  # type: ignore[attr-defined]
            raise
        finally:
            if ids:
                self._engine.after_write(self._engine.position())
            if self._engine.owed:
                await self._engine.confirm()
        return ids

    async def _send_batch(self, batch: list[Message], ids: list[str], transaction: AsyncTransaction | None) -> None:
        sizes = [self._size(message) for message in batch]
        begin = 0
        while begin < len(batch):
            end = begin + await self._room(sizes[begin:])
            part = batch[begin:end]
            send = partial(self._sender.send_many, part, transaction=inner_transaction(transaction))
            ids += self._within(sizes[begin:end], send)
            begin = end

    def _size(self, message: Message) -> int:
        properties, body = self._sender._content(message)
        return len(properties) + len(body)

    def _within(self, sizes: Sequence[int], send: Callable[[], T]) -> T:
        """Send what was admitted. What is not stored gives its room back."""
        queue = self._sender
        queue.admitted = len(sizes)
        try:
            return send()
        finally:
            unused, queue.admitted = queue.admitted, 0
            if unused:
                self._admission.stored(sizes[-unused:])

    async def _room(self, sizes: Sequence[int]) -> int:
        """Reserve as many of these messages as there is room for, at least one; how many. As Admission.admit."""
        engine, admission = self._engine, self._admission
        if engine.ends_turn():
            await asyncio.sleep(0)
        admitted = admission.admit_now(sizes)
        if admitted:
            return admitted
        engine.after_write(engine.position())
        if engine.owed:
            await engine.confirm()
        woken = _Woken(self._bay.bell)
        with engine.lock:
            sender = admission.line_up(sizes, woken)
        try:
            while True:
                with engine.lock:
                    wait_seconds = admission.look(sender)
                if not wait_seconds:
                    return sender.admitted
                await woken.wait(wait_seconds)
        except BaseException:
            with engine.lock:
                admission.leave(sender)
            raise
        finally:
            with engine.lock:
                admission.blocked_seconds += engine.monotonic() - sender.began


class _Woken:
    """Wakes one task."""

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._bell.ring(self._event.set)

    async def wait(self, seconds: float) -> None:
        self._event.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()
