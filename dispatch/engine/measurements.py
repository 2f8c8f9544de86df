"""Measurements: once a second, measure consumers' rates, divide memory among their lists, and find stuck consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ..consumer.slow_consumers import notice_slow
from ..consumer.stuck_consumers import StuckConsumers
from ..core.memory.watermarks import Watermarks
from ..core.model.destination import CoreConsumer
from ..core.monitor import Monitor
from ..loading.warmer import CacheWarmer

MEASURE_SECONDS: Final = 1.0


class Measurements:
    """The once-a-second measurements of an engine's lists and consumers.

    The state lock guards it. Every method requires the state lock.
    """

    def __init__(
        self,
        monitor: Monitor,
        watermarks: Watermarks,
        warmer: CacheWarmer,
        stuck: StuckConsumers,
        consumers: Callable[[], Iterable[CoreConsumer]],
    ) -> None:
        """Make the measurements of a store. consumers: returns all its consumers."""
        self._monitor = monitor
        self._watermarks = watermarks
        self._warmer = warmer
        self._stuck = stuck
        self._consumers = consumers
        self._measured_at = monitor.monotonic()

    @property
    def due_at(self) -> float:
        """When the next measurement is due, in monotonic seconds. The lock need not be held."""
        return self._measured_at + MEASURE_SECONDS

    def take(self, now: float) -> int:
        """Measure if a second has passed; return how many consumers have become slow. O(lists + consumers)."""
        if now < self.due_at:
            return 0
        seconds, self._measured_at = now - self._measured_at, now
        self._watermarks.measure(seconds)
        self._warmer.resume()
        consumers = list(self._consumers())
        slow = notice_slow(self._monitor, consumers, now, seconds)
        self._stuck.check(consumers, now)
        return slow
