"""FairWaiters: the takes of one event loop that wait for the messages of one consumer group, first come, first served.

Of all their consumers one is armed at a time. So an arrival wakes one take,
however many wait, and a take that leaves wakes the next. While anybody waits,
somebody is armed or has been called. A bell brings what
other threads report into the loop: one hand-over for a burst of reports.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress


class LoopWaker:
    """Calls functions in its loop's thread, whichever thread asks for it. A loop that is closed hears nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._rung: deque[Callable[[], None]] = deque()
        self._is_ringing = False

    def ring(self, function: Callable[[], None]) -> None:
        """Wake in any thread, with or without locks."""
        self._rung.append(function)
        if self._is_ringing:
            return
        self._is_ringing = True
        with suppress(RuntimeError):
            if threading.get_ident() == self._thread_id:
                self._loop.call_soon(self._hear)
            else:
                self._loop.call_soon_threadsafe(self._hear)

    def _hear(self) -> None:
        # Before the first look: who rings from now on makes the loop look again.
        self._is_ringing = False
        for _ in range(len(self._rung)):
            self._rung.popleft()()


class FairWaiters:
    """A line of takes of one event loop, first come, first served. Belongs to the loop's thread."""

    __slots__ = ("_waiting", "_is_called", "_called", "is_armed")

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._is_called = False
        """One was called and has neither passed on nor joined again. It looks after all that came so far."""
        self._called: asyncio.Future[None] | None = None
        """What was called until it leaves the line, apart from those that were woken because their consumer ended."""
        self.is_armed = False
        """The next arrival calls one of this line."""

    @property
    def is_busy(self) -> bool:
        """Somebody waits, or is about to look: who comes now stands behind."""
        return self._is_called or bool(self._waiting)

    def join(self, future: asyncio.Future[None], *, was_called: bool) -> None:
        """was_called: out of this line. It found nothing, and is the first again."""
        self._waiting[future] = None
        if was_called:
            self._is_called = False
            self._waiting.move_to_end(future, last=False)

    def leave(self, future: asyncio.Future[None]) -> bool:
        """True: it was called, and must pass on or join again when it has looked."""
        self._waiting.pop(future, None)
        is_called = future is self._called
        if is_called:
            self._called = None
        return is_called

    def call(self) -> None:
        """Let the first in line look, if nobody is about to, because something may have come."""
        self.is_armed = False
        while self._waiting and not self._is_called:
            future, _ = self._waiting.popitem(last=False)
            if not future.done():
                future.set_result(None)
                self._called = future
                self._is_called = True

    def pass_on(self) -> None:
        """Wake the next one: who was called has got something, or gives up."""
        self._is_called = False
        self.call()
