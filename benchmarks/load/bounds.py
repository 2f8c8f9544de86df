"""Bounds: compare the memory and disk of a run with what the library promises.

The supervisor keeps these figures from samples that the broker process sends twice a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from forebay.dispatch.config.sizes import MIB

from .evidence import Check
from .words import counted, mib

USS_FACTOR: Final = 1.1
USS_ALLOWANCE_BYTES: Final = 24 * MIB
"""Bytes by which the process may grow in addition to USS_FACTOR times the limit."""
LIVE_FACTOR: Final = 2
FREE_DATA_LOGS: Final = 3
"""Data logs that the journal may have after a cleanup in addition to LIVE_FACTOR times the live bytes."""


class Bounds:
    """The bounds of one run, over all its kills. limit_bytes: the memory limit at its beginning."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = self._limit_bytes_max = self._last_limit_bytes = limit_bytes
        self._resizes = 0
        # Most bytes that were charged.
        self.held_bytes_max = 0
        # Most bytes by which a process grew.
        self.uss_bytes_max = 0
        self._is_within = True
        self._spilled_bytes = self._spilled_bytes_max = 0
        self._cleanup: Mapping[str, Any] | None = None

    @property
    def limit_bytes(self) -> int:
        """The memory limit that was set last."""
        return self._limit_bytes

    def gauge(self, facts: Mapping[str, Any]) -> None:
        """Check a sample. uss_bytes: growth of the process since all of the library was there."""
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
        """Note a cleanup: live_bytes before it, journal_bytes and data_logs after it."""
        self._cleanup = facts

    @property
    def uss_limit_bytes(self) -> int:
        """Most bytes by which a process may grow."""
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
