"""Clairvoyant: computes the least that any rule about memory would have to read back for a trace.

It stands for a rule that knew all takes to come.

From its arrival until it is settled, a message occupies its charge. A rule chooses messages that together never occupy
more memory than there is, and reads the others back. This is interval scheduling: each byte of RAM is a machine, and
each byte of a message is a job for one machine, from the arrival to the end. The most jobs are done by taking them in
the order in which they end, each on the machine that was free last before the job began (Faigle and Nawijn, "Note on
scheduling intervals on-line", 1995; Carlisle and Lloyd, "On the k-coloring of intervals", 1995). That decides about a
message when it is settled, so one pass suffices. It may keep only a part of a message.

No rule that plays the same trace can do better, because each must hold at least that memory for what it does not read.
Messages that the trace reports as not in RAM when they came are read under every rule, and here too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from ...cache.accounting.charge import OVERHEAD_BYTES
from ...store.format.trace import ACK, ARRIVE, GONE, OFFER, RELEASED, TAKE, WAITING, Event
from ...store.structures.sequence_set import SequenceSet

NEVER: Final = -1
"""Stands in for the time when messages came, and says that they were not in RAM."""
GONE_RUNS_MAX: Final = 64
"""The most runs that may have gone from the front of a lane before those behind them move up."""


@dataclass(slots=True)
class Run:
    """Messages of one lane that came at one time, and have one charge each."""

    first: int
    end: int
    came: int
    """The number of the event with which they came, or NEVER."""
    charge: int


class PlayedRuns:
    """The pending messages of one lane, in order."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        # Runs before this place have gone.
        self._begin = 0
        self.in_flight = SequenceSet()

    def __len__(self) -> int:
        """Return how many places the list occupies. Runs that have gone count until their places are dropped."""
        return len(self._runs)

    def append(self, run: Run) -> None:
        """Add messages behind all earlier ones."""
        self._runs.append(run)

    def between(self, first: int, end: int) -> list[Run]:
        """Return the runs from `first` to before `end`, split at these two. O(log runs + those), and moving them."""
        start = self._split(first)
        stop = self._split(end)
        return self._runs[start:stop]

    def remove(self, first: int, end: int) -> None:
        """Remove the messages from `first` to before `end`.

        At the front this is amortized O(log runs), unless `end` is inside a run: a split moves the runs behind it.
        """
        start = self._split(first)
        stop = self._split(end)
        if start > self._begin:
            del self._runs[start:stop]
        else:
            self._begin = stop
            if self._begin > GONE_RUNS_MAX and 2 * self._begin > len(self._runs):
                del self._runs[: self._begin]
                self._begin = 0

    def _split(self, sequence: int) -> int:
        """Return the place of the first run at or behind a sequence.

        A run that reaches over the sequence is split there.
        """
        runs = self._runs
        at = bisect_left(runs, sequence, self._begin, key=lambda run: run.end)
        if at < len(runs) and runs[at].end == sequence:
            return at + 1
        if at < len(runs) and runs[at].first < sequence:
            cut = runs[at]
            runs.insert(at, Run(cut.first, sequence, cut.came, cut.charge))
            cut.first = sequence
            return at + 1
        return at


class FreeMemory:
    """Free RAM by the time since when it has been free. Amortized O(log pieces), plus moving them."""

    def __init__(self, size_bytes: int) -> None:
        self._since = [0]
        self._sizes = [size_bytes]

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self._since)

    def occupied(self, began: int, ended: int, wanted_bytes: int) -> int:
        """Occupy memory that was free from `began` until `ended`, which is now, and return how much there was of it.

        The memory that became free last is taken first, because the rest suits more of the messages that end later.
        Requires: no earlier call had a later end.
        """
        since, sizes = self._since, self._sizes
        at = stop = bisect_right(since, began)
        missing = wanted_bytes
        while at and missing:
            at -= 1
            if sizes[at] > missing:
                sizes[at] -= missing
                missing = 0
                at += 1
            else:
                missing -= sizes[at]
        del since[at:stop], sizes[at:stop]
        found = wanted_bytes - missing
        if found:
            if since and since[-1] == ended:
                sizes[-1] += found
            else:
                since.append(ended)
                sizes.append(found)
        return found


class Clairvoyant:
    """Plays the events of a trace, which must come in order. Takes a few words of memory for each pending run."""

    def __init__(self, available_bytes: int) -> None:
        """Make a player that has this much RAM.

        available_bytes: what the fixed parts of a store leave of its limit.
        """
        self.deliveries = 0
        # A message that is kept in part counts by that part.
        self.hits = 0.0
        # Charge of all that was taken.
        self.delivered_bytes = 0
        # Charge of the messages that were in RAM from their arrival until they were settled.
        self.kept_bytes = 0
        self._memory = FreeMemory(available_bytes)
        self._now = 0
        self._lanes: dict[int, PlayedRuns] = {}

    @property
    def read_back_bytes(self) -> int:
        """Charge of the messages that were taken and could not be kept all the while."""
        return self.delivered_bytes - self.kept_bytes

    @property
    def pieces(self) -> int:
        """How many runs of messages and pieces of memory the player remembers."""
        return len(self._memory) + sum(map(len, self._lanes.values()))

    def play(self, event: Event) -> None:
        """Play one event."""
        kind, number, first, count, extra = event
        self._now += 1
        end = first + count
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = PlayedRuns()
        if kind == ARRIVE:
            lane.append(Run(first, end, self._now, extra + OVERHEAD_BYTES))
        elif kind == WAITING:
            lane.append(Run(first, end, NEVER, extra // count + OVERHEAD_BYTES))
        elif kind == TAKE:
            for run in lane.between(first, end):
                self._take(lane, run)
        elif kind == ACK or kind == RELEASED:
            self._settle(lane, first, end)
            if kind == ACK:
                lane.remove(first, end)
        elif kind == OFFER and extra:
            for run in lane.between(first, end):
                run.came = self._now
        elif kind == GONE:
            lane.remove(first, end)

    def finish(self) -> None:
        """Settle the messages in flight, because the trace has ended."""
        self._now += 1
        for lane in self._lanes.values():
            for first, last in list(lane.in_flight):
                self._settle(lane, first, last + 1)

    def _take(self, lane: PlayedRuns, run: Run) -> None:
        count = run.end - run.first
        self.deliveries += count
        self.delivered_bytes += count * run.charge
        lane.in_flight.add(run.first, run.end - 1)

    def _settle(self, lane: PlayedRuns, first: int, end: int) -> None:
        """Decide how much of the messages in flight among these was kept."""
        for run in lane.between(first, end):
            if run.first not in lane.in_flight:
                continue  # acknowledged by another holder, or twice
            lane.in_flight.remove(run.first, run.end - 1)
            if run.came != NEVER:
                kept_bytes = self._memory.occupied(run.came, self._now, (run.end - run.first) * run.charge)
                self.kept_bytes += kept_bytes
                self.hits += kept_bytes / run.charge
            run.came = NEVER  # not in RAM, until it is offered again with its body
