"""LedgerAudit: compare the budget's ledger with the live objects, by walking all of them.

Only tests depend on it, and the open of a store, which charges for what exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...store.index.index import Index
from ...store.index.subscriptions import Subscriptions
from ...store.property_table import PropertyTable
from ..admin.browse import Browsers
from ..admission.deduplication import DuplicateWindows
from ..core.areas.memory_parts import MemoryParts
from ..core.areas.target_area import TargetArea
from ..core.destinations.open_destinations import OpenDestinations
from ..core.destinations.overhead import FAN_OUT_BYTES, OPEN_SUBSCRIPTION_BYTES
from ..core.destinations.queue_registry import Queues
from ..core.memory.consumer_memory import ASSIGNED_BYTES, consumer_group_charge
from ..core.model import DestinationState, Taker
from ..core.monitor import Monitor
from ..core.publisher import Publisher
from ..core.settling.deadlines import AckDeadlines
from ..loading.warmer import CacheWarmer
from ..topics.registry import Topics
from ..transactions.transaction import TransactionRegistry

if TYPE_CHECKING:
    from ..planning.recorder import Recorder


class LedgerAudit:
    """Knows every object whose charge can be recomputed."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        index: Index,
        subscribers: Subscriptions,
        properties: PropertyTable,
        memory: MemoryParts,
        target_area: TargetArea,
        opened: OpenDestinations,
        queues: Queues,
        topics: Topics,
        warmer: CacheWarmer,
        publisher: Publisher,
        transactions: TransactionRegistry,
        windows: DuplicateWindows,
        deadlines: AckDeadlines,
        browsers: Browsers,
        recorder: Recorder | None,
        all_consumers: Callable[[], Iterator[Taker]],
    ) -> None:
        self._monitor = monitor
        self._index = index
        self._subscribers = subscribers
        self._properties = properties
        self._memory = memory
        self._target_area = target_area
        self._opened = opened
        self._queues = queues
        self._topics = topics
        self._warmer = warmer
        self._publisher = publisher
        self._transactions = transactions
        self._windows = windows
        self._deadlines = deadlines
        self._browsers = browsers
        self._recorder = recorder
        self._all_consumers = all_consumers

    def run(self) -> None:
        """Recompute every charge from the live objects; AssertionError if the ledger disagrees. O(everything)."""
        with self._monitor.lock:
            self._browsers.release_given_back()
            self._memory.budget._check()
            audited = self._target_area.audit()
            audited["index"] = self._index.held_bytes
            audited["attempts"] = self._index.delivery_count_table.held_bytes
            audited["head_queue_cache"] += self._warmer.loading_bytes
            audited["destinations"] = self._existing_charge()
            if self._recorder is not None:
                audited["trace"] = self._recorder.charge_bytes
            audited["keys"] = self._topics.keys_charge
            audited["unsynced"] = self._publisher.charge_bytes
            audited["consumers"] = self._consumers_charge()
            audited["transactions"], held_bytes = self._transactions.audit()
            audited["dispatch_area"] += held_bytes
            audited["duplicates"] = self._windows.held_bytes
            self._properties._check()
            audited["properties"] = self._properties.held_bytes
            queues = self._queues.by_name.values()
            groups = [queue.distribution.audit() for queue in queues]
            memory = self._memory.groups
            assert memory.held_back_bytes == sum(held_back_bytes for _, held_back_bytes in groups)
            audited["groups"] = sum(held_bytes for held_bytes, _ in groups) - memory.owed_bytes
            audited["deadlines"] = self._deadlines.charge_bytes
            self._deadlines._check()
            for name, found in audited.items():
                held = self._memory.budget.held_by(name)
                assert found == held, f"{name} holds {found} bytes, the ledger says {held}"

    def _consumers_charge(self) -> int:
        """Return what consumers should be charged. O(consumers)."""
        consumers = list(self._all_consumers())
        assigned = sum(consumer.consumer_group is not consumer.consumer_group.shared for consumer in consumers)
        groups = {consumer.consumer_group.shared for consumer in consumers}
        assert self._target_area.listless_consumer_groups == sum(not group.lists for group in groups)
        return (
            sum(consumer.charge_bytes for consumer in consumers)
            + sum(consumer_group_charge(group.selector) for group in groups)
            + ASSIGNED_BYTES * assigned
            + sum(target.charge_bytes for target in self._target_area.lists)
            - self._memory.consumers.owed_bytes
        )

    def _existing_charge(self) -> int:
        """Return what existing destinations and subscriptions should be charged, idle or in use. O(those)."""
        topics = self._topics.by_name.values()
        subscriptions = [subscription for topic in topics for subscription in topic.subscriptions()]
        opened: list[DestinationState] = [*self._queues.by_name.values(), *topics, *subscriptions]
        return (
            self._opened.census().charge_bytes
            + self._memory.destinations.lasting_bytes
            + self._index.lanes_charge
            + self._subscribers.charge_bytes
            + self._opened.idle_charge
            + sum(lane.charged_bytes for queue in opened for lane in queue.all_lanes())
            + OPEN_SUBSCRIPTION_BYTES * len(subscriptions)
            + FAN_OUT_BYTES * sum(len(topic.fan_outs) for topic in topics)
            - self._memory.destinations.owed_bytes
        )
