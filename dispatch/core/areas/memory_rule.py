"""MemoryRule: what a store decides about RAM that it could decide otherwise.

Its answers are the library's. `forebay plan --policies` plays a trace with
others, which are in dispatch/planning/rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....cache.budget import Holder
from ....cache.head_queue_cache import HeadQueueCache
from ....cache.pending_cache import PendingCache
from ....cache.shares import Shares, high_watermark_bytes, high_watermarks
from ..model import TargetList


class MemoryRule:
    """The library's own rule. None of its methods is on the path of a message. Requires: the lock."""

    def __init__(self) -> None:
        self.lists_give_first = False
        """Lists give memory back before the caches do."""

    def divide(self, shares: Shares) -> Shares:
        """Return how a memory limit is divided, from how it usually is."""
        return shares

    def first_high_watermark(self, limit_bytes: int, lists: int) -> int:
        """Return what a new list should hold directly until the next measurement, itself counted among the lists."""
        return high_watermark_bytes(limit_bytes, lists, None)

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        """Return what each list should hold directly, by what its consumers take in a second."""
        return high_watermarks(limit_bytes, rates)

    def supply(self, target: TargetList) -> float:
        """Return how much a list has: the one with the most gives memory back first."""
        return target.supply_seconds

    def pending_cache(self, holder: Holder, head_queue_cache: HeadQueueCache) -> PendingCache:
        """Return the cache for what overflows the lists of one MessageMemory, whose share is set later."""
        return PendingCache(holder, head_queue_cache, 0)
