"""LiveSearch: which messages of a data log are live.

The heads of its slices name sequences, and the index says which of those are pending there. A slice of a transaction
does not say its sequences, nor whether it was committed. If there are such slices, the index itself is searched
afterwards, some blocks at a time, and once more if a transaction got its outcome meanwhile.
"""

from __future__ import annotations

from typing import Final

from ..index.index import Index
from ..numbering import BLOCK_MESSAGES, OFFSET_MASK
from ..state.branches import Branches
from .relocation_scan import LiveMessages, ScannedPiece
from .relocation_work import BEGIN, IndexPlace, RelocationCounts, RelocationSource

SCAN_BLOCKS: Final = 64
"""Blocks of the index that are scanned under one hold of the lock."""
_BLOCK_WEIGHT_BYTES: Final = 4096
"""Scanning one block of the index counts as much as so many bytes of a data log."""


class LiveSearch:
    """Finds the live messages of a data log. Every method requires the lock."""

    def __init__(self, index: Index, branches: Branches, counts: RelocationCounts) -> None:
        self._index = index
        self._branches = branches
        self._counts = counts

    def begin(self, source: RelocationSource) -> None:
        """Begin to search the index, which knows all messages that transactions sent."""
        source.lanes, source.place = [], BEGIN
        source.undecided = self._branches.undecided_in(source.data_log)
        if source.has_transactional:
            source.lanes = sorted(self._index.lanes)
            source.survivors.clear()

    def has_outcomes(self, source: RelocationSource) -> bool:
        """Return whether a transaction may have added messages behind the search of the index."""
        return self._branches.undecided_in(source.data_log) != source.undecided

    def in_piece(self, source: RelocationSource, piece: ScannedPiece) -> list[LiveMessages]:
        """Return the live messages of a piece, without slices of transactions."""
        source.has_transactional |= piece.has_transactional
        live: list[LiveMessages] = []
        for (number, _), (first, last) in piece.sequences.items():
            lane = self._index.find_lane(number)
            if lane is not None:
                extents = lane.pending_places_in(source.data_log, source.offset, piece.behind, first, last)
                live += [LiveMessages(lane, extent) for extent in extents]
        return live

    def in_index(self, source: RelocationSource) -> list[LiveMessages]:
        """Return the messages of some blocks of the index that lie in the data log.

        Requires: there are lanes to search.
        """
        assert source.lanes is not None
        live: list[LiveMessages] = []
        at, sequence = source.place
        for _ in range(SCAN_BLOCKS):
            if at == len(source.lanes):
                break
            lane = self._index.find_lane(source.lanes[at])
            run = lane.pending_run(sequence, BLOCK_MESSAGES) if lane is not None else None
            if lane is None or run is None:
                at, sequence = at + 1, 0
                continue
            extents = lane.pending_places_in(source.data_log, 0, OFFSET_MASK, *run)
            live += [LiveMessages(lane, extent) for extent in extents]
            sequence = run[1] + 1
            self._counts.scanned_bytes += _BLOCK_WEIGHT_BYTES
        source.behind = IndexPlace(at, sequence)
        return live
