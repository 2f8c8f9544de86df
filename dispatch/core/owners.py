"""CoreOwners and DestinationOwners: what everything above the core is made from."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.policies import Policies
from .areas.dispatch_area import DispatchArea
from .areas.list_registry import ListRegistry
from .confirmer import ThreadConfirmer
from .destinations.dead_letter_queues import DeadLetterQueues
from .destinations.destination_lanes import DestinationLanes
from .destinations.destination_opener import DestinationOpener
from .destinations.message_group_queues import MessageGroupQueues
from .destinations.overhead import DestinationOverhead
from .destinations.queue_registry import QueueRegistry
from .memory.watermarks import Watermarks
from .model.destination import DestinationStateParts
from .monitor import Monitor
from .publisher import Publisher
from .redelivery.redelivery import Redelivery
from .redelivery.removal import Removals
from .redelivery.timed_lanes import TimedLanes


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationOwners:
    """The owners that open queues and topics, make their lanes, and bound what all of them take."""

    opener: DestinationOpener
    queues: QueueRegistry
    lanes: DestinationLanes
    message_group_queues: MessageGroupQueues
    dead_letter_queues: DeadLetterQueues
    overhead: DestinationOverhead


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOwners:
    """The owners of an open store from which make_admin_layer and make_topic_layer make theirs.

    It saves these two nearly all their parameters. No owner keeps it: each is handed those that it uses.
    """

    monitor: Monitor
    policies: Policies
    list_registry: ListRegistry
    destination_state_parts: DestinationStateParts
    watermarks: Watermarks
    dispatch_area: DispatchArea
    timed: TimedLanes
    redelivery: Redelivery
    publisher: Publisher
    confirmer: ThreadConfirmer
    removals: Removals
    destinations: DestinationOwners
