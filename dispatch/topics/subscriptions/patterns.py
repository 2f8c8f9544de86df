"""Wildcard subscriptions: one consumer of all topics that match a pattern, including topics that are made later.

A pattern has a subscription of each topic that matches: a PatternTopicState, which is to its topic like any other
subscription without a name. All subscriptions of a pattern share one selector group. So the one consumer takes from
lists over the lanes of many topics, with one prefetch and one wait, and arrivals, loads and acks need no special case.
`PatternDistribution` serves the topics of one priority in turns, so that a busy topic holds up no other topic. Nothing
of a pattern is in the journal; a crash ends it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....store.errors import SettingsError
from ....store.format.state_record import TOPIC
from ....store.index.subscriptions import Subscriber
from ....store.message_store import MessageStore
from ....store.writers.subscription_writer import SubscriptionWriter
from ...config.policy import matches
from ...core.areas.list_registry import ListRegistry
from ...core.destinations.destination_state import DestinationState, NamedDestinationState
from ...core.lanes.persistent_lane_state import PersistentLaneState
from ...core.model.destination import DestinationStateParts, LaneState, SelectorGroup
from ...distribution.pattern import PatternDistribution
from ...selectors.selector import Selector
from ..state.selector_matches import SelectorMatches, SubscriptionSelectorGroup
from ..state.subscription_state import SubscriptionState
from ..state.topic_state import TopicState
from .subscription_registry import SubscriptionRegistry


class PatternRegistry:
    """The patterns that have a consumer. The state lock guards it."""

    def __init__(
        self,
        list_registry: ListRegistry,
        destination_state_parts: DestinationStateParts,
        writer: SubscriptionWriter,
        subscription_registry: SubscriptionRegistry,
    ) -> None:
        self._list_registry = list_registry
        self._destination_state_parts = destination_state_parts
        self._writer = writer
        self._subscription_registry = subscription_registry
        self._selectors: dict[PatternState, Selector | None] = {}

    def make_state(self, pattern: str) -> PatternState:
        """Return a new state for a pattern, which refuses sends and may get a consumer."""
        return PatternState(self._destination_state_parts, pattern, self, self._subscription_registry.selector_matches)

    def add(self, pattern_state: PatternState, selector: Selector | None) -> None:
        """Let new topics join a pattern from now on, because the pattern has a consumer. Requires: the lock."""
        self._selectors[pattern_state] = selector

    def forget(self, pattern_state: PatternState) -> None:
        """Let no more topics join a pattern, because its consumer is closed. Requires: the lock."""
        del self._selectors[pattern_state]

    def all(self) -> list[PatternState]:
        """Return all patterns that have a consumer. Requires: the lock."""
        return list(self._selectors)

    def matching(self, name: str) -> list[PatternState]:
        """Return the patterns with a consumer that match the name of a topic. Requires: the lock."""
        return [pattern for pattern in self._selectors if matches(pattern.name, name)]

    def join(self, pattern_state: PatternState, topic: TopicState) -> None:
        """Give a pattern's consumer the messages that are sent to a topic from now on.

        Requires: the lock, and that the subscription is charged.
        """
        selector = self._selectors[pattern_state]
        text = selector.text if selector is not None else None
        subscriber = self._writer.subscribe(topic.number, None, text)
        subscription = PatternTopicState(topic, subscriber, selector, pattern_state)
        pattern_state.add_topic(subscription)
        self._subscription_registry.begin(subscription)
        self._subscription_registry.go_online(subscription, is_shared=False)
        self._list_registry.ensure_selector_group(subscription, selector)


class PatternState(NamedDestinationState):
    """Dispatch's state of a pattern: the destination from which its one consumer takes. `name` is the pattern.

    The state lock guards it.
    """

    __slots__ = ("registry", "topics", "pattern_distribution", "_has_limits", "_selector_matches")
    noun = "topic"
    kind = TOPIC
    keeps_message_groups = False
    spans_others = True

    def __init__(
        self, parts: DestinationStateParts, pattern: str, registry: PatternRegistry, selector_matches: SelectorMatches
    ) -> None:
        super().__init__(parts, 0, pattern)
        self.registry = registry
        self._selector_matches = selector_matches
        # The subscriptions of the pattern, by the number of their topic.
        self.topics: dict[int, PatternTopicState] = {}
        # Whether one of the topics ever had limits.
        self._has_limits = False
        assert isinstance(self.distribution, PatternDistribution)
        self.pattern_distribution = self.distribution

    def add_topic(self, subscription: PatternTopicState) -> None:
        """Add a topic. If it is the first with limits, the consumer's acks tell its senders from now on."""
        self.topics[subscription.topic.number] = subscription
        if subscription.is_limited and not self._has_limits:
            self._has_limits = True
            for consumer in self.consumers():
                consumer.follow_destination()

    @property
    def is_limited(self) -> bool:
        return self._has_limits

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        """Return the new selector group that all topics share."""
        return SubscriptionSelectorGroup(selector, self._selector_matches)

    @property
    def selector_group(self) -> SelectorGroup:
        """The selector group that all topics share."""
        (found,) = self.selector_groups.values()
        return found

    def make_lane(self, priority: int, message_store: MessageStore) -> PersistentLaneState:
        """Raise SettingsError: nothing can be sent to a pattern."""
        raise self._refusal()

    def raise_if_not_sendable(self) -> None:
        """Raise SettingsError, as `make_lane` does."""
        raise self._refusal()

    def _refusal(self) -> SettingsError:
        return SettingsError(f"{self.name!r} is a pattern, to which nothing can be sent: send to one topic by its name")

    def sources(self) -> Iterable[DestinationState]:
        """Return the states of the topics."""
        return self.topics.values()

    def all_lanes(self) -> Iterator[LaneState]:
        """Yield the lanes of all topics."""
        return (lane for topic in self.topics.values() for lane in topic.all_lanes())

    def on_consumer_closed(self) -> None:
        """End the subscription of each topic, because the consumer of the pattern has closed. Requires: the lock."""
        topics = list(self.topics.values())
        self.topics.clear()
        for topic in topics:
            topic.on_consumer_closed()
        self.registry.forget(self)

    @property
    def depth(self) -> int:
        return sum(topic.depth for topic in self.topics.values())

    @property
    def depth_bytes(self) -> int:
        return sum(topic.depth_bytes for topic in self.topics.values())


class PatternTopicState(SubscriptionState):
    """Dispatch's state of the subscription that a pattern has of one topic. The state lock guards it."""

    __slots__ = ("pattern",)

    def __init__(
        self, topic: TopicState, subscriber: Subscriber, selector: Selector | None, pattern: PatternState
    ) -> None:
        super().__init__(topic, subscriber, selector)
        self.pattern = pattern

    def make_selector_group(self, selector: Selector | None) -> SelectorGroup:
        """Return the selector group of the pattern."""
        return self.pattern.selector_group

    def close_consumers(self) -> None:
        """Drop the topic's deliveries in flight, because the topic is deleted. The consumer of the pattern goes on."""
        if self.pattern.topics.pop(self.topic.number, None) is not None:
            self.pattern.pattern_distribution.remove_topic(self, self.pattern.selector_group)
            self.on_consumer_closed()
