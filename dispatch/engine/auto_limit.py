"""AutoLimit: the task that changes the memory limit as the machine's free memory changes (`memory_limit="auto"`).

cache/process/automatic_limit.py has the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...cache.process.automatic_limit import FLOOR_SHARE, AutomaticLimit
from ...cache.process.shortage import MemoryFigures
from ...store.environment.late_log import LateLogger
from ...store.errors import SettingsError
from ..config.memory_plan import check_quotas, shares_of
from ..config.settings import MEMORY_LIMIT_BYTES_MIN
from ..core.monitor import Monitor
from .resizing import Resizing

logger = LateLogger("forebay.dispatch")

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at the machine. The housekeeper may take steps more often than that."""


class AutoLimit:
    """Adjusts the memory limit of one store. `step` does nothing while the limit is a number. Requires: no lock."""

    def __init__(self, monitor: Monitor, resizing: Resizing, figures: Callable[[], MemoryFigures | None]) -> None:
        """Make the task. figures: returns the memory figures of the system, or None if the system has none."""
        self._monitor = monitor
        self._resizing = resizing
        self._figures = figures
        self._rule = AutomaticLimit()
        self._look_at = float("-inf")
        # Whether the log says already that the system has no figures: one line is enough.
        self._is_told = False

    def step(self) -> int:
        """Change the limit if the machine requires it; return how many changes there were."""
        now = self._monitor.monotonic()
        if not self._resizing.is_automatic or now < self._look_at:
            return 0
        self._look_at = now + LOOK_SECONDS
        figures = self._figures()
        limit_bytes = self._resizing.settings.memory_limit_bytes
        if figures is None:
            if not self._is_told:
                self._is_told = True
                logger.warning(
                    'memory_limit="auto" stays at %d MiB: this system does not tell how much memory it has left',
                    limit_bytes >> 20,
                    event="automatic_limit_blind",
                )
            return 0
        wanted_bytes = self._rule.decide(now, figures, limit_bytes, self._floor_bytes(figures))
        return self._resizing.follow(wanted_bytes) if wanted_bytes != limit_bytes else 0

    def _floor_bytes(self, figures: MemoryFigures) -> int:
        """Return the lowest limit that the rule and the settings admit, with room for index cache and reserves."""
        least_bytes = max(int(self._rule.top_bytes(figures) * FLOOR_SHARE), MEMORY_LIMIT_BYTES_MIN)
        while not self._is_admitted(least_bytes):
            least_bytes += least_bytes // 2
        return least_bytes

    def _is_admitted(self, limit_bytes: int) -> bool:
        try:
            check_quotas(shares_of(self._resizing.settings, limit_bytes))
        except SettingsError:
            return False
        return True
