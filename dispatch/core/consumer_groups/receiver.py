"""Receiver: a consumer by itself, as far as its members of a group, watchers and deadlines know it.

Where it takes from is not said here: that knows it in turn, and is in model.py
(Taker). Nothing here survives the process.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ....store.numbering import UNLIMITED
from ..deliveries.delivery import Delivery, Settler


class Receiver(Settler):
    """What a consumer may hold, how it is woken and how it ends. The state lock guards it."""

    __slots__ = (
        "priority",
        "prefetch_limit",
        "is_draining",
        "delivered",
        "is_slow",
        "slow_seconds",
        "moved_at",
        "counts_at_slow_look",
        "messages_per_second",
        "on_slow",
        "counts_at_stuck_look",
        "stuck_since",
        "stuck_told_again_at",
        "is_exclusive",
        "ack_deadline_seconds",
        "is_synchronous",
    )

    priority: int
    """Consumers of higher priority are served first."""
    prefetch_limit: int
    """Most unsettled deliveries it may hold; 0: only the size of a take bounds it."""
    is_draining: bool
    """It takes nothing more and only settles what it holds. Read-only for callers."""
    delivered: int
    """Deliveries so far, which numbers them."""
    is_slow: bool
    """It has neither taken nor settled anything for `slow_seconds`, and holds messages or could have some."""
    slow_seconds: float | None
    moved_at: float
    """When it last was seen to have taken or settled something."""
    counts_at_slow_look: tuple[int, int]
    """What `delivered` and `in_flight` were then."""
    messages_per_second: float
    """How fast it took in the last second that was measured."""
    on_slow: Callable[[Any], None] | None
    counts_at_stuck_look: tuple[int, int]
    """What `delivered` and `in_flight` were when somebody last looked whether it is stuck."""
    stuck_since: float
    """When it last was seen to have moved, to wait for nothing, or to have an empty queue."""
    stuck_told_again_at: float
    """When the log may say again that it is stuck."""
    is_exclusive: bool
    ack_deadline_seconds: float | None
    """What it does not settle in that time comes back; None: it has all time. Read-only for callers."""
    is_synchronous: bool
    """Whether `take` is called by a thread, which may load what is missing, and not by an event loop."""

    @property
    def credit(self) -> int:
        """How many messages its prefetch lets it take beside those that it holds, 0 or less: none.

        UNLIMITED where only the size of a take bounds it. Whether its queue holds it up, and whether memory is short,
        are other questions.
        """
        if self.is_draining:
            return 0
        return self.prefetch_limit - self.in_flight if self.prefetch_limit else UNLIMITED

    @abstractmethod
    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Add the callback to `deferred` if a take found nothing and may find something now. Requires: the lock."""

    @property
    @abstractmethod
    def charge_bytes(self) -> int:
        """Return what it costs in RAM, without its consumer group and lists."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether it waits for messages, or for room to hold any. Requires: the lock."""

    @abstractmethod
    def on_credit(self) -> None:
        """Go on if the consumer waited for credit and has some now. Requires: the lock."""

    @abstractmethod
    def reconfigure(self) -> None:
        """Take from now on as the queue demands it. Requires: the lock."""

    @abstractmethod
    def end(self, held: Sequence[Delivery]) -> None:
        """Close the consumer, whose queue or store ends, and have its on_ready called. Requires: the lock.

        held: what it holds, highest priority first.
        """

    @abstractmethod
    def wake_on_failure(self) -> None:
        """Wake what waits for this consumer outside the lock, to learn that the lock is broken. Requires: the lock."""

    @abstractmethod
    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(held). Requires: the lock."""

    @abstractmethod
    def die(self) -> None:
        """Take and return nothing any more: this is the copy of a forked child."""
