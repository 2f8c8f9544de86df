"""ConsumerStage: where a consumer is between its subscribe and its close.

    taking <──> held up    its queue is paused, or another consumer is exclusive
       └──────────┴──> draining ──> drained    it takes nothing more; closed after that
       └──────────┴──> closed

Each stage is one object, so a check is an attribute of an object that the consumer has anyway. The state lock guards
the stage of a consumer.
"""

from __future__ import annotations

from typing import Final

from ....store.errors import Closed


class ConsumerStage:
    """One of the five stages below. There are no others."""

    __slots__ = ("name", "is_passed_over", "is_draining", "is_over", "is_closed")

    def __init__(
        self,
        name: str,
        *,
        is_passed_over: bool = False,
        is_draining: bool = False,
        is_over: bool = False,
        is_closed: bool = False,
    ) -> None:
        self.name = name
        # Whether its queue hands nothing to it, for now or ever again, although it is not closed.
        self.is_passed_over = is_passed_over
        # Whether `drain` was called.
        self.is_draining = is_draining
        # Whether every take raises Closed.
        self.is_over = is_over
        # Whether it has given back its deliveries.
        self.is_closed = is_closed

    def refusal(self) -> Closed:
        """Return what a take raises. Requires: `is_over`."""
        return Closed("the consumer", "closed" if self.is_closed else "draining and takes nothing more")

    def __repr__(self) -> str:
        return self.name


TAKING: Final = ConsumerStage("taking")
HELD_UP: Final = ConsumerStage("held up", is_passed_over=True)
DRAINING: Final = ConsumerStage("draining", is_passed_over=True, is_draining=True, is_over=True)
DRAINED: Final = ConsumerStage("drained", is_draining=True, is_over=True, is_closed=True)
"""Closed after it had drained."""
CLOSED: Final = ConsumerStage("closed", is_over=True, is_closed=True)
