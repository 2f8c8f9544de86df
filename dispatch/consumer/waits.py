"""ConsumerWaits: who waits for one consumer, and how each is woken.

Three wait for a consumer: its takes, for messages or for credit; its host, with a callback or a descriptor; and the
senders of its queue, for room that its acks make.
"""

from __future__ import annotations

from collections.abc import Callable

from ...store.environment.locks import UNAWAITED, OwnedLock, condition_of
from ..core.model.destination import SelectorGroup
from .readiness import Readiness


class ConsumerWaits:
    """The waits of one consumer. The state lock guards it; every method except `close` requires it held."""

    __slots__ = (
        "acks_wake_somebody",
        "readiness",
        "waits_for_credit",
        "_when_closed",
        "_when_moved",
        "_credited",
        "_takes",
    )

    def __init__(self, on_ready: Callable[[], None] | None) -> None:
        """Make it for one consumer. on_ready: see Readiness."""
        self.readiness = Readiness(on_ready)
        # Whether takes wait for credit, for memory, or for a queue that is held up. Read-only for callers.
        self.waits_for_credit = False
        # Whether anybody may wait for room that an ack makes. The path of a single ack checks only this attribute.
        self.acks_wake_somebody = False
        # Takes without credit wait for this condition. Arrivals notify the condition of the selector group, so they
        # wake only takes that have credit.
        self._credited = UNAWAITED
        # Number of takes of this consumer that wait for messages.
        self._takes = 0
        # Called under the lock when the consumer moves to another selector group, for an event loop.
        self._when_moved: Callable[[], None] | None = None
        # Called under the lock when the consumer closes, for an event loop.
        self._when_closed: Callable[[], None] | None = None

    @property
    def has_any(self) -> bool:
        """Whether a take waits, or a callback is due at the next arrival."""
        return self.waits_for_credit or self.readiness.is_armed or self._takes > 0

    def arm(self, selector_group: SelectorGroup) -> None:
        """Have on_ready called at the next arrival, because a take found nothing or none was made yet."""
        if self.readiness.arm():
            selector_group.arm()

    def tell(self, due: list[Callable[[], None]]) -> None:
        """Have on_ready called for an arrival, unless the consumer has no credit."""
        if not self.waits_for_credit:
            self.readiness.tell(due)

    def attach_loop(self, when_moved: Callable[[], None], when_closed: Callable[[], None]) -> None:
        """Call these functions when the consumer moves to another selector group, and when it closes."""
        self._when_moved, self._when_closed = when_moved, when_closed

    # ------------------------------------------------------------------ waiting

    def begin_credit_wait(self) -> None:
        """Note that takes wait for credit, so that arrivals are for other consumers from now on."""
        self.waits_for_credit = self.acks_wake_somebody = True

    def end_credit_wait(self, *, is_limited: bool) -> None:
        """Note that there is credit, and wake the takes that wait for it. is_limited: see follow_limits."""
        self.waits_for_credit = False
        self.acks_wake_somebody = is_limited
        self._credited.notify_all()

    def follow_limits(self, *, is_limited: bool) -> None:
        """Note whether senders may wait for room in the queue, or in a topic of the pattern."""
        self.acks_wake_somebody = self.waits_for_credit or is_limited

    def wait_for_credit(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until there is credit, or the time is over. The lock is released meanwhile."""
        if self._credited is UNAWAITED:
            self._credited = condition_of(lock)
        self._credited.wait(seconds)

    def wait_for_messages(self, selector_group: SelectorGroup, lock: OwnedLock, seconds: float | None) -> None:
        """Wait for a message, or until the time is over. The consumer may have another selector group afterwards."""
        self._takes += 1
        try:
            selector_group.wait(lock, seconds)
        finally:
            self._takes -= 1

    # ------------------------------------------------------------------ waking

    def wake_takes(self, selector_group: SelectorGroup) -> None:
        """Wake all takes, whatever they wait for, because they must raise Closed."""
        self._credited.notify_all()
        selector_group.wake_takes()

    def wake_outside(self) -> None:
        """Make the descriptor readable for ever, and tell the event loop. The next take raises why it ended."""
        self.readiness.stay_ready()
        if self._when_closed is not None:
            self._when_closed()

    def tell_end(self, due: list[Callable[[], None]]) -> None:
        """Have on_ready called, with credit or without, because the next take raises why it ended."""
        self.readiness.tell(due)

    def fileno(self) -> int:
        """Return the descriptor, as Readiness.fileno does."""
        return self.readiness.fileno()

    def moved(self, selector_group: SelectorGroup) -> None:
        """Wait for messages of another selector group from now on."""
        if self.readiness.is_armed:
            selector_group.arm()
        if self._when_moved is not None:
            self._when_moved()

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        self.readiness.close()
