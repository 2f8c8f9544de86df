"""MemoryRule: the rule by which lists and caches share memory, and by which they keep or give back messages.

A MemoryRule makes those decisions that a store could also make in another way; planning/rules.py has other rules to
compare. Watermarks carries out its decisions about lists, and Reclaim those about giving back.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.accounting.budget import Holder
from ....cache.accounting.shares import Shares, high_watermark_bytes, high_watermarks
from ....cache.messages.head_queue_cache import HeadQueueCache
from ....cache.messages.pending_cache import PendingCache
from ..model.destination import TargetList


class MemoryRule:
    """The library's own rule, and the base of other rules. No message passes its methods. Requires: the lock."""

    def __init__(self) -> None:
        # Whether lists give memory back before the caches do.
        self.lists_give_first = False

    def divide(self, shares: Shares) -> Shares:
        """Return how a memory limit is divided. shares: the usual division."""
        return shares

    def first_high_watermark(self, limit_bytes: int, lists: int) -> int:
        """Return the bytes that a new list should hold until the next measurement. lists: their number, with it."""
        return high_watermark_bytes(limit_bytes, lists, None)

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        """Return the bytes that each list should hold, by the bytes that its consumers take per second."""
        return high_watermarks(limit_bytes, rates)

    def supply(self, target: TargetList) -> float:
        """Return how much supply a list has. The list with the most gives memory back first."""
        return target.supply_seconds

    def pending_cache(self, holder: Holder, head_queue_cache: HeadQueueCache) -> PendingCache:
        """Return the PendingCache of one MessageMemory; its share is set later."""
        return PendingCache(holder, head_queue_cache, 0)
