"""Watermarks: how many bytes each TargetList of a store should hold, and how the memory limit is divided.

A MemoryRule decides, and Watermarks carries the decision out: it moves the watermarks of all lists and has lists and
caches give back what they hold above their share. This happens once a second, at a resize and when a list begins,
never for each message.
"""

from __future__ import annotations

from collections.abc import Callable

from ....cache.accounting.charge import charge_of
from ....cache.accounting.shares import Shares, high_watermark_bytes
from ....cache.messages.message_memory import MessageMemory, QuotaMemory
from ....store.stored_message import StoredMessage
from ..model.destination import TargetList
from .curve import Curve
from .memory_owners import MemoryOwners
from .reclaim import Reclaim


class LiveCurve:
    """The live curve of a store, which Watermarks tell of its lists. This class keeps none; CurveWatch keeps one.

    Every method requires the state lock.
    """

    def begin(self, target: TargetList) -> None:
        """Follow a new list, if the curve has memory for it."""

    def sample(self, target: TargetList) -> None:
        """Sample a list that has reached its `sample_at_bytes`. Each list is sampled once a second too."""

    def shares_changed(self) -> None:
        """Note that the memory limit has changed."""

    def measured(self) -> None:
        """Note that a second has passed and that the rates of all lists are new."""

    def finish(self, target: TargetList) -> None:
        """Follow a list no longer, because it is about to end."""

    def curve(self) -> Curve:
        """Return the hit ratio by memory limit, as far as it is known."""
        return Curve()

    def recent_curve(self) -> Curve:
        """Return the live curve as of its last sample, at most a second old. This costs nothing for each list."""
        return Curve()

    @property
    def charge_bytes(self) -> int:
        """What the curve should be charged, computed anew.

        AssertionError if it follows a list that has ended.
        """
        return 0


class Watermarks:
    """The shares of the memory limit, and the lists among which they are divided.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        memory: MemoryOwners,
        shares: Shares,
        make_live_curve: Callable[[Watermarks], LiveCurve],
        *,
        request_load: Callable[[TargetList], object],
        bound_in_flight: Callable[[Shares], object],
        retry_waiters: Callable[[], object],
        measures: Callable[[float], object],
    ) -> None:
        """Make it without lists.

        request_load: asks for a load of a list.
        bound_in_flight, retry_waiters: the methods of the DispatchArea.
        measures: told when a second has passed.
        """
        self._memory = memory
        self._memory_rule = memory.memory_rule
        self._request_load = request_load
        self._bound_in_flight = bound_in_flight
        self._retry_waiters = retry_waiters
        self._measures = measures
        # All lists, which the ListRegistry begins and ends. Others only read it.
        self.lists: dict[TargetList, None] = {}
        self.reclaim = Reclaim(memory, self.lists.keys())
        # How the memory limit is divided now.
        self.shares = shares
        self.live_curve = make_live_curve(self)
        self.set_shares(shares)

    def set_shares(self, shares: Shares) -> None:
        """Set the memory limit, at first or anew, and give back what exceeds a share.

        O(messages given back + lists).
        """
        memory, make_room = self._memory, self.reclaim.make_room
        patterns = memory.memories.of_patterns.values()
        self.shares = shares = self._memory_rule.divide(shares)
        for each in patterns:
            each.set_quota(shares.quotas[each.quota.name])
        self._bound_in_flight(shares)
        memory.message_group_memory.set_limit(shares.limit_bytes)
        memory.overflow.set_shares(shares)
        make_room(0, None)
        make_room(0, None, messages_min=0)
        memory.memories.common.resize_caches(shares.head_queue_cache_bytes, shares.pending_cache_bytes)
        for each in patterns:
            self._keep_share(each)
        self.live_curve.shares_changed()
        self._catch_up()
        self._move_all()
        for target in self.lists:
            if target.direct_bytes < target.low_watermark_bytes:
                self._request_load(target)
        self._retry_waiters()

    def _keep_share(self, memory: QuotaMemory) -> None:
        """Give back what a pattern's destinations hold above their share, which may have shrunk."""
        reserved_by_others = self.shares.reserved_bytes - memory.quota.reserve_bytes
        available_bytes = max(self.shares.available_bytes - reserved_by_others, 0)
        memory.resize_own_caches(available_bytes, self.shares.pending_cache_share)
        self.reclaim.give_back_excess(memory)

    def _catch_up(self) -> None:
        """Pay the charges of consumers and destinations for which there was no room."""
        self._memory.consumer_memory.pay_owed()
        self._memory.destination_memory.pay_owed()

    def begin(self, target: TargetList) -> None:
        """Give a new list, which is charged, its share of memory.

        O(1): the other lists shrink to their fair share at the next measurement, however many there are.
        """
        self.lists[target] = None
        self.live_curve.begin(target)
        limit_bytes = self._update_fair_share(target.memory)
        watermark_bytes = self._memory_rule.first_high_watermark(limit_bytes, len(self.lists))
        target.move_high_watermark(watermark_bytes, self.shares.read_ahead_share)

    def forget(self, target: TargetList) -> None:
        """Forget a list that is about to end."""
        self.live_curve.finish(target)
        del self.lists[target]

    def measure(self, seconds: float) -> None:
        """Move every list's high watermark according to what its consumers took in the last seconds. O(lists)."""
        self._measures(seconds)
        self.reclaim.measurements += 1
        for target in self.lists:
            target.measure(seconds)
        self._catch_up()
        self._move_all()
        self.live_curve.measured()
        self._retry_waiters()

    def _move_all(self) -> None:
        """Divide the limit among the lists by their rates, within the quotas of patterns, and move their watermarks."""
        rates = [target.measured_rate for target in self.lists]
        common_bytes = self.shares.limit_bytes - self.shares.reserved_bytes
        granted = dict(zip(self.lists, self._memory_rule.high_watermarks(common_bytes, rates), strict=True))
        memories = self._memory.memories
        for memory in memories.of_patterns.values():
            own = [target for target in granted if target.memory is memory]
            own_rates = [target.measured_rate for target in own]
            least = self._memory_rule.high_watermarks(memory.quota.reserve_bytes, own_rates)
            most = self._memory_rule.high_watermarks(memory.quota.share_bytes, own_rates)
            for target, least_bytes, most_bytes in zip(own, least, most, strict=True):
                granted[target] = min(max(granted[target], least_bytes), most_bytes)
        for each in memories.all:
            self._update_fair_share(each)
        for target, watermark_bytes in granted.items():
            self._move(target, watermark_bytes)

    def _update_fair_share(self, memory: MessageMemory) -> int:
        """Set what a list of this memory would hold if all lists were alike; return the limit that they divide."""
        limit_bytes = min(self.shares.limit_bytes - self.shares.reserved_bytes, memory.share_bytes)
        memory.fair_list_bytes = high_watermark_bytes(limit_bytes, len(self.lists), None)
        return limit_bytes

    def shorten(self, target: TargetList) -> None:
        """Cut a list to the bytes that its lane allows. Messages above go to the PendingCache if they fit.

        The message that reaches over the high watermark stays, as a load brings one at least.
        """
        target.move_high_watermark(target.high_watermark_bytes, self.shares.read_ahead_share)
        _evict(target, lambda: target.direct_bytes - charge_of(target.direct[-1]) >= target.high_watermark_bytes)

    def _move(self, target: TargetList, watermark_bytes: int) -> None:
        """Move the high watermark of a list. Messages above it go to the PendingCache if they fit."""
        target.move_high_watermark(watermark_bytes, self.shares.read_ahead_share)
        _evict(target, lambda: target.direct_bytes > target.high_watermark_bytes)


def _evict(target: TargetList, is_too_long: Callable[[], bool]) -> None:
    """Move messages from the far end of a list, all but the first, to its lane's cache if they fit."""
    evicted: list[StoredMessage] = []
    while len(target.direct) > 1 and is_too_long():
        evicted.append(target.evict_last())
        target.release(charge_of(evicted[-1]))
    put, lane_number = target.lane.pending_cache.put, target.lane.pending_lane.number
    target.lane.pager.page_out(
        [message for message in reversed(evicted) if message[2] is not None and not put(lane_number, message)]
    )
