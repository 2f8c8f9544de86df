"""IndexFit: give the index and the metadata store the sizes that a changed memory limit has for them."""

from __future__ import annotations

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget
from ...cache.accounting.shares import Shares
from ...store.checkpoint.checkpointer import Checkpointer
from ...store.index.index import Index
from ...store.metadata.metadata_store import MetadataStore
from ..core.memory.reclaim import Reclaim
from ..core.monitor import Monitor


class IndexFit:
    """Changes the sizes step by step. Before the index shrinks it must be written, and to grow it needs free memory."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        checkpointer: Checkpointer,
        index: Index,
        metadata_store: MetadataStore,
        budget: Budget,
        reclaim: Reclaim,
        shares: Shares,
    ) -> None:
        self._monitor = monitor
        self._checkpointer = checkpointer
        self._index = index
        self._metadata_store = metadata_store
        self._budget = budget
        self._reclaim = reclaim
        # The sizes to be reached. Resizing changes them under the state lock.
        self.shares = shares

    def step(self) -> None:
        """Give index and metadata store their new sizes, if possible. Requires: no lock."""
        self._checkpointer.between_checkpoints(self._fit)

    def _fit(self) -> None:
        """Take one step. Requires: the checkpoint lock alone."""
        with self._monitor.lock, self._monitor.all_or_broken:
            if self._monitor.is_closed:
                return
            shares, budget = self.shares, self._budget
            budget.approach_target()
            self._reclaim.make_room(0, None)
            index = budget.holders[holder_names.INDEX]
            if shares.index_guaranteed_bytes <= index.guaranteed_bytes:
                # The guarantee shrinks last: until all blocks fit, acks may need as much as before.
                if self._index.resize(shares.index_cache_bytes):
                    index.guarantee(shares.index_guaranteed_bytes)
            elif self._take(shares.index_guaranteed_bytes - index.guaranteed_bytes):
                index.guarantee(shares.index_guaranteed_bytes)
                self._index.resize(shares.index_cache_bytes)
            metadata = budget.holders[holder_names.METADATA_STORE]
            more_bytes = shares.metadata_bytes - metadata.held_bytes
            if not more_bytes or (more_bytes > 0 and not (self._take(more_bytes) and metadata.reserve(more_bytes))):
                return
        taken_bytes = self._metadata_store.resize_cache(shares.metadata_bytes)
        with self._monitor.lock, self._monitor.all_or_broken:
            metadata.release(metadata.held_bytes - taken_bytes)
            budget.approach_target()

    def excess_bytes(self) -> dict[str, int]:
        """Return by how much index and metadata store are still too large; negative: too small. Requires: the lock."""
        shares, holders = self.shares, self._budget.holders
        return {
            holder_names.INDEX: holders[holder_names.INDEX].guaranteed_bytes - shares.index_guaranteed_bytes,
            holder_names.METADATA_STORE: holders[holder_names.METADATA_STORE].held_bytes - shares.metadata_bytes,
        }

    def _take(self, wanted_bytes: int) -> bool:
        """Let lists and caches give memory back; return whether that many bytes are free now. Requires: the lock."""
        self._reclaim.make_room(wanted_bytes, None)
        return self._budget.free_bytes >= wanted_bytes
