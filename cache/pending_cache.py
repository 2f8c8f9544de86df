"""PendingCache: messages that overflowed a TargetList, kept in RAM until the loader wants them back.

What is dropped from here stays in the journal and is read again. It is
strongest of the two caches: to take a message in, it lets the HeadQueueCache
give back first.
"""

from __future__ import annotations

from ..store.reading import StoredMessage
from .budget import Holder
from .charge import charge_bytes
from .head_queue_cache import HeadQueueCache
from .message_cache import MessageCache


class PendingCache(MessageCache):
    """Grows as lists overflow, at the HeadQueueCache's cost, up to a share of the limit."""

    def __init__(self, holder: Holder, head_queue_cache: HeadQueueCache, share_bytes: int) -> None:
        """share_bytes: the most it may hold; 0 switches it off."""
        super().__init__(holder)
        self._head_queue_cache = head_queue_cache
        self._share_bytes = share_bytes

    def put(self, lane: int, message: StoredMessage) -> bool:
        """Keep the message, taking room from the HeadQueueCache; False when the share or the budget is used up."""
        charge = charge_bytes(message)
        if self.holder.held_bytes + charge > self._share_bytes:
            return False
        if super().put(lane, message):
            return True
        self._head_queue_cache.give_back(charge)
        return super().put(lane, message)
