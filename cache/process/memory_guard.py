"""MemoryGuard: notice when the process has grown far beyond the ledger, and find out why if possible.

The ledger is about messages and their index. The process also has the interpreter, the host's own objects, and pages
that the C library keeps. The guard compares the growth of both since its first sample. If they are far apart, it logs a
warning, at most every ten minutes, and keeps the figures for statistics. It limits nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...store.environment.late_log import LateLogger

logger = LateLogger("forebay.cache.memory")

LOOK_SECONDS: Final = 10.0
LOG_SECONDS: Final = 600.0
GROWTH_FACTOR: Final = 1.25
GROWTH_BYTES: Final = 40 << 20
"""The process may have grown by GROWTH_FACTOR times the ledger's growth plus GROWTH_BYTES."""
WORTH_A_WARNING_BYTES: Final = 8 << 20
"""A smaller excess is in the statistics but not logged."""


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """The memory of the process compared with the ledger, at most ten seconds old."""

    process_bytes: int
    expected_bytes: int
    """Most bytes that the ledger explains: those of the first sample, 1.25 times the ledger's growth since then, and 40
    MiB.
    """
    excess_bytes: int
    """Bytes above expected_bytes."""
    why: str
    """The reason, if it is known; "" if there is no excess."""


class MemoryGuard:
    """Compares process and ledger. Requires: one thread at a time."""

    def __init__(self, process_bytes: Callable[[], int], return_free_memory: Callable[[], None]) -> None:
        self._process_bytes = process_bytes
        self._return_free_memory = return_free_memory
        self._base_bytes: int | None = None
        self._look_at = self._log_at = float("-inf")
        # The last sample. None: before the first one.
        self.statistics: ProcessStatistics | None = None

    def sample(self, now: float, held_bytes: int) -> None:
        """Take a sample if ten seconds have passed. O(pages of the process). Requires: no lock.

        held_bytes: those of the ledger.
        """
        if now < self._look_at:
            return
        process_bytes = self._process_bytes()
        self._look_at = now + LOOK_SECONDS
        if self._base_bytes is None:
            self._base_bytes = max(process_bytes - held_bytes, 0)
        expected_bytes = self._base_bytes + int(held_bytes * GROWTH_FACTOR) + GROWTH_BYTES
        why = self.statistics.why if self.statistics is not None else ""
        if process_bytes <= expected_bytes:
            why = ""
        elif not why or (now >= self._log_at and process_bytes - expected_bytes >= WORTH_A_WARNING_BYTES):
            process_bytes, why = self._find_out(process_bytes, expected_bytes)
        excess_bytes = max(process_bytes - expected_bytes, 0)
        self.statistics = ProcessStatistics(process_bytes, expected_bytes, excess_bytes, why)
        if excess_bytes >= WORTH_A_WARNING_BYTES and now >= self._log_at:
            self._log_at = now + LOG_SECONDS
            logger.warning(
                "the process has %d MiB of its own, %d MiB more than follows from the %d MiB that the ledger holds: %s",
                process_bytes >> 20,
                excess_bytes >> 20,
                held_bytes >> 20,
                why,
                event="memory_beyond_ledger",
            )

    def _find_out(self, process_bytes: int, expected_bytes: int) -> tuple[int, str]:
        """Return the present bytes of the process, and why they were too many.

        Memory that the C library gives back was free; the rest is in use.
        """
        self._return_free_memory()
        left_bytes = self._process_bytes()
        free_bytes, excess_bytes = process_bytes - left_bytes, process_bytes - expected_bytes
        if free_bytes >= excess_bytes:
            return left_bytes, ""  # the C library had kept free pages, and gave them back now
        return left_bytes, (
            "they are not messages, blocks of the index or pages of the metadata store, which the ledger holds; from "
            "outside the host's objects, message bodies that it keeps, buffers of its connections and the stacks of "
            f"threads look alike; the C library gave back {max(free_bytes, 0) >> 20} MiB"
        )
