"""DeliveryCounts: how often each message that came back was delivered before.

A message on its first delivery has no entry. Messages that came back are counted by lane, in runs of sequences with the
same count. A relocated copy keeps its sequence, so relocation changes nothing here. Counts are in return records, in
the state record that opens each data log, and in the root of a checkpoint. A crash loses no count that was written.

A run of count 0 is a *suspect*: the previous process was killed, and may have handed out the messages of the run.
Suspects are only in RAM.

The number of runs is bounded. At the bound, the lowest counts are forgotten, and their messages count from the
beginning again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from ..environment.account import Account, Unlimited
from ..environment.late_log import LateLogger
from ..format.state_record import CountedRun
from ..numbering import LANE_SHIFT, NON_PERSISTENT, lanes_of
from .pending_lane import PendingLane

logger = LateLogger("forebay.store")

RUNS_MAX: Final = 8192
"""Most runs of all lanes: 192 KiB of RAM, and 144 KiB in each state record."""
RUNS_MIN: Final = 64
DATA_LOG_BYTES_A_RUN: Final = 256
"""A data log must have this many bytes for each run, so that its state record takes at most a fourteenth of it."""
RUN_CHARGE_BYTES: Final = 24
"""Charge of a run: two numbers of 8 bytes and one of 2, and the growth reserve of their arrays."""
LANE_CHARGE_BYTES: Final = 512
"""Charge of a lane with counts."""
DELIVERY_COUNT_MAX: Final = 0xFFFF
"""Counting ends at this count."""
KEPT_SHARE: Final = 3 / 4
"""Share of the runs that is kept if there are too many."""


class DeliveryCounts:
    """The counts of one lane. Runs are sorted and disjoint; runs that touch differ in count."""

    __slots__ = ("_firsts", "_lasts", "_counts")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._counts = array("H")

    @property
    def runs(self) -> int:
        return len(self._firsts)

    def __iter__(self) -> Iterator[CountedRun]:
        return map(CountedRun, self._firsts, self._lasts, self._counts)

    def find(self, sequence: int) -> int | None:
        """Return how often a message was delivered. 0: it is a suspect. None: no count is known. O(log runs)."""
        at = bisect_right(self._firsts, sequence) - 1
        return self._counts[at] if at >= 0 and sequence <= self._lasts[at] else None

    def get(self, sequence: int) -> int:
        """Return how often a message was delivered, as far as known."""
        return self.find(sequence) or 0

    def extend(self, first: int, last: int, delivery_count: int) -> bool:
        """Add the count of first..last if they continue the last run. Return False, and add nothing, if not."""
        if not self._lasts or self._lasts[-1] != first - 1 or self._counts[-1] != delivery_count:
            return False
        self._lasts[-1] = last
        return True

    def put(self, first: int, last: int, delivery_count: int) -> None:
        """Set the count of first..last, whatever was known. O(log runs), plus a copy of the runs behind."""
        assert first <= last
        low, high = bisect_left(self._lasts, first), bisect_right(self._firsts, last)
        pieces = [CountedRun(first, last, min(delivery_count, DELIVERY_COUNT_MAX))]
        if low < high:
            before, behind = self._run(low), self._run(high - 1)
            if before.first < first:
                pieces.insert(0, before._replace(last=first - 1))
            if behind.last > last:
                pieces.append(behind._replace(first=last + 1))
        if low > 0 and self._lasts[low - 1] == pieces[0].first - 1:
            low -= 1
            pieces.insert(0, self._run(low))
        if high < len(self._firsts) and self._firsts[high] == pieces[-1].last + 1:
            pieces.append(self._run(high))
            high += 1
        self._replace(low, high, pieces)

    def suspect(self, first: int, last: int) -> None:
        """Count messages of first..last without a count as perhaps delivered."""
        pieces: list[CountedRun] = []
        at = first
        for run in self:
            if at < run.first and at <= last:
                pieces.append(CountedRun(at, min(run.first - 1, last), 0))
            pieces.append(run)
            at = max(at, run.last + 1)
        if at <= last:
            pieces.append(CountedRun(at, last, 0))
        self._replace(0, self.runs, pieces)

    def trim(self, first: int, last: int, lane: PendingLane) -> None:
        """Forget messages of first..last that are gone. A run is removed with its last pending message.

        In the middle of a run nothing changes, so acks in any order never make more runs.
        """
        at = bisect_left(self._lasts, first)
        while at < len(self._firsts) and self._firsts[at] <= last:
            at = at + 1 if self._advance(at, lane) else at

    def _advance(self, at: int, lane: PendingLane) -> bool:
        """Move the beginning of a run to its first pending message; if there is none, remove it and return False."""
        pending = lane.pending_run(self._firsts[at], 1)
        if pending is not None and pending[0] <= self._lasts[at]:
            self._firsts[at] = pending[0]
            return True
        del self._firsts[at], self._lasts[at], self._counts[at]
        return False

    def _run(self, at: int) -> CountedRun:
        return CountedRun(self._firsts[at], self._lasts[at], self._counts[at])

    def _replace(self, low: int, high: int, pieces: Iterable[CountedRun]) -> None:
        merged: list[CountedRun] = []
        for piece in pieces:
            if merged and merged[-1].delivery_count == piece.delivery_count and merged[-1].last == piece.first - 1:
                merged[-1] = merged[-1]._replace(last=piece.last)
            else:
                merged.append(piece)
        self._firsts[low:high] = array("q", [run.first for run in merged])
        self._lasts[low:high] = array("q", [run.last for run in merged])
        self._counts[low:high] = array("H", [run.delivery_count for run in merged])

    def _check(self) -> None:
        previous = CountedRun(-2, -2, -1)
        for run in self:
            assert previous.last < run.first <= run.last
            assert previous.last + 1 < run.first or previous.delivery_count != run.delivery_count
            previous = run


class DeliveryCountTable:
    """The counts of all lanes that have any, and their shared memory bound. The state lock guards it."""

    def __init__(self, account: Account | None = None, runs_max: int = RUNS_MAX) -> None:
        """Make an empty table.

        account: pays for runs; if it refuses, counts are forgotten. None: they are not counted.
        """
        self._account = account or Unlimited()
        self._runs_max = runs_max
        self._lanes: dict[int, DeliveryCounts] = {}
        self._runs = 0
        self._charge_bytes = 0
        self._has_warned = False
        # Numbers of subscriptions that are not durable and so have no records.
        self.local: set[int] = set()

    @property
    def held_bytes(self) -> int:
        return RUN_CHARGE_BYTES * self._runs + LANE_CHARGE_BYTES * len(self._lanes)

    def find(self, lane_number: int) -> DeliveryCounts | None:
        """Return the counts of a lane. None: none of its messages has any."""
        return self._lanes.get(lane_number)

    def is_recorded(self, lane_number: int) -> bool:
        """Return whether the counts of this lane are in the journal. They are not if the lane ends with the process."""
        return lane_number < NON_PERSISTENT and lane_number >> LANE_SHIFT not in self.local

    def put(self, lane_number: int, first: int, last: int, delivery_count: int) -> None:
        """Set the delivery count of first..last in a lane."""
        known = self._lanes.get(lane_number)
        if known is not None and known.extend(first, last, delivery_count):
            return
        if self._make_room(lane_number):
            known = self._lanes.setdefault(lane_number, DeliveryCounts())
            before = known.runs
            known.put(first, last, delivery_count)
            self._count(known.runs - before)

    def suspect(self, lane_number: int, first: int, last: int) -> None:
        """Make the messages of first..last that have no count suspects."""
        known = self._lanes.get(lane_number)
        before = 0 if known is None else known.runs
        if self._runs + before + 1 > self._runs_max or not self._afford(self._wanted(lane_number, before + 1)):
            return  # for suspects, no count is forgotten
        known = self._lanes.setdefault(lane_number, DeliveryCounts())
        known.suspect(first, last)
        self._count(known.runs - before)

    def trim(self, lane: PendingLane, first: int, last: int) -> None:
        """Forget messages of first..last in a lane that are gone.

        At most one block of the index is read for each run.
        """
        known = self._lanes.get(lane.number)
        if known is not None:
            before = known.runs
            known.trim(first, last, lane)
            if not known.runs:
                del self._lanes[lane.number]
            self._count(known.runs - before)

    def forget(self, destination_number: int) -> None:
        """Forget the lanes of a destination or subscription that has ended."""
        self.forget_lanes(lanes_of(destination_number) if self._lanes else ())
        self.local.discard(destination_number)

    def forget_lanes(self, lanes: Iterable[int]) -> None:
        for lane_number in lanes:
            if lane_number in self._lanes:
                self._runs -= self._lanes.pop(lane_number).runs
        self._count(0)

    def clear(self) -> None:
        """Forget everything, before a full replay."""
        self._lanes.clear()
        self._runs = 0
        self._count(0)

    # ------------------------------------------------------------------ the journal's state

    def describe(self) -> dict[int, list[CountedRun]]:
        """Return the counts that the journal must have, by lane."""
        counted = {
            lane_number: [run for run in known if run.delivery_count]
            for lane_number, known in self._lanes.items()
            if self.is_recorded(lane_number)
        }
        return {lane_number: runs for lane_number, runs in counted.items() if runs}

    def apply(self, described: dict[int, list[CountedRun]]) -> None:
        """Replace all counts."""
        self.clear()
        for lane_number, runs in described.items():
            for run in runs:
                self.put(lane_number, *run)

    # ------------------------------------------------------------------ bounds

    def _make_room(self, lane_number: int) -> bool:
        """Make room for the two runs that one `put` may add to a lane; forget the lowest counts if needed.

        False: there is no memory.
        """
        if self._runs + 2 <= self._runs_max and self._afford(self._wanted(lane_number, 2)):
            return True
        self._forget_lowest()
        return self._afford(self._wanted(lane_number, 2))

    def _wanted(self, lane_number: int, more_runs: int) -> int:
        return self.held_bytes + RUN_CHARGE_BYTES * more_runs + (0 if lane_number in self._lanes else LANE_CHARGE_BYTES)

    def _afford(self, wanted_bytes: int) -> bool:
        lacking = wanted_bytes - self._charge_bytes
        if lacking > 0:
            if not self._account.reserve(lacking):
                return False
            self._charge_bytes = wanted_bytes
        return True

    def _count(self, more: int) -> None:
        """Count added runs, and release what was reserved for them but not used."""
        self._runs += more
        surplus = self._charge_bytes - self.held_bytes
        assert surplus >= 0, "runs are paid for before they are made"
        self._account.release(surplus)
        self._charge_bytes -= surplus

    def _forget_lowest(self) -> None:
        """Keep the three quarters of the runs that have the highest counts."""
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%d runs of returned messages are more than is kept: low counts begin again",
                self._runs,
                event="attempts_forgotten",
            )
        lanes = self._lanes.items()
        ranked = sorted((run.delivery_count, lane_number, run) for lane_number, known in lanes for run in known)
        kept = sorted(ranked[len(ranked) - int(KEPT_SHARE * len(ranked)) :], key=lambda entry: (entry[1], entry[2]))
        self._lanes.clear()
        for _, lane_number, run in kept:
            self._lanes.setdefault(lane_number, DeliveryCounts()).put(*run)
        self._runs = sum(known.runs for known in self._lanes.values())
        self._count(0)

    def _check(self) -> None:
        for known in self._lanes.values():
            assert known.runs
            known._check()
        assert self._runs == sum(known.runs for known in self._lanes.values()) <= self._runs_max
        assert self._charge_bytes == self.held_bytes


def runs_max(data_log_bytes: int) -> int:
    """Return the bound on the number of runs for data logs of this size."""
    return max(RUNS_MIN, min(RUNS_MAX, data_log_bytes // DATA_LOG_BYTES_A_RUN))
