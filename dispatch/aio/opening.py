"""Opening: what is still to be opened in an event loop, by `await` or by `async with`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Await it for what it opens, or enter it with `async with`, which closes that at the end.

    Nothing happens before. Cancelled while it opens, it leaves nothing open.
    """

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open_it = open_it
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open_it().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open_it()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()
