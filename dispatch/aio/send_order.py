"""SendOrder: store the messages that one event loop sends to one destination in the order of the calls.

Most sends are stored before their task lets other tasks run, so they are in order by themselves. A send that takes
several turns of the loop, such as a long batch or a send that waits for room, holds its destination meanwhile: later
sends wait for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...store.errors import StoreFull


class _Line:
    """The sends of one destination: one has the turn, and the others wait for it in the order of their calls.

    An asyncio.Lock serves in this order too, but a wait for it can't be limited in Python 3.11: `wait_for` forgets a
    cancellation that comes with the lock, and `timeout` confuses one that came earlier with its own.
    """

    __slots__ = ("_is_taken", "_waiting", "users")

    def __init__(self) -> None:
        self.users = 0
        self._is_taken = False
        # In the order of the calls. Each is given True with the turn, or False when its time is over.
        self._waiting: OrderedDict[asyncio.Future[bool], None] = OrderedDict()

    async def take_turn(self, timeout: float | None) -> bool:
        """Wait for the turn; return False if that takes more than so many seconds."""
        if not self._is_taken:
            self._is_taken = True
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if timeout is None else loop.call_later(max(timeout, 0.0), _give, waiter, False)
        self._waiting[waiter] = None
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.end_turn()
            raise
        finally:
            self._waiting.pop(waiter, None)
            if timer is not None:
                timer.cancel()

    def end_turn(self) -> None:
        """Give the turn to the next one that still waits."""
        while self._waiting:
            waiter, _ = self._waiting.popitem(last=False)
            if _give(waiter, True):
                return
        self._is_taken = False


class SendOrder:
    """Keeps the sends of one event loop in order. Only its thread may use it."""

    def __init__(self) -> None:
        # Destinations to which a send is under way, so that the next one must wait for its turn.
        self.held: dict[object, _Line] = {}

    @asynccontextmanager
    async def turn(self, destination: object, timeout: float | None) -> AsyncIterator[None]:
        """Hold the destination once earlier sends have finished.

        timeout: seconds to wait for them; None: no limit. StoreFull: the time is over, and nothing was stored. If there
            is no earlier send, no other task runs.
        """
        line = self.held.get(destination)
        if line is None:
            line = self.held[destination] = _Line()
        line.users += 1
        try:
            if not await line.take_turn(timeout):
                raise StoreFull(1, 0, "what was sent before and waits for room itself", remedy="wait longer")
            try:
                yield
            finally:
                line.end_turn()
        finally:
            line.users -= 1
            if not line.users:
                del self.held[destination]


def _give(waiter: asyncio.Future[bool], has_turn: bool) -> bool:
    """Tell a waiter whether it has the turn; return False if it waits no more."""
    if waiter.done():
        return False
    waiter.set_result(has_turn)
    return True
