"""The one place where it is decided how memory is shared. Pure functions, no state, replayable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HEAD_QUEUE_CACHE_SHARE: Final = 0.25
"""Most of the limit that the HeadQueueCache may hold: it serves arrivals of consumers, which are rare."""
PENDING_CACHE_SHARE: Final = 0.65
"""Most that the PendingCache may hold of what the fixed parts leave. With a quarter of the limit, queues whose
consumers come by in turn kept half as much as a plain LRU; with all of it, lists that run empty find no room."""
DISPATCH_AREA_SHARE: Final = 0.5
"""Most of what the fixed parts leave that bodies handed out may hold; beyond it deliveries are lazy, so nothing is
undeliverable."""
IN_FLIGHT_SHARE: Final = 0.75
"""The same with the lazy ones: beyond it who holds a delivery gets no other, so that who holds none always gets one."""
TARGET_LISTS_SHARE: Final = 0.375
LARGE_MESSAGE_SHARE: Final = 0.125
"""A message above this share is never loaded ahead: its delivery reads the body when it is looked at."""

SPILL_BUFFER_SHARE: Final = 1 / 16
"""Beyond it a batch is written to tmp-storage before it is full."""
DUPLICATES_SHARE: Final = 1 / 16
"""Most that the ids take of messages that must not be stored again."""
SPILL_ROOM_SHARE: Final = 1 / 64
"""So much is asked for at a time, for non-persistent messages that find no room."""
LOAD_SHARE: Final = 1 / 16
"""Most of the limit that one load may bring."""
LOAD_BYTES_MAX: Final = 1 << 20
"""So much that the fixed costs of a load, locks and hand-overs between threads, hardly count."""

SUPPLY_SECONDS: Final = 4.0
UNMEASURED_BYTES_PER_SECOND: Final = 65536.0
"""So fast are consumers taken to be that have not taken anything yet."""
BYTES_PER_SECOND_MIN: Final = 1024.0
"""And so fast those at least that stand still: what their lists hold is not infinitely many seconds of supply."""
HIGH_WATERMARK_BYTES_MIN: Final = 256 * 1024


def high_watermark_bytes(limit_bytes: int, lists: int, bytes_per_second: float | None) -> int:
    """How much a TargetList should hold directly: four seconds of its supply, within its fair share of the limit.

    bytes_per_second: how fast its consumers take; None while nothing was measured yet.
    """
    share = int(limit_bytes * TARGET_LISTS_SHARE) // max(lists, 1)
    wanted = share if bytes_per_second is None else int(bytes_per_second * SUPPLY_SECONDS)
    return min(share, max(wanted, HIGH_WATERMARK_BYTES_MIN))


def high_watermarks(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """How much each TargetList should hold directly: as high_watermark_bytes, but who needs less leaves it to others.

    rates: of each list, in bytes a second. Small wishes are granted whole, and what they leave is divided equally
    among the others: of the rules tried, the one with the fewest misses where rates differ and change.
    """
    room = int(limit_bytes * TARGET_LISTS_SHARE)
    share = room // max(len(rates), 1)
    least = min(share, HIGH_WATERMARK_BYTES_MIN)
    granted = [share if rate is None else max(int(rate * SUPPLY_SECONDS), least) for rate in rates]
    for left, number in zip(range(len(rates), 0, -1), sorted(range(len(rates)), key=granted.__getitem__), strict=True):
        granted[number] = min(granted[number], room // left)
        room -= granted[number]
    return granted


@dataclass(frozen=True, slots=True)
class Shares:
    """Whatever follows from a memory limit, in bytes."""

    limit_bytes: int
    index_cache_bytes: int
    """Most that the blocks of the index take."""
    index_guaranteed_bytes: int
    """The same, and half as much for packed blocks while a checkpoint writes them."""
    metadata_bytes: int
    """What the metadata store has in RAM; charged whole."""
    available_bytes: int
    """What the fixed parts leave."""
    head_queue_cache_bytes: int
    pending_cache_bytes: int
    dispatch_bytes_max: int
    in_flight_bytes_max: int
    large_message_bytes: int
    load_bytes_max: int
    spill_buffer_bytes: int
    spill_room_bytes: int
    duplicates_bytes: int

    @classmethod
    def of(cls, limit_bytes: int, *, index_bytes: int, metadata_bytes: int, fixed_bytes: int) -> Shares:
        """index_bytes: three quarters of it are the index's. fixed_bytes: of all parts that no limit changes."""
        index_guaranteed_bytes = index_bytes * 3 // 4
        available_bytes = limit_bytes - index_guaranteed_bytes - metadata_bytes - fixed_bytes
        assert available_bytes > 0, "the smallest memory limit has room for the fixed parts"
        return cls(
            limit_bytes,
            index_cache_bytes=index_bytes // 2,
            index_guaranteed_bytes=index_guaranteed_bytes,
            metadata_bytes=metadata_bytes,
            available_bytes=available_bytes,
            head_queue_cache_bytes=int(limit_bytes * HEAD_QUEUE_CACHE_SHARE),
            pending_cache_bytes=int(available_bytes * PENDING_CACHE_SHARE),
            dispatch_bytes_max=int(available_bytes * DISPATCH_AREA_SHARE),
            in_flight_bytes_max=int(available_bytes * IN_FLIGHT_SHARE),
            large_message_bytes=int(limit_bytes * LARGE_MESSAGE_SHARE),
            load_bytes_max=min(LOAD_BYTES_MAX, int(limit_bytes * LOAD_SHARE)),
            spill_buffer_bytes=int(limit_bytes * SPILL_BUFFER_SHARE),
            spill_room_bytes=int(limit_bytes * SPILL_ROOM_SHARE),
            duplicates_bytes=int(limit_bytes * DUPLICATES_SHARE),
        )
