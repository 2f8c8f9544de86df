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
        targets: TargetArea,
        overflow: Overflow,
        publisher: Publisher,
        timed: TimedLanes,
        overhead: DestinationOverhead,
        windows: DuplicateWindows,
        policies: Policies,
    ) -> None:
        self._monitor = monitor
        self._store = store
        self._targets = targets
        self._overflow = overflow
        self._publisher = publisher
        self._timed = timed
        self._overhead = overhead
        self._windows = windows
        self._policies = policies
        self.queues: dict[str, QueueArea] = {}
        self.by_number: dict[int, QueueArea] = {}
        """Queues only, not topics."""

    # ------------------------------------------------------------------ queues

    def queue(self, name: str, confirmer: Confirmer) -> QueueArea:
        """Return the queue of that name; a new one is recorded in the journal. Requires: no lock."""
        self._monitor.raise_if_closed()
        area = self.queues.get(name)
        if area is not None:
            return area
        with self._monitor.lock, self._monitor.whole:
            self._monitor.raise_if_closed()
            area = self.queue_locked(name)
            position = self._store.journal.end
        confirmer.confirm(position)
        return area

    def queue_locked(self, name: str) -> QueueArea:
        """Return the queue of that name, which may be new and not synced yet. Requires: the lock."""
        area = self.queues.get(name)
        if area is None:
            with self._overhead.one_more(QUEUE_BYTES):
                area = self._add(self._store.create_destination(name).number, name)
        return area

    def _add(self, number: int, name: str) -> QueueArea:
        area = self.queues[name] = self.by_number[number] = QueueArea(self._targets, number, name)
        self.register(area)
        return area

    def register(self, area: QueueArea) -> None:
        """Give a queue or topic what its policy demands: limits, a duplicate window. Requires: the lock."""
        area.is_watched = self._windows.watch(area.number, area.name)
        policy = self._policies.of(area.name)
        area.rebalances_groups = policy.group_rebalance
        if policy.is_limiting:
            area.admission = DestinationLimits(area, policy, self._monitor.lock, self._monitor.monotonic)

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
        for lane in list(self._store.index.lanes.values()):
            queue = self.by_number.get(lane.destination)
            if queue is not None:
                area = queue.areas[lane.priority] = queue.make_lane_area(lane.priority)
                restored.append(area)
        return restored

    def remove(self, queue: QueueArea) -> None:
        """Forget a queue that is deleted: nothing that was sent to it arrives any more. Requires: the lock."""
        del self.queues[queue.name], self.by_number[queue.number]
        self._overhead.one_less(QUEUE_BYTES + GROUPS_BYTES * queue.has_groups)
        self.unregister(queue)

    def unregister(self, area: QueueArea) -> None:
        """Take from a queue or topic that is deleted what `register` and its senders gave it. Requires: the lock."""
        self._timed.forget(area)
        self._windows.forget(area.number)
        self._publisher.forget(area)

    # ------------------------------------------------------------------ lanes

    def create_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        """Return the lane of a priority of a queue or topic. Requires: no lock. Closed: it is deleted."""
        with self._monitor.lock, self._monitor.whole:
            queue.raise_if_deleted()
            return queue.areas[priority] or self._add_lane(queue, priority)

    def _add_lane(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        area = queue.areas[priority] = queue.make_lane_area(priority)
        self._targets.add_lane(area)
        non_persistent = queue.non_persistent_lanes[priority]
        if non_persistent is not None:
            non_persistent.persistent = area
        return area

    def lane(self, number: int) -> PersistentLaneState:
        """Return the lane of that number, of a queue that exists. Requires: the lock."""
        return self.lane_of(self.by_number[number >> LANE_SHIFT], number & LANE_MASK)

    def lane_of(self, queue: QueueArea, priority: int) -> PersistentLaneState:
        """Return the lane of a priority of a queue or topic, made if it is not there. Requires: the lock."""
        return queue.areas[priority] or self._add_lane(queue, priority)

    def create_non_persistent_lane(self, queue: QueueArea, priority: int) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority. Requires: no lock. Closed: see create_lane."""
        with self._monitor.lock, self._monitor.whole:
            queue.raise_if_deleted()
            return self.non_persistent_lane(queue, priority)

    def non_persistent_lane(
        self, queue: QueueArea, priority: int, pool: int | None = None, id_prefix: str | None = None
    ) -> NonPersistentLaneState:
        """Return the lane of non-persistent messages of a priority, made on first use. Requires: the lock.

        pool, id_prefix: of the topic that a subscription's lane is part of.
        """
        area = queue.non_persistent_lanes[priority]
        if area is None:
            lane = self._overflow.lane(queue.number, priority, pool)
            prefix = id_prefix if id_prefix is not None else self.non_persistent_prefix(queue.number, priority)
            area = queue.non_persistent_lanes[priority] = SpillingLane(
                queue, lane, prefix, self._overflow, self._timed.note
            )
            area.persistent = queue.areas[priority]
            self._targets.add_lane(area)
        return area

    def non_persistent_prefix(self, destination: int, priority: int) -> str:
        """Return what ids of non-persistent messages begin with. They carry the epoch: each open counts from 0."""
        return f"{self._store.id_prefix(destination, priority)}e{self._store.journal.epoch}-"
