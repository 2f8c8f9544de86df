"""AdminOwners: makes the owners of what is done with whole queues and topics, from below to above.

Nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cache.budget import Budget
from ..config.policies import Policies
from ..core.parts import CoreParts
from ..core.settling.delays import TimedLanes
from ..core.settling.redelivery import Redelivery
from ..topics.registry import Topics
from ..transactions.transaction import TransactionRegistry
from .browse import Browsers
from .dead_letters import DeadLetterMover
from .expiry import ExpirySweeper
from .idle import IdleDestinations
from .inactive import InactiveDestinations
from .move import Mover
from .queue_admin import QueueAdmin
from .temporaries import Temporaries


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOwners:
    """The owners of an open store that work on whole destinations. A part that asks one of them gets that one."""

    browsers: Browsers
    mover: Mover
    dead_letters: DeadLetterMover
    sweeper: ExpirySweeper
    queue_admin: QueueAdmin
    temporaries: Temporaries
    inactive: InactiveDestinations
    idle: IdleDestinations


def make_admin_owners(
    parts: CoreParts,
    *,
    budget: Budget,
    timed: TimedLanes,
    redelivery: Redelivery,
    topics: Topics,
    transactions: TransactionRegistry,
    policies: Policies,
    slice_messages_max: int,
    wake_maintenance: Callable[[], None],
    random_bytes: Callable[[int], bytes],
) -> AdminOwners:
    """Make all of them. slice_messages_max: so many messages are moved in one slice."""
    monitor, store, confirmer, destinations = parts.monitor, parts.store, parts.confirmer, parts.destinations
    browsers = Browsers(
        monitor,
        parts.target_area,
        timed.is_expired,
        budget.holder("browsers"),
        budget.holders["read_buffers"],
        destinations.for_report,
    )
    mover = Mover(parts, timed=timed, browsers=browsers, slice_messages_max=slice_messages_max)
    dead_letters = DeadLetterMover(
        parts,
        redelivery=redelivery,
        topics=topics,
        browsers=browsers,
        mover=mover,
        policies=policies,
        wake_maintenance=wake_maintenance,
    )
    queue_admin = QueueAdmin(monitor, store, confirmer, destinations, parts.removals, transactions)
    return AdminOwners(
        browsers=browsers,
        mover=mover,
        dead_letters=dead_letters,
        sweeper=ExpirySweeper(monitor, store, timed, parts.removals, browsers, dead_letters, policies),
        queue_admin=queue_admin,
        temporaries=Temporaries(
            monitor=monitor,
            store=store,
            confirmer=confirmer,
            destinations=destinations,
            topics=topics,
            queue_admin=queue_admin,
            random_bytes=random_bytes,
        ),
        inactive=InactiveDestinations(
            monitor=monitor,
            store=store,
            confirmer=confirmer,
            destinations=destinations,
            topics=topics,
            queue_admin=queue_admin,
            transactions=transactions,
            shortest_seconds=policies.shortest_inactive_seconds,
        ),
        idle=IdleDestinations(monitor, destinations, topics, transactions),
    )
