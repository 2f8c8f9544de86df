"""TopicOwners: make the owners of topics and subscriptions, each after those that it needs."""

from __future__ import annotations

from dataclasses import dataclass

from ...cache.accounting.budget import Holder
from ...cache.spill.overflow import Overflow
from ...store.directory_store import DirectoryStore
from ..consumer.consumers import Consumers
from ..core.parts import CoreParts
from ..transactions.transaction import TransactionRegistry
from .consumers import TopicConsumers
from .fan_outs import FanOuts
from .latest_keys import KeyMemory
from .registry import Topics
from .retained import RetainedMessages
from .retention.topic_retention import TopicRetention
from .state import UnrecordedStore
from .subscriptions.open_subscriptions import OpenSubscriptions
from .subscriptions.patterns import PatternRegistry
from .subscriptions.subscription_admin import SubscriptionAdmin
from .subscriptions.unmatched import UnmatchedSweeper


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOwners:
    """The owners of an open store that know topics. A class that needs only one of them takes that one."""

    topics: Topics
    subscriptions: OpenSubscriptions
    sweeper: UnmatchedSweeper
    patterns: PatternRegistry
    retention: TopicRetention
    fan_outs: FanOuts
    retained: RetainedMessages
    admin: SubscriptionAdmin
    consumers: TopicConsumers


def make_topic_owners(
    core: CoreParts,
    store: DirectoryStore,
    *,
    overflow: Overflow,
    consumers: Consumers,
    transactions: TransactionRegistry,
    reading: Holder,
    keys: KeyMemory,
) -> TopicOwners:
    """Make all of them.

    store: each gets its parts of it. reading: pays for what the sweeper reads. keys: pays for what "latest_per_key"
    knows.
    """
    monitor, destinations, removals = core.monitor, core.destinations, core.removals
    records, properties = store.subscription_records, store.host_properties
    sweeper = UnmatchedSweeper(monitor, store.messages, records, reading)
    subscriptions = _make_subscriptions(core, store, sweeper)
    patterns = PatternRegistry(core.target_area, records, subscriptions)
    retention = TopicRetention(
        monitor=monitor, records=records, trimmer=store.cleanup.trimmer, policies=core.policies, overhead=core.overhead
    )
    topics = Topics(
        monitor=monitor,
        store=store.messages,
        records=store.destination_records,
        rows=store.destination_table,
        subscribers=store.subscriptions,
        properties=properties,
        target_area=core.target_area,
        confirmer=core.confirmer,
        destinations=destinations,
        removals=removals,
        overhead=core.overhead,
        transactions=transactions,
        policies=core.policies,
        subscriptions=subscriptions,
        patterns=patterns,
        retention=retention,
        keys=keys,
    )
    fan_outs = FanOuts(
        monitor=monitor,
        destinations=destinations,
        removals=removals,
        overflow=overflow,
        overhead=core.overhead,
    )
    retained, admin = _make_retained(core, store, fan_outs), _make_admin(core, store, transactions, subscriptions)
    return TopicOwners(
        topics=topics,
        subscriptions=subscriptions,
        sweeper=sweeper,
        patterns=patterns,
        retention=retention,
        fan_outs=fan_outs,
        retained=retained,
        admin=admin,
        consumers=TopicConsumers(
            monitor=monitor,
            journal=store.journal,
            records=records,
            confirmer=core.confirmer,
            consumers=consumers,
            topics=topics,
            subscriptions=subscriptions,
            patterns=patterns,
            retained=retained,
            admin=admin,
        ),
    )


def _make_retained(core: CoreParts, store: DirectoryStore, fan_outs: FanOuts) -> RetainedMessages:
    return RetainedMessages(
        monitor=core.monitor,
        properties=store.host_properties,
        records=store.property_records,
        journal=store.journal,
        now_ms=store.steady.now_ms,
        confirmer=core.confirmer,
        fan_outs=fan_outs,
    )


def _make_admin(
    core: CoreParts, store: DirectoryStore, transactions: TransactionRegistry, subscriptions: OpenSubscriptions
) -> SubscriptionAdmin:
    return SubscriptionAdmin(
        monitor=core.monitor,
        journal=store.journal,
        records=store.subscription_records,
        positions=store.positions,
        confirmer=core.confirmer,
        transactions=transactions,
        subscriptions=subscriptions,
    )


def _make_subscriptions(core: CoreParts, store: DirectoryStore, sweeper: UnmatchedSweeper) -> OpenSubscriptions:
    return OpenSubscriptions(
        monitor=core.monitor,
        subscribers=store.subscriptions,
        records=store.subscription_records,
        removals=core.removals,
        timed=core.timed,
        unrecorded=UnrecordedStore(store.messages),
        sweeper=sweeper,
    )
