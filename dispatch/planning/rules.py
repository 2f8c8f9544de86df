"""Memory rules that differ from the library's own in one point each, for `forebay plan --policies`.

Each is a rule that a store could have. It knows no more than the store does, and no take waits because of it where the
library's own rule would not make it wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from ...cache.accounting.budget import Holder
from ...cache.accounting.charge import charge_of
from ...cache.accounting.shares import (
    HIGH_WATERMARK_BYTES_MIN,
    SUPPLY_SECONDS,
    TARGET_LISTS_SHARE,
    Shares,
    high_watermark_bytes,
)
from ...cache.messages.head_queue_cache import HeadQueueCache
from ...cache.messages.pending_cache import PendingCache
from ...store.stored_message import StoredMessage
from ..core.memory.memory_rule import MemoryRule
from ..core.model.destination import TargetList

# ---------------------------------------------------------------------- watermarks


class EqualParts(MemoryRule):
    """Gives each list four seconds of supply, at most an equal part, whatever the others need."""

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        return [high_watermark_bytes(limit_bytes, len(rates), rate) for rate in rates]


class SameSeconds(MemoryRule):
    """Gives all measured lists the same number of seconds where not all can have four seconds of supply."""

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        share = int(limit_bytes * TARGET_LISTS_SHARE) // max(len(rates), 1)
        least = min(share, HIGH_WATERMARK_BYTES_MIN)
        measured = sorted(rate for rate in rates if rate is not None)
        room, total, seconds = float(share * len(measured)), sum(measured), SUPPLY_SECONDS
        for rate in measured:
            if not total or (seconds := min(room / total, SUPPLY_SECONDS)) * rate >= least:
                break
            room -= least
            total -= rate
        return [share if rate is None else max(int(rate * seconds), least) for rate in rates]


class FastestFirst(MemoryRule):
    """Gives the fastest list four seconds, then the next, as far as memory goes, and each at least an eighth of an
    equal part.
    """

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        room = int(limit_bytes * TARGET_LISTS_SHARE)
        least = room // max(len(rates), 1) // 8
        granted = [least] * len(rates)
        room -= least * len(rates)
        for number in sorted(range(len(rates)), key=lambda number: -(rates[number] or 0.0)):
            more = min(room, max(int((rates[number] or 0.0) * SUPPLY_SECONDS) - least, 0))
            granted[number] += more
            room -= more
        return granted


class HalfTheWatermarks(MemoryRule):
    """Gives each list half as much, so that overflow gets the rest."""

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        return [granted // 2 for granted in super().high_watermarks(limit_bytes, rates)]


class TwiceTheWatermarks(MemoryRule):
    """Gives each list twice as much, so that less is left for overflow."""

    def high_watermarks(self, limit_bytes: int, rates: Sequence[float | None]) -> list[int]:
        return [2 * granted for granted in super().high_watermarks(limit_bytes, rates)]


# ---------------------------------------------------------------------- giving back


class ListsFirst(MemoryRule):
    """Lists give memory back before the caches do."""

    def __init__(self) -> None:
        super().__init__()
        self.lists_give_first = True


class LongestFirst(MemoryRule):
    """The list with the most bytes gives memory back first, not the one that lasts longest."""

    def supply(self, target: TargetList) -> float:
        return float(target.direct_bytes)


class _OldestFirstCache(PendingCache):
    """A PendingCache that takes in all overflow, and gives back the oldest messages of the lane with most."""

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        return self.put(lane_number, message) or (
            self.give_back(charge_of(message)) > 0 and self.put(lane_number, message)
        )

    def pop_victim(self, lane_number: int, messages: dict[int, StoredMessage]) -> StoredMessage:
        return messages.pop(next(iter(messages)))


class OldestFirst(MemoryRule):
    """The PendingCache gives back the oldest messages, as a cache does that keeps what is new."""

    def pending_cache(self, holder: Holder, head_queue_cache: HeadQueueCache) -> PendingCache:
        return _OldestFirstCache(holder, head_queue_cache, 0)


class _OpenCache(PendingCache):
    """A PendingCache that takes in everything that there is room for."""

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        return self.put(lane_number, message)


class KeepAll(MemoryRule):
    """Arrivals are kept wherever there is room, also far behind what is loaded."""

    def pending_cache(self, holder: Holder, head_queue_cache: HeadQueueCache) -> PendingCache:
        return _OpenCache(holder, head_queue_cache, 0)


class _ClosedCache(PendingCache):
    """A PendingCache that takes in no overflow."""

    def admit(self, lane_number: int, message: StoredMessage, *, is_near: bool) -> bool:
        return False


class KeepNone(MemoryRule):
    """Everything that overflows a list is read back."""

    def pending_cache(self, holder: Holder, head_queue_cache: HeadQueueCache) -> PendingCache:
        return _ClosedCache(holder, head_queue_cache, 0)


class OverflowShare(MemoryRule):
    """Each PendingCache may hold another part of what the fixed parts leave."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def divide(self, shares: Shares) -> Shares:
        return replace(shares, pending_cache_share=self._share)


# ---------------------------------------------------------------------- prefetch


class ReadAhead(MemoryRule):
    """The loader reads ahead until a list has another part of its high watermark."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = share

    def divide(self, shares: Shares) -> Shares:
        return replace(shares, read_ahead_share=self._share)


RULES: Final[Mapping[str, Callable[[], MemoryRule]]] = {
    "ours": MemoryRule,
    "watermarks: equal parts": EqualParts,
    "watermarks: the same seconds": SameSeconds,
    "watermarks: fastest first": FastestFirst,
    "watermarks: half as high": HalfTheWatermarks,
    "watermarks: twice as high": TwiceTheWatermarks,
    "give back: lists first": ListsFirst,
    "give back: longest list first": LongestFirst,
    "give back: oldest first": OldestFirst,
    "overflow: keep all of it": KeepAll,
    "overflow: keep none of it": KeepNone,
    "overflow: half of the memory": lambda: OverflowShare(0.5),
    "overflow: 65 % of it": lambda: OverflowShare(0.65),
    "prefetch: an eighth": lambda: ReadAhead(0.125),
    "prefetch: half": lambda: ReadAhead(0.5),
    "prefetch: the whole watermark": lambda: ReadAhead(1.0),
}
"""The function that makes each rule, by name. The first is the library's own."""
