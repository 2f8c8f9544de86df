"""Extents one record at a time, whatever columns they come in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.store.format.places import Extent, Singles
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES


def by_record(extents: Iterable[Extent | Singles]) -> Iterator[Extent]:
    for extent in extents:
        if isinstance(extent, Extent):
            yield extent
            continue
        for sequence, (offset, length) in enumerate(
            zip(extent.offsets, extent.lengths, strict=True), extent.first_sequence
        ):
            yield Extent(extent.data_log, offset, SLICE_BYTES + ENTRY_BYTES + length, 1, 0, sequence, 1)
