"""Waits: who waits on one consumer, and how they are woken.

There are its takes, for messages or for credit; its host, for a callback or a descriptor; and the senders of its
queue, for the room that its acks make. Nothing here survives the process.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.locks import UNAWAITED, OwnedLock, condition_of
from ..core.model import ConsumerGroup
from .readiness import Readiness


class Waits:
    """Of one consumer. The state lock guards it; every method but `close` requires it held."""

    __slots__ = (
        "hears_of_acks",
        "is_for_credit",
        "readiness",
        "when_closed",
        "when_moved",
        "_credited",
        "_takes",
    )

    def __init__(self, on_ready: Callable[[], None] | None, *, is_limited: bool) -> None:
        """on_ready: see Readiness. is_limited: senders may wait for room in the queue."""
        self.readiness = Readiness(on_ready)
        self.is_for_credit = False
        """Takes wait for credit, or for memory, or for a queue that hands something out. Read-only for callers."""
        self.hears_of_acks = is_limited
        """Whether anybody waits for what an ack makes free: one question for the path of a single ack."""
        self._credited = UNAWAITED
        """Takes that lack credit wait for it. Arrivals notify another one, the consumer group's, so that no consumer
        without credit swallows what is meant for one with credit."""
        self._takes = 0
        """How many takes of this consumer wait for messages."""
        self.when_moved: Callable[[], None] | None = None
        """Called under the lock when the consumer moves to another consumer group, for an event loop."""
        self.when_closed: Callable[[], None] | None = None
        """Called under the lock when the consumer closes, for an event loop."""

    @property
    def are_any(self) -> bool:
        """Return whether a take waits, or a callback is due for the next arrival."""
        return self.is_for_credit or self.readiness.is_armed or self._takes > 0

    def arm(self, consumer_group: ConsumerGroup) -> None:
        """Call on_ready with the next arrival: a take found nothing, or there was none yet."""
        if self.readiness.arm():
            consumer_group.arm()

    def tell(self, due: list[Callable[[], None]]) -> None:
        """Have on_ready called of what arrived, unless nothing may be taken for want of credit."""
        if not self.is_for_credit:
            self.readiness.tell(due)

    # ------------------------------------------------------------------ waiting

    def begin_for_credit(self) -> None:
        """Note that takes wait for credit: arrivals are for others from now on."""
        self.is_for_credit = self.hears_of_acks = True

    def end_for_credit(self, *, is_limited: bool) -> None:
        """Note that there is credit, and wake the takes that wait for it. is_limited: see the constructor."""
        self.is_for_credit = False
        self.hears_of_acks = is_limited
        self._credited.notify_all()

    def wait_for_credit(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until there is credit, or so long. Lets go of the lock meanwhile."""
        if self._credited is UNAWAITED:
            self._credited = condition_of(lock)
        self._credited.wait(seconds)

    def wait_for_messages(self, consumer_group: ConsumerGroup, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until something arrives, or so long. The consumer may have another group when that is over."""
        self._takes += 1
        try:
            consumer_group.wait(lock, seconds)
        finally:
            self._takes -= 1

    # ------------------------------------------------------------------ waking

    def wake_takes(self, consumer_group: ConsumerGroup) -> None:
        """Wake all takes, whatever they wait for: they raise Closed now."""
        self._credited.notify_all()
        consumer_group.arrived.notify_all()

    def end(self) -> None:
        """Make the descriptor readable for ever, and tell the event loop: the next take says why."""
        self.readiness.end()
        if self.when_closed is not None:
            self.when_closed()

    def moved(self, consumer_group: ConsumerGroup) -> None:
        """Wait on another consumer group from now on."""
        if self.readiness.is_armed:
            consumer_group.arm()
        if self.when_moved is not None:
            self.when_moved()

    def close(self) -> None:
        """Give the descriptor back. Twice is once."""
        self.readiness.close()
