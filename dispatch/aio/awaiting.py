"""Say what to write where an `await` or an `async` was forgotten.

Python itself says that a coroutine has no such attribute, or that an object is
not iterable. Interpreted in both builds: what is awaited here is a coroutine
of Python's, and the special methods are set on classes of Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from ...store.errors import NotAwaited

P = ParamSpec("P")
T = TypeVar("T")


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that is not begun before it is awaited. Used as what it returns, it says what to write."""

    __slots__ = ("_arguments", "_begun", "_call", "_function", "_keywords")

    def __init__(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        call: str,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        self._function = function
        self._call = call
        self._arguments = arguments
        self._keywords = keywords
        self._begun: Coroutine[Any, Any, T] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        if self._begun is None:
            self._begun = self._function(*self._arguments, **self._keywords)
        return self._begun.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a task does. A message is never sent to what was not awaited."""
        if value is not None:
            self._refuse()
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an exception, as a task does when it is cancelled."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """End it, begun or not."""
        if self._begun is not None:
            self._begun.close()
        else:
            self._begun = _nothing()
            self._begun.close()

    def _coroutine(self) -> Coroutine[Any, Any, T]:
        if self._begun is None:
            self._begun = self._function(*self._arguments, **self._keywords)
        return self._begun

    def _refuse(self, *_: object) -> NoReturn:
        if self._begun is None:
            self.close()  # it was told already, so the finalizer need not warn
        raise NotAwaited(self._call, f"write `await {self._call}`")

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):  # as asyncio shows a task
            return self._call.partition("(")[0]
        if name.startswith("cr_") and self._begun is not None:
            return getattr(self._begun, name)
        if name.startswith(("_", "cr_", "gi_")):  # what else debuggers ask of coroutines
            raise AttributeError(name)
        self._refuse()

    __iter__ = __len__ = __getitem__ = __enter__ = __aenter__ = _refuse

    def __exit__(self, *_: object) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __bool__(self) -> bool:
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._call}, {'begun' if self._begun is not None else 'not awaited'}>"

    def __del__(self) -> None:
        """Warn of what was never awaited as Python does of its coroutines: by letting go of one."""
        if self._begun is None:
            self._begun = self._function(*self._arguments, **self._keywords)


def awaited(call: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Have a coroutine function answer for a forgotten `await`. call: as one writes it."""

    def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        def begin(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
            return Awaited(function, call, args, kwargs)

        return begin

    return decorate


def asynchronous(what: str, *, loop: str = "", block: str = "") -> Callable[[type[T]], type[T]]:
    """Have a class answer for a `for` or a `with` without `async`. loop, block: how it is written.

    Type checkers see none of it, so that to them it stays wrong.
    """

    def refuse_with(remedy: str) -> Callable[..., NoReturn]:
        def refuse(self: object, *_: object) -> NoReturn:
            raise NotAwaited(what, f"write `{remedy}`")

        return refuse

    def decorate(decorated: type[T]) -> type[T]:
        refusals = {"__iter__": loop, "__enter__": block, "__exit__": block}
        for name, remedy in refusals.items():
            if remedy:
                setattr(decorated, name, refuse_with(remedy))
        return decorated

    return decorate


async def _nothing() -> Any:
    """Stand in for what was never begun."""
