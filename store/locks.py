"""Locks that refuse the thread which has them, instead of letting it wait for itself.

A signal handler runs between two bytecodes of whatever the main thread does,
and a finalizer wherever memory is allocated: perhaps inside a section of the
store. A call of the store from there would wait for its own thread for ever.
These locks know their owner, so such a call is refused with NestedCall.

Interpreted in both builds: a class of machine code can't inherit from one of C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from .errors import NestedCall

if TYPE_CHECKING:

    class _RLock:
        """What the class behind threading.RLock has; type checkers take it for final."""

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...

else:
    _RLock = type(threading.RLock())


class OwnedLock(_RLock):
    """A lock for one thread at a time that refuses its owner.

    It is the interpreter's own reentrant lock, so that who has it is known without a gap, at whatever bytecode a signal
    arrives. Only the entry is ours: it makes a `with` 60 ns longer.
    """

    def __init__(self) -> None:
        self.on_late: Callable[[], None] | None = None
        """Called where something is put off until the lock is free."""
        _all.append(ref(self, _all.remove))

    def __enter__(self) -> bool:
        """Wait for the lock. NestedCall: this thread has it."""
        if self._is_owned():
            raise NestedCall
        try:
            return self.acquire()
        except BaseException:
            if self._is_owned():  # a signal handler raised when it had just come
                self.release()
            raise

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it, this thread included; return whether it did."""
        return not self._is_owned() and self.acquire(blocking=False)

    def is_owned(self) -> bool:
        """Return whether this thread has it."""
        return self._is_owned()


_all: list[ref[OwnedLock]] = []
"""Those that somebody still has, of whatever store."""


def require_outside(*locks: OwnedLock) -> None:
    """Raise NestedCall where this thread is inside one of these locks.

    For whoever is about to take a lock that comes before them: a signal handler that waited for it there would wait for
    a thread that waits for its own.
    """
    for lock in locks:
        if lock.is_owned():
            raise NestedCall


def condition_of(lock: OwnedLock) -> threading.Condition:
    """Return a condition whose waits let the lock go."""
    return threading.Condition(cast("Any", lock))


def owned_locks() -> list[OwnedLock]:
    """Return those that this thread has, of any store. O(stores), so not for hot paths."""
    return [lock for known in tuple(_all) if (lock := known()) is not None and lock.is_owned()]


def holds_one() -> bool:
    """Return whether this thread is inside a section of any store. As owned_locks."""
    return bool(owned_locks())
