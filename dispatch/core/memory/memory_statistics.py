"""MemoryStatistics: the bytes of each holder in a store's ledger, and the hit ratio of other memory limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....cache.accounting.budget import Budget, ShareStatistics
from .curve import Curve


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """The ledger in bytes."""

    limit_bytes: int
    """After `resize` to a lower limit this falls with held_bytes, until the resize has settled."""
    held_bytes: int
    held_bytes_max: int
    """Most bytes that were ever held, also under an earlier limit."""
    holders: dict[str, int]
    """Bytes of each holder. They add up to held_bytes."""
    curve: Curve = Curve()
    """The hit ratio that other limits would bring, from the traffic since the directory was opened."""
    shares: Mapping[str, ShareStatistics] = field(default_factory=dict)
    """By pattern, what destinations with a memory_share or memory_reserve hold."""

    @classmethod
    def of(cls, budget: Budget) -> MemoryStatistics:
        """Return the present state of a ledger, without the curve."""
        holders = {name: budget.held_by(name) for name in budget.holders}
        shares = budget.share_statistics()
        return cls(budget.limit_bytes, budget.held_bytes, budget.held_bytes_max, holders, shares=shares)
