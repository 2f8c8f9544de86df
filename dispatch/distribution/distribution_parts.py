"""DistributionParts: the objects with which every distribution of an open store is made."""

from __future__ import annotations

from dataclasses import dataclass

from ...cache.accounting.overdraft import Overdraft
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_registry import ListRegistry
from ..core.areas.load_requests import LoadRequests
from ..core.areas.target_area import TargetArea
from ..core.memory.message_group_memory import MessageGroupMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributionParts:
    """The parts of an open store that its distributions use."""

    target_area: TargetArea
    list_registry: ListRegistry
    dispatch_area: DispatchArea
    loads: LoadRequests
    consumer_memory: Overdraft
    """Pays for the lists of consumers to which messages are assigned."""
    message_group_memory: MessageGroupMemory
    """Pays for message groups."""
