"""MemberConsumer: the consumer as a member of its selector group, which knows neither its lists nor its destination."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

from .activity import Activity
from .consumer_stage import ConsumerStage
from .lane_deliveries import Delivery, SettlingConsumer


class MemberConsumer(SettlingConsumer):
    """The consumer as its selector group and its distribution see it: what it may take, how it waits, how it ends.

    Consumer, in dispatch/consumer, defines all of it. The state lock guards it.
    """

    __slots__ = (
        "ack_deadline_seconds",
        "activity",
        "delivered",
        "is_exclusive",
        "is_polling",
        "prefetch_limit",
        "priority",
        "stage",
    )

    stage: ConsumerStage
    """Whether it takes, is held up, drains or is closed."""
    activity: Activity
    priority: int
    """Consumers of higher priority are served first."""
    prefetch_limit: int
    """Most unsettled deliveries it may hold; 0: only the size of a take limits it."""
    delivered: int
    """Number of deliveries so far; each delivery keeps its number. Only the DispatchArea changes it."""
    is_exclusive: bool
    """Whether it gets all messages, or waits to take over."""
    ack_deadline_seconds: float | None
    """A delivery that is not settled within this time comes back. None: there is no limit. Read-only for callers."""
    is_polling: bool
    """Whether it has no `on_ready`: it takes when it wants to, in a thread that may load what is missing."""

    @property
    @abstractmethod
    def credit(self) -> int:
        """How many more messages its prefetch allows it to take; 0 or less: none.

        UNLIMITED if only the size of a take limits it. This does not say whether its queue holds it up or memory is
        short; see `allowance`.
        """

    @property
    @abstractmethod
    def demand(self) -> int:
        """How many messages may be kept for the consumer: its credit.

        With prefetch 0 it wants one, and only while it waits.
        """

    @abstractmethod
    def allowance(self, most: int) -> int:
        """Return how many of `most` messages it may take now, 0 or less: none. Requires: the lock."""

    @abstractmethod
    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Add its callback to `deferred` if a take found nothing and may find something now. Requires: the lock."""

    @property
    @abstractmethod
    def charge_bytes(self) -> int:
        """Return its charge in RAM, without its selector group and lists."""

    @property
    @abstractmethod
    def is_waiting(self) -> bool:
        """Whether it waits for messages, or for room to hold more. Requires: the lock."""

    @abstractmethod
    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        """Give deliveries back as `release` does, and leave the callbacks that are due to `Monitor.run_deferred`."""

    @abstractmethod
    def try_again(self) -> None:
        """Go on if it waited for credit and has some now. Requires: the lock."""

    @abstractmethod
    def follow_destination(self) -> None:
        """Follow a change of what it takes from. Requires: the lock.

        A pause, another distribution, an exclusive consumer or limits may have come or gone.
        """

    @abstractmethod
    def close_with_destination(self, held: Sequence[Delivery]) -> None:
        """Close the consumer, because its queue or the store ends, and have its on_ready called. Requires: the lock.

        held: its deliveries, highest priority first.
        """

    @abstractmethod
    def wake_outside(self) -> None:
        """Wake what waits for this consumer outside the lock, to learn that it drains or the lock is broken.

        Requires: the lock.
        """

    @abstractmethod
    def held_in_transactions(self) -> list[Delivery]:
        """Return its deliveries that open transactions hold. O(deliveries held). Requires: the lock."""

    @abstractmethod
    def disable_in_child(self) -> None:
        """Take and return nothing any more, because this is the copy in a forked child."""
