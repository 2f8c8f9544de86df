"""Evictor: remove messages of a slow subscriber of a topic, so that it holds no unbounded memory or disk.

Eviction applies only to subscriptions without a name, because a durable subscription must miss nothing. Only waiting
messages count; deliveries in flight stay. An eviction has no record in the journal, because a subscription without a
name has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ....store.numbering import UNLIMITED
from ....store.stored_message import StoredMessage
from ....store.structures.sequence_set import SequenceSet
from ...config.policy import Eviction
from ...core.lanes.non_persistent_lane_state import NonPersistentLaneState
from ...core.model.destination import LaneState
from ...core.redelivery.removal import Removals
from ..state.selector_matches import SelectorMatches
from ..state.subscription_state import EvictionRule, SubscriptionLaneState, SubscriptionState
from .arrival_order import ArrivalOrder, Run
from .latest_per_key import KeyMemory, LatestPerKey, key_of

SLACK: Final = 8
"""Evictions are batched: they begin once the messages above the limit are more than 1/SLACK of the limit."""


class Evictor(EvictionRule):
    """The eviction rule of one topic, and what it remembers of each subscriber. The state lock guards it."""

    def __init__(
        self, removals: Removals, max_messages: int, eviction: Eviction, key_name: str, keys: KeyMemory
    ) -> None:
        """Make the rule of a topic.

        key_name: the header that is the key of a message, for "latest_per_key".
        keys: pays for the keys that are remembered.
        """
        self._removals = removals
        self._keys = keys
        self._max_messages = max_messages
        self._eviction = eviction
        self._key_name = key_name
        # Both have only subscribers that may lose messages, from their first message on.
        self._arrival_orders: dict[SubscriptionState, ArrivalOrder] = {}
        self._latest: dict[SubscriptionState, LatestPerKey] = {}

    def arrival_order_of(self, subscription: SubscriptionState) -> ArrivalOrder:
        """Return in which order the messages of a subscriber arrived."""
        order = self._arrival_orders.get(subscription)
        if order is None:
            order = self._arrival_orders[subscription] = ArrivalOrder()
        return order

    def latest_of(self, subscription: SubscriptionState) -> LatestPerKey:
        """Return which of the messages of a subscriber is the latest of its key."""
        latest = self._latest.get(subscription)
        if latest is None:
            latest = self._latest[subscription] = LatestPerKey(self._keys)
        return latest

    def forget(self, subscription: SubscriptionState) -> None:
        """Forget a subscriber, because its subscription has ended."""
        self._arrival_orders.pop(subscription, None)
        latest = self._latest.pop(subscription, None)
        if latest is not None:
            latest.close()

    @property
    def keys_charge_bytes(self) -> int:
        """What the remembered keys should be charged, computed anew. O(subscribers)."""
        return sum(latest.charge_bytes for latest in self._latest.values())

    # ------------------------------------------------------------------ what a subscriber may get

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

    # ------------------------------------------------------------------ what a subscriber has got

    def on_fan_out(self, lanes: Iterable[NonPersistentLaneState], message: StoredMessage) -> None:
        """Note the subscribers that have just got a non-persistent message."""
        key = key_of(self._key_name, message[1]) if self._eviction == "latest_per_key" else None
        for lane in lanes:
            subscription = lane.destination
            assert isinstance(subscription, SubscriptionState)
            if key is not None and not subscription.misses_nothing:
                self.latest_of(subscription).note(key, (lane, message[0]))
            self._on_arrivals(subscription, lane, message[0], message[0])

    def note_keys(
        self,
        priority: int,
        lanes: Iterable[SubscriptionLaneState],
        messages: Sequence[StoredMessage],
        selector_matches: SelectorMatches,
    ) -> None:
        """Note the keys of arriving messages.

        Each message becomes the latest of its key for every subscriber whose selector it matches.
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
                    selector = lane.subscription.selector
                    if selector is None or selector_matches.matches(selector, lane, message):
                        self.latest_of(lane.subscription).note(key, (lane, message[0]))
            finally:
                selector_matches.finish()

    def limit(self, lane: SubscriptionLaneState, first: int, end: int, last: int) -> None:
        """Remove the messages `end` to `last`, which were not admitted. Then evict what exceeds the limit."""
        if end <= last:
            lane.subscription.topic.count_evicted(lane.remove_unseen(end, last))
        self._on_arrivals(lane.subscription, lane, first, last)

    # ------------------------------------------------------------------ eviction

    def _on_arrivals(self, subscription: SubscriptionState, lane: LaneState, first: int, last: int) -> None:
        """Note messages that a subscriber has just got. Evict what exceeds the limit, once that is worth the work."""
        if subscription.misses_nothing or self._eviction == "newest":
            return
        arrival_order = self.arrival_order_of(subscription)
        arrival_order.note(lane, first, last)
        excess = self._waiting(subscription) - self._max_messages
        if excess > self._max_messages // SLACK:
            self._evict(subscription, self._candidates(subscription, arrival_order), excess)

    def _evict(self, subscription: SubscriptionState, candidates: Iterable[Run], excess: int) -> None:
        """Remove waiting messages of a subscriber, run by run, until so many are gone."""
        gone: dict[LaneState, SequenceSet] = {}
        for victim, oldest, newest in candidates:
            newest = min(newest, oldest + excess - 1)
            removed = victim.backing_store.acknowledge(victim.pending_lane, oldest, newest)
            gone.setdefault(victim, SequenceSet()).add(oldest, newest)
            subscription.topic.count_evicted(removed)
            excess -= removed
            if excess <= 0:
                break
        for victim, runs in gone.items():
            self._removals.forget(victim, runs)

    def _candidates(self, subscription: SubscriptionState, arrival_order: ArrivalOrder) -> Iterator[Run]:
        """Yield runs of waiting messages in the order in which they are evicted."""
        latest = self._latest.get(subscription)
        while latest is not None and (older := latest.next_older()) is not None:
            yield *older, older[1]
        yield from arrival_order.waiting(by_priority=self._eviction == "lowest_priority")

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
