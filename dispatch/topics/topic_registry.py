"""TopicRegistry: all topics of a store. A topic is a row until it is used, and an object while it is open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...store.format.destination_table import DestinationTable
from ...store.format.state_record import TOPIC
from ...store.index.subscriptions import SUBSCRIBER_BYTES
from ...store.state.property_table import PropertyTable
from ...store.writers.destination_writer import DestinationWriter
from ..config.policies import Policies
from ..config.policy import matches
from ..core.destinations.destination_opener import DestinationOpener
from ..core.destinations.destination_registry import DestinationRegistry
from ..core.destinations.destination_state import DestinationState
from ..core.destinations.overhead import OPEN_SUBSCRIPTION_BYTES, OPEN_TOPIC_BYTES
from ..core.model.destination import CoreConsumer, DestinationStateParts
from ..core.monitor import Monitor
from ..core.redelivery.removal import Removals
from .eviction.evictor import Evictor
from .eviction.latest_per_key import KeyMemory
from .state.subscription_state import AbstractSubscriptionRegistry, SubscriptionState
from .state.topic_state import TopicState
from .subscriptions.patterns import PatternRegistry
from .topic_retention import TopicRetention


class TopicMaker:
    """Makes the state of a topic when the topic is opened."""

    def __init__(
        self,
        *,
        destination_state_parts: DestinationStateParts,
        subscription_registry: AbstractSubscriptionRegistry,
        properties: PropertyTable,
        removals: Removals,
        policies: Policies,
        keys: KeyMemory,
    ) -> None:
        """properties: the host properties, among which the retained messages are.
        keys: pays for the places that "latest_per_key" remembers.
        """
        self._destination_state_parts = destination_state_parts
        self._subscription_registry = subscription_registry
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
            self._destination_state_parts,
            number,
            name,
            evictor,
            self._subscription_registry,
            self._properties,
        )


class TopicRegistry(DestinationRegistry[TopicState]):
    """All topics by name and number. The state lock guards it."""

    kind = TOPIC
    open_bytes = OPEN_TOPIC_BYTES

    def __init__(
        self,
        monitor: Monitor,
        writer: DestinationWriter,
        rows: DestinationTable,
        opener: DestinationOpener,
        *,
        maker: TopicMaker,
        patterns: PatternRegistry,
        retention: TopicRetention,
    ) -> None:
        """patterns: those that match a new topic get its messages. retention: says which topics keep messages."""
        super().__init__(monitor, writer, rows, opener)
        self._maker = maker
        self._patterns = patterns
        self._retention = retention

    def _make(self, number: int, name: str) -> TopicState:
        return self._maker.make(number, name)

    def create(self, name: str, *, is_temporary: bool = False) -> TopicState:
        """Record a new topic, which is not synced yet, and return its open state. Requires: the lock. StoreFull.

        Patterns that match the topic get its messages, unless the topic is temporary.
        """
        patterns = [] if is_temporary else self._patterns.matching(name)
        joining_bytes = (SUBSCRIBER_BYTES + OPEN_SUBSCRIPTION_BYTES) * len(patterns)
        with self._opener.new_row(name, self.open_bytes, joining_bytes):
            made = self._writer.create(name, TOPIC, is_temporary=is_temporary)
            topic = self._add(made.number, name)
            for pattern in patterns:
                self._patterns.join(pattern, topic)
        self._retention.apply(topic)
        return topic

    def restore(self, used: set[int]) -> None:
        """Open the topics that are in use after an open of the store. used: their numbers. Requires: the lock."""
        for known in self._rows.values():
            if known.kind == TOPIC and (known.number in used or self._retention.retains(known.name)):
                self._add(known.number, known.name)

    def remove(self, deleted: TopicState) -> None:
        """Forget a deleted topic, and how long it would keep messages. Requires: the lock."""
        super().remove(deleted)
        self._retention.forget(deleted)

    @contextmanager
    def held_matching(self, pattern: str) -> Iterator[list[TopicState]]:
        """Open all topics that a pattern matches, except temporary ones, and keep them open in the block. StoreFull.

        Requires: the lock.
        """
        held: list[TopicState] = []
        try:
            for name, number in zip(self.names(), self.numbers(), strict=True):
                if matches(pattern, name) and not self._rows[number].is_temporary:
                    held.append(self.open_numbered(number))
                    held[-1].calls_under_way += 1
            yield held
        finally:
            for topic in held:
                topic.calls_under_way -= 1

    # ------------------------------------------------------------------ who reads them

    def online(self) -> Iterator[SubscriptionState]:
        """Yield every subscription that has a consumer."""
        return (subscription for topic in self.by_name.values() for subscription in topic.online)

    def consumers(self) -> Iterator[CoreConsumer]:
        """Yield the consumers of all subscriptions and patterns, each once."""
        queues: tuple[DestinationState, ...] = (*self._patterns.all(), *self.online())
        return iter(dict.fromkeys(consumer for queue in queues for consumer in queue.consumers()))

    @property
    def keys_charge(self) -> int:
        """What the places of "latest_per_key" should be charged, computed anew. Requires: the lock."""
        evictors = (topic.evictor for topic in self.by_name.values())
        return sum(evictor.keys_charge_bytes for evictor in evictors if evictor is not None)
