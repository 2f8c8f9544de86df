"""TopicOwners: makes the owners of topics and subscriptions, from below to above. Nothing here is stored."""

from __future__ import annotations

from dataclasses import dataclass

from ...cache.budget import Holder
from ...cache.spill.overflow import Overflow
from ..config.policies import Policies
from ..consumer.consumers import Consumers
from ..core.destinations.overhead import DestinationOverhead
from ..core.parts import CoreParts
from ..core.settling.delays import TimedLanes
from ..transactions.transaction import TransactionRegistry
from .consumers import TopicConsumers
from .fan_outs import FanOuts
from .latest_keys import KeyMemory
from .open_subscriptions import OpenSubscriptions
from .patterns import PatternRegistry
from .registry import Topics
from .retained import RetainedMessages
from .retention import TopicRetention
from .state import UnrecordedStore
from .subscription_admin import SubscriptionAdmin
from .unmatched import UnmatchedSweeper


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOwners:
    """The owners of an open store that know of topics. A part that asks one of them gets that one."""

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
    parts: CoreParts,
    *,
    overflow: Overflow,
    overhead: DestinationOverhead,
    timed: TimedLanes,
    consumers: Consumers,
    transactions: TransactionRegistry,
    policies: Policies,
    reading: Holder,
    keys: KeyMemory,
) -> TopicOwners:
    """Make all of them. reading: pays for what the sweeper reads. keys: pays for what "latest_per_key" knows."""
    monitor, store, confirmer = parts.monitor, parts.store, parts.confirmer
    records = store.subscription_records
    sweeper = UnmatchedSweeper(parts.target_area, records, reading)
    subscriptions = OpenSubscriptions(
        monitor=monitor,
        subscribers=store.subscriptions,
        records=records,
        removals=parts.removals,
        timed=timed,
        unrecorded=UnrecordedStore(store),
        sweeper=sweeper,
    )
    patterns = PatternRegistry(parts.target_area, records, subscriptions)
    retention = TopicRetention(
        monitor=monitor, records=records, trimmer=store.cleanup.trimmer, policies=policies, overhead=overhead
    )
    topics = Topics(
        parts,
        overhead=overhead,
        transactions=transactions,
        policies=policies,
        subscriptions=subscriptions,
        patterns=patterns,
        retention=retention,
        keys=keys,
    )
    fan_outs = FanOuts(
        monitor=monitor,
        destinations=parts.destinations,
        removals=parts.removals,
        overflow=overflow,
        overhead=overhead,
    )
    retained = RetainedMessages(monitor=monitor, store=store, confirmer=confirmer, fan_outs=fan_outs)
    admin = SubscriptionAdmin(
        monitor=monitor, store=store, confirmer=confirmer, transactions=transactions, subscriptions=subscriptions
    )
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
            store=store,
            confirmer=confirmer,
            consumers=consumers,
            topics=topics,
            subscriptions=subscriptions,
            patterns=patterns,
            retained=retained,
            admin=admin,
        ),
    )
