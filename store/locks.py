"""Locks that refuse a thread which holds them already, instead of letting it wait for itself.

A signal handler runs between two bytecodes of the main thread, and a finalizer runs wherever memory is allocated.
Either may run inside a locked section of the store. A call of the store from there would wait for its own thread for
ever. These locks know their owner, so they refuse such a call with NestedCall.

An exception of such a handler is raised at whatever line it interrupted, as with Ctrl-C and with timeout libraries. If
that line was part of a change of the guarded state, the lock breaks: it admits nobody any more.

This module is interpreted in both builds: a compiled class can't inherit from a class of C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final
from weakref import ref

from .errors import ForebayError, NestedCall, StoreFailed

if TYPE_CHECKING:

    class _RLock:
        """The members of the class behind threading.RLock. Type checkers take the real class for final."""

        def acquire(self, blocking: object = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _release_save(self) -> tuple[int, int]: ...
        def _acquire_restore(self, state: tuple[int, int]) -> None: ...

else:
    _RLock = type(threading.RLock())


WAIT_SECONDS_MAX: Final = threading.TIMEOUT_MAX


class OwnedLock(_RLock):
    """A lock for one thread at a time that refuses a second entry of its owner.

    It is the interpreter's own reentrant lock, so its owner is known at every bytecode at which a signal may arrive.
    Only the entry is written in Python. Hot paths can't afford that and enter by `bare`.
    """

    __slots__ = ("_wait", "on_late", "on_broken", "failure", "_resting")

    def __init__(self, wait: Callable[[threading.Lock, float], bool] | None = None) -> None:
        """wait: acquires a thread's waiter within that many seconds of the store's clock. None: the machine's clock."""
        self._wait = _wait if wait is None else wait
        # Called when work was put off until the lock is free.
        self.on_late: Callable[[], None] | None = None
        # Called under the lock when `break_by` has closed it for good.
        self.on_broken: list[Callable[[StoreFailed], None]] = []
        # Why the lock admits nobody any more. None while it works.
        self.failure: StoreFailed | None = None
        # Waiters of the threads that have released the lock until something happens.
        self._resting: dict[threading.Lock, None] = {}
        _all[ref(self, _all.pop)] = None

    def __enter__(self) -> bool:
        """Wait for the lock. Raises NestedCall if this thread holds it, StoreFailed if it is broken."""
        if self._is_owned():
            raise NestedCall
        try:
            self.acquire()
        except BaseException:
            if self._is_owned():  # a signal handler raised just after the acquire
                self.release()
            raise
        if self.failure is not None:
            self.release()
            raise self.failure
        return True

    def try_acquire(self) -> bool:
        """Take the lock if no thread has it, this one included; return whether the lock was taken."""
        if self._is_owned():
            return False
        try:
            return self.acquire(blocking=False)
        except BaseException:
            if self._is_owned():  # a signal handler raised just after the acquire
                self.release()
            raise

    is_owned = _RLock._is_owned
    """Return whether this thread holds the lock."""

    def bare(self) -> AbstractContextManager[object]:
        """Return a context manager that enters and leaves this lock without a line of Python, for the hot paths.

        It refuses nobody. So its user asks `is_owned` before entering, and checks `failure` inside.
        """
        # The special methods of a class need not be functions. These two belong to the lock and are C functions.
        # Compiled code passes the object to them, and so to `acquire` as its argument `blocking`: therefore the object
        # is the number 1.
        entry = {"__slots__": (), "__enter__": self.acquire, "__exit__": self.__exit__}
        made: AbstractContextManager[object] = type("BareLock", (int,), entry)(1)
        return made

    def break_by(self, error: BaseException) -> None:
        """Refuse all later entries, because a change of the guarded state was interrupted. Requires: the lock.

        Every entry raises StoreFailed from now on. A thread that has released the lock to wait wakes up with
        StoreFailed. An error of this library breaks nothing: code that raises one has left the state consistent.
        NestedCall does break the lock: it is raised in the middle of another call, as an interruption is.
        """
        if isinstance(error, ForebayError) and not isinstance(error, NestedCall):
            return
        if self.failure is None:
            what = type(error).__name__
            self.failure = StoreFailed(f"{what} broke into a change of the store's state", "close and open again")
        for call in self.on_broken:
            call(self.failure)
        for waiter in tuple(self._resting):
            _let_pass(waiter)

    def break_between(self, error: BaseException) -> None:
        """Break the lock because an error came between two sections of which the second had to follow the first.

        Requires: no lock.
        """
        self.acquire()
        try:
            self.break_by(error)
        finally:
            self.release()

    def rest(self, waiter: threading.Lock, seconds: float) -> bool:
        """Release the lock until the waiter is released; return whether that came in time. -1 means no limit.

        This thread holds the lock afterwards, even if an exception interrupts the wait. Raises StoreFailed if the lock
        broke meanwhile.
        """
        mine = (1, threading.get_ident())
        is_in_time = False
        try:
            self._resting[waiter] = None
            self._release_save()
            is_in_time = self._wait(waiter, seconds)
        except BaseException:
            if not self._is_owned():
                self._acquire_restore(mine)
            raise
        else:
            self._acquire_restore(mine)
        finally:
            self._resting.pop(waiter, None)
        if self.failure is not None:
            raise self.failure
        return is_in_time


_NOBODY: Final[dict[threading.Lock, None]] = {}
"""The waiters of every condition that nobody waits for. It stays empty."""


class OwnedCondition:
    """A condition of an OwnedLock, like threading.Condition.

    An exception in a wait loses neither the lock nor a notification.

    The condition of the standard library may leave the lock free after an exception, or keep the place in the line, so
    that a notification is lost.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock
        # The waiters, first come first. The dict is made for the first waiter, because each consumer has a condition.
        self._waiting = _NOBODY

    def wait(self, seconds: float | None = None) -> bool:
        """Release the lock until a notification; return whether it came in time. Requires: the lock."""
        waiter = threading.Lock()
        waiter.acquire()
        is_in_time = False
        try:
            if self._waiting is _NOBODY:
                self._waiting = {}
            self._waiting[waiter] = None
            is_in_time = self._lock.rest(waiter, -1.0 if seconds is None else min(max(seconds, 0.0), WAIT_SECONDS_MAX))
        except BaseException:
            if waiter not in self._waiting:
                self.notify()  # pass the notification on to another waiter
            raise
        finally:
            if not is_in_time:
                self._waiting.pop(waiter, None)
            if not self._waiting:
                self._waiting = _NOBODY
        return is_in_time

    def notify(self, count: int = 1) -> None:
        """Wake that many waiters, the oldest first. Requires: the lock."""
        while count > 0 and self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            count -= _let_pass(waiter)

    def notify_all(self) -> None:
        """Wake all waiters."""
        self.notify(len(self._waiting))


class _Unawaited(OwnedCondition):
    """A shared stand-in for conditions that nobody waits for. Most conditions never have a waiter."""

    __slots__ = ()

    def __init__(self) -> None:
        self._waiting = _NOBODY

    def wait(self, seconds: float | None = None) -> bool:
        """Fail: the caller must make a real condition first."""
        raise AssertionError("nobody waits for what stands for all conditions without one who does")


UNAWAITED: Final[OwnedCondition] = _Unawaited()


class Wakeup:
    """An event for one waiting thread, like threading.Event. An exception in the middle of `set` leaves nothing locked.

    The event of the standard library may keep its lock then, and the next caller hangs. Signal handlers and finalizers
    may call `set`: the standard library promises that for `put` of its SimpleQueue.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether `set` was called since the last `clear`."""
        return not self._calls.empty()

    def set(self) -> None:
        """Wake the waiting thread, or let its next wait end at once."""
        if self._calls.empty():
            self._calls.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a `set`; return False if none came in time."""
        try:
            self._calls.get(timeout=seconds)
        except Empty:
            return False
        self._calls.put(None)
        return True

    def clear(self) -> None:
        """Forget all calls of `set` so far."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()


def _wait(waiter: threading.Lock, seconds: float) -> bool:
    """Acquire the waiter of this thread; return False if it was not released in time. -1 means no limit."""
    return waiter.acquire(True, seconds)


def _let_pass(waiter: threading.Lock) -> bool:
    """Release a thread's waiter; return False if it was released already."""
    try:
        waiter.release()
    except RuntimeError:
        return False
    return True


class Whole:
    """A context manager: the body is done completely, or the lock breaks. See OwnedLock.break_by.

    It stands inside a `with` of the lock, whose exit is C code that no signal can interrupt. Hot paths use a `try`
    instead, which costs nothing, and call break_by themselves.
    """

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._lock.break_by(error)


_all: dict[ref[OwnedLock], None] = {}
"""All living locks of all stores.

It is a dict, not a list. Copying a list begins with an allocation; the garbage collector may run there, collect a lock
and shorten the list under the copy. In CPython 3.11 that ends the process.
"""


def require_outside(*locks: OwnedLock) -> None:
    """Raise NestedCall if this thread holds one of these locks.

    A caller uses it before it takes a lock that comes earlier in the order. A signal handler that waited for the
    earlier lock would wait for a thread that waits for this one.
    """
    for lock in locks:
        if lock.is_owned():
            raise NestedCall


def condition_of(lock: OwnedLock) -> OwnedCondition:
    """Return a condition whose waits release the lock."""
    return OwnedCondition(lock)


def owned_locks() -> list[OwnedLock]:
    """Return the locks of all stores that this thread holds. O(stores), so not for hot paths."""
    return [lock for known in list(_all) if (lock := known()) is not None and lock.is_owned()]


def holds_one() -> bool:
    """Return whether this thread is inside a locked section of any store. O(stores)."""
    return bool(owned_locks())
