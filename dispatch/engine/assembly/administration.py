"""Makes the owners of operations on whole queues and topics."""

from __future__ import annotations

from ...admin.admin_layer import AdminLayer, make_admin_layer
from .clients import ClientLayer
from .core import CoreLayer
from .foundation import FoundationLayer
from .store_layer import StoreLayer


def make_admin(
    foundation: FoundationLayer, store_layer: StoreLayer, core: CoreLayer, clients: ClientLayer
) -> AdminLayer:
    """Make these owners. Requires: the store is open."""
    return make_admin_layer(
        core.owners,
        store_layer.directory,
        budget=foundation.budget,
        topics=clients.topic_layer.topics,
        topic_admin=clients.topic_layer.topic_admin,
        transactions=core.transactions,
        dead_lettering=clients.dead_lettering,
        wake_housekeeper=foundation.background_requests.wake_housekeeper,
        random_bytes=foundation.clock.random_bytes,
    )
