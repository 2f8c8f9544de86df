"""Bounds: what a run took of memory and disk, against what was promised.

Kept by the supervisor from what the broker process tells twice a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB

from .evidence import Check
from .words import counted, mib

USS_FACTOR: Final = 1.1
USS_ALLOWANCE_BYTES: Final = 24 * MIB
"""Bytes that the process may grow by beside USS_FACTOR times the limit."""
LIVE_FACTOR: Final = 2
FREE_DATA_LOGS: Final = 3
"""Data logs that the journal may have after a cleanup beside LIVE_FACTOR times what is live."""


class Bounds:
    """One run of a scenario, over all its kills. limit_bytes: the memory limit that it begins with."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = self._limit_bytes_max = self._last_limit_bytes = limit_bytes
        self._resizes = 0
        # The most that was charged.
        self.held_bytes_max = 0
        # The most that a process grew by.
        self.uss_bytes_max = 0
        self._is_within = True
        self._spilled_bytes = self._spilled_bytes_max = 0
        self._cleanup: Mapping[str, Any] | None = None

    @property
    def limit_bytes(self) -> int:
        """The limit that was asked for last."""
        return self._limit_bytes

    def gauge(self, facts: Mapping[str, Any]) -> None:
        """Check a sample. uss_bytes: growth of the process since it imported the library."""
        self._last_limit_bytes = facts["limit_bytes"]
        self._is_within &= facts["held_bytes"] <= facts["limit_bytes"]
        self.held_bytes_max = max(self.held_bytes_max, facts["held_bytes_max"])
        self.uss_bytes_max = max(self.uss_bytes_max, facts["uss_bytes"])
        self._spilled_bytes = facts["spilled_bytes"]
        self._spilled_bytes_max = max(self._spilled_bytes_max, self._spilled_bytes)

    def resized(self, limit_bytes: int) -> None:
        self._resizes += 1
        self._limit_bytes = limit_bytes
        self._limit_bytes_max = max(self._limit_bytes_max, limit_bytes)

    def cleaned(self, facts: Mapping[str, Any]) -> None:
        """After a cleanup: live_bytes before it, journal_bytes and data_logs behind it."""
        self._cleanup = facts

    @property
    def uss_limit_bytes(self) -> int:
        """The most that a process may grow by."""
        return int(USS_FACTOR * self._limit_bytes_max) + USS_ALLOWANCE_BYTES

    def judge(self) -> list[Check]:
        checks = [
            Check(
                "memory",
                self._is_within and self.held_bytes_max <= self._limit_bytes_max,
                f"at most {mib(self.held_bytes_max)} of {mib(self._limit_bytes_max)} charged",
            ),
            Check(
                "process",
                self.uss_bytes_max <= self.uss_limit_bytes,
                f"the broker process grew by at most {mib(self.uss_bytes_max)}, allowed {mib(self.uss_limit_bytes)}",
            ),
        ]
        return [*checks, *self._judge_limit(), *self._judge_tmp_storage(), *self._judge_disk()]

    def _judge_limit(self) -> Iterator[Check]:
        if self._resizes:
            text = f"{counted(self._resizes, 'change')}, in the end {mib(self._last_limit_bytes)}"
            if self._last_limit_bytes != self._limit_bytes:
                text += f", wanted {mib(self._limit_bytes)}"
            yield Check("limit", self._last_limit_bytes == self._limit_bytes, text)

    def _judge_tmp_storage(self) -> Iterator[Check]:
        if self._spilled_bytes_max:
            text = f"at most {mib(self._spilled_bytes_max)} spilled, {mib(self._spilled_bytes)} in the end"
            yield Check("tmp-storage", not self._spilled_bytes, text)

    def _judge_disk(self) -> Iterator[Check]:
        if self._cleanup is not None:
            journal_bytes, live_bytes = self._cleanup["journal_bytes"], self._cleanup["live_bytes"]
            allowed_bytes = LIVE_FACTOR * live_bytes + FREE_DATA_LOGS * self._cleanup["data_log_bytes"]
            yield Check(
                "disk",
                journal_bytes <= allowed_bytes,
                f"{counted(self._cleanup['deleted'], 'data log')} deleted, {self._cleanup['data_logs']} left with "
                f"{mib(journal_bytes)} for {mib(live_bytes)} of live messages",
            )
