"""AdminLayer: make the owners of operations on whole queues and topics, each after those that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cache.accounting import holder_names
from ...cache.accounting.budget import Budget
from ...store.directory_store import DirectoryStore
from ..core.owners import CoreOwners
from ..topics.topic_admin import TopicAdmin
from ..topics.topic_registry import TopicRegistry
from ..transactions.transaction_registry import TransactionRegistry
from .browse import Browsers
from .dead_letter_recovery import DeadLetterRecovery
from .dead_letter_writer import DeadLetterWriter
from .dead_letters import DeadLetterMover
from .expiry import ExpirySweeper
from .idle import IdleDestinations
from .inactive import InactiveDestinations
from .move import Mover
from .queue_admin import QueueAdmin
from .rejections import Rejections
from .temporaries import TemporaryDestinations
from .transfer import LaneTransfer


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLayer:
    """The owners that make dead letters. They are made before consumers, which reject deliveries."""

    transfer: LaneTransfer
    writer: DeadLetterWriter
    rejections: Rejections


def make_dead_lettering(core: CoreOwners, directory: DirectoryStore, slice_messages_max: int) -> DeadLetterLayer:
    """Make these owners. slice_messages_max: most messages that are moved in one slice."""
    transfer = _make_transfer(core, directory, slice_messages_max)
    writer = _make_writer(core, directory, transfer)
    return DeadLetterLayer(transfer=transfer, writer=writer, rejections=_make_rejections(core, directory, writer))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminLayer:
    """The owners of operations on whole destinations. A class that needs only one owner takes that owner alone."""

    browsers: Browsers
    mover: Mover
    dead_letter_recovery: DeadLetterRecovery
    dead_letters: DeadLetterMover
    expiry_sweeper: ExpirySweeper
    queue_admin: QueueAdmin
    temporaries: TemporaryDestinations
    inactive: InactiveDestinations
    idle: IdleDestinations


def make_admin_layer(
    core: CoreOwners,
    directory: DirectoryStore,
    *,
    budget: Budget,
    topics: TopicRegistry,
    topic_admin: TopicAdmin,
    transactions: TransactionRegistry,
    dead_lettering: DeadLetterLayer,
    wake_housekeeper: Callable[[], None],
    random_bytes: Callable[[int], bytes],
) -> AdminLayer:
    """Make all owners. directory: has the parts that they use."""
    browsers = _make_browsers(core, budget)
    recovery = _make_recovery(core, directory, topics)
    queue_admin = _make_queue_admin(core, directory, transactions)
    return AdminLayer(
        browsers=browsers,
        mover=_make_mover(core, directory, browsers, dead_lettering.transfer),
        dead_letter_recovery=recovery,
        dead_letters=_make_dead_letters(core, browsers, dead_lettering.writer, recovery, wake_housekeeper),
        expiry_sweeper=_make_expiry_sweeper(core, directory, browsers, dead_lettering.writer),
        queue_admin=queue_admin,
        temporaries=_make_temporaries(core, directory, topics, queue_admin, topic_admin, random_bytes),
        inactive=_make_inactive(core, topics, queue_admin, topic_admin, transactions),
        idle=IdleDestinations(core.monitor, core.destinations.queues, topics, transactions),
    )


def _make_browsers(core: CoreOwners, budget: Budget) -> Browsers:
    return Browsers(
        monitor=core.monitor,
        watermarks=core.watermarks,
        budget=budget,
        reclaim=core.watermarks.reclaim,
        is_expired=core.timed.is_expired,
        holder=budget.holder(holder_names.BROWSERS),
        reading=budget.holders[holder_names.READ_BUFFERS],
        current=core.destinations.queues.for_report,
    )


def _make_queue_admin(core: CoreOwners, directory: DirectoryStore, transactions: TransactionRegistry) -> QueueAdmin:
    return QueueAdmin(
        monitor=core.monitor,
        checkpointer=directory.checkpointer,
        writer=directory.destination_writer,
        confirmer=core.confirmer,
        queues=core.destinations.queues,
        removals=core.removals,
        transactions=transactions,
    )


def _make_expiry_sweeper(
    core: CoreOwners, directory: DirectoryStore, browsers: Browsers, writer: DeadLetterWriter
) -> ExpirySweeper:
    return ExpirySweeper(
        monitor=core.monitor,
        checkpointer=directory.checkpointer,
        branches=directory.branches,
        now_ms=directory.steady_clock.now_ms,
        timed=core.timed,
        removals=core.removals,
        browsers=browsers,
        writer=writer,
        policies=core.policies,
    )


def _make_inactive(
    core: CoreOwners,
    topics: TopicRegistry,
    queue_admin: QueueAdmin,
    topic_admin: TopicAdmin,
    transactions: TransactionRegistry,
) -> InactiveDestinations:
    return InactiveDestinations(
        monitor=core.monitor,
        confirmer=core.confirmer,
        queues=core.destinations.queues,
        topics=topics,
        queue_admin=queue_admin,
        topic_admin=topic_admin,
        transactions=transactions,
        shortest_seconds=core.policies.shortest_inactive_seconds,
    )


def _make_transfer(core: CoreOwners, directory: DirectoryStore, slice_messages_max: int) -> LaneTransfer:
    return LaneTransfer(
        transaction_writer=directory.transaction_writer,
        branches=directory.branches,
        delivery_count_table=directory.index.delivery_count_table,
        publisher=core.publisher,
        removals=core.removals,
        timed=core.timed,
        slice_messages_max=slice_messages_max,
    )


def _make_writer(core: CoreOwners, directory: DirectoryStore, transfer: LaneTransfer) -> DeadLetterWriter:
    return DeadLetterWriter(
        monitor=core.monitor,
        fullness=directory.journal.fullness,
        checkpointer=directory.checkpointer,
        confirmer=core.confirmer,
        removals=core.removals,
        queues=core.destinations.dead_letter_queues,
        transfer=transfer,
    )


def _make_mover(core: CoreOwners, directory: DirectoryStore, browsers: Browsers, transfer: LaneTransfer) -> Mover:
    return Mover(
        monitor=core.monitor,
        checkpointer=directory.checkpointer,
        now_ms=directory.steady_clock.now_ms,
        confirmer=core.confirmer,
        destinations=core.destinations,
        removals=core.removals,
        browsers=browsers,
        transfer=transfer,
    )


def _make_temporaries(
    core: CoreOwners,
    directory: DirectoryStore,
    topics: TopicRegistry,
    queue_admin: QueueAdmin,
    topic_admin: TopicAdmin,
    random_bytes: Callable[[int], bytes],
) -> TemporaryDestinations:
    return TemporaryDestinations(
        monitor=core.monitor,
        rows=directory.destination_table,
        confirmer=core.confirmer,
        queues=core.destinations.queues,
        topics=topics,
        queue_admin=queue_admin,
        topic_admin=topic_admin,
        random_bytes=random_bytes,
    )


def _make_dead_letters(
    core: CoreOwners,
    browsers: Browsers,
    writer: DeadLetterWriter,
    recovery: DeadLetterRecovery,
    wake_housekeeper: Callable[[], None],
) -> DeadLetterMover:
    return DeadLetterMover(
        monitor=core.monitor,
        removals=core.removals,
        browsers=browsers,
        writer=writer,
        recovery=recovery,
        waiting=core.redelivery.lanes_with_dead_letters,
        policies=core.policies,
        wake_housekeeper=wake_housekeeper,
    )


def _make_recovery(core: CoreOwners, directory: DirectoryStore, topics: TopicRegistry) -> DeadLetterRecovery:
    return DeadLetterRecovery(
        branches=directory.branches,
        delivery_count_table=directory.index.delivery_count_table,
        subscribers=directory.subscriptions,
        queues=core.destinations.queues,
        topics=topics,
        policies=core.policies,
        waiting=core.redelivery.lanes_with_dead_letters,
    )


def _make_rejections(core: CoreOwners, directory: DirectoryStore, writer: DeadLetterWriter) -> Rejections:
    return Rejections(
        monitor=core.monitor,
        checkpointer=directory.checkpointer,
        dispatch_area=core.dispatch_area,
        confirmer=core.confirmer,
        removals=core.removals,
        queues=core.destinations.dead_letter_queues,
        writer=writer,
        policies=core.policies,
    )
