"""The eager loader: fill each list before its consumers ask.

A load has three parts:

- *begin*, under the lock, chooses the next messages (chooser.py), takes those that the caches have (cache_filler.py),
  and reserves memory for the rest (load_memory.py).
- *read*, outside the lock, makes few large reads, verifies each message, and evaluates selectors (reading.py).
- *install*, under the lock, appends the messages that match and gives back the others (installing.py).

If `take` needs a message that the loader has not brought yet, the take runs these parts itself; this is a miss.
"""

from __future__ import annotations

from contextlib import suppress
from heapq import nsmallest
from typing import Final

from ...cache.accounting.budget import Holder
from ...cache.spill.spill_account import SpillAccount
from ...store.errors import StoreFailed
from ...store.structures.histogram import DurationHistogram
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_registry import ListRegistry
from ..core.areas.load_requests import LoadRequests
from ..core.lists.load import Load
from ..core.memory.reclaim import Reclaim
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import TargetList
from ..core.monitor import Monitor
from .cache_filler import CacheFiller
from .chooser import LoadChooser
from .installing import is_stale, put_into_list
from .load_memory import LoadMemory
from .reading import read_load

LISTS_MAX: Final = 32
"""Most lists that run low which are examined under one hold of the state lock, if memory has room for no load."""


class EagerLoader:
    """Loads messages into the list that runs lowest, and into any list for a take that waits."""

    def __init__(
        self,
        monitor: Monitor,
        list_registry: ListRegistry,
        watermarks: Watermarks,
        reclaim: Reclaim,
        dispatch_area: DispatchArea,
        loads: LoadRequests,
        spill_account: SpillAccount,
        reading: Holder,
    ) -> None:
        """Make the loader. spill_account, reading: see LoadMemory."""
        self._monitor = monitor
        self._list_registry = list_registry
        self._watermarks = watermarks
        self._dispatch_area = dispatch_area
        self._loads = loads
        self._monotonic = monitor.monotonic
        self._chooser = LoadChooser(watermarks, monitor.monotonic)
        self._memory = LoadMemory(watermarks, reclaim, spill_account, reading)
        self._caches = CacheFiller(reclaim, self._memory)
        self._previous: TargetList | None = None
        # How long loads took, from the choice of messages until all were in RAM. The state lock guards it.
        self.durations = DurationHistogram()

    def step(self) -> bool:
        """Do one load for the list that runs lowest; return whether there may be more to do. Requires: no lock."""
        load: Load[TargetList] | None = None
        try:
            with self._monitor.lock, self._monitor.all_or_broken:
                load = self._begin_next()
                is_more = bool(self._loads.running_low)
            if load is None:
                return is_more
            self.finish(load)
        except BaseException:
            if load is not None:  # no other call would end the load
                self.abandon_interrupted(load)
            raise
        return True

    def finish(self, load: Load[TargetList], *, makes_room: bool = True) -> None:
        """Read a load and install it. Requires: no lock.

        makes_room: whether it may make a checkpoint if RAM has no room for the survey of a scan. A take that must not
            wait any longer says no.
        """
        try:
            self.read(load)
            with self._monitor.lock, self._monitor.all_or_broken:
                self.install(load)
            if makes_room and load.survey is not None:
                load.target.lane.scan().make_survey_room()
        except BaseException:
            self.abandon_interrupted(load)
            raise

    def abandon_interrupted(self, load: Load[TargetList]) -> None:
        """Abandon a load that was broken off, unless it has ended. Requires: no lock."""
        # An error of the load matters more than one of the undo.
        with suppress(StoreFailed), self._monitor.lock, self._monitor.all_or_broken:
            if load.target.load is load:
                self.abandon(load)

    def _begin_next(self) -> Load[TargetList] | None:
        """Begin a load for the list that runs lowest and can have one. Requires: the lock.

        Lists on the way that need no load, or for which memory has no room, no longer count as running low. None: no
        list that was examined can have a load.
        """
        loads = self._loads
        if loads.left_alone:
            loads.poll()
        for target in self._lowest_first():
            is_awaited = target.selector_group.is_awaited and not target.is_ready
            if target.is_loading or not target.has_supply or self._needs_no_load(target, is_awaited=is_awaited):
                loads.withdraw(target)
                if not target.is_loading:
                    target.count_loaded_anew()
                continue
            if loads.leave_if_never_full(target):
                continue
            load = self.begin(target, is_needed=is_awaited)
            if load is not None:
                self._previous = target
                return load
            loads.withdraw(target)
            if target.has_supply:
                self._dispatch_area.wait_for_memory(target)
        return None

    def _lowest_first(self) -> list[TargetList]:
        """Return lists that run low, those with the fewest seconds of supply first, at most LISTS_MAX.

        The list of the last load comes last. Otherwise a list whose scan finds nothing would get all loads.
        """
        return nsmallest(
            LISTS_MAX, self._loads.running_low, key=lambda found: (found is self._previous, found.supply_seconds)
        )

    def _needs_no_load(self, target: TargetList, *, is_awaited: bool) -> bool:
        """Return whether a list needs no load now: it has enough, or its next message is loaded only for a take.

        Its next take, or room in it, makes it run low again.
        """
        step_bytes = min(self._watermarks.shares.load_bytes_max, target.low_watermark_bytes)
        after_load_bytes = target.direct_bytes + step_bytes
        if after_load_bytes > target.read_ahead_bytes and target.is_ready:
            if after_load_bytes > target.high_watermark_bytes or not target.lane.is_cached(target.first_to_load):
                return True
        if is_awaited:
            return False
        room_bytes = target.high_watermark_bytes - target.direct_bytes
        return target.lane.load_rule.waits_for_takes(target.first_to_load, room_bytes)

    # ------------------------------------------------------------------ begin

    def begin(self, target: TargetList, *, is_needed: bool) -> Load[TargetList] | None:
        """Choose the next load of a list and reserve memory for it. None: nothing to load, or no memory for a message.

        Until install, the list has the chosen messages as before: returned, as references, or behind the frontier.
        is_needed: a consumer waits, so messages that memory can't hold become lazy. Requires: the lock.
        """
        assert not target.is_loading
        load = self._chooser.choose(target, is_needed=is_needed)
        if load is None:
            return None
        self._caches.fill(load)
        self._caches.leave_out_unreadable(load)
        if load.runs:
            self._memory.reserve(load)
        if not load.runs or load.last < load.first:
            self.abandon(load)
            return None
        target.begin_load(load)
        return load

    def abandon(self, load: Load[TargetList]) -> None:
        """End a load without installing it, and give back its memory. The list is as before. Requires: the lock."""
        was_begun = load.target.load is load
        is_read = self._list_registry.end_load(load.target)
        self._memory.release_buffer(load)
        load.target.release(load.reserved_bytes)
        lane = load.target.lane
        dropped = [load.held[sequence] for sequence in sorted(load.from_cache)]
        if is_stale(load):
            dropped = [message for message in dropped if lane.pending_lane.is_pending(message[0])]
        # If the list has ended, no cache gets its messages: its lane may have no consumer any more to take them out.
        lane.pager.page_out(
            [held for held in dropped if not (is_read and lane.pending_cache.put(lane.pending_lane.number, held))]
        )
        if was_begun:
            load.target.selector_group.load_ended(self._monitor.deferred)
            self._dispatch_area.retry_waiters()  # other lists may wait for the memory that this load had

    # ------------------------------------------------------------------ read and install

    def read(self, load: Load[TargetList]) -> None:
        """Read the missing messages and evaluate the selector. Requires: no lock."""
        read_load(load)

    def install(self, load: Load[TargetList]) -> None:
        """Put the loaded messages into the list. Requires: the lock."""
        self.durations.record(self._monotonic() - load.began_at)
        target = load.target
        if target.needs_claims and not load.needed_claims and load.from_cache and not target.lane.is_persistent:
            self.abandon(load)  # the load took the only copies, but other lists share these messages now
            return
        is_alive = self._list_registry.end_load(target)
        self._memory.release_buffer(load)
        put_into_list(load, is_alive=is_alive)
        target.selector_group.load_ended(self._monitor.deferred)
        self._dispatch_area.retry_waiters()
        if is_alive and target.direct_bytes < target.low_watermark_bytes:
            self._loads.request(target)
