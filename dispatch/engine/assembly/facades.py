"""Gathers the parts that a Forebay, its queues and topics, event loops and explanations use."""

from __future__ import annotations

from ...host_properties import StoreProperties
from ..explained_store import ExplainedDisk, ExplainedStore, ExplainedTimes
from ..facade_parts import ForebayParts, LoopParts, QueueParts, TopicParts
from ..health import HealthCheck
from ..reports import Reports
from ..resizing import Resizing
from .layers import Layers


def gather_forebay_parts(layers: Layers, resizing: Resizing, check: HealthCheck, reports: Reports) -> ForebayParts:
    """Return the parts that a Forebay needs. resizing, check, reports: those of the BackgroundLayer."""
    directory, core = layers.store_layer.directory, layers.core
    return ForebayParts(
        transactions=core.transactions,
        properties=StoreProperties(
            layers.foundation.monitor,
            directory.host_properties,
            directory.property_writer,
            core.confirmer,
        ),
        checkpointer=directory.checkpointer,
        cleanup=directory.cleanup,
        resizing=resizing,
        check=check,
        reports=reports,
    )


def gather_loop_parts(layers: Layers) -> LoopParts:
    """Return the parts that an event loop needs."""
    directory, core = layers.store_layer.directory, layers.core
    return LoopParts(
        monitor=layers.foundation.monitor,
        publisher=core.publisher,
        thread_confirmer=core.confirmer,
        journal=directory.journal,
        checkpoint_need=directory.checkpointer.need,
        loader=core.loader,
    )


def gather_queue_parts(layers: Layers) -> QueueParts:
    """Return the parts that queues need."""
    return QueueParts(
        monitor=layers.foundation.monitor,
        sender_parts=layers.clients.sender_parts,
        confirmer=layers.core.confirmer,
        policies=layers.foundation.policies,
        queues=layers.core.queues,
        consumers=layers.clients.consumers,
        deadlines=layers.redelivery_layer.deadlines,
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
        sender_parts=layers.clients.sender_parts,
        confirmer=layers.core.confirmer,
        policies=layers.foundation.policies,
        topics=topics.topics,
        topic_admin=topics.topic_admin,
        patterns=topics.patterns,
        topic_consumers=topics.consumers,
        subscription_admin=topics.admin,
        retained_messages=topics.retained_messages,
        temporaries=layers.admin.temporaries,
    )


def gather_explained(layers: Layers) -> ExplainedStore:
    """Return the owners that explanations ask."""
    directory, areas, redelivery_layer = layers.store_layer.directory, layers.areas, layers.redelivery_layer
    return ExplainedStore(
        monitor=layers.foundation.monitor,
        disk=ExplainedDisk(
            directory.journal.fullness, directory.data_log_retention, directory.disk_use, layers.clients.space
        ),
        memory=areas.memory,
        times=ExplainedTimes(
            directory.steady_clock.now_ms, redelivery_layer.due, redelivery_layer.delayed, layers.admin.expiry_sweeper
        ),
        queues=layers.core.queues,
        topics=layers.clients.topic_layer.topics,
        transactions=layers.core.transactions,
        reclaim=areas.watermarks.reclaim,
        list_registry=areas.list_registry,
        dispatch_area=areas.dispatch_area,
        has_background=layers.foundation.settings.background,
    )
