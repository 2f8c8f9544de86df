"""Messages with times on their way in: stored, and offered to those who may have them already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...store.format.times import Times, times_of
from ..core.queue_area import PersistentLaneState

if TYPE_CHECKING:
    from ..engine.engine import Engine


def store_timed(
    engine: Engine,
    area: PersistentLaneState,
    batch: Sequence[tuple[bytes, bytes]],
    own_ids: Sequence[str | None],
    ids: list[str],
) -> None:
    """Write what a slice may hold, or two where it meets the end of a block. StoreFull: ids says how many of the first
    are in. REQUIRES: no lock."""
    begin = 0
    with engine.lock:
        timestamp = engine.store.steady.now_ms()
        while begin < len(batch):
            part = list(batch[begin : begin + area.index_lane.slice_room])
            times = [times_of(properties) for properties, _ in part]
            first = engine.store.append_slice(area.index_lane, timestamp, part, times)
            arrive_timed(engine, area, timestamp, first, part, times)
            behind = begin + len(part)
            ids += [own or f"{area.id_prefix}{sequence}" for sequence, own in enumerate(own_ids[begin:behind], first)]
            begin = behind


def arrive_timed(
    engine: Engine,
    area: PersistentLaneState,
    timestamp: int,
    first: int,
    part: Sequence[tuple[bytes, bytes]],
    times: Sequence[Times],
) -> None:
    """They are stored, the first with that sequence. REQUIRES: the lock."""
    engine.timing.note(area)
    if any(due_at for _, due_at in times):
        engine.arrive(area, range(first, first + len(part)))
    else:
        engine.arrive(area, [(first + at, *content, timestamp) for at, content in enumerate(part)])
