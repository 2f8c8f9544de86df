"""TargetArea: what arrives in the TargetLists of a store, what comes back to them, and what they forget.

An area is where all messages of one stage are. The messages of the TargetArea are for consumers to take. Those of the
DispatchArea were taken and are not settled.

Each open store has one TargetArea. It offers arrivals to the lists, and reoffers messages that are free again or due to
lists that have passed them. Lanes and lists call it through its abstract class, AbstractTargetArea. The
ListRegistry (list_registry.py) knows which lists there are, and memory/reclaim.py which of them give memory back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ....cache.accounting.charge import OVERHEAD_BYTES, charge_of
from ....store.format.message_properties import header_values_of_each
from ....store.message import HeaderValue
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ..lanes.persistent_lane_state import PersistentLaneState
from ..model.abstract_target_area import AbstractTargetArea
from ..model.destination import LaneState, SelectorGroup, TargetList
from ..monitor import Monitor
from .dispatch_area import DispatchArea
from .load_requests import LoadRequests
from .observer import TrafficObserver

Decoded = Sequence[dict[str, HeaderValue] | None]
"""The decoded headers of messages, in the order of the messages. None: they can't be decoded."""

SEARCHES_MAX: Final = 4
"""Up to so many lists search the encoded headers of a message for the same names, each for itself.

For more lists, decoding these headers once takes less time.
"""
UNREADABLE_MAX: Final = 1024
"""How many messages that could not be read are remembered, to be recorded as lost.

The next open of the store finds the others again.
"""


class TargetArea(AbstractTargetArea[LaneState, TargetList]):
    """All messages that lists have for consumers, as they arrive, come back and go.

    The state lock guards it; every method requires it held.
    """

    def __init__(
        self, monitor: Monitor, loads: LoadRequests, dispatch_area: DispatchArea, traffic: TrafficObserver
    ) -> None:
        """Make the area. traffic: observes what lists get and lose."""
        self._monitor = monitor
        self._loads = loads
        self._dispatch_area = dispatch_area
        self._traffic = traffic
        # (lane, sequence) of messages that were skipped because they could not be read.
        self.unreadable: deque[tuple[LaneState, int]] = deque(maxlen=UNREADABLE_MAX)

    # ------------------------------------------------------------------ arrivals

    def publish(
        self, lane: PersistentLaneState, messages: Sequence[StoredMessage] | range, charge: int | None = None
    ) -> None:
        """Publish messages that a call has stored, so that they arrive at their lane. A range: they are not in RAM.

        charge: that of the messages; None: compute it.
        """
        first = messages.start if isinstance(messages, range) else messages[0][0]
        if first > lane.published_end:
            for receiving in lane.receiving_lanes():
                if first > receiving.published_end:
                    self.pass_holes(receiving, first)
        if isinstance(messages, range):
            lane.arrive_unloaded(messages.stop)
        else:
            lane.arrive_many(messages, charge)

    def pass_holes(self, lane: LaneState, first: int) -> None:
        """Move the published end to `first`, and with it lists that have got there: no message lies between."""
        for target in lane.selector_group_lists():
            if target.frontier == lane.published_end:
                target.advance_frontier(first)
        lane.published_end = first

    def offer_unloaded(self, lane: LaneState, end: int) -> None:
        """Offer everything before `end` to the lists. New messages among it are not in RAM, or not due yet."""
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
        """Offer an arrival to the lists of a lane without a sole list, or to the HeadQueueCache if there are none.

        Return whether RAM has it for all lists that may want it.
        """
        if not lane.destination.selector_groups:
            heads = lane.memory.head_queue_cache
            if lane.pending_lane.pending_messages == 1:
                heads.reopen(lane.pending_lane.number)
            return heads.put(lane.pending_lane.number, message)
        return self._offer_to_lists(lane, message, lane.selector_group_lists(), None, 0)

    def offer_slice(self, lane: LaneState, messages: Sequence[StoredMessage]) -> None:
        """Offer messages that arrived, one after the other as `offer_arrival` does, and move the published end along.

        Headers that selectors name are decoded once for all messages and lists, where that takes less time.
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
        """Offer an arrival to the list of each selector group; return whether RAM has it for all that may want it.

        decoded: for each list, the headers of several messages that its selector names; this message is the one at
        `at`. None: nothing is decoded yet.
        """
        sequence = message[0]
        is_direct = False
        behind: list[TargetList] | None = None  # made only if needed: most messages match few selectors
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

    def pass_unreadable(self, lane: LaneState, sequence: int) -> None:
        """Remember a message that was skipped because it can't be read, so that it is recorded as lost."""
        self.unreadable.append((lane, sequence))

    def retry_load(self, target: TargetList) -> None:
        """Request a load for a list that was given up for want of memory, if enough is free now."""
        if target.wanted_bytes <= OVERHEAD_BYTES or target.memory.free_bytes >= target.wanted_bytes:
            self._dispatch_area.stop_waiting_for_memory(target)
            self._loads.request(target)

    # ------------------------------------------------------------------ what is free again, or gone

    def reoffer_returned(self, lane: LaneState, message: StoredMessage) -> None:
        """Put a message that was handed out and is free again into its place in each list that has passed it."""
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
        lane.recheck_loads()
        for first, last in gone if lane.delivery_counts is not None else ():
            lane.trim_delivery_counts(first, last)
        for target in lane.destination.lists_over(lane):
            target.release(target.forget(gone))
        lane.distribution.forget(lane, gone)
        lane.pending_cache.discard_runs(lane.pending_lane.number, gone)
        heads = lane.memory.head_queue_cache
        heads.discard_runs(lane.pending_lane.number, gone)
        if not lane.pending_lane.pending_messages:
            heads.reopen(lane.pending_lane.number)
        self._dispatch_area.retry_waiters()


def _decoded(targets: list[TargetList], messages: Sequence[StoredMessage]) -> list[Decoded | None] | None:
    """Return for each list the headers of arrived messages that its selector names. None: decode nothing.

    The entry of a list is None if it is not the first message's turn there, or if its selector rejects most messages by
    a search of the encoded headers.
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
