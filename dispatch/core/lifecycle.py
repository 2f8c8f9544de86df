"""DestinationLifecycle: whether a destination is open, paused or in use, and what its policy says of that.

A destination object begins open. It ends in one of three ways, which say what
becomes of a call that still has it:

open ──> closed    it is a row of the store's table again: the call opens it again, by its number
     ──> unused    it was deleted for want of use: the call makes one of its name
     ──> deleted   by somebody who meant it: the call raises Closed

Nothing comes back from there: what is opened again is another object. Nothing here survives the process.
"""

from __future__ import annotations

from enum import Enum

from ...store.errors import Closed
from ..admission.limits import DestinationLimits
from .counting.counters import CountedDestination


class Lifecycle(Enum):
    """What has become of a destination object: one of the four states above."""

    OPEN = "open"
    CLOSED = "closed"
    UNUSED = "unused"
    DELETED = "deleted"


class DestinationLifecycle(CountedDestination):
    """A destination as far as one can tell without its lanes and consumers. The state lock guards it."""

    __slots__ = (
        "number",
        "admission",
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
        self.admission: DestinationLimits | None = None
        """The limits of a queue or topic whose policy has any. A subscription has those of its topic."""
        self.has_groups = False
        """Messages with a group were sent there, once at least."""
        self.rebalances_groups = False
        """Its policy has `group_rebalance`."""
        self.is_paused = False
        """Nothing is handed out until it is resumed."""
        self.lifecycle = Lifecycle.OPEN
        self.calls_under_way = 0
        """How many calls know it between two holds of the lock: it stays open for them."""
        self.enqueued_when_idle: int | None = None
        """What `enqueued` was at the last look, where it was idle then; None: it was not."""
        self.inactive_seconds: float | None = None
        """After how long without use it is deleted, as its policy says. None: it stays, used or not."""
        self.is_watched = False
        """Its policy has a duplicate window."""

    @property
    def is_open(self) -> bool:
        """Whether it is neither closed nor deleted: there are lanes, and consumers may come."""
        return self.lifecycle is Lifecycle.OPEN

    @property
    def is_reopenable(self) -> bool:
        """Whether a call that still has it goes on with another object of its name, opened again or made anew."""
        return self.lifecycle is Lifecycle.CLOSED or self.lifecycle is Lifecycle.UNUSED

    @property
    def subscription_name(self) -> str | None:
        """Return the name of a durable subscription; None: it is none."""
        return None

    def raise_if_deleted(self) -> None:
        """Raise Closed where it is open no more. Requires: the lock."""
        if not self.is_open:
            raise Closed(f"the {self.noun}")

    def raise_if_not_sendable(self) -> None:
        """Raise what a send to it raises before it has a lane. Closed: it is deleted. Requires: the lock."""
        self.raise_if_deleted()
