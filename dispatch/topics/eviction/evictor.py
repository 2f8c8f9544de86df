"""Eviction: remove messages of a slow subscriber of a topic, so that it holds no unbounded memory or disk.

It applies only to subscriptions without a name, because a named one must miss nothing. Only waiting messages count;
deliveries in flight stay. The journal has no record of an eviction, because it has none of a subscription without a
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ....store.index.topic_lane import NO_RECORD
from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...config.policy import Eviction
from ...core.model.destination import LaneState
from ...core.model.non_persistent_lane_state import NonPersistentLaneState
from ...core.redelivery.removal import Removals
from .arrival_order import ArrivalOrder, Run
from .latest_per_key import KeyMemory, LatestPerKey, Place, key_of
from ..state.selector_matches import SelectorMatches
from ..state.subscription_state import EvictionRule, SubscriptionLaneState, SubscriptionState

SLACK: Final = 8
"""Evictions are batched: they begin once the messages above the limit are more than 1/SLACK of the limit."""


class Evictor(EvictionRule):
    """The eviction rule of one topic. The state lock guards it."""

    def __init__(
        self, removals: Removals, max_messages: int, eviction: Eviction, key_name: str, keys: KeyMemory
    ) -> None:
        """Make the rule of a topic.

        key_name: the header that is the key of a message, for "latest_per_key".
        """
        self._removals = removals
        self._keys = keys
        self._max_messages = max_messages
        self._eviction = eviction
        self._key_name = key_name

    def admitted(self, lane: SubscriptionLaneState, arriving: int) -> int:
        """Return how many of the messages that were just stored, and are not published yet, the subscriber may get."""
        return min(self._room(lane.subscription), arriving)

    def has_room(self, subscription: SubscriptionState) -> bool:
        """Return whether the subscriber may get one more non-persistent message."""
        return self._room(subscription) > 0

    def _room(self, subscription: SubscriptionState) -> int:
        if self._eviction != "newest" or subscription.misses_nothing:
            return UNLIMITED
        return max(self._max_messages - self._waiting(subscription), 0)

    def on_fan_out(self, lanes: Iterable[NonPersistentLaneState], message: StoredMessage) -> None:
        """Note the subscribers that have just got a non-persistent message."""
        key = key_of(self._key_name, message[1]) if self._eviction == "latest_per_key" else None
        for lane in lanes:
            subscription = lane.destination
            assert isinstance(subscription, SubscriptionState)
            if key is not None and not subscription.misses_nothing:
                self._note_key(key, subscription, (lane, message[0]))
            self.on_arrivals(subscription, lane, message[0], message[0])

    def _note_key(self, key: bytes, subscription: SubscriptionState, place: Place) -> None:
        if subscription.latest is None:
            subscription.latest = LatestPerKey(self._keys)
        subscription.latest.note(key, place)

    def note_keys(
        self,
        priority: int,
        lanes: Iterable[SubscriptionLaneState],
        messages: Sequence[StoredMessage],
        selector_matches: SelectorMatches,
    ) -> None:
        """Note the keys of arriving messages.

        For each subscriber that wants a message, it is now the newest of its key.
        """
        if self._eviction != "latest_per_key":
            return
        evicting = [lane for lane in lanes if not lane.subscription.misses_nothing]
        for message in messages:
            key = key_of(self._key_name, message[1])
            if key is None:
                continue
            selector_matches.begin(priority, message[0])
            try:
                for lane in evicting:
                    subscription, selector = lane.subscription, lane.subscription.selector
                    if selector is None or selector_matches.matches(selector, lane, message):
                        self._note_key(key, subscription, (lane, message[0]))
            finally:
                selector_matches.finish()

    def evict_unseen(self, lane: SubscriptionLaneState, first: int, last: int) -> None:
        """Remove messages that were just stored for a subscriber, which never sees them."""
        lane.subscription.topic.evicted += lane.subscription_lane.remove(first, last, NO_RECORD)
        lane.published_end = last + 1

    def limit(self, lane: SubscriptionLaneState, first: int, end: int, last: int) -> None:
        """Remove the messages first to last that were not admitted, and then evict what exceeds the limit."""
        if end <= last:
            self.evict_unseen(lane, end, last)
        self.on_arrivals(lane.subscription, lane, first, last)

    def on_arrivals(self, subscription: SubscriptionState, lane: LaneState, first: int, last: int) -> None:
        """Note messages that a subscriber has just got, and evict what exceeds the limit if it is enough to be worth
        it.
        """
        if subscription.misses_nothing or self._eviction == "newest":
            return
        if subscription.arrivals is None:
            subscription.arrivals = ArrivalOrder()
        subscription.arrivals.note(lane, first, last)
        excess = self._waiting(subscription) - self._max_messages
        if excess <= self._max_messages // SLACK:
            return
        gone: dict[LaneState, SequenceSet] = {}
        for victim, oldest, newest in self._candidates(subscription, subscription.arrivals):
            newest = min(newest, oldest + excess - 1)
            removed = victim.backing_store.acknowledge(victim.pending_lane, oldest, newest)
            gone.setdefault(victim, SequenceSet()).add(oldest, newest)
            subscription.topic.evicted += removed
            excess -= removed
            if excess <= 0:
                break
        for victim, runs in gone.items():
            self._removals.forget(victim, runs)

    def _candidates(self, subscription: SubscriptionState, arrivals: ArrivalOrder) -> Iterator[Run]:
        """Yield runs of waiting messages in the order in which they are evicted."""
        latest = subscription.latest
        while latest is not None and (older := latest.next_older()) is not None:
            yield *older, older[1]
        yield from arrivals.waiting(by_priority=self._eviction == "lowest_priority")

    def _waiting(self, subscription: SubscriptionState) -> int:
        """Return how many messages are published, not in flight, and in no open transaction."""
        for pending_lane in filter(None, subscription.subscriber.lanes):
            pending_lane.catch_up()
        waiting = subscription.depth
        for lane in subscription.all_lanes():
            unmatched = lane.unmatched.count if lane.unmatched is not None else 0
            held = len(lane.deliveries) + lane.parked.count
            waiting -= held + unmatched + lane.pending_lane.next_sequence - lane.published_end
        return waiting
