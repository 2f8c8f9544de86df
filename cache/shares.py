"""The shares: how one memory limit is divided among lists, caches and other parts.

All rules of this division are pure functions in this module, so that a curve or a plan can apply them to limits that
are not in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

HEAD_QUEUE_CACHE_SHARE: Final = 0.25
"""Maximum share of the limit that the HeadQueueCache may hold. It serves new consumers, which are rare."""
PENDING_CACHE_SHARE: Final = 0.65
"""Maximum share, of what the fixed parts leave, that the PendingCache may hold. With much less, queues whose
consumers take turns keep less than under a plain LRU; with all of it, empty lists find no room.
"""
DISPATCH_AREA_SHARE: Final = 0.5
"""Maximum share, of what the fixed parts leave, that bodies in flight may hold. Beyond it deliveries are lazy, so
that every message can still be delivered.
"""
IN_FLIGHT_SHARE: Final = 0.75
"""Maximum share, of what the fixed parts leave, that deliveries in flight may hold, including lazy ones. Beyond it a
consumer that holds a delivery gets no other, so that a consumer without one always gets one.
"""
DESTINATIONS_SHARE: Final = 0.5
"""Maximum share, of what the fixed parts leave, that destinations and subscriptions may take. The same for
consumers.
"""
EXISTING_SHARE: Final = 0.875
"""Maximum share, of what the fixed parts leave, for destinations and consumers together. The rest is for messages."""
TARGET_LISTS_SHARE: Final = 0.375
"""Share of the limit that the high watermarks of all TargetLists add up to."""
LOW_WATERMARK_SHARE: Final = 0.5
"""Share of a TargetList's read-ahead that is left when the loader is called."""
LARGE_MESSAGE_SHARE: Final = 0.125
"""A message above this share of the limit is never loaded ahead: its delivery reads the body on demand."""

CURVE_SHARE: Final = 1 / 64
"""Maximum share of the limit that the live curve may hold for the lists that it follows."""
SPILL_BUFFER_SHARE: Final = 1 / 16
"""Share of the limit that the SpillBuffer holds before it writes batches that are not full."""
DUPLICATES_SHARE: Final = 1 / 16
"""Maximum share of the limit that the ids of deduplication may hold."""
SPILL_ROOM_SHARE: Final = 1 / 64
"""Share of the limit that is reclaimed at a time for non-persistent messages that find no room."""
LOAD_SHARE: Final = 1 / 16
"""Maximum share of the limit that one load may take."""
RESERVED_SHARE_MAX: Final = 0.5
"""Maximum share, of what the fixed parts leave, that all reserves together may take, because all other destinations
need the rest.
"""
LOAD_BYTES_MAX: Final = 1 << 20
"""Maximum number of bytes of a load. With more, its fixed costs (locks, hand-overs between threads) would not fall
any further.
"""

SUPPLY_SECONDS: Final = 4.0
"""Seconds for which a full TargetList supplies its consumers."""
UNMEASURED_BYTES_PER_SECOND: Final = 65536.0
"""The assumed rate of consumers that have not taken anything yet."""
BYTES_PER_SECOND_MIN: Final = 1024.0
"""The least assumed rate, even for consumers that take nothing, so that no list holds an infinite supply."""
HIGH_WATERMARK_BYTES_MIN: Final = 256 * 1024
"""A slower list gets this much, unless its fair share is less."""


def high_watermark_bytes(limit_bytes: int, lists: int, bytes_per_second: float | None) -> int:
    """Return how much a TargetList should hold directly: four seconds of supply, within its fair share of the limit.

    bytes_per_second: how fast its consumers take; None if not measured yet.
    """
    share = int(limit_bytes * TARGET_LISTS_SHARE) // max(lists, 1)
    wanted = share if bytes_per_second is None else int(bytes_per_second * SUPPLY_SECONDS)
    return min(share, max(wanted, HIGH_WATERMARK_BYTES_MIN))


def high_watermarks(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """Return how much each TargetList should hold directly. A list that needs less leaves the rest to the others.

    rates: of each list, in bytes a second. Small needs are granted in full, and the rest is divided equally among the
    other lists (max-min fairness).
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
class QuotaBytes:
    """A pattern's `memory_share` and `memory_reserve` in bytes, under one limit."""

    share_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Shares:
    """The bytes of each part under a memory limit."""

    limit_bytes: int
    index_cache_bytes: int
    """Maximum for the blocks of the index."""
    index_guaranteed_bytes: int
    """The same, and half as much for packed blocks while a checkpoint writes them."""
    metadata_bytes: int
    """RAM of the metadata store, charged as a whole."""
    available_bytes: int
    """What the fixed parts leave of the limit."""
    head_queue_cache_bytes: int
    pending_cache_share: float
    """Maximum share of a PendingCache, of what fixed parts and reserves leave to its destinations."""
    dispatch_bytes_max: int
    in_flight_bytes_max: int
    large_message_bytes: int
    load_bytes_max: int
    spill_buffer_bytes: int
    spill_room_bytes: int
    duplicates_bytes: int
    destinations_bytes: int
    existing_bytes: int
    """Maximum for destinations and consumers together."""
    curve_bytes: int
    reserved_bytes: int
    """Bytes kept for destinations with a reserve. The bounds of lists and caches are shares of the rest."""
    quotas: Mapping[str, QuotaBytes] = field(default_factory=dict)
    """By pattern of destinations."""

    @property
    def pending_cache_bytes(self) -> int:
        """Maximum for the PendingCache of the destinations without a quota."""
        return int((self.available_bytes - self.reserved_bytes) * self.pending_cache_share)

    @classmethod
    def of(
        cls,
        limit_bytes: int,
        *,
        index_bytes: int,
        metadata_bytes: int,
        fixed_bytes: int,
        quotas: Mapping[str, QuotaBytes] = MappingProxyType({}),
    ) -> Shares:
        """Divide a limit.

        index_bytes: three quarters of it are guaranteed to the index. fixed_bytes: total of the parts that are the same
        under any limit.
        """
        index_guaranteed_bytes = index_bytes * 3 // 4
        available_bytes = limit_bytes - index_guaranteed_bytes - metadata_bytes - fixed_bytes
        assert available_bytes > 0, "the smallest memory limit has room for the fixed parts"
        wanted_bytes = sum(quota.reserve_bytes for quota in quotas.values())
        reserved_bytes = min(wanted_bytes, int(available_bytes * RESERVED_SHARE_MAX))
        return cls(
            limit_bytes,
            index_cache_bytes=index_bytes // 2,
            index_guaranteed_bytes=index_guaranteed_bytes,
            metadata_bytes=metadata_bytes,
            available_bytes=available_bytes,
            head_queue_cache_bytes=int((limit_bytes - reserved_bytes) * HEAD_QUEUE_CACHE_SHARE),
            pending_cache_share=PENDING_CACHE_SHARE,
            dispatch_bytes_max=int(available_bytes * DISPATCH_AREA_SHARE),
            in_flight_bytes_max=int(available_bytes * IN_FLIGHT_SHARE),
            large_message_bytes=int(limit_bytes * LARGE_MESSAGE_SHARE),
            load_bytes_max=min(LOAD_BYTES_MAX, int(limit_bytes * LOAD_SHARE)),
            spill_buffer_bytes=int(limit_bytes * SPILL_BUFFER_SHARE),
            spill_room_bytes=int(limit_bytes * SPILL_ROOM_SHARE),
            duplicates_bytes=int(limit_bytes * DUPLICATES_SHARE),
            destinations_bytes=int((available_bytes - reserved_bytes) * DESTINATIONS_SHARE),
            existing_bytes=int((available_bytes - reserved_bytes) * EXISTING_SHARE),
            curve_bytes=int(limit_bytes * CURVE_SHARE),
            reserved_bytes=reserved_bytes,
            quotas=quotas,
        )
