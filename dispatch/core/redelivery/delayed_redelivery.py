"""DelayedRedelivery: the messages that a nack or a redelivery policy has delayed.

A delayed message keeps its place in its lane and comes back into it. The time of its return is in the index and in the
journal, so a delay survives a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ....store.environment.clock import SteadyClock
from ....store.format.times import DUE, NEVER
from ....store.index.due_times import DueTimes
from ....store.index.index import Index
from ....store.numbering import BLOCK_MESSAGES
from ....store.structures.sequence_set import SequenceSet
from ..areas.target_area import TargetArea
from ..model.destination import LaneState

RELEASE_BLOCKS: Final = 16
"""Most blocks of a lane that one call releases: up to 8,192 messages, which takes a few milliseconds."""


class _UnplacedRun(NamedTuple):
    """A delayed run whose delay is not in the index yet. Its lane has parked it."""

    lane: LaneState
    first: int
    last: int
    due_at: int
    """When the delay ends, in the store's time."""


class DelayedRedelivery:
    """Messages that came back and are offered again later. The state lock guards it.

    The index has the time of each, bounded and charged like the rest of the index. RAM has nothing else of these
    messages. If the index has no room before the next checkpoint, their runs wait here.
    """

    def __init__(
        self,
        index: Index,
        due_times: DueTimes,
        steady_clock: SteadyClock,
        target_area: TargetArea,
        find: Callable[[int], LaneState | None],
        wake_housekeeper: Callable[[], None],
    ) -> None:
        """find: returns the lane of a number, or None if nobody has it open. Requires: the lock."""
        self._index = index
        self._due_times = due_times
        self._steady_clock = steady_clock
        self._target_area = target_area
        self._find = find
        self._wake_housekeeper = wake_housekeeper
        # When the first waiting message is due, in the store's time. NEVER: no message waits. Read-only for callers.
        self.first_due_ms = NEVER
        # Runs for which the index has no room before a checkpoint.
        self._unplaced: list[_UnplacedRun] = []

    def restore(self) -> int:
        """Take over the delays that opening the store found; return how many messages come back at once instead.

        RAM may have no room to halt the groups of all delayed messages. The others come back early. Requires: the lock.
        """
        forgotten = 0
        for number, waiting in list(self._index.delayed.items()):
            lane = self._find(number)
            if lane is not None and waiting.pending_messages:
                over = lane.distribution.remember_delayed(lane, self.runs(lane))
                for first, last in over:
                    waiting.forget(first, last)
                    forgotten += last - first + 1
                if over:
                    self._due_times.refresh_due(waiting)
        self.first_due_ms = self._earliest()
        return forgotten

    def due_at(self, delay_seconds: float) -> int:
        """Return when a delay that begins now ends, in the store's time. It never ends early."""
        return self._steady_clock.after_ms(delay_seconds)

    def schedule(self, lane: LaneState, first: int, last: int, due_at: int) -> None:
        """Offer a run again at a later time. RAM holds at most the block of the run meanwhile. Requires: the lock."""
        if self._index.is_nearly_full:
            lane.park_for_delay(first, last)
            self._unplaced.append(_UnplacedRun(lane, first, last, due_at))
            self._wake_housekeeper()
        else:
            self._index.delayed_lane(lane.pending_lane).put(first, last, due_at)
        if due_at < self.first_due_ms:
            self.first_due_ms = due_at
            self._wake_housekeeper()  # the housekeeper may sleep until a later time

    def cancel(self, lane: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed. O(blocks + runs). Requires: the lock."""
        waiting = self._index.delayed.get(lane.pending_lane.number)
        if waiting is not None:
            for first, last in gone:
                waiting.forget(first, last)
            self._due_times.refresh_due(waiting)
        if self._unplaced:
            kept: list[_UnplacedRun] = []
            for run in self._unplaced:
                kept += _without(run, gone) if run.lane is lane else [run]
            self._unplaced = kept
        self.first_due_ms = self._earliest()

    def runs(self, lane: LaneState) -> Iterator[tuple[int, int]]:
        """Yield the runs of a lane that wait for their time; parts of a run may be gone.

        O(blocks). Requires: the lock.
        """
        waiting = self._index.delayed.get(lane.pending_lane.number)
        at = 0
        while waiting is not None and (run := waiting.pending_run(at, BLOCK_MESSAGES)) is not None:
            at = run[1] + 1
            yield run
        for unplaced in self._unplaced:
            if unplaced.lane is lane:
                yield unplaced.first, unplaced.last

    def next_due_ms(self, lane: LaneState) -> int:
        """Return when the first waiting message of a lane is due, in the store's time. NEVER: no message waits."""
        waiting = self._index.delayed.get(lane.pending_lane.number)
        unplaced = min((run.due_at for run in self._unplaced if run.lane is lane), default=NEVER)
        return min(unplaced, NEVER if waiting is None else waiting.earliest[DUE])

    def release_due(self) -> int:
        """Offer the messages whose delay has ended and return how many there were. Requires: the lock."""
        self._place()
        now_ms = self._steady_clock.now_ms()
        if now_ms < self.first_due_ms:
            return 0
        released = 0
        for number, waiting in list(self._index.delayed.items()):
            if waiting.earliest[DUE] <= now_ms:
                runs = self._due_times.take_due(waiting, now_ms, RELEASE_BLOCKS)
                lane = self._find(number)
                if lane is not None:
                    self._target_area.reoffer_delayed(lane, runs)
                released += sum(last - first + 1 for first, last in runs)
        self.first_due_ms = self._earliest()
        return released

    def _place(self) -> None:
        """Put the runs for which there was no room into the index."""
        while self._unplaced and not self._index.is_crowded:
            lane, first, last, due_at = self._unplaced.pop()
            lane.unpark_delayed(first, last)
            self._index.delayed_lane(lane.pending_lane).put(first, last, due_at)

    def _earliest(self) -> int:
        unplaced = min((run.due_at for run in self._unplaced), default=NEVER)
        return min(unplaced, min((waiting.earliest[DUE] for waiting in self._index.delayed.values()), default=NEVER))


def _without(run: _UnplacedRun, gone: SequenceSet) -> list[_UnplacedRun]:
    """Return the parts of a run that are not gone, and unpark the others."""
    left = SequenceSet()
    left.add(run.first, run.last)
    for gone_first, gone_last in gone:
        first, last = max(gone_first, run.first), min(gone_last, run.last)
        if first <= last:
            left.remove(first, last)
            run.lane.unpark_delayed(first, last)
    return [run._replace(first=first, last=last) for first, last in left]
