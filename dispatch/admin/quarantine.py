"""Quarantine: record unreadable messages as lost, so that their data logs can be deleted.

Lists skip a message whose bytes do not verify, and leave it here. After a crash the message is either pending as
before, and a list meets it again, or it is acknowledged and its bytes are in the quarantine.
"""

from __future__ import annotations

from collections import deque

from ...store.environment.late_log import LateLogger
from ..core.model.destination import LaneState
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch")


class Quarantine:
    """Records unreadable messages as lost. Only one thread calls `step`."""

    def __init__(self, monitor: Monitor, unreadable: deque[tuple[LaneState, int]]) -> None:
        """unreadable: (lane, sequence) of messages that were skipped because they can't be read. `step` empties it."""
        self._monitor = monitor
        self._unreadable = unreadable

    def step(self) -> int:
        """Record messages that can't be read as lost; return how many. Requires: no lock.

        A message for which the disk has no space stays the first one of the next call.
        """
        done = 0
        while self._unreadable:
            lane, sequence = self._unreadable.popleft()
            try:
                is_quarantined = sequence not in lane.deliveries and lane.quarantine(sequence)
            except BaseException:
                self._unreadable.appendleft((lane, sequence))
                raise
            if is_quarantined:
                done += 1
                with self._monitor.lock, self._monitor.all_or_broken:
                    lane.trim_delivery_counts(sequence, sequence)
                logger.warning(
                    "message %s%d is in the quarantine and counts as acknowledged",
                    lane.id_prefix,
                    sequence,
                    event="message_quarantined",
                )
        return done
