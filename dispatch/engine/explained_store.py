"""ExplainedStore: the parts of a store that explanations ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...store.journal.fullness import Fullness
from ...store.maintenance.data_log_retention import DataLogRetention
from ...store.maintenance.disk_use import DiskUse
from ..admin.expiry import ExpirySweeper
from ..core.areas.dispatch_area import DispatchArea
from ..core.areas.list_registry import ListRegistry
from ..core.destinations.queue_registry import QueueRegistry
from ..core.memory.memory_owners import MemoryOwners
from ..core.memory.reclaim import Reclaim
from ..core.monitor import Monitor
from ..core.redelivery.delayed_redelivery import DelayedRedelivery
from ..core.redelivery.due_messages import DueMessages
from ..producer.space_lines import SpaceLines
from ..topics.topic_registry import TopicRegistry
from ..transactions.transaction_registry import TransactionRegistry


@dataclass(frozen=True, slots=True)
class ExplainedDisk:
    """The owners that know what keeps disk space, and who waits for space."""

    fullness: Fullness
    data_log_retention: DataLogRetention
    disk_use: DiskUse
    space: SpaceLines


@dataclass(frozen=True, slots=True)
class ExplainedTimes:
    """The owners of messages that wait for a time."""

    now_ms: Callable[[], int]
    """Returns the store's time, by which messages are due and expire."""
    due: DueMessages
    delayed: DelayedRedelivery
    expiry_sweeper: ExpirySweeper


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedStore:
    """The owners of an open store that know where messages are, who has memory or disk, and who waits."""

    monitor: Monitor
    disk: ExplainedDisk
    memory: MemoryOwners
    times: ExplainedTimes
    queues: QueueRegistry
    topics: TopicRegistry
    transactions: TransactionRegistry
    reclaim: Reclaim
    list_registry: ListRegistry
    dispatch_area: DispatchArea
    has_background: bool
    """Whether threads of the store load and release. False: the host's calls of `step` do."""
