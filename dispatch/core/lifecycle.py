"""DestinationLifecycle: whether a destination is open, paused or in use, and what its policy says.

A destination object begins open. It ends in one of three ways, which decide what a call does that still has the object:

    open ──> closed    only its row in the store's table is left: the call opens it again by its number
         ──> unused    it was deleted as inactive: the call makes a new one of its name
         ──> deleted   a caller deleted it: the call raises Closed

An object never becomes open again; a destination that is opened again is another object.
"""

from __future__ import annotations

from enum import Enum

from ...store.errors import Closed
from ..admission.limits import DestinationLimits
from .counting import CountedDestination


class Lifecycle(Enum):
    """The states of a destination object; see the top of this module."""

    OPEN = "open"
    CLOSED = "closed"
    UNUSED = "unused"
    DELETED = "deleted"


class DestinationLifecycle(CountedDestination):
    """A destination without its lanes and consumers. The state lock guards it."""

    __slots__ = (
        "number",
        "limits",
        "has_groups",
        "rebalances_groups",
        "is_paused",
        "lifecycle",
        "calls_under_way",
        "enqueued_when_idle",
        "inactive_seconds",
        "is_watched",
    )

    def __init__(self, number: int, name: str) -> None:
        super().__init__(name)
        self.number = number
        # The limits of a queue or topic whose policy has any. A subscription has those of its topic.
        self.limits: DestinationLimits | None = None
        # Whether a message with a group was ever sent here.
        self.has_groups = False
        # Whether its policy has `group_rebalance`.
        self.rebalances_groups = False
        # Whether nothing is handed out until it is resumed.
        self.is_paused = False
        self.lifecycle = Lifecycle.OPEN
        # Number of calls that use it but do not hold the lock now. It stays open for them.
        self.calls_under_way = 0
        # The value of `enqueued` at the last look if it was idle then; None: it was not.
        self.enqueued_when_idle: int | None = None
        # After how many seconds without use its policy deletes it. None: never.
        self.inactive_seconds: float | None = None
        # Whether its policy has a duplicate window.
        self.is_watched = False

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor deleted, so that it has lanes and consumers may come."""
        return self.lifecycle is Lifecycle.OPEN

    @property
    def is_reopenable(self) -> bool:
        """Whether a call that still has it can go on with another object of its name, opened again or made anew."""
        return self.lifecycle is Lifecycle.CLOSED or self.lifecycle is Lifecycle.UNUSED

    @property
    def subscription_name(self) -> str | None:
        """Return the name of a durable subscription. None: it is not one."""
        return None

    def room_came(self) -> None:
        """Serve senders that wait for room, because messages may have left. Requires: the lock."""
        if self.limits is not None:
            self.limits.room_came()

    def raise_if_deleted(self) -> None:
        """Raise Closed if it is not open any more. Requires: the lock."""
        if not self.is_open:
            raise Closed(f"the {self.noun}")

    def raise_if_not_sendable(self) -> None:
        """Raise what a send raises before it has a lane. Closed: the destination is deleted. Requires: the lock."""
        self.raise_if_deleted()
