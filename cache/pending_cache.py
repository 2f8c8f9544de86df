"""PendingCache: keeps messages that overflowed a TargetList in RAM until the loader wants them.

Messages that are dropped here are read from the journal again. The PendingCache has priority over the HeadQueueCache:
to take a message in, it makes the HeadQueueCache give back first.
"""

from __future__ import annotations

from ..store.stored_message import StoredMessage
from .budget import Holder
from .charge import charge_bytes
from .head_queue_cache import HeadQueueCache
from .message_cache import MessageCache


class PendingCache(MessageCache):
    """A cache that grows as lists overflow, at the expense of the HeadQueueCache, up to a share of the limit."""

    def __init__(self, holder: Holder, head_queue_cache: HeadQueueCache, share_bytes: int) -> None:
        super().__init__(holder, share_bytes)
        self._head_queue_cache = head_queue_cache
        # Lane -> the sequence behind the last arrival that was kept, if nothing was given back since.
        self._ends: dict[int, int] = {}

    def put_overflow(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        """Keep an arrival that a list could not take, if few or no messages before it must be read first.

        is_near: whether the list is loaded up to this message, or will be soon. Otherwise the message before it must be
        here, or must have been here until another list took it. Behind a wide gap the loader comes so late that a
        message kept now only takes room from nearer ones.
        """
        sequence = message[0]
        is_kept = is_near or self._ends.get(lane_number) == sequence or self.peek(lane_number, sequence - 1) is not None
        if is_kept and self.put(lane_number, message):
            self._ends[lane_number] = sequence + 1
            return True
        return False

    def give_back(self, wanted_bytes: int) -> int:
        """Release at least `wanted_bytes`, the newest messages first: after that the next arrival would leave a gap."""
        self._ends.clear()
        return super().give_back(wanted_bytes)

    def forget(self, lane_number: int) -> None:
        self._ends.pop(lane_number, None)
        super().forget(lane_number)

    def put(self, lane_number: int, message: StoredMessage) -> bool:
        """Keep the message, taking room from the HeadQueueCache. Return False if the share or the budget is used up."""
        charge = charge_bytes(message)
        if self.holder.held_bytes + charge > self._share_bytes:
            return False
        if self._keep(lane_number, message, charge):
            return True
        self._head_queue_cache.give_back(charge)
        return self._keep(lane_number, message, charge)
