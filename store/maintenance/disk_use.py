"""DiskUse: tells how much an open store holds, by data log and as a whole. It only reads."""

from __future__ import annotations

from typing import NamedTuple

from ..environment.locks import OwnedLock
from ..index.index import Index
from ..journal.journal import Journal
from ..journal.sync_mark import SyncMark


class StoreStatistics(NamedTuple):
    """How much a store holds, in plain numbers."""

    journal_bytes: int
    live_bytes: int
    data_logs: int
    index_bytes: int
    pending_messages: int
    unmarked_syncs: int
    """Syncs of the journal since the open that the sync mark does not know of, because it could not be written."""


class DiskUse:
    """Answers for one open store."""

    def __init__(self, journal: Journal, index: Index, sync_mark: SyncMark, state_lock: OwnedLock) -> None:
        self._journal = journal
        self._index = index
        self._sync_mark = sync_mark
        self._state_lock = state_lock

    def sizes(self) -> dict[int, int]:
        """Return the bytes of each data log; of the newest, up to its newest record. Requires: no lock."""
        with self._state_lock:
            return self._sizes()

    def _sizes(self) -> dict[int, int]:
        journal = self._journal
        return journal.sizes | {journal.data_log: journal.offset}

    def live_bytes_by_data_log(self) -> list[tuple[int, int, int]]:
        """Return (id, bytes, bytes of pending messages) of each data log, oldest first.

        Requires: the lock. O(data logs), no disk.
        """
        sizes, uses = self._sizes(), self._index.data_log_uses
        return [
            (number, sizes[number], uses[number].pending_bytes if number in uses else 0) for number in sorted(sizes)
        ]

    def statistics(self) -> StoreStatistics:
        """Return how much the store holds. Requires: the lock. O(lanes + data logs), no disk."""
        live_bytes = pending_messages = 0
        for lane in self._index.lanes.values():
            live_bytes += lane.pending_bytes
            pending_messages += lane.pending_messages
        return StoreStatistics(
            journal_bytes=self._journal.journal_bytes,
            live_bytes=live_bytes,
            data_logs=len(self._journal.sizes),
            index_bytes=self._index.held_bytes,
            pending_messages=pending_messages,
            unmarked_syncs=self._sync_mark.failures,
        )
