"""TopicLayer: make the owners of topics and subscriptions, each after those that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from ...cache.accounting.budget import Holder
from ...cache.spill.overflow import Overflow
from ...store.directory_store import DirectoryStore
from ..consumer.consumer_factory import ConsumerFactory
from ..core.destinations.destination_lanes import DestinationLanes
from ..core.owners import CoreOwners
from ..transactions.transaction_registry import TransactionRegistry
from .eviction.latest_per_key import KeyMemory
from .fan_out_opener import FanOutOpener
from .numbered_lanes import NumberedLanes
from .retained_messages import RetainedMessages
from .subscriptions.patterns import PatternRegistry
from .subscriptions.subscription_admin import SubscriptionAdmin
from .subscriptions.subscription_registry import SubscriptionRegistry
from .subscriptions.unmatched import UnmatchedAcker
from .subscriptions.unrecorded import UnrecordedStore
from .topic_admin import TopicAdmin
from .topic_consumer_factory import TopicConsumerFactory
from .topic_registry import TopicMaker, TopicRegistry
from .topic_retention import TopicRetention


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayer:
    """The owners of topics in an open store. A class that needs only one owner takes that owner alone."""

    topics: TopicRegistry
    topic_admin: TopicAdmin
    numbered_lanes: NumberedLanes
    subscription_registry: SubscriptionRegistry
    unmatched_acker: UnmatchedAcker
    patterns: PatternRegistry
    retention: TopicRetention
    fan_out_opener: FanOutOpener
    retained_messages: RetainedMessages
    admin: SubscriptionAdmin
    consumers: TopicConsumerFactory

    def restore(self, lanes: DestinationLanes, used: set[int]) -> None:
        """Take over topics and subscriptions that opening the store found. Requires: the lock.

        used: numbers of topics that have messages, or messages in prepared transactions.
        """
        self.topics.restore(used | self.subscription_registry.topics_at_open())
        lanes.restore(self.topics.by_number)
        self.subscription_registry.restore(self.topics.by_number)


def make_topic_layer(
    core: CoreOwners,
    directory: DirectoryStore,
    *,
    overflow: Overflow,
    consumers: ConsumerFactory,
    transactions: TransactionRegistry,
    reading: Holder,
    keys: KeyMemory,
) -> TopicLayer:
    """Make all owners.

    directory: has the parts of the store that they use.
    reading: pays for messages that the UnmatchedAcker reads.
    keys: pays for the places that "latest_per_key" remembers.
    """
    unmatched_acker = UnmatchedAcker(core.monitor, directory.message_store, directory.subscription_writer, reading)
    subscription_registry = _make_subscription_registry(core, directory, unmatched_acker)
    patterns = PatternRegistry(
        core.list_registry, core.destination_state_parts, directory.subscription_writer, subscription_registry
    )
    retention = _make_retention(core, directory)
    topics = _make_topics(core, directory, subscription_registry, patterns, retention, keys)
    fan_out_opener = FanOutOpener(
        monitor=core.monitor,
        lanes=core.destinations.lanes,
        removals=core.removals,
        overflow=overflow,
        overhead=core.destinations.overhead,
    )
    retained_messages = _make_retained_messages(core, directory, fan_out_opener)
    admin = _make_admin(core, directory, transactions, subscription_registry)
    return TopicLayer(
        topics=topics,
        topic_admin=_make_topic_admin(core, directory, transactions, topics, subscription_registry),
        numbered_lanes=NumberedLanes(
            core.destinations.queues, topics, core.destinations.lanes, directory.subscriptions
        ),
        subscription_registry=subscription_registry,
        unmatched_acker=unmatched_acker,
        patterns=patterns,
        retention=retention,
        fan_out_opener=fan_out_opener,
        retained_messages=retained_messages,
        admin=admin,
        consumers=TopicConsumerFactory(
            monitor=core.monitor,
            writer=directory.subscription_writer,
            confirmer=core.confirmer,
            consumers=consumers,
            topics=topics,
            subscription_registry=subscription_registry,
            patterns=patterns,
            retained_messages=retained_messages,
            admin=admin,
        ),
    )


def _make_retention(core: CoreOwners, directory: DirectoryStore) -> TopicRetention:
    return TopicRetention(
        monitor=core.monitor,
        writer=directory.subscription_writer,
        trimmer=directory.cleanup.trimmer,
        policies=core.policies,
        overhead=core.destinations.overhead,
    )


def _make_topics(
    core: CoreOwners,
    directory: DirectoryStore,
    subscription_registry: SubscriptionRegistry,
    patterns: PatternRegistry,
    retention: TopicRetention,
    keys: KeyMemory,
) -> TopicRegistry:
    return TopicRegistry(
        core.monitor,
        directory.destination_writer,
        directory.destination_table,
        core.destinations.opener,
        maker=TopicMaker(
            destination_state_parts=core.destination_state_parts,
            subscription_registry=subscription_registry,
            properties=directory.host_properties,
            removals=core.removals,
            policies=core.policies,
            keys=keys,
        ),
        patterns=patterns,
        retention=retention,
    )


def _make_retained_messages(
    core: CoreOwners, directory: DirectoryStore, fan_out_opener: FanOutOpener
) -> RetainedMessages:
    return RetainedMessages(
        monitor=core.monitor,
        properties=directory.host_properties,
        writer=directory.property_writer,
        now_ms=directory.steady_clock.now_ms,
        confirmer=core.confirmer,
        fan_out_opener=fan_out_opener,
    )


def _make_admin(
    core: CoreOwners,
    directory: DirectoryStore,
    transactions: TransactionRegistry,
    subscription_registry: SubscriptionRegistry,
) -> SubscriptionAdmin:
    return SubscriptionAdmin(
        monitor=core.monitor,
        writer=directory.subscription_writer,
        time_search=directory.time_search,
        confirmer=core.confirmer,
        transactions=transactions,
        subscription_registry=subscription_registry,
    )


def _make_topic_admin(
    core: CoreOwners,
    directory: DirectoryStore,
    transactions: TransactionRegistry,
    topics: TopicRegistry,
    subscription_registry: SubscriptionRegistry,
) -> TopicAdmin:
    return TopicAdmin(
        monitor=core.monitor,
        writer=directory.destination_writer,
        confirmer=core.confirmer,
        topics=topics,
        subscription_registry=subscription_registry,
        removals=core.removals,
        transactions=transactions,
    )


def _make_subscription_registry(
    core: CoreOwners, directory: DirectoryStore, unmatched_acker: UnmatchedAcker
) -> SubscriptionRegistry:
    return SubscriptionRegistry(
        monitor=core.monitor,
        subscribers=directory.subscriptions,
        writer=directory.subscription_writer,
        removals=core.removals,
        timed=core.timed,
        list_registry=core.list_registry,
        unrecorded=UnrecordedStore(directory.message_store),
        unmatched_acker=unmatched_acker,
    )
