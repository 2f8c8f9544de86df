"""Timing: a part of the engine: messages that are not due yet come into their places in time, expired ones leave.

A lane is *timed* from its first message with a time on. What is not due is
passed over by every list, and comes back as what a consumer returned does:
into its place, before all that arrived later and is not handed out yet. What
has expired is not handed out. It leaves the queue with the next sweep, which
finds it in the index and reads no message; one ack record takes a run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Final

from ...cache.charge import charge_bytes
from ...store.errors import Closed, ForebayError, StoreFailed
from ...store.format.times import DUE, EXPIRY, NEVER, has_times, times_of
from ...store.index.topic_lane import SubscriptionLane
from ...store.journal.reading import StoredMessage
from ...store.sequence_set import SequenceSet
from ..config.policy import policy_for
from ..core.queue_area import LaneState, QueueArea
from ..core.target_list import TargetList
from ..topics.state import SubscriptionLaneState, TopicState
from .dead_letters import EXPIRED

if TYPE_CHECKING:
    from ..engine.engine import Engine

logger = logging.getLogger("forebay.dispatch")

RELEASE_BLOCKS: Final = 16
"""Of a lane, released at one go: up to 8,192 messages, in a few milliseconds."""
SWEEP_BLOCKS: Final = 64
"""Of a lane, swept before the state lock is let go."""
CROWDED_SECONDS: Final = 0.05
"""While the index wants a checkpoint before more can be released, who waits for messages looks again so often."""


class Timing:
    """See the module. The state lock guards it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now_ms = engine.store.steady.now_ms
        self._sweep_at: dict[LaneState, float] = {}
        """The timed lanes of queues and topics, and when each is swept next."""
        self._met: dict[LaneState, None] = {}
        """Those of which a take met expired messages: they are swept as soon as may be."""
        self._next_due_ms = NEVER
        self.next_sweep = inf
        """When the next sweep is due, on the engine's clock. May be read without the lock."""
        engine.targets.drop_expired, engine.targets.note_times = self.drop_expired, self.note

    # ------------------------------------------------------------------ timed lanes

    def restore(self) -> None:
        """Take over what opening found. REQUIRES: the lock."""
        engine = self._engine
        for queue in (*engine.queues.values(), *engine.topics.areas.values()):
            for area in queue.lane_areas():
                if area.lane.earliest != [NEVER, NEVER]:
                    self.note(area)

    def note(self, area: LaneState) -> None:
        """Messages with times were added to a lane of a queue or topic, and are not published yet. REQUIRES: the lock.

        The lists of the lane give up the fast path that looks at nothing twice.
        """
        self._next_due_ms = min(self._next_due_ms, area.lane.earliest[DUE])
        if area in self._sweep_at:
            return
        self._sweep_at[area] = self._engine.monotonic() + self._sweep_seconds(area)
        self.next_sweep = min(self.next_sweep, self._sweep_at[area])
        for reader in (area, *_readers(area)):
            reader.is_timed = True
            for target in reader.queue.lists_over(reader):
                target.watch_times()

    def forget(self, queue: QueueArea) -> None:
        """It is deleted. REQUIRES: the lock."""
        for area in [area for area in self._sweep_at if area.queue is queue]:
            del self._sweep_at[area]
            self._met.pop(area, None)

    def _sweep_seconds(self, area: LaneState) -> float:
        return policy_for(self._engine.settings.policies, area.queue.name).expiry_sweep_seconds

    # ------------------------------------------------------------------ due

    @property
    def due_seconds(self) -> float | None:
        """How long until something is due; None: nothing waits."""
        if self._next_due_ms == NEVER:
            return None
        seconds = (self._next_due_ms - self._now_ms()) / 1000
        return CROWDED_SECONDS if seconds <= 0 and self._engine.store.index.is_crowded else max(seconds, 0.0)

    def release_due(self) -> int:
        """Offer what has come due since; returns in how many runs. REQUIRES: the lock."""
        now_ms = self._now_ms()
        if now_ms < self._next_due_ms:
            return 0
        released = 0
        for area in list(self._sweep_at):
            if area.lane.earliest[DUE] <= now_ms:
                runs = area.store.timetable.release(area.lane, now_ms, RELEASE_BLOCKS)
                for reader in (area, *_readers(area)):
                    self._offer(reader, runs)
                released += len(runs)
        self._next_due_ms = min((area.lane.earliest[DUE] for area in self._sweep_at), default=NEVER)
        return released

    def _offer(self, area: LaneState, runs: Sequence[tuple[int, int]]) -> None:
        """These are free from now on: in each list that has passed them they are back in their places."""
        targets = self._engine.targets
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
                targets.feed(target)
                targets.wake(consumer_group)
        if runs and area.queue.dealer is not None:
            area.queue.dealer.make_way()

    # ------------------------------------------------------------------ expired

    def drop_expired(self, target: TargetList, most: int) -> None:
        """Take out of the next direct messages of a list what has expired, so that up to most others come next.

        O(most + expired). REQUIRES: the lock.
        """
        area, direct, now_ms = target.area, target.direct, self._now_ms()
        kept: list[StoredMessage] = []
        while direct and len(kept) < most:
            message = direct.popleft()
            if self._has_expired(area, message, now_ms):
                charge = charge_bytes(message)
                target.direct_bytes -= charge
                self._engine.targets.targets.release(charge)
                self._meet(area, message[0])
            else:
                kept.append(message)
        direct.extendleft(reversed(kept))

    def _has_expired(self, area: LaneState, message: StoredMessage, now_ms: int) -> bool:
        if message[2] is None:
            times = area.lane.times_of(message[0])
        elif has_times(message[1]):
            times = times_of(message[1])
        else:
            return False
        return 0 < times.expires_at <= now_ms

    def is_expired(self, properties: bytes) -> bool:
        """Of a message that is in RAM."""
        return has_times(properties) and 0 < times_of(properties).expires_at <= self._now_ms()

    def _meet(self, area: LaneState, sequence: int) -> None:
        """A list has passed over it."""
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
        if isinstance(area, SubscriptionLaneState):
            area = area.topic_area
        if area not in self._met:
            self._met[area] = None
            self.next_sweep = 0.0
            self._engine.wake_housekeeper()

    def sweep_due(self) -> int:
        """Remove what has expired in the lanes whose time has come; returns how many messages. REQUIRES: no lock."""
        now = self._engine.monotonic()
        if now < self.next_sweep:
            return 0
        removed = 0
        with self._engine.lock:
            due = [area for area, at in self._sweep_at.items() if at <= now or area in self._met]
            self._met.clear()
            for area in due:
                self._sweep_at[area] = now + self._sweep_seconds(area)
            self.next_sweep = min(self._sweep_at.values(), default=inf)
        for area in due:
            removed += self._sweep(area)
        return removed

    def _sweep(self, area: LaneState) -> int:
        engine, timetable, now_ms = self._engine, area.store.timetable, self._now_ms()
        with engine.lock:
            if area.queue.is_deleted or engine.is_closed or area.lane.earliest[EXPIRY] > now_ms:
                return 0
            numbers = timetable.expired_blocks(area.lane, now_ms)
        removed, to = 0, self._dead_letter_queue(area)
        for at in range(0, len(numbers), SWEEP_BLOCKS):
            if engine.store.index.is_crowded and not engine.store.checkpoint():
                break
            with engine.lock:
                if area.queue.is_deleted or engine.is_closed:
                    return removed
                part = numbers[at : at + SWEEP_BLOCKS]
                found = list(chain.from_iterable(timetable.expired(area.lane, number, now_ms) for number in part))
                if to is None:
                    removed += self._remove(area, found)
            if to is not None:
                removed += self._bury(area, to, found)
        with engine.lock:
            if not (area.queue.is_deleted or engine.is_closed):
                timetable.refresh_expiry(area.lane)
        return removed

    def _dead_letter_queue(self, area: LaneState) -> str | None:
        """Where what expires there goes. Of topics and of what is not persistent it is removed."""
        if isinstance(area.queue, TopicState) or not area.is_persistent:
            return None
        return self._engine.redelivery.dead_letters.queue_for_expired(area.queue)

    def _bury(self, area: LaneState, to: str, runs: Sequence[tuple[int, int]]) -> int:
        """Let these go to a dead-letter queue; how many went. What can't goes at a later sweep. REQUIRES: no lock."""
        engine, buried = self._engine, 0
        try:
            for first, last in runs:
                for messages in engine.browsers.loads(area, first, min(last + 1, area.published)):
                    buried += engine.redelivery.dead_letters.move(area, to, messages, EXPIRED)
        except (Closed, StoreFailed):
            raise
        except ForebayError as error:
            logger.warning("what has expired in %r waits: %s", area.queue.name, error)
        with engine.lock:
            area.expired += buried
        return buried

    def _remove(self, area: LaneState, runs: Sequence[tuple[int, int]]) -> int:
        """Acknowledge what of these is in nobody's hands, and let lists and caches forget it. REQUIRES: the lock."""
        engine = self._engine
        if isinstance(area.queue, TopicState):  # what expires is counted for each, also for those that nobody has read
            for name, subscription in area.queue.durable_areas():
                subscription.lane_area(area)
                area.queue.kept[name] = subscription
        readers = [area, *_readers(area)]
        gone = SequenceSet()
        depths = [_depth(reader) for reader in readers]
        try:
            for first, last in _joined(area, self.free(readers, runs)):
                area.store.remove(area.lane, first, last)
                gone.add(first, last)
        finally:
            for reader, depth in zip(readers, depths, strict=True):
                reader.expired += depth - _depth(reader)
                if gone:
                    engine.unpark(reader, gone)
                    engine.targets.forget(reader, gone)
            if area.queue.admission is not None:
                area.queue.admission.room_came()
        return gone.count

    def free(self, readers: Sequence[LaneState], runs: Sequence[tuple[int, int]]) -> SequenceSet:
        """What of the runs is published, not in flight, and no transaction's to decide about."""
        free = SequenceSet()
        for first, last in runs:
            last = min(last, readers[0].published - 1)
            if first <= last:
                free.add(first, last)
        for reader in readers:
            for sequence in reader.in_flight:
                free.remove(sequence, sequence)
            for first, last in self._engine.transactions.acknowledged_in(reader.lane.number):
                free.remove(first, last)
        return free


def _readers(area: LaneState) -> Iterator[LaneState]:
    """Of a topic's lane: that lane of each subscription that somebody has read."""
    queue = area.queue
    if isinstance(queue, TopicState):
        for subscription in queue.subscriptions():
            reader = subscription.areas[area.lane.priority]
            if reader is not None:
                yield reader


def _depth(area: LaneState) -> int:
    if isinstance(area.lane, SubscriptionLane):
        area.lane.catch_up()
    return area.lane.pending_messages


def _joined(area: LaneState, runs: SequenceSet) -> Iterator[tuple[int, int]]:
    """The runs, joined where nothing that is pending lies between them: each is a record."""
    joined: tuple[int, int] | None = None
    for first, last in runs:
        if joined is None:
            joined = first, last
            continue
        between = area.lane.pending_run(joined[1] + 1, 1)
        if between is not None and between[0] < first:
            yield joined
            joined = first, last
        else:
            joined = joined[0], last
    if joined is not None:
        yield joined
