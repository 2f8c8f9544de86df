"""HeadQueueCache: the first messages of queues without a consumer, for consumers and browsers that will come.

It is a bounded FIFO that keeps the oldest messages. A message that arrives when the cache is full is not kept. When
memory is needed, the message that came last is given back first, and this cache gives before the PendingCache. It fills
while a queue has no consumer, and from the journal after an open. It becomes empty as consumers take the messages.
"""

from __future__ import annotations

from ...store.stored_message import StoredMessage
from ..accounting.budget import Holder
from ..accounting.charge import charge_of
from .message_cache import MessageCache


class HeadQueueCache(MessageCache):
    """Takes the messages of a lane in order and without a gap. The state lock guards it."""

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._stopped_lanes: set[int] = set()

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message if it continues the head. After one that did not fit, keep none: there would be a gap."""
        if lane_number in self._stopped_lanes:
            return False
        charge = charge_of(message)
        if self.holder.held_bytes + charge <= self._share_bytes and self._keep(lane_number, message, charge):
            return True
        self._stopped_lanes.add(lane_number)
        return False

    @property
    def room_bytes(self) -> int:
        """Bytes of the share that are left. The budget may have fewer."""
        return self._share_bytes - self.holder.held_bytes

    @property
    def stopped(self) -> tuple[int, ...]:
        """Lanes with messages behind the head that only the journal has. O(their number)."""
        return tuple(self._stopped_lanes)

    def fill(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep a message that was read from the place where the lane stopped; the lane stays stopped."""
        charge = charge_of(message)
        return charge <= self.room_bytes and self._keep(lane_number, message, charge)

    def is_stopped(self, lane_number: int) -> bool:
        """Return whether `put` takes no more messages of the lane: those behind its head are only in the journal."""
        return lane_number in self._stopped_lanes

    def stop(self, lane_number: int) -> None:
        """Take no more messages of the lane: its next message is not in RAM, so a later one would leave a gap."""
        self._stopped_lanes.add(lane_number)

    def reopen(self, lane_number: int) -> None:
        """Take messages of the lane again, with a new head."""
        self._stopped_lanes.discard(lane_number)

    def discard_lane(self, lane_number: int) -> None:
        super().discard_lane(lane_number)
        self._stopped_lanes.discard(lane_number)

    def _gave_back(self, lane_number: int) -> None:
        """Take no more messages of the lane until its head begins anew, because later ones would leave a gap."""
        self._stopped_lanes.add(lane_number)
