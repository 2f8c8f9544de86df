"""Memory charges of consumers, selector groups and their lists.

A consumer, its selector group with the selector, and a list over each lane of its queue are charged from `subscribe` to
`close`. A list may also come later, with the first message of another priority, and can't always be refused. If the
budget has no room for it, its charge is owed, and paid first when memory comes free.
"""

from __future__ import annotations

from typing import Final

from ....cache.accounting.overdraft import Overdraft
from ....store.structures.sequence_set import SequenceSet
from ...selectors.selector import Selector

CONSUMER_BYTES: Final = 436
"""Charged for a consumer."""
LOOP_BYTES: Final = 1920
"""Charged in addition for a consumer of forebay.aio."""
SELECTOR_GROUP_BYTES: Final = 168
"""Charged for a selector group, without its selector."""
OWN_SELECTOR_GROUP_BYTES: Final = 320
"""Charged in addition for each consumer of a queue with groups or priorities: it has a selector group for itself."""
LIST_BYTES: Final = 800
"""Charged for a list over one lane."""
DIRECT_BYTES: Final = 768
"""Charged in addition for a list that has room for direct messages.

All sizes were measured with tracemalloc over 3,000 objects in use.
"""
STEP_RUNS: Final = 32
RUNS_STEP_BYTES: Final = 768
"""Charged for one step of a list's runs: 16 bytes for each run, the arrays that hold them, and their spare room."""


class ListRuns(SequenceSet):
    """The runs of a TargetList, charged in steps of a fixed number of runs.

    A step is charged even if the budget has no room: a message that became a run has just released more than that.
    """

    __slots__ = ("consumer_memory", "_paid_runs")

    def __init__(self, consumer_memory: Overdraft) -> None:
        super().__init__()
        self.consumer_memory = consumer_memory
        self._paid_runs = 0

    def add(self, first: int, last: int) -> None:
        super().add(first, last)
        if self.run_count > self._paid_runs:
            self._pay()

    def remove(self, first: int, last: int) -> None:
        super().remove(first, last)
        if self.run_count > self._paid_runs:
            self._pay()
        elif self.run_count + 2 * STEP_RUNS <= self._paid_runs or not self:
            self._refund()

    def close(self) -> None:
        """Forget all runs, because the list has ended."""
        if self:
            self.remove(self.first, self.last)

    @property
    def charge_bytes(self) -> int:
        """What these runs should be charged. AssertionError if there are more runs than were paid for."""
        assert self.run_count <= self._paid_runs
        return RUNS_STEP_BYTES * (self._paid_runs // STEP_RUNS)

    def _pay(self) -> None:
        self._paid_runs += STEP_RUNS
        self.consumer_memory.charge(RUNS_STEP_BYTES)

    def _refund(self) -> None:
        spare = (self._paid_runs - self.run_count) // STEP_RUNS
        self._paid_runs -= STEP_RUNS * spare
        self.consumer_memory.release(RUNS_STEP_BYTES * spare)


def selector_group_charge(selector: Selector | None) -> int:
    """Return the charge of a selector group."""
    return SELECTOR_GROUP_BYTES if selector is None else SELECTOR_GROUP_BYTES + selector.charge_bytes
