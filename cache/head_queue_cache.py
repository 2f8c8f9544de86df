"""HeadQueueCache: the head of queues nobody reads yet, for consumers and browsers that arrive.

A bounded FIFO that keeps the oldest: what comes when it is full stays in the
journal alone, and what came last is given back first. It fills while a queue
has no consumer, at the opening of a store from the journal, and shrinks to
nothing as deliveries take over. First of all holders to give back.
"""

from __future__ import annotations

from ..store.journal.reading import StoredMessage
from .budget import Holder
from .charge import charge_bytes
from .message_cache import MessageCache


class HeadQueueCache(MessageCache):
    def __init__(self, holder: Holder, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._is_full: set[int] = set()

    def put(self, lane: int, message: StoredMessage) -> bool:
        """Keep the message if it continues the head: once one did not fit, later ones would leave a gap."""
        if lane in self._is_full:
            return False
        if self.holder.held_bytes + charge_bytes(message) <= self._share_bytes and super().put(lane, message):
            return True
        self._is_full.add(lane)
        return False

    @property
    def room_bytes(self) -> int:
        """What its share still has; the budget may have less."""
        return self._share_bytes - self.holder.held_bytes

    @property
    def stopped(self) -> tuple[int, ...]:
        """Lanes of which something behind the head is in the journal alone. O(those)."""
        return tuple(self._is_full)

    def fill(self, lane: int, message: StoredMessage) -> bool:
        """As put, for what was read from where the lane was stopped; it stays stopped."""
        return charge_bytes(message) <= self.room_bytes and super().put(lane, message)

    def stop(self, lane: int) -> None:
        """What the lane has next is not in RAM: anything later would leave a gap."""
        self._is_full.add(lane)

    def reopen(self, lane: int) -> None:
        """The lane's head begins anew: it may fill again."""
        self._is_full.discard(lane)

    def give_back(self, wanted_bytes: int) -> int:
        """Newest first; what gave cannot go on where it was cut, so it takes no more until its head begins anew."""
        self._is_full.update(self._lanes)
        return super().give_back(wanted_bytes)
