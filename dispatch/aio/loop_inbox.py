"""LoopInbox: brings calls of other threads into an event loop, with one hand-over for a burst of them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ..core.monitor import call_back


class LoopInbox:
    """Calls functions in its loop's thread, for any thread. If the loop is closed, it does nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._posted: deque[Callable[[], None]] = deque()
        # Whether the loop is about to call what is posted.
        self._is_scheduled = False

    def post(self, function: Callable[[], None]) -> None:
        """Call a function in the loop. Any thread may ask, with or without locks."""
        self._posted.append(function)
        if self._is_scheduled:
            return
        self._is_scheduled = True
        with suppress(RuntimeError):
            if threading.get_ident() == self._thread_id:
                self._loop.call_soon(self._call_posted)
            else:
                self._loop.call_soon_threadsafe(self._call_posted)

    def _call_posted(self) -> None:
        # Reset it before the first look, so that later calls make the loop look again.
        self._is_scheduled = False
        for _ in range(len(self._posted)):
            call_back(self._posted.popleft())
