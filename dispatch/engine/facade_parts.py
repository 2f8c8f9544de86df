"""The parts to which queues and topics pass their calls on, for threads and event loops alike."""

from __future__ import annotations

from dataclasses import dataclass

from ..admin.browse import Browsers
from ..admin.move import Mover
from ..admin.queue_admin import QueueAdmin
from ..admin.temporaries import Temporaries
from ..config.policies import Policies
from ..consumer.consumers import Consumers
from ..core.confirmer import Confirmer
from ..core.destinations.queue_registry import Queues
from ..core.monitor import Monitor
from ..core.settling.deadlines import AckDeadlines
from ..producer.producers import Producers
from ..topics.consumers import TopicConsumers
from ..topics.registry import Topics
from ..topics.retained import RetainedMessages
from ..topics.subscriptions.patterns import PatternRegistry
from ..topics.subscriptions.subscription_admin import SubscriptionAdmin
from ..topics.topic_admin import TopicAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueParts:
    """The parts of an open store that its queues use.

    All queues share one object: a host may have Queues for a million names, and each of them holds one reference.
    """

    monitor: Monitor
    producers: Producers
    confirmer: Confirmer
    policies: Policies
    queues: Queues
    consumers: Consumers
    deadlines: AckDeadlines
    browsers: Browsers
    mover: Mover
    queue_admin: QueueAdmin
    temporaries: Temporaries


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicParts:
    """The parts of an open store that its topics use. All topics share one object, as with QueueParts."""

    monitor: Monitor
    producers: Producers
    policies: Policies
    topics: Topics
    topic_admin: TopicAdmin
    patterns: PatternRegistry
    topic_consumers: TopicConsumers
    subscription_admin: SubscriptionAdmin
    retained: RetainedMessages
    temporaries: Temporaries
