"""Throttle: how many bytes relocation may copy beside the traffic. This is arithmetic, without a clock of its own.

While the journal is a little too large, it is a tenth of what others append. While the journal is far too large, it is
as much as others append, which is half of all writes. Without other traffic there is no limit.
"""

from __future__ import annotations

from typing import Final

SHARE_OF_TRAFFIC: Final = 10
IDLE_SECONDS: Final = 0.5
IDLE_BYTES: Final = 4096
"""Fewer bytes since the last sample do not count as traffic. Attest records and checkpoints come when nobody sends."""
CREDIT_BYTES_MAX: Final = 1 << 20


class Throttle:
    """Bounds what is copied, by samples of what others appended."""

    def __init__(self, now: float) -> None:
        self._appended_bytes = 0
        # What others appended between the last two samples.
        self._sampled_bytes = 0
        self._credit_bytes = 0
        self._busy_at = now

    def sample(self, now: float, appended_bytes: int) -> None:
        """Note the amount of traffic. `earn` follows.

        appended_bytes: total appended by others than relocation.
        """
        self._sampled_bytes = appended_bytes - self._appended_bytes
        self._appended_bytes = appended_bytes
        if self._sampled_bytes >= IDLE_BYTES:
            self._busy_at = now

    def earn(self, *, is_far_above: bool) -> None:
        """Allow relocation its share of the traffic of the last sample.

        is_far_above: whether the journal is above the bound that holds under load.
        """
        earned = self._sampled_bytes if is_far_above else self._sampled_bytes // SHARE_OF_TRAFFIC
        self._credit_bytes = min(self._credit_bytes + earned, CREDIT_BYTES_MAX)

    def is_busy(self, now: float) -> bool:
        return now - self._busy_at < IDLE_SECONDS

    def allows(self, now: float) -> bool:
        return self._credit_bytes > 0 or not self.is_busy(now)

    def count_copied(self, copied_bytes: int, now: float) -> None:
        """Count copied bytes. A debt is possible and is worked off first; copies in idle time cost nothing."""
        if self.is_busy(now):
            self._credit_bytes -= copied_bytes
