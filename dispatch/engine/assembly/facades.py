"""Gathers the parts that queues, topics and explanations use."""

from __future__ import annotations

from ..explained_owners import ExplainedDisk, ExplainedOwners, ExplainedTimes
from ..facade_parts import QueueParts, TopicParts
from .layers import Layers


def gather_queue_parts(layers: Layers) -> QueueParts:
    """Return the parts that queues need."""
    return QueueParts(
        monitor=layers.foundation.monitor,
        producers=layers.clients.producers,
        confirmer=layers.core.confirmer,
        policies=layers.foundation.policies,
        queues=layers.core.queues,
        consumers=layers.clients.consumers,
        deadlines=layers.settling.deadlines,
        browsers=layers.admin.browsers,
        mover=layers.admin.mover,
        queue_admin=layers.admin.queue_admin,
        temporaries=layers.admin.temporaries,
    )


def gather_topic_parts(layers: Layers) -> TopicParts:
    """Return the parts that topics need."""
    owners = layers.clients.topic_owners
    return TopicParts(
        monitor=layers.foundation.monitor,
        producers=layers.clients.producers,
        policies=layers.foundation.policies,
        topics=owners.topics,
        topic_admin=owners.topic_admin,
        patterns=owners.patterns,
        topic_consumers=owners.consumers,
        subscription_admin=owners.admin,
        retained=owners.retained,
        temporaries=layers.admin.temporaries,
    )


def gather_explained(layers: Layers) -> ExplainedOwners:
    """Return the owners that explanations ask."""
    directory, areas, settling = layers.store_parts.directory, layers.areas, layers.settling
    return ExplainedOwners(
        monitor=layers.foundation.monitor,
        disk=ExplainedDisk(directory.journal, directory.retention, directory.disk_use, layers.clients.space),
        memory=areas.memory,
        times=ExplainedTimes(directory.steady.now_ms, settling.due, settling.delayed, layers.admin.sweeper),
        queues=layers.core.queues,
        topics=layers.clients.topic_owners.topics,
        transactions=layers.core.transactions,
        target_area=areas.target_area,
        dispatch_area=areas.dispatch_area,
        has_background=layers.foundation.settings.background,
    )
