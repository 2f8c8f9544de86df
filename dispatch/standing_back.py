"""Standing back: lists that the eager loader leaves to their consumers, because these never pause.

The loader gains time while a consumer waits, for a device, for others, for
its next turn. One that always computes gives it none: under one interpreter
lock two threads take turns, and what one has loaded comes to the other out of
another core's cache. There a consumer is served sooner when it loads for
itself, piece by piece, whenever its list is empty.

So a list is left to its consumer on trial, where that costs nothing: when the
consumer finds the list empty anyway, or when the loader brought much and
still did not fill it. The clock of the consumer's thread against that of the
wall says whether it pauses. If so the list is fed as before, and there is no
trial for a while.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..store.clock import Clock
    from .target_area import TargetArea
    from .target_list import TargetList

JUDGED_SECONDS: Final = 0.01
"""A trial takes so long, and so often who passed is judged again."""
JUDGED_BYTES: Final = 256 * 1024
"""Between two looks at the clocks."""
BUSY_SHARE: Final = 0.9
"""Of that time somebody in the process computes, where the loader has nothing to gain."""
STEADY_SHARE: Final = 0.5
"""And so much of it whoever takes."""
PAUSES_MAX: Final = 2
"""So often in a row a pause is found before the list is fed again: others may hold up a thread once."""
LOOK_SECONDS: Final = 0.01
"""So often the loader looks whether somebody still takes from the lists that it left."""
FED_SECONDS: Final = 0.25
"""The list of who paused is fed for so long, and twice as long each time that no trial in between found otherwise."""
FED_SECONDS_MAX: Final = 64.0
FILLS_MAX: Final = 2
"""So many times what a list may hold are loaded for it; if it is not full then, its consumer is on trial."""


@dataclass(slots=True)
class Trial:
    """Of one list that is left to its consumer."""

    thread: int = 0
    """Who takes; 0: nobody did yet."""
    begun: float = 0.0
    computed: float = 0.0
    """What that thread had computed then."""
    all_computed: float = 0.0
    """What the whole process had."""
    pauses: int = 0
    """How often in a row it was found to pause."""
    judge_at: int = 0
    """Bytes taken from the list when the clocks are to be looked at again."""
    seen_bytes: int = -1
    """What was taken when the loader looked last."""


class StandingBack:
    """The state lock guards it; every method requires it held."""

    def __init__(self, targets: TargetArea) -> None:
        self._targets = targets
        self._clock: Clock | None = None
        """None: the loader never stands back."""
        self.lists: dict[TargetList, Trial] = {}
        """Those that are left to their consumers: the loader loads nothing for them."""

    def switch_on(self, clock: Clock) -> None:
        """There is a thread that loads. Where threads can compute at the same time, nothing would be gained."""
        if getattr(sys, "_is_gil_enabled", lambda: True)():
            self._clock = clock

    def forget(self, target: TargetList) -> None:
        """The list is gone."""
        self.lists.pop(target, None)

    # ------------------------------------------------------------------ the consumer's thread

    def runs_low(self, target: TargetList) -> None:
        """A take left less than the low watermark in the list."""
        trial = self.lists.get(target)
        if trial is None:
            self._targets.feed(target)
        elif target.taken_bytes >= trial.judge_at:
            trial.judge_at = target.taken_bytes + JUDGED_BYTES
            self._judge(target, trial)

    def missed(self, target: TargetList) -> None:
        """A take found the list empty and is about to load for it, or to wait for the loader."""
        trial = self.lists.get(target)
        if trial is not None:
            self._judge(target, trial)
        elif self._is_stuck(target):
            self._leave(target)

    def _judge(self, target: TargetList, trial: Trial) -> None:
        assert self._clock is not None
        thread, now = threading.get_ident(), self._clock.monotonic()
        elapsed = now - trial.begun
        if trial.thread == thread and elapsed < JUDGED_SECONDS:
            return
        computed, all_computed = self._clock.computed_seconds()
        if trial.thread:
            is_busy = all_computed - trial.all_computed >= BUSY_SHARE * elapsed
            if is_busy and trial.thread == thread and computed - trial.computed >= STEADY_SHARE * elapsed:
                trial.pauses = 0
                target.fed_seconds = FED_SECONDS
            else:
                trial.pauses += 1
            if trial.pauses == PAUSES_MAX or not _is_deep(target):
                self._end(target, now)
                return
        trial.thread, trial.begun, trial.computed, trial.all_computed = thread, now, computed, all_computed

    # ------------------------------------------------------------------ the loader's thread

    def leaves(self, target: TargetList) -> bool:
        """Whether the loader stands back from a list that it was about to load for."""
        if target.direct_bytes * 2 < target.low_watermark_bytes or not self._is_stuck(target):
            return False
        self._leave(target)
        return True

    def look(self) -> None:
        """Feed the lists from which nobody has taken since the last look."""
        assert self._clock is not None
        now = self._clock.monotonic()
        for target, trial in list(self.lists.items()):
            if trial.seen_bytes == target.taken_bytes or not _is_deep(target):
                self._end(target, now)
            else:
                trial.seen_bytes = target.taken_bytes

    # ------------------------------------------------------------------ both

    def _is_stuck(self, target: TargetList) -> bool:
        """Much was loaded for the list and it never was full, so its consumer may be one that does not pause."""
        if self._clock is None or target.loaded_bytes < FILLS_MAX * target.high_watermark_bytes:
            return False
        is_left = _is_deep(target) and all(consumer.is_synchronous for consumer in target.interest.consumers)
        return is_left and self._clock.monotonic() >= target.fed_until

    def _leave(self, target: TargetList) -> None:
        self.lists[target] = Trial()
        self._targets.hungry.pop(target, None)
        self._targets.wake_loader()  # from now on it looks from time to time

    def _end(self, target: TargetList, now: float) -> None:
        del self.lists[target]
        target.fed_until = now + target.fed_seconds
        target.fed_seconds = min(2 * target.fed_seconds, FED_SECONDS_MAX)
        target.loaded_bytes = 0
        self._targets.feed(target)


def _is_deep(target: TargetList) -> bool:
    """More is behind it than it may hold, and only it has to do with that: no selector, no dealer, no twin."""
    area = target.area
    return area.sole is target and target.twin is None and area.lane.pending_bytes > target.high_watermark_bytes
