"""NumberedLanes: find a lane of a queue, a topic or a subscription by its number, as records name it."""

from __future__ import annotations

from ...store.index.subscriptions import Subscriptions
from ...store.numbering import LANE_MASK, LANE_SHIFT, NON_PERSISTENT
from ..core.destinations.destination_lanes import DestinationLanes
from ..core.destinations.queue_registry import QueueRegistry
from ..core.lanes.persistent_lane_state import PersistentLaneState
from ..core.model.destination import LaneState
from .state.subscription_state import SubscriptionState
from .topic_registry import TopicRegistry


class NumberedLanes:
    """Finds lanes by number. Every method requires the state lock."""

    def __init__(
        self, queues: QueueRegistry, topics: TopicRegistry, lanes: DestinationLanes, subscribers: Subscriptions
    ) -> None:
        """subscribers: what the store has of each subscription."""
        self._queues = queues
        self._topics = topics
        self._lanes = lanes
        self._subscribers = subscribers

    def ensure(self, lane_number: int) -> PersistentLaneState:
        """Return the lane with a number in a queue, topic or durable subscription, opened if needed. StoreFull."""
        priority, owner = lane_number & LANE_MASK, lane_number >> LANE_SHIFT
        if self._queues.has(owner):
            return self._lanes.ensure(self._queues.open_numbered(owner), priority)
        subscriber = self._subscribers.open_numbered(owner)
        topic = self._topics.open_numbered(owner if subscriber is None else subscriber.facts.topic)
        lane = self._lanes.ensure(topic, priority)
        if subscriber is None:
            return lane
        subscription = topic.durable_subscription(subscriber.facts.name)
        assert subscription is not None
        return topic.keep(subscription).lane_of(lane)

    def find(self, lane_number: int) -> LaneState | None:
        """Return the lane with a number in a queue or subscription. None: it is not open."""
        owner = (lane_number & ~NON_PERSISTENT) >> LANE_SHIFT
        destination = self._queues.by_number.get(owner) or self._subscription(owner)
        if destination is None:
            return None
        priority = lane_number & LANE_MASK
        if lane_number & NON_PERSISTENT:
            return destination.non_persistent_lanes[priority]
        return destination.lanes[priority]

    def _subscription(self, subscription_number: int) -> SubscriptionState | None:
        """Return the subscription of a number if it is online or has state in RAM. O(subscriptions of its topic)."""
        subscriber = self._subscribers.by_number.get(subscription_number)
        topic = None if subscriber is None else self._topics.by_number.get(subscriber.facts.topic)
        subscriptions = () if topic is None else topic.open_subscriptions()
        return next((each for each in subscriptions if each.number == subscription_number), None)
