"""Areas: the TargetArea, the DispatchArea and the lists of a store, with their memory and without the store.

Messages have lengths and no journal, as in a replay. Nothing loads what is not in RAM, and nobody takes: a test looks
at the lists. It holds no lock, because it has one thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.cache.accounting import holder_names
from forebay.cache.accounting.budget import Budget
from forebay.cache.accounting.overdraft import Overdraft
from forebay.cache.accounting.shares import QuotaBytes, Shares
from forebay.cache.messages.memory_registry import MemoryRegistry
from forebay.cache.spill.overflow import Overflow
from forebay.dispatch.core.areas.consumer_trials import ConsumerTrials
from forebay.dispatch.core.areas.load_requests import LoadRequests
from forebay.dispatch.core.destinations.queue_state import QueueState
from forebay.dispatch.core.lanes.non_persistent_lane_state import NonPersistentLaneState
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.memory.memory_owners import MemoryOwners
from forebay.dispatch.core.memory.memory_rule import MemoryRule
from forebay.dispatch.core.memory.message_group_memory import MessageGroupMemory
from forebay.dispatch.core.memory.reclaim import Reclaim
from forebay.dispatch.core.model.destination import SelectorGroup, TargetList
from forebay.dispatch.core.monitor import Monitor
from forebay.dispatch.planning.played_areas import PlayedAreas
from forebay.dispatch.planning.played_store import PlayedStore
from forebay.dispatch.selectors.selector import compile_selector
from forebay.store.disk.memory_disk import MemoryDisk
from forebay.store.environment.account import Unlimited
from forebay.store.format.message_properties import encode_properties
from forebay.store.stored_message import StoredMessage
from forebay.store.tmp.non_persistent_lane import NonPersistentLane
from forebay.testing import ManualClock

KIB = 1024
MIB = 1024 * KIB
NO_QUOTAS: Mapping[str, QuotaBytes] = {}


class Areas:
    """Areas of which a test makes the queues, lanes and lists, and at which it lets messages arrive."""

    def __init__(
        self,
        limit_bytes: int = 4 * MIB,
        *,
        memory_rule: MemoryRule | None = None,
        quotas: Mapping[str, QuotaBytes] = NO_QUOTAS,
    ) -> None:
        """quotas: by the name of the queue that has one."""
        self.clock = ManualClock()
        self.monitor = Monitor(self.clock)
        self.budget = Budget(limit_bytes)
        self.budget.holder(holder_names.CURVE)
        # How often the loader was woken.
        self.woken = 0
        self.loads = LoadRequests(self._wake_loader, ConsumerTrials(self.clock))
        shares = Shares.of(limit_bytes, index_bytes=0, metadata_bytes=0, fixed_bytes=0, quotas=quotas)
        self.memory = self._make_memory(memory_rule or MemoryRule(), quotas)
        self._store = PlayedStore()
        reading = self.budget.holder(holder_names.READ_BUFFERS)
        areas = PlayedAreas(self.monitor, self.memory, shares, self.loads, self.clock.time_ms, self._store, reading)
        self.dispatch_area, self.target_area = areas.dispatch_area, areas.target_area
        self.watermarks, self.list_registry = areas.watermarks, areas.list_registry
        self._parts = areas.destination_state_parts
        self._queues = 0
        self._pending_lanes: dict[PersistentLaneState, NonPersistentLane] = {}

    def _wake_loader(self) -> None:
        self.woken += 1

    def _make_memory(self, memory_rule: MemoryRule, quotas: Mapping[str, QuotaBytes]) -> MemoryOwners:
        budget = self.budget
        overflow = Overflow(
            MemoryDisk(),
            budget,
            limit_bytes=64 * MIB,
            max_file_bytes=MIB,
            random_salt=lambda: 0,
            paid_buffer_bytes=0,
            make_room=lambda wanted_bytes: None,
        )
        return MemoryOwners(
            budget,
            MemoryRegistry(budget, quotas, memory_rule.pending_cache, lambda name: name if name in quotas else None),
            overflow,
            memory_rule,
            destination_memory=Overdraft(budget.holder(holder_names.DESTINATIONS)),
            consumer_memory=Overdraft(budget.holder(holder_names.CONSUMERS)),
            message_group_memory=MessageGroupMemory(budget.holder(holder_names.GROUPS)),
        )

    @property
    def reclaim(self) -> Reclaim:
        return self.watermarks.reclaim

    # ------------------------------------------------------------------ queues, lanes and lists

    def queue(self, name: str = "orders") -> QueueState:
        """Make a queue without lanes."""
        self._queues += 1
        return QueueState(self._parts, self._queues, name)

    def lane(self, queue: QueueState, priority: int = 4) -> PersistentLaneState:
        """Make a lane of persistent messages, with a list for each selector group."""
        pending_lane = NonPersistentLane(Unlimited(), queue.number, priority)
        lane = PersistentLaneState(queue, self._store.empty_lane, f"{queue.name}-", pending_lane)
        self._pending_lanes[lane] = pending_lane
        queue.put_lane(priority, lane)
        self.list_registry.add_lane(lane)
        return lane

    def non_persistent_lane(self, queue: QueueState, priority: int = 4) -> NonPersistentLaneState:
        """Make a lane of non-persistent messages, with a list for each selector group."""
        pending_lane = self.memory.overflow.lane(queue.number, priority)
        lane = NonPersistentLaneState(queue, pending_lane, "", self.memory.overflow, lambda lane: None)
        lane.persistent_lane_state = queue.lanes[priority]
        queue.put_non_persistent_lane(priority, lane)
        self.list_registry.add_lane(lane)
        return lane

    def subscribe(self, queue: QueueState, selector: str | None = None) -> SelectorGroup:
        """Make a selector group with its lists, as the first consumer does."""
        compiled = None if selector is None else compile_selector(selector)
        return self.list_registry.ensure_selector_group(queue, compiled)

    def list_of(self, name: str) -> TargetList:
        """Make a queue with one lane and one list."""
        queue = self.queue(name)
        self.lane(queue)
        [target] = self.subscribe(queue).lists
        return target

    # ------------------------------------------------------------------ messages

    def store(self, lane: PersistentLaneState, count: int = 1, size: int = KIB, **headers: int) -> list[StoredMessage]:
        """Store messages that do not arrive yet."""
        properties = encode_properties(headers) if headers else b""
        add = self._pending_lanes[lane].add
        return [(add(len(properties) + size), properties, bytes(size), 1) for _ in range(count)]

    def arrive(self, lane: PersistentLaneState, count: int = 1, size: int = KIB, **headers: int) -> list[StoredMessage]:
        """Store messages that arrive one by one."""
        messages = self.store(lane, count, size, **headers)
        for message in messages:
            self.target_area.publish(lane, (message,))
        return messages

    def arrive_unloaded(self, lane: PersistentLaneState, count: int, size: int = KIB) -> None:
        """Store messages that arrive without being in RAM."""
        messages = self.store(lane, count, size)
        self.target_area.publish(lane, range(messages[0][0], messages[-1][0] + 1))

    def remove(self, lane: PersistentLaneState, first: int, last: int) -> None:
        """Remove messages from the store. The areas do not know it yet."""
        self._pending_lanes[lane].remove(first, last)

    # ------------------------------------------------------------------ checks

    def check(self) -> None:
        """Assert that the ledger agrees with the lists and caches, and check the lists."""
        for target in self.watermarks.lists:
            target._check()
        for name, charge_bytes in self.list_registry.audit().items():
            assert self.budget.held_by(name) == charge_bytes, name


def pass_first(target: TargetList) -> StoredMessage:
    """Let the first direct message leave a list, as if somebody had taken and settled it."""
    message = target.direct[0]
    target.release(target.pass_first())
    return message


def sequences(target: TargetList) -> list[int]:
    """Return the sequences of the direct messages."""
    return [message[0] for message in target.direct]
