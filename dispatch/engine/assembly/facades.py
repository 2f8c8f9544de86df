"""Gathers the parts that queues, topics and explanations use."""

from __future__ import annotations

from ..explained_store import ExplainedDisk, ExplainedStore, ExplainedTimes
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
    topics = layers.clients.topic_layer
    return TopicParts(
        monitor=layers.foundation.monitor,
        producers=layers.clients.producers,
        policies=layers.foundation.policies,
        topics=topics.topics,
        topic_admin=topics.topic_admin,
        patterns=topics.patterns,
        topic_consumers=topics.consumers,
        subscription_admin=topics.admin,
        retained=topics.retained,
        temporaries=layers.admin.temporaries,
    )


def gather_explained(layers: Layers) -> ExplainedStore:
    """Return the owners that explanations ask."""
    directory, areas, settling = layers.store_layer.directory, layers.areas, layers.settling
    return ExplainedStore(
        monitor=layers.foundation.monitor,
        disk=ExplainedDisk(directory.journal, directory.retention, directory.disk_use, layers.clients.space),
        memory=areas.memory,
        times=ExplainedTimes(directory.steady.now_ms, settling.due, settling.delayed, layers.admin.sweeper),
        queues=layers.core.queues,
        topics=layers.clients.topic_layer.topics,
        transactions=layers.core.transactions,
        reclaim=areas.watermarks.reclaim,
        target_area=areas.target_area,
        dispatch_area=areas.dispatch_area,
        has_background=layers.foundation.settings.background,
    )
