"""ListRegistry: make and end the TargetLists of a store, with their selector groups and lanes.

Each selector group has a list over each lane that it reads. Watermarks says how much each list may hold, and TargetArea
(target_area.py) offers arrivals to the lists.
"""

from __future__ import annotations

from ....cache.accounting import holder_names
from ....cache.accounting.charge import charge_of_all
from ....cache.messages.message_memory import MessageMemory
from ....store.stored_message import StoredMessage
from ...selectors.selector import Selector
from ..lists.consumer_memory import LIST_BYTES, selector_group_charge
from ..memory.memory_owners import MemoryOwners
from ..memory.reclaim import Reclaim
from ..memory.watermarks import Watermarks
from ..model.destination import CoreDestination, LaneState, SelectorGroup, TargetList
from .dispatch_area import DispatchArea
from .list_order import arrange
from .load_requests import LoadRequests
from .observer import AreaUpcalls, TrafficObserver


class ListRegistry:
    """Makes, ends and audits the selector groups of a store and their lists.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        memory: MemoryOwners,
        watermarks: Watermarks,
        reclaim: Reclaim,
        loads: LoadRequests,
        dispatch_area: DispatchArea,
        upcalls: AreaUpcalls,
        traffic: TrafficObserver,
    ) -> None:
        """Make it without lists.

        watermarks: gives each list its share of the memory limit.
        upcalls: told of lanes that no consumer reads any more, and of lanes that have ended.
        traffic: observes which lists there are.
        """
        self._memory = memory
        self._consumer_memory = memory.consumer_memory
        self._watermarks = watermarks
        self._reclaim = reclaim
        self._loads = loads
        self._dispatch_area = dispatch_area
        self._upcalls = upcalls
        self._traffic = traffic
        # Number of selector groups without a list. Memory is kept for the list that the first message of each needs.
        self.listless_selector_groups = 0
        # Lists that have ended while a load was under way, which still holds memory.
        self._leaving: dict[TargetList, None] = {}

    # ------------------------------------------------------------------ selector groups

    def ensure_selector_group(self, destination: CoreDestination, selector: Selector | None) -> SelectorGroup:
        """Return the selector group for this selector; make it with its lists if it is new."""
        self._traffic.subscribes(destination)
        selector_group = destination.selector_groups.get(selector.text if selector is not None else None)
        return selector_group if selector_group is not None else self._add_selector_group(destination, selector)

    def _add_selector_group(self, destination: CoreDestination, selector: Selector | None) -> SelectorGroup:
        """Make a selector group with a list over each lane. From the second group on, the lists need claims."""
        self._lay_all_open(destination)
        selector_group = destination.distribution.make_selector_group(destination, selector)
        destination.selector_groups[selector.text if selector is not None else None] = selector_group
        if not selector_group.is_charged:
            selector_group.is_charged = True
            self._consumer_memory.charge(selector_group_charge(selector))
            self.listless_selector_groups += 1
        for lane in destination.all_lanes():
            self.add_list(lane, selector_group)
        arrange(selector_group)
        if len(destination.selector_groups) <= 2:  # with a third one nothing changes for the others
            self.update_sole_lists(destination)
        if len(destination.selector_groups) > 1:
            for target in selector_group.lists:
                target.require_claims()
        return selector_group

    def _lay_all_open(self, destination: CoreDestination) -> None:
        """Move non-persistent messages out of the lists, to where a new selector group can find them too."""
        for lane in destination.all_lanes():
            if not lane.is_persistent:
                for target in destination.lists_over(lane):
                    self._lay_open(target)

    def _lay_open(self, target: TargetList) -> None:
        """Move all direct messages to tmp-storage or its buffer. Requires: the messages are not persistent."""
        messages = [target.evict_last() for _ in range(len(target.direct))]
        target.release(charge_of_all(messages))
        target.lane.pager.page_out(messages)

    def end_selector_group(self, destination: CoreDestination, selector_group: SelectorGroup) -> None:
        """End a selector group without consumers. Its direct messages go to the HeadQueueCache if they fit."""
        key = selector_group.selector.text if selector_group.selector is not None else None
        del destination.selector_groups[key]
        destination.counters.misses += selector_group.misses
        if selector_group.is_charged:
            self._consumer_memory.release(selector_group_charge(selector_group.selector))
            if not selector_group.lists:
                self.listless_selector_groups -= 1
        for target in selector_group.lists:
            self._close_list(target)
        selector_group.lists.clear()
        if len(destination.selector_groups) <= 1:
            self.update_sole_lists(destination)

    def remove_lists_over(self, destination: CoreDestination, selector_group: SelectorGroup) -> None:
        """Remove the lists over one destination from a selector group that reads several."""
        kept: list[TargetList] = []
        for target in selector_group.lists:
            if target.lane.destination is destination:
                self._close_list(target)
            else:
                kept.append(target)
        if selector_group.lists and not kept:
            self.listless_selector_groups += 1
        selector_group.lists[:] = kept
        destination.forget_selector_groups()
        self.update_sole_lists(destination)

    def update_sole_lists(self, destination: CoreDestination) -> None:
        """Set each lane's only list again, after selector groups or lanes were added or removed."""
        selector_groups = list(destination.selector_groups.values())
        is_sole = (
            len(selector_groups) == 1 and selector_groups[0].selector is None and destination.distribution.is_ordinary
        )
        for lane in destination.all_lanes():
            lane.use_sole_list(
                next(target for target in selector_groups[0].lists if target.lane is lane) if is_sole else None
            )
        if len(selector_groups) > 1:
            for selector_group in selector_groups:
                for target in selector_group.lists:
                    target.require_claims()

    # ------------------------------------------------------------------ lanes

    def add_lane(self, lane: LaneState) -> None:
        """Give each selector group a list over a new lane."""
        for selector_group in lane.destination.selector_groups.values():
            self.add_list(lane, selector_group)
            arrange(selector_group)
        lane.distribution.add_lane(lane)
        self.update_sole_lists(lane.destination)
        self._traffic.lane_added(lane)

    def on_lane_gone(self, lane: LaneState) -> None:
        """Report that a lane has ended, and release its charge. Removals and ended subscriptions call it."""
        self._upcalls.gone(lane)
        lane.release_charge()
        self._traffic.lane_gone(lane)

    # ------------------------------------------------------------------ lists

    def add_list(self, lane: LaneState, selector_group: SelectorGroup) -> None:
        target = TargetList(lane, selector_group, self._consumer_memory)
        if lane.parked or lane.dead_letters:
            target.require_claims()
        if not selector_group.lists:
            self.listless_selector_groups -= 1
        selector_group.add_list(target)
        self.begin_list(target)
        self._loads.request(target)
        self._traffic.list_added(target)

    def begin_list(self, target: TargetList) -> None:
        """Give a new list its share of memory."""
        self._reclaim.make_room(LIST_BYTES, None)
        self._consumer_memory.charge(LIST_BYTES)
        self._watermarks.begin(target)

    def _close_list(self, target: TargetList) -> None:
        """End a list. Its direct messages go to the HeadQueueCache if they fit."""
        self._traffic.list_ends(target)
        self.release_share(target)
        has_supply = target.has_supply
        memory, lane_number = target.memory, target.lane.pending_lane.number
        target.release(target.direct_bytes)
        memory.head_queue_cache.reopen(lane_number)
        dropped: list[StoredMessage] = []
        for message in target.direct:
            if message[2] is None or target.needs_claims or not memory.head_queue_cache.put(lane_number, message):
                dropped.append(message)
        target.close()
        target.lane.pager.page_out(dropped)
        if dropped or has_supply:
            self._upcalls.unread(target.lane)

    def release_share(self, target: TargetList) -> None:
        """Release a list's share of memory. Memory that its load has reserved stays reserved until the load ends."""
        self._loads.forget(target)
        self._dispatch_area.stop_waiting_for_memory(target)
        self._watermarks.forget(target)
        self._consumer_memory.release(LIST_BYTES)
        if target.load is not None:
            self._leaving[target] = None

    def end_load(self, target: TargetList) -> bool:
        """Note that a list's load has ended, for whatever reason; return whether the list has not ended.

        The caller gives the load's memory back.
        """
        target.end_load()
        self._leaving.pop(target, None)
        return target in self._watermarks.lists

    @property
    def is_loading(self) -> bool:
        """Whether a load is under way, of a list or of one that has ended. O(lists)."""
        return bool(self._leaving) or any(target.is_loading for target in self._watermarks.lists)

    def lanes(self) -> set[LaneState]:
        """Return the lanes that have lists. O(lists)."""
        return {target.lane for target in self._watermarks.lists}

    @property
    def charge_bytes(self) -> int:
        """What the lists should be charged apart from their messages, computed anew. O(lists)."""
        return sum(target.charge_bytes for target in self._watermarks.lists)

    def shorten(self, target: TargetList) -> None:
        """Cut a list to the bytes that its lane allows, and move the other messages to the lane's cache."""
        self._watermarks.shorten(target)

    def audit(self) -> dict[str, int]:
        """Return what each holder's charge should be, from a walk over all live objects, loads under way included."""
        lanes = self.lanes()
        for lane in lanes:
            lane._check()
        lists_bytes: dict[MessageMemory, int] = dict.fromkeys(self._memory.memories.all, 0)
        for target in (*self._watermarks.lists, *self._leaving):
            loading_bytes = target.load.reserved_bytes if target.load is not None else 0
            lists_bytes[target.memory] += charge_of_all(target.direct) + loading_bytes
        for memory, held_bytes in lists_bytes.items():
            assert memory.lists_holder.held_bytes == held_bytes
            assert memory.pending_cache.audit() == memory.pending_cache.holder.held_bytes
        return {
            holder_names.TARGET_LISTS: sum(lists_bytes.values()),
            holder_names.HEAD_QUEUE_CACHE: sum(memory.head_queue_cache.audit() for memory in lists_bytes),
            holder_names.PENDING_CACHE: sum(memory.pending_cache.audit() for memory in lists_bytes),
            holder_names.DISPATCH_AREA: self._dispatch_area.audit(lanes, self._watermarks.shares),
            holder_names.CURVE: self._watermarks.live_curve.charge_bytes,
            **self._memory.overflow.audit(),
        }
