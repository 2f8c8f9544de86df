"""Gathers the parts that queues, topics and explanations use."""

from __future__ import annotations

from ..doors import QueueParts, TopicParts
from ..explained_owners import ExplainedOwners
from .floors import Floors


def gather_queue_parts(floors: Floors) -> QueueParts:
    """Return the parts that queues need."""
    return QueueParts(
        monitor=floors.foundation.monitor,
        producers=floors.clients.producers,
        confirmer=floors.core.confirmer,
        policies=floors.foundation.policies,
        destinations=floors.core.destinations,
        consumers=floors.clients.consumers,
        deadlines=floors.settling.deadlines,
        browsers=floors.admin.browsers,
        mover=floors.admin.mover,
        queue_admin=floors.admin.queue_admin,
        temporaries=floors.admin.temporaries,
    )


def gather_topic_parts(floors: Floors) -> TopicParts:
    """Return the parts that topics need."""
    owners = floors.clients.topics
    return TopicParts(
        monitor=floors.foundation.monitor,
        producers=floors.clients.producers,
        policies=floors.foundation.policies,
        topics=owners.topics,
        patterns=owners.patterns,
        topic_consumers=owners.consumers,
        subscription_admin=owners.admin,
        retained=owners.retained,
        temporaries=floors.admin.temporaries,
    )


def gather_explained(floors: Floors) -> ExplainedOwners:
    """Return the owners that explanations ask."""
    foundation, directory, areas = floors.foundation, floors.store.directory, floors.areas
    return ExplainedOwners(
        monitor=foundation.monitor,
        journal=directory.journal,
        retention=directory.retention,
        disk_use=directory.disk_use,
        now_ms=directory.steady.now_ms,
        destinations=floors.core.destinations,
        topics=floors.clients.topics.topics,
        transactions=floors.core.transactions,
        target_area=areas.target_area,
        dispatch_area=areas.dispatch_area,
        reclaim=areas.target_area.reclaim,
        budget=foundation.budget,
        overflow=floors.store.overflow,
        space=floors.clients.space,
        due=floors.settling.due,
        delayed=floors.settling.delayed,
        sweeper=floors.admin.sweeper,
        has_background=foundation.settings.background,
    )
