"""ReachableMessages: what the next takes of a queue's consumers would find. Asking it changes no state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from ...store.numbering import BEHIND_ALL, BLOCK_MESSAGES
from ...store.stored_message import StoredMessage
from ..core.areas.list_order import next_by_arrival
from ..core.model.destination import CoreConsumer, CoreDestination, LaneState, TargetList


class ReachableMessages:
    """The messages that a queue's consumers can reach at one moment. Requires: the lock, as long as it is used.

    Data that consumers share is computed once, however many they are: O(messages in the lists' RAM), and O(lists) for
    each consumer.
    """

    def __init__(self, destination: CoreDestination, now_ms: Callable[[], int]) -> None:
        """Look at a queue or subscription as it is now. now_ms: the store's time."""
        self._distribution = destination.distribution
        self._now_ms = now_ms
        # Messages in RAM that nobody holds, by the owner of their group.
        self._owned: dict[TargetList, dict[CoreConsumer | None, list[StoredMessage]]] = {}
        # The first of the messages without an owner, by what their consumers have in common.
        self._firsts: dict[tuple[TargetList, Hashable], int] = {}
        self._returned: dict[TargetList, int] = {}
        self._free_behind: dict[TargetList, bool] = {}

    def of(self, consumer: CoreConsumer) -> tuple[TargetList, bool] | None:
        """Return the list that its next take would serve it from, and whether that needs no load, or None."""
        is_behind = False
        distribution = self._distribution
        if distribution.is_held_up:
            return None
        for target in _in_turn(consumer.selector_group.in_turn()):
            direct = self._first_direct(consumer, target)
            if self._first_returned(target) < direct:
                return target, False
            if direct < BEHIND_ALL:
                counterpart = target.counterpart
                may_be_behind_counterpart = counterpart is not None and counterpart.has_supply
                is_first = not distribution.is_ordinary or target.direct[0][0] == direct
                is_behind_returned = bool(target.returned) and target.returned.first < direct
                needs_load = (may_be_behind_counterpart and not is_first) or is_behind_returned or is_behind
                return target, not needs_load
            if self._has_free_behind(target):
                return target, False
            # What the list names cannot be handed out, but only a load finds that out, before the next list has its
            # turn.
            is_behind = is_behind or target.has_supply
        return None

    def _first_direct(self, consumer: CoreConsumer, target: TargetList) -> int:
        """Return the first sequence in RAM that the consumer could take, or BEHIND_ALL if there is none."""
        able = (message for message in target.direct if self._can_be_had(target.lane, message[0]))
        if self._distribution.is_ordinary:
            return self._first(target, None, able)
        owned = self._owned.get(target)
        if owned is None:
            owned = self._owned[target] = self._distribution.by_owner(target.lane, able)
        own = owned.get(consumer)
        unowned = owned.get(None)
        first = own[0][0] if own else BEHIND_ALL
        if not unowned:
            return first
        kind = self._distribution.kind_of(consumer)
        return min(first, self._first(target, kind, self._distribution.unowned_of(consumer, target.lane, unowned)))

    def _first(self, target: TargetList, kind: Hashable, messages: Iterator[StoredMessage]) -> int:
        """Return the sequence of the first of these messages. It is the same for all consumers of this kind."""
        key = target, kind
        if key not in self._firsts:
            self._firsts[key] = next((message[0] for message in messages), BEHIND_ALL)
        return self._firsts[key]

    def _first_returned(self, target: TargetList) -> int:
        first = self._returned.get(target)
        if first is None:
            first = self._returned[target] = self._first_free(target.lane, target.returned)
        return first

    def _has_free_behind(self, target: TargetList) -> bool:
        has_more = self._free_behind.get(target)
        if has_more is None:
            behind = [(target.frontier, target.lane.published_end - 1)]
            has_more = any(self._first_free(target.lane, runs) < BEHIND_ALL for runs in (target.references, behind))
            self._free_behind[target] = has_more
        return has_more

    def _can_be_had(self, lane: LaneState, sequence: int) -> bool:
        """Return whether the message can be delivered now. Requires: the lock."""
        return lane.is_free(sequence) and not self._is_late(lane, sequence)

    def _first_free(self, lane: LaneState, runs: Iterable[tuple[int, int]]) -> int:
        """Return the first sequence of runs that can be handed out, or BEHIND_ALL. O(those before it)."""
        for at, last in runs:
            while at <= last and (found := lane.pending_lane.ready_run(at, BLOCK_MESSAGES)) is not None:
                for sequence in range(found[0], min(found[1], last) + 1):
                    if self._can_be_had(lane, sequence):
                        return sequence
                at = found[1] + 1
        return BEHIND_ALL

    def _is_late(self, lane: LaneState, sequence: int) -> bool:
        """Return whether the message has expired."""
        return lane.is_timed and 0 < lane.pending_lane.times_of(sequence).expires_at <= self._now_ms()


def _in_turn(lists: Iterable[TargetList]) -> Iterator[TargetList]:
    """Return the lists in the order in which a hand-out looks at them."""
    for target in lists:
        if target.counterpart is None:
            yield target
        elif target.lane.is_persistent:
            first = next_by_arrival(target)[0]
            yield first
            yield target if first is not target else target.counterpart
