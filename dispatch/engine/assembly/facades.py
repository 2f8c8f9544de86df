"""Gathers the parts that queues, topics and explanations use."""

from __future__ import annotations

from ..doors import QueueParts, TopicParts
from ..explained_owners import ExplainedDisk, ExplainedOwners, ExplainedTimes
from .floors import Floors


def gather_queue_parts(floors: Floors) -> QueueParts:
    """Return the parts that queues need."""
    return QueueParts(
        monitor=floors.foundation.monitor,
        producers=floors.clients.producers,
        confirmer=floors.core.confirmer,
        policies=floors.foundation.policies,
        queues=floors.core.queues,
        consumers=floors.clients.consumers,
        deadlines=floors.settling.deadlines,
        browsers=floors.admin.browsers,
        mover=floors.admin.mover,
        queue_admin=floors.admin.queue_admin,
        temporaries=floors.admin.temporaries,
    )


def gather_topic_parts(floors: Floors) -> TopicParts:
    """Return the parts that topics need."""
    owners = floors.clients.topic_owners
    return TopicParts(
        monitor=floors.foundation.monitor,
        producers=floors.clients.producers,
        policies=floors.foundation.policies,
        topics=owners.topics,
        topic_admin=owners.topic_admin,
        patterns=owners.patterns,
        topic_consumers=owners.consumers,
        subscription_admin=owners.admin,
        retained=owners.retained,
        temporaries=floors.admin.temporaries,
    )


def gather_explained(floors: Floors) -> ExplainedOwners:
    """Return the owners that explanations ask."""
    directory, areas, settling = floors.store_parts.directory, floors.areas, floors.settling
    return ExplainedOwners(
        monitor=floors.foundation.monitor,
        disk=ExplainedDisk(directory.journal, directory.retention, directory.disk_use, floors.clients.space),
        memory=areas.memory,
        times=ExplainedTimes(directory.steady.now_ms, settling.due, settling.delayed, floors.admin.sweeper),
        queues=floors.core.queues,
        topics=floors.clients.topic_owners.topics,
        transactions=floors.core.transactions,
        target_area=areas.target_area,
        dispatch_area=areas.dispatch_area,
        has_background=floors.foundation.settings.background,
    )
