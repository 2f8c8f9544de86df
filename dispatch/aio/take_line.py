"""TakeLine: the takes of one event loop that wait for messages of one selector group, first come, first served.

Only one of their consumers is armed at a time. So an arrival wakes one take, however many wait, and a take that leaves
the line wakes the next one. While a take waits, either a consumer is armed or a take has been called.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict


class TakeLine:
    """A line of takes of one event loop, first come, first served. It belongs to the loop's thread."""

    __slots__ = ("_waiting", "_is_called", "_called", "is_armed")

    def __init__(self) -> None:
        self._waiting: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        # Whether a take was called and has neither passed on nor joined again. It is responsible for all arrivals so
        # far.
        self._is_called = False
        # The take that was called, until it leaves the line. A take that was woken because its consumer ended is not
        # meant.
        self._called: asyncio.Future[None] | None = None
        # Whether the next arrival calls a take of this line.
        self.is_armed = False

    @property
    def is_busy(self) -> bool:
        """Whether a take waits or is about to look, so that a new one must stand behind it."""
        return self._is_called or bool(self._waiting)

    def join(self, future: asyncio.Future[None], *, was_called: bool) -> None:
        """Join the line. was_called: the take was called out of it and found nothing, so it is first again."""
        self._waiting[future] = None
        if was_called:
            self._is_called = False
            self._waiting.move_to_end(future, last=False)

    def leave(self, future: asyncio.Future[None]) -> bool:
        """Leave the line. True: the take was called, and must pass on or join again after it has looked."""
        self._waiting.pop(future, None)
        is_called = future is self._called
        if is_called:
            self._called = None
        return is_called

    def call(self) -> None:
        """Wake the first take in line, because there may be a message, unless a called take is about to look."""
        self.is_armed = False
        while self._waiting and not self._is_called:
            future, _ = self._waiting.popitem(last=False)
            if not future.done():
                future.set_result(None)
                self._called = future
                self._is_called = True

    def pass_on(self) -> None:
        """Wake the next take, because the one that was called has got a message or gives up."""
        self._is_called = False
        self.call()
