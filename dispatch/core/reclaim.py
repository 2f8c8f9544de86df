"""Giving back: who lets go of memory that somebody else needs more, and in which order.

HeadQueueCache (newest first), then PendingCache (farthest from being consumed
first), then direct messages from the far end of the list with the most
seconds of supply, which lowers its watermark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...cache.charge import charge_bytes
from ...cache.message_cache import WORTH_BYTES
from .target_list import TargetList

if TYPE_CHECKING:
    from ...store.journal.reading import StoredMessage
    from .lists import TargetArea


def make_room(
    targets: TargetArea, wanted_bytes: int, keep: TargetList | None, least: int, least_seconds: float
) -> None:
    """See TargetArea.make_room."""
    budget = targets.budget
    if budget.free_bytes < wanted_bytes:
        targets.overflow.write_all()
    if budget.free_bytes < wanted_bytes:
        targets.head_queue_cache.give_back(wanted_bytes - budget.free_bytes)
    if budget.free_bytes < wanted_bytes:
        targets.pending_cache.give_back(wanted_bytes - budget.free_bytes)
    while budget.free_bytes < wanted_bytes:
        others = [target for target in targets.lists if target is not keep and _can_give(target, least, least_seconds)]
        richest = max(others, key=lambda target: target.supply_seconds, default=None)
        if richest is None:
            targets.overflow.write_arriving()
            return
        stop = max(len(richest.direct) // 2, least)
        missing_bytes = wanted_bytes - budget.free_bytes
        if keep is None and not richest.area.is_persistent:  # else a load would fetch it back, and so on for ever
            missing_bytes = max(missing_bytes, WORTH_BYTES)
        evicted: list[StoredMessage] = []
        while missing_bytes > 0 and _can_give(richest, stop, least_seconds):
            evicted.append(richest.evict_last())
            charge = charge_bytes(evicted[-1])
            targets.targets.release(charge)
            missing_bytes -= charge
        richest.area.give_back(evicted)


def givers(targets: TargetArea) -> list[tuple[str, int]]:
    """(holder, bytes) of those who could give something back now, whose turn is first in front. O(lists)."""
    kept = sum(charge_bytes(target.direct[0]) for target in targets.lists if target.direct)
    could_give = [
        (targets.head_queue_cache.holder.name, targets.head_queue_cache.holder.held_bytes),
        (targets.pending_cache.holder.name, targets.pending_cache.holder.held_bytes),
        (targets.targets.name, sum(target.direct_bytes for target in targets.lists) - kept),
    ]
    return [(name, size_bytes) for name, size_bytes in could_give if size_bytes > 0]


def _can_give(target: TargetList, least: int, least_seconds: float) -> bool:
    """Whether it keeps both when its last direct message goes."""
    direct = target.direct
    return (
        len(direct) > least
        and target.direct_bytes - charge_bytes(direct[-1]) >= least_seconds * target.bytes_per_second
    )
