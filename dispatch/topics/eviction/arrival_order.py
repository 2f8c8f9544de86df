"""ArrivalOrder: in which order the messages that wait for one subscriber arrived, over all its lanes.

Consecutive arrivals in one lane are one entry of 150 bytes, so memory grows only when arrivals change between lanes.
The order is in RAM alone and ends with the process, as a subscription without a name does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ....store.numbering import BLOCK_MESSAGES
from ...core.model.destination import LaneState

SPARE_RUNS: Final = 64

Run = tuple[LaneState, int, int]
"""(lane, first, last)."""


class ArrivalOrder:
    """The order in which the messages of one subscription arrived. The state lock guards it."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._tidy_at = SPARE_RUNS

    def note(self, lane: LaneState, first: int, last: int) -> None:
        """Note messages that have arrived and may be dispatched. O(1), and sometimes O(runs)."""
        if self._runs and self._runs[-1][0] is lane:
            self._runs[-1] = lane, self._runs[-1][1], last
            return
        self._runs.append((lane, first, last))
        if len(self._runs) > self._tidy_at:
            self._runs = [run for run in self._runs if _is_pending(run)]
            self._tidy_at = 2 * len(self._runs) + SPARE_RUNS

    @property
    def run_count(self) -> int:
        """How many runs are remembered."""
        return len(self._runs)

    def waiting(self, *, by_priority: bool) -> Iterator[Run]:
        """Yield runs that are pending and not in flight, in order of arrival; by_priority: the lowest priority first.

        The caller may remove the run that was yielded last.
        """
        runs: Iterable[Run] = self._runs
        if by_priority:
            runs = sorted(runs, key=lambda run: run[0].priority)
        for run in runs:
            yield from _free(run)


def _is_pending(run: Run) -> bool:
    lane, first, last = run
    pending = lane.pending_lane.pending_run(first, 1)
    return pending is not None and pending[0] <= last


def _free(run: Run) -> Iterator[Run]:
    lane, at, end = run
    while (pending := lane.pending_lane.pending_run(at, BLOCK_MESSAGES)) is not None and pending[0] <= end:
        begin, last = pending[0], min(pending[1], end)
        numbers = range(begin, last + 1)
        held = [sequence for sequence in numbers if sequence in lane.deliveries or sequence in lane.parked]
        for sequence in (*held, last + 1):
            if begin < sequence:
                yield lane, begin, sequence - 1
            begin = sequence + 1
        at = last + 1
