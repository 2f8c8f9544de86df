"""BareLock: an entry to an OwnedLock without a call of Python code. The section itself checks what the entry would."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Final

from .locks import OwnedLock


class BareLock:
    """The entry for sections that are machine code; `bare_lock` makes the right entry for the present build.

    In machine code, a `with` of a compiled object calls its methods directly. For any other object it looks up two
    methods and makes a tuple for each call, which takes twice as long. Interpreted code uses the subclass that
    `OwnedLock.bare` makes: its special methods are those of the lock, which are C.
    """

    __slots__ = ("_enter", "_leave")

    def __init__(self, enter: Callable[[], object], leave: Callable[[], object]) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._leave()


def bare_lock(lock: OwnedLock) -> BareLock:
    """Return an entry to a lock that refuses no thread. So its user asks for `is_owned` and `failure` itself."""
    return BareLock(lock.acquire, lock.release) if IS_MACHINE_CODE else lock.bare(BareLock)


IS_MACHINE_CODE: Final = type(bare_lock) is not FunctionType
"""Whether this module is machine code. Its path is not known yet while it is imported."""
