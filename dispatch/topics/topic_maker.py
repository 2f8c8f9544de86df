"""TopicMaker: make the state of one topic, with the rule by which its slow subscribers lose messages."""

from __future__ import annotations

from ...store.index.subscriptions import Subscriptions
from ...store.state.property_table import PropertyTable
from ..config.policies import Policies
from ..core.areas.target_area import TargetArea
from ..core.settling.removal import Removals
from .latest_keys import KeyMemory
from .retention.eviction import Evictor
from .state import SubscriptionRegistry, TopicState


class TopicMaker:
    """Makes the state of a topic when the topic is opened."""

    def __init__(
        self,
        *,
        target_area: TargetArea,
        subscribers: Subscriptions,
        subscriptions: SubscriptionRegistry,
        properties: PropertyTable,
        removals: Removals,
        policies: Policies,
        keys: KeyMemory,
    ) -> None:
        """Make the one TopicMaker of a store.

        subscribers: what the store has of each subscription.
        properties: the host properties, among which the retained messages are.

        keys: pays for the places that "latest_per_key" remembers.
        """
        self._target_area = target_area
        self._subscribers = subscribers
        self._subscriptions = subscriptions
        self._properties = properties
        self._removals = removals
        self._policies = policies
        self._keys = keys

    def make(self, number: int, name: str) -> TopicState:
        """Return a new state of an existing topic. Requires: the lock."""
        policy, evictor = self._policies.of(name), None
        if policy.subscriber_max_messages is not None:
            most, eviction, key_name = policy.subscriber_max_messages, policy.eviction, policy.eviction_key
            evictor = Evictor(self._removals, most, eviction, key_name, self._keys)
        return TopicState(
            self._target_area, number, name, self._subscribers, evictor, self._subscriptions, self._properties
        )
