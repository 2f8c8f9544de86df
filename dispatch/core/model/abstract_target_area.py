"""AbstractTargetArea: the TargetArea as lanes and lists call it. They are below it, and it has them.

Lanes and lists are type parameters, because this abstract class only passes them on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from ....store.stored_message import StoredMessage
from ..lists.list_supply import ListSupply
from .delivery import DeliveryLane

LaneT = TypeVar("LaneT", bound=DeliveryLane)
ListT = TypeVar("ListT", bound=ListSupply)


class AbstractTargetArea(ABC, Generic[LaneT, ListT]):
    """The interface of the TargetArea that its lanes and lists call. The state lock guards it."""

    @abstractmethod
    def offer_arrival(self, lane: LaneT, message: StoredMessage) -> bool:
        """Offer an arrived message to every list of its lane. Return whether RAM has it for all lists that want it."""

    @abstractmethod
    def offer_slice(self, lane: LaneT, messages: Sequence[StoredMessage]) -> None:
        """Offer messages that arrived, each in turn as offer_arrival does, and move the published end along."""

    @abstractmethod
    def offer_unloaded(self, lane: LaneT, end: int) -> None:
        """Offer everything before `end` to the lists. New messages among it are not in RAM, or not due yet."""

    @abstractmethod
    def pass_holes(self, lane: LaneT, first: int) -> None:
        """Move the published end to `first`, and with it lists that have got there: no message lies between."""

    @abstractmethod
    def pass_unreadable(self, lane: LaneT, sequence: int) -> None:
        """Remember a message that was skipped because it can't be read."""

    @abstractmethod
    def retry_load(self, target: ListT) -> None:
        """Request a load for a list that was given up for want of memory, if enough is free now."""
