"""Consuming: one consumer of a scenario, in its thread of the broker process.

It joins when it is time, drains one queue after the other, and verifies what
it takes. What it acknowledges it announces before; what it gives back, rolls
back or leaves with is nobody's business but the store's, which must offer it again.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Sequence
from typing import Final, Protocol

import forebay

from .events import CAME_AGAIN, Kind
from .progress import Progress
from .scenario import ConsumerPlan
from .workload import Workload

POLL_SECONDS: Final = 0.05


class Tell(Protocol):
    """The way to the supervisor: see events.encode."""

    def __call__(
        self, kind: Kind, who: int = 0, payload: bytes | dict[str, object] = b"", at: float | None = None
    ) -> None: ...


class Consuming:
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
    ) -> None:
        """paces_after: the plan's later paces, each with the messages that the process has moved before."""
        self._bay = bay
        self._number = number
        self._plan = plan
        self._workload = workload
        self._progress = progress
        self._tell = tell
        self._random = random.Random(number)
        self._has_begun = False
        self._batch_messages = batch_messages
        self._paces_after = paces_after

    def run(self, queues: Sequence[forebay.Queue], joins_after: int) -> None:
        """Until nothing is left to take. joins_after: messages that the process has moved before."""
        while self._progress.moved_messages < joins_after:
            if self._progress.is_drained(queues):
                return
            time.sleep(POLL_SECONDS)
        for queue in queues:
            while not self._progress.is_drained([queue]):
                with queue.subscribe(selector=self._plan.selector, prefetch=self._plan.prefetch) as consumer:
                    self._drain(queue, consumer)

    def _drain(self, queue: forebay.Queue, consumer: forebay.Consumer) -> None:
        """Take, check and settle at the consumer's pace, until nothing is left or it leaves."""
        plan = self._plan
        subscribed = time.monotonic()
        settled = 0
        while not self._progress.is_drained([queue]):
            pace = self._pace()
            most = self._batch_messages if pace is None else min(self._batch_messages, max(1, int(pace * POLL_SECONDS)))
            batch = consumer.take(most, timeout=POLL_SECONDS)
            if not batch:
                continue
            taken = time.monotonic()
            if not self._has_begun:
                self._has_begun = True
                self._tell(Kind.FIRST, self._number, {"seconds": taken - subscribed, "backlog": queue.depth})
            if plan.leaves_after is not None and settled >= plan.leaves_after:
                return
            settled += self._settle(consumer, batch, taken)
            if pace is not None:
                time.sleep(len(batch) / pace)

    def _pace(self) -> float | None:
        """Return the pace that holds now."""
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
