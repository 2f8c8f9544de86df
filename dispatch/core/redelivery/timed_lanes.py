"""TimedLanes: the lanes that hold messages sent with a delay or an expiry.

A lane is *timed* from its first such message on. It releases messages that are due, and is swept of those that have
expired. Both times are in the messages' properties, so a crash loses neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from ....store.format.times import DUE, NEVER, has_times, times_of
from ..areas.target_area import TargetArea
from ..model.destination import CoreDestination, LaneState
from ..monitor import Monitor
from .delayed_redelivery import RELEASE_BLOCKS


class TimedLanes:
    """All timed lanes of a store: when their next message is due and when to sweep them. The state lock guards it."""

    def __init__(
        self,
        monitor: Monitor,
        now_ms: Callable[[], int],
        target_area: TargetArea,
        sweep_seconds: Callable[[str], float],
        wake_housekeeper: Callable[[], None],
    ) -> None:
        """now_ms: the store's time. sweep_seconds: how often a destination of that name is swept."""
        self._monitor = monitor
        self._now_ms = now_ms
        self._target_area = target_area
        self._sweep_seconds = sweep_seconds
        self._wake_housekeeper = wake_housekeeper
        # Each timed lane of queues and topics, with the time of its next sweep.
        self._sweep_at: dict[LaneState, float] = {}
        # Lanes in which a take met expired messages. They are swept as soon as possible.
        self._met: dict[LaneState, None] = {}
        # When the first message sent with a delay is due, in the store's time; NEVER: none is. Read-only for callers.
        self.first_due_ms = NEVER
        # When the next sweep is due, in monotonic seconds. May be read without the lock.
        self.next_sweep = inf

    def restore(self, lanes: Iterable[LaneState]) -> None:
        """Take over the lanes that opening found. Requires: the lock."""
        for lane in lanes:
            if lane.pending_lane.earliest != [NEVER, NEVER]:
                self.note(lane)

    def note(self, lane: LaneState) -> None:
        """Register messages with a delay or an expiry that were added to a lane and are not published yet.

        The lists of the lane leave the fast path, which checks no times. Requires: the lock.
        """
        self.first_due_ms = min(self.first_due_ms, lane.pending_lane.earliest[DUE])
        if lane in self._sweep_at:
            return
        self._sweep_at[lane] = self._monitor.monotonic() + self._sweep_seconds(lane.destination.name)
        self.next_sweep = min(self.next_sweep, self._sweep_at[lane])
        for receiving in lane.receiving_lanes():
            receiving.is_timed = True
            for target in receiving.destination.lists_over(receiving):
                target.watch_times()

    def forget(self, destination: CoreDestination) -> None:
        """Drop the lanes of a queue that is deleted. Requires: the lock."""
        for lane in [lane for lane in self._sweep_at if lane.destination is destination]:
            del self._sweep_at[lane]
            self._met.pop(lane, None)

    def release_due(self) -> int:
        """Offer the messages that have come due and return in how many runs they were. Requires: the lock."""
        now_ms = self._now_ms()
        if now_ms < self.first_due_ms:
            return 0
        released = 0
        for lane in list(self._sweep_at):
            if lane.pending_lane.earliest[DUE] <= now_ms:
                runs = lane.backing_store.due_times.take_due(lane.pending_lane, now_ms, RELEASE_BLOCKS)
                for receiving in lane.receiving_lanes():
                    self._target_area.reoffer_runs(receiving, runs)
                released += len(runs)
        self.first_due_ms = min((lane.pending_lane.earliest[DUE] for lane in self._sweep_at), default=NEVER)
        return released

    def is_expired(self, properties: bytes) -> bool:
        """Return whether a message with these properties has expired."""
        return has_times(properties) and 0 < times_of(properties).expires_at <= self._now_ms()

    def drop_or_sweep(self, lane: LaneState, sequence: int) -> None:
        """Drop an expired message that a list has skipped, or have its lane swept soon if it is in the journal.

        Requires: the lock.
        """
        if not lane.is_persistent:
            if not lane.is_free(sequence):
                return  # the consumer of another list has it, or has delayed it: a sweep removes it when it comes back
            # The copy in RAM may have been the only one.
            lane.expired += lane.backing_store.acknowledge_one(lane.pending_lane, sequence)
            if lane.delivery_counts is not None:
                lane.trim_delivery_counts(sequence, sequence)
            lane.destination.on_room_freed()
            return
        swept = lane.expiry_lane_state
        if swept not in self._met:
            self._met[swept] = None
            self.next_sweep = 0.0
            self._wake_housekeeper()

    def due_for_sweep(self) -> list[LaneState]:
        """Return the lanes that are due for a sweep, and schedule the next sweep of each. Requires: no lock."""
        now = self._monitor.monotonic()
        if now < self.next_sweep:
            return []
        with self._monitor.lock, self._monitor.all_or_broken:
            due = [lane for lane, at in self._sweep_at.items() if at <= now or lane in self._met]
            self._met.clear()
            for lane in due:
                self._sweep_at[lane] = now + self._sweep_seconds(lane.destination.name)
            self.next_sweep = min(self._sweep_at.values(), default=inf)
        return due
