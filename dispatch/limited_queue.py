"""A queue whose policy limits it, and its consumers, whose acks make room.

They are classes of their own, so that queues without limits pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .admission import Admission
from .consumer import Consumer
from .delivery import Delivery
from .queue import Queue, encoded_properties
from .transaction import Transaction


class LimitedQueue(Queue):
    """As Queue, within `max_messages` and `max_bytes` of its DestinationPolicy."""

    @property
    def _admission(self) -> Admission:
        assert self._area.admission is not None
        return self._area.admission

    def send(self, body: bytes, **fields: Any) -> str:
        """As Queue.send. Where the queue is full it waits or raises StoreFull, as its policy says."""
        if type(body) is not bytes:
            return super().send(body, **fields)
        headers, message_id = fields.get("headers"), fields.get("message_id")
        if self._area.is_watched and message_id is not None and fields.get("transaction") is None:
            return super().send(body, **fields)  # which asks for room as a batch does
        size = len(body)
        if headers or message_id is not None:
            size += len(encoded_properties(headers, message_id, fields.get("producer")))
        if size > self._engine.max_message_bytes:
            raise self._too_large(size)
        self._admit((size,))
        is_kept = False
        try:
            message_id = super().send(body, **fields)
            is_kept = self._keep(fields.get("transaction"), (size,))
            return message_id
        finally:
            if not is_kept:
                self._admission.stored((size,))

    def _keep(self, transaction: Transaction | None, sizes: Sequence[int]) -> bool:
        """In a transaction the reservation lasts until its outcome."""
        return transaction is not None and transaction.keep_room(self._admission, sizes)

    def _store(
        self,
        priority: int,
        persistent: bool,
        batch: list[tuple[bytes, bytes]],
        batch_ids: list[str | None],
        ids: list[str],
        transaction: Transaction | None,
    ) -> None:
        """In parts, as there is room."""
        sizes = [len(properties) + len(body) for properties, body in batch]
        begin = 0
        while begin < len(batch):
            end = begin + self._admit(sizes[begin:])
            is_kept = False
            try:
                super()._store(priority, persistent, batch[begin:end], batch_ids[begin:end], ids, transaction)
                is_kept = self._keep(transaction, sizes[begin:end])
            finally:
                if not is_kept:
                    self._admission.stored(sizes[begin:end])
            begin = end

    def _admit(self, sizes: Sequence[int]) -> int:
        """How many of them have room now; waits for the first."""
        return self._admission.admit(sizes, self._publish)

    def _publish(self) -> None:
        """What was stored must be there for consumers: who waits may wait for its own messages to be acknowledged."""
        self._engine.after_write(self._engine.position())


class LimitedConsumer(Consumer):
    """A consumer of a LimitedQueue."""

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Transaction | None = None) -> None:
        """See Consumer.ack."""
        admission = self._queue.admission
        assert admission is not None
        try:
            super().ack(deliveries, transaction=transaction)
        finally:
            with self._engine.lock:
                admission.room_came()
