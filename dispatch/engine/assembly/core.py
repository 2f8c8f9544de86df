"""CoreLayer: queues, what is written and not yet visible, transactions, and the loads that bring messages into RAM."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ....cache.accounting import holder_names
from ...core.confirmer import ThreadConfirmer
from ...core.destinations.closable_destinations import ClosableDestinations
from ...core.destinations.dead_letter_queues import DeadLetterQueues
from ...core.destinations.destination_lanes import DestinationLanes
from ...core.destinations.destination_opener import DestinationOpener
from ...core.destinations.message_group_queues import MessageGroupQueues
from ...core.destinations.overhead import DestinationOverhead
from ...core.destinations.policy_applier import PolicyApplier
from ...core.destinations.queue_registry import QueueRegistry
from ...core.owners import CoreOwners, DestinationOwners
from ...core.publisher import Publisher
from ...core.redelivery.removal import Removals
from ...loading.eager_loader import EagerLoader
from ...loading.warmer import CacheWarmer
from ...transactions.staging import PropertyStaging, Staging
from ...transactions.transaction import TransactionParts
from ...transactions.transaction_memory import TransactionMemory
from ...transactions.transaction_registry import TransactionRegistry
from .areas import AreaLayer
from .foundation import FoundationLayer
from .redelivery import RedeliveryLayer
from .store_layer import StoreLayer


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLayer:
    """The owners that everything about consumers, topics and senders is made from."""

    publisher: Publisher
    confirmer: ThreadConfirmer
    transactions: TransactionRegistry
    removals: Removals
    overhead: DestinationOverhead
    queues: QueueRegistry
    loader: EagerLoader
    warmer: CacheWarmer
    owners: CoreOwners
    """The parts of this and the lower layers from which `dispatch.topics` and `dispatch.admin` make their owners."""

    def audit(self) -> dict[str, int]:
        """Return the charges for messages on their way: unsynced, in transactions, or being loaded into the cache."""
        transactions_bytes, held_bytes = self.transactions.audit()
        return {
            holder_names.UNSYNCED: self.publisher.audit(),
            holder_names.TRANSACTIONS: transactions_bytes,
            holder_names.DISPATCH_AREA: held_bytes,
            holder_names.HEAD_QUEUE_CACHE: self.warmer.loading_bytes,
        }


def make_core(
    foundation: FoundationLayer, store_layer: StoreLayer, areas: AreaLayer, redelivery_layer: RedeliveryLayer
) -> CoreLayer:
    """Make the queues and what moves their messages. Requires: the store is open."""
    monitor, directory = foundation.monitor, store_layer.directory
    publisher = _make_publisher(foundation, store_layer, areas)
    confirmer = ThreadConfirmer(
        monitor,
        directory.journal,
        directory.syncer,
        directory.checkpointer,
        publisher,
        partial(foundation.background_requests.leave_checkpoint, directory.checkpointer),
    )
    transactions = _make_transactions(foundation, store_layer, areas, redelivery_layer, publisher, confirmer)
    removals = Removals(directory.branches, areas.target_area, areas.list_registry, redelivery_layer.delayed)
    closable = ClosableDestinations(transactions.destination_numbers)
    destinations = _make_destinations(
        foundation, store_layer, areas, redelivery_layer, publisher=publisher, removals=removals, closable=closable
    )
    return CoreLayer(
        publisher=publisher,
        confirmer=confirmer,
        transactions=transactions,
        removals=removals,
        overhead=destinations.overhead,
        queues=destinations.queues,
        loader=_make_loader(foundation, store_layer, areas),
        warmer=_make_warmer(foundation, areas, destinations.queues),
        owners=CoreOwners(
            monitor=monitor,
            policies=foundation.policies,
            list_registry=areas.list_registry,
            destination_state_parts=areas.destination_state_parts,
            watermarks=areas.watermarks,
            dispatch_area=areas.dispatch_area,
            timed=redelivery_layer.timed,
            redelivery=redelivery_layer.redelivery,
            publisher=publisher,
            confirmer=confirmer,
            removals=removals,
            destinations=destinations,
        ),
    )


def _make_destinations(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    areas: AreaLayer,
    redelivery_layer: RedeliveryLayer,
    *,
    publisher: Publisher,
    removals: Removals,
    closable: ClosableDestinations,
) -> DestinationOwners:
    """Return the owners that open and close queues and topics, with their lanes."""
    monitor, directory = foundation.monitor, store_layer.directory
    writer, rows = directory.destination_writer, directory.destination_table
    overhead = DestinationOverhead(
        areas.list_registry,
        areas.watermarks,
        areas.watermarks.reclaim,
        foundation.budget,
        foundation.destination_memory,
        areas.memory.consumer_memory,
        closable,
    )
    lanes = _make_lanes(foundation, store_layer, areas, redelivery_layer, overhead, removals)
    opener = DestinationOpener(
        rows=rows,
        policy_applier=PolicyApplier(monitor, rows, store_layer.windows, foundation.policies),
        lanes=lanes,
        overhead=overhead,
        publisher=publisher,
        timed=redelivery_layer.timed,
        closable=closable,
    )
    queues = QueueRegistry(monitor, writer, rows, opener, areas.destination_state_parts)
    message_group_queues = MessageGroupQueues(monitor, writer, overhead, areas.distribution_chooser)
    return DestinationOwners(
        opener=opener,
        queues=queues,
        lanes=lanes,
        message_group_queues=message_group_queues,
        dead_letter_queues=DeadLetterQueues(queues, lanes, message_group_queues),
        overhead=overhead,
    )


def _make_lanes(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    areas: AreaLayer,
    redelivery_layer: RedeliveryLayer,
    overhead: DestinationOverhead,
    removals: Removals,
) -> DestinationLanes:
    return DestinationLanes(
        monitor=foundation.monitor,
        message_store=store_layer.directory.message_store,
        epoch=store_layer.directory.journal.epoch,
        list_registry=areas.list_registry,
        memory=areas.memory,
        overhead=overhead,
        timed=redelivery_layer.timed,
        removals=removals,
    )


def _make_warmer(foundation: FoundationLayer, areas: AreaLayer, queues: QueueRegistry) -> CacheWarmer:
    warmer = foundation.upcalls.warmer = CacheWarmer(
        foundation.monitor,
        areas.watermarks,
        areas.loads,
        foundation.budget,
        areas.memory.memories,
        foundation.budget.holders[holder_names.READ_BUFFERS],
        queues.by_number,
    )
    return warmer


def _make_loader(foundation: FoundationLayer, store_layer: StoreLayer, areas: AreaLayer) -> EagerLoader:
    return EagerLoader(
        foundation.monitor,
        areas.list_registry,
        areas.watermarks,
        areas.watermarks.reclaim,
        areas.dispatch_area,
        areas.loads,
        store_layer.overflow.account,
        foundation.budget.holders[holder_names.READ_BUFFERS],
    )


def _make_publisher(foundation: FoundationLayer, store_layer: StoreLayer, areas: AreaLayer) -> Publisher:
    """Return the Publisher. With sync "always" messages wait in the journal for a sync, which then publishes them."""
    directory = store_layer.directory
    publisher = Publisher(
        foundation.monitor,
        directory.journal,
        areas.target_area,
        holder=foundation.budget.holder(holder_names.UNSYNCED),
        syncs_always=foundation.settings.sync == "always",
    )
    if publisher.syncs_always:
        directory.syncer.tell_of_syncs(publisher.publish_synced)
        directory.journal.gather_messages()
    return publisher


def _make_transactions(
    foundation: FoundationLayer,
    store_layer: StoreLayer,
    areas: AreaLayer,
    redelivery_layer: RedeliveryLayer,
    publisher: Publisher,
    confirmer: ThreadConfirmer,
) -> TransactionRegistry:
    directory, budget = store_layer.directory, foundation.budget
    memory = TransactionMemory(budget.holder(holder_names.TRANSACTIONS), budget, areas.watermarks.reclaim)
    staging = Staging(
        transaction_writer=directory.transaction_writer,
        dispatch_area=areas.dispatch_area,
        redelivery=redelivery_layer.redelivery,
        publisher=publisher,
        timed=redelivery_layer.timed,
        windows=store_layer.windows,
        memory=memory,
        now_ms=directory.steady_clock.now_ms,
    )
    return TransactionRegistry(
        TransactionParts(
            monitor=foundation.monitor,
            fullness=directory.journal.fullness,
            checkpointer=directory.checkpointer,
            transaction_writer=directory.transaction_writer,
            branches=directory.branches,
            confirmer=confirmer,
            windows=store_layer.windows,
            memory=memory,
            staging=staging,
            properties=PropertyStaging(foundation.monitor, directory.host_properties, directory.property_writer),
        )
    )
