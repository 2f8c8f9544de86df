"""Send order: what one event loop sends to one destination is stored in the order of the calls.

A send that is stored at once is in order by itself, because it is stored
before its task lets others run. One that takes several turns of the loop, a
long batch or a send that waits for room, holds its destination meanwhile:
those that are called after it come after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...store.errors import StoreFull


class _Line:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # serves in the order of arrival
        self.users = 0


class SendOrder:
    """Keeps the sends of one event loop in order. Only its thread may use it."""

    def __init__(self) -> None:
        self.held: dict[object, _Line] = {}
        """Destinations to which a send is under way, so that another one must wait for its turn."""

    @asynccontextmanager
    async def turn(self, destination: object, timeout: float | None) -> AsyncIterator[None]:
        """Hold the destination when those that came before are through.

        timeout: seconds to wait for them; None: until they are. StoreFull: it is over, and nothing was stored. Where
        nobody is before, no other task runs.
        """
        line = self.held.get(destination)
        if line is None:
            line = self.held[destination] = _Line()
        line.users += 1
        try:
            if line.lock.locked() and timeout is not None:
                try:
                    await asyncio.wait_for(line.lock.acquire(), max(timeout, 0.0))
                except TimeoutError:
                    raise StoreFull(1, 0, "what was sent before and waits for room itself") from None
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
