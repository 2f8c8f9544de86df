"""The monitor of an open store: its state lock, its clock, whether it is closed, and the callbacks that wait.

Queues, lanes, TargetLists and consumers change under one lock, which nobody
holds while a disk is waited for or a user's code runs. A callback that comes
due under the lock is put off, and called by whoever has let the lock go.
Nothing here survives the process.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from ...store.clock import Clock
from ...store.errors import Closed

logger = logging.getLogger("forebay.dispatch")


class Monitor:
    """One for each open directory."""

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.Lock()
        self.clock_ms = clock.time_ms
        self.monotonic = clock.monotonic
        self.is_closed = False
        self.deferred: list[Callable[[], None]] = []
        """Callbacks to call as soon as the lock is free."""

    def raise_if_closed(self) -> None:
        """Raise Closed once the store is closed. The lock may be free."""
        if self.is_closed:
            raise Closed("the store")

    def run_deferred(self) -> None:
        """Call the callbacks that are due. One that raises is logged and hurts no other. Requires: no lock."""
        with self.lock:
            due, self.deferred = deque(self.deferred), []
        try:
            while due:
                try:
                    due.popleft()()
                except Closed:
                    pass  # an on_ready callback that takes has found out what it was called for
                except Exception:
                    logger.exception("an on_ready callback raised")
        finally:
            if due:  # interrupted: the rest is called with the callbacks of the next call
                with self.lock:
                    self.deferred[:0] = due
