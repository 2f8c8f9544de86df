"""SelectorGroupConsumers: the consumers of a selector group, how they wait, and in which order they are woken.

SelectorGroup, in destination.py, adds the lists from which they take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from ....store.environment.locks import UNAWAITED, OwnedLock, condition_of
from ...selectors.selector import Selector
from .delivery import AbstractConsumer
from .matching import SelectorMatcher

ConsumerT = TypeVar("ConsumerT", bound=AbstractConsumer)


class SelectorGroupConsumers(SelectorMatcher, Generic[ConsumerT]):
    """The consumers of one selector group. They have one selector in common, or none.

    Most groups with a selector have one consumer, and there may be thousands of such groups. So a single consumer is
    kept without a dict, because a dict with one key takes 224 bytes.
    """

    __slots__ = ("_only", "_all", "arrived", "waiting", "is_armed")

    def __init__(self, selector: Selector | None) -> None:
        super().__init__(selector)
        # The consumer, while there is only one.
        self._only: ConsumerT | None = None
        # All consumers, once there is a second one.
        self._all: dict[ConsumerT, None] | None = None
        # The condition for which takes wait. UNAWAITED until the first take waits.
        self.arrived = UNAWAITED
        # Number of threads that wait in take for a message.
        self.waiting = 0
        # Whether a consumer waits for its on_ready callback.
        self.is_armed = False

    @property
    def consumers(self) -> Collection[ConsumerT]:
        """The consumers in the order in which they are woken. O(1)."""
        if self._all is not None:
            return self._all
        return () if self._only is None else (self._only,)

    def add_consumer(self, consumer: ConsumerT) -> None:
        """Add a consumer at the end. O(1)."""
        if self._all is not None:
            self._all[consumer] = None
        elif self._only is None:
            self._only = consumer
        else:
            self._all = {self._only: None, consumer: None}
            self._only = None

    def remove_consumer(self, consumer: ConsumerT) -> None:
        """Remove a consumer, which must be in the group. O(1)."""
        if self._all is not None:
            del self._all[consumer]
            if not self._all:
                self._all = None
        else:
            assert consumer is self._only
            self._only = None

    def inherit_consumers(self, before: SelectorGroupConsumers[ConsumerT]) -> None:
        """Take over the consumers of a selector group that this one replaces. O(1)."""
        self._only, self._all = before._only, before._all

    def rotate_consumers(self) -> None:
        """Move the first consumer to the end. O(1)."""
        if self._all is not None:
            first = next(iter(self._all))
            del self._all[first]
            self._all[first] = None

    @property
    def is_awaited(self) -> bool:
        """Whether a take waits, or a consumer waits for its on_ready callback."""
        return self.waiting > 0 or self.is_armed

    def wait(self, lock: OwnedLock, seconds: float | None) -> None:
        """Wait until a message arrives or the time is over. Requires: the state lock, which is released meanwhile."""
        if self.arrived is UNAWAITED:
            self.arrived = condition_of(lock)
        self.waiting += 1
        try:
            self.arrived.wait(seconds)
        finally:
            self.waiting -= 1

    def arm(self) -> None:
        """Call on_ready of the waiting consumers at the next arrival. Requires: the lock."""
        self.is_armed = True

    def wake(self, ready: list[Callable[[], None]]) -> None:
        """Wake the consumers, because there may be a message. Callbacks that are due are added to ready.

        Requires: the lock.
        """
        if self.waiting:
            self.arrived.notify_all()
        if self.is_armed:
            self.call_armed(ready)

    def wake_for(self, messages: int, ready: list[Callable[[], None]]) -> None:
        """Wake as `wake` does, but only as many threads as messages came into RAM: more would find nothing.

        Threads that have waited longest are woken first. A thread that takes nothing wakes another. Requires: the lock.
        """
        if self.waiting:
            self.arrived.notify(messages)
        if self.is_armed:
            self.call_armed(ready)

    def wake_takes(self) -> None:
        """Have every take that waits look again, because who gets what has changed. Requires: the lock."""
        self.arrived.notify_all()

    def wake_another_take(self) -> None:
        """Wake one more take, because one that was woken takes nothing. Requires: the lock."""
        self.arrived.notify()

    def call_armed(self, ready: list[Callable[[], None]]) -> None:
        """Add the callbacks of consumers that wait for a message to ready. Requires: the lock."""
        self.is_armed = False
        for consumer in self.consumers:
            consumer.become_ready(ready)
        # The consumer that is woken first may take all messages, so next time another one is first.
        self.rotate_consumers()

    def load_ended(self, ready: list[Callable[[], None]]) -> None:
        """Wake all consumers that wait, because a load has ended, whatever it brought. Requires: the lock.

        Here `wake` does that. A subclass whose `wake` leaves some consumers out wakes these too.
        """
        self.wake(ready)

    def rate_fraction(self, consumer: ConsumerT) -> float:
        """Return a consumer's rate of taking as a fraction of the rate of all consumers. O(consumers).

        The fractions are equal while no consumer takes.
        """
        if consumer not in self.consumers:
            return 0.0
        total = sum(other.activity.messages_per_second for other in self.consumers)
        return consumer.activity.messages_per_second / total if total else 1.0 / len(self.consumers)
