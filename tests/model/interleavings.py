"""Interleavings: threads of which one runs at a time, handed on by a schedule, so that a seed tells who runs when.

`Turns` starts the threads, and what it makes stands in the place of
`threading` in the modules of the library. Another thread may go on wherever
one takes or gives back a lock, waits, sets an event, or calls `pause`; with
`line_share` also between two lines of the library. Time is the turns' own: it
passes when nobody can go on otherwise, and with `time_share` now and then.

A run in which threads wait for each other for ever, or which comes to no end,
is over with an error that says who waits for what. The same schedule gives the
same run.
"""

from __future__ import annotations

import sys
import threading
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import forebay
from forebay.store.environment.locks import OwnedCondition, OwnedLock, Wakeup
from forebay.testing import ManualClock

STEPS_MAX = 50_000
"""More than any run needs that comes to an end."""
LAYERS = tuple(str(Path(forebay.__file__).with_name(layer)) for layer in ("store", "cache", "dispatch"))
CLOCK = ManualClock.advance.__code__.co_filename


class Stuck(AssertionError):
    """No thread can go on, or none comes to an end."""


class Abandoned(BaseException):
    """Raised in each thread of a run that has failed, to end it."""


Schedule = Callable[["Thread | None", Sequence["Thread"]], "Thread"]
"""(whose turn it is, None where that one can't go on; who can go on) to who goes on."""


def any_thread(random: Random, switch_share: float) -> Schedule:
    """Each time, with that probability, any of them."""

    def choose(running: Thread | None, ready: Sequence[Thread]) -> Thread:
        if running is not None and random.random() >= switch_share:
            return running
        return ready[int(random.random() * len(ready))]

    return choose


def by_priority(random: Random, changes: int, steps: int) -> Schedule:
    """The first in an order that is drawn once; at a few steps, drawn as well, who goes on becomes the last.

    Finds what needs few but certain changes of threads sooner than any_thread.
    steps: about as many as the run has.
    """
    changes_left = sorted((random.randrange(steps) for _ in range(changes)), reverse=True)
    ranks: dict[Thread, float] = {}
    step = 0

    def choose(running: Thread | None, ready: Sequence[Thread]) -> Thread:
        nonlocal step
        step += 1
        for thread in ready:
            if thread not in ranks:
                ranks[thread] = random.random()
        if changes_left and step >= changes_left[-1] and running is not None:
            changes_left.pop()
            ranks[running] = -step
        return max(ready, key=ranks.__getitem__)

    return choose


class Turns:
    """One run of threads. `clock` is its time."""

    def __init__(
        self,
        random: Random,
        schedule: Schedule,
        clock: ManualClock,
        *,
        time_share: float = 0.0,
        line_share: float = 0.0,
    ) -> None:
        """time_share: at so many steps the first of those who wait for a time is woken, though others could go on.

        line_share: behind so many lines of the library threads may change too.
        """
        self.clock = clock
        # Whose turn it is.
        self.running: Thread
        # Those that have begun and not ended.
        self.threads: list[Thread] = []
        # Those that can go on.
        self.ready: list[Thread] = []
        # Those that can't, and wait for a time at most: until when.
        self.waiting: dict[Thread, float] = {}
        self.failure: BaseException | None = None
        self.steps = 0
        # Numbers of the threads in the order of their turns: all that happened.
        self.order: list[int] = []
        # Called at each point where threads may change; what it raises is the run's failure.
        self.at_each_step: Callable[[], None] | None = None
        self.line_share = line_share
        self._random = random
        self._schedule = schedule
        self._time_share = time_share
        self._lines_left = 0
        self._threads_count = 0
        self._over = allocate_lock()
        self._over.acquire()

    def count_thread(self) -> int:
        """Its number: 0 is main's."""
        self._threads_count += 1
        return self._threads_count - 1

    def run(self, main: Callable[[], object]) -> None:
        """Call main in a thread, and return when it and all that it started have ended. Raises what one raised."""
        first = Thread(self, target=main, name="main")
        first.start()
        self._hand_to(first)
        self._over.acquire()
        if self.failure is not None:
            raise self.failure

    # ------------------------------------------------------------------ turns

    def pause(self) -> None:
        """Another thread may go on here."""
        self._step()
        if self._time_share and self.waiting and self._random.random() < self._time_share:
            self._pass_time()
        self._let(self._schedule(self.running, self.ready))

    def _let(self, chosen: Thread) -> None:
        """Give the turn to a thread. The caller's thread had it, and can go on later."""
        me = self.running
        if chosen is not me:
            self._hand_to(chosen)
            me.come_back()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let nobody else go on between lines, whatever is called of the library."""
        lines_left, self._lines_left = self._lines_left, sys.maxsize
        try:
            yield
        finally:
            self._lines_left = lines_left

    def rest(self) -> None:
        """Go on when nobody else can at this time."""
        me = self.running
        while len(self.ready) > 1:
            self._step()
            self._hand_to(self._schedule(None, [thread for thread in self.ready if thread is not me]))
            me.come_back()

    def block(self, cause: object, seconds: float | None = None) -> bool:
        """Let others go on until one calls `wake` for this thread; False: so much time has passed without it."""
        self._step()
        me = self.running
        self.ready.remove(me)
        me.cause, me.is_late = cause, False
        if seconds is not None:
            self.waiting[me] = self.clock.monotonic() + max(seconds, 0.0)
        self._hand_on()
        me.come_back()
        return not me.is_late

    def wake(self, thread: Thread, cause: object) -> None:
        """If that is still what it waits for, it can go on."""
        if thread.cause is cause:
            thread.cause = None
            self.waiting.pop(thread, None)
            self.ready.append(thread)

    def begin(self, thread: Thread) -> None:
        """Add a new thread."""
        self.threads.append(thread)
        self.ready.append(thread)

    def end(self, thread: Thread) -> None:
        """Note that a thread has ended. Another one goes on, or the run is over."""
        self.threads.remove(thread)
        if not self.threads:
            self._over.release()
        elif self.failure is not None:
            self._hand_to(self.threads[0])
        else:
            self.ready.remove(thread)
            for other in thread.joining:
                self.wake(other, thread)
            self._hand_on()

    def fail(self, error: BaseException) -> None:
        """The run is over as soon as each of its threads has heard it."""
        if self.failure is None:
            self.failure = error

    def _hand_on(self) -> None:
        """To one that can go on; where nobody can, time passes."""
        while not self.ready and self.waiting:
            self._pass_time()
        if self.ready:
            self._hand_to(self._schedule(None, self.ready))
        else:
            self.fail(Stuck(f"nobody can go on:\n{self.describe()}"))
            self._hand_to(self.threads[0])

    def _hand_to(self, chosen: Thread) -> None:
        self.running = chosen
        self.order.append(chosen.number)
        chosen.gate.release()

    def _pass_time(self) -> None:
        thread = min(self.waiting, key=self.waiting.__getitem__)
        self.clock.advance(max(self.waiting[thread] - self.clock.monotonic(), 0.0))
        thread.is_late = True
        self.wake(thread, thread.cause)

    def _step(self) -> None:
        if self.failure is not None:
            raise Abandoned
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.fail(Stuck(f"no end after {STEPS_MAX:,} steps:\n{self.describe()}"))
            raise Abandoned
        if self.at_each_step is not None:
            with self.alone():
                self.at_each_step()

    def describe(self) -> str:
        """Return where each thread is, and what it waits for."""
        frames = sys._current_frames()
        return "\n".join(
            f"  {thread} in {_place(frames.get(thread.ident))} waits for {thread.cause or 'its turn'}"
            for thread in self.threads
        )

    # ------------------------------------------------------------------ between lines

    def trace(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        """Trace lines, as sys.settrace calls it."""
        code = frame.f_code
        path = code.co_filename
        # What is imported is imported under a lock that the turns don't know. The clock is the turns' own.
        if not path.startswith(LAYERS) or code.co_name == "<module>" or path == CLOCK:
            return None
        return self._trace_line

    def _trace_line(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        self._lines_left -= 1
        if self._lines_left < 0:
            self._lines_left = int(self._random.expovariate(self.line_share))
            self._step()
            self._let(self._random.choice(self.ready))
        return self._trace_line


# What stands in the place of threading.


class Thread:
    """Stands in for threading.Thread."""

    def __init__(
        self, turns: Turns, *, target: Callable[[], object], name: str = "", daemon: bool | None = None
    ) -> None:
        self._turns = turns
        self._target = target
        self.number = turns.count_thread()
        self.name = name or f"thread {self.number}"
        self.gate = allocate_lock()
        self.gate.acquire()
        # What it waits for.
        self.cause: object = None
        # It was woken because its time was up.
        self.is_late = False
        self.joining: list[Thread] = []
        self.ident = 0

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        self._turns.begin(self)
        start_new_thread(self._run, ())

    def _run(self) -> None:
        turns = self._turns
        self.ident = threading.get_ident()
        try:
            self.come_back()
            if turns.line_share and self.number:
                sys.settrace(turns.trace)
            self._target()
        except Abandoned:
            pass
        except BaseException as error:
            turns.fail(error)
        finally:
            sys.settrace(None)
            turns.end(self)

    def come_back(self) -> None:
        """Wait for its turn."""
        self.gate.acquire()
        if self._turns.failure is not None:
            raise Abandoned

    def join(self, timeout: float | None = None) -> None:
        if self in self._turns.threads:
            self.joining.append(self._turns.running)
            self._turns.block(self, timeout)


class Lock:
    """Stands in for threading.Lock. Any thread that waits for it may be the next."""

    def __init__(self, turns: Turns, wait: object = None) -> None:
        """wait: what the store's own lock takes; here the turns pass the time."""
        self._turns = turns
        self.owner: Thread | None = None
        self.on_late: Callable[[], None] | None = None
        self.failure: None = None
        self.on_broken: list[Callable[[Any], None]] = []
        self._waiting: list[Thread] = []
        self._place = _place(sys._getframe(1))

    def __str__(self) -> str:
        return f"the lock of {self._place}, which {self.owner.name if self.owner is not None else 'nobody'} has"

    def try_acquire(self) -> bool:
        return self.acquire(blocking=False)

    def is_owned(self) -> bool:
        return self.owner is self._turns.running

    def bare(self, kind: type[object]) -> Lock:
        return self

    def break_by(self, error: BaseException) -> None:
        """Nothing breaks in here but the end of a run that has failed."""

    break_between = break_by

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. A wait with a limit ends at once if the lock is taken: no time passes between two turns."""
        self._turns.pause()
        if (not blocking or timeout >= 0) and self.owner is not None:
            return False
        self.take()
        return True

    def release(self) -> None:
        self.let_go()
        self._turns.pause()

    def take(self) -> None:
        """Take the lock. If it is free, no other thread goes on before."""
        while self.owner is not None:
            self._waiting.append(self._turns.running)
            self._turns.block(self)
        self.owner = self._turns.running

    def let_go(self) -> None:
        """Release the lock, and keep the turn."""
        self.owner = None
        for thread in self._waiting:
            self._turns.wake(thread, self)
        self._waiting.clear()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """Stands in for threading.Condition: threads are notified in the order in which they came."""

    def __init__(self, turns: Turns, lock: Lock) -> None:
        self._turns = turns
        self._lock = lock
        self._waiting: list[Thread] = []
        self._place = _place(sys._getframe(1))

    def __str__(self) -> str:
        return f"the condition of {self._place}"

    def wait(self, timeout: float | None = None) -> bool:
        me = self._turns.running
        assert self._lock.owner is me, "waits without the lock"
        self._waiting.append(me)
        self._lock.let_go()
        is_in_time = self._turns.block(self, timeout)
        self._lock.take()
        if me in self._waiting:  # until here it may be notified, though its time is up
            self._waiting.remove(me)
        return is_in_time

    def notify(self, count: int = 1) -> None:
        assert self._lock.owner is self._turns.running, "notified without the lock"
        for thread in self._waiting[:count]:
            self._turns.wake(thread, self)
        del self._waiting[:count]

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """Stands in for threading.Event."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._is_set = False
        self._waiting: list[Thread] = []
        self._place = _place(sys._getframe(1))

    def __str__(self) -> str:
        return f"the event of {self._place}"

    def set(self) -> None:
        self._turns.pause()
        self._is_set = True
        for thread in self._waiting:
            self._turns.wake(thread, self)
        self._waiting.clear()

    def clear(self) -> None:
        self._turns.pause()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        self._turns.pause()
        if not self._is_set:
            me = self._turns.running
            self._waiting.append(me)
            self._turns.block(self, timeout)
            if me in self._waiting:
                self._waiting.remove(me)
        return self._is_set


def _place(frame: FrameType | None) -> str:
    """The innermost line that is not of this file."""
    inner = frame
    while inner is not None and inner.f_code.co_filename == __file__:
        inner = inner.f_back
    return f"{Path(inner.f_code.co_filename).name}:{inner.f_lineno}" if inner is not None else "its beginning"


_MODULES: list[ModuleType] = []
_OWNERS: list[tuple[ModuleType, type]] = []
"""Modules that make locks which know their owner, and what goes with these."""


@contextmanager
def in_the_place_of_threading(turns: Turns) -> Iterator[None]:
    """Whatever the library makes of `threading` meanwhile is made by the turns."""
    stand_in = SimpleNamespace(
        Lock=partial(Lock, turns),
        Condition=partial(Condition, turns),
        Event=partial(Event, turns),
        Thread=partial(Thread, turns),
        current_thread=lambda: turns.running,
        get_ident=threading.get_ident,
    )
    if not _MODULES:
        found = [module for name, module in sys.modules.items() if name.startswith("forebay.")]
        _MODULES.extend(module for module in found if vars(module).get("threading") is threading)
        for made in (OwnedLock, OwnedCondition, Wakeup):
            name = made.__name__
            _OWNERS.extend((module, made) for module in found if vars(module).get(name) is made)
    for module in _MODULES:
        vars(module)["threading"] = stand_in
    stand_ins: dict[type, Any] = {OwnedLock: stand_in.Lock, OwnedCondition: stand_in.Condition, Wakeup: stand_in.Event}
    for module, owned in _OWNERS:
        vars(module)[owned.__name__] = stand_ins[owned]
    try:
        yield
    finally:
        for module in _MODULES:
            vars(module)["threading"] = threading
        for module, owned in _OWNERS:
            vars(module)[owned.__name__] = owned
