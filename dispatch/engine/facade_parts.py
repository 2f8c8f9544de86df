"""Bundles of an open store's parts: for a Forebay, its queues, its topics, and event loops.

These objects check arguments and pass each call on to one of their parts.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.index.checkpoint_need import CheckpointNeed
from ...store.journal.journal import Journal
from ...store.maintenance.cleanup import Cleanup
from ..admin.browse import Browsers
from ..admin.move import Mover
from ..admin.queue_admin import QueueAdmin
from ..admin.temporaries import TemporaryDestinations
from ..config.policies import Policies
from ..consumer.consumer_factory import ConsumerFactory
from ..core.confirmer import Confirmer, ThreadConfirmer
from ..core.destinations.queue_registry import QueueRegistry
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.redelivery.deadlines import AckDeadlines
from ..host_properties import StoreProperties
from ..loading.eager_loader import EagerLoader
from ..producer.sender_parts import SenderParts
from ..topics.retained_messages import RetainedMessages
from ..topics.subscriptions.patterns import PatternRegistry
from ..topics.subscriptions.subscription_admin import SubscriptionAdmin
from ..topics.topic_admin import TopicAdmin
from ..topics.topic_consumer_factory import TopicConsumerFactory
from ..topics.topic_registry import TopicRegistry
from ..transactions.transaction_registry import TransactionRegistry
from .health import HealthCheck
from .reports import Reports
from .resizing import Resizing


@dataclass(frozen=True, slots=True, kw_only=True)
class ForebayParts:
    """The parts of an open store that its Forebay uses itself."""

    transactions: TransactionRegistry
    properties: StoreProperties
    checkpointer: Checkpointer
    cleanup: Cleanup
    resizing: Resizing
    check: HealthCheck
    reports: Reports


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParts:
    """The parts of an open store that its queues use.

    All queues share one object: a host may have Queues for a million names, and each of them holds one reference.
    """

    monitor: Monitor
    sender_parts: SenderParts
    confirmer: Confirmer
    policies: Policies
    queues: QueueRegistry
    consumers: ConsumerFactory
    deadlines: AckDeadlines
    browsers: Browsers
    mover: Mover
    queue_admin: QueueAdmin
    temporaries: TemporaryDestinations


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicParts:
    """The parts of an open store that its topics use. All topics share one object, as with QueueParts."""

    monitor: Monitor
    sender_parts: SenderParts
    confirmer: Confirmer
    policies: Policies
    topics: TopicRegistry
    topic_admin: TopicAdmin
    patterns: PatternRegistry
    topic_consumers: TopicConsumerFactory
    subscription_admin: SubscriptionAdmin
    retained_messages: RetainedMessages
    temporaries: TemporaryDestinations


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopParts:
    """The parts of an open store that an event loop uses, so that its calls never wait for the disk."""

    monitor: Monitor
    publisher: Publisher
    thread_confirmer: ThreadConfirmer
    """Does in a worker thread what calls of the loop owe."""
    journal: Journal
    checkpoint_need: CheckpointNeed
    loader: EagerLoader
