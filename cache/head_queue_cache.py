"""HeadQueueCache: keeps the head of queues without a consumer, for the next consumers and browsers.

It is a bounded FIFO of the oldest messages. Messages that arrive when it is full are only in the journal, and the
newest ones are given back first. It fills while a queue has no consumer, from the journal when a store opens, and
shrinks as deliveries take over. It gives memory back before the PendingCache does.
"""

from __future__ import annotations

from ..store.stored_message import StoredMessage
from .budget import Holder
from .charge import charge_bytes
from .message_cache import MessageCache


class HeadQueueCache(MessageCache):
    """A cache that takes the messages of a lane in order, without a gap. The state lock guards it."""

    def __init__(self, holder: Holder, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._is_full: set[int] = set()

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message if it continues the head. After a message that did not fit, later ones would leave a gap."""
        if lane_number in self._is_full:
            return False
        charge = charge_bytes(message)
        if self.holder.held_bytes + charge <= self._share_bytes and self._keep(lane_number, message, charge):
            return True
        self._is_full.add(lane_number)
        return False

    @property
    def room_bytes(self) -> int:
        """Bytes of the share that are left. The budget may have fewer."""
        return self._share_bytes - self.holder.held_bytes

    @property
    def stopped(self) -> tuple[int, ...]:
        """Lanes with messages behind the head that only the journal has. O(such lanes)."""
        return tuple(self._is_full)

    def fill(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep a message that was read from the place where the lane was stopped. The lane stays stopped."""
        charge = charge_bytes(message)
        return charge <= self.room_bytes and self._keep(lane_number, message, charge)

    def is_stopped(self, lane_number: int) -> bool:
        """Return whether the lane takes no more messages, because those behind its head are only in the journal."""
        return lane_number in self._is_full

    def stop(self, lane_number: int) -> None:
        """Keep no more messages of the lane: its next message is not in RAM, so later ones would leave a gap."""
        self._is_full.add(lane_number)

    def reopen(self, lane_number: int) -> None:
        """Keep messages of the lane again, with a new head."""
        self._is_full.discard(lane_number)

    def forget(self, lane_number: int) -> None:
        super().forget(lane_number)
        self._is_full.discard(lane_number)

    def _gave_back(self, lane_number: int) -> None:
        """Stop the lane until it gets a new head: later messages would leave a gap."""
        self._is_full.add(lane_number)
