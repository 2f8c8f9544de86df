"""A queue whose policy limits it, in an event loop: tasks wait for room in one line with the threads that do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...store.errors import ForebayError, StoreFull
from ...store.message import DEFAULT_PRIORITY, Headers, Message
from ..admission.limits import DestinationLimits
from ..config.checks import deadline_after
from ..core.model import QueueArea
from ..limited_queue import AdmittedGate, LimitedQueue, LimitedTopic
from ..topics.state import TopicState
from .consumer import LoopContext
from .queue import AsyncQueue, AsyncSender, AsyncTopic, Woken
from .transaction import AsyncTransaction, inner_transaction

T = TypeVar("T")

ADMITTED_TOGETHER_MAX: Final = 256


class AsyncLimitedSender(AsyncSender):
    """As AsyncSender, within `max_messages` and `max_bytes` of its DestinationPolicy."""

    _sender: LimitedQueue | LimitedTopic

    @property
    def _admission(self) -> DestinationLimits:
        return self._sender.gate.admission

    async def send(
        self,
        body: bytes,
        *,
        headers: Headers | None = None,
        priority: int = DEFAULT_PRIORITY,
        message_id: str | None = None,
        transaction: AsyncTransaction | None = None,
        persistent: bool = True,
        group: str | None = None,
        expires_in: float | None = None,
        delay: float = 0.0,
        producer: str | None = None,
        timeout: float | None = None,
    ) -> str:
        """As AsyncQueue.send. Where the queue is full it waits or raises StoreFull, as its policy says.

        Cancelled while it waits, it is not stored.
        """
        message = Message(body, headers, priority, message_id, persistent, group, expires_in, delay, producer)
        sizes = (self._size(message),)
        deadline = deadline_after(timeout, self._engine.monitor.monotonic())
        if self._order.is_held(self._sender._area):
            ids: list[str] = []
            async with self._turn(deadline):
                await self._send_part([message], ids, transaction, deadline)
            return ids[0]
        if message_id is not None and not self._fresh((message,), transaction):
            self._caller.confirm(self._engine.publisher.position())
            if self._caller.owed:
                await self._caller.confirmed()
            return message_id
        if not await self._room(sizes, deadline, transaction):
            own_id = self._sender.gate.give_up(message)
            if self._admission.diverts:
                self._caller.confirm(self._engine.publisher.position())
            if self._caller.owed:
                await self._caller.confirmed()
            return own_id

        def send() -> str:
            return self._sender.send(
                body,
                headers=headers,
                priority=priority,
                message_id=message_id,
                transaction=inner_transaction(transaction),
                persistent=persistent,
                group=group,
                expires_in=expires_in,
                delay=delay,
                producer=producer,
            )

        try:
            own_id = self._within(sizes, send)
        except StoreFull as full:
            own_id = await self._in_line(full, persistent, sizes, lambda: self._admitted_again(sizes, send), deadline)
        if self._caller.owed:
            await self._caller.confirmed()
        elif self._caller.ends_turn():
            await asyncio.sleep(0)
        return own_id

    async def _send_part(
        self, part: list[Message], ids: list[str], transaction: AsyncTransaction | None, deadline: float | None
    ) -> None:
        """As there is room."""
        begin = 0
        try:
            while begin < len(part):
                first = part[begin]
                batch = part[begin : begin + ADMITTED_TOGETHER_MAX]
                fresh = self._fresh(batch, transaction)
                batch = batch[:fresh]
                if not batch:
                    assert first.message_id is not None
                    ids.append(first.message_id)
                    begin += 1
                    continue
                admitted = await self._room([self._size(message) for message in batch], deadline, transaction)
                if admitted:
                    await self._send_admitted(batch[:admitted], ids, transaction, deadline)
                else:
                    ids.append(self._sender.gate.give_up(batch[0]))
                begin += max(admitted, 1)
        except ForebayError as error:
            error.stored = len(ids)  # type: ignore[attr-defined]
            raise
        finally:
            if ids:
                self._caller.confirm(self._engine.publisher.position())
            if self._caller.owed:
                await self._caller.confirmed()

    async def _send_admitted(
        self, batch: list[Message], ids: list[str], transaction: AsyncTransaction | None, deadline: float | None
    ) -> None:
        before, inner = len(ids), inner_transaction(transaction)

        def send() -> None:
            self._sender._send_all(batch[len(ids) - before :], ids, inner, None)

        def send_again() -> None:
            self._admitted_again([self._size(message) for message in batch[len(ids) - before :]], send)

        sizes = [self._size(message) for message in batch]
        try:
            self._within(sizes, send)
        except StoreFull as full:
            await self._in_line(full, batch[len(ids) - before].persistent, sizes, send_again, deadline)

    def _admitted_again(self, sizes: Sequence[int], send: Callable[[], T]) -> T:
        """Send what lost its reservation when there was no space for it. StoreFull: it can't be all of it now."""
        admission = self._admission
        admitted = admission.admit_now(sizes, float("inf"))
        if admitted < len(sizes):
            if admitted:
                admission.stored(sizes[:admitted])
            raise StoreFull(sum(sizes), 0, "the limits of the destination's policy")
        return self._within(sizes, send)

    def _fresh(self, messages: Sequence[Message], transaction: AsyncTransaction | None) -> int:
        """As Gate.fresh."""
        area = self._sender._area
        if not area.is_watched or transaction is not None:
            return len(messages)
        return self._engine.producers.fresh(area, [self._sender._content(message) for message in messages])

    def _size(self, message: Message) -> int:
        properties, body = self._sender._content(message)
        return len(properties) + len(body)

    def _within(self, sizes: Sequence[int], send: Callable[[], T]) -> T:
        """Send what was admitted. What is not stored gives its room back."""
        gate = self._sender.gate
        assert isinstance(gate, AdmittedGate)
        gate.admitted = len(sizes)
        try:
            return send()
        finally:
            unused, gate.admitted = gate.admitted, 0
            if unused:
                self._admission.stored(sizes[-unused:])

    async def _room(self, sizes: Sequence[int], deadline: float | None, transaction: AsyncTransaction | None) -> int:
        """Reserve as many of these messages as there is room for, at least one; how many. As Admission.admit."""
        engine, admission = self._engine, self._admission
        if admission.drops and transaction is None:
            return admission.admit_or_drop(sizes, self._sender.gate.drop_oldest)
        admitted = admission.admit_now(sizes, deadline)
        if admitted:
            return admitted
        self._caller.confirm(engine.publisher.position())
        if self._caller.owed:
            await self._caller.confirmed()
        woken = Woken(self._context.bell)
        with engine.monitor.lock:
            sender = admission.line_up(sizes, woken, deadline)
        try:
            while True:
                with engine.monitor.lock:
                    wait_seconds = admission.look(sender)
                if not wait_seconds:
                    return sender.admitted
                await woken.wait(wait_seconds)
        except BaseException:
            with engine.monitor.lock:
                admission.leave(sender)
            raise
        finally:
            with engine.monitor.lock:
                self._sender._area.blocked_seconds += engine.monitor.monotonic() - sender.began


class AsyncLimitedQueue(AsyncLimitedSender, AsyncQueue):
    """A queue with limits."""

    _sender: LimitedQueue

    def __init__(self, context: LoopContext, area: QueueArea) -> None:
        super().__init__(context, LimitedQueue(context.confirmer.engine, area, AdmittedGate))


class AsyncLimitedTopic(AsyncLimitedSender, AsyncTopic):
    """A topic with limits."""

    _sender: LimitedTopic

    def __init__(self, context: LoopContext, area: TopicState) -> None:
        super().__init__(context, LimitedTopic(context.confirmer.engine, area, AdmittedGate))
