"""QueueState: one open queue, with the lanes that have its messages."""

from __future__ import annotations

from typing import ClassVar

from ....store.format.state_record import QUEUE
from ....store.message_store import MessageStore
from ..lanes.persistent_lane_state import PersistentLaneState
from .destination_state import NamedDestinationState


class QueueState(NamedDestinationState):
    """A DestinationState that is a queue. Its messages are in its own lanes, and its consumers take from them."""

    __slots__ = ()

    noun: ClassVar[str] = "queue"
    kind: ClassVar[int] = QUEUE

    def make_lane(self, priority: int, message_store: MessageStore) -> PersistentLaneState:
        """Return a new lane of the queue for one priority."""
        pending_lane = message_store.ensure_lane(self.number, priority)
        return PersistentLaneState(self, pending_lane, message_store.id_prefix(self.number, priority))
