"""MemoryOwners: the objects that account for the memory of a store, in one bundle."""

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
    """The objects that account for memory. The areas, Watermarks and Reclaim of a store share them."""

    budget: Budget
    memories: MemoryRegistry
    """The memory of each destination's messages, with its caches."""
    overflow: Overflow
    """Takes non-persistent messages for which RAM has no room."""
    memory_rule: MemoryRule
    """Decides how much each list and cache has, and which of them gives back first."""
    destination_memory: Overdraft
    """Pays for open destinations and their lanes."""
    consumer_memory: Overdraft
    """Pays for consumers and their lists."""
    message_group_memory: MessageGroupMemory
    """Pays for message groups that the distributions remember."""
