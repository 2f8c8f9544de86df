"""Where the console's facts come from: the status file and admin socket of another process, or a store of this one.

Both take the requests of the admin socket, and their answers are checked in the same way. A look costs the other
process nothing, because it reads the status file, which that process writes anyway.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from heapq import nlargest
from typing import Any, Final

import forebay.metrics

from ..dispatch.engine.statistics import DestinationStatistics, Statistics
from ..dispatch.forebay import Forebay
from ..dispatch.remote.admin_socket import lacking
from ..dispatch.remote.client import ask_store, result_of
from ..dispatch.remote.requests import answer
from ..dispatch.screen.view import NoView, StoreView, printable, read_view, view_of
from ..dispatch.store_status import is_stale, live_status
from ..store.errors import ForebayError, StateError
from .figures import snapshot_of

ANSWER_SECONDS: Final = 60.0
"""Seconds that a request waits for the answer of another process."""
LOOK_SECONDS: Final = 1.0
"""Seconds for which all clients share one look at a store of this process."""
REOPEN: Final = "Open it again, and mount the console of that."
QUEUES_MAX: Final = 100
"""Most queues that are named, as in a status file."""


class ConsoleSource(ABC):
    """One store, as the console sees it. Thread-safe."""

    def __init__(self, broker: str) -> None:
        self.broker = broker

    @abstractmethod
    def read(self) -> StoreView | NoView:
        """Return the status of the store, or the reason why there is none. Never raises."""

    @abstractmethod
    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send the store a request of the admin socket (dispatch/remote/requests.py); return its answer.

        SettingsError, StateError.
        """

    @abstractmethod
    def metrics(self) -> str:
        """Return the metrics in the text format of Prometheus."""


class StatusSource(ConsoleSource):
    """A store that another process has open."""

    def __init__(self, root: str) -> None:
        super().__init__(root.rpartition("/")[2])
        self._root = root

    def read(self) -> StoreView | NoView:
        return read_view(self._root, self.broker)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            result = ask_store(self._root, request, ANSWER_SECONDS)
        except OSError as error:
            raise StateError(f"the store cannot be asked: {error}") from None
        if result is None:
            missing = lacking()
            raise StateError(
                f"nobody listens there, because that takes {missing}, which this system lacks: mount the console in "
                "the process that has the store open"
                if missing
                else "nobody listens there: start the process that has the store open with admin=True"
            )
        return result

    def metrics(self) -> str:
        status = live_status(self._root)
        is_told = status is not None and not is_stale(status, time.time() - float(status["time"]))
        return forebay.metrics.text_of(self.broker, snapshot_of(status) if status is not None and is_told else None)


class BaySource(ConsoleSource):
    """A store that this process has open."""

    def __init__(self, bay: Forebay, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Make the source for an open store. monotonic: returns seconds, for rates and the age of a look."""
        super().__init__(bay.settings.broker_name)
        self._bay = bay
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen_at = monotonic()
        self._seen: Mapping[str, DestinationStatistics] = bay.statistics().destinations
        self._view: StoreView | None = None

    def read(self) -> StoreView | NoView:
        with self._lock:
            if self._bay.is_closed:
                return NoView(self.broker, "This store is closed.", REOPEN)
            now = self._monotonic()
            try:
                if self._view is None or now - self._seen_at >= LOOK_SECONDS:
                    statistics = self._bay.statistics()
                    self._view = view_of(self._status(statistics, max(now - self._seen_at, 0.001)), self.broker)
                    self._seen, self._seen_at = statistics.destinations, now
                return self._view
            except ForebayError as error:
                return NoView(self.broker, printable(error), REOPEN)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return result_of(answer(self._bay, json.dumps(request).encode()), self.broker)

    def metrics(self) -> str:
        return forebay.metrics.prometheus_text(self._bay)

    def _status(self, statistics: Statistics, seconds: float) -> dict[str, Any]:
        """Return the fields that a status file would have. seconds: time since the previous look."""
        memory, curve = statistics.memory, statistics.memory.curve
        named = nlargest(QUEUES_MAX, statistics.destinations.items(), key=lambda found: found[1].depth)
        return {
            "time": time.time(),
            "health": {"problems": list(self._bay.health().problems)},
            "memory": {
                "limit_bytes": memory.limit_bytes,
                "held_bytes": memory.held_bytes,
                "holders": memory.holders,
                "recommended_limit_bytes": curve.recommended_limit_bytes,
                "curve": [[point.limit_bytes, point.hit_ratio] for point in curve.points] if curve.deliveries else [],
            },
            "store": statistics.store._asdict(),
            "tmp_storage": dataclasses.asdict(statistics.tmp_storage),
            "process": dataclasses.asdict(statistics.process) if statistics.process is not None else None,
            "queues": [self._row(name, found, seconds) for name, found in named],
            "other_queues": len(statistics.destinations) - len(named),
        }

    def _row(self, name: str, found: DestinationStatistics, seconds: float) -> dict[str, Any]:
        before = self._seen.get(name)
        enqueued, acknowledged = (before.enqueued, before.acknowledged) if before is not None else (0, 0)
        return found._asdict() | {
            "name": name,
            "in_per_second": (found.enqueued - enqueued) / seconds,
            "out_per_second": (found.acknowledged - acknowledged) / seconds,
        }
