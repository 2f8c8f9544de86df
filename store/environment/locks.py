"""Locks that refuse the thread that already holds them, instead of letting it wait for itself.

A signal handler runs between two bytecodes of the main thread, and a finalizer wherever memory is allocated. So both
may run inside a section of the store. If they called the store there, they would wait for their own thread for ever.
These locks know their owner, so they refuse such a call with NestedCall.

An exception of a signal handler is raised at the line that it interrupted; Ctrl-C and timeout libraries do the same. If
that line is part of a change of guarded state, the lock breaks: it admits no thread any more.

This module is interpreted in both builds, because a compiled class can't inherit from a class of C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import ref

from ..errors import ForebayError, NestedCall, StoreFailed

if TYPE_CHECKING:

    class _RLock:
        """The class behind threading.RLock, which type checkers take for final."""

        def acquire(self, blocking: object = True, timeout: float = -1) -> bool: ...
        def release(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...
        def _is_owned(self) -> bool: ...
        def _release_save(self) -> tuple[int, int]: ...
        def _acquire_restore(self, state: tuple[int, int]) -> None: ...

else:
    _RLock = type(threading.RLock())


Entry = TypeVar("Entry", bound=AbstractContextManager[object])

WAIT_SECONDS_MAX: Final = threading.TIMEOUT_MAX


class OwnedLock(_RLock):
    """A lock for one thread at a time that refuses a second entry of its owner.

    It is the interpreter's own reentrant lock, so its owner is known at every bytecode at which a signal may arrive.
    Only the entry is Python code. Hot paths can't afford this entry, and use `bare`.
    """

    __slots__ = ("_wait", "on_late", "on_broken", "failure", "_waiters")

    def __init__(self, wait: Callable[[threading.Lock, float], bool] | None = None) -> None:
        """Make a lock that nobody holds.

        wait: acquires a lock within so many seconds of the store's clock; None: within seconds of the machine's.
        """
        self._wait = _wait if wait is None else wait
        # Called when something is postponed until the lock is free.
        self.on_late: Callable[[], None] | None = None
        # Called once, under the lock, when `break_by` has closed it for good.
        self.on_broken: list[Callable[[StoreFailed], None]] = []
        # Why no thread is admitted any more; None: the lock is not broken. To raise it, call its `again`.
        self.failure: StoreFailed | None = None
        # The waiters of threads that have released this lock until something happens; see `release_until`.
        self._waiters: dict[threading.Lock, None] = {}
        _all[ref(self, _all.pop)] = None

    def __enter__(self) -> bool:
        """Wait for the lock. NestedCall: this thread holds it. StoreFailed: it is broken."""
        if self._is_owned():
            raise NestedCall
        try:
            self.acquire()
        except BaseException:
            if self._is_owned():  # a signal handler raised just after the lock was acquired
                self.release()
            raise
        if self.failure is not None:
            self.release()
            raise self.failure.again()
        return True

    def try_acquire(self) -> bool:
        """Take the lock if no thread holds it, not even this one; return whether it was taken."""
        if self._is_owned():
            return False
        try:
            return self.acquire(blocking=False)
        except BaseException:
            if self._is_owned():  # a signal handler raised just after the lock was acquired
                self.release()
            raise

    is_owned = _RLock._is_owned
    """Return whether this thread holds the lock."""

    def bare(self, kind: type[Entry]) -> Entry:
        """Return an object that enters and leaves this lock without a line of Python, for interpreted hot paths.

        The object refuses no thread. So the caller checks `is_owned` before entering, and `failure` inside. kind: the
        interpreted class to which the object belongs. Its own entry and exit are replaced, and its constructor is not
        called.
        """
        # The special methods of a class need not be functions: these two are methods of the lock, which are C.
        entry = {"__slots__": (), "__enter__": self.acquire, "__exit__": self.__exit__}
        made: type[Entry] = type(kind.__name__, (kind,), entry)
        return made.__new__(made)

    def break_by(self, error: BaseException) -> None:
        """Refuse all later entries, because a change of guarded state was not completed. Requires: the lock.

        From now on every entry raises StoreFailed. Threads that released the lock to wait are woken, and raise it too.
        A ForebayError breaks nothing, because code that raises one has left the state whole. NestedCall is an
        exception: it is raised in the middle of another call, like an interruption.
        """
        if isinstance(error, ForebayError) and not isinstance(error, NestedCall):
            return
        if self.failure is None:
            what = type(error).__name__
            self.failure = StoreFailed(f"{what} broke into a change of the store's state", "close and open again")
        while self.on_broken:  # if a callback is interrupted, a section further out calls it again
            self.on_broken[0](self.failure)
            del self.on_broken[0]
        for waiter in tuple(self._waiters):
            _let_pass(waiter)

    def break_between(self, error: BaseException) -> None:
        """Break the lock because an error came between two sections that belong together.

        Requires: no lock.
        """
        self.acquire()
        try:
            self.break_by(error)
        finally:
            self.release()

    def release_until(self, waiter: threading.Lock, seconds: float) -> bool:
        """Release the lock until the waiter is released; return whether that came in time.

        seconds: the longest wait; -1: there is no limit. Whatever interrupts the wait, this thread holds the lock again
            afterwards. StoreFailed: the lock broke meanwhile.
        """
        mine = (1, threading.get_ident())
        is_in_time = False
        try:
            self._waiters[waiter] = None
            self._release_save()
            is_in_time = self._wait(waiter, seconds)
        except BaseException:
            if not self._is_owned():
                self._acquire_restore(mine)
            raise
        else:
            self._acquire_restore(mine)
        finally:
            self._waiters.pop(waiter, None)
        if self.failure is not None:
            raise self.failure.again()
        return is_in_time


_NOBODY: Final[dict[threading.Lock, None]] = {}
"""The waiters of every condition on which nobody waits. It always stays empty."""


class OwnedCondition:
    """Like threading.Condition, for an OwnedLock: an exception during a wait loses neither the lock nor a notification.

    After such an exception, the condition of the standard library may leave the lock free. Or it may keep the thread's
    place in line, so that a notification is lost.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock
        # Waiting threads in order of arrival. It is a shared dict while nobody waits, because each consumer has a
        # condition.
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
            longest = -1.0 if seconds is None else min(max(seconds, 0.0), WAIT_SECONDS_MAX)
            is_in_time = self._lock.release_until(waiter, longest)
        except BaseException:
            if waiter not in self._waiting:
                self.notify()  # pass the notification on to a thread that was not interrupted
            raise
        finally:
            if not is_in_time:
                self._waiting.pop(waiter, None)
            if not self._waiting:
                self._waiting = _NOBODY
        return is_in_time

    def notify(self, count: int = 1) -> None:
        """Wake the threads that came first, up to `count`. Requires: the lock."""
        while count > 0 and self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            count -= _let_pass(waiter)

    def notify_all(self) -> None:
        """Wake all waiting threads. Requires: the lock."""
        self.notify(len(self._waiting))


class _Unawaited(OwnedCondition):
    """Stands in for a condition until a thread waits, because on most conditions no thread ever waits."""

    __slots__ = ()

    def __init__(self) -> None:
        self._waiting = _NOBODY

    def wait(self, seconds: float | None = None) -> bool:
        """Fail, because a thread that waits must make a condition first."""
        raise AssertionError("nobody waits for what stands for all conditions without one who does")


UNAWAITED: Final[OwnedCondition] = _Unawaited()


class Wakeup:
    """Like threading.Event, for one waiting thread: an exception in the middle of `set` leaves nothing locked.

    After such an exception, the event of the standard library may keep its lock, and the next caller hangs. Signal
    handlers and finalizers may call this one: the standard library promises that for `put` of its queue.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether `set` was called since the last `clear`."""
        return not self._calls.empty()

    def set(self) -> None:
        """Wake the waiting thread, or make its next wait end at once."""
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
    """Acquire the lock on which this thread waits. False: it did not come in time. -1: there is no limit."""
    return waiter.acquire(True, seconds)


def _let_pass(waiter: threading.Lock) -> bool:
    """Release the lock on which a thread waits; return False if it was released already."""
    try:
        waiter.release()
    except RuntimeError:
        return False
    return True


class AllOrBroken:
    """A `with` block whose changes are completed, or the lock breaks; see OwnedLock.break_by.

    Use it inside a `with` of the lock, whose exit is C code that can't be interrupted. Hot paths have a `try` instead,
    which costs nothing, and call `break_by` themselves.
    """

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._lock.break_by(error)


_all: dict[ref[OwnedLock], None] = {}
"""All locks that somebody still refers to, of all stores.

This is not a list: copying a list first allocates, which may run the garbage collector. The collector may free a lock
and so shorten the list during the copy. In CPython 3.11 that ends the process.
"""


@dataclass(frozen=True, slots=True)
class StoreLocks:
    """The three locks of a store, in the order in which they are taken."""

    checkpoint: OwnedLock
    """While a thread holds it, no other checkpoints, cleans up or relocates."""
    sync: OwnedLock
    """While a thread holds it, no other syncs the journal."""
    state: OwnedLock
    """Guards the appends to the journal, the index, and all that dispatch has in RAM."""


def require_outside(*locks: OwnedLock) -> None:
    """Raise NestedCall if this thread holds one of these locks.

    Call it before taking a lock that comes before them in the order. Otherwise a signal handler could wait for a thread
    that waits for the thread of the handler.
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
    """Return whether this thread is inside a section of any store. O(stores)."""
    return bool(owned_locks())
