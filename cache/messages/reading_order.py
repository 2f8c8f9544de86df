"""ReadingOrder: which message of a lane leaves RAM first, if several readers go through the lane at their own pace.

The message that leaves first is the one that is farthest ahead of the reader that comes to it next, because all others
are needed sooner. So RAM keeps the messages between readers side by side, and those just ahead of them. Between two
groups of readers there is a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heapreplace
from typing import Final

from ...store.numbering import BEHIND_ALL
from ...store.structures.sequence_set import SequenceSet

_NOBODY: Final = -BEHIND_ALL
"""The reader of messages that all readers have passed: so far behind that it never comes."""


class ReadingOrder:
    """Sequences in RAM by their distance from the reader that comes next. The owner's lock guards it.

    A message that was taken out of RAM may stay here until its turn comes, 16 bytes a run. The charge of messages in
    RAM covers that: it includes a delivery, which they do not have yet.
    """

    __slots__ = ("_kept", "_fronts", "_farthest", "_is_arranged")

    def __init__(self) -> None:
        self._kept = SequenceSet()
        # Where readers go on. `_arrange` sorts them, with _NOBODY in front.
        self._fronts: list[int] = []
        # A heap of the last message before each next front: (front before the message less its sequence, its sequence,
        # that front). It lacks messages that came later, so the newest message is always compared as well.
        self._farthest: list[tuple[int, int, int]] = []
        self._is_arranged = False

    def add(self, sequence: int) -> None:
        """Note that a message is in RAM. O(log runs), at the end of them."""
        self._kept.add(sequence, sequence)

    def follow(self, fronts: list[int]) -> None:
        """Note the sequence from which on each reader needs messages. O(1): the list is kept."""
        self._fronts = fronts
        self._is_arranged = False

    def discard_before(self, sequence: int) -> list[tuple[int, int]]:
        """Forget messages before a sequence; return runs of them, each as (first, last). O(runs)."""
        kept = self._kept
        dropped = []
        while kept and kept.first < sequence:
            first, last = kept.next_from(kept.first) or (0, 0)
            last = min(last, sequence - 1)
            kept.remove(first, last)
            dropped.append((first, last))
        return dropped

    def pop_farthest(self) -> int | None:
        """Take out the message farthest from its next reader. None: there is no message. O(log readers), amortized."""
        if not self._farthest or not self._is_arranged:
            self._arrange()
        farthest = self._farthest
        if not farthest or not self._kept:
            return None
        newest = self._kept.last
        if self._distance(newest) < farthest[0][0]:
            self._kept.remove(newest, newest)
            return newest
        _, sequence, front = farthest[0]
        self._kept.remove(sequence, sequence)
        following = self._kept.last_up_to(sequence - 1)
        if following is None or following < front:
            heappop(farthest)
        else:
            heapreplace(farthest, (front - following, following, front))
        return sequence

    def pop_farther_than(self, sequence: int) -> int | None:
        """Take out the farthest message, if it is farther from its reader than `sequence` from its own; else None."""
        if not self._kept:
            return None
        if not self._farthest or not self._is_arranged:
            self._arrange()
        if min(self._farthest[0][0], self._distance(self._kept.last)) >= self._distance(sequence):
            return None
        return self.pop_farthest()

    def _distance(self, sequence: int) -> int:
        """Return the next reader's front less a sequence: the lower, the farther. Requires: fronts are arranged."""
        return self._fronts[bisect_right(self._fronts, sequence) - 1] - sequence

    def _arrange(self) -> None:
        """Find the farthest message of each reader. O(readers log readers)."""
        fronts = self._fronts = sorted({_NOBODY, *self._fronts})
        self._is_arranged = True
        self._farthest = []
        for front, next_front in zip(fronts, [*fronts[1:], BEHIND_ALL], strict=True):
            last = self._kept.last_up_to(next_front - 1)
            if last is not None and last >= front:
                self._farthest.append((front - last, last, front))
        heapify(self._farthest)
