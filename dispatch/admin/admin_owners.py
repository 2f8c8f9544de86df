"""AdminOwners: make the owners of operations on whole queues and topics, each after those that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cache.accounting.budget import Budget
from ...store.directory_store import DirectoryStore
from ..core.parts import CoreParts
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
    """The owners of operations on whole destinations. A class that needs only one of them takes that one."""

    browsers: Browsers
    mover: Mover
    dead_letters: DeadLetterMover
    sweeper: ExpirySweeper
    queue_admin: QueueAdmin
    temporaries: Temporaries
    inactive: InactiveDestinations
    idle: IdleDestinations


def make_admin_owners(
    core: CoreParts,
    store: DirectoryStore,
    *,
    budget: Budget,
    topics: Topics,
    transactions: TransactionRegistry,
    slice_messages_max: int,
    wake_maintenance: Callable[[], None],
    random_bytes: Callable[[int], bytes],
) -> AdminOwners:
    """Make all of them. store: gives each its parts. slice_messages_max: most messages that are moved in one slice."""
    monitor, confirmer, destinations = core.monitor, core.confirmer, core.destinations
    journal, removals = store.journal, core.removals
    browsers = Browsers(
        monitor,
        core.target_area,
        budget,
        core.target_area.reclaim,
        core.timed.is_expired,
        budget.holder("browsers"),
        budget.holders["read_buffers"],
        destinations.for_report,
    )
    mover = _make_mover(core, store, browsers, slice_messages_max)
    dead_letters = _make_dead_letter_mover(core, store, topics, browsers, mover, wake_maintenance)
    sweeper = ExpirySweeper(
        monitor,
        store.messages,
        store.branches,
        store.steady.now_ms,
        core.timed,
        removals,
        browsers,
        dead_letters,
        core.policies,
    )
    queue_admin = QueueAdmin(
        monitor, store.messages, store.destination_records, confirmer, destinations, removals, transactions
    )
    return AdminOwners(
        browsers=browsers,
        mover=mover,
        dead_letters=dead_letters,
        sweeper=sweeper,
        queue_admin=queue_admin,
        temporaries=Temporaries(
            monitor=monitor,
            journal=journal,
            rows=store.destination_table,
            confirmer=confirmer,
            destinations=destinations,
            topics=topics,
            queue_admin=queue_admin,
            random_bytes=random_bytes,
        ),
        inactive=InactiveDestinations(
            monitor=monitor,
            journal=journal,
            confirmer=confirmer,
            destinations=destinations,
            topics=topics,
            queue_admin=queue_admin,
            transactions=transactions,
            shortest_seconds=core.policies.shortest_inactive_seconds,
        ),
        idle=IdleDestinations(monitor, destinations, topics, transactions),
    )


def _make_mover(core: CoreParts, store: DirectoryStore, browsers: Browsers, slice_messages_max: int) -> Mover:
    return Mover(
        monitor=core.monitor,
        store=store.messages,
        journal=store.journal,
        transactions=store.transactions,
        branches=store.branches,
        delivery_count_table=store.index.delivery_count_table,
        now_ms=store.steady.now_ms,
        publisher=core.publisher,
        confirmer=core.confirmer,
        destinations=core.destinations,
        removals=core.removals,
        timed=core.timed,
        browsers=browsers,
        slice_messages_max=slice_messages_max,
    )


def _make_dead_letter_mover(
    core: CoreParts,
    store: DirectoryStore,
    topics: Topics,
    browsers: Browsers,
    mover: Mover,
    wake_maintenance: Callable[[], None],
) -> DeadLetterMover:
    return DeadLetterMover(
        monitor=core.monitor,
        store=store.messages,
        journal=store.journal,
        branches=store.branches,
        delivery_count_table=store.index.delivery_count_table,
        subscribers=store.subscriptions,
        dispatch_area=core.dispatch_area,
        confirmer=core.confirmer,
        destinations=core.destinations,
        removals=core.removals,
        redelivery=core.redelivery,
        topics=topics,
        browsers=browsers,
        mover=mover,
        policies=core.policies,
        wake_maintenance=wake_maintenance,
    )
