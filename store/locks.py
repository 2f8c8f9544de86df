"""Locks that refuse the thread which has them, instead of letting it wait for itself.

A signal handler runs between two bytecodes of whatever the main thread does, and a finalizer wherever memory is
allocated: perhaps inside a section of the store. A call of the store from there would wait for its own thread for ever.
These locks know their owner, so such a call is refused with NestedCall.

What such a handler raises comes out of whatever line it interrupted, as Ctrl-C does and the exception of a timeout
library. Where that line was part of a change of what the lock guards, the lock breaks: it lets nobody in any more.

Interpreted in both builds: a class of machine code can't inherit from one of C.
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
        """What the class behind threading.RLock has; type checkers take it for final."""

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
    """A lock for one thread at a time that refuses its owner.

    It is the interpreter's own reentrant lock, so that who has it is known without a gap, at whatever bytecode a signal
    arrives. Only the entry is ours. Hot paths can't afford it and enter by `bare`.
    """

    __slots__ = ("_wait", "on_late", "on_broken", "failure", "_resting")

    def __init__(self, wait: Callable[[threading.Lock, float], bool] | None = None) -> None:
        """wait: acquires what a thread waits for, within so many seconds of the store's clock; None: the machine's."""
        self._wait = _wait if wait is None else wait
        self.on_late: Callable[[], None] | None = None
        """Called where something is put off until the lock is free."""
        self.on_broken: list[Callable[[StoreFailed], None]] = []
        """Called under the lock when `break_by` has closed it for good."""
        self.failure: StoreFailed | None = None
        """Why nobody is let in any more."""
        self._resting: dict[threading.Lock, None] = {}
        """What the threads wait for that have let the lock go until something happens."""
        _all[ref(self, _all.pop)] = None

    def __enter__(self) -> bool:
        """Wait for the lock. NestedCall: this thread has it. StoreFailed: it is broken."""
        if self._is_owned():
            raise NestedCall
        try:
            self.acquire()
        except BaseException:
            if self._is_owned():  # a signal handler raised when it had just come
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
            if self._is_owned():  # a signal handler raised when it had just come
                self.release()
            raise

    is_owned = _RLock._is_owned
    """Return whether this thread has it."""

    def bare(self) -> AbstractContextManager[object]:
        """Return what enters and leaves this very lock without a line of Python, for the hot paths.

        It refuses nobody. So who enters it asks `is_owned` before, outside, and looks at `failure` inside.
        """
        # The special methods of a class need not be functions: these two are the lock's own, which C calls. Machine
        # code hands the object to them, and so to `acquire` as its argument `blocking`: therefore it is the number 1.
        entry = {"__slots__": (), "__enter__": self.acquire, "__exit__": self.__exit__}
        made: AbstractContextManager[object] = type("BareLock", (int,), entry)(1)
        return made

    def break_by(self, error: BaseException) -> None:
        """Refuse all later entries, because a change of what the lock guards was not done whole. Requires: the lock.

        Every entry raises StoreFailed from now on, and whoever has let the lock go to wait for something is woken to
        the same. An error of ours changes nothing: who raises one has left everything whole. A nested call is refused
        in the middle of another, so its error is an interruption as any other.
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
        """Break the lock where one section must not be without the next and the error came between.

        Requires: no lock.
        """
        self.acquire()
        try:
            self.break_by(error)
        finally:
            self.release()

    def rest(self, waiter: threading.Lock, seconds: float) -> bool:
        """Let the lock go until the waiter is released; return whether that came in time. -1: there is no limit.

        Whatever breaks in, this thread has the lock behind it. StoreFailed: the lock broke meanwhile.
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
"""The waiters of each condition that nobody waits for. Nothing is ever put in."""


class OwnedCondition:
    """As threading.Condition, of an OwnedLock: an exception in a wait loses neither the lock nor a notification.

    The one of the standard library may leave the lock free then, or its place in the line taken, so that a notification
    goes to nobody.
    """

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock
        self._waiting = _NOBODY
        """Who waits, first come first. A dict of its own only while somebody does: each consumer has a condition."""

    def wait(self, seconds: float | None = None) -> bool:
        """Let the lock go until a notification; return whether it came in time. Requires: the lock."""
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
                self.notify()  # it was meant for somebody who goes on
            raise
        finally:
            if not is_in_time:
                self._waiting.pop(waiter, None)
            if not self._waiting:
                self._waiting = _NOBODY
        return is_in_time

    def notify(self, count: int = 1) -> None:
        """Wake so many, who came first. Requires: the lock."""
        while count > 0 and self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            count -= _let_pass(waiter)

    def notify_all(self) -> None:
        """Wake all. Requires: the lock."""
        self.notify(len(self._waiting))


class _Unawaited(OwnedCondition):
    """What nobody waits for: it stands for a condition until somebody does, because most never have anybody."""

    __slots__ = ()

    def __init__(self) -> None:
        self._waiting = _NOBODY

    def wait(self, seconds: float | None = None) -> bool:
        """Fail: who waits has a condition made."""
        raise AssertionError("nobody waits for what stands for all conditions without one who does")


UNAWAITED: Final[OwnedCondition] = _Unawaited()


class Wakeup:
    """As threading.Event, for one thread that waits: an exception in the middle of `set` leaves nothing locked.

    The one of the standard library may keep its lock then, and hang whoever comes next. Callable from handlers and
    finalizers: the queue of the standard library promises that of its `put`.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        """Return whether there was a call since `clear`."""
        return not self._calls.empty()

    def set(self) -> None:
        """Wake who waits, or have its next wait end at once."""
        if self._calls.empty():
            self._calls.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for a call; return False if none came in time."""
        try:
            self._calls.get(timeout=seconds)
        except Empty:
            return False
        self._calls.put(None)
        return True

    def clear(self) -> None:
        """Forget the calls so far."""
        with suppress(Empty):
            while True:
                self._calls.get_nowait()


def _wait(waiter: threading.Lock, seconds: float) -> bool:
    """Acquire what this thread waits for; False: it did not come in time. -1: there is no limit."""
    return waiter.acquire(True, seconds)


def _let_pass(waiter: threading.Lock) -> bool:
    """Release what a thread waits for; return False where that was done already."""
    try:
        waiter.release()
    except RuntimeError:
        return False
    return True


class Whole:
    """Says that what is done in a `with` of this is done whole, or nothing more is done: see OwnedLock.break_by.

    It stands inside a `with` of the lock, whose exit is the interpreter's and can't be broken into. Hot paths have a
    `try` instead, which costs nothing, and call break_by themselves.
    """

    def __init__(self, lock: OwnedLock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._lock.break_by(error)


_all: dict[ref[OwnedLock], None] = {}
"""Those that somebody still has, of whatever store.

Not a list: a copy of it begins by allocating, where the garbage collector may run, find a lock to be garbage and
shorten the list under the copy. In CPython 3.11 that ends the process.
"""


def require_outside(*locks: OwnedLock) -> None:
    """Raise NestedCall where this thread is inside one of these locks.

    For whoever is about to take a lock that comes before them: a signal handler that waited for it there would wait for
    a thread that waits for its own.
    """
    for lock in locks:
        if lock.is_owned():
            raise NestedCall


def condition_of(lock: OwnedLock) -> OwnedCondition:
    """Return a condition whose waits let the lock go."""
    return OwnedCondition(lock)


def owned_locks() -> list[OwnedLock]:
    """Return those that this thread has, of any store. O(stores), so not for hot paths."""
    return [lock for known in list(_all) if (lock := known()) is not None and lock.is_owned()]


def holds_one() -> bool:
    """Return whether this thread is inside a section of any store. As owned_locks."""
    return bool(owned_locks())
