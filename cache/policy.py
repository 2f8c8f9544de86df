"""The one place where it is decided how memory is shared. Pure functions, no state, replayable."""

from __future__ import annotations

from typing import Final

HEAD_QUEUE_CACHE_SHARE: Final = 0.25
"""Most of the limit that the HeadQueueCache may hold: it serves arrivals of consumers, which are rare."""
PENDING_CACHE_SHARE: Final = 0.25
DISPATCH_AREA_SHARE: Final = 0.5
"""Most of what the fixed parts leave that bodies handed out may hold; beyond it deliveries are lazy, so nothing is
undeliverable."""
IN_FLIGHT_SHARE: Final = 0.75
"""The same with the lazy ones: beyond it who holds a delivery gets no other, so that who holds none always gets one."""
TARGET_LISTS_SHARE: Final = 0.375
LARGE_MESSAGE_SHARE: Final = 0.125
"""A message above this share is never loaded ahead: its delivery reads the body when it is looked at."""

SUPPLY_SECONDS: Final = 4.0
HIGH_WATERMARK_BYTES_MIN: Final = 256 * 1024


def high_watermark_bytes(limit_bytes: int, lists: int, bytes_per_second: float | None) -> int:
    """How much a TargetList should hold directly: four seconds of its supply, within its fair share of the limit.

    bytes_per_second: how fast its consumers take; None while nothing was measured yet.
    """
    share = int(limit_bytes * TARGET_LISTS_SHARE) // max(lists, 1)
    wanted = share if bytes_per_second is None else int(bytes_per_second * SUPPLY_SECONDS)
    return min(share, max(wanted, HIGH_WATERMARK_BYTES_MIN))
