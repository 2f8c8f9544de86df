"""The contents of lanes for comparisons: extents record by record, and sequences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.store.format.places import Extent, SingleRecords
from forebay.store.format.record import ENTRY_BYTES, SLICE_BYTES
from forebay.store.index.topic_lane import SubscriptionLane, TopicLane
from forebay.store.structures.bits import runs_of_ones


def by_record(extents: Iterable[Extent | SingleRecords]) -> Iterator[Extent]:
    for extent in extents:
        if isinstance(extent, Extent):
            yield extent
            continue
        for sequence, (offset, length) in enumerate(
            zip(extent.offsets, extent.lengths, strict=True), extent.first_sequence
        ):
            yield Extent(extent.data_log, offset, SLICE_BYTES + ENTRY_BYTES + length, 1, 0, sequence, 1)


def sequences(lane: TopicLane | SubscriptionLane) -> list[int]:
    """Return all pending sequences of a lane."""
    found: list[int] = []
    if isinstance(lane, SubscriptionLane):
        lane.catch_up()
        for first, last in lane.pending.blocks:
            for number in range(first, last + 1):
                for low, high in runs_of_ones(lane.pending.mask(number), 0):
                    found += range(number * 512 + low, number * 512 + high + 1)
        return found
    run = lane.pending_run(0, 1_000_000)
    while run is not None:
        found += range(run[0], run[1] + 1)
        run = lane.pending_run(run[1] + 1, 1_000_000)
    return found
