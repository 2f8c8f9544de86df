"""MemoryOwners: the owners of memory that all areas of a store share, in one bundle."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting.budget import Budget
from ....cache.accounting.overdraft import Overdraft
from ....cache.messages.memory_registry import MemoryRegistry
from ....cache.spill.overflow import Overflow
from .memory_rule import MemoryRule
from .message_group_memory import MessageGroupMemory


@dataclass(frozen=True, slots=True)
class MemoryOwners:
    """The owners of memory, as the areas, the Watermarks and the Reclaim of a store all reach them."""

    budget: Budget
    memories: MemoryRegistry
    """What the messages of each destination are charged to, and their caches."""
    overflow: Overflow
    """Where non-persistent messages go for which RAM has no room."""
    memory_rule: MemoryRule
    """Says who has how much, and who gives back first."""
    destination_memory: Overdraft
    """Pays for open destinations and their lanes."""
    consumer_memory: Overdraft
    """Pays for consumers and their lists."""
    message_group_memory: MessageGroupMemory
    """Pays for message groups that the distributions remember."""
