"""The monitor of an open store: its state lock, its clock, whether it is closed, and the callbacks that wait.

Queues, lanes, TargetLists and consumers change under one lock, which nobody
holds while a disk is waited for or a user's code runs. A callback that comes
due under the lock is put off. The thread that leaves the lock then calls it.
Nothing here survives the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ...store.clock import Clock
from ...store.errors import Closed, StoreFailed
from ...store.late_log import LateLogger, emit_late
from ...store.locks import OwnedLock, Whole, holds_one

logger = LateLogger("forebay.dispatch")

T = TypeVar("T")

ASIDE_SECONDS: Final = 50e-6
"""A moment in which another thread wakes up and gets the interpreter, which takes it some 30 µs."""
AT_ONCE: Final = 100
"""Destinations, subscriptions or lists that are looked at before others have the lock again."""


class Monitor:
    """One for each open directory."""

    def __init__(self, clock: Clock) -> None:
        self.lock = OwnedLock(clock.wait)
        self.lock.on_late = self._poke
        self.is_inside = self.lock.is_owned
        """Whether this thread is inside a section."""
        self.bare_lock = self.lock.bare()
        """The same lock for the four sections of single messages: Sender._store_persistent and _store_non_persistent,
        Consumer.take and ack. They have one form, and do in place what `with lock, whole:` does by calls:

            if monitor.is_inside():
                raise NestedCall
            with monitor.bare_lock:
                try:
                    if monitor.lock.failure is not None:
                        raise monitor.lock.failure
                    if monitor.entries != entries:  # as they were before; not in a take
                        monitor.step_aside()
                    monitor.entries += 1
                    ...
                except BaseException as error:
                    monitor.lock.break_by(error)
                    raise

        By calls each would cost 51 instructions of the interpreter and not 24, which is 6 % of a message's 1,355; see
        decision 17.
        """
        self.entries = 0
        """Sections of single messages that have begun. A call that finds another number inside than before has waited.

        A take only counts: the ack that follows it steps aside.
        """
        self.whole = Whole(self.lock)
        """`with lock, whole:` is for what changes something: it is done whole, or the store lets nobody in any more."""
        self._wait = clock.wait
        self._never = threading.Lock()
        """Nobody ever releases it: to wait for it is to wait for a time."""
        self._never.acquire()
        self.clock_ms = clock.time_ms
        self.monotonic = clock.monotonic
        self.is_closed = False
        self.deferred: list[Callable[[], None]] = []
        """Callbacks to call as soon as the lock is free."""
        self.postponed_calls: deque[Callable[[], object]] = deque()
        """Calls that came from inside a call of the same thread: they are made as soon as it has left."""

    def step_aside(self) -> None:
        """Have this thread give up the interpreter for a moment once it has let the lock go. Requires: the lock.

        For a section that was waited for. Else two busy threads pass the lock to and fro at each message: the thread
        that waits gets the lock at the next release, before it has the interpreter, so the other thread finds the lock
        taken again at once. See decision 25.
        """
        self.deferred.append(self._pause)

    def _pause(self) -> None:
        self._wait(self._never, ASIDE_SECONDS)

    def raise_if_closed(self) -> None:
        """Raise Closed once the store is closed. The lock may be free."""
        if self.is_closed:
            raise Closed("the store")

    def call_later(self, call: Callable[[], object]) -> None:
        """Make the call when this thread, which is inside a section of the store, has left it: at the end of the call
        that it is in, or by the background within a second. Takes no lock.
        """
        self.postponed_calls.append(call)
        self._poke()

    def _poke(self) -> None:
        """Have the thread that leaves the lock next call run_deferred."""
        self.deferred.append(_nothing)

    def run_deferred(self) -> None:
        """Call the callbacks that are due. One that raises is logged and hurts no other. Requires: no lock."""
        due: deque[Callable[[], object]] = deque()
        try:
            with self.lock, self.whole:
                due.extend(self.deferred)
                self.deferred.clear()
            emit_late()
            if self.postponed_calls and not holds_one():
                with suppress(IndexError):  # another thread makes the rest
                    for _ in range(len(self.postponed_calls)):
                        due.append(self.postponed_calls.popleft())
            _call_all(due)
        finally:
            if due:  # interrupted: the rest is called with the callbacks of the next call
                self.postponed_calls.extend(due)
                self._poke()

    def run_last(self) -> None:
        """Call the callbacks that are due although the lock is broken, so that those who wait for one learn of it."""
        due: deque[Callable[[], object]] = deque(self.deferred)
        self.deferred = []
        _call_all(due)


def _call_all(due: deque[Callable[[], object]]) -> None:
    """Call and take out what is due."""
    while due:
        try:
            due.popleft()()
        except (Closed, StoreFailed):
            pass  # an on_ready callback that takes has found out what it was called for
        except Exception:
            logger.exception("a callback raised", event="callback_raised")


def _nothing() -> None:
    """Stand in for a callback."""


def in_sections(everything: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield what is looked at in one section: between two of them others may have the lock."""
    for begin in range(0, len(everything), AT_ONCE):
        yield everything[begin : begin + AT_ONCE]
