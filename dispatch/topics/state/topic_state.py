"""TopicState: one topic as dispatch sees it. Its lanes give stored messages to its subscriptions.

`subscription_state` has the part of a topic that subscriptions use, `fan_out` the way of non-persistent messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar

from ....store.format.state_record import TOPIC
from ....store.index.backlog_sets import SUBSCRIPTION_LANE_BYTES
from ....store.index.destination_lane import DestinationLane
from ....store.index.subscription_table import CURSOR_BYTES
from ....store.index.subscriptions import Subscriber
from ....store.index.topic_lane import TopicLane
from ....store.message_store import MessageStore
from ....store.state.property_table import PropertyTable
from ....store.stored_message import StoredMessage
from ...core.destinations.overhead import FAN_OUT_BYTES
from ...core.lanes.persistent_lane_state import PersistentLaneState
from ...core.model.counting import EarlierCounts
from ...core.model.destination import LANE_STATE_BYTES, DestinationStateParts, LaneState
from ...core.model.lifecycle import Lifecycle
from .fan_out import FanOut
from .subscription_state import (
    AbstractSubscriptionRegistry,
    EvictionRule,
    SubscribedTopicState,
    SubscriptionLaneState,
    SubscriptionState,
)


class TopicState(SubscribedTopicState):
    """Dispatch's state of a topic. Its lanes have no lists, because consumers take from subscriptions.

    The state lock guards it.
    """

    __slots__ = ("properties", "fan_outs", "wants_retention")

    noun = "topic"
    kind = TOPIC
    drops_oldest = False
    has_lists = False
    keeps_message_groups = False

    def __init__(
        self,
        parts: DestinationStateParts,
        number: int,
        name: str,
        evictor: EvictionRule | None,
        subscription_registry: AbstractSubscriptionRegistry,
        properties: PropertyTable,
    ) -> None:
        """Make the state of a topic without messages.

        evictor, subscription_registry: as in SubscribedTopicState.
        properties: the host properties, among which the retained messages are.
        """
        super().__init__(parts, number, name, evictor, subscription_registry)
        self.properties = properties
        # By priority, if non-persistent messages were sent in it.
        self.fan_outs: dict[int, FanOut] = {}
        # Whether the policy keeps messages that no subscription needs.
        self.wants_retention = False

    @property
    def retention(self) -> Subscriber | None:
        """The store's entry for what the policy keeps. None: it keeps nothing beyond all acks."""
        return self.subscribers.retention(self.number)

    @property
    def retention_depth(self) -> tuple[int, int]:
        """Number and bytes of the messages that the policy keeps, including those that subscriptions need too."""
        retention = self.retention
        depths = [kept.depth for kept in retention.lanes if kept is not None] if retention is not None else []
        return sum(depth[0] for depth in depths), sum(depth[1] for depth in depths)

    def stored_lanes(self) -> list[TopicLane]:
        """Return the topic's lanes in the store, by priority. Requires: the lock."""
        return self.subscribers.topic_lanes(self.number)

    def catch_up(self) -> None:
        """Free some of the messages that no subscription needs. The next checkpoint frees the rest. O(a few blocks)."""
        self.subscribers.remove_unneeded_part()

    def qualified_names(self) -> list[str]:
        """Return the names of the topic and of its durable subscriptions."""
        own_name = self.qualified_name
        return [own_name, *(f"{own_name}/{name}" for name in self.durable_names)]

    @property
    def lists_per_lane(self) -> int:
        """Number of lists that a new lane needs: one for each online subscription."""
        return len(self.online)

    @property
    def first_lists(self) -> int:
        """How many lists of a new lane would be the first of their selector group."""
        return sum(subscription.first_lists for subscription in self.online)

    @property
    def lane_bytes(self) -> int:
        """Charge of one more lane, with its part in each subscription."""
        opened_bytes = (SUBSCRIPTION_LANE_BYTES + LANE_STATE_BYTES) * len(self.online)
        return super().lane_bytes + opened_bytes + CURSOR_BYTES * self.durable_count

    @property
    def is_unused(self) -> bool:
        """Whether nobody uses the topic, so that it may be deleted as inactive.

        Four things are a use: a call under way, a subscription that is durable or online, a message that the policy
        keeps, and a retained message. Nobody needs any other message in the topic's lanes: it waits for a checkpoint.
        """
        has_message = len(self.properties.retained(self.number)) > 0
        return not (self.durable_count or self.online or self.retention_depth[0] or has_message or self.calls_under_way)

    @property
    def is_idle(self) -> bool:
        """Whether the topic could be closed: it has no subscription, and its policy wants no retention."""
        is_needed = self.durable_count or self.online or self.kept or self.wants_retention
        return not is_needed and self.retention is None and super().is_idle

    @property
    def counts_to_keep(self) -> EarlierCounts:
        """The counts, including non-persistent messages sent. O(lanes)."""
        return super().counts_to_keep._replace(enqueued=self.enqueued, enqueued_bytes=self.enqueued_bytes)

    def pools(self) -> Iterable[tuple[int, int]]:
        """Return number and next sequence of each pool in which subscriptions share non-persistent messages."""
        return [(fan_out.pool_number, fan_out.next_sequence) for fan_out in self.fan_outs.values()]

    def want_retention(self, *, is_wanted: bool) -> None:
        """Note whether the policy keeps messages that no subscription needs."""
        self.wants_retention = is_wanted

    def add_fan_out(self, fan_out: FanOut) -> None:
        """Give the non-persistent messages of a priority to subscriptions through this FanOut from now on."""
        self.fan_outs[fan_out.priority] = fan_out

    def mark_deleted(self) -> None:
        """Mark the topic as deleted: a call that still has this object raises Closed."""
        self.lifecycle = Lifecycle.DELETED

    def clear(self) -> None:
        """Forget the messages and subscriptions of a deleted or closed topic. Requires: the lock."""
        self.clear_lanes()
        self.release_part(FAN_OUT_BYTES * len(self.fan_outs))
        self.kept, self.fan_outs, self.online = {}, {}, {}

    @property
    def enqueued(self) -> int:
        return super().enqueued + sum(fan_out.sent for fan_out in self.fan_outs.values())

    @property
    def enqueued_bytes(self) -> int:
        """Content bytes of all messages sent, including those to which nobody had subscribed."""
        return super().enqueued_bytes + sum(fan_out.sent_bytes for fan_out in self.fan_outs.values())

    @property
    def depth(self) -> int:
        """Number of messages that any subscription needs. Of non-persistent ones, the slowest subscription counts.

        With a retention it is the depth of the subscription that lags most, because a message that only the retention
        needs looks like any other. O(subscriptions) then.
        """
        if self.wants_retention:
            return max((each.depth for each in self._everyone()), default=0)
        return super().depth + self._slowest(lambda lane: lane.pending_lane.pending_messages)

    @property
    def depth_bytes(self) -> int:
        if self.wants_retention:
            return max((each.depth_bytes for each in self._everyone()), default=0)
        return super().depth_bytes + self._slowest(lambda lane: lane.pending_lane.pending_bytes)

    def _everyone(self) -> Iterator[SubscriptionState]:
        yield from self.online
        yield from (each for each in self.durable_subscriptions() if each not in self.online)

    def _slowest(self, size: Callable[[LaneState], int]) -> int:
        """Return the size of the non-persistent lane of the slowest subscription, summed over the priorities in use."""
        subscriptions = self.open_subscriptions()
        lanes_of_fan_outs = (
            [lane for each in subscriptions if (lane := each.non_persistent_lanes[at])] for at in self.fan_outs
        )
        return sum(max(map(size, lanes), default=0) for lanes in lanes_of_fan_outs)

    def make_lane(self, priority: int, message_store: MessageStore) -> TopicLaneState:
        pending_lane = message_store.ensure_lane(self.number, priority)
        return TopicLaneState(self, pending_lane, message_store.id_prefix(self.number, priority))


class TopicLaneState(PersistentLaneState):
    """Dispatch's state of a lane of a topic. It passes messages of one priority on to the subscriptions."""

    __slots__ = ("topic",)
    joins_slices: ClassVar[bool] = False
    """A subscription may have begun between two slices, and the first slice is not for it."""

    def __init__(self, topic: TopicState, pending_lane: DestinationLane, id_prefix: str) -> None:
        super().__init__(topic, pending_lane, id_prefix)
        self.topic = topic

    def receiving_lanes(self) -> Iterator[LaneState]:
        """Yield this lane, and its part in each subscription that is online or has state in RAM."""
        yield self
        for subscription in self.topic.open_subscriptions():
            receiving = subscription.lanes[self.pending_lane.priority]
            if receiving is not None:
                yield receiving

    def all_receiving_lanes(self) -> list[LaneState]:
        """Return the receiving lanes, with those of durable subscriptions that have no state in RAM yet."""
        for name in self.topic.durable_names:
            subscription = self.topic.durable_subscription(name)
            if subscription is not None:
                self.topic.keep(subscription).lane_of(self)
        return list(self.receiving_lanes())

    def arrive(self, message: StoredMessage) -> None:
        """Give a message to each online subscription. O(online subscriptions)."""
        if self.topic.evictor is not None:
            self._arrive_evicting((message,), self.topic.evictor)
            return
        self.published_end = message[0] + 1
        self._arrive_in(message, self._online_lanes(message[0]))

    def _arrive_in(self, message: StoredMessage, lanes: Iterable[PersistentLaneState]) -> None:
        selector_matches = self.topic.selector_matches
        selector_matches.begin(self.priority, message[0])
        try:
            for lane in lanes:
                lane.arrive(message)
        finally:
            selector_matches.finish()

    def arrive_many(self, messages: Sequence[StoredMessage], charge: int | None = None) -> None:
        """Give messages to each online subscription, as one slice where possible. O(online subscriptions)."""
        if self.topic.evictor is not None:
            self._arrive_evicting(messages, self.topic.evictor)
            return
        self.published_end = messages[-1][0] + 1
        one_by_one: list[SubscriptionLaneState] = []
        for lane in self._online_lanes(messages[0][0]):
            if lane.sole_list is None:
                one_by_one.append(lane)
            else:
                lane.arrive_many(messages, charge)
        if one_by_one:
            for message in messages:
                self._arrive_in(message, one_by_one)

    def arrive_unloaded(self, end: int) -> None:
        """Publish the messages before `end`, which RAM does not have. O(online subscriptions)."""
        evictor = self.topic.evictor
        if evictor is not None:
            first, receiving = self.published_end, list(self._online_lanes(end - 1))
            self.published_end = end
            for lane in receiving:
                count = evictor.admitted(lane, end - first)
                if count:
                    lane.arrive_unloaded(first + count)
                evictor.limit(lane, first, first + count, end - 1)
            return
        self.published_end = end
        for lane in self._online_lanes(end - 1):
            lane.arrive_unloaded(end)

    def _arrive_evicting(self, messages: Sequence[StoredMessage], evictor: EvictionRule) -> None:
        """Give messages to the subscribers that the rule admits."""
        first, last = messages[0][0], messages[-1][0]
        # Before `published_end` changes, because a lane that a subscription opens here begins at it.
        receiving = list(self._online_lanes(first))
        self.published_end = last + 1
        evictor.note_keys(self.priority, receiving, messages, self.topic.selector_matches)
        admitted = [(lane, evictor.admitted(lane, len(messages))) for lane in receiving]
        for lane, count in admitted:
            if count and lane.sole_list is not None:
                lane.arrive_many(messages[:count])
        for at, message in enumerate(messages):
            one_by_one = [lane for lane, count in admitted if at < count and lane.sole_list is None]
            if one_by_one:
                self._arrive_in(message, one_by_one)
        for lane, count in admitted:
            evictor.limit(lane, first, first + count, last)

    def _online_lanes(self, sequence: int) -> Iterator[SubscriptionLaneState]:
        """Yield the lanes of subscriptions with a consumer that get a message.

        A subscription that was made after the message was stored does not get it.
        """
        for subscription in self.topic.online:
            lane = subscription.lane_of(self)
            if sequence >= lane.first_sequence:
                yield lane
