"""ConsumerTrials: which lists are left to their consumers, because these never pause, and for how long.

The loader saves time for a consumer that pauses: for a device, for other threads, or for its next turn. It saves
nothing for a consumer that computes all the time. Under one interpreter lock the two threads take turns, and the
consumer gets the messages from the cache of another core. Such a consumer is served sooner if it loads for itself,
piece by piece, whenever its list is empty.

So a list is left to its consumer on trial if much was loaded for it and it was never full. The trial compares the CPU
clocks of the consumer's thread and of the process with the wall clock. If the consumer pauses, the loader feeds the
list again, and there is no trial for a while. The clocks can't tell a thread that holds the interpreter's lock from one
that computes without it. In the second case the loader gets its turns and fills the list, so there is no trial.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import Final

from ....store.environment.clock import Clock
from ..model.destination import TargetList

TRIAL_SECONDS: Final = 0.01
"""Length of a trial."""
JUDGED_SECONDS: Final = 0.05
"""How often a consumer that passed is judged again: others may hold a thread up for some milliseconds."""
JUDGED_BYTES: Final = 128 * 1024
"""Bytes taken between two looks at the clocks."""
BUSY_SHARE: Final = 0.85
"""If the threads of the process together compute for this share of the time, the loader saves nothing."""
STEADY_SHARE: Final = 0.5
"""A consumer's thread must compute for at least this share of the time to count as never pausing."""
LOOK_SECONDS: Final = 0.025
"""How often the loader checks that consumers still take from the lists that are left to them."""
FED_SECONDS: Final = 0.25
"""How long the loader feeds the list of a consumer that paused; this doubles after each trial that did not pass."""
FED_SECONDS_MAX: Final = 64.0
FILLS_MAX: Final = 2
"""A trial begins when this many times the list's bound was loaded and the list was never full."""


@dataclass(slots=True)
class Trial:
    """The state of a list that is left to its consumer."""

    thread: int = 0
    """The thread that takes; 0: none has taken yet."""
    begun: float = 0.0
    """Start of the period that is judged next, in monotonic seconds."""
    computed: float = 0.0
    """CPU seconds of that thread at the start of the period."""
    all_computed: float = 0.0
    """CPU seconds of the whole process at the start of the period."""
    is_passed: bool = False
    judge_at: int = 0
    """Bytes taken from the list at which the clocks are read next."""
    seen_bytes: int = -1
    """Bytes taken from the list when the loader last checked it."""


@dataclass(slots=True)
class FeedPeriod:
    """How long the loader feeds a list whose consumer was found to pause."""

    until: float
    seconds: float


class ConsumerTrials:
    """The lists that are left to their consumers, and the lists that are not for a while because a consumer paused.

    Every method requires the lock.
    """

    def __init__(self, clock: Clock | None) -> None:
        """Make it without lists. clock: times the trials. None: no list is ever left to its consumer."""
        self._clock: Clock | None = None
        self.judge_by(clock)
        # Lists that are left to their consumers, for which the loader loads nothing.
        self.left_alone: dict[TargetList, Trial] = {}
        self.feed_periods: dict[TargetList, FeedPeriod] = {}
        self._look_at = 0.0

    def judge_by(self, clock: Clock | None) -> None:
        """Leave lists to consumers that never pause, judged by this clock. None: leave no list.

        Where threads can compute at the same time, no list is left either, because that would save nothing.
        """
        self._clock = clock if getattr(sys, "_is_gil_enabled", lambda: True)() else None

    def forget(self, target: TargetList) -> None:
        """Forget a list that has ended."""
        self.left_alone.pop(target, None)
        self.feed_periods.pop(target, None)

    def never_fills(self, target: TargetList) -> bool:
        """Return whether a list was never full though much was loaded, so that its consumer may never pause."""
        if self._clock is None or target.loaded_bytes < FILLS_MAX * target.high_watermark_bytes:
            return False
        fed = self.feed_periods.get(target)
        return (fed is None or self._clock.monotonic() >= fed.until) and _may_be_left(target)

    def begin(self, target: TargetList) -> None:
        """Leave a list to its consumer from now on, on trial."""
        self.left_alone[target] = Trial()

    def judge(self, target: TargetList, trial: Trial) -> bool:
        """Return whether a list stays left to its consumer. False: the consumer has paused in the trial's period.

        The consumer's thread calls it.
        """
        assert self._clock is not None
        trial.judge_at = target.taken_bytes + JUDGED_BYTES
        thread, now = threading.get_ident(), self._clock.monotonic()
        elapsed = now - trial.begun
        if trial.thread == thread and elapsed < (JUDGED_SECONDS if trial.is_passed else TRIAL_SECONDS):
            return True
        computed, all_computed = self._clock.computed_seconds()
        if trial.thread:
            is_busy = all_computed - trial.all_computed >= BUSY_SHARE * elapsed
            is_steady = is_busy and trial.thread == thread and computed - trial.computed >= STEADY_SHARE * elapsed
            if not is_steady or not _may_be_left(target):
                return False
            trial.is_passed = True
            self.feed_periods.pop(target, None)
        trial.thread, trial.begun, trial.computed, trial.all_computed = thread, now, computed, all_computed
        return True

    def poll(self) -> list[TargetList]:
        """Return the lists from which nothing was taken since the last check, or that may not be left any more.

        The loader's thread calls it. The result is empty if no check is due.
        """
        assert self._clock is not None
        now = self._clock.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + LOOK_SECONDS
        to_feed: list[TargetList] = []
        for target, trial in self.left_alone.items():
            if trial.seen_bytes == target.taken_bytes or not _may_be_left(target):
                to_feed.append(target)
            else:
                trial.seen_bytes = target.taken_bytes
        return to_feed

    def end(self, target: TargetList) -> None:
        """End the trial of a list. There is no other one for a period that is twice as long as the last."""
        assert self._clock is not None
        del self.left_alone[target]
        before = self.feed_periods.get(target)
        seconds = FED_SECONDS if before is None else min(2 * before.seconds, FED_SECONDS_MAX)
        self.feed_periods[target] = FeedPeriod(self._clock.monotonic() + seconds, seconds)
        target.count_loaded_anew()


def _is_alone(target: TargetList) -> bool:
    """Return whether no other selector group, distribution or counterpart shares the messages of the list. O(1)."""
    lane = target.lane
    if target.counterpart is not None:
        return False
    if lane.sole_list is target:
        return True
    has_one_group = len(lane.destination.selector_groups) == 1  # asked first, because there may be thousands
    return has_one_group and lane.distribution.is_ordinary and lane.selector_group_lists() == [target]


def _may_be_left(target: TargetList) -> bool:
    """Return whether the list is alone, deep, and read by threads only, not by an event loop."""
    return (
        _is_alone(target)
        and target.lane.pending_lane.pending_bytes > target.high_watermark_bytes
        and all(consumer.is_polling for consumer in target.selector_group.consumers)
    )
