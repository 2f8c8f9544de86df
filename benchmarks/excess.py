"""Excess: the CPU time that a busy process spends beyond its work at known moments, such as a look at it.

A process at work notes in short slices how many messages it has passed and what CPU time it has taken. Each moment is
compared with the time just before and just after it. So slow drift of a shared machine is on both sides, and a tenth of
a second is long enough. Costs that are spread evenly over all seconds cannot be seen this way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import combinations_with_replacement
from statistics import median
from typing import Final, NamedTuple

CONFIDENCE: Final = 0.95
LOOKS_MIN: Final = 6
"""Least number of differences for a finite interval."""


class Spent(NamedTuple):
    """CPU seconds of a process, by the purpose of its threads."""

    worker: float
    """Seconds of the thread that passes messages."""
    background: float
    """Seconds of the store's threads."""
    serving: float
    """Seconds of all other threads."""


class Slices:
    """The messages and CPU seconds of a process up to the end of each slice of its work, by time."""

    def __init__(self) -> None:
        self._times = array("d")
        self._messages = array("d")
        self._spent = (array("d"), array("d"), array("d"))

    def add(self, time: float, messages: int, spent: Spent) -> None:
        """Note what is done by now. time: monotonic seconds, the same for all processes of the machine."""
        self._times.append(time)
        self._messages.append(messages)
        for column, seconds in zip(self._spent, spent, strict=True):
            column.append(seconds)

    def excess(self, begin: float, end: float) -> Spent:
        """Return what was spent between two times beyond what the same messages took just before and after.

        Just before and after: for as long as it is from the one time to the other, if it was at work then.
        """
        long = end - begin
        since, until = self._last_by(begin), self._first_from(end)
        since_before, until_after = self._last_by(begin - long), self._first_from(end + long)
        inside = self._messages[until] - self._messages[since]
        share = inside / max(self._messages[until_after] - self._messages[since_before] - inside, 1)

        def beyond(spent: Sequence[float]) -> float:
            within = spent[until] - spent[since]
            return within - (spent[until_after] - spent[since_before] - within) * share

        return Spent(*map(beyond, self._spent))

    def _last_by(self, time: float) -> int:
        return max(bisect_right(self._times, time) - 1, 0)

    def _first_from(self, time: float) -> int:
        return min(bisect_left(self._times, time), len(self._times) - 1)


class Estimate(NamedTuple):
    """A figure, with its interval at 95 % confidence."""

    middle: float
    low: float
    high: float


def estimate(differences: Sequence[float]) -> Estimate:
    """Return the middle of paired differences: the median of the means of all pairs of them (Hodges and Lehmann).

    The interval is that of Wilcoxon's signed ranks, which assumes nothing but that they lie evenly about their middle.
    The interval is infinite for fewer than LOOKS_MIN differences.
    """
    means = sorted((one + other) / 2 for one, other in combinations_with_replacement(differences, 2))
    beyond = _means_beyond(len(differences))
    if beyond is None:
        return Estimate(median(means), float("-inf"), float("inf"))
    return Estimate(median(means), means[beyond], means[-1 - beyond])


def _means_beyond(count: int) -> int | None:
    """Return how many of the means lie on each side of the interval; None: it has no end."""
    ways = [1]  # by sum of ranks: how many choices of signs bring it
    for rank in range(1, count + 1):
        ways = [
            (ways[total] if total < len(ways) else 0) + (ways[total - rank] if total >= rank else 0)
            for total in range(len(ways) + rank)
        ]
    left = (1 - CONFIDENCE) / 2 * 2**count
    beyond = 0
    while (left := left - ways[beyond]) >= 0:
        beyond += 1
    return beyond - 1 if beyond else None
