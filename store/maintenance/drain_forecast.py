"""DrainForecast: predict which data logs consumers will soon empty, because copying out of them would be wasted work.

A consumer that keeps pace with its producer empties a data log in seconds. With small messages, the journal is always
large compared with its live messages, whatever relocation does. Without this prediction, relocation would copy each
data log just ahead of the consumer that empties it. This is arithmetic, without a clock of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..index.data_log_use import DataLogUse

SOON_SECONDS: Final = 10.0


class DrainForecast:
    """Predicts which data logs will be empty soon, from samples of what is pending."""

    def __init__(self, now: float) -> None:
        self._looked_at = now
        self._pending: dict[int, int] = {}
        # Data logs that will be empty within SOON_SECONDS if messages leave them as fast as between the last two
        # samples.
        self.soon_empty: set[int] = set()

    def sample(self, now: float, uses: Mapping[int, DataLogUse]) -> None:
        """Compare the pending messages of each data log with the last sample. O(data logs). Requires: the lock."""
        seconds, self._looked_at = now - self._looked_at, now
        before = self._pending
        self._pending = {data_log: use.pending_messages for data_log, use in uses.items() if use.pending_messages}
        self.soon_empty = {
            data_log
            for data_log, pending in self._pending.items()
            if pending * seconds < (before.get(data_log, pending) - pending) * SOON_SECONDS
        }
