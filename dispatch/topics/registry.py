"""Topics: a part of the engine: all topics, who subscribes to them, and what is done for subscriptions unasked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ...cache.budget import Holder
from ...store.errors import SelectorError, SettingsError, SubscriptionInUse
from ...store.format.state import TOPIC
from ...store.index.subscriptions import Subscriber
from ..admission.limits import limit
from ..admission.overhead import SUBSCRIPTION_BYTES, TOPIC_BYTES
from ..config.policy import policy_for
from ..consumer.consumer import Consumer
from ..consumer.subscription_consumer import SubscriptionConsumer, UnrecordedConsumer
from ..selectors.selector import Selector, compile_selector
from .eviction import EvictingTopicState, Evictor
from .fan_out import FanOut, forget_volatile
from .state import SubscriptionState, TopicState
from .unmatched import UnmatchedSweeper

if TYPE_CHECKING:
    from ..engine.engine import Engine

logger = logging.getLogger("forebay.dispatch")

SIEVE_STEPS: Final = 16
"""At one go, so that what else the housekeeper does is not late."""


def _consumer_type(area: SubscriptionState) -> type[SubscriptionConsumer]:
    if area.admission is None:
        return SubscriptionConsumer if area.is_durable else UnrecordedConsumer
    from ..producer.limited_queue import LimitedSubscriptionConsumer, LimitedUnrecordedConsumer  # which knows topics

    return LimitedSubscriptionConsumer if area.is_durable else LimitedUnrecordedConsumer


class Topics:
    """See the module. The state lock guards it."""

    def __init__(self, engine: Engine, reading: Holder) -> None:
        """reading: pays for what the sweeper reads."""
        self._engine = engine
        self.unmatched_sweeper = UnmatchedSweeper(engine.targets, engine.store, reading)
        self.areas: dict[str, TopicState] = {}

    def restore(self) -> None:
        """Take over what opening found. REQUIRES: the lock."""
        store = self._engine.store
        by_number: dict[int, TopicState] = {}
        for destination in store.destinations.values():
            if destination.kind == TOPIC:
                by_number[destination.number] = self._add(destination.number, destination.name)
        for lane in list(store.index.lanes.values()):
            topic = by_number.get(lane.destination)
            if topic is not None:
                topic.areas[lane.priority] = topic.make_lane_area(lane.priority)
        for subscriber in store.subscriptions.by_number.values():
            text, selector = subscriber.facts.selector, None
            try:
                selector = compile_selector(text) if text is not None else None
            except SelectorError as error:
                logger.error("the selector of subscription %r can't be used: %s", subscriber.facts.name, error)
            self._add_subscription(by_number[subscriber.facts.topic], subscriber, selector)

    def topic_area(self, name: str) -> TopicState:
        """The topic of that name; a new one is recorded in the journal."""
        engine = self._engine
        engine.raise_closed()
        area = self.areas.get(name)
        if area is not None:
            return area
        with engine.lock:
            engine.raise_closed()
            area = self.areas.get(name)
            if area is None:
                with engine.overhead.one_more(TOPIC_BYTES):
                    area = self._add(engine.store.create_destination(name, TOPIC).number, name)
            position = engine.store.journal.end
        engine.after_write(position)
        return area

    def _add(self, number: int, name: str) -> TopicState:
        area = self.areas[name] = self._make(number, name)
        self._engine.windows.watch(area)
        limit(self._engine, area)
        return area

    def _make(self, number: int, name: str) -> TopicState:
        policy = policy_for(self._engine.settings.policies, name)
        if policy.subscriber_max_messages is None:
            return TopicState(self._engine.targets, number, name)
        area = EvictingTopicState(self._engine.targets, number, name)
        area.evictor = Evictor(self._engine, policy.subscriber_max_messages, policy.eviction, policy.eviction_key)
        return area

    def _add_subscription(
        self, topic: TopicState, subscriber: Subscriber, selector: Selector | None
    ) -> SubscriptionState:
        area = SubscriptionState(topic, subscriber, selector)
        if subscriber.is_durable:
            topic.durable[subscriber.facts.name] = subscriber
            if not area.is_blank:
                topic.kept[subscriber.facts.name] = area
        if selector is not None:
            self.unmatched_sweeper.subscriptions[area] = None
        return area

    # ------------------------------------------------------------------ subscribing

    def subscribe(
        self,
        topic: TopicState,
        name: str | None,
        selector: Selector | None,
        prefetch: int,
        on_ready: Callable[[], None] | None,
    ) -> Consumer:
        """name: of the durable subscription, which is made if it is not there; None: one that ends with its consumer.

        SubscriptionInUse; SettingsError for another selector than the subscription has.
        """
        engine = self._engine
        with engine.lock:
            engine.raise_closed()
            area = topic.durable_area(name) if name in topic.durable else None
            text = selector.text if selector is not None else None
            if area is None:
                with engine.overhead.one_more(SUBSCRIPTION_BYTES):
                    area = self._add_subscription(topic, engine.store.subscribe(topic.number, name, text), selector)
            elif area in topic.online:
                raise SubscriptionInUse(topic.name, area.subscriber.facts.name)
            elif text != area.subscriber.facts.selector:
                raise SettingsError(
                    f"subscription {name!r} of topic {topic.name!r} was made with another selector: "
                    "subscribe with that one, or unsubscribe first and lose its backlog"
                )
            for _ in area.open_lanes():
                pass
            topic.online.append(area)
            if name is not None:
                topic.kept[name] = area
            consumer = engine.attach(area, selector, prefetch, on_ready, _consumer_type(area))
            position = engine.store.journal.end
        engine.after_write(position)
        return consumer

    def unsubscribe(self, topic: TopicState, name: str) -> None:
        """End a durable subscription. SettingsError where there is none, SubscriptionInUse while it has a consumer."""
        engine = self._engine
        with engine.lock:
            engine.raise_closed()
            if name not in topic.durable:
                raise SettingsError(f"topic {topic.name!r} has no durable subscription {name!r}")
            area = topic.durable_area(name)
            if area in topic.online:
                raise SubscriptionInUse(topic.name, name)
            engine.store.unsubscribe(area.subscriber)
            del topic.durable[name]
            topic.kept.pop(name, None)
            self._forget(area)
            position = engine.store.journal.end
        engine.after_write(position)

    def fan_out(self, topic: TopicState, priority: int) -> FanOut:
        """Where non-persistent messages of that priority go. Made on first use."""
        with self._engine.lock:
            if priority not in topic.fan_outs:
                topic.fan_outs[priority] = FanOut(self._engine, topic, priority)
            return topic.fan_outs[priority]

    def leave(self, area: SubscriptionState) -> None:
        """The consumer of a subscription is closed. One that is not durable ends with it. REQUIRES: the lock."""
        area.topic.online.remove(area)
        if area.is_durable and area.is_blank:
            forget_volatile(self._engine, area)
            area.forget_heads()
            del area.topic.kept[area.subscriber.facts.name]
        if not area.is_durable:
            self._engine.store.unsubscribe(area.subscriber)
            self._forget(area)

    def _forget(self, area: SubscriptionState) -> None:
        self.unmatched_sweeper.subscriptions.pop(area, None)
        self._engine.overhead.one_less(SUBSCRIPTION_BYTES)
        forget_volatile(self._engine, area)
        area.forget()
        if area.admission is not None:
            area.admission.room_came()

    def consumers(self) -> Iterator[Consumer]:
        return (consumer for topic in self.areas.values() for area in topic.online for consumer in area.consumers())

    # ------------------------------------------------------------------ background

    def sift(self) -> bool:
        """Let the sweeper do some of what there is; whether there is more. REQUIRES: no lock."""
        return all(self.unmatched_sweeper.step() for _ in range(SIEVE_STEPS))
