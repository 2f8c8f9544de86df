"""AsyncConsumer: takes messages of one queue in an event loop and settles them.

No take waits between the hand-out and its return, so a take that is cancelled
has been given nothing. What a take must load is read by a worker thread; the
loop waits neither for that nor for any sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from itertools import count, groupby
from operator import sub
from typing import Any, ClassVar, Final

from ...store.errors import Closed, ForebayError
from ...store.message import HeaderValue, Message
from ..config.checks import SECONDS_MAX, check_bounds, check_max_messages
from ..config.redelivery_delays import REJECTED
from ..consumer.consumer import DRAIN_POLL_SECONDS, Consumer, as_message
from ..consumer.consumer import PUBLIC as INNER_CONSUMER_PUBLIC
from ..consumer.processing import (
    ExceptionTypes,
    GroupTurns,
    LostRaces,
    Rejections,
    came_back,
    give_back,
    report,
)
from ..consumer.search import LOAD_WAIT_SECONDS, Search
from ..consumer.statistics import ConsumerStatistics
from ..core.deliveries.delivery import PUBLIC as INNER_DELIVERY_PUBLIC
from ..core.deliveries.delivery import Delivery, is_in_flight, is_late, is_lazy, mark_seen
from ..core.model import ConsumerGroup
from .awaiting import Awaited, asynchronous
from .loop import LoopConfirmer
from .send_order import SendOrder
from .transaction import AsyncTransaction, inner_transaction
from .wakeups import FairWaiters, LoopWaker

RUNS_A_PART: Final = 16
"""An ack of more runs is done in parts, because each run may need another block of the index."""
MESSAGES_A_PART: Final = 1024
"""What settles more is done in parts, and other tasks run between them."""
NUMBERS: Final = frozenset((int, float))
DELIVERY_PUBLIC: Final = (*INNER_DELIVERY_PUBLIC, "read")
"""What a delivery has for users."""
CONSUMER_PUBLIC: Final = tuple(name for name in INNER_CONSUMER_PUBLIC if name != "fileno")
"""What a consumer has for users: all of the inner one's but the descriptor, which a loop has no use for."""


@asynchronous("a delivery of forebay.aio", block="async with delivery:")
class AsyncDelivery:
    """What `take` returns. Settle it once, with `ack`, `nack`, `release` or `reject`.

    As Delivery; where that is lazy, `body`, `headers`, `id`, `group` and
    `timestamp` read the journal in the loop's thread. `read` does not.
    """

    __slots__ = ("_consumer", "_delivery")

    def __init__(self, consumer: AsyncConsumer, delivery: Delivery) -> None:
        self._consumer = consumer
        self._delivery = delivery

    @property
    def body(self) -> bytes:
        """O(1); one read of the journal when the delivery is lazy. StoreFailed when that read fails."""
        return self._delivery.body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """A new dict each time; decoded now. O(bytes of the headers)."""
        return self._delivery.headers

    @property
    def id(self) -> str:
        """The message id that send returned."""
        return self._delivery.id

    @property
    def group(self) -> str | None:
        """The group it was sent with."""
        return self._delivery.group

    @property
    def timestamp(self) -> int:
        """When it was sent, in ms since 1970 (UTC)."""
        return self._delivery.timestamp

    @property
    def expires_at(self) -> int | None:
        """From when on nobody is handed it any more, in ms since 1970 (UTC); None: never."""
        return self._delivery.expires_at

    @property
    def priority(self) -> int:
        return self._delivery.priority

    @property
    def persistent(self) -> bool:
        return self._delivery.persistent

    @property
    def retained(self) -> bool:
        """Whether it is what the topic retained, given to a subscription that was new. As Delivery.retained."""
        return self._delivery.retained

    @property
    def destination(self) -> str:
        return self._delivery.destination

    @property
    def sequence(self) -> int:
        """Place in its lane, that is among the messages of this priority in this destination."""
        return self._delivery.sequence

    @property
    def attempts(self) -> int:
        """1 at the first delivery."""
        return self._delivery.attempts

    @property
    def is_owed(self) -> bool:
        """Tell whether it is still to be settled: no call and no transaction has."""
        return is_in_flight(self._delivery)

    @property
    def is_lazy(self) -> bool:
        """Tell whether the body is not in RAM: `read` it."""
        return is_lazy(self._delivery)

    async def read(self) -> Message:
        """Body, headers, priority and id as one. The loop goes on while a lazy one is read; nothing is kept."""
        return await asyncio.to_thread(self._read) if self.is_lazy else self._read()

    def _read(self) -> Message:
        return as_message(self._delivery)

    async def ack(self, transaction: AsyncTransaction | None = None) -> None:
        """Settle it as done: after this returns, or the transaction commits, it is never delivered again."""
        await self._consumer.ack(self, transaction=transaction)

    async def nack(self, delay: float = 0.0) -> None:
        """Give it back as not done: it returns to its place, to be delivered again after delay seconds."""
        await self._consumer.nack(self, delay=delay)

    async def release(self) -> None:
        """Give it back as not tried: it returns to its place at once, and no attempt counts."""
        await self._consumer.release(self)

    async def reject(self, reason: str = REJECTED, transaction: AsyncTransaction | None = None) -> None:
        """Make it a dead letter now, or with the commit: it is never to be processed. See AsyncConsumer.reject."""
        await self._consumer.reject(self, reason, transaction=transaction)

    async def extend(self, seconds: float) -> None:
        """Give it so many seconds from now on before its ack deadline passes. See Consumer.extend."""
        await self._consumer.extend(self, seconds)

    async def __aenter__(self) -> AsyncDelivery:
        """Settle it at the end of the block, as Delivery does: `ack`, or `nack` where the block raises."""
        mark_seen(self._delivery)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not is_in_flight(self._delivery) and not is_late(self._delivery):
            return
        if kind is None:
            await self.ack()
        else:
            with suppress(ForebayError):
                self._delivery.nack()  # without an await, which a second cancellation would end

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the event loop."""
        return list(DELIVERY_PUBLIC)

    def __repr__(self) -> str:
        return repr(self._delivery)


class ConsumerWaker:
    """The callback by which a consumer's waiting takes are woken. Made before the consumer is."""

    is_of_a_loop: ClassVar[bool] = True
    """See ConsumerOptions."""

    def __init__(self, bell: LoopWaker) -> None:
        self.bell = bell
        self.called: Callable[[], None] = lambda: None
        """Called in the loop's thread."""

        self.slow_called: Callable[[], None] = lambda: None
        """The same, when it has become slow."""

    def __call__(self) -> None:
        self.bell.ring(self.called)

    def tell_slow(self, consumer: Consumer) -> None:
        self.bell.ring(self.slow_called)


@asynchronous(
    "a consumer of forebay.aio",
    loop="async for delivery in consumer:",
    block="async with queue.subscribe() as consumer:",
)
class AsyncConsumer:
    """Made by `subscribe`. Belongs to its loop; iterating it takes one message at a time."""

    def __init__(self, caller: LoopConfirmer, consumer: Consumer, lines: WaitingLines, bell: ConsumerWaker) -> None:
        consumer.confirmer = caller  # so that what its acks owe does not make the loop wait
        bell.called = self.wake
        consumer.waits.when_closed = partial(bell.bell.ring, self._end)
        consumer.waits.when_moved = partial(bell.bell.ring, self._move)
        self._caller = caller
        self._monitor = caller.monitor
        self._consumer = consumer
        self._lines = lines
        self._consumer_group = consumer.consumer_group
        self._line = lines.enter(self, self._consumer_group)
        self._waits: dict[asyncio.Future[None], bool] = {}
        """What its own takes wait for: True, their turn in the line; False, credit."""

    # ------------------------------------------------------------------ taking

    @property
    def prefetch(self) -> int:
        """The most unsettled deliveries it may hold; 0: only max_messages bounds a take. May be set at any time."""
        return self._consumer.prefetch

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        self._consumer.prefetch = prefetch

    @property
    def priority(self) -> int:
        """Return the priority that it subscribed with: those of higher priority get messages first."""
        return self._consumer.priority

    @property
    def is_slow(self) -> bool:
        """Whether it has been slow for as long as its policy says."""
        return self._consumer.is_slow

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more and only settles what it holds."""
        return self._consumer.is_draining

    @property
    def in_flight(self) -> int:
        """Deliveries not settled yet."""
        return self._consumer.in_flight

    def take(
        self, max_messages: int = 1, *, timeout: float | None = 0.0, max_bytes: int | None = None
    ) -> Coroutine[Any, Any, list[AsyncDelivery]]:
        """Return up to max_messages deliveries in order, at least one if there is one; [] after timeout seconds.

        As Consumer.take. Takes that wait for the same messages are served in
        the order in which they came. One that is cancelled was given nothing.
        """
        return Awaited(self._take(max_messages, timeout, max_bytes), "consumer.take()")

    async def _take(self, max_messages: int, timeout: float | None, max_bytes: int | None) -> list[AsyncDelivery]:
        if max_bytes is not None or (
            timeout != 0.0 and not (type(timeout) in NUMBERS and 0.0 < timeout <= SECONDS_MAX)  # type: ignore[operator]
        ):
            check_bounds(timeout, max_bytes)
        caller, consumer = self._caller, self._consumer
        if caller.ends_turn():
            await asyncio.sleep(0)
        if timeout == 0 or not self._line.is_busy or consumer.is_over:
            deliveries = consumer.take(max_messages, max_bytes=max_bytes)
            if deliveries:
                caller.work += len(deliveries)
                return [AsyncDelivery(self, delivery) for delivery in deliveries]
        check_max_messages(max_messages)
        check_bounds(timeout, max_bytes)
        deadline = None if timeout is None else self._caller.loop.time() + timeout
        search = consumer.search(max_messages, max_bytes, is_timed_out=timeout == 0)
        return await self._take_slowly(search, deadline)

    async def _take_slowly(self, search: Search, deadline: float | None) -> list[AsyncDelivery]:
        """Have something loaded, or wait for it: nothing is in RAM."""
        monitor, consumer = self._monitor, self._consumer
        is_called = False  # out of the line: then it must pass on when it leaves
        if self._line.is_busy and not search.is_timed_out:
            search.has_credit = True
            is_called = await self._wait(search, deadline, was_called=False)
        try:
            while True:
                search.is_timed_out = deadline is not None and self._caller.loop.time() >= deadline
                with monitor.lock, monitor.whole:
                    found = search.look()
                    is_waiting = found is None and search.load is None and (search.is_coming or not search.is_timed_out)
                    if is_waiting and not (search.has_credit and self._line.is_armed):
                        consumer.arm()
                        self._line.is_armed |= search.has_credit
                if monitor.deferred:
                    monitor.run_deferred()
                if found is not None:
                    self._caller.work += len(found)
                    return [AsyncDelivery(self, delivery) for delivery in found]
                if search.load is not None:
                    await self._caller.load(search.load)
                elif is_waiting:
                    was_called, is_called = is_called, False
                    is_called = await self._wait(search, deadline, was_called)
                else:
                    return []
                search.is_scanned = self._consumer_group.selector is not None
        finally:
            if is_called:
                self._line.pass_on()

    async def _wait(self, search: Search, deadline: float | None, was_called: bool) -> bool:
        """Wait for something to change; whether it was called out of the line."""
        loop, line, in_line = self._caller.loop, self._line, search.has_credit
        future: asyncio.Future[None] = loop.create_future()
        self._waits[future] = in_line
        if in_line:
            line.join(future, was_called=was_called)
        elif was_called:
            line.pass_on()
        else:
            line.call()  # it may have relied on this consumer, which no message wakes while it has no credit
        timer = None
        if search.is_coming:
            timer = loop.call_later(LOAD_WAIT_SECONDS, _wake, future)
        elif deadline is not None:
            timer = loop.call_at(deadline, _wake, future)
        try:
            await future
        except BaseException:
            if in_line and line.leave(future):
                line.pass_on()
            raise
        finally:
            del self._waits[future]
            if timer is not None:
                timer.cancel()
        return in_line and line.leave(future)

    def wake(self) -> None:
        """Look again, because something came that it may take, messages or credit."""
        for future, in_line in self._waits.items():
            if not in_line:
                _wake(future)
        self._line.call()

    def _move(self) -> None:
        """Move to a line of its own, as messages are assigned from now on.

        What waited in the other line looks again.
        """
        self._lines.exit(self, self._consumer_group)
        self._consumer_group = self._consumer.consumer_group
        self._line = self._lines.enter(self, self._consumer_group)
        for future in self._waits:
            _wake(future)

    def _end(self) -> None:
        """End this consumer's takes, because it is closed. The takes of other consumers rely on it no more."""
        for future in self._waits:
            _wake(future)
        self._lines.exit(self, self._consumer_group)
        self._line.call()

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def batches(
        self, max_messages: int, timeout: float | None = None
    ) -> AsyncGenerator[list[AsyncDelivery], None]:
        """Yield lists of deliveries; ends when nothing came for timeout seconds, or the consumer or store was closed.

        As Consumer.batches.
        """
        with suppress(Closed):
            while deliveries := await self.take(max_messages, timeout=timeout):
                yield deliveries

    async def process(
        self,
        handler: Callable[[AsyncDelivery], Awaitable[object] | object],
        concurrency: int = 1,
        *,
        reject_on: ExceptionTypes = (),
    ) -> None:
        """Await handler(delivery) for each message, and settle it; returns when the consumer is closed or has drained.

        As Consumer.process, with `concurrency` tasks; a handler that is no
        coroutine function holds the loop up. Cancelled, it cancels its
        handlers: what they worked on goes back uncounted, and the consumer
        goes on taking.
        """
        rejections = Rejections(handler, concurrency, reject_on)
        turns = GroupTurns()
        tasks = [asyncio.create_task(self._process(handler, rejections, turns)) for _ in range(concurrency)]
        try:
            _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if pending:
                self._consumer.begin_drain()
                await asyncio.wait(pending)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        for task in tasks:
            task.result()

    async def _process(
        self, handler: Callable[[AsyncDelivery], object], rejections: Rejections, turns: GroupTurns
    ) -> None:
        async for delivery in self:
            # No other task ran since it was taken.
            following = delivery._delivery if turns.begin(delivery._delivery, turns.returns) else None
            while following is not None:
                is_done = False
                try:
                    is_done = await self._handle(handler, AsyncDelivery(self, following), rejections)
                except (KeyboardInterrupt, asyncio.CancelledError):
                    give_back(following)  # they say nothing about the message
                    raise
                finally:
                    if not is_done:
                        turns.go_back(following)
                following = turns.end(following) if is_done else None

    async def _handle(
        self, handler: Callable[[AsyncDelivery], object], delivery: AsyncDelivery, rejections: Rejections
    ) -> bool:
        """Return whether it is done with, and not back in its place."""
        inner = delivery._delivery
        try:
            result = handler(delivery)
            if isawaitable(result):
                await result
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if not isinstance(error, Exception | asyncio.CancelledError):
                with suppress(ForebayError):
                    inner.nack()  # without an await: this ends the loop
                raise
            report(inner, error)
            if is_in_flight(inner):
                reason = rejections.reason(error)
                with LostRaces(inner):
                    await (delivery.nack() if reason is None else delivery.reject(reason))
            return not came_back(inner)
        if is_in_flight(inner):
            with LostRaces(inner):
                await delivery.ack()
                return True
        return not came_back(inner)

    async def __anext__(self) -> AsyncDelivery:
        """Waits for the next message; the iteration ends when the consumer or the store is closed."""
        try:
            while True:
                for delivery in await self.take(1, timeout=None):
                    mark_seen(delivery._delivery)
                    return delivery
        except Closed:
            raise StopAsyncIteration from None

    # ------------------------------------------------------------------ settling

    async def ack(
        self,
        deliveries: AsyncDelivery | Sequence[AsyncDelivery],
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Settle deliveries as done: after this returns none is ever delivered again. One journal record for each run.

        SettingsError when one of them is another consumer's, StateError when
        it was settled before; then none of them is settled. In a transaction
        it counts with the commit. Acks of one tick share one sync. One that is cancelled may
        have happened or not.
        """
        if transaction is not None:
            await self._settle(
                partial(self._consumer.ack, transaction=inner_transaction(transaction)), _inner(deliveries)
            )
            return
        if type(deliveries) is AsyncDelivery:  # as _settle, without another coroutine
            caller = self._caller
            if caller.ends_turn():
                await asyncio.sleep(0)
            self._consumer.ack(deliveries._delivery)
            caller.work += 1
            if caller.owed:
                await caller.confirmed()
            return
        await self._settle_all(self._consumer.ack, _inner(deliveries))

    async def _settle_all(self, settle: Callable[[Any], object], batch: Any) -> None:
        parts = list(_parts(batch)) if isinstance(batch, list) else [batch]
        if len(parts) > 1:
            with self._monitor.lock:
                self._consumer.check_held(batch)
        for part in parts:
            await self._settle(settle, part)

    async def _settle(self, settle: Callable[[Any], object], deliveries: Any) -> None:
        if self._caller.ends_turn():
            await asyncio.sleep(0)
        settle(deliveries)
        self._caller.work += len(deliveries) if type(deliveries) is list else 1
        if self._caller.owed:
            await self._caller.confirmed()

    async def ack_up_to(self, delivery: AsyncDelivery) -> None:
        """Acknowledge this delivery and all that this consumer took before it and still holds. O(in flight)."""
        held = self._consumer.in_flight
        await self._settle(self._consumer.ack_up_to, _inner(delivery))
        self._caller.work += held - self._consumer.in_flight

    async def nack(self, deliveries: AsyncDelivery | Sequence[AsyncDelivery], delay: float = 0.0) -> None:
        """Give back as not done: deliveries return to their places, for delay seconds at least, with attempts + 1.

        One that is cancelled may have happened, to some of them or to all.
        """
        await self._settle_all(partial(self._consumer.nack, delay=delay), _inner(deliveries))

    async def release(self, deliveries: AsyncDelivery | Sequence[AsyncDelivery]) -> None:
        """Give back as not tried: deliveries return to their places at once, and no attempt counts.

        As Consumer.release. One that is cancelled may have happened, to some of them or to all.
        """
        await self._settle_all(self._consumer.release, _inner(deliveries))

    async def reject(
        self,
        deliveries: AsyncDelivery | Sequence[AsyncDelivery],
        reason: str = REJECTED,
        *,
        transaction: AsyncTransaction | None = None,
    ) -> None:
        """Make deliveries dead letters now, however many attempts they had. As Consumer.reject.

        Done by a worker thread, because it writes them again. One that is cancelled may have happened.
        """
        inner = None if transaction is None else inner_transaction(transaction)
        await asyncio.to_thread(self._consumer.reject, _inner(deliveries), reason, transaction=inner)

    async def extend(self, deliveries: AsyncDelivery | Sequence[AsyncDelivery], seconds: float) -> None:
        """Give deliveries so many seconds from now on, until their ack deadline passes. As Consumer.extend."""
        await self._settle(partial(self._consumer.extend, seconds=seconds), _inner(deliveries))

    @property
    def ack_deadline_seconds(self) -> float | None:
        """What it does not settle in that time comes back; None: it has all time."""
        return self._consumer.ack_deadline_seconds

    # ------------------------------------------------------------------ the rest

    async def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait until all that it holds is settled; returns whether it is.

        As Consumer.drain; other tasks run meanwhile. One that is cancelled has begun to drain.
        """
        check_bounds(timeout, None)
        loop, consumer = self._caller.loop, self._consumer
        deadline = None if timeout is None else loop.time() + timeout
        consumer.begin_drain()
        while not consumer.is_drained:
            if deadline is not None and loop.time() >= deadline:
                return False
            await asyncio.sleep(DRAIN_POLL_SECONDS)
        return True

    async def close(self, *, processed: AsyncDelivery | Sequence[AsyncDelivery] | None = None) -> None:
        """Give back what it holds, for others to take in its place; wakes its own waiting takes. Twice is once.

        That is an attempt at what somebody has looked at, see `count_on_close` of the policy; or at those that
        `processed` names, and at no others.
        """
        if self._caller.ends_turn():
            await asyncio.sleep(0)
        self._caller.work += self._consumer.in_flight
        self._consumer.close(processed=_inner(processed))
        if self._caller.owed:
            await self._caller.confirmed()

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot. O(lists of the consumer group), no disk."""
        return self._consumer.statistics()

    def __dir__(self) -> list[str]:
        """Return what is public; the rest is for the event loop."""
        return list(CONSUMER_PUBLIC)

    def __repr__(self) -> str:
        return repr(self._consumer)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class WaitingLines:
    """The lines of one loop, one for each consumer group that its consumers have."""

    def __init__(self) -> None:
        self._lines: dict[ConsumerGroup, tuple[FairWaiters, dict[AsyncConsumer, None]]] = {}

    def enter(self, consumer: AsyncConsumer, consumer_group: ConsumerGroup) -> FairWaiters:
        line, consumers = self._lines.setdefault(consumer_group, (FairWaiters(), {}))
        consumers[consumer] = None
        return line

    def exit(self, consumer: AsyncConsumer, consumer_group: ConsumerGroup) -> None:
        """Twice is once."""
        _, consumers = self._lines.get(consumer_group, (None, {}))
        consumers.pop(consumer, None)
        if not consumers:
            self._lines.pop(consumer_group, None)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _inner(deliveries: object) -> Any:
    """Return the inner consumer's form of an argument; anything else the inner consumer refuses itself."""
    if type(deliveries) is AsyncDelivery:
        return deliveries._delivery
    if isinstance(deliveries, list | tuple):
        return [each._delivery if type(each) is AsyncDelivery else each for each in deliveries]
    return deliveries


def _parts(batch: list[Delivery]) -> Iterator[list[Delivery]]:
    """Divide the batch into parts of few runs and not too many messages."""
    # Its settling refuses what is no delivery.
    sequences = [delivery.sequence if type(delivery) is Delivery else -1 for delivery in batch]
    begin = at = runs = 0
    for _, run in groupby(map(sub, sequences, count())):  # the difference is the same throughout a run
        end = at + len(list(run))
        runs += 1
        if runs > RUNS_A_PART:
            yield batch[begin:at]
            begin, runs = at, 1
        while end - begin > MESSAGES_A_PART:
            yield batch[begin : begin + MESSAGES_A_PART]
            begin, runs = begin + MESSAGES_A_PART, 1
        at = end
    yield batch[begin:]


class LoopContext:
    """What the queues and consumers of one event loop share."""

    def __init__(self, confirmer: LoopConfirmer, bell: LoopWaker) -> None:
        self.confirmer = confirmer
        self.bell = bell
        self.lines = WaitingLines()
        self.order = SendOrder()
