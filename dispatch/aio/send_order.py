"""SendOrder: store what one event loop sends to one destination in the order of the calls.

A send that is stored at once is in order by itself, because it is stored before its task lets others run. A send that
takes several turns of the loop, such as a long batch or a send that waits for room, holds its destination meanwhile:
later calls come after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...store.errors import StoreFull


class _Line:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # serves in order of arrival
        self.users = 0


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
            if line.lock.locked() and timeout is not None:
                try:
                    # Not wait_for: in Python 3.11 it forgets a cancellation that comes with the lock.
                    async with asyncio.timeout(max(timeout, 0.0)):
                        await line.lock.acquire()
                except TimeoutError:
                    raise StoreFull(
                        1, 0, "what was sent before and waits for room itself", remedy="wait longer"
                    ) from None
            else:
                await line.lock.acquire()
            try:
                yield
            finally:
                line.lock.release()
        finally:
            line.users -= 1
            if not line.users:
                del self.held[destination]
