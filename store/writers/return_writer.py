"""ReturnWriter: how often messages that came back were delivered, and when they are offered again.

Each change is made in RAM and by a record. A kill loses no record that was written; a power cut may lose those that are
not synced. A full disk or a failed store takes no record: the change is then in RAM alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..environment.late_log import LateLogger
from ..errors import ForebayError, StoreFailed
from ..format.record import RANGES_MAX, RETURN, TIMED
from ..format.return_record import ReturnedRun, delayed_returns_payload, returns_payload
from ..format.state_record import CountedRun
from ..index.index import Index
from ..journal.journal import Journal
from ..numbering import LANE_MASK, LANE_SHIFT

logger = LateLogger("forebay.store")


class ReturnWriter:
    """Writes the records with the delivery counts of messages that came back.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(self, journal: Journal, index: Index) -> None:
        self._journal = journal
        self._index = index
        # Whether a warning has told that the store has failed and takes no record.
        self._has_warned = False

    def count(self, lane_number: int, runs: Sequence[CountedRun]) -> None:
        """Count deliveries of a lane that did not end with an ack, in one record for up to 4,096 runs.

        Call it when messages come back, and before a message that came back is handed out again. Then the count grows
        even if the process dies of the message. The record is not synced for itself. If it can't be written, the count
        is in RAM alone.
        """
        self.put(lane_number, [ReturnedRun(first, last - first + 1, count) for first, last, count in runs])

    def put(self, lane_number: int, runs: Sequence[ReturnedRun], now_ms: int = 0) -> None:
        """Record delivery counts of runs, with the times at which they are offered again.

        The counts go into the index first, and stay there if the record can't be written. The caller puts the times
        there.

        now_ms: the store's time if one of them is delayed; otherwise 0.
        """
        table = self._index.delivery_count_table
        for first, messages, delivery_count, _ in runs:
            table.put(lane_number, first, first + messages - 1, delivery_count)
        self._index.note_time(now_ms)
        if not table.is_recorded(lane_number):
            return
        number, flags = lane_number >> LANE_SHIFT, lane_number & LANE_MASK | (TIMED if now_ms else 0)
        try:
            for at in range(0, len(runs), RANGES_MAX):
                part = runs[at : at + RANGES_MAX]
                payload = delayed_returns_payload(number, now_ms, part) if now_ms else returns_payload(number, part)
                self._journal.append(RETURN, flags, len(part), payload)
        except ForebayError as error:
            if isinstance(error, StoreFailed) and not self._has_warned:
                self._has_warned = True
                logger.warning("attempts are counted in RAM alone: %s", error, event="attempts_in_ram")
            else:
                logger.debug("attempts are counted in RAM alone: %s", error, event="attempts_in_ram")
