"""ClientLayer: what consumers, topics and senders share."""

from __future__ import annotations

from dataclasses import dataclass

from ....cache.accounting import holder_names
from ....store.format.record import SLICE_MESSAGES_MAX
from ...admin.admin_layer import DeadLetterLayer, make_dead_lettering
from ...admin.rejections import Rejections
from ...consumer.consumer import ConsumerParts
from ...consumer.consumer_factory import ConsumerFactory
from ...consumer.consumer_registry import ConsumerRegistry
from ...consumer.ending import ConsumerEnding
from ...consumer.search import SearchParts
from ...consumer.settlements import Settlements
from ...producer.full_policy import FullPolicy
from ...producer.lifetimes import Lifetimes
from ...producer.sender_parts import SenderParts
from ...producer.slice_writer import SliceWriter
from ...producer.space_lines import SpaceLines
from ...topics.eviction.latest_per_key import KeyMemory
from ...topics.topic_layer import TopicLayer, make_topic_layer
from .areas import AreaLayer
from .core import CoreLayer
from .foundation import FoundationLayer
from .redelivery import RedeliveryLayer
from .store_layer import StoreLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLayer:
    """The owners that serve consumers, topics and senders."""

    dead_lettering: DeadLetterLayer
    consumers: ConsumerFactory
    topic_layer: TopicLayer
    space: SpaceLines
    sender_parts: SenderParts

    def audit(self) -> dict[str, int]:
        """Return the charge for keys, which only topics that evict by key have. Requires: the lock."""
        return {holder_names.KEYS: self.topic_layer.topics.keys_charge}


def make_clients(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    areas: AreaLayer,
    redelivery_layer: RedeliveryLayer,
    core: CoreLayer,
) -> ClientLayer:
    """Make the owners that serve consumers, topics and senders. Requires: the store is open."""
    slice_messages_max = SLICE_MESSAGES_MAX if foundation.settings.use_vectored_io else 1
    dead_lettering = make_dead_lettering(core.owners, store_layer.directory, slice_messages_max)
    registry = ConsumerRegistry(areas.memory.consumer_memory, redelivery_layer.deadlines, redelivery_layer.redelivery)
    parts = _make_consumer_parts(
        foundation, store_layer, areas, redelivery_layer, core, dead_lettering.rejections, registry
    )
    consumers = ConsumerFactory(
        parts, registry, areas.target_area, areas.list_registry, areas.distribution_chooser, core.overhead
    )
    topic_layer = make_topic_layer(
        core.owners,
        store_layer.directory,
        overflow=store_layer.overflow,
        consumers=consumers,
        transactions=core.transactions,
        reading=foundation.budget.holders[holder_names.READ_BUFFERS],
        keys=KeyMemory(foundation.budget.holder(holder_names.KEYS), foundation.upcalls.make_room),
    )
    foundation.upcalls.numbered_lanes = topic_layer.numbered_lanes
    space = SpaceLines(
        foundation.monitor,
        store_layer.directory.cleanup,
        store_layer.overflow,
        foundation.background_requests.ask_for_cleanup,
        journal=foundation.journal_line,
        tmp_storage=foundation.tmp_line,
    )
    sender_parts = _make_sender_parts(
        foundation, store_layer, redelivery_layer, core, topic_layer, space, slice_messages_max
    )
    return ClientLayer(
        dead_lettering=dead_lettering,
        consumers=consumers,
        topic_layer=topic_layer,
        space=space,
        sender_parts=sender_parts,
    )


def _make_consumer_parts(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    areas: AreaLayer,
    redelivery_layer: RedeliveryLayer,
    core: CoreLayer,
    rejections: Rejections,
    registry: ConsumerRegistry,
) -> ConsumerParts:
    monitor, directory = foundation.monitor, store_layer.directory
    return ConsumerParts(
        monitor=monitor,
        journal=directory.journal,
        dispatch_area=areas.dispatch_area,
        searches=SearchParts(monitor, areas.dispatch_area, areas.loads, core.loader, redelivery_layer.due),
        settlements=Settlements(
            monitor=monitor,
            checkpointer=directory.checkpointer,
            cleanup=directory.cleanup,
            dispatch_area=areas.dispatch_area,
            deadlines=redelivery_layer.deadlines,
            redelivery=redelivery_layer.redelivery,
            transactions=core.transactions,
            reject=rejections.reject,
        ),
        ending=ConsumerEnding(monitor, areas.dispatch_area, registry),
        confirmer=core.confirmer,
    )


def _make_sender_parts(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    redelivery_layer: RedeliveryLayer,
    core: CoreLayer,
    topic_layer: TopicLayer,
    space: SpaceLines,
    slice_messages_max: int,
) -> SenderParts:
    monitor, directory, destinations = foundation.monitor, store_layer.directory, core.owners.destinations
    message_store, now_ms = directory.message_store, directory.steady_clock.now_ms
    return SenderParts(
        monitor=monitor,
        message_store=message_store,
        checkpointer=directory.checkpointer,
        publisher=core.publisher,
        thread_confirmer=core.confirmer,
        destinations=destinations,
        lifetimes=Lifetimes(now_ms),
        slices=SliceWriter(monitor, message_store, now_ms, core.publisher, redelivery_layer.timed, store_layer.windows),
        space=space,
        full_policy=FullPolicy(
            monitor=monitor,
            message_store=message_store,
            fullness=directory.journal.fullness,
            checkpointer=directory.checkpointer,
            epoch=directory.journal.epoch,
            publisher=core.publisher,
            queues=destinations.dead_letter_queues,
            removals=core.removals,
            policies=foundation.policies,
        ),
        fan_out_opener=topic_layer.fan_out_opener,
        transactions=core.transactions,
        timed=redelivery_layer.timed,
        slice_messages_max=slice_messages_max,
        max_message_bytes=foundation.settings.max_message_size_bytes,
        memory_limit_bytes=foundation.settings.memory_limit_bytes,
    )
