"""Memories: which memory the messages of a destination are charged to. Nothing here survives the process.

Most destinations have one in common. Each pattern of policies with a share or a
reserve has its own, with caches of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ....cache.budget import Budget, Holder
from ....cache.head_queue_cache import HeadQueueCache
from ....cache.message_cache import CacheStatistics, added
from ....cache.message_memory import MessageMemory, QuotaMemory
from ....cache.pending_cache import PendingCache


class Memories:
    """One for each open store. The state lock guards it."""

    def __init__(
        self,
        budget: Budget,
        patterns: Collection[str],
        make_pending_cache: Callable[[Holder, HeadQueueCache], PendingCache],
        pattern_of: Callable[[str], str | None],
    ) -> None:
        """patterns: those with a share or a reserve. pattern_of: returns whose policy a destination of a name has."""
        lists_holder, dispatch_holder = budget.holder("target_lists"), budget.holder("dispatch_area")
        heads = HeadQueueCache(budget.holder("head_queue_cache"), 0)
        overflowed = make_pending_cache(budget.holder("pending_cache"), heads)
        self.common = MessageMemory(lists_holder, dispatch_holder, heads, overflowed)
        """The memory of all destinations whose policy has neither share nor reserve."""
        self.of_patterns = {pattern: QuotaMemory(budget, pattern, make_pending_cache) for pattern in patterns}
        """By pattern, the memory of destinations whose policy has either."""
        self.all: tuple[MessageMemory, ...] = (self.common, *self.of_patterns.values())
        """Each destination has one of these."""
        self._pattern_of = pattern_of

    def of(self, name: str) -> MessageMemory:
        """Return what the messages of a destination are charged to. O(patterns)."""
        pattern = self._pattern_of(name) if self.of_patterns else None
        return self.of_patterns.get(pattern, self.common) if pattern is not None else self.common

    def cache_statistics(self) -> dict[str, CacheStatistics]:
        """Return the figures of both caches, over all destinations. O(lanes)."""
        return {
            "pending_cache": added([memory.pending_cache.statistics() for memory in self.all]),
            "head_queue_cache": added([memory.head_queue_cache.statistics() for memory in self.all]),
        }
