"""DeadLetterQueues: make the dead-letter queue of a destination on first use, with the lane for a dead letter."""

from __future__ import annotations

from ..lanes.non_persistent_lane_state import NonPersistentLaneState
from ..lanes.persistent_lane_state import PersistentLaneState
from .destination_lanes import DestinationLanes
from .message_group_queues import MessageGroupQueues
from .queue_registry import QueueRegistry
from .queue_state import QueueState


class DeadLetterQueues:
    """Opens the lanes to which dead letters go. The state lock guards it; every method requires it held.

    Every method raises StoreFull if memory or disk has no room for the queue. A new queue may not be synced yet.
    """

    def __init__(
        self, queues: QueueRegistry, lanes: DestinationLanes, message_group_queues: MessageGroupQueues
    ) -> None:
        self._queues = queues
        self._lanes = lanes
        self._message_group_queues = message_group_queues

    def lane(self, name: str, priority: int, *, has_message_groups: bool) -> PersistentLaneState:
        """Return the lane for persistent dead letters. has_message_groups: whether they may have a group."""
        return self._lanes.ensure(self._queue(name, has_message_groups), priority)

    def non_persistent_lane_state(
        self, name: str, priority: int, *, has_message_groups: bool
    ) -> NonPersistentLaneState:
        """Return the lane for non-persistent dead letters. has_message_groups: whether they may have a group."""
        return self._lanes.ensure_non_persistent(self._queue(name, has_message_groups), priority)

    def _queue(self, name: str, has_message_groups: bool) -> QueueState:
        queue = self._queues.ensure(name)
        if has_message_groups:
            self._message_group_queues.assign_by_message_group(queue)
        return queue
