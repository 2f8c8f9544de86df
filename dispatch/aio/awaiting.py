"""Errors that say what to write if an `await` or an `async` is missing.

Python itself only says that a coroutine has no such attribute, or that an object is not iterable. The module is
interpreted in both builds, because what is awaited here is a coroutine of Python, and the special methods are set on
classes of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import wraps
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, NoReturn, ParamSpec, TypeVar

from ...store.errors import NotAwaited

P = ParamSpec("P")
T = TypeVar("T")


class Awaited(Coroutine[Any, Any, T]):
    """A coroutine that has not begun. If it is used as its result, it raises an error that says what to write."""

    __slots__ = ("_call", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        """Wrap a coroutine. call: the call as one writes it."""
        self._coroutine = coroutine
        self._call = call

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """Continue, as a task does. The name is that of a coroutine; it sends no message."""
        if value is not None:
            self._refuse()
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Continue with an exception, as a task does when it is cancelled."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End it, whether it has begun or not."""
        self._coroutine.close()

    def _refuse(self, *_: object) -> NoReturn:
        if not self._is_begun():
            self.close()  # the error was raised already, so the finalizer need not warn
        raise NotAwaited(self._call, f"write `await {self._call}`")

    def _is_begun(self) -> bool:
        return getcoroutinestate(self._coroutine) != CORO_CREATED

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__"):  # as asyncio shows a task
            return self._call.partition("(")[0]
        if name.startswith("cr_"):
            return getattr(self._coroutine, name)
        if name.startswith(("_", "gi_")):  # other names that debuggers ask of coroutines
            raise AttributeError(name)
        self._refuse()

    __iter__ = __len__ = __getitem__ = __enter__ = __aenter__ = _refuse

    def __exit__(self, *_: object) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...

    def __bool__(self) -> bool:
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._call}, {'begun' if self._is_begun() else 'not awaited'}>"


def awaited(call: str) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Make a coroutine function raise a helpful error for a missing `await`. call: the call as one writes it."""

    def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        def begin(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
            return Awaited(function(*args, **kwargs), call)

        return begin

    return decorate


def asynchronous(
    what: str, *, loop: str = "", block: str = "", setting: str = "", deleting: str = ""
) -> Callable[[type[T]], type[T]]:
    """Make a class raise a helpful error for a missing `async` or `await`.

    The cases are a `for` or a `with` without `async`, and an item that is set or deleted without `await`. loop, block,
    setting, deleting: how to write them. Type checkers do not see this, so they still report the mistake.
    """

    def refuse_with(remedy: str) -> Callable[..., NoReturn]:
        def refuse(self: object, *_: object) -> NoReturn:
            raise NotAwaited(what, f"write `{remedy}`")

        return refuse

    def decorate(decorated: type[T]) -> type[T]:
        refusals = {"__iter__": loop, "__enter__": block, "__exit__": block}
        refusals |= {"__setitem__": setting, "__delitem__": deleting}
        for name, remedy in refusals.items():
            if remedy:
                setattr(decorated, name, refuse_with(remedy))
        return decorated

    return decorate
