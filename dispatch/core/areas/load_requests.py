"""LoadRequests: the lists that want a load, and the lists that the eager loader leaves to their consumers.

A list asks for a load when it runs low and there is something to load for it. The loader serves all lists that ask,
except those whose consumers never pause.

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
from collections.abc import Callable
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


class LoadRequests:
    """The lists that run low, except those whose consumers load for themselves.

    Every method requires the lock.
    """

    def __init__(self, wake_loader: Callable[[], None], clock: Clock | None) -> None:
        """Make it without lists.

        wake_loader: wakes the loader's thread.
        clock: times the trials. None: no list is ever left to its consumer.
        """
        self.wake_loader = wake_loader
        self._clock: Clock | None = None
        self.judge_consumers_by(clock)
        # Lists below their low watermark for which there is something to load.
        self.running_low: dict[TargetList, None] = {}
        # Lists that are left to their consumers, for which the loader loads nothing.
        self.left_alone: dict[TargetList, Trial] = {}
        self.feed_periods: dict[TargetList, FeedPeriod] = {}
        self._look_at = 0.0

    def judge_consumers_by(self, clock: Clock | None) -> None:
        """Leave lists to consumers that never pause, judged by this clock. None: leave no list.

        Where threads can compute at the same time, no list is left either, because that would save nothing.
        """
        self._clock = clock if getattr(sys, "_is_gil_enabled", lambda: True)() else None

    def request(self, target: TargetList) -> None:
        """Tell the loader that a list runs low, unless the list is left to its consumer."""
        if target not in self.running_low and target.has_supply and target not in self.left_alone:
            self.running_low[target] = None
            self.wake_loader()

    def forget(self, target: TargetList) -> None:
        """Forget a list that has ended."""
        self.running_low.pop(target, None)
        self.left_alone.pop(target, None)
        self.feed_periods.pop(target, None)

    # ------------------------------------------------------------------ the consumer's thread

    def runs_low(self, target: TargetList) -> None:
        """Note that a take left the list below its low watermark."""
        trial = self.left_alone.get(target)
        if trial is None:
            self.request(target)
        elif target.taken_bytes >= trial.judge_at:
            trial.judge_at = target.taken_bytes + JUDGED_BYTES
            self._judge(target, trial)

    def missed(self, target: TargetList) -> None:
        """Note that a take found the list empty, and will load for it or wait for the loader."""
        if target not in self.left_alone and self._never_fills(target):
            self.leave(target)

    def _judge(self, target: TargetList, trial: Trial) -> None:
        """Find out whether the consumer has paused since the trial's period began. Feed the list again if it has."""
        assert self._clock is not None
        thread, now = threading.get_ident(), self._clock.monotonic()
        elapsed = now - trial.begun
        if trial.thread == thread and elapsed < (JUDGED_SECONDS if trial.is_passed else TRIAL_SECONDS):
            return
        computed, all_computed = self._clock.computed_seconds()
        if trial.thread:
            is_busy = all_computed - trial.all_computed >= BUSY_SHARE * elapsed
            is_steady = is_busy and trial.thread == thread and computed - trial.computed >= STEADY_SHARE * elapsed
            if not is_steady or not _may_be_left(target):
                self.feed_again(target, now)
                return
            trial.is_passed = True
            self.feed_periods.pop(target, None)
        trial.thread, trial.begun, trial.computed, trial.all_computed = thread, now, computed, all_computed

    # ------------------------------------------------------------------ the loader's thread

    def leave_if_never_full(self, target: TargetList) -> bool:
        """Leave a list to its consumer if it never fills, instead of a load for it; return whether it was left."""
        if target.direct_bytes * 2 < target.low_watermark_bytes or not self._never_fills(target):
            return False  # nearly empty: the consumer would have to load before the trial can judge it
        self.leave(target)
        return True

    def poll(self) -> None:
        """Feed lists again from which nothing was taken since the last check, if a check is due."""
        assert self._clock is not None
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for target, trial in list(self.left_alone.items()):
            if trial.seen_bytes == target.taken_bytes or not _may_be_left(target):
                self.feed_again(target, now)
            else:
                trial.seen_bytes = target.taken_bytes

    # ------------------------------------------------------------------ both

    def _never_fills(self, target: TargetList) -> bool:
        """Return whether a list was never full though much was loaded, so that its consumer may never pause."""
        if self._clock is None or target.loaded_bytes < FILLS_MAX * target.high_watermark_bytes:
            return False
        fed = self.feed_periods.get(target)
        return (fed is None or self._clock.monotonic() >= fed.until) and _may_be_left(target)

    def leave(self, target: TargetList) -> None:
        """Leave a list to its consumer from now on, on trial."""
        self.left_alone[target] = Trial()
        self.running_low.pop(target, None)
        self.wake_loader()  # from now on the loader polls this list

    def feed_again(self, target: TargetList, now: float) -> None:
        """Have the loader feed a list again that was left to its consumer, for a period twice as long as the last."""
        del self.left_alone[target]
        before = self.feed_periods.get(target)
        seconds = FED_SECONDS if before is None else min(2 * before.seconds, FED_SECONDS_MAX)
        self.feed_periods[target] = FeedPeriod(now + seconds, seconds)
        target.count_loaded_anew()
        self.request(target)


def _is_alone(target: TargetList) -> bool:
    """Return whether no other selector group, distribution or counterpart shares the messages of the list."""
    lane = target.lane
    if target.counterpart is not None:
        return False
    return lane.sole_list is target or (lane.distribution.is_ordinary and lane.selector_group_lists() == [target])


def _may_be_left(target: TargetList) -> bool:
    """Return whether the list is alone, deep, and read by threads only, not by an event loop."""
    return (
        _is_alone(target)
        and target.lane.pending_lane.pending_bytes > target.high_watermark_bytes
        and all(consumer.is_polling for consumer in target.selector_group.consumers)
    )
