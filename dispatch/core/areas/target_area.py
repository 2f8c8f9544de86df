"""TargetArea: all TargetLists of a store, what arrives in them and what leaves them.

An area is where all messages of one stage are: those of the TargetArea are for consumers to take, those of the
DispatchArea were taken and are not settled.

It makes and ends lists, offers arrivals to them, and reoffers what they have passed and what is free again or due.
Watermarks say how much each list may hold. There is one TargetArea for each open store. Lanes and lists call it through
its abstract class, AbstractTargetArea. Messages that were handed out belong to the DispatchArea.

It decides under the state lock; loading/eager.py reads outside the lock. memory/reclaim.py decides which memory is
given back, and in which order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ....cache.accounting import holder_names
from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of, charge_of_all
from ....cache.messages.message_memory import MessageMemory
from ....store.format.message_properties import header_values_of_each
from ....store.message import HeaderValue
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector
from ..memory.memory_owners import MemoryOwners
from ..memory.watermarks import Watermarks
from ..model.abstract_target_area import AbstractTargetArea
from ..model.consumer_memory import LIST_BYTES, selector_group_charge
from ..model.destination import ConsumedDestination, LaneState, SelectorGroup, TargetList
from ..monitor import Monitor
from .dispatch_area import DispatchArea
from .list_order import arrange
from .load_requests import LoadRequests
from .observer import ListEvents, TrafficObserver

Decoded = Sequence[dict[str, HeaderValue] | None]
"""Headers of messages, in order; None of one whose headers make no sense."""

SEARCHES_MAX: Final = 4
"""How many lists search the encoded headers of a message for what their selectors want.

Where more lists want the same headers, decoding them once for all takes less.
"""
UNREADABLE_MAX: Final = 1024
"""How many messages that could not be read are kept for a later look.

The next open of the store finds the others again.
"""


class TargetArea(AbstractTargetArea[LaneState, TargetList]):
    """All messages that lists have ready for consumers: the TargetLists of a store.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self,
        monitor: Monitor,
        memory: MemoryOwners,
        watermarks: Watermarks,
        loads: LoadRequests,
        dispatch_area: DispatchArea,
        events: ListEvents,
        *,
        traffic: TrafficObserver,
    ) -> None:
        """events: hears of lanes that nobody reads any more, and of those that are gone.
        traffic: is told what lists get and lose.
        """
        self._consumer_memory = memory.consumer_memory
        self._destination_memory = memory.destination_memory
        self._monitor = monitor
        self._loads = loads
        self._memories = memory.memories
        self._dispatch_area = dispatch_area
        self._overflow = memory.overflow
        self._events = events
        self._traffic = traffic
        self._watermarks = watermarks
        # All lists: each has a share of the memory limit.
        self.lists = watermarks.lists
        # Number of selector groups without a list. The first message for each needs one, and memory for it is kept.
        self.listless_selector_groups = 0
        # Lists that have ended while a load was under way, which still holds memory.
        self.leaving: dict[TargetList, None] = {}
        self._reclaim = watermarks.reclaim
        # (lane, sequence) of messages that were skipped because they could not be read.
        self.unreadable: deque[tuple[LaneState, int]] = deque(maxlen=UNREADABLE_MAX)

    # ------------------------------------------------------------------ selector groups

    def subscribe(self, destination: ConsumedDestination, selector: Selector | None) -> SelectorGroup:
        """Return the selector group for this selector; make it with its lists if it is new."""
        self._traffic.subscribes(destination)
        selector_group = destination.selector_groups.get(selector.text if selector is not None else None)
        return selector_group if selector_group is not None else self._add_selector_group(destination, selector)

    def _add_selector_group(self, destination: ConsumedDestination, selector: Selector | None) -> SelectorGroup:
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

    def _lay_all_open(self, destination: ConsumedDestination) -> None:
        """Make non-persistent messages that are in one list alone findable for a selector group that is to come."""
        for lane in destination.all_lanes():
            if not lane.is_persistent:
                for target in destination.lists_over(lane):
                    self._lay_open(target)

    def add_lane(self, lane: LaneState) -> None:
        """Give each selector group a list over a new lane."""
        for selector_group in lane.destination.selector_groups.values():
            self.add_list(lane, selector_group)
            arrange(selector_group)
        lane.distribution.add_lane(lane)
        self.update_sole_lists(lane.destination)
        self._traffic.lane_added(lane)

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
        self.make_room(LIST_BYTES, None)
        self._consumer_memory.charge(LIST_BYTES)
        self._watermarks.begin(target)

    def update_sole_lists(self, destination: ConsumedDestination) -> None:
        """Set each lane's only list again, after selector groups or lanes were added or removed."""
        selector_groups = list(destination.selector_groups.values())
        is_sole = (
            len(selector_groups) == 1 and selector_groups[0].selector is None and destination.distribution.is_ordinary
        )
        for lane in destination.all_lanes():
            lane.sole_list = None
            if is_sole:
                lane.sole_list = next(target for target in selector_groups[0].lists if target.lane is lane)
                lane.sole_list.own_direct()
        if len(selector_groups) > 1:
            for selector_group in selector_groups:
                for target in selector_group.lists:
                    target.require_claims()

    def _lay_open(self, target: TargetList) -> None:
        """Make messages that only this list has findable for others. Requires: its messages are not persistent."""
        messages = [target.evict_last() for _ in range(len(target.direct))]
        target.release(charge_of_all(messages))
        target.page_out(messages)

    def unsubscribe(self, destination: ConsumedDestination, selector_group: SelectorGroup) -> None:
        """End a selector group without consumers. Its direct messages go to the HeadQueueCache if they fit."""
        key = selector_group.selector.text if selector_group.selector is not None else None
        del destination.selector_groups[key]
        destination.misses += selector_group.misses
        if selector_group.is_charged:
            self._consumer_memory.release(selector_group_charge(selector_group.selector))
            if not selector_group.lists:
                self.listless_selector_groups -= 1
        for target in selector_group.lists:
            self._close_list(target)
        selector_group.lists.clear()
        if len(destination.selector_groups) <= 1:
            self.update_sole_lists(destination)

    def remove_lists_over(self, destination: ConsumedDestination, selector_group: SelectorGroup) -> None:
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
        target.page_out(dropped)
        if dropped or has_supply:
            self._events.unread(target.lane)

    def release_share(self, target: TargetList) -> None:
        """End a list's share of memory. Memory that its load has reserved stays reserved until the load ends."""
        self._loads.forget(target)
        self._dispatch_area.stop_waiting_for_memory(target)
        self._watermarks.forget(target)
        self._consumer_memory.release(LIST_BYTES)
        if target.load is not None:
            self.leaving[target] = None

    def end_load(self, target: TargetList) -> None:
        """Note that a list's load has ended, for whatever reason. The caller gives its memory back."""
        target.end_load()
        self.leaving.pop(target, None)

    @property
    def is_loading(self) -> bool:
        """Return whether a load is under way, of a list or of one that has ended. O(lists)."""
        return bool(self.leaving) or any(target.is_loading for target in self.lists)

    def shorten(self, target: TargetList) -> None:
        self._watermarks.shorten(target)

    # ------------------------------------------------------------------ arrivals

    def publish(self, lane: LaneState, messages: Sequence[StoredMessage] | range, charge: int | None = None) -> None:
        """Let what a call has stored be dispatched. A range stands for messages that are not in RAM.

        charge: that of the messages; None: compute it.
        """
        first = messages.start if isinstance(messages, range) else messages[0][0]
        if first > lane.published_end:
            for reader in lane.readers():
                if first > reader.published_end:
                    self.pass_holes(reader, first)
        if isinstance(messages, range):
            lane.arrive_unloaded(messages.stop)
        else:
            lane.arrive_many(messages, charge)

    def pass_holes(self, lane: LaneState, first: int) -> None:
        """Let lists that have passed all published messages go on at `first`, because nothing lies between."""
        for target in lane.selector_group_lists():
            if target.frontier == lane.published_end:
                target.advance_frontier(first)
        lane.published_end = first

    def offer_unloaded(self, lane: LaneState, end: int) -> None:
        """Let everything before `end` be dispatched. New messages among them are not in RAM, or not due yet."""
        self._traffic.arrives_unloaded(lane, end)
        lane.published_end = end
        if not lane.destination.selector_groups:
            lane.memory.head_queue_cache.stop(lane.pending_lane.number)
        for selector_group in lane.destination.selector_groups.values():
            for target in selector_group.lists:
                if target.lane is lane:
                    self._loads.request(target)
            self.wake(selector_group)

    def offer_arrival(self, lane: LaneState, message: StoredMessage) -> bool:
        """Offer an arrival if there are no consumers, several selector groups, or a selector.

        Return whether RAM has it for all lists that may want it.
        """
        if not lane.destination.selector_groups:
            heads = lane.memory.head_queue_cache
            if lane.pending_lane.pending_messages == 1:
                heads.reopen(lane.pending_lane.number)
            return heads.put(lane.pending_lane.number, message)
        return self._offer_to_lists(lane, message, lane.selector_group_lists(), None, 0)

    def offer_slice(self, lane: LaneState, messages: Sequence[StoredMessage]) -> None:
        """Publish messages that arrived, and offer each in turn as offer_arrival does.

        Headers that the selectors of several lists name are decoded once, for all messages together.
        """
        targets = lane.selector_group_lists()
        decoded = _decoded(targets, messages)
        for at, message in enumerate(messages):
            lane.published_end = message[0] + 1
            if targets:
                self._offer_to_lists(lane, message, targets, decoded, at)
            else:
                self.offer_arrival(lane, message)

    def _offer_to_lists(
        self,
        lane: LaneState,
        message: StoredMessage,
        targets: list[TargetList],
        decoded: list[Decoded | None] | None,
        at: int,
    ) -> bool:
        """Offer an arrival to the list of each selector group; return whether it is in RAM for all who may want it.

        decoded: for each list what its selector asks of the headers of several messages, of which this one is the one
        at `at`; None: nothing is decoded yet.
        """
        sequence = message[0]
        is_direct = False
        behind: list[TargetList] | None = None  # made where it is needed: of a selective list few messages are wanted
        for place, target in enumerate(targets):
            selector_group = target.selector_group
            is_wanted: bool | None = None
            if target.frontier == sequence and not target.references.count:
                values = decoded[place] if decoded is not None else None
                is_wanted = selector_group.verdict(lane, message, None if values is None else values[at])
            if is_wanted is False:
                target.frontier = sequence + 1  # advance_frontier, written inline: this is done for each arrival
                if lane.unmatched is not None:
                    lane.unmatched.add(sequence, sequence)
            elif is_wanted and target.admit((message,), charge_of(message)):
                is_direct = True
                selector_group.wake_for(1, self._monitor.deferred)
            elif behind is None:
                behind = [target]
            else:
                behind.append(target)
        return is_direct if behind is None else self._offer_to_cache(lane, message, behind)

    def _offer_to_cache(self, lane: LaneState, message: StoredMessage, behind: list[TargetList]) -> bool:
        """Offer a message to the PendingCache from which these lists will load it; return whether the cache took it."""
        is_kept = False
        for target in behind:
            if not is_kept:
                is_near = target.frontier == message[0] or (lane.is_persistent and target.is_near)
                is_kept = lane.pending_cache.admit(lane.pending_lane.number, message, is_near=is_near)
            self._loads.request(target)
            self.wake(target.selector_group)
        return is_kept

    def wake(self, selector_group: SelectorGroup) -> None:
        """Wake the consumers of a selector group, because there may be a message."""
        selector_group.wake(self._monitor.deferred)

    def on_lane_gone(self, lane: LaneState) -> None:
        """Release what a lane that has ended still holds here."""
        self._events.gone(lane)
        self._destination_memory.release(lane.charged_bytes)
        lane.charged_bytes = 0
        self._traffic.lane_gone(lane)

    def pass_unreadable(self, lane: LaneState, sequence: int) -> None:
        """Remember a message that was skipped because it can't be read."""
        self.unreadable.append((lane, sequence))

    def try_again(self, target: TargetList) -> None:
        """Load for a list that was given up for want of memory, if enough is free now."""
        if target.wanted_bytes <= OVERHEAD_BYTES or target.memory.free_bytes >= target.wanted_bytes:
            self._dispatch_area.stop_waiting_for_memory(target)
            self._loads.request(target)

    # ------------------------------------------------------------------ what is free again, or gone

    def reoffer_returned(self, lane: LaneState, message: StoredMessage) -> None:
        """Put a message that was handed out and is free again into its place, in every list that has passed it."""
        self._traffic.reoffers_returned(lane, message)
        if not lane.pending_lane.is_pending(message[0]):
            return
        if message[2] is not None and not lane.pending_cache.put(lane.pending_lane.number, message):
            lane.pager.page_out((message,))
        lane.distribution.reoffer_returned(lane, message)

    def reoffer_delayed(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Reoffer messages that came back with a delay, because they are due."""
        self._traffic.reoffers_delayed(lane, runs)
        lane.distribution.reoffer_delayed(lane, runs)

    def reoffer_runs(self, lane: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Put runs that are due from now on into their places, in each list that has passed them.

        O(lists of the lane), each as in TargetList.reoffer.
        """
        if not runs:
            return
        for target in lane.selector_group_lists():
            target.reoffer(runs)
            self._loads.request(target)
            self.wake(target.selector_group)
        lane.distribution.reassign()

    def forget(self, lane: LaneState, gone: SequenceSet) -> None:
        """Make each list and cache of a lane forget messages that were removed and are not in flight."""
        self._traffic.forgets(lane, gone)
        lane.purge_count += 1
        for first, last in gone if lane.delivery_counts is not None else ():
            lane.trim_delivery_counts(first, last)
        for target in lane.destination.lists_over(lane):
            target.release(target.forget(gone))
        lane.distribution.forget(lane, gone)
        lane.pending_cache.discard_runs(lane.pending_lane.number, gone)
        heads = lane.memory.head_queue_cache
        heads.discard_runs(lane.pending_lane.number, gone)
        heads.reopen(lane.pending_lane.number)
        self._dispatch_area.retry_waiters()

    # ------------------------------------------------------------------ memory

    def make_room(
        self, wanted_bytes: int, keep: TargetList | None, *, least: int = 1, least_seconds: float = 0.0
    ) -> None:
        """Give memory back until `wanted_bytes` are free, as Reclaim.make_room does."""
        self._reclaim.make_room(wanted_bytes, keep, least=least, least_seconds=least_seconds)

    def audit(self) -> dict[str, int]:
        """Return what each holder's charge should be, found by walking all live objects.

        This includes messages on their way.
        """
        lanes = {target.lane for target in self.lists}
        for lane in lanes:
            lane._check()
        lists_bytes: dict[MessageMemory, int] = dict.fromkeys(self._memories.all, 0)
        for target in (*self.lists, *self.leaving):
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
            holder_names.CURVE: self._watermarks.watch.charge_bytes,
            **self._overflow.audit(),
        }


def _decoded(targets: list[TargetList], messages: Sequence[StoredMessage]) -> list[Decoded | None] | None:
    """Return for each list what its selector asks of the headers of messages that arrived, or None to decode nothing.

    A list that will not be asked about the first one, or whose selector rejects most messages undecoded, has None.
    """
    first = messages[0][0]
    asked: dict[frozenset[str], int] = {}
    for target in targets:
        if target.frontier == first and not target.references.count:
            names = target.selector_group.header_names
            asked[names] = asked.get(names, 0) + 1
    known: dict[frozenset[str], Decoded] = {}
    decoded: list[Decoded | None] = []
    for target in targets:
        selector_group = target.selector_group
        names = selector_group.header_names
        searchers = asked.get(names, 0)
        if not names or not searchers or (selector_group.has_needles and searchers <= SEARCHES_MAX):
            decoded.append(None)
            continue
        if names not in known:
            known[names] = header_values_of_each([message[1] for message in messages], names)
        decoded.append(known[names])
    return decoded if known else None
