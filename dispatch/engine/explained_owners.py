"""ExplainedOwners: the parts of a store that explanations ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...cache.budget import Budget
from ...cache.spill.overflow import Overflow
from ...store.data_log_retention import DataLogRetention
from ...store.disk_use import DiskUse
from ...store.journal.journal import Journal
from ..admin.expiry import ExpirySweeper
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.reclaim import Reclaim
from ..core.areas.target_area import TargetArea
from ..core.destinations.queue_registry import Queues
from ..core.monitor import Monitor
from ..core.settling.delays import DelayedRedelivery
from ..core.settling.due import DueMessages
from ..producer.space import Space
from ..topics.registry import Topics
from ..transactions.transaction import TransactionRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedOwners:
    """The owners of an open store that know where messages are, who has memory or disk, and who waits."""

    monitor: Monitor
    journal: Journal
    retention: DataLogRetention
    disk_use: DiskUse
    now_ms: Callable[[], int]
    """Returns the store's time, by which messages are due and expire."""
    queues: Queues
    topics: Topics
    transactions: TransactionRegistry
    target_area: TargetArea
    dispatch_area: DispatchArea
    reclaim: Reclaim
    budget: Budget
    overflow: Overflow
    space: Space
    due: DueMessages
    delayed: DelayedRedelivery
    sweeper: ExpirySweeper
    has_background: bool
    """Whether threads of the store load and release. False: the host's calls of `step` do."""
