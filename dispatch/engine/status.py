"""The status of a running store, written once in a while for processes beside it: `forebay queues` and `health`.

It names the busiest queues and counts the rest, and looks at no more than two
hundred queues at a time, whatever there are: so it costs the same beside 100
queues and beside 100,000. A crash leaves the last one, which tells its time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final, Protocol

from ..admin.oldest import OldestMessages
from ..core.destinations import Destinations
from ..core.model import QueueArea
from ..core.monitor import Monitor
from .statistics import DestinationStatistics, destination_statistics

FORMAT: Final = 1
QUEUES_MAX: Final = 100
"""Queues that are named; of the others there is a count."""
SAMPLE_MAX: Final = 100
"""Others that are looked at each time, in turns: the busiest of them are named."""
SHARE_MAX: Final = 0.01
"""Of the time at most so much goes to statuses: where one takes longer, the next one comes later."""
_EARLY_SECONDS: Final = 0.5
"""The housekeeper wakes about once a second: so much before its time a status is due."""


class StatusOutput(Protocol):
    """Where a status goes; see StatusFile."""

    def write(self, content: bytes) -> None: ...
    def remove(self) -> None: ...


class _Seen:
    """What a queue had when it was looked at last, and the rates since the time before."""

    __slots__ = ("at", "figures", "in_rate", "out_rate")

    def __init__(self, at: float, figures: DestinationStatistics, since: float, before: _Seen | None) -> None:
        """since: when the counts began, if the queue was not seen before."""
        self.at = at
        self.figures = figures
        seconds = max(at - (since if before is None else before.at), 0.001)
        enqueued, acknowledged = (0, 0) if before is None else (before.figures.enqueued, before.figures.acknowledged)
        self.in_rate = (figures.enqueued - enqueued) / seconds
        self.out_rate = (figures.acknowledged - acknowledged) / seconds

    def busyness(self) -> float:
        return self.figures.depth + self.in_rate + self.out_rate


class StatusReporter:
    """Makes the status and writes it when it is due."""

    def __init__(
        self,
        monitor: Monitor,
        destinations: Destinations,
        oldest: OldestMessages,
        output: StatusOutput,
        interval_seconds: float,
        whole: Callable[[], dict[str, Any]],
    ) -> None:
        """whole: returns what is told of the store as a whole, as JSON has it; called under no lock."""
        self._monitor = monitor
        self._destinations = destinations
        self._oldest = oldest
        self._output = output
        self._interval_seconds = interval_seconds
        self._whole = whole
        self._began = monitor.monotonic()
        self._due_at = self._began + interval_seconds
        self._pause_seconds = interval_seconds
        self._seen: dict[QueueArea, _Seen] = {}
        self._turn = 0
        self._last: dict[str, Any] = {}

    def step(self) -> int:
        """Write a status if one is due; return how many were. Requires: no lock."""
        now = self._monitor.monotonic()
        if now < self._due_at - _EARLY_SECONDS:
            return 0
        self._due_at = now + self._pause_seconds  # first: one that fails is tried again by its duty
        self.write()
        spent = self._monitor.monotonic() - now
        self._pause_seconds = max(self._interval_seconds, spent / SHARE_MAX)
        return 1

    def write(self) -> None:
        """Write a status now. Requires: no lock."""
        now = self._monitor.monotonic()
        queues = self._chosen()
        self._oldest.refresh(queues)
        seen: dict[QueueArea, _Seen] = {}
        for queue in queues:
            with self._monitor.lock:
                if not queue.is_deleted:
                    figures = destination_statistics(queue, self._oldest.age_seconds(queue))
                    seen[queue] = _Seen(now, figures, self._began, self._seen.get(queue))
        named = sorted(seen, key=lambda queue: -seen[queue].busyness())[:QUEUES_MAX]
        self._seen = {queue: seen[queue] for queue in named}
        rows = [_row(queue, seen[queue]) for queue in sorted(named, key=lambda queue: queue.name)]
        self._last = {
            "format": FORMAT,
            "time": self._monitor.clock_ms() / 1000,
            "interval_seconds": self._pause_seconds,
            **self._whole(),
            "queues": rows,
            "other_queues": max(len(self._destinations.queues) - len(rows), 0),
        }
        self._put()

    def write_failed(self, health: dict[str, Any]) -> None:
        """Write once more what was told last, but for its health: nothing else is to be known of a broken store."""
        self._last |= {"format": FORMAT, "time": self._monitor.clock_ms() / 1000, "health": health}
        self._put()

    def _put(self) -> None:
        import json  # with the first status, not with the package

        self._output.write(json.dumps(self._last, allow_nan=False).encode())

    def end(self) -> None:
        """Take the status away: the store is closed."""
        self._output.remove()

    def _chosen(self) -> list[QueueArea]:
        """Return the queues to look at: those that are named, and some others in turns."""
        with self._monitor.lock:
            queues = list(self._destinations.queues.values())
        if len(queues) <= QUEUES_MAX + SAMPLE_MAX:
            return queues
        if self._turn >= len(queues):
            self._turn = 0
        begin, self._turn = self._turn, self._turn + SAMPLE_MAX
        others = [queue for queue in queues[begin : self._turn] if queue not in self._seen]
        return [*self._seen, *others]


def _row(queue: QueueArea, seen: _Seen) -> dict[str, Any]:
    figures = asdict(seen.figures)
    figures |= {"blocked_seconds": round(seen.figures.blocked_seconds, 3)}
    return {
        "name": queue.name,
        **figures,
        "in_per_second": round(seen.in_rate, 1),
        "out_per_second": round(seen.out_rate, 1),
    }
