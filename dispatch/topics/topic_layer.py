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
from .fan_out_opener import FanOutOpener
from .newest_per_key import KeyMemory
from .numbered_lanes import NumberedLanes
from .registry import TopicMaker, TopicRegistry
from .retained_messages import RetainedMessages
from .retention.topic_retention import TopicRetention
from .subscriptions.open_subscriptions import OpenSubscriptions
from .subscriptions.patterns import PatternRegistry
from .subscriptions.subscription_admin import SubscriptionAdmin
from .subscriptions.unmatched import UnmatchedAcker
from .subscriptions.unrecorded import UnrecordedStore
from .topic_admin import TopicAdmin
from .topic_consumer_factory import TopicConsumerFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayer:
    """The owners of topics in an open store. A class that needs only one owner takes that owner alone."""

    topics: TopicRegistry
    topic_admin: TopicAdmin
    numbered_lanes: NumberedLanes
    subscriptions: OpenSubscriptions
    unmatched_acker: UnmatchedAcker
    patterns: PatternRegistry
    retention: TopicRetention
    fan_out_opener: FanOutOpener
    retained: RetainedMessages
    admin: SubscriptionAdmin
    consumers: TopicConsumerFactory

    def restore(self, lanes: DestinationLanes, used: set[int]) -> None:
        """Take over topics and subscriptions that opening the store found. Requires: the lock.

        used: numbers of topics that have messages, or messages in prepared transactions.
        """
        self.topics.restore(used | self.subscriptions.topics_at_open())
        lanes.restore(self.topics.by_number)
        self.subscriptions.restore(self.topics.by_number)


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

    directory: has the parts that they use. reading: pays for messages that the acker reads. keys: pays for the places
    that "latest_per_key" remembers.
    """
    monitor, removals = core.monitor, core.removals
    writer = directory.subscription_writer
    unmatched_acker = UnmatchedAcker(monitor, directory.message_store, writer, reading)
    subscriptions = _make_subscriptions(core, directory, unmatched_acker)
    patterns = PatternRegistry(core.target_lists, core.destination_state_parts, writer, subscriptions)
    retention = TopicRetention(
        monitor=monitor,
        writer=writer,
        trimmer=directory.cleanup.trimmer,
        policies=core.policies,
        overhead=core.destinations.overhead,
    )
    topics = _make_topics(core, directory, subscriptions, patterns, retention, keys)
    fan_out_opener = FanOutOpener(
        monitor=monitor,
        lanes=core.destinations.lanes,
        removals=removals,
        overflow=overflow,
        overhead=core.destinations.overhead,
    )
    retained = _make_retained(core, directory, fan_out_opener)
    admin = _make_admin(core, directory, transactions, subscriptions)
    return TopicLayer(
        topics=topics,
        topic_admin=_make_topic_admin(core, directory, transactions, topics, subscriptions),
        numbered_lanes=NumberedLanes(
            core.destinations.queues, topics, core.destinations.lanes, directory.subscriptions
        ),
        subscriptions=subscriptions,
        unmatched_acker=unmatched_acker,
        patterns=patterns,
        retention=retention,
        fan_out_opener=fan_out_opener,
        retained=retained,
        admin=admin,
        consumers=TopicConsumerFactory(
            monitor=monitor,
            writer=writer,
            confirmer=core.confirmer,
            consumers=consumers,
            topics=topics,
            subscriptions=subscriptions,
            patterns=patterns,
            retained=retained,
            admin=admin,
        ),
    )


def _make_topics(
    core: CoreOwners,
    directory: DirectoryStore,
    subscriptions: OpenSubscriptions,
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
            subscribers=directory.subscriptions,
            subscriptions=subscriptions,
            properties=directory.host_properties,
            removals=core.removals,
            policies=core.policies,
            keys=keys,
        ),
        patterns=patterns,
        retention=retention,
    )


def _make_retained(core: CoreOwners, directory: DirectoryStore, fan_out_opener: FanOutOpener) -> RetainedMessages:
    return RetainedMessages(
        monitor=core.monitor,
        properties=directory.host_properties,
        writer=directory.property_writer,
        now_ms=directory.steady_clock.now_ms,
        confirmer=core.confirmer,
        fan_out_opener=fan_out_opener,
    )


def _make_admin(
    core: CoreOwners, directory: DirectoryStore, transactions: TransactionRegistry, subscriptions: OpenSubscriptions
) -> SubscriptionAdmin:
    return SubscriptionAdmin(
        monitor=core.monitor,
        writer=directory.subscription_writer,
        time_search=directory.time_search,
        confirmer=core.confirmer,
        transactions=transactions,
        subscriptions=subscriptions,
    )


def _make_topic_admin(
    core: CoreOwners,
    directory: DirectoryStore,
    transactions: TransactionRegistry,
    topics: TopicRegistry,
    subscriptions: OpenSubscriptions,
) -> TopicAdmin:
    return TopicAdmin(
        monitor=core.monitor,
        writer=directory.destination_writer,
        confirmer=core.confirmer,
        topics=topics,
        subscriptions=subscriptions,
        removals=core.removals,
        transactions=transactions,
    )


def _make_subscriptions(
    core: CoreOwners, directory: DirectoryStore, unmatched_acker: UnmatchedAcker
) -> OpenSubscriptions:
    return OpenSubscriptions(
        monitor=core.monitor,
        subscribers=directory.subscriptions,
        writer=directory.subscription_writer,
        removals=core.removals,
        timed=core.timed,
        unrecorded=UnrecordedStore(directory.message_store),
        unmatched_acker=unmatched_acker,
    )
