"""Quarantine: records messages as lost that lists skipped because they do not verify.

Then their data logs can be freed. A crash leaves such a message as it was, to be met again, or in the quarantine and
acknowledged.
"""

from __future__ import annotations

from ...store.late_log import LateLogger
from ..core.areas.target_area import TargetArea
from ..core.monitor import Monitor

logger = LateLogger("forebay.dispatch")


class Quarantine:
    """`step` handles the skipped messages. Only one thread calls it."""

    def __init__(self, monitor: Monitor, target_area: TargetArea) -> None:
        self._monitor = monitor
        self._target_area = target_area

    def step(self) -> int:
        """Record unreadable messages as lost; return how many. Requires: no lock."""
        done = 0
        while self._target_area.unreadable:
            lane, sequence = self._target_area.unreadable.popleft()
            if sequence not in lane.in_flight and lane.quarantine(sequence):
                done += 1
                with self._monitor.lock, self._monitor.whole:
                    lane.forget_attempts(sequence, sequence)
                logger.warning(
                    "message %s%d is in the quarantine and counts as acknowledged",
                    lane.id_prefix,
                    sequence,
                    event="message_quarantined",
                )
        return done
