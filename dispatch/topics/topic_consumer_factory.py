"""TopicConsumerFactory: make the consumers of topics, and the subscriptions that they read."""

from __future__ import annotations

from ...store.errors import ForebayError, SettingsError, SubscriptionInUse
from ...store.writers.subscription_writer import SubscriptionWriter
from ..consumer.consumer import Consumer
from ..consumer.consumer_factory import ConsumerFactory
from ..consumer.options import ConsumerOptions
from ..core.confirmer import Confirmer
from ..core.monitor import Monitor
from ..selectors.selector import Selector
from .retained_messages import RetainedMessages
from .state.subscription_state import SubscriptionState
from .state.topic_state import TopicState
from .subscriptions.cursors import SeekTarget, within
from .subscriptions.patterns import PatternRegistry
from .subscriptions.subscription_admin import SubscriptionAdmin
from .subscriptions.subscription_registry import SubscriptionRegistry
from .topic_registry import TopicRegistry


class TopicConsumerFactory:
    """Makes the consumers of topics: of a subscription, a pattern, or a reader. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        writer: SubscriptionWriter,
        confirmer: Confirmer,
        consumers: ConsumerFactory,
        topics: TopicRegistry,
        subscription_registry: SubscriptionRegistry,
        patterns: PatternRegistry,
        retained_messages: RetainedMessages,
        admin: SubscriptionAdmin,
    ) -> None:
        self._monitor = monitor
        self._writer = writer
        self._confirmer = confirmer
        self._consumers = consumers
        self._topics = topics
        self._subscription_registry = subscription_registry
        self._patterns = patterns
        self._retained_messages = retained_messages
        self._admin = admin

    def subscribe(
        self, topic: TopicState, name: str | None, options: ConsumerOptions, *, is_shared: bool = False
    ) -> Consumer:
        """Make a consumer of a subscription.

        name: names a durable subscription, which is made if it does not exist; None: the subscription ends with its
            consumer.
        Raises SubscriptionInUse, and SettingsError for another selector than the subscription has.
        """
        with self._monitor.lock, self._monitor.while_open, self._consumers.reserving(options):
            topic.raise_if_not_open()
            known = topic.subscription_for_report(name) if name is not None else None
            if known is not None:
                _require_joinable(known, _text(options.selector), is_shared=is_shared)
            if known is None or known not in topic.online:
                self._consumers.require_room((topic,), options)
            subscription = topic.durable_subscription(name) if known is not None and name is not None else None
            is_new = subscription is None
            if subscription is None:
                subscription = self._new_subscription(topic, name, options.selector)
            try:
                consumer = self._attach(subscription, options, is_shared=is_shared)
            except ForebayError:
                if is_new and name is not None:
                    self._admin.remove(topic, name)  # under this hold of the lock, before another consumer comes
                raise
            refused = self._retained_messages.give(((topic, subscription),)) if is_new else None
            if refused is not None:
                consumer.withdraw()
                if name is not None:
                    self._admin.remove(topic, name)  # under this hold of the lock, as above
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        if refused is not None:
            raise refused
        return consumer

    def _attach(self, subscription: SubscriptionState, options: ConsumerOptions, *, is_shared: bool) -> Consumer:
        """Make a consumer of a subscription, and bring it online if this is its first one. Requires: the lock.

        StoreFull: memory has no room for the consumer. The subscription is then as if this consumer had closed.
        """
        if subscription not in subscription.topic.online:
            self._subscription_registry.go_online(subscription, is_shared=is_shared)
        try:
            return self._consumers.attach(subscription, options)
        except ForebayError:
            subscription.on_consumer_closed()
            raise

    def _new_subscription(self, topic: TopicState, name: str | None, selector: Selector | None) -> SubscriptionState:
        """Record a subscription, which is not synced yet. Requires: the lock."""
        subscriber = self._writer.subscribe(topic.number, name, _text(selector))
        subscription = SubscriptionState(topic, subscriber, selector)
        self._subscription_registry.begin(subscription)
        return subscription

    def read(self, topic: TopicState, target: SeekTarget, options: ConsumerOptions) -> Consumer:
        """Return a consumer of a new subscription without a name that begins at a place. Requires: no lock."""
        topic_lanes, firsts = self._admin.places(topic, target)
        with self._monitor.lock, self._monitor.while_open, self._consumers.reserving(options):
            topic.raise_if_not_open()
            self._consumers.require_room((topic,), options)
            subscriber = self._writer.subscribe(topic.number, None, _text(options.selector))
            self._writer.seek(subscriber, within(firsts, topic_lanes))
            subscription = SubscriptionState(topic, subscriber, options.selector, is_reader=True)
            self._subscription_registry.begin(subscription)
            consumer = self._attach(subscription, options, is_shared=False)
            journal_end = self._confirmer.journal_end
        self._confirmer.confirm(journal_end)
        return consumer

    def subscribe_pattern(self, pattern: str, options: ConsumerOptions) -> Consumer:
        """Make a consumer of all topics that match a pattern, including topics that are made later."""
        with self._monitor.lock, self._monitor.while_open, self._consumers.reserving(options):
            with self._topics.held_matching(pattern) as topics:
                self._consumers.require_room(topics, options)
                pattern_state = self._patterns.make_state(pattern)
                consumer = self._consumers.attach(pattern_state, options)
                self._patterns.add(pattern_state, options.selector)
                for topic in topics:
                    self._patterns.join(pattern_state, topic)
            refused = self._retained_messages.give((topic, pattern_state.topics[topic.number]) for topic in topics)
        if refused is not None:
            consumer.close()
            raise refused
        self._monitor.run_deferred()
        return consumer


def _text(selector: Selector | None) -> str | None:
    return selector.text if selector is not None else None


def _require_joinable(subscription: SubscriptionState, text: str | None, *, is_shared: bool) -> None:
    """Raise SubscriptionInUse or SettingsError if a durable subscription can't have another consumer.

    text: the selector of the new consumer.
    """
    if subscription in subscription.topic.online and not (is_shared and subscription.is_shared):
        raise _in_use(subscription, is_shared=is_shared)
    facts = subscription.subscriber.facts
    if text != facts.selector:
        raise SettingsError(
            f"subscription {facts.name!r} of topic {subscription.topic.name!r} was made with another selector: "
            "subscribe with that one, or unsubscribe first and lose its backlog"
        )


def _in_use(subscription: SubscriptionState, *, is_shared: bool) -> SubscriptionInUse:
    """Return the error for a subscription that has a consumer and admits no other."""
    if subscription.is_shared:
        remedy = "they share it: subscribe with shared=True as they did, or close them first"
    elif is_shared:
        remedy = "it is that consumer's alone: close it first, and let all subscribe with shared=True"
    else:
        remedy = "close that one first, or let both subscribe with shared=True"
    return SubscriptionInUse(subscription.topic.name, subscription.subscriber.facts.name, remedy)
