"""PlayedConsumer: stands in for the consumers of a replay. The trace says what they take and settle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...store.numbering import UNLIMITED
from ..core.model.activity import Activity
from ..core.model.consumer_stage import TAKING
from ..core.model.delivery import Delivery
from ..core.model.destination import CoreConsumer, CoreDestination, SelectorGroup
from ..core.model.distribution_roles import NO_DISPATCH

_NOT_ASKED: Final = "the trace says what becomes of deliveries"


class PlayedConsumer(CoreConsumer):
    """The CoreConsumer of a replay. The trace tells what it takes and settles, so it never waits."""

    def __init__(self, destination: CoreDestination, selector_group: SelectorGroup) -> None:
        self.destination = destination
        self.selector_group = selector_group
        self.stage = TAKING
        self.dispatcher = NO_DISPATCH
        self.activity = Activity(None, None, 0.0)
        self.delivered = self.in_flight = 0
        self.priority = self.prefetch_limit = 0
        self.is_exclusive = False
        self.is_polling = True
        self.ack_deadline_seconds = None

    @property
    def credit(self) -> int:
        """Unlimited, because the trace says how much it takes."""
        return UNLIMITED

    @property
    def demand(self) -> int:
        """As much as it may have."""
        return UNLIMITED

    def allowance(self, most: int) -> int:
        """Return `most`, because the trace says how much it takes."""
        return most

    @property
    def charge_bytes(self) -> int:
        """Nothing, because the plan leaves the cost of consumers out."""
        return 0

    @property
    def is_waiting(self) -> bool:
        """Whether it waits, which a replay never does."""
        return False

    def move_to(self, selector_group: SelectorGroup) -> None:
        """Take from another selector group from now on."""
        self.selector_group = selector_group

    def held_in_transactions(self) -> list[Delivery]:
        """Return nothing, because a trace has no transactions."""
        return []

    def become_ready(self, deferred: list[Callable[[], None]]) -> None:
        """Do nothing: the trace tells when it takes."""

    def resume_if_credit(self) -> None:
        """Do nothing: it never waits for credit."""

    def follow_destination(self) -> None:
        """Do nothing: there is only one way to take."""

    def wake_outside(self) -> None:
        """Do nothing: it never waits."""

    def close_with_destination(self, held: Sequence[Delivery]) -> None:
        """Do nothing: the trace tells the outcome of deliveries."""

    def disable_in_child(self) -> None:
        """Do nothing: a replay has no directory to which a forked child could write."""

    def ack(self, deliveries: Delivery | Sequence[Delivery], *, transaction: Any = None) -> None:
        raise AssertionError(_NOT_ASKED)

    def nack(self, deliveries: Delivery | Sequence[Delivery], delay: float = 0.0) -> None:
        raise AssertionError(_NOT_ASKED)

    def release(self, deliveries: Delivery | Sequence[Delivery]) -> None:
        raise AssertionError(_NOT_ASKED)

    def return_untried(self, deliveries: Sequence[Delivery]) -> None:
        raise AssertionError(_NOT_ASKED)

    def reject(self, deliveries: Delivery | Sequence[Delivery], reason: str = "", *, transaction: Any = None) -> None:
        raise AssertionError(_NOT_ASKED)

    def extend(self, deliveries: Delivery | Sequence[Delivery], seconds: float) -> None:
        raise AssertionError(_NOT_ASKED)
