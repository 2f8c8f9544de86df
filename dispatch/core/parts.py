"""CoreParts: what everything reaches that stores, moves and removes messages. Nothing here is stored."""

from __future__ import annotations

from dataclasses import dataclass

from ...store.message_store import MessageStore
from .areas.target_area import TargetArea
from .confirmer import ThreadConfirmer
from .destinations.destinations import Destinations
from .monitor import Monitor
from .publisher import Publisher
from .settling.removal import Removals


@dataclass(frozen=True, slots=True)
class CoreParts:
    """The owners of an open store that several parts need all of. A part that needs fewer names those."""

    monitor: Monitor
    store: MessageStore
    target_area: TargetArea
    publisher: Publisher
    confirmer: ThreadConfirmer
    destinations: Destinations
    removals: Removals
