"""LaneStateParts: what every lane of an open store uses of the store on disk."""

from __future__ import annotations

from dataclasses import dataclass

from ....store.index.delivery_counts import DeliveryCountTable
from .contracts import PersistentStore, ReturnCounts
from .lane_reader import LaneReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStateParts:
    """The parts of the store on disk that every lane of an open store uses."""

    message_store: PersistentStore
    """Where the messages are that survive a restart."""
    delivery_count_table: DeliveryCountTable
    return_counts: ReturnCounts
    """Where it is written how often messages came back."""
    reader: LaneReader
    """Reads single messages for callers that look at a delivery without a body."""
    syncs_always: bool
    """Whether acks are durable before they are confirmed."""
