"""SurvivorNaming: name the live messages of a data log in a survivors record, which replaces all acks into the data
log.

Data logs that stay only for these acks can be deleted then. The live messages are noted while the data log is scanned.
When the scan has ended, one record names those that are still live.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..environment.account import Account
from ..environment.late_log import LateLogger
from ..format.needs_record import NeededRun, needs_bytes
from ..format.record import HEADER_BYTES, RANGES_MAX, SURVIVORS, LaneRun
from ..format.survivors_record import SURVIVOR_RANGES_MAX, survivors_payload
from ..index.data_log_use import DataLogUse
from ..index.index import Index
from ..index.topic_lane import TopicLane
from ..journal.journal import Journal
from ..numbering import BLOCK_MASK
from ..structures.sequence_set import SequenceSet
from .relocation_scan import LiveMessages
from .relocation_work import RANGE_CHARGE_BYTES, LeftDataLogs, RelocationCounts, RelocationSource, append_needs

logger = LateLogger("forebay.store.cleanup")


class SurvivorNaming:
    """Names live messages. Every method requires the lock."""

    def __init__(
        self, index: Index, journal: Journal, account: Account, left: LeftDataLogs, counts: RelocationCounts
    ) -> None:
        """account: pays for the runs that are noted."""
        self._index = index
        self._journal = journal
        self._account = account
        self._left = left
        self._counts = counts

    def note(self, source: RelocationSource, found: list[LiveMessages]) -> bool:
        """Note live messages. Requires: the lock. False: there are too many runs for one record, or for memory."""
        for lane, extent in found:
            runs = source.survivors.setdefault(lane.number, SequenceSet())
            runs.add(extent.first_sequence, extent.first_sequence + extent.messages - 1)
        ranges = sum(runs.run_count for runs in source.survivors.values())
        charge_bytes = RANGE_CHARGE_BYTES * ranges - source.charge_bytes
        is_noted = ranges <= SURVIVOR_RANGES_MAX and (charge_bytes <= 0 or self._account.reserve(charge_bytes))
        if not is_noted:
            self._left.unnameable[source.data_log] = source.freed_bytes
        elif charge_bytes > 0:
            source.charge_bytes += charge_bytes
        return is_noted

    def append(self, source: RelocationSource, use: DataLogUse) -> None:
        """Append the survivors record.

        Requires: the lock, so that no ack comes between the last check and the record.
        """
        ranges = self._survivors(source, use)
        named = sum(run.messages for run in ranges)
        if named != use.pending_messages:
            self._left.give_up(source.data_log, f"{use.pending_messages - named} live messages were not found in it")
            return
        payload = survivors_payload(source.data_log, ranges)
        if 2 * len(payload) > source.freed_bytes or len(ranges) > SURVIVOR_RANGES_MAX:
            self._left.unnameable[source.data_log] = source.freed_bytes
            return
        needs = [found for run in ranges for found in self._needs(run)]
        if sum(len(found) for _, found in needs) > RANGES_MAX:
            self._left.unnameable[source.data_log] = source.freed_bytes
            return
        journal = self._journal
        with journal.all_or_broken:
            if needs:
                size = HEADER_BYTES + len(payload) + sum(needs_bytes(len(found)) for _, found in needs)
                journal.keep_together(size, 1 + len(needs))
            for run, found in needs:
                append_needs(journal, run, found, self._counts)
            journal.append(SURVIVORS, 0, len(ranges), payload)
            self._index.supersede(source.data_log, journal.data_log)
        self._counts.appended_bytes += HEADER_BYTES + len(payload)
        logger.debug(
            "data-%d.log: its %d live messages are named anew",
            source.data_log,
            use.pending_messages,
            event="messages_named_anew",
        )

    def _survivors(self, source: RelocationSource, use: DataLogUse) -> list[LaneRun]:
        """Return runs of the noted messages that are still live. Requires: the lock."""
        ranges = [
            LaneRun(lane_number, first, last - first + 1)
            for lane_number, runs in source.survivors.items()
            for first, last in runs
        ]
        if sum(run.messages for run in ranges) == use.pending_messages:
            return ranges
        return [left for run in ranges for left in self._still_live(run)]

    def _needs(self, run: LaneRun) -> Iterator[tuple[LaneRun, list[NeededRun]]]:
        """Yield, block by block, which messages of a run each subscription needs. A queue's lane has no such needs."""
        lane = self._index.find_lane(run.lane_number)
        first, behind = run.first, run.first + run.messages
        while isinstance(lane, TopicLane) and first < behind:
            last = min(behind - 1, first | BLOCK_MASK)
            yield LaneRun(run.lane_number, first, last - first + 1), lane.needs(first, last)
            first = last + 1

    def _still_live(self, run: LaneRun) -> Iterator[LaneRun]:
        lane = self._index.find_lane(run.lane_number)  # None: all its messages are gone meanwhile
        at, behind = run.first, run.first + run.messages
        while (
            lane is not None
            and at < behind
            and (run_pending := lane.pending_run(at, behind - at)) is not None
            and run_pending[0] < behind
        ):
            last = min(run_pending[1], behind - 1)
            yield LaneRun(run.lane_number, run_pending[0], last - run_pending[0] + 1)
            at = last + 1
