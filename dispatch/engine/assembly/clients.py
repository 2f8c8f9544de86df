"""Clients: what consumers, topics and senders share."""

from __future__ import annotations

from dataclasses import dataclass

from ...consumer.consumer import ConsumerParts
from ...consumer.consumers import Consumers
from ...consumer.search import SearchParts
from ...consumer.settlements import Settlements
from ...producer.full_policy import FullPolicy
from ...producer.lifetimes import Lifetimes
from ...producer.producers import Producers
from ...producer.slice_writer import SliceWriter
from ...producer.space import Space
from ...topics.latest_keys import KeyMemory
from ...topics.topic_owners import TopicOwners, make_topic_owners
from .areas import Areas
from .core import Core
from .foundation import Foundation
from .settling import Settling
from .store_parts import StoreParts


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Whoever takes and whoever sends."""

    consumers: Consumers
    topic_owners: TopicOwners
    space: Space
    producers: Producers

    def audit(self) -> dict[str, int]:
        """See Audited."""
        return {"keys": self.topic_owners.topics.keys_charge}


def make_clients(
    foundation: Foundation, store_parts: StoreParts, areas: Areas, settling: Settling, core: Core
) -> Clients:
    """Make consumers, topics and senders. Decide who pays for read buffers and keys, and who asks for a cleanup."""
    parts = _make_consumer_parts(foundation, store_parts, areas, settling, core)
    consumers = Consumers(parts, areas.target_area, areas.target_area.distributions, core.overhead)
    topic_owners = make_topic_owners(
        core.parts,
        store_parts.directory,
        overflow=store_parts.overflow,
        consumers=consumers,
        transactions=core.transactions,
        reading=foundation.budget.holders["read_buffers"],
        keys=KeyMemory(foundation.budget.holder("keys"), foundation.late_calls.make_room),
    )
    foundation.late_calls.numbered_lanes = topic_owners.numbered_lanes
    space = Space(
        foundation.monitor,
        store_parts.directory.cleanup,
        store_parts.overflow,
        core.confirmer,
        foundation.policies,
        foundation.wakeups.ask_for_cleanup,
    )
    producers = _make_producers(foundation, store_parts, settling, core, topic_owners, space)
    return Clients(consumers=consumers, topic_owners=topic_owners, space=space, producers=producers)


def _make_consumer_parts(
    foundation: Foundation, store_parts: StoreParts, areas: Areas, settling: Settling, core: Core
) -> ConsumerParts:
    monitor, directory = foundation.monitor, store_parts.directory
    return ConsumerParts(
        monitor=monitor,
        journal=directory.journal,
        dispatch_area=areas.dispatch_area,
        consumer_memory=areas.memory.consumers,
        searches=SearchParts(monitor, areas.dispatch_area, areas.loads, core.loader, settling.due),
        settlements=Settlements(
            monitor,
            directory.message_store,
            directory.cleanup,
            areas.dispatch_area,
            settling.deadlines,
            settling.redelivery,
            core.transactions,
            foundation.late_calls.reject,
        ),
        deadlines=settling.deadlines,
        redelivery=settling.redelivery,
        transactions=core.transactions,
        confirmer=core.confirmer,
        policies=foundation.policies,
    )


def _make_producers(
    foundation: Foundation,
    store_parts: StoreParts,
    settling: Settling,
    core: Core,
    topic_owners: TopicOwners,
    space: Space,
) -> Producers:
    monitor, message_store, now_ms = (
        foundation.monitor,
        store_parts.directory.message_store,
        store_parts.directory.steady.now_ms,
    )
    return Producers(
        monitor=monitor,
        message_store=message_store,
        publisher=core.publisher,
        confirmer=core.confirmer,
        lanes=core.parts.lanes,
        groups=core.parts.groups,
        lifetimes=Lifetimes(now_ms),
        fan_outs=topic_owners.fan_outs,
        transactions=core.transactions,
        timed=settling.timed,
        slices=SliceWriter(monitor, message_store, now_ms, core.publisher, settling.timed, store_parts.windows),
        space=space,
        full_policy=FullPolicy(
            monitor,
            message_store,
            store_parts.directory.journal,
            core.publisher,
            core.parts.dead_letter_queues,
            core.removals,
            foundation.policies,
        ),
        settings=foundation.settings,
    )
