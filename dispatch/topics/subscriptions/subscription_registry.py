"""SubscriptionRegistry: begin a subscription, bring it online and offline, and end it.

The state of a topic holds its subscriptions; the registry says when they come and go. A subscription without a name has
no records, so a crash ends it. For a durable subscription, the store keeps its place and its acks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....cache.messages.message_memory import MessageMemory
from ....store.environment.late_log import LateLogger
from ....store.errors import SelectorError
from ....store.index.subscriptions import Subscriber, Subscriptions
from ....store.writers.subscription_writer import SubscriptionWriter
from ...core.areas.list_registry import ListRegistry
from ...core.monitor import Monitor
from ...core.redelivery.removal import Removals
from ...core.redelivery.timed_lanes import TimedLanes
from ...selectors.selector import compile_selector
from ..state.selector_matches import SelectorMatches
from ..state.subscription_state import AbstractSubscriptionRegistry, SubscriptionState
from ..state.topic_state import TopicState
from .unmatched import UnmatchedAcker
from .unrecorded import UnrecordedStore

logger = LateLogger("forebay.dispatch")

FORGOTTEN_AT_ONCE: Final = 500
"""Subscriptions that the caches forget before the state lock is released, which takes half a millisecond."""
ACKER_STEPS: Final = 16
"""Steps of the UnmatchedAcker in one call. More would make other tasks of the housekeeper late."""


class SubscriptionRegistry(AbstractSubscriptionRegistry):
    """Begins and ends subscriptions in dispatch. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        subscribers: Subscriptions,
        writer: SubscriptionWriter,
        removals: Removals,
        timed: TimedLanes,
        list_registry: ListRegistry,
        unrecorded: UnrecordedStore,
        unmatched_acker: UnmatchedAcker,
    ) -> None:
        """subscribers: the store's part of each subscription.
        unrecorded: settles messages whose acks are in no record.
        """
        self._monitor = monitor
        self.subscribers = subscribers
        self._writer = writer
        self._removals = removals
        self._timed = timed
        self._unmatched_acker = unmatched_acker
        self.list_registry = list_registry
        self.unrecorded = unrecorded
        self.selector_matches = SelectorMatches()
        # Subscriptions of deleted topics that the caches still have to forget.
        self._cached: list[tuple[MessageMemory, Subscriber]] = []

    def topics_at_open(self) -> set[int]:
        """Return the numbers of topics that have a subscription after an open of the store. Requires: the lock."""
        return {facts.topic for facts in self.subscribers.encoded()}

    def restore(self, topics: Mapping[int, TopicState]) -> None:
        """Begin to examine messages for the subscriptions with a selector that opening the store found.

        topics: all topics with a subscription, by number. Requires: the lock.
        """
        for facts in self.subscribers.encoded():
            if facts.selector is not None:
                self._restore(topics[facts.topic], facts.number, facts.selector)

    def _restore(self, topic: TopicState, subscription_number: int, text: str) -> None:
        subscriber = self.subscribers.open_numbered(subscription_number)
        assert subscriber is not None
        try:
            self.begin(SubscriptionState(topic, subscriber, compile_selector(text)))
        except SelectorError as error:
            logger.error(
                "the selector of subscription %r can't be used: %s",
                subscriber.facts.name,
                error,
                event="subscription_selector_unusable",
            )

    def begin(self, subscription: SubscriptionState) -> None:
        """Begin a subscription in dispatch. If it has a selector, the UnmatchedAcker works for it from now on.

        Requires: the lock.
        """
        if subscription.selector is not None:
            if subscription.is_durable:
                subscription.topic.keep(subscription)
            self._unmatched_acker.add(subscription)

    def go_online(self, subscription: SubscriptionState, *, is_shared: bool) -> None:
        """Give a subscription the messages that arrive, because its first consumer comes. Requires: the lock."""
        subscription.begin_reading(is_shared=is_shared)
        subscription.topic.take_online(subscription)
        for _ in subscription.open_lanes():
            pass
        if subscription.is_durable:
            subscription.topic.keep(subscription)

    def go_offline(self, subscription: SubscriptionState) -> None:
        """Take a subscription offline, because its last consumer is closed. End it if it has no name."""
        subscription.topic.take_offline(subscription)
        if subscription.is_durable and subscription.is_blank:
            self._drop_non_persistent(subscription)
            subscription.note_unused()
            subscription.topic.drop_kept(subscription.subscriber.facts.name)
            self.shrink_to_row(subscription)
        if not subscription.is_durable:
            self._writer.unsubscribe(subscription.subscriber)
            self.forget(subscription)
            subscription.mark_deleted()
            subscription.clear()

    def shrink_to_row(self, subscription: SubscriptionState) -> None:
        """Reduce an unused durable subscription to its rows, if the store has nothing more of it in RAM.

        Requires: the lock.
        """
        if subscription.subscriber.facts.name in subscription.topic.kept:
            return
        subscription.discard_cached_lanes()
        self.subscribers.shrink_to_row(subscription.number)

    def move(self, subscription: SubscriptionState) -> None:
        """Forget the persistent lanes of a subscription, because its cursor has moved.

        Requires: the lock, and that the subscription has no consumer.
        """
        for lane in filter(None, subscription.lanes):
            self._removals.empty_lane(lane)
            lane.memory.head_queue_cache.reopen(lane.pending_lane.number)
        subscription.drop_persistent_lanes()
        if subscription.limits is not None:
            subscription.limits.on_room_freed()

    def forget(self, subscription: SubscriptionState) -> None:
        """Forget a subscription that the store has ended, and drop its messages. Requires: the lock."""
        self._unmatched_acker.forget(subscription)
        self._drop_non_persistent(subscription)
        subscription.discard_cached()
        if subscription.limits is not None:
            subscription.limits.on_room_freed()

    def delete(self, subscription: SubscriptionState) -> None:
        """End a subscription of a deleted topic, and its consumer. Requires: the lock."""
        subscription.mark_deleted()
        lanes = [lane for lane in subscription.lanes if lane is not None]
        subscription.close_consumers()
        if subscription.is_durable:
            self.forget(subscription)
        for lane in lanes:
            self._removals.empty_lane(lane)
        subscription.clear()

    def _drop_non_persistent(self, subscription: SubscriptionState) -> None:
        """Drop the non-persistent messages of a subscription, and their files. Requires: the lock."""
        for priority, lane in enumerate(subscription.non_persistent_lanes):
            if lane is not None:
                self._removals.empty_lane(lane)
                subscription.put_non_persistent_lane(priority, None)
        self._timed.forget(subscription)

    # ------------------------------------------------------------------ subscriptions of deleted topics

    def unread(self, numbers: list[int], kept: set[int]) -> list[Subscriber]:
        """Return the durable subscriptions among these numbers that are open in the store but unknown to dispatch.

        kept: the numbers that dispatch knows. Requires: the lock.
        """
        known = self.subscribers.by_number
        return [known[number] for number in numbers if number in known and number not in kept]

    def forget_later(self, memory: MessageMemory, unread: list[Subscriber]) -> None:
        """Note subscriptions that the caches must forget, because their topic is deleted. Requires: the lock."""
        self._cached += [(memory, subscriber) for subscriber in unread]

    def forget_some(self) -> bool:
        """Let the caches forget some hundred subscriptions of deleted topics; return whether there are more.

        Requires: no lock.
        """
        with self._monitor.lock, self._monitor.all_or_broken:
            for memory, subscriber in self._cached[-FORGOTTEN_AT_ONCE:]:
                for pending_lane in filter(None, subscriber.lanes):
                    memory.pending_cache.discard_lane(pending_lane.number)
                    memory.head_queue_cache.discard_lane(pending_lane.number)
            del self._cached[-FORGOTTEN_AT_ONCE:]
            return bool(self._cached)

    def step(self) -> bool:
        """Let caches forget deleted subscriptions; acknowledge unmatched messages. Return whether more is left.

        Requires: no lock.
        """
        has_more = bool(self._cached) and self.forget_some()  # there are some if a deletion was interrupted
        return all(self._unmatched_acker.step() for _ in range(ACKER_STEPS)) or has_more
