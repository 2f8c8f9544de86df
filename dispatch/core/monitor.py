"""The monitor of an open store: its state lock, its clock, its closed flag, and callbacks that wait for the lock.

Queues, lanes, TargetLists and consumers change under one lock. No thread holds the lock while it reads messages, waits
for an ordinary sync, or runs a user's code. Short calls of the disk are made under it: docs/internals/overview.md has
all of them. A callback that comes due under the lock is deferred, and the thread that releases the lock then calls it.
Only a take of one message from RAM leaves the callback to the next call, which as a rule is the ack.

The ordinary way into a section is `with monitor.lock, monitor.all_or_broken:`, with `while_open` in place of
`all_or_broken` for calls that a closed store refuses. The four sections of single messages (Sender._store_persistent
and _store_non_persistent, Consumer.take and ack) enter the same lock by `bare_lock`. What the ordinary entry does by
calls, they do inline, because the calls would cost more than the rest of the section:

    entries = monitor.entries
    if monitor.is_inside():
        raise NestedCall
    with monitor.bare_lock:
        try:
            if monitor.lock.failure is not None:
                raise monitor.lock.failure.again()
            if monitor.entries != entries:  # another section ran meanwhile; not in a take
                monitor.yield_interpreter()
            monitor.entries += 1
            ...
        except BaseException as error:
            monitor.lock.break_by(error)
            raise

- `is_inside` refuses a signal handler that came inside a section of this thread: docs/decisions/0017-nested-calls.md.
- `failure` and `break_by` do what `all_or_broken` does: docs/decisions/0019-interruptions.md.
- `entries` counts the sections of single messages. If the number has changed since before the lock, this thread has
  waited for it, and gives up the interpreter for a moment afterwards: docs/decisions/0025-lock-convoys.md. A take only
  counts, because the ack that follows it gives the interpreter up.

`JournalSyncer` enters the lock by a `bare_lock` of its own, in `sync`, `begin_sync` and `try_end_sync`. Each of the
three asks once, before its first entry, whether this thread holds the lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from ...store.environment.bare_lock import bare_lock
from ...store.environment.clock import Clock
from ...store.environment.late_log import LateLogger, emit_late
from ...store.environment.locks import AllOrBroken, OwnedLock, holds_one
from ...store.errors import Closed, StoreFailed

logger = LateLogger("forebay.dispatch")

T = TypeVar("T")

ASIDE_SECONDS: Final = 50e-6
"""Long enough for another thread to wake up and get the interpreter, which takes about 30 µs."""
SECTION_ITEMS: Final = 100
"""Number of destinations, subscriptions or lists that are examined before the lock is released for others."""


class Monitor:
    """The monitor of one open directory."""

    def __init__(self, clock: Clock) -> None:
        self.lock = OwnedLock(clock.wait)
        self.lock.on_late = self._poke
        # Whether this thread is inside a section.
        self.is_inside = self.lock.is_owned
        # The same lock for the four sections of single messages. The docstring of this module shows their form.
        self.bare_lock = bare_lock(self.lock)
        # Number of sections of single messages so far.
        self.entries = 0
        # For sections that change something: the change is made as a whole, or no thread gets the lock any more.
        self.all_or_broken = AllOrBroken(self.lock)
        self.while_open = WhileOpen(self)
        self._wait = clock.wait
        # A lock that is never released: waiting for it with a timeout waits for that time.
        self._never = threading.Lock()
        self._never.acquire()
        self.clock_ms = clock.time_ms
        self.monotonic = clock.monotonic
        self.is_closed = False
        # Callbacks to call as soon as the lock is free.
        self.deferred: list[Callable[[], None]] = []
        # Calls that a signal handler or finalizer made inside a section of the same thread. They are made again after
        # the section. Callbacks that an interrupted `run_deferred` did not call are here too.
        self.nested_calls: deque[Callable[[], object]] = deque()

    def yield_interpreter(self) -> None:
        """Make this thread give up the interpreter for a moment once it has released the lock. Requires: the lock.

        A section that had to wait calls it. Otherwise two busy threads would hand the lock to each other at each
        message: the waiting thread gets the lock at the next release, before it has the interpreter, so the other
        thread at once finds the lock taken. See docs/decisions/0025-lock-convoys.md.
        """
        self.deferred.append(self._pause)

    def _pause(self) -> None:
        self._wait(self._never, ASIDE_SECONDS)

    def wait(self, seconds: float) -> None:
        """Wait so many seconds of the store's clock. Requires: no lock."""
        self._wait(self._never, seconds)

    def raise_if_closed(self) -> None:
        """Raise Closed once the store is closed. The lock need not be held."""
        if self.is_closed:
            raise Closed("the store")

    def call_later(self, call: Callable[[], object]) -> None:
        """Make a call after this thread has left the section of the store that it is in.

        The call is made at the end of the current call, or by the background within a second. After a take of one
        message from RAM the next call makes it. Takes no lock.
        """
        self.nested_calls.append(call)
        self._poke()

    def _poke(self) -> None:
        """Make the next thread that releases the lock call run_deferred."""
        self.deferred.append(_nothing)

    def run_deferred(self) -> None:
        """Call the callbacks that are due. If one raises, the error is logged and the others still run.

        Requires: no lock.
        """
        due: deque[Callable[[], object]] = deque()
        try:
            with self.lock, self.all_or_broken:
                due.extend(self.deferred)
                self.deferred.clear()
            emit_late()
            if self.nested_calls and not holds_one():
                with suppress(IndexError):  # another thread calls the rest
                    for _ in range(len(self.nested_calls)):
                        due.append(self.nested_calls.popleft())
            _call_all(due)
        finally:
            if due:  # interrupted: the rest is called with the callbacks of the next call
                self.nested_calls.extend(due)
                self._poke()

    def run_last(self) -> None:
        """Call the callbacks that are due although the lock is broken, so that callers that wait learn of it."""
        due: deque[Callable[[], object]] = deque(self.deferred)
        self.deferred = []
        _call_all(due)


class WhileOpen:
    """A `with` block like that of `all_or_broken`, which a closed store does not enter: it raises Closed."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor

    def __enter__(self) -> None:
        self._monitor.raise_if_closed()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._monitor.lock.break_by(error)


def _call_all(due: deque[Callable[[], object]]) -> None:
    """Remove and call all callbacks that are due."""
    while due:
        call_back(due.popleft())


def call_back(callback: Callable[[], object]) -> None:
    """Call a callback of the host. What it raises is logged, and keeps nobody else from being called."""
    try:
        callback()
    except (Closed, StoreFailed):
        pass  # an on_ready callback that takes has learned from its take what happened
    except Exception:
        logger.exception("a callback raised", event="callback_raised")


def _nothing() -> None:
    """Do nothing, in place of a callback."""


def in_sections(everything: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield slices small enough for one section each; between two sections other threads may take the lock."""
    for begin in range(0, len(everything), SECTION_ITEMS):
        yield everything[begin : begin + SECTION_ITEMS]
