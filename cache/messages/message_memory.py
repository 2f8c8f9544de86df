"""MessageMemory: the memory to which some destinations charge their messages, with its caches.

Destinations without a `memory_share` or `memory_reserve` share one memory, whose holders are bounded only by the limit.
Each pattern with a share or a reserve has its own memory, with a quota.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...store.numbering import UNLIMITED
from ..accounting import holder_names
from ..accounting.budget import Budget, Holder, Quota
from ..accounting.shares import DISPATCH_AREA_SHARE, HEAD_QUEUE_CACHE_SHARE, IN_FLIGHT_SHARE, QuotaBytes
from .head_queue_cache import HeadQueueCache
from .pending_cache import PendingCache


class MessageMemory:
    """The memory to which some destinations charge their messages. The state lock guards it.

    This class itself is the common memory, which only the limit bounds. A QuotaMemory is the memory of one pattern.
    """

    is_common = True
    """Whether no quota bounds it. The path of a message asks only this."""

    def __init__(
        self,
        lists_holder: Holder,
        dispatch_holder: Holder,
        head_queue_cache: HeadQueueCache,
        pending_cache: PendingCache,
    ) -> None:
        self.lists_holder = lists_holder
        self.dispatch_holder = dispatch_holder
        self.head_queue_cache = head_queue_cache
        self.pending_cache = pending_cache
        # Pays for the lanes of non-persistent messages where only a reserve has room.
        self.places_holder: Holder | None = None
        # The high watermark of a list of these destinations whose consumers were not measured yet.
        self.fair_list_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Bytes that a list may still reserve."""
        return self.lists_holder.free_bytes

    @property
    def waiting_bytes_max(self) -> int:
        """Most bytes that lists and PendingCache could hold together now, beside all other holders."""
        pending_cache = self.pending_cache
        could_hold_bytes = self.free_bytes + self.lists_holder.held_bytes + pending_cache.holder.held_bytes
        return max(min(could_hold_bytes, pending_cache.share_bytes), 0)

    @property
    def unused_bytes(self) -> int:
        """Bytes that are kept for these destinations and not used."""
        return 0

    @property
    def spare_bytes(self) -> int:
        """Most bytes that others may take from these destinations."""
        return UNLIMITED

    @property
    def share_free_bytes(self) -> int:
        """Bytes that are left of the share, whatever is left of the limit."""
        return UNLIMITED

    @property
    def share_bytes(self) -> int:
        """Most bytes that these destinations may hold together."""
        return UNLIMITED

    @property
    def in_flight_reserves(self) -> tuple[int, int]:
        """Bytes that are kept for deliveries in flight: for those with bodies, and for all."""
        return 0, 0

    def in_flight_rooms(self, bodies_bytes: int, all_bytes: int) -> tuple[int, int]:
        """Return how many more bytes may be in flight: with bodies, and in total.

        bodies_bytes, all_bytes: the same for destinations in the common memory.
        """
        return bodies_bytes, all_bytes

    def resize_caches(self, head_queue_cache_bytes: int, pending_cache_bytes: int) -> None:
        """Set the bounds of the caches, and give back messages above them."""
        self.head_queue_cache.resize(head_queue_cache_bytes)
        self.pending_cache.resize(pending_cache_bytes)


class QuotaMemory(MessageMemory):
    """The memory of the destinations of one pattern, with a share of the limit, a reserve, or both."""

    is_common = False

    def __init__(
        self, budget: Budget, pattern: str, make_pending_cache: Callable[[Holder, HeadQueueCache], PendingCache]
    ) -> None:
        """Make the memory of a pattern. make_pending_cache: makes its PendingCache by the store's memory rule."""
        quota = budget.quota(pattern)
        lists = budget.quota_holder(holder_names.TARGET_LISTS, quota)
        dispatch = budget.quota_holder(holder_names.DISPATCH_AREA, quota)
        head_queue_cache = HeadQueueCache(budget.quota_holder(holder_names.HEAD_QUEUE_CACHE, quota), 0)
        pending = budget.quota_holder(holder_names.PENDING_CACHE, quota)
        super().__init__(lists, dispatch, head_queue_cache, make_pending_cache(pending, head_queue_cache))
        self.quota: Final[Quota] = quota
        self.places_holder = budget.quota_holder(holder_names.TMP_STORAGE, quota)

    @property
    def unused_bytes(self) -> int:
        return self.quota.unused_bytes

    @property
    def spare_bytes(self) -> int:
        return max(self.quota.held_bytes - self.quota.reserve_bytes, 0)

    @property
    def share_free_bytes(self) -> int:
        return self.quota.share_bytes - self.quota.held_bytes

    @property
    def share_bytes(self) -> int:
        return self.quota.share_bytes

    @property
    def in_flight_reserves(self) -> tuple[int, int]:
        reserve_bytes = self.quota.reserve_bytes
        return int(reserve_bytes * DISPATCH_AREA_SHARE), int(reserve_bytes * IN_FLIGHT_SHARE)

    def in_flight_rooms(self, bodies_bytes: int, all_bytes: int) -> tuple[int, int]:
        held_bytes = self.dispatch_holder.held_bytes
        bodies_reserve_bytes, all_reserve_bytes = self.in_flight_reserves
        return (
            max(bodies_bytes, 0) + max(bodies_reserve_bytes - held_bytes, 0),
            max(all_bytes, 0) + max(all_reserve_bytes - held_bytes, 0),
        )

    def set_quota(self, quota: QuotaBytes) -> None:
        """Set share and reserve. Nothing is given back here."""
        self.quota.resize(quota.share_bytes, quota.reserve_bytes)

    def resize_own_caches(self, available_bytes: int, pending_cache_share: float) -> None:
        """Bound the caches by the share of the limit.

        available_bytes: bytes that the fixed parts and the reserves of others leave. pending_cache_share: see Shares.
        """
        bound_bytes = min(self.quota.share_bytes, available_bytes)
        self.resize_caches(int(bound_bytes * HEAD_QUEUE_CACHE_SHARE), int(bound_bytes * pending_cache_share))
