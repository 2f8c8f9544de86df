"""Opening: an object that opens in an event loop, by `await` or by `async with`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from ...store.errors import NotAwaited


class Closable(Protocol):
    async def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Await it to open the object, or enter it with `async with`, which closes the object at the end.

    Nothing happens before that. If it is cancelled while it opens, nothing stays open.
    """

    def __init__(self, open_it: Callable[[], Coroutine[Any, Any, T]], call: str) -> None:
        """Make it. call: the call as one writes it, for the error if an `await` is missing."""
        self._call = call
        self._open_it = open_it
        self._opened: T | None = None

    if not TYPE_CHECKING:  # type checkers must see no other attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            self.refuse()

    def refuse(self, *_: object) -> NoReturn:
        """Raise an error that says what to write instead of using it as the opened object."""
        raise NotAwaited(self._call, f"write `await {self._call}`, or `async with {self._call} as …:`")

    def __await__(self) -> Generator[Any, Any, T]:
        return self._open_it().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open_it()
        return self._opened

    async def __aexit__(self, *_: object) -> None:
        assert self._opened is not None
        await self._opened.close()


def _refuse(opening: Opening[Any], *_: object) -> NoReturn:
    opening.refuse()


for _name in ("__iter__", "__aiter__", "__enter__", "__exit__"):
    setattr(Opening, _name, _refuse)  # not in the class, so that type checkers see no iterable and no context manager
