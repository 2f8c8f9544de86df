"""IndexReads: the reads of the index from the metadata store. Damage in a row stops a store that is in use."""

from __future__ import annotations

from collections.abc import Callable, Set

from ..errors import StoreFailed
from ..index.block import BlockDamaged
from .metadata_store import MetadataDamaged, MetadataStore


class IndexReads:
    """The reads of one index. While a store opens, they only raise damage: recovery then rebuilds the index."""

    def __init__(self, metadata: MetadataStore) -> None:
        """Make the reads of a store that is being opened."""
        self._metadata = metadata
        self._discard_index: Callable[[MetadataDamaged | BlockDamaged], StoreFailed] | None = None

    def serve(self, discard_index: Callable[[MetadataDamaged | BlockDamaged], StoreFailed]) -> None:
        """From now on, raise the error that `discard_index` returns for damage, because the store is open."""
        self._discard_index = discard_index

    def block(self, lane_number: int, block: int) -> bytes:
        """Return the row of a block."""
        try:
            return self._metadata.read_block(lane_number, block)
        except MetadataDamaged as damage:
            self.doubt(damage)
            raise

    def fingerprints(self, lane_number: int, first: int, last: int, names: Set[str]) -> list[tuple[int, str, bytes]]:
        """Return the fingerprints of blocks, as `MetadataStore.fingerprints` does."""
        try:
            return self._metadata.fingerprints(lane_number, first, last, names)
        except MetadataDamaged as damage:
            self.doubt(damage)
            raise

    def timed(
        self, kind: int, lane_number: int, behind: tuple[int, int], until_ms: int, most: int
    ) -> list[tuple[int, int]]:
        """Return the blocks that are due, as `MetadataStore.timed` does."""
        try:
            return self._metadata.timed(kind, lane_number, behind, until_ms, most)
        except MetadataDamaged as damage:
            self.doubt(damage)
            raise

    def doubt(self, damage: MetadataDamaged | BlockDamaged) -> None:
        """Raise StoreFailed for damage in an index that is in use."""
        if self._discard_index is not None:
            raise self._discard_index(damage) from damage
