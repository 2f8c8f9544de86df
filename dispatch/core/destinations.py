"""Destinations: the queues of an open store and the lanes of queues, by name and by number.

A queue, and each lane of it, is made on first use: one record in the journal
for a queue, none for a lane. An open finds the same queues again.
"""

from __future__ import annotations

from ...cache.spill.overflow import Overflow
from ...store.format.state import QUEUE
from ...store.message_store import MessageStore
from ...store.numbering import LANE_MASK, LANE_SHIFT
from ..admission.deduplication import DuplicateWindows
from ..admission.limits import DestinationLimits
from ..config.policies import Policies
from ..config.temporary import raise_if_temporary
from .delays import TimedLanes
from .lists import TargetArea
from .model import NonPersistentLaneState, PersistentLaneState, QueueArea
from .monitor import Monitor
from .non_persistent import SpillingLane
from .overhead import GROUPS_BYTES, QUEUE_BYTES, DestinationOverhead
from .publisher import Confirmer, Publisher


class Destinations:
    """Makes, finds and forgets queues and lanes. The state lock guards it."""

    def __init__(
        self,
        *,
        monitor: Monitor,
        store: MessageStore,
        target_area: TargetArea,
        overflow: Overflow,
        publisher: Publisher,
        timed: TimedLanes,
        overhead: DestinationOverhead,
        windows: DuplicateWindows,
        policies: Policies,
    ) -> None:
        self._monitor = monitor
        self._store = store
        self._target_area = target_area
        self._overflow = overflow
        self._publisher = publisher
        self._timed = timed
        self._overhead = overhead
        self._windows = windows
        self._policies = policies
        self.queues: dict[str, QueueArea] = {}
        self.by_number: dict[int, QueueArea] = {}
        """Queues only, not topics."""
        self.paused: dict[int, QueueArea] = {}
        """Queues that hand out nothing, by number, the one that was paused first in front."""

    # ------------------------------------------------------------------ queues

    def queue(self, name: str, confirmer: Confirmer) -> QueueArea:
        """Return the queue of that name; a new one is recorded in the journal. Requires: no lock.

        Closed: the store, or a temporary queue of that name, which is gone.
        """
        self._monitor.raise_if_closed()
        queue = self.queues.get(name)
        if queue is not None:
            return queue
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            if name not in self.queues:
                raise_if_temporary(name)
            queue = self.queue_locked(name)
            position = self._store.journal.end
        confirmer.confirm(position)
        return queue

    def queue_locked(self, name: str, *, is_temporary: bool = False) -> QueueArea:
        """Return the queue of that name, which may be new and not synced yet. Requires: the lock."""
        queue = self.queues.get(name)
        if queue is None:
            with self._overhead.one_more(QUEUE_BYTES):
                destination = self._store.create_destination(name, is_temporary=is_temporary)
                queue = self._add(destination.number, name)
        return queue

    def _add(self, number: int, name: str) -> QueueArea:
        queue = self.queues[name] = self.by_number[number] = QueueArea(self._target_area, number, name)
        self.register(queue)
        return queue

    def register(self, queue: QueueArea) -> None:
        """Give a queue or topic what its policy demands: limits, a duplicate window. Requires: the lock."""
        queue.is_watched = self._windows.watch(queue.number, queue.name)
        policy = self._policies.of(queue.name)
        queue.rebalances_groups = policy.group_rebalance
        if not queue.is_watched and not self._store.destinations[queue.number].is_temporary:
            queue.inactive_seconds = policy.inactive_seconds
        if policy.is_limiting:
            queue.admission = DestinationLimits(queue, policy, self._monitor.lock, self._monitor.monotonic)

    def note_groups(self, queue: QueueArea) -> None:
        """Record that a queue has messages with groups, also after a restart. StoreFull: memory has no room for it.

        Requires: the lock.
        """
        with self._overhead.one_more(GROUPS_BYTES):
            self._store.note_groups(queue.number)
            queue.has_groups = True

    def restore(self) -> list[QueueArea]:
        """Take over the queues that opening found; return those that have messages with groups. Requires: the lock."""
        grouped: list[QueueArea] = []
        for destination in self._store.destinations.values():
            if destination.kind == QUEUE:
                queue = self._add(destination.number, destination.name)
                if destination.has_groups:
                    queue.has_groups = True
                    grouped.append(queue)
        return grouped

    def restore_lanes(self) -> list[PersistentLaneState]:
        """Take over the lanes of queues that opening found, and return them. Requires: the lock."""
        restored: list[PersistentLaneState] = []
        for stored in list(self._store.index.lanes.values()):
            queue = self.by_number.get(stored.destination)
            if queue is not None:
                lane = queue.lanes[stored.priority] = queue.make_lane(stored.priority)
                restored.append(lane)
        return restored

    def remove(self, queue: QueueArea) -> None:
        """Forget a queue that is deleted: nothing that was sent to it arrives any more. Requires: the lock."""
        del self.queues[queue.name], self.by_number[queue.number]
        self.paused.pop(queue.number, None)
        self._overhead.one_less(QUEUE_BYTES + GROUPS_BYTES * queue.has_groups)
        self.unregister(queue)

    def unregister(self, queue: QueueArea) -> None:
        """Take from a queue or topic that is deleted what `register` and its senders gave it. Requires: the lock."""
        self._timed.forget(queue)
        self._windows.forget(queue.number)
        self._publisher.forget(queue)

    # ------------------------------------------------------------------ lanes

    def create_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        """Return the lane of a priority of a queue or topic. Requires: no lock. Closed: it is deleted."""
        with self._monitor.lock, self._monitor.whole:
            queue.raise_if_not_sendable()
            return queue.lanes[priority] or self._add_lane(queue, priority)

    def _add_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        lane = queue.lanes[priority] = queue.make_lane(priority)
        self._target_area.add_lane(lane)
        non_persistent = queue.non_persistent_lanes[priority]
        if non_persistent is not None:
            non_persistent.persistent = lane
        return lane

    def lane(self, number: int) -> PersistentLaneState:
        """Return the lane of that number, of a queue that exists. Requires: the lock."""
        return self.lane_of(self.by_number[number >> LANE_SHIFT], number & LANE_MASK)

    def lane_of(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        """Return the lane of a priority of a queue or topic, made if it is not there. Requires: the lock."""
        return queue.lanes[priority] or self._add_lane(queue, priority)

    def create_non_persistent_lane(self, queue: QueueArea, priority: int) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority. Requires: no lock. Closed: see create_lane."""
        with self._monitor.lock, self._monitor.whole:
            queue.raise_if_not_sendable()
            return self.non_persistent_lane(queue, priority)

    def non_persistent_lane(
        self, queue: QueueArea, priority: int, pool: int | None = None, id_prefix: str | None = None
    ) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority, made on first use. Requires: the lock.

        pool, id_prefix: of the topic that a subscription's lane is part of.
        """
        lane = queue.non_persistent_lanes[priority]
        if lane is None:
            memory = queue.memory
            caches = (memory.pending_cache, memory.head_queue_cache)
            stored = self._overflow.lane(queue.number, priority, caches, pool)
            prefix = id_prefix if id_prefix is not None else self.non_persistent_prefix(queue.number, priority)
            lane = queue.non_persistent_lanes[priority] = SpillingLane(
                queue, stored, prefix, self._overflow, self._timed.note
            )
            lane.persistent = queue.lanes[priority]
            self._target_area.add_lane(lane)
        return lane

    def non_persistent_prefix(self, destination: int, priority: int) -> str:
        """Return what ids of non-persistent messages begin with. They carry the epoch: each open counts from 0."""
        return f"{self._store.id_prefix(destination, priority)}e{self._store.journal.epoch}-"
