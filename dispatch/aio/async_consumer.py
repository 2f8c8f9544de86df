"""AsyncConsumer: take messages of one queue in an event loop, and settle them.

A take never waits between the hand-out of messages and its return, so a cancelled take was given nothing. The loop
never waits for the disk: worker threads read messages and sync.
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
from ..config.checks import AT_ONCE, SECONDS_MAX, check_bounds, check_max_messages
from ..config.redelivery_delays import REJECTED
from ..consumer.consumer import PUBLIC as INNER_CONSUMER_PUBLIC
from ..consumer.consumer import Consumer, delivered_message
from ..consumer.consumer_statistics import ConsumerStatistics
from ..consumer.ending import DRAIN_POLL_SECONDS
from ..consumer.processing import (
    ExceptionTypes,
    IgnoreSettled,
    MessageGroupTurns,
    NonRetryable,
    came_back,
    give_back,
    report,
)
from ..consumer.search import LOAD_WAIT_SECONDS, Search, WaitFor
from ..core.lists.load import Load
from ..core.model.delivery import PUBLIC as INNER_DELIVERY_PUBLIC
from ..core.model.delivery import Delivery, is_in_flight, is_late, is_lazy, mark_seen
from ..core.model.destination import SelectorGroup, TargetList
from .async_transaction import AsyncTransaction, inner_transaction
from .awaiting import Awaited, asynchronous
from .loop import LoopConfirmer
from .loop_inbox import LoopInbox
from .send_order import SendOrder
from .take_line import TakeLine

RUNS_A_PART: Final = 16
"""Most runs that one part settles, because each run may need another block of the index."""
MESSAGES_A_PART: Final = 1024
"""Most messages that one part of an ack, nack or release settles. Other tasks run between two parts."""
NUMBERS: Final = frozenset((int, float))
DELIVERY_PUBLIC: Final = (*INNER_DELIVERY_PUBLIC, "read")
"""The names that `dir` of a delivery shows."""
CONSUMER_PUBLIC: Final = tuple(name for name in INNER_CONSUMER_PUBLIC if name != "fileno")
"""The names that `dir` of a consumer shows. A loop can't use the descriptor of `fileno`."""


@asynchronous("a delivery of forebay.aio", block="async with delivery:")
class AsyncDelivery:
    """A delivery, returned by `take`. Settle it once, with `ack`, `nack`, `release` or `reject`.

    As Delivery. If it is lazy, `body`, `headers`, `id`, `group`, `timestamp` and `expires_at` read the journal in the
    loop's thread; `read` does not.
    """

    __slots__ = ("_consumer", "_delivery")

    def __init__(self, consumer: AsyncConsumer, delivery: Delivery) -> None:
        self._consumer = consumer
        self._delivery = delivery

    @property
    def body(self) -> bytes:
        """The body. O(1); a lazy delivery reads the journal, and raises StoreFailed if that read fails."""
        return self._delivery.body

    @property
    def headers(self) -> dict[str, HeaderValue]:
        """The headers, as a new dict each time. O(bytes of the headers)."""
        return self._delivery.headers

    @property
    def id(self) -> str:
        """The message id that send returned."""
        return self._delivery.id

    @property
    def group(self) -> str | None:
        """The group of the message."""
        return self._delivery.group

    @property
    def timestamp(self) -> int:
        """Time of the send, in ms since 1970 (UTC)."""
        return self._delivery.timestamp

    @property
    def expires_at(self) -> int | None:
        """Time from which the message is no longer handed out, in ms since 1970 (UTC). None: it does not expire."""
        return self._delivery.expires_at

    @property
    def priority(self) -> int:
        return self._delivery.priority

    @property
    def persistent(self) -> bool:
        return self._delivery.persistent

    @property
    def retained(self) -> bool:
        """Whether the topic retained this message and gave it to a new subscription. As Delivery.retained."""
        return self._delivery.retained

    @property
    def destination(self) -> str:
        return self._delivery.destination

    @property
    def sequence(self) -> int:
        """Place among the messages of this priority in this destination."""
        return self._delivery.sequence

    @property
    def attempts(self) -> int:
        """1 at the first delivery."""
        return self._delivery.attempts

    @property
    def is_owed(self) -> bool:
        """Whether no call and no transaction has settled it yet."""
        return is_in_flight(self._delivery)

    @property
    def is_lazy(self) -> bool:
        """Whether the body is not in RAM; then use `read`."""
        return is_lazy(self._delivery)

    async def read(self) -> Message:
        """Return body, headers, priority and id as one object.

        The loop goes on while a lazy one is read; nothing is kept.
        """
        return await asyncio.to_thread(self._read) if self.is_lazy else self._read()

    def _read(self) -> Message:
        return delivered_message(self._delivery)

    async def ack(self, transaction: AsyncTransaction | None = None) -> None:
        """Settle the message as processed. Once this returns, or the transaction commits, it never comes again."""
        await self._consumer.ack(self, transaction=transaction)

    async def nack(self, delay: float = 0.0) -> None:
        """Give the message back as a failed attempt.

        It returns to its place and is delivered again after delay seconds.
        """
        await self._consumer.nack(self, delay=delay)

    async def release(self) -> None:
        """Give the message back as not tried. It returns to its place at once, and no attempt counts."""
        await self._consumer.release(self)

    async def reject(self, reason: str = REJECTED, transaction: AsyncTransaction | None = None) -> None:
        """Make the message a dead letter now, or with the commit of the transaction. See AsyncConsumer.reject."""
        await self._consumer.reject(self, reason, transaction=transaction)

    async def extend(self, seconds: float) -> None:
        """Move the ack deadline of this delivery to so many seconds from now. See Consumer.extend."""
        await self._consumer.extend(self, seconds)

    async def __aenter__(self) -> AsyncDelivery:
        """Settle it at the end of the block, as Delivery does: `ack`, or `nack` if the block raises."""
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
        """Return the public names; the others are for the event loop."""
        return list(DELIVERY_PUBLIC)

    def __repr__(self) -> str:
        return repr(self._delivery)


class ConsumerCallbacks:
    """The callbacks that a Consumer gets from its AsyncConsumer, which is made after it.

    The object itself is the `on_ready` of the Consumer. It passes each call on to the thread of the loop.
    """

    is_of_a_loop: ClassVar[bool] = True
    """See ConsumerOptions."""

    def __init__(self, inbox: LoopInbox) -> None:
        self.inbox = inbox
        # Called in the loop's thread.
        self.on_ready: Callable[[], None] = lambda: None
        # Called in the loop's thread when the consumer has become slow.
        self.on_slow: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.inbox.post(self.on_ready)

    def tell_slow(self, consumer: Consumer) -> None:
        self.inbox.post(self.on_slow)


@asynchronous(
    "a consumer of forebay.aio",
    loop="async for delivery in consumer:",
    block="async with queue.subscribe() as consumer:",
)
class AsyncConsumer:
    """A consumer, made by `subscribe`. It belongs to its loop; iteration takes one message at a time."""

    def __init__(
        self, caller: LoopConfirmer, consumer: Consumer, lines: TakeLines, callbacks: ConsumerCallbacks
    ) -> None:
        callbacks.on_ready = self.wake
        post = callbacks.inbox.post
        # The confirmer of the loop notes the syncs that acks need, and waits for none.
        consumer.attach_loop(caller, when_moved=partial(post, self._move), when_closed=partial(post, self._close_takes))
        self._caller = caller
        self._monitor = caller.monitor
        self._consumer = consumer
        self._lines = lines
        self._selector_group = consumer.selector_group
        self._line = lines.enter(self, self._selector_group)
        # Its takes that wait, each with True if it waits for its turn in the line, and False if it waits for credit.
        self._waits: dict[asyncio.Future[None], bool] = {}

    # ------------------------------------------------------------------ taking

    @property
    def prefetch(self) -> int:
        """Most unsettled deliveries it may hold; 0: only max_messages limits a take. May be set at any time."""
        return self._consumer.prefetch

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        self._consumer.prefetch = prefetch

    @property
    def priority(self) -> int:
        """The priority with which it subscribed. Consumers of higher priority get messages first."""
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
        """Number of deliveries not settled yet."""
        return self._consumer.in_flight

    def take(
        self, max_messages: int = 1, *, timeout: float | None = AT_ONCE, max_bytes: int | None = None
    ) -> Coroutine[Any, Any, list[AsyncDelivery]]:
        """Return up to max_messages deliveries in order, at least one if there is one; [] after timeout seconds.

        As Consumer.take. Takes that wait for the same messages are served first come, first served. A cancelled one was
        given nothing.
        """
        return Awaited(self._take(max_messages, timeout, max_bytes), "consumer.take()")

    async def _take(self, max_messages: int, timeout: float | None, max_bytes: int | None) -> list[AsyncDelivery]:
        if max_bytes is not None or (
            timeout is not AT_ONCE and not (type(timeout) in NUMBERS and 0.0 <= timeout <= SECONDS_MAX)  # type: ignore[operator]
        ):
            check_bounds(timeout, max_bytes)
        caller, consumer = self._caller, self._consumer
        if caller.ends_turn():
            await asyncio.sleep(0)
        if timeout == 0 or not self._line.is_busy or consumer.stage.is_over:
            deliveries = consumer.take(max_messages, max_bytes=max_bytes)
            if deliveries:
                caller.work += len(deliveries)
                return [AsyncDelivery(self, delivery) for delivery in deliveries]
        check_max_messages(max_messages)
        deadline = None if timeout is None else self._caller.loop.time() + timeout
        return await self._take_slowly(consumer.search(max_messages, max_bytes), deadline)

    async def _take_slowly(self, search: Search, deadline: float | None) -> list[AsyncDelivery]:
        """Load messages or wait for one, because RAM has none."""
        is_called = False  # whether the line has called this take, which then must pass on when it ends
        if self._line.is_busy and not self._is_over(deadline):
            is_called = await self._wait(WaitFor.MESSAGES, deadline, was_called=False)
        try:
            while True:
                is_timed_out = self._is_over(deadline)
                step = self._step(search, is_timed_out=is_timed_out)
                if isinstance(step, list):
                    self._caller.work += len(step)
                    return [AsyncDelivery(self, delivery) for delivery in step]
                if isinstance(step, WaitFor):
                    was_called, is_called = is_called, False
                    is_called = await self._wait(step, deadline, was_called)
                else:
                    await self._caller.load(step, makes_room=not is_timed_out)
        finally:
            if is_called:
                self._line.pass_on()

    def _is_over(self, deadline: float | None) -> bool:
        return deadline is not None and self._caller.loop.time() >= deadline

    def _step(self, search: Search, *, is_timed_out: bool) -> list[Delivery] | Load[TargetList] | WaitFor:
        """Make one step of a search. If it must wait, something will wake it."""
        monitor, line = self._monitor, self._line
        with monitor.lock, monitor.all_or_broken:
            step = search.step(is_timed_out=is_timed_out)
            if isinstance(step, WaitFor):
                is_in_line = step is not WaitFor.CREDIT
                if not (is_in_line and line.is_armed):
                    self._consumer.arm()
                    line.is_armed |= is_in_line
        if monitor.deferred:
            monitor.run_deferred()
        return step

    async def _wait(self, cause: WaitFor, deadline: float | None, was_called: bool) -> bool:
        """Wait until something changes; return whether the line has called this take.

        was_called: whether the line had called it before, and it found nothing.
        """
        loop, line, in_line = self._caller.loop, self._line, cause is not WaitFor.CREDIT
        future: asyncio.Future[None] = loop.create_future()
        self._waits[future] = in_line
        if in_line:
            line.join(future, was_called=was_called)
        elif was_called:
            line.pass_on()
        else:
            # No arrival wakes a consumer without credit. If the line relied on this one, it must choose another.
            line.call()
        timer = None
        if cause is WaitFor.LOAD:
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
        """Let waiting takes look again, because there may be messages or credit."""
        for future, in_line in self._waits.items():
            if not in_line:
                _wake(future)
        self._line.call()

    def _move(self) -> None:
        """Move to the line of the new selector group, because messages are assigned to consumers from now on.

        Takes that wait in the old line look again.
        """
        self._lines.exit(self, self._selector_group)
        self._selector_group = self._consumer.selector_group
        self._line = self._lines.enter(self, self._selector_group)
        for future in self._waits:
            _wake(future)

    def _close_takes(self) -> None:
        """Wake all takes of this consumer, because it is closed, and leave the line to other consumers."""
        for future in self._waits:
            _wake(future)
        self._lines.exit(self, self._selector_group)
        self._line.call()

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def batches(
        self, max_messages: int, timeout: float | None = None
    ) -> AsyncGenerator[list[AsyncDelivery], None]:
        """Yield lists of deliveries; end when none came for timeout seconds, or the consumer or store was closed.

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
        """Await handler(delivery) for each message and settle it; return when the consumer is closed or has drained.

        As Consumer.process, with `concurrency` tasks. A handler that is not a coroutine function blocks the loop. If
        this is cancelled, it cancels its handlers: their messages go back without counting an attempt, and the consumer
        can take again.
        """
        rejections = NonRetryable(handler, concurrency, reject_on)
        turns = MessageGroupTurns()
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
        self, handler: Callable[[AsyncDelivery], object], rejections: NonRetryable, turns: MessageGroupTurns
    ) -> None:
        async for delivery in self:
            # No other task has run since the take, so `returns` has the value that it had then.
            following = delivery._delivery if turns.begin(delivery._delivery, turns.returns) else None
            while following is not None:
                is_done = False
                try:
                    is_done = await self._handle(handler, AsyncDelivery(self, following), rejections)
                except (KeyboardInterrupt, asyncio.CancelledError):
                    give_back(following)  # the error says nothing about the message
                    raise
                finally:
                    if not is_done:
                        turns.go_back(following)
                following = turns.finish(following) if is_done else None

    async def _handle(
        self, handler: Callable[[AsyncDelivery], object], delivery: AsyncDelivery, rejections: NonRetryable
    ) -> bool:
        """Call the handler and settle the delivery; return whether it is settled for good, not given back."""
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
                    inner.nack()  # without an await, because the loop is ending
                raise
            report(inner, error)
            if is_in_flight(inner):
                reason = rejections.reason(error)
                with IgnoreSettled(inner):
                    await (delivery.nack() if reason is None else delivery.reject(reason))
            return not came_back(inner)
        if is_in_flight(inner):
            with IgnoreSettled(inner):
                await delivery.ack()
                return True
        return not came_back(inner)

    async def __anext__(self) -> AsyncDelivery:
        """Return the next message and wait for it; the iteration ends when the consumer or the store is closed."""
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
        """Settle deliveries as processed. Once this returns, none ever comes again. It writes one record for each run.

        SettingsError if one of them belongs to another consumer, StateError if it was settled before; none of them is
        settled then. In a transaction the ack takes effect with the commit. Acks of one tick share one sync. A
        cancelled ack may have happened or not.
        """
        if transaction is not None:
            await self._settle(
                partial(self._consumer.ack, transaction=inner_transaction(transaction)), _inner(deliveries)
            )
            return
        if type(deliveries) is AsyncDelivery:  # `_settle`, written out here to save a coroutine for each single ack
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
        parts = list(_parts(batch)) if isinstance(batch, list) and len(batch) > 1 else [batch]
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
        """Give deliveries back as failed attempts.

        They return to their places after at least delay seconds, with attempts + 1.

        A cancelled nack may have happened, for some of them or for all.
        """
        await self._settle_all(partial(self._consumer.nack, delay=delay), _inner(deliveries))

    async def release(self, deliveries: AsyncDelivery | Sequence[AsyncDelivery]) -> None:
        """Give deliveries back as not tried. They return to their places at once, and no attempt counts.

        As Consumer.release. A cancelled release may have happened, for some of them or for all.
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

        A worker thread does it, because it writes the messages again. A cancelled reject may have happened.
        """
        inner = None if transaction is None else inner_transaction(transaction)
        await asyncio.to_thread(self._consumer.reject, _inner(deliveries), reason, transaction=inner)

    async def extend(self, deliveries: AsyncDelivery | Sequence[AsyncDelivery], seconds: float) -> None:
        """Move the ack deadline of deliveries to so many seconds from now. As Consumer.extend."""
        await self._settle(partial(self._consumer.extend, seconds=seconds), _inner(deliveries))

    @property
    def ack_deadline_seconds(self) -> float | None:
        """A delivery that is not settled within this time comes back. None: there is no limit."""
        return self._consumer.ack_deadline_seconds

    # ------------------------------------------------------------------ the rest

    async def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait until all deliveries are settled; return whether they are.

        As Consumer.drain; other tasks run meanwhile. A cancelled drain has begun.
        """
        check_bounds(timeout, None)
        loop, consumer = self._caller.loop, self._consumer
        deadline = None if timeout is None else loop.time() + timeout
        consumer.begin_drain()
        while not consumer.is_drained:
            left_seconds = DRAIN_POLL_SECONDS if deadline is None else deadline - loop.time()
            if left_seconds <= 0:
                return False
            await asyncio.sleep(min(left_seconds, DRAIN_POLL_SECONDS))
        return True

    async def close(self, *, processed: AsyncDelivery | Sequence[AsyncDelivery] | None = None) -> None:
        """Give back all deliveries, for other consumers to take, and wake its own waiting takes.

        A second call does nothing.

        An attempt counts for deliveries that somebody has looked at, see `count_on_close` of the policy; with
        `processed`, for those deliveries and no others.
        """
        if self._caller.ends_turn():
            await asyncio.sleep(0)
        self._caller.work += self._consumer.in_flight
        self._consumer.close(processed=_inner(processed))
        if self._caller.owed:
            await self._caller.confirmed()

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot. O(lists of the selector group), no disk."""
        return self._consumer.statistics()

    def __dir__(self) -> list[str]:
        """Return the public names; the others are for the event loop."""
        return list(CONSUMER_PUBLIC)

    def __repr__(self) -> str:
        return repr(self._consumer)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class TakeLines:
    """The lines of one loop, one for each selector group of its consumers."""

    def __init__(self) -> None:
        self._lines: dict[SelectorGroup, tuple[TakeLine, dict[AsyncConsumer, None]]] = {}

    def enter(self, consumer: AsyncConsumer, selector_group: SelectorGroup) -> TakeLine:
        line, consumers = self._lines.setdefault(selector_group, (TakeLine(), {}))
        consumers[consumer] = None
        return line

    def exit(self, consumer: AsyncConsumer, selector_group: SelectorGroup) -> None:
        """Leave the line. A second call does nothing."""
        _, consumers = self._lines.get(selector_group, (None, {}))
        consumers.pop(consumer, None)
        if not consumers:
            self._lines.pop(selector_group, None)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _inner(deliveries: object) -> Any:
    """Return the deliveries that AsyncDeliveries wrap. Anything else stays as it is: the inner consumer refuses it."""
    if type(deliveries) is AsyncDelivery:
        return deliveries._delivery
    if isinstance(deliveries, list | tuple):
        return [each._delivery if type(each) is AsyncDelivery else each for each in deliveries]
    return deliveries


def _parts(batch: list[Delivery]) -> Iterator[list[Delivery]]:
    """Split a batch into parts of at most RUNS_A_PART runs and MESSAGES_A_PART messages."""
    # An object that is no delivery counts as a run of its own; the consumer refuses it.
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
    """The objects that queues and consumers of one event loop share."""

    def __init__(self, confirmer: LoopConfirmer, inbox: LoopInbox) -> None:
        self.confirmer = confirmer
        self.inbox = inbox
        self.lines = TakeLines()
        self.order = SendOrder()
