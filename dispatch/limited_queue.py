"""A queue or topic whose policy limits it, and its consumers, whose acks make room.

They are classes of their own, so that those without limits pay nothing. What
they have in common is what they hold: a Gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..store.format.times import TIMES_BYTES
from ..store.message import Message
from .admission.limits import DestinationLimits
from .core.model import QueueArea
from .engine.engine import Engine
from .producer.full_policy import dead_letter_on_overflow, drop_oldest
from .producer.sender import Sender, encoded_properties
from .queue import Queue
from .topic import Topic
from .topics.state import TopicState
from .transactions.transaction import Transaction

CALL_FIELDS: Final = {"transaction", "timeout"}
"""What `send` takes and a message has not."""


class Gate:
    """Lets messages into one queue or topic within `max_messages` and `max_bytes` of its DestinationPolicy."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._producers = sender.producers
        self._area = sender._area
        assert sender._area.admission is not None
        self.admission: DestinationLimits = sender._area.admission

    def send(self, unlimited: Callable[..., str], body: object, fields: dict[str, Any]) -> str:
        """As Queue.send. Where there is no room it waits or raises StoreFull, as timeout or policy say.

        unlimited: the same without limits.
        """
        if type(body) is not bytes:
            return unlimited(body, **fields)
        headers, message_id, group = fields.get("headers"), fields.get("message_id"), fields.get("group")
        if self._area.is_watched and message_id is not None and fields.get("transaction") is None:
            return unlimited(body, **fields)  # which asks for room as a batch does
        size = len(body)
        if headers or message_id is not None or group is not None:
            size += len(encoded_properties(headers, message_id, group, fields.get("producer")))
        if fields.get("delay") or fields.get("expires_in") is not None:
            size += TIMES_BYTES
        if size > self._producers.max_message_bytes:
            raise self._sender._too_large(size)
        transaction = fields.get("transaction")
        if transaction is not None:
            transaction = self._sender._checked(transaction)
        if not self.admit((size,), self._sender._deadline(fields.get("timeout")), transaction):
            own_id = self.give_up(Message(body, **{name: fields[name] for name in fields.keys() - CALL_FIELDS}))
            if self.admission.diverts:
                self._publish()
            return own_id
        is_kept = False
        try:
            message_id = unlimited(body, **fields)
            is_kept = self._keep(transaction, (size,))
            return message_id
        finally:
            if not is_kept:
                self.admission.stored((size,))

    def _keep(self, transaction: Transaction | None, sizes: Sequence[int]) -> bool:
        """In a transaction the reservation lasts until its outcome."""
        return transaction is not None and transaction.keep_room(self.admission, sizes)

    def store(
        self,
        unlimited: Callable[..., None],
        priority: object,
        persistent: object,
        batch: list[tuple[bytes, bytes]],
        batch_ids: list[str | None],
        ids: list[str],
        transaction: Transaction | None,
        deadline: float | None,
    ) -> None:
        """As Sender._store, in parts, as there is room. What is stored already needs none."""
        sizes = [len(properties) + len(body) for properties, body in batch]
        begin = 0
        while begin < len(batch):
            end = begin + self.fresh(batch[begin:], transaction)
            if end == begin:
                stored_id = batch_ids[begin]
                assert stored_id is not None
                ids.append(stored_id)
                begin += 1
                continue
            end = begin + self.admit(sizes[begin:end], deadline, transaction)
            if end == begin:
                ids.append(self._give_up_content(priority, persistent, batch[begin], batch_ids[begin]))
                begin += 1
                continue
            is_kept = False
            try:
                unlimited(priority, persistent, batch[begin:end], batch_ids[begin:end], ids, transaction, deadline)
                is_kept = self._keep(transaction, sizes[begin:end])
            finally:
                if not is_kept:
                    self.admission.stored(sizes[begin:end])
            begin = end

    def fresh(self, batch: Sequence[tuple[bytes, bytes]], transaction: Transaction | None) -> int:
        """How many of the first need room; 0: the first is stored already. A transaction looks itself."""
        if not self._area.is_watched or transaction is not None:
            return len(batch)
        return self._producers.fresh(self._area, batch)

    def admit(self, sizes: Sequence[int], deadline: float | None, transaction: Transaction | None) -> int:
        """How many of them have room now; waits for the first. 0: the first is given up, as the policy says.

        In a transaction nothing is given up: it is all or nothing.
        """
        self._producers.monitor.raise_if_closed()  # in the child of a fork nobody would ever make room, or end the wait
        if self.admission.drops and transaction is None:
            return self.admission.admit_or_drop(sizes, self.drop_oldest)
        return self.admission.admit(sizes, self._publish, deadline)

    def drop_oldest(self, messages: int, size_bytes: int) -> int:
        """Remove so much of what waits, as far as there is; return how many messages. Requires: the lock."""
        return drop_oldest(self._producers.removals, self._area, messages, size_bytes)

    def give_up(self, message: Message) -> str:
        """There is no room for it: it goes where the policy says. Its id; what was written is not synced yet."""
        content = self._sender._content(message)
        return self._give_up_content(message.priority, message.persistent, content, message.message_id)

    def _give_up_content(
        self, priority: object, persistent: object, content: tuple[bytes, bytes], message_id: str | None
    ) -> str:
        lane_area = self._sender._lane_area(priority)
        if persistent is not True:
            self._sender._volatile_area(persistent, priority, None)
        own_id = (
            dead_letter_on_overflow(self._producers, self._area, lane_area.lane.priority, persistent is True, *content)
            if self.admission.diverts
            else None
        )
        return own_id if own_id is not None else self._dropped_id(lane_area.id_prefix, message_id)

    def _dropped_id(self, id_prefix: str, message_id: str | None) -> str:
        """The id of a message that is given up: nobody has it but its sender."""
        if message_id is not None:
            return message_id
        number = next(self._area.drop_numbers)
        return f"{id_prefix}dropped-{self._producers.journal.epoch}-{number}"

    def _publish(self) -> None:
        """What was stored must be there for consumers: who waits may wait for its own messages to be acknowledged."""
        self._sender.confirmer.confirm(self._producers.publisher.position())


class AdmittedGate(Gate):
    """A Gate for what was admitted before: `admitted` messages, and no more."""

    admitted = 0

    def fresh(self, batch: Sequence[tuple[bytes, bytes]], transaction: Transaction | None) -> int:
        """All: what has been stored since gives its room back."""
        return len(batch)

    def admit(self, sizes: Sequence[int], deadline: float | None, transaction: Transaction | None) -> int:
        """As many as are left of them."""
        count = min(self.admitted, len(sizes))
        assert count, "whoever sends has waited for room"
        self.admitted -= count
        return count


class LimitedQueue(Queue):
    """A queue with limits."""

    def __init__(self, engine: Engine, area: QueueArea, gate_type: type[Gate] = Gate) -> None:
        super().__init__(engine, area)
        self.gate = gate_type(self)

    def send(self, body: bytes, **fields: Any) -> str:
        """See Gate.send."""
        return self.gate.send(super().send, body, fields)

    def _store(self, *stored: Any) -> None:
        self.gate.store(super()._store, *stored)


class LimitedTopic(Topic):
    """A topic with limits. What counts is what any subscription needs."""

    def __init__(self, engine: Engine, area: TopicState, gate_type: type[Gate] = Gate) -> None:
        super().__init__(engine, area)
        self.gate = gate_type(self)

    def send(self, body: bytes, **fields: Any) -> str:
        """See Gate.send."""
        return self.gate.send(super().send, body, fields)

    def _store(self, *stored: Any) -> None:
        self.gate.store(super()._store, *stored)
