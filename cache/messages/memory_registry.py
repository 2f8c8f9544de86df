"""MemoryRegistry: find the memory to which the messages of a destination are charged.

Most destinations share the common memory. Each pattern of policies with a share or a reserve has a memory of its own,
with its own caches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..accounting import holder_names
from ..accounting.budget import Budget, Holder
from .head_queue_cache import HeadQueueCache
from .message_cache import CacheStatistics, added
from .message_memory import MessageMemory, QuotaMemory
from .pending_cache import PendingCache


class MemoryRegistry:
    """Finds the MessageMemory of a destination by its name, and has them all. The state lock guards it."""

    def __init__(
        self,
        budget: Budget,
        patterns: Collection[str],
        make_pending_cache: Callable[[Holder, HeadQueueCache], PendingCache],
        pattern_of: Callable[[str], str | None],
    ) -> None:
        """Make the common memory and one memory for each pattern.

        patterns: those with a share or a reserve.
        pattern_of: returns the pattern of the policy that a destination of a name has.
        """
        lists_holder = budget.holder(holder_names.TARGET_LISTS)
        dispatch_holder = budget.holder(holder_names.DISPATCH_AREA)
        head_queue_cache = HeadQueueCache(budget.holder(holder_names.HEAD_QUEUE_CACHE), 0)
        pending_cache = make_pending_cache(budget.holder(holder_names.PENDING_CACHE), head_queue_cache)
        # The memory of all destinations whose policy has neither a share nor a reserve.
        self.common = MessageMemory(lists_holder, dispatch_holder, head_queue_cache, pending_cache)
        # The memory of each pattern whose policy has a share or a reserve.
        self.of_patterns = {pattern: QuotaMemory(budget, pattern, make_pending_cache) for pattern in patterns}
        # All memories. Each destination is charged to one of them.
        self.all: tuple[MessageMemory, ...] = (self.common, *self.of_patterns.values())
        self._pattern_of = pattern_of

    def of(self, name: str) -> MessageMemory:
        """Return the memory to which the messages of a destination are charged. O(patterns)."""
        pattern = self._pattern_of(name) if self.of_patterns else None
        return self.of_patterns.get(pattern, self.common) if pattern is not None else self.common

    def cache_statistics(self) -> dict[str, CacheStatistics]:
        """Return the figures of both caches, summed over all destinations. O(lanes)."""
        return {
            "pending_cache": added([memory.pending_cache.statistics() for memory in self.all]),
            "head_queue_cache": added([memory.head_queue_cache.statistics() for memory in self.all]),
        }
