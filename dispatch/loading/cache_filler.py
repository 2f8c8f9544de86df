"""CacheFiller: take the messages of a load that a cache has, so that they need no read.

A cache gives a message to the load, or keeps it for other lists and gives a copy. A message that only a delivery has
is in no cache and not on disk: it becomes lazy.
"""

from __future__ import annotations

from ...cache.accounting.charge import charge_of
from ...store.stored_message import StoredMessage
from ..core.lists.load import Load
from ..core.memory.reclaim import Reclaim
from ..core.model.contracts import LaneCache
from ..core.model.destination import TargetList
from .load_memory import LoadMemory


class CacheFiller:
    """Fills loads from the caches. Every method requires the lock."""

    def __init__(self, reclaim: Reclaim, memory: LoadMemory) -> None:
        self._reclaim = reclaim
        self._memory = memory

    def fill(self, load: Load[TargetList]) -> None:
        """Take the messages of the load that the caches have.

        Non-persistent messages that other lists may need too are copied, because a cache may have the only copy.
        """
        target = load.target
        is_only_copy = target.needs_claims and not target.lane.is_persistent
        for cache in target.lane.caches:
            if not cache.may_have(target.lane.pending_lane.number, load.last):
                continue
            if is_only_copy:
                self._copy_from(cache, load)
            else:
                self._take_from(cache, load)

    def _take_from(self, cache: LaneCache, load: Load[TargetList]) -> None:
        """Take messages of a load from a cache. Stop at one that others need and for whose copy memory has no room."""
        target = load.target
        memory, lane_number = target.memory, target.lane.pending_lane.number
        shares_messages = cache.shares_messages(lane_number)
        reserve = memory.lists_holder.reserve if shares_messages else memory.lists_holder.reserve_released
        for sequence in load.sequences():
            message = cache.take(lane_number, sequence)
            if message is None:
                continue
            charge = charge_of(message)
            if load.is_needed and shares_messages and memory.free_bytes < charge:
                self._reclaim.make_room(charge, target)
            if not reserve(charge):  # other lists need it too: page it out for all, or leave it in the cache
                assert shares_messages, "what was just released can be reserved again"
                target.lane.pager.spill((message,))
                if cache.peek(lane_number, sequence) is not None:
                    self._end_before_cached(load, sequence)
                return
            load.hold(message, charge)
            load.from_cache.add(sequence)
            cache.served += 1

    def _end_before_cached(self, load: Load[TargetList], sequence: int) -> None:
        """End the load before a message that a cache keeps for others and for whose copy memory has no room.

        If a consumer waits for the load and this is its first message, the message becomes lazy.
        """
        if load.is_needed and not load.held:
            self._memory.make_lazy(load, sequence)
            sequence += 1
        load.end_before(sequence)

    def _copy_from(self, cache: LaneCache, load: Load[TargetList]) -> None:
        """Copy messages of the load from a cache, where they stay for others.

        If memory has no room, they are spilled.
        """
        lane = load.target.lane
        number = lane.pending_lane.number
        unaffordable: list[StoredMessage] = []
        for sequence in load.sequences():
            message = cache.peek(number, sequence)
            if message is None or sequence in load.held:
                continue
            charge = charge_of(message)
            if not unaffordable and lane.memory.lists_holder.reserve(charge):
                load.hold(message, charge)
                cache.served += 1
            else:
                cache.take(number, sequence)
                unaffordable.append(message)
        if unaffordable:
            lane.pager.spill(unaffordable)

    def leave_out_unreadable(self, load: Load[TargetList]) -> None:
        """Make messages lazy that only a delivery has. End the load before one that another load has."""
        for sequence in load.target.lane.pager.cut_load(load):
            if sequence <= load.last:
                self._memory.make_lazy(load, sequence)
        # If memory had no room for such a lazy message, the load ends before it, and so do its runs.
        load.cut(load.last)
