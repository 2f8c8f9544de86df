"""How much a store holds, as plain numbers."""

from __future__ import annotations

from typing import NamedTuple

from .index.index import Index
from .journal.journal import Journal


class StoreStatistics(NamedTuple):
    journal_bytes: int
    live_bytes: int
    data_logs: int
    index_bytes: int
    pending_messages: int


def store_statistics(index: Index, journal: Journal) -> StoreStatistics:
    """O(lanes + data logs), no disk. REQUIRES: state lock."""
    lanes = index.lanes.values()
    return StoreStatistics(
        journal_bytes=journal.journal_bytes,
        live_bytes=sum(lane.pending_bytes for lane in lanes),
        data_logs=len(journal.sizes),
        index_bytes=index.held_bytes,
        pending_messages=sum(lane.pending_messages for lane in lanes),
    )
