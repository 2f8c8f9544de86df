"""MemoryParts: the memory that lists, caches and deliveries share, who pays for it, and who decides about it.

Nothing here survives the process.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting.budget import Budget
from ....cache.accounting.tab import Tab
from ....cache.spill.overflow import Overflow
from ..memory.group_memory import GroupMemory
from ..memory.memory_registry import MemoryRegistry
from .memory_rule import MemoryRule


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What of memory the areas, the Watermarks and the Reclaim of a store all reach."""

    budget: Budget
    memories: MemoryRegistry
    """What the messages of each destination are charged to, and their caches."""
    overflow: Overflow
    """Where non-persistent messages go for which RAM has no room."""
    rule: MemoryRule
    """Says who has how much, and who gives back first."""
    destinations: Tab
    """Pays for open destinations and their lanes."""
    consumers: Tab
    """Pays for consumers and their lists."""
    groups: GroupMemory
    """Pays for message groups that the distributions remember."""
