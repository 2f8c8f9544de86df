"""Consuming: the consumers of a scenario, in threads of the broker process that each drive one or many.

A consumer joins when it is time, drains one source after the other, and verifies the messages that it takes. It tells
the supervisor of each ack before it makes it. It tells nothing of messages that it nacks, rolls back or holds when it
closes, because the store must deliver these again.

A consumer is a generator that never sleeps. It yields the seconds for which it has nothing to do, 0 after a batch. So
one thread drives any number of consumers in rounds.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import forebay

from .events import CAME_AGAIN, TOOK, Kind
from .progress import Progress
from .scenario import ConsumerPlan
from .sources import LoadSource
from .workload import Workload

POLL_SECONDS: Final = 0.05
OWN_THREADS_MAX: Final = 16
"""Most consumers that have a thread each. With more consumers, SHARED_THREADS drive all of them."""
SHARED_THREADS: Final = 4
NO_CHANCE: Final = random.Random(0)
"""Shared by consumers that make no random choices."""


class Tell(Protocol):
    """Sends an event to the supervisor. The arguments are those of events.encode."""

    def __call__(
        self, kind: Kind, who: int = 0, payload: bytes | dict[str, object] = b"", at: float | None = None
    ) -> None: ...


def shared_out(consumers: int) -> list[range]:
    """Return the numbers of the consumers that each thread drives."""
    threads = consumers if consumers <= OWN_THREADS_MAX else SHARED_THREADS
    return [range(thread, consumers, threads) for thread in range(threads)]


def drive(consumers: Iterable[Iterator[float]]) -> None:
    """Let consumers take turns in this thread until all have finished."""
    active = list(consumers)
    while active:
        rests = [(consumer, next(consumer, None)) for consumer in active]
        active = [consumer for consumer, rest in rests if rest is not None]
        rest = min((rest for _, rest in rests if rest is not None), default=0.0)
        if rest > 0:
            time.sleep(min(rest, POLL_SECONDS))


class Consuming:
    __slots__ = (
        "_bay",
        "_number",
        "_plan",
        "_workload",
        "_progress",
        "_tell",
        "_random",
        "_has_begun",
        "_batch_messages",
        "_paces_after",
        "_timeout_seconds",
        "_is_timed",
    )

    def __init__(
        self,
        bay: forebay.Forebay,
        number: int,
        plan: ConsumerPlan,
        paces_after: Sequence[tuple[int, float]],
        workload: Workload,
        batch_messages: int,
        progress: Progress,
        tell: Tell,
        *,
        shares_thread: bool,
        is_timed: bool,
    ) -> None:
        """Make a consumer.

        paces_after: the plan's later paces, each with the number of messages that the process moves before it.
        shares_thread: others are driven by its thread, so that no take waits. is_timed: whether it tells how long its
        takes are."""
        self._bay = bay
        self._number = number
        self._plan = plan
        self._workload = workload
        self._progress = progress
        self._tell = tell
        gives_back = plan.retries or plan.rollbacks
        self._random = random.Random(number) if gives_back else NO_CHANCE  # 2.5 KiB each
        self._has_begun = False
        self._batch_messages = batch_messages
        self._paces_after = paces_after
        self._timeout_seconds = 0.0 if shares_thread else POLL_SECONDS
        self._is_timed = is_timed

    def steps(self, sources: Sequence[LoadSource], joins_after: int, *, after_all: bool) -> Iterator[float]:
        """Consume until nothing is left to take; yield after each step for how long there is nothing to do.

        joins_after: messages that the process moves before the consumer joins. after_all: all sends come first.
        """
        progress = self._progress
        while progress.moved_messages < joins_after or (after_all and not progress.all_sent.is_set()):
            if progress.is_drained(sources):
                return
            yield POLL_SECONDS
        for source in sources:
            while not progress.is_drained([source]):
                with source.subscribe(self._plan) as consumer:
                    yield from self._drain(source, consumer)

    def _drain(self, source: LoadSource, consumer: forebay.Consumer) -> Iterator[float]:
        """Take, check and settle at the consumer's pace, until nothing is left or the consumer leaves."""
        plan = self._plan
        subscribed = time.monotonic()
        settled = 0
        while not self._progress.is_drained([source]):
            pace = self._pace()
            most = self._batch_messages if pace is None else min(self._batch_messages, max(1, int(pace * POLL_SECONDS)))
            batch = self._timed_take(source, consumer, most) if self._is_timed else self._take(consumer, most)
            if not batch:
                yield POLL_SECONDS - self._timeout_seconds
                continue
            taken = time.monotonic()
            if not self._has_begun:
                self._has_begun = True
                self._tell(Kind.FIRST, self._number, {"seconds": taken - subscribed, "backlog": source.depth})
            if plan.leaves_after is not None and settled >= plan.leaves_after:
                return
            settled += self._settle(consumer, batch, taken)
            yield 0.0
            if pace is not None:
                yield from _rest(len(batch) / pace - (time.monotonic() - taken))
            if plan.rests and not source.depth:
                yield from _rest(plan.rests)

    def _take(self, consumer: forebay.Consumer, most: int) -> list[forebay.Delivery]:
        return consumer.take(most, timeout=self._timeout_seconds)

    def _timed_take(self, source: LoadSource, consumer: forebay.Consumer, most: int) -> list[forebay.Delivery]:
        """Take, and tell the supervisor the duration, unless the take may have waited for a message."""
        is_waiting = bool(source.depth)
        began, ran = time.perf_counter(), time.thread_time()
        batch = self._take(consumer, most)
        ran, took = time.thread_time() - ran, time.perf_counter() - began
        if batch and is_waiting:
            self._tell(Kind.TOOK, self._number, TOOK.pack(took, ran))
        return batch

    def _pace(self) -> float | None:
        """Return the present pace in messages a second; None: no limit."""
        if self._progress.pace is not None:
            return self._progress.pace
        pace = self._plan.pace
        for after, later in self._paces_after:
            if self._progress.moved_messages >= after:
                pace = later
        return pace

    def _settle(self, consumer: forebay.Consumer, batch: list[forebay.Delivery], taken: float) -> int:
        """Settle a batch and return how many were acknowledged: all, or none at the turn of a retry or a rollback."""
        keys, damaged = self._workload.check(batch)
        for text in damaged:
            self._tell(Kind.DAMAGED, self._number, {"text": text})
        if any(delivery.attempts > 1 for delivery in batch):
            keys = array("Q", [key | CAME_AGAIN for key in keys])
        if self._plan.retries and self._random.random() < self._plan.retries:
            consumer.nack(batch, delay=self._plan.retry_seconds)
            return 0
        rollbacks = self._plan.rollbacks
        if rollbacks and self._random.random() < rollbacks:
            transaction = self._bay.transaction()
            consumer.ack(batch, transaction=transaction)
            transaction.rollback()
            return 0
        self._tell(Kind.SETTLING, self._number, keys.tobytes(), taken)
        if rollbacks:
            with self._bay.transaction() as transaction:
                consumer.ack(batch, transaction=transaction)
        else:
            consumer.ack(batch)
        self._tell(Kind.SETTLED, self._number)
        self._progress.moved(len(batch))
        return len(batch)


def _rest(seconds: float) -> Iterator[float]:
    """Yield until these seconds have passed, at least once."""
    ends = time.monotonic() + seconds
    yield max(seconds, 0.0)
    while (rest := ends - time.monotonic()) > 0:
        yield rest
