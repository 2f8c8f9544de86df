"""MessageGroupNames: the group of each message of a queue, even while the body of the message is on disk."""

from __future__ import annotations

from collections.abc import Iterable

from ...store.format.message_properties import group_of
from ...store.format.record import RecordDamaged
from ...store.stored_message import StoredMessage
from ...store.structures.sequence_set import SequenceSet
from ..core.model.delivery import Delivery, DeliveryLane, is_lazy, keep_group, kept_group, message_of
from ..core.model.destination import CoreDestination, LaneState


class MessageGroupNames:
    """The group of each message of a queue, even while its body is on disk. The state lock guards it."""

    __slots__ = ("_queue", "_known")

    def __init__(self, queue: CoreDestination) -> None:
        self._queue = queue
        # By lane and sequence, the groups of messages whose body is not in RAM, and of those that are handed out next.
        self._known: dict[tuple[DeliveryLane, int], str | None] = {}

    @property
    def count(self) -> int:
        """Number of messages whose group is remembered."""
        return len(self._known)

    def of(self, lane: DeliveryLane, message: StoredMessage) -> str | None:
        """Return the group of a message.

        None: it has none, its headers can't be decoded, or the queue ignores groups.
        """
        if not self._queue.keeps_message_groups:
            return None
        if message[2] is None:
            return self._known.get((lane, message[0]))
        try:
            return group_of(message[1])
        except RecordDamaged:
            return None

    def of_delivery(self, delivery: Delivery) -> str | None:
        """Return the group of a message in flight."""
        if is_lazy(delivery):
            return kept_group(delivery)
        return self.of(delivery.lane, message_of(delivery))

    def note(self, lane: LaneState, message: StoredMessage) -> None:
        """Note the group of a message whose body stays on disk. The lock need not be held."""
        self._known[lane, message[0]] = self.of(lane, message)

    def remember(self, lane: LaneState, sequence: int, group: str) -> None:
        """Remember the group of a message that is handed out next, or offered again without its body."""
        self._known[lane, sequence] = group

    def is_forgotten(self, lane: LaneState, message: StoredMessage) -> bool:
        """Return whether the body of a message is on disk and its group is unknown since it came back."""
        return message[2] is None and (lane, message[0]) not in self._known

    def go_with(self, deliveries: Iterable[Delivery]) -> None:
        """Forget the groups of messages that were handed out; a lazy delivery keeps its own."""
        if self._known:
            for delivery in deliveries:
                group = self._known.pop((delivery.lane, delivery.sequence), None)
                if is_lazy(delivery):
                    keep_group(delivery, group)

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed. O(messages that are not in RAM)."""
        for key in [key for key in list(self._known) if key[0] is lane and key[1] in gone]:
            del self._known[key]
