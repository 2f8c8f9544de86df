"""Progress: counters and events that the threads of a broker process share."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future

from .sources import LoadSource


class Progress:
    """The work done so far in one broker process. Thread-safe."""

    def __init__(self) -> None:
        # Messages sent, settled or purged; a message that was sent and settled counts twice.
        self.moved_messages = 0
        self.all_sent = threading.Event()
        # Messages a second of each consumer, by an order; None: as planned.
        self.pace: float | None = None
        self._lock = threading.Lock()
        self._bell: Future[None] = Future()
        self._rings_at: int | None = None

    def moved(self, messages: int) -> None:
        with self._lock:
            self.moved_messages += messages
            self._ring()

    def bell(self, rings_at: int | None) -> Future[None]:
        """Return a future that is done once this many messages are moved; None: never. It replaces the last one."""
        with self._lock:
            self._bell, self._rings_at = Future(), rings_at
            self._ring()
            return self._bell

    def _ring(self) -> None:
        if self._rings_at is not None and self.moved_messages >= self._rings_at and not self._bell.done():
            self._bell.set_result(None)

    def is_drained(self, sources: Iterable[LoadSource]) -> bool:
        """Return whether all producers have finished and no source has a message that a consumer would take."""
        return self.all_sent.is_set() and all(source.is_empty for source in sources)
