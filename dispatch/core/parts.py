"""CoreParts: what everything above the core is made from."""

from __future__ import annotations

from dataclasses import dataclass

from .areas.dispatch_area import DispatchArea
from .areas.target_area import TargetArea
from .confirmer import ThreadConfirmer
from .destinations.dead_letter_queues import DeadLetterQueues
from .destinations.destination_lanes import DestinationLanes
from .destinations.grouped_queues import GroupedQueues
from .destinations.open_destinations import OpenDestinations
from .destinations.queue_registry import Queues
from .monitor import Monitor
from .publisher import Publisher
from .settling.removal import Removals


@dataclass(frozen=True, slots=True)
class CoreParts:
    """The owners of an open store from which make_admin_owners and make_topic_owners make theirs.

    It saves these two six parameters each. No owner keeps it: each is handed those that it uses.
    """

    monitor: Monitor
    target_area: TargetArea
    dispatch_area: DispatchArea
    publisher: Publisher
    confirmer: ThreadConfirmer
    opened: OpenDestinations
    queues: Queues
    lanes: DestinationLanes
    groups: GroupedQueues
    dead_letter_queues: DeadLetterQueues
    removals: Removals
