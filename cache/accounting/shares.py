"""Shares: how one memory limit is divided among lists, caches and the rest.

The rules are pure functions, so that they can be applied to limits that are not in use, too. A *list* has the messages
that its consumers take next. Reads fill it ahead, and so do messages that arrive. Messages that consumers have taken
and not settled are *in flight*. The *fixed parts* are what the index and the buffers take before anything is divided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

HEAD_QUEUE_CACHE_SHARE: Final = 0.25
"""Largest share of the limit for the first messages of queues without consumers. It is small because queues seldom get
their first consumer.
"""
PENDING_CACHE_SHARE: Final = 1.0
"""Largest share of what the fixed parts leave for arrived messages for which no list had room.

It is all of it, because each such message in RAM spares a read.
"""
DISPATCH_AREA_SHARE: Final = 0.5
"""Largest share of what the fixed parts leave for bodies in flight. Beyond it, messages in flight have no body in RAM.
"""
IN_FLIGHT_SHARE: Final = 0.75
"""Largest share of what the fixed parts leave for all messages in flight, with and without bodies.

The rest is for consumers that have nothing in flight, so that each of them can always get one message.
"""
DESTINATIONS_SHARE: Final = 0.5
"""Largest share of what fixed parts and reserves leave for destinations, and the same for consumers."""
EXISTING_SHARE: Final = 0.875
"""Largest share for destinations and consumers together; the rest is for messages."""
TARGET_LISTS_SHARE: Final = 0.375
"""Part of the limit that the high watermarks of all lists add up to."""
READ_AHEAD_SHARE_MIN: Final = 0.5
"""Part of its high watermark to which reads fill a list if memory is short.

Filling it further would spare no read, and would take room from arrivals, which need no read at all if they find room.
"""
READ_AHEAD_STEPS: Final = 8
"""The part to which reads fill a list is rounded to such steps, so that a few bytes of fixed parts do not change it."""
LOW_WATERMARK_SHARE: Final = 0.5
"""When this part of what was read ahead for a list is left, more is read."""
LARGE_MESSAGE_SHARE: Final = 0.125
"""A message above this share of the limit is never read ahead. Its body is read when somebody asks for it."""

CURVE_SHARE: Final = 1 / 64
"""Largest share of the limit for the figures from which the use of other limits is estimated."""
SPILL_BUFFER_SHARE: Final = 1 / 16
"""Share of the limit for non-persistent messages that wait to be written. Above it, smaller batches are written too."""
DUPLICATES_SHARE: Final = 1 / 16
"""Largest share of the limit for the ids of deduplication."""
SPILL_ROOM_SHARE: Final = 1 / 64
"""Share of the limit that is reclaimed at a time if non-persistent messages find no room."""
LOAD_SHARE: Final = 1 / 16
"""Largest share of the limit for one read ahead."""
RESERVED_SHARE_MAX: Final = 0.5
"""Largest share of what the fixed parts leave for all reserves together. All other destinations need the rest."""
LOAD_BYTES_MAX: Final = 1 << 20
"""Most bytes of one read ahead. More would not lower its fixed costs (locks, hand-overs between threads) further."""

SUPPLY_SECONDS: Final = 4.0
"""Seconds for which a full list supplies its consumers."""
UNMEASURED_BYTES_PER_SECOND: Final = 65536.0
"""The assumed rate of consumers that have not taken anything yet."""
BYTES_PER_SECOND_MIN: Final = 1024.0
"""The lowest assumed rate, even of consumers that take nothing, so that no list holds an infinite supply."""
HIGH_WATERMARK_BYTES_MIN: Final = 256 * 1024
"""The least high watermark of a slow list, unless its fair share is less."""
READ_AHEAD_BYTES_MIN: Final = 32 * 1024
"""Reads fill a list at least so far, unless its high watermark is less, because one read brings several messages."""
NEAR_WATERMARKS: Final = 2
"""If at most so many fair shares of a list are pending, arrivals behind a gap are kept, because the list comes to them
soon."""


def high_watermark_bytes(limit_bytes: int, lists: int, bytes_per_second: float | None) -> int:
    """Return the bytes that a list should hold: four seconds of supply, within its fair share of the limit.

    bytes_per_second: the rate of its consumers; None: not measured yet.
    """
    share = int(limit_bytes * TARGET_LISTS_SHARE) // max(lists, 1)
    wanted = share if bytes_per_second is None else int(bytes_per_second * SUPPLY_SECONDS)
    return min(share, max(wanted, HIGH_WATERMARK_BYTES_MIN))


def high_watermarks(limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
    """Return the bytes that each list should hold. A list that needs less leaves the rest to the others.

    rates: that of each list, in bytes per second. Small wishes are granted in full, and the rest is divided equally
        among the others (max-min fairness).
    """
    room = int(limit_bytes * TARGET_LISTS_SHARE)
    share = room // max(len(rates), 1)
    least = min(share, HIGH_WATERMARK_BYTES_MIN)
    granted = [share if rate is None else max(int(rate * SUPPLY_SECONDS), least) for rate in rates]
    for left, number in zip(range(len(rates), 0, -1), sorted(range(len(rates)), key=granted.__getitem__), strict=True):
        granted[number] = min(granted[number], room // left)
        room -= granted[number]
    return granted


def read_ahead_share(limit_bytes: int, available_bytes: int) -> float:
    """Return the part of its high watermark to which reads fill a list, so that lists filled by arrivals still fit."""
    lists_bytes = limit_bytes * TARGET_LISTS_SHARE
    share = round((available_bytes - lists_bytes) / lists_bytes * READ_AHEAD_STEPS) / READ_AHEAD_STEPS
    return min(max(share, READ_AHEAD_SHARE_MIN), 1.0)


def read_ahead_bytes(watermark_bytes: int, share: float) -> int:
    """Return how far reads fill a list with this high watermark."""
    # If reads fill the whole watermark, return the same object: each list then keeps one int less.
    return min(watermark_bytes, max(int(watermark_bytes * share), READ_AHEAD_BYTES_MIN))


def near_bytes(fair_bytes: int, watermark_bytes: int) -> int:
    """Return how much may wait for a list with this high watermark while arrivals behind a gap are kept for it.

    fair_bytes: the high watermark of a list whose consumers were not measured yet. That of a slow list is lower, but
        its waiting messages fit into RAM all the same, if the other lists leave so much.
    """
    return NEAR_WATERMARKS * max(fair_bytes, watermark_bytes)


@dataclass(frozen=True, slots=True)
class QuotaBytes:
    """The bytes of a pattern's `memory_share` and `memory_reserve` under one limit."""

    share_bytes: int
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class Shares:
    """The bytes of each part under a memory limit."""

    limit_bytes: int
    index_cache_bytes: int
    """Most bytes for the blocks of the index."""
    index_guaranteed_bytes: int
    """The same, and half as much for packed blocks while a checkpoint writes them."""
    metadata_bytes: int
    """RAM of the metadata store, charged as a whole."""
    available_bytes: int
    """Bytes that the fixed parts leave of the limit."""
    head_queue_cache_bytes: int
    pending_cache_share: float
    """Part of what fixed parts and reserves leave to destinations, for their arrivals without room in a list."""
    read_ahead_share: float
    """Part of its high watermark to which reads fill a list. Arrivals and messages from caches fill it whole."""
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
    """Bytes that are kept for destinations with a reserve. The bounds of lists and caches are parts of the rest."""
    quotas: Mapping[str, QuotaBytes] = field(default_factory=dict)
    """Quotas by pattern of destinations."""

    @property
    def pending_cache_bytes(self) -> int:
        """Most bytes for arrived messages without room in a list, of destinations without a quota."""
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

        index_bytes: three quarters of it are guaranteed to the index. fixed_bytes: total of all parts that are the same
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
            read_ahead_share=read_ahead_share(limit_bytes, available_bytes),
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
