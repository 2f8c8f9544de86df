"""The state that the parts of relocation share: the data log at work, the data logs left alone, and the counts.

All this is in RAM. After a crash, relocation begins anew from what the index says.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..disk.disk import File
from ..environment.late_log import LateLogger
from ..format.needs_record import NeededRun, needs_payload
from ..format.record import HEADER_BYTES, NEEDS, LaneRun
from ..journal.journal import Journal
from ..numbering import UNLIMITED
from ..state.branches import NOTHING_UNDECIDED, Undecided
from ..structures.sequence_set import SequenceSet

logger = LateLogger("forebay.store.cleanup")

RANGE_CHARGE_BYTES: Final = 80
"""Memory of a run of survivors: as numbers, as payload and as record."""


class IndexPlace(NamedTuple):
    """How far a search of the index has come."""

    lane: int
    """Index of the lane in the lanes to search."""
    sequence: int
    """Sequence at which to continue in that lane."""


BEGIN: Final = IndexPlace(0, 0)


@dataclass(slots=True)
class RelocationSource:
    """The data log whose messages are being copied or named."""

    data_log: int
    is_naming: bool
    """Whether its remaining messages are named instead of copied."""
    file: File
    salt: int
    offset: int
    end: int
    freed_bytes: int = 0
    survivors: dict[int, SequenceSet] = field(default_factory=dict)
    charge_bytes: int = 0
    has_transactional: bool = False
    """Whether it has slices of transactions. Their heads do not say the sequences, so the index must be searched."""
    lanes: list[int] | None = None
    """Lanes of the index to search after all heads are scanned. None: heads are still being scanned."""
    place: IndexPlace = BEGIN
    """Where the search of the index continues. All messages before it are copied or noted."""
    behind: IndexPlace = BEGIN
    """Where the search continues once the messages that it has just found are copied or noted."""
    undecided: Undecided = NOTHING_UNDECIDED
    """The slices that transactions without an outcome had in the data log when the search of the index began."""

    @property
    def is_scanning(self) -> bool:
        """Whether heads are scanned. Afterwards the index is searched."""
        return self.lanes is None

    @property
    def is_searched(self) -> bool:
        """Whether the index was searched to its end."""
        return self.lanes is not None and self.place.lane == len(self.lanes)


@dataclass(slots=True)
class RelocationCounts:
    """Counts of the work of relocation since the open."""

    messages: int = 0
    """Number of copied messages."""
    appended_bytes: int = 0
    scanned_bytes: int = 0


class LeftDataLogs:
    """The data logs that relocation leaves alone, for now or for good. The choice of a data log passes over them."""

    def __init__(self) -> None:
        # Data logs with unreadable messages: copying the readable ones would free nothing.
        self.kept: set[int] = set()
        # Data logs that were not worth a survivors record, or for which there was no memory, with the bytes that they
        # kept then.
        self.unnameable: dict[int, int] = {}
        # Data logs with a message for which there was no memory in this round.
        self.waiting: set[int] = set()

    def is_left(self, data_log: int) -> bool:
        """Return whether no message is copied out of a data log any more in this round."""
        return data_log in self.kept or data_log in self.waiting

    def give_up(self, data_log: int, problem: str) -> None:
        """Leave a data log alone for good, because not even its live messages can be named."""
        self.unnameable[data_log] = UNLIMITED
        self.keep(data_log, problem)

    def keep(self, data_log: int, problem: str, level: int = logging.WARNING) -> None:
        """Copy no message out of a data log any more, and log the reason."""
        self.kept.add(data_log)
        logger.log(level, "data-%d.log stays as it is: %s", data_log, problem, event="data_log_not_relocated")


def append_needs(journal: Journal, run: LaneRun, needs: list[NeededRun], counts: RelocationCounts) -> None:
    """Append the record that says which messages of a run of a topic each subscription needs. Requires: the lock."""
    payload = needs_payload(run, needs)
    journal.append(NEEDS, 0, len(needs), payload)
    counts.appended_bytes += HEADER_BYTES + len(payload)
