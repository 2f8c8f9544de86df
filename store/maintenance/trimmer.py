"""Trimmer: delete messages that a topic only retains, by age, by bytes, and if the store has no room left.

A topic's retained messages are the backlog of a subscription that nobody reads, its *retention*. So they cost no RAM
per message. Trimming acknowledges messages of the retention, oldest first. A crash may leave it done in part, and the
next call continues. Messages leave the index with the next checkpoint, and their data logs go with the next cleanup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ..environment.locks import AllOrBroken, OwnedLock
from ..index.journaled_lane import JournaledLane
from ..index.subscriptions import Subscriptions
from ..index.topic_lane import SubscriptionLane
from ..numbering import BEHIND_ALL, BLOCK_MESSAGES, BLOCK_SHIFT
from .time_search import TimeSearch

BLOCKS_AT_ONCE: Final = 64
"""Most blocks of a lane that are examined in one hold of the state lock, and trimmed by one record."""
TURN_MS: Final = 1000
"""If several priorities exceed the bytes together, the oldest messages of each go in turn, in steps of this length."""


class RetentionRule(NamedTuple):
    """Which acknowledged messages a topic keeps: those younger than `seconds`, up to `size_bytes` of the newest.

    None: no such limit.
    """

    seconds: float | None
    size_bytes: int | None


class Trimmer:
    """Deletes messages that no subscription of a topic needs. `trim` and `give_up_oldest` require no lock."""

    def __init__(
        self,
        subscriptions: Subscriptions,
        time_search: TimeSearch,
        lock: OwnedLock,
        remove: Callable[[JournaledLane, int, int], int],
        newest: Callable[[], int],
    ) -> None:
        """remove: acknowledges a run with one record; called with the lock held.
        newest: returns the data log that is written to; called with the lock held.
        """
        self._subscriptions = subscriptions
        self._time_search = time_search
        self._state_lock = lock
        self._all_or_broken = AllOrBroken(lock)
        self._remove = remove
        self._newest = newest
        # The first retained message of each lane, and when it was sent. While it stays the first, nothing is read.
        self._fronts: dict[int, tuple[int, int]] = {}
        # Number of a topic -> its rule.
        self._rules: dict[int, RetentionRule] = {}

    @property
    def is_retaining(self) -> bool:
        """Whether a topic has a rule, so that it may keep messages that no subscription needs."""
        return bool(self._rules)

    def set_rule(self, topic: int, rule: RetentionRule | None) -> None:
        """Trim a topic by a rule from now on. None: do not trim it. Requires: the lock."""
        if rule is None:
            self._rules.pop(topic, None)
        else:
            self._rules[topic] = rule

    def trim(self, now_ms: int) -> int:
        """Delete messages that are too old or too many; return how many. It makes a few reads if there are any."""
        removed = 0
        for topic, rule in list(self._rules.items()):
            lanes = self._lanes(topic)
            if rule.seconds is not None:
                until_ms = now_ms - int(rule.seconds * 1000)
                removed += sum(self._trim_before(lane, until_ms) for lane in lanes)
            if rule.size_bytes is not None:
                removed += self._trim_to(lanes, rule.size_bytes)
        return removed

    def give_up_oldest(self) -> bool:
        """Delete all retained messages in the oldest data log that has any.

        False: no data log has any, or only the newest one, which is written to.
        """
        lanes = [lane for topic in list(self._rules) for lane in self._lanes(topic)]
        fronts = [data_log for lane in lanes if (data_log := self._front_data_log(lane)) is not None]
        oldest = min(fronts, default=None)
        if oldest is None or oldest >= self._newest():
            return False
        for lane in lanes:
            while self._leave(lane, oldest):
                pass
        return True

    def _lanes(self, topic: int) -> list[SubscriptionLane]:
        with self._state_lock:
            retention = self._subscriptions.retention(topic)
            return [] if retention is None else [lane for lane in retention.lanes if lane is not None]

    def _sent_at(self, lane: SubscriptionLane) -> int | None:
        """Return when the first retained message of a lane was sent. None: there is none, or it can't be read."""
        with self._state_lock, self._all_or_broken:
            run = lane.pending_run(0, 1)
        if run is None:
            return None
        known = self._fronts.get(lane.number)
        if known is not None and known[0] == run[0]:
            return known[1]
        time = self._time_search.sent_at(lane.topic, run[0])
        if time is not None:
            self._fronts[lane.number] = run[0], time
        return time

    def _trim_before(self, lane: SubscriptionLane, until_ms: int) -> int:
        time = self._sent_at(lane)
        if time is None or time >= until_ms:
            return 0
        end = self._time_search.first_sequence_at(lane.topic, until_ms)
        removed = 0
        while True:
            with self._state_lock, self._all_or_broken:
                run = lane.pending_run(0, 1)
                if run is None or run[0] >= end:
                    return removed
                behind = (run[0] >> BLOCK_SHIFT) + BLOCKS_AT_ONCE << BLOCK_SHIFT
                removed += self._remove(lane, run[0], min(end, behind) - 1)

    def _trim_to(self, lanes: list[SubscriptionLane], size_bytes: int) -> int:
        removed = 0
        while True:
            with self._state_lock:
                depths = [lane.depth for lane in lanes]
            excess = sum(held_bytes for _, held_bytes in depths) - size_bytes
            if excess <= 0:
                return removed
            times = sorted((self._sent_at(lanes[at]) or 0, at) for at, (messages, _) in enumerate(depths) if messages)
            if not times:
                return removed  # acknowledged meanwhile
            oldest, end = lanes[times[0][1]], BEHIND_ALL
            if len(times) > 1:  # stop where the messages of another lane are the oldest
                end = self._time_search.first_sequence_at(oldest.topic, times[1][0] + TURN_MS)
            with self._state_lock, self._all_or_broken:
                removed += self._trim_bytes(oldest, excess, end)

    def _trim_bytes(self, lane: SubscriptionLane, excess: int, end: int) -> int:
        """Delete messages from the front until `excess` bytes are gone, but none at or behind `end`. At most
        BLOCKS_AT_ONCE blocks are examined. The first message goes in any case.
        """
        first = last = -1
        for _ in range(BLOCKS_AT_ONCE):
            run = lane.pending_run(last + 1, BLOCK_MESSAGES)
            if run is None or excess <= 0 or (run[0] >= end and first >= 0):
                break
            first = run[0] if first < 0 else first
            for at, length in enumerate(lane.lengths(*run), run[0]):
                if excess <= 0 or (at >= end and at > first):
                    break
                last = at
                excess -= length
            if last < run[1]:
                break
        return self._remove(lane, first, last) if first >= 0 else 0

    def _front_data_log(self, lane: SubscriptionLane) -> int | None:
        with self._state_lock, self._all_or_broken:
            run = lane.pending_run(0, 1)
            return None if run is None else next(iter(lane.extents(run[0], run[0]))).data_log

    def _leave(self, lane: SubscriptionLane, data_log: int) -> bool:
        """Delete messages from the front of a lane that are in a data log, at most one block. False: there are none."""
        with self._state_lock, self._all_or_broken:
            run = lane.pending_run(0, BLOCK_MESSAGES)
            last = -1
            for extent in lane.extents(*run) if run is not None else ():
                if extent.data_log != data_log:
                    break
                last = extent.first_sequence + extent.messages - 1
            if run is None or last < 0:
                return False
            self._remove(lane, run[0], last)
            return True
