"""Makes the owners of operations on whole queues and topics."""

from __future__ import annotations

from ...admin.admin_owners import AdminOwners, make_admin_owners
from .clients import Clients
from .core import Core
from .foundation import Foundation
from .store_parts import StoreParts


def make_admin(foundation: Foundation, store_parts: StoreParts, core: Core, clients: Clients) -> AdminOwners:
    """Make the owners of admin operations, and connect rejections to the acks below that reject."""
    admin = make_admin_owners(
        core.parts,
        store_parts.directory,
        budget=foundation.budget,
        topics=clients.topic_owners.topics,
        topic_admin=clients.topic_owners.topic_admin,
        transactions=core.transactions,
        slice_messages_max=clients.producers.slice_messages_max,
        wake_maintenance=foundation.wakeups.wake_maintenance,
        random_bytes=foundation.clock.random_bytes,
    )
    foundation.late_calls.rejections = admin.rejections
    return admin
