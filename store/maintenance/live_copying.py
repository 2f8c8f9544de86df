"""LiveCopying: copy live messages of a data log to the end of the journal.

Messages are read and verified without a lock. In one hold of the state lock, those that are still pending are appended
as slices with the flag RELOCATED, and the lane notes their new places.
"""

from __future__ import annotations

import logging

from ..environment.account import Account
from ..environment.locks import OwnedLock
from ..format.contents import Contents
from ..format.needs_record import needs_bytes
from ..format.record import ENTRY_BYTES, RANGES_MAX, RELOCATED, SLICE_BYTES, TIMED, LaneRun
from ..format.times import has_times, with_times
from ..index.destination_lane import DestinationLane
from ..index.index import Index
from ..index.topic_lane import TopicLane
from ..journal.journal import Journal
from ..journal.regions import plan_regions, read_regions
from ..stored_message import StoredMessage
from .relocation_scan import BATCH_BYTES, LiveMessages, content_bytes, follows
from .relocation_work import RANGE_CHARGE_BYTES, LeftDataLogs, RelocationCounts, RelocationSource, append_needs


class LiveCopying:
    """Copies live messages."""

    def __init__(
        self,
        index: Index,
        journal: Journal,
        state_lock: OwnedLock,
        account: Account,
        left: LeftDataLogs,
        counts: RelocationCounts,
    ) -> None:
        """account: pays for messages that are not small, and for records of needs."""
        self._index = index
        self._journal = journal
        self._state_lock = state_lock
        self._account = account
        self._left = left
        self._counts = counts

    def copy(self, source: RelocationSource, records: list[LiveMessages]) -> bool:
        """Copy these messages. False: some were not copied, for want of memory or room, or because they can't be read.

        Requires: no lock.
        """
        charge_bytes = 3 * sum(live.extent.record_bytes for live in records)
        charge_bytes = charge_bytes if charge_bytes > 3 * BATCH_BYTES else 0
        with self._state_lock:
            if not self._account.reserve(charge_bytes):
                self._left.waiting.add(source.data_log)
                return False
        try:
            regions = plan_regions([live.extent for live in records], lambda _: (source.file, source.salt))
            messages, unreadable = read_regions(regions)
            if unreadable:
                sequence, problem = unreadable[0]
                self._left.keep(
                    source.data_log, f"{len(unreadable)} messages cannot be read; sequence {sequence}: {problem}"
                )
                return False
            with self._state_lock:
                return self._append(source, records, messages)
        finally:
            with self._state_lock:
                self._account.release(charge_bytes)

    def _append(self, source: RelocationSource, records: list[LiveMessages], messages: list[StoredMessage]) -> bool:
        """Append the messages that are still pending, in slices as long as possible. False: some were not appended.

        Requires: the lock.
        """
        gathered: list[StoredMessage] = []
        lane, size, at = records[0].lane, 0, 0
        for live in records:
            copied, at = messages[at : at + live.extent.messages], at + live.extent.messages
            run = live.lane.pending_run(copied[0][0], len(copied))
            is_whole = run == (copied[0][0], copied[-1][0])
            for message in copied:
                if not is_whole and not live.lane.is_pending(message[0]):
                    continue
                if gathered and not (live.lane is lane and follows(gathered, size, message)):
                    if not self._append_slice(source, lane, gathered):
                        return False
                    gathered, size = [], 0
                lane = live.lane
                gathered.append(message)
                size += content_bytes(message)
        return not gathered or self._append_slice(source, lane, gathered)

    def _append_slice(self, source: RelocationSource, lane: DestinationLane, messages: list[StoredMessage]) -> bool:
        if self._index.is_crowded:
            return False
        journal = self._journal
        first, _, _, timestamp = messages[0]
        needs = lane.needs(first, messages[-1][0]) if isinstance(lane, TopicLane) else None
        if needs is not None and len(needs) > RANGES_MAX:
            return self._append_halves(source, lane, messages)
        charge_bytes = RANGE_CHARGE_BYTES * len(needs or ())
        if not self._account.reserve(charge_bytes):
            self._left.waiting.add(source.data_log)
            return False
        contents, flags = _as_copied(lane, messages)
        try:
            with journal.all_or_broken:
                if needs is not None:
                    slice_bytes = SLICE_BYTES + sum(ENTRY_BYTES + content_bytes(message) for message in messages)
                    journal.keep_together(needs_bytes(len(needs)) + slice_bytes, 2)
                    append_needs(journal, LaneRun(lane.number, first, len(messages)), needs, self._counts)
                offset, lengths = journal.append_slice(flags, lane.owner_number, first, timestamp, contents)
                lane.note_copy(journal.data_log, offset, first, lengths)
        finally:
            self._account.release(charge_bytes)
        self._counts.messages += len(messages)
        self._counts.appended_bytes += SLICE_BYTES + ENTRY_BYTES * len(messages) + sum(lengths)
        return True

    def _append_halves(self, source: RelocationSource, lane: DestinationLane, messages: list[StoredMessage]) -> bool:
        middle = len(messages) // 2
        if not middle:
            self._left.keep(
                source.data_log, f"a message of it is needed by more than {RANGES_MAX} subscriptions", logging.DEBUG
            )
            return False
        first, second = messages[:middle], messages[middle:]
        return self._append_slice(source, lane, first) and self._append_slice(source, lane, second)


def _as_copied(lane: DestinationLane, messages: list[StoredMessage]) -> tuple[Contents, int]:
    """Return the contents of copies of a lane's messages, with their present times, and the flags of the copies."""
    contents = Contents.of((properties, body or b"") for _, properties, body, _ in messages)
    flags = RELOCATED | lane.priority
    if not any(map(has_times, contents.properties)):
        return contents, flags
    contents.properties = [
        with_times(properties, lane.times_of(sequence))
        for sequence, properties in enumerate(contents.properties, messages[0][0])
    ]
    return contents, flags | TIMED
