"""Disturbance: a pass during which the machine was not ours is measured again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from forebay.benchmarks.calibration import floor_seconds
from forebay.benchmarks.load.words import counted

Found = TypeVar("Found")

OTHERS_MOST: Final = 0.2
"""The part of one core that other processes and the host may use during a pass. The kernel writes pages back by it."""
SLOWER_MOST: Final = 0.15
"""How much slower than at its best in this run the machine may be just before and just after a pass."""
ATTEMPTS: Final = 3


class Undisturbed:
    """Passes of one run. Each is measured up to three times until the machine is left alone during it.

    Neither limit looks at the figure that is measured, so a pass is not repeated because its result is bad. Both sides
    of a comparison have the same limits, but for the Python queues: their driver does not tell what others used, so
    only the pace beside their passes is judged. Where every attempt is disturbed, the least disturbed one counts.

    Short passes that take turns are not measured in this way: the median of their ratios forgets a disturbed one.
    """

    def __init__(self, pace: Callable[[], float] = floor_seconds) -> None:
        """pace: measures the CPU seconds of a fixed piece of work."""
        self._pace = pace
        self._best_pace = pace()
        self._passes = 0
        self._repeated = 0
        self._disturbed = 0

    def measure(self, once: Callable[[], Found], others: Callable[[Found], float]) -> Found:
        """Measure a pass until one is undisturbed, at most ATTEMPTS times; return what the best one found.

        others: the part of one core that others used during the pass.
        """
        self._passes += 1
        least, best = self._attempt(once, others)
        for _ in range(ATTEMPTS - 1):
            if least <= 1.0:
                return best
            self._repeated += 1
            disturbance, found = self._attempt(once, others)
            if disturbance < least:
                least, best = disturbance, found
        self._disturbed += least > 1.0
        return best

    def sentence(self) -> str:
        """Say how many passes were disturbed, and what that means."""
        return (
            f"{counted(self._repeated, 'repetition')} of {counted(self._passes, 'measurement')}, because others used "
            f"more than {100 * OTHERS_MOST:.0f} % of a core during the pass, or the machine was more than "
            f"{100 * SLOWER_MOST:.0f} % slower beside it than at its best; {self._disturbed} stayed disturbed"
        )

    def _attempt(self, once: Callable[[], Found], others: Callable[[Found], float]) -> tuple[float, Found]:
        """Measure a pass once; return its disturbance, which is above 1.0 if a limit is passed, and what it found."""
        before = self._pace()
        found = once()
        after = self._pace()
        self._best_pace = min(self._best_pace, before, after)
        slower = max(before, after) / self._best_pace - 1.0
        return max(slower / SLOWER_MOST, others(found) / OTHERS_MOST), found
