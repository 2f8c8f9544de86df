"""LoadRequests: which lists want loading, and which the eager loader leaves to their consumers.

A list asks when it runs low and there is something to load for it. The loader
serves whoever asked, but stands back from lists whose consumers never pause.

The loader gains time while a consumer waits, for a device, for others, for
its next turn. One that always computes gives it none: under one interpreter
lock two threads take turns, and what one has loaded comes to the other out of
another core's cache. There a consumer is served sooner when it loads for
itself, piece by piece, whenever its list is empty.

So a list is left to its consumer on trial, when much was loaded for it and it
never was full. The clocks of the consumer's thread and of the process against
that of the wall say whether it pauses. If so the list is fed as before, and
there is no trial for a while. A thread that computes without the interpreter's
lock can't be told from one that holds it; but there the loader comes to its
turns and fills the list.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....store.clock import Clock
from ..model import TargetList

TRIAL_SECONDS: Final = 0.01
"""How long a trial takes."""
JUDGED_SECONDS: Final = 0.05
"""How often a consumer that passed is judged again: others may hold a thread up for some milliseconds."""
JUDGED_BYTES: Final = 128 * 1024
"""Bytes taken between two looks at the clocks."""
BUSY_SHARE: Final = 0.85
"""The part of the time in which threads of the process compute, from which on the loader has nothing to gain."""
STEADY_SHARE: Final = 0.5
"""The part of the time in which the thread that takes must compute for it."""
LOOK_SECONDS: Final = 0.025
"""How often the loader looks whether somebody still takes from the lists that it left."""
FED_SECONDS: Final = 0.25
"""How long the list of a consumer that paused is fed; twice as long each time that no trial in between passed."""
FED_SECONDS_MAX: Final = 64.0
FILLS_MAX: Final = 2
"""A consumer is on trial when so many times what its list may hold were loaded, and the list never was full."""


@dataclass(slots=True)
class Trial:
    """What is known of a list that is left to its consumer."""

    thread: int = 0
    """The thread that takes; 0: none did yet."""
    begun: float = 0.0
    """When the stretch began that is judged next, on the monotonic clock."""
    computed: float = 0.0
    """CPU seconds of that thread by then."""
    all_computed: float = 0.0
    """CPU seconds of the whole process by then."""
    is_passed: bool = False
    judge_at: int = 0
    """Bytes taken from the list when the clocks are to be looked at again."""
    seen_bytes: int = -1
    """Bytes taken from the list when the loader looked last."""


@dataclass(slots=True)
class Grace:
    """How long a list is fed whose consumer was found to pause."""

    until: float
    seconds: float


class LoadRequests:
    """What the eager loader is to do: lists that run low, but for those whose consumers load for themselves.

    Every method requires the lock.
    """

    def __init__(self, wake_loader: Callable[[], None], clock: Clock | None) -> None:
        """wake_loader: wakes the thread that loads. clock: None, where the loader never stands back."""
        self.wake_loader = wake_loader
        self._clock: Clock | None = None
        self.stand_back_by(clock)
        self.running_low: dict[TargetList, None] = {}
        """Lists below half of their high watermark for which there is something to load."""
        self.left_alone: dict[TargetList, Trial] = {}
        """Those that are left to their consumers: the loader loads nothing for them."""
        self._graces: dict[TargetList, Grace] = {}
        self._look_at = 0.0

    def stand_back_by(self, clock: Clock | None) -> None:
        """Leave lists to consumers that never pause, by this clock. None: to nobody.

        Where threads can compute at the same time, nothing would be gained.
        """
        self._clock = clock if getattr(sys, "_is_gil_enabled", lambda: True)() else None

    def request(self, target: TargetList) -> None:
        """Let the loader know that a list runs low, unless the list is left to its consumer."""
        if target not in self.running_low and target.has_supply and target not in self.left_alone:
            self.running_low[target] = None
            self.wake_loader()

    def forget(self, target: TargetList) -> None:
        """Forget a list that is gone."""
        self.running_low.pop(target, None)
        self.left_alone.pop(target, None)
        self._graces.pop(target, None)

    # ------------------------------------------------------------------ the consumer's thread

    def runs_low(self, target: TargetList) -> None:
        """Note that a take left less than the low watermark in the list."""
        trial = self.left_alone.get(target)
        if trial is None:
            self.request(target)
        elif target.taken_bytes >= trial.judge_at:
            trial.judge_at = target.taken_bytes + JUDGED_BYTES
            self._judge(target, trial)

    def missed(self, target: TargetList) -> None:
        """Note that a take found the list empty and is about to load for it, or to wait for the loader."""
        if target not in self.left_alone and self._never_fills(target):
            self._leave(target)

    def _judge(self, target: TargetList, trial: Trial) -> None:
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
                self._end(target, now)
                return
            trial.is_passed = True
            self._graces.pop(target, None)
        trial.thread, trial.begun, trial.computed, trial.all_computed = thread, now, computed, all_computed

    # ------------------------------------------------------------------ the loader's thread

    def leaves(self, target: TargetList) -> bool:
        """Return whether the loader stands back from a list that it was about to load for."""
        if target.direct_bytes * 2 < target.low_watermark_bytes or not self._never_fills(target):
            return False  # nearly empty: the consumer would have to load before it was judged
        self._leave(target)
        return True

    def poll(self) -> None:
        """Request loads for lists from which nothing was taken since the last look, if it is time."""
        assert self._clock is not None
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        for target, trial in list(self.left_alone.items()):
            if trial.seen_bytes == target.taken_bytes or not _may_be_left(target):
                self._end(target, now)
            else:
                trial.seen_bytes = target.taken_bytes

    # ------------------------------------------------------------------ both

    def _never_fills(self, target: TargetList) -> bool:
        """Return whether much was loaded and the list never was full: its consumer may be one that does not pause."""
        if self._clock is None or target.loaded_bytes < FILLS_MAX * target.high_watermark_bytes:
            return False
        fed = self._graces.get(target)
        return (fed is None or self._clock.monotonic() >= fed.until) and _may_be_left(target)

    def _leave(self, target: TargetList) -> None:
        self.left_alone[target] = Trial()
        self.running_low.pop(target, None)
        self.wake_loader()  # from now on it looks from time to time

    def _end(self, target: TargetList, now: float) -> None:
        del self.left_alone[target]
        before = self._graces.get(target)
        seconds = FED_SECONDS if before is None else min(2 * before.seconds, FED_SECONDS_MAX)
        self._graces[target] = Grace(now + seconds, seconds)
        target.loaded_bytes = 0
        self.request(target)


def _is_sole(target: TargetList) -> bool:
    """Return whether no other consumer group, selector, distribution or counterpart has to do with its messages."""
    return target.lane.sole is target and target.counterpart is None


def _may_be_left(target: TargetList) -> bool:
    """Tell whether the list is alone, deep, and served by nothing but threads that take: no event loop."""
    return (
        _is_sole(target)
        and target.lane.pending_lane.pending_bytes > target.high_watermark_bytes
        and all(consumer.is_polling for consumer in target.consumer_group.consumers)
    )
