"""Messages that are not due: put off by a nack or a redelivery policy, or sent with a delay.

A message that is put off keeps its place, and comes back into it. Delays of a
nack end with the process; delays that a sender asked for are in the index and
survive a crash. A lane is *timed* from its first message with times on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final

from ...store.format.times import DUE, NEVER, has_times, times_of
from ...store.message_store import MessageStore
from ...store.sequence_set import SequenceSet
from .lists import TargetArea
from .model import LaneState, QueueArea
from .monitor import Monitor

RELEASE_BLOCKS: Final = 16
"""Most blocks of a lane released at one go: up to 8,192 messages, in a few milliseconds."""
TOGETHER_SECONDS: Final = 0.001
"""Messages of a lane that are due within so much come back together, with the last of them."""
CROWDED_SECONDS: Final = 0.05
"""How often a waiting take looks again while the index wants a checkpoint before more can be released."""


class _PutOff:
    """Messages of a lane that come back together."""

    __slots__ = ("area", "begun", "due", "sequences")

    def __init__(self, area: LaneState, due: float) -> None:
        self.area = area
        self.begun = due
        """When the first of them was to come back."""
        self.due = due
        """When the last of them is: until then all wait."""
        self.sequences = SequenceSet()


class DelayedRedelivery:
    """Messages that came back and are offered again later. The state lock guards it.

    What comes back within a millisecond is one entry, with 16 bytes for each run of sequences.
    """

    def __init__(self, monitor: Monitor, targets: TargetArea, wake_maintenance: Callable[[], None]) -> None:
        self._monitor = monitor
        self._targets = targets
        self._wake_maintenance = wake_maintenance
        self._heap: list[tuple[float, int, _PutOff]] = []
        """By a time that is not behind when they are due."""
        self._newest: dict[LaneState, _PutOff] = {}
        self._scheduled = 0

    def schedule(self, delay_seconds: float, area: LaneState, sequence: int) -> None:
        """Offer a message again after a delay. RAM has only its number meanwhile. Requires: the lock."""
        area.parked.add(sequence, sequence)
        due = self._monitor.monotonic() + delay_seconds
        newest = self._newest.get(area)
        if newest is not None and newest.begun <= due <= newest.begun + TOGETHER_SECONDS:
            newest.due = max(newest.due, due)
            newest.sequences.add(sequence, sequence)
            return
        newest = self._newest[area] = _PutOff(area, due)
        newest.sequences.add(sequence, sequence)
        self._push(newest)
        if self._heap[0][2] is newest:
            self._wake_maintenance()  # it sleeps until something that is due later

    def cancel(self, area: LaneState, gone: SequenceSet) -> None:
        """Forget messages that were removed. O(entries + runs). Requires: the lock."""
        if not area.parked:
            return
        for first, last in gone:
            area.parked.remove(first, last)
        kept: list[tuple[float, int, _PutOff]] = []
        for entry in self._heap:
            put_off = entry[2]
            if put_off.area is area:
                for first, last in gone:
                    put_off.sequences.remove(first, last)
            if put_off.sequences:
                kept.append(entry)
            elif self._newest.get(area) is put_off:
                del self._newest[area]
        self._heap = kept
        heapq.heapify(self._heap)

    def entries(self) -> Iterator[tuple[float, LaneState, int]]:
        """Yield when each message is due, its lane and its sequence, in no order. Requires: the lock."""
        for _, _, put_off in self._heap:
            for first, last in put_off.sequences:
                for sequence in range(first, last + 1):
                    yield put_off.due, put_off.area, sequence

    @property
    def next_due(self) -> float | None:
        """When the next message is due, on the monotonic clock. None: nothing waits."""
        return self._heap[0][0] if self._heap else None

    def release_due(self) -> int:
        """Offer the messages whose delay is over; return how many. Requires: the lock."""
        released = 0
        while self._heap and self._heap[0][0] <= (now := self._monitor.monotonic()):
            _, _, put_off = heapq.heappop(self._heap)
            if put_off.due > now:
                self._push(put_off)
                continue
            area = put_off.area
            if self._newest.get(area) is put_off:
                del self._newest[area]
            for first, last in put_off.sequences:
                area.parked.remove(first, last)
                for sequence in range(first, last + 1):
                    self._targets.offer_again(area, (sequence, b"", None, 0))
                released += last - first + 1
        return released

    def _push(self, put_off: _PutOff) -> None:
        self._scheduled += 1
        heapq.heappush(self._heap, (put_off.due, self._scheduled, put_off))


class TimedLanes:
    """Lanes that hold messages with a delay or an expiry. The state lock guards it."""

    def __init__(
        self,
        monitor: Monitor,
        store: MessageStore,
        targets: TargetArea,
        sweep_seconds: Callable[[str], float],
        wake_maintenance: Callable[[], None],
    ) -> None:
        """sweep_seconds: how often a destination of that name is swept for expired messages."""
        self._monitor = monitor
        self._index = store.index
        self._now_ms = store.steady.now_ms
        self._targets = targets
        self._sweep_seconds = sweep_seconds
        self._wake_maintenance = wake_maintenance
        self._sweep_at: dict[LaneState, float] = {}
        """The timed lanes of queues and topics, and when each is swept next."""
        self._met: dict[LaneState, None] = {}
        """Lanes in which a take met expired messages: they are swept as soon as may be."""
        self._next_due_ms = NEVER
        self.next_sweep = inf
        """When the next sweep is due, on the monotonic clock. May be read without the lock."""

    def restore(self, areas: Iterable[LaneState]) -> None:
        """Take over the lanes that opening found. Requires: the lock."""
        for area in areas:
            if area.lane.earliest != [NEVER, NEVER]:
                self.note(area)

    def note(self, area: LaneState) -> None:
        """Register messages with times that were added to a lane of a queue or topic, and are not published yet.

        The lists of the lane give up the fast path, which looks at nothing twice. Requires: the lock.
        """
        self._next_due_ms = min(self._next_due_ms, area.lane.earliest[DUE])
        if area in self._sweep_at:
            return
        self._sweep_at[area] = self._monitor.monotonic() + self._sweep_seconds(area.queue.name)
        self.next_sweep = min(self.next_sweep, self._sweep_at[area])
        for reader in area.readers():
            reader.is_timed = True
            for target in reader.queue.lists_over(reader):
                target.watch_times()

    def forget(self, queue: QueueArea) -> None:
        """Drop the lanes of a queue that is deleted. Requires: the lock."""
        for area in [area for area in self._sweep_at if area.queue is queue]:
            del self._sweep_at[area]
            self._met.pop(area, None)

    # ------------------------------------------------------------------ due

    @property
    def due_seconds(self) -> float | None:
        """How long until something is due. None: nothing waits."""
        if self._next_due_ms == NEVER:
            return None
        seconds = (self._next_due_ms - self._now_ms()) / 1000
        return CROWDED_SECONDS if seconds <= 0 and self._index.is_crowded else max(seconds, 0.0)

    def release_due(self) -> int:
        """Offer what has come due; return in how many runs. Requires: the lock."""
        now_ms = self._now_ms()
        if now_ms < self._next_due_ms:
            return 0
        released = 0
        for area in list(self._sweep_at):
            if area.lane.earliest[DUE] <= now_ms:
                runs = area.store.timetable.release(area.lane, now_ms, RELEASE_BLOCKS)
                for reader in area.readers():
                    self._offer(reader, runs)
                released += len(runs)
        self._next_due_ms = min((area.lane.earliest[DUE] for area in self._sweep_at), default=NEVER)
        return released

    def _offer(self, area: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """Put runs that are free from now on back into their places, in each list that has passed them."""
        targets = self._targets
        for consumer_group in area.queue.consumer_groups.values():
            for target in consumer_group.lists:
                if target.area is not area or not runs:
                    continue
                for first, last in runs:
                    if first < target.frontier:
                        target.returned.add(first, min(last, target.frontier - 1))
                    load = target.load
                    behind = max(first, target.frontier)
                    if load is not None and behind <= min(last, load.last):
                        # It passed them over while they waited: it ends before them, and is looked through again.
                        area.purges += 1
                        load.last = behind - 1
                targets.loads.feed(target)
                targets.wake(consumer_group)
        if runs and area.queue.dealer is not None:
            area.queue.dealer.make_way()

    # ------------------------------------------------------------------ expired

    def is_expired(self, properties: bytes) -> bool:
        """Return whether a message that is in RAM has expired."""
        return has_times(properties) and 0 < times_of(properties).expires_at <= self._now_ms()

    def meet(self, area: LaneState, sequence: int) -> None:
        """Have an expired message removed that a list has passed over. Requires: the lock."""
        if not area.is_persistent:
            if sequence in area.in_flight:
                return  # another list's consumer has it, until it comes back
            # RAM may have had the only copy.
            area.expired += area.store.remove_one(area.lane, sequence)
            if area.attempts is not None:
                area.settled(sequence, sequence)
            if area.queue.admission is not None:
                area.queue.admission.room_came()
            return
        swept = area.swept_lane
        if swept not in self._met:
            self._met[swept] = None
            self.next_sweep = 0.0
            self._wake_maintenance()

    def due_for_sweep(self) -> list[LaneState]:
        """Return the lanes whose sweep is due, and schedule the next sweep of each. Requires: no lock."""
        now = self._monitor.monotonic()
        if now < self.next_sweep:
            return []
        with self._monitor.lock, self._monitor.whole:
            due = [area for area, at in self._sweep_at.items() if at <= now or area in self._met]
            self._met.clear()
            for area in due:
                self._sweep_at[area] = now + self._sweep_seconds(area.queue.name)
            self.next_sweep = min(self._sweep_at.values(), default=inf)
        return due


class DueMessages:
    """Everything that waits for its time, as takes and maintenance ask for it."""

    def __init__(self, monitor: Monitor, delayed: DelayedRedelivery, timed: TimedLanes) -> None:
        self._monitor = monitor
        self._delayed = delayed
        self._timed = timed

    @property
    def next_due(self) -> float | None:
        """When the next message is due, on the monotonic clock. None: nothing waits."""
        delayed = self._delayed.next_due
        seconds = self._timed.due_seconds
        if seconds is None:
            return delayed
        due = self._monitor.monotonic() + seconds
        return due if delayed is None else min(due, delayed)

    def release(self) -> int:
        """Offer the messages whose time has come; return how many runs and messages. Requires: the lock."""
        return self._timed.release_due() + self._delayed.release_due()
