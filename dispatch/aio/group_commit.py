"""GroupCommit: does what calls of one event loop owe to the disk, for a group of calls at a time.

The first call that waits starts a round, which begins after everything that is ready in this tick of the loop. The
round confirms for all calls that have asked by its start. Later calls share the next round.

The loop has the system sync in the background, if the disk can do that, and ends the round when the sync's signal says
so. All calls of the round are woken together. The next sync waits for what they write, so that it covers as much as
possible. A worker thread does the round where the disk can't, or where more than a sync is owed.

If a worker does all rounds, and the loop takes longer to write than the disk to sync, the two overlap: half of the
waiting calls are woken while a sync for the other half is under way, and the worker begins the next round by itself.
The worker stands by between two rounds while calls wait, because handing a round to an executor takes as long as
writing several messages.

No call is woken before the end of a sync that began after its write.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, NamedTuple

from ...store.disk.disk import SyncSignal
from ...store.errors import Closed
from ...store.numbering import NOTHING_TO_SYNC
from ..core.confirmer import ThreadConfirmer
from ..core.monitor import Monitor

ROUNDS: Final = 16
"""Times are means of about so many rounds."""
FIRST_ROUNDS: Final = 4
"""Of these a mean takes each as it is."""

STANDBY_SECONDS: Final = 0.1
"""A worker stands by for so long, for a loop that was stopped begins no further round."""


class _Mean:
    """A mean of the last rounds. One that is late for once, as beside other processes some are, changes little."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._rounds = 0

    def add(self, seconds: float) -> None:
        """Count one round. Each counts with twice the mean at most, but for the first few, which find the mean.

        A mean of 0, as a coarse clock gives, is none yet: it limits no round.
        """
        self._rounds = min(self._rounds + 1, ROUNDS)
        if self._rounds > FIRST_ROUNDS and self.seconds:
            seconds = min(seconds, 2 * self.seconds)
        self.seconds += (seconds - self.seconds) / self._rounds


class _BackgroundRound(NamedTuple):
    """A round that waits for a sync in the background."""

    signal: SyncSignal
    asked: int
    """Number of calls that had asked when it began. It confirms for them."""
    journal_end: int
    """The end up to which the journal must be durable for them."""
    began: float


class StandBy:
    """One stand-by of a worker between two rounds."""

    __slots__ = ("told", "begins")

    def __init__(self) -> None:
        # The loop releases it once it has taken the stand-by out.
        self.told = threading.Lock()
        self.told.acquire()
        # Whether the worker begins a round; if not, it ends.
        self.begins = False


class GroupCommit:
    """Confirms for the calls of one event loop. Everything except the round itself runs in the loop's thread."""

    def __init__(
        self,
        monitor: Monitor,
        thread_confirmer: ThreadConfirmer,
        loop: asyncio.AbstractEventLoop,
        workers: Executor,
    ) -> None:
        self._monotonic = monitor.monotonic
        self._thread_confirmer = thread_confirmer
        self._loop = loop
        self._workers = workers
        # The end up to which the journal must be confirmed for all calls that asked.
        self._journal_end = NOTHING_TO_SYNC
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Whether this loop can watch descriptors.
        self._can_watch = True
        # Signals that a sync in the background is made. No other loop has it, or it could miss a signal.
        self._signal: SyncSignal | None = None
        # The round under way, if it is one in the background.
        self._background_round: _BackgroundRound | None = None
        # Number of calls that ever asked. The last of them wait.
        self._asked = 0
        # Number of calls that are confirmed, woken or not.
        self._confirmed = 0
        # Number of calls that were woken.
        self._woken = 0
        # Whether a round runs, or is about to.
        self._is_under_way = False
        # The stand-by of the worker to which the loop speaks next. Whoever takes it out has decided what the worker
        # does: the loop what it has written there, or the worker to end. A worker that was told to end may not have
        # heard it when the next one stands by, so each stand-by has a lock of its own.
        self.standing_by: deque[StandBy] = deque()
        # The loop's own thread never stands by, where it does the work of the executor itself.
        self._thread_id = threading.get_ident()
        # Whether a worker's sync takes less time than writing what all waiting calls write next.
        self._overlaps = False
        # How long the sync of a round takes.
        self._sync_mean = _Mean()
        # How long the loop takes for each call that is woken, until the call has written again.
        self._write_mean = _Mean()

    def wait(self, journal_end: int) -> asyncio.Future[None]:
        """Return a future that ends once the journal is confirmed up to that end, or with what confirming raised."""
        if journal_end > self._journal_end:
            self._journal_end = journal_end
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(future)
        self._asked += 1  # last, because a worker that reads it must find the end
        if not self._is_under_way:
            self._is_under_way = True
            self._loop.call_soon(self._begin)
        return future

    def _begin(self) -> None:
        if not self._begin_background_round():
            self._begin_in_worker()

    def _begin_in_worker(self) -> None:
        if self.tell(begins=True):
            return
        try:
            self._workers.submit(self._confirm_in_worker)
        except RuntimeError:  # the workers were closed meanwhile
            self._finish_round(self._asked, 0.0, Closed("the store"), is_under_way=False)

    # ------------------------------------------------------------------ rounds in the background

    def _begin_background_round(self) -> bool:
        """Begin a round in the background; return False if a worker must do it."""
        if not self._can_watch:
            return False
        asked, journal_end, began = self._asked, self._journal_end, self._monotonic()
        try:
            signal = self._thread_confirmer.begin_confirm(journal_end, self._signal)
        except BaseException as error:
            self._finish_round(asked, 0.0, error, is_under_way=False)
            return True
        if signal is None:
            return False
        self._signal = signal
        try:
            self._loop.add_reader(signal.fileno(), self._end_background_round)
        except Exception:
            self._can_watch = False  # as a loop of Windows: the worker waits for the sync that was begun
            return False
        self._background_round = _BackgroundRound(signal, asked, journal_end, began)
        return True

    def _end_background_round(self) -> None:
        """End the round in the background, whose sync is made. The loop calls it when the descriptor can be read."""
        ended, self._background_round = self._background_round, None
        assert ended is not None
        failure: BaseException | None = None
        try:
            self._loop.remove_reader(ended.signal.fileno())
            ended.signal.clear()
            if not self._thread_confirmer.try_end_confirm(ended.journal_end):
                self._begin_in_worker()
                return
        except BaseException as error:
            failure = error
        self._finish_round(ended.asked, self._monotonic() - ended.began, failure, is_under_way=False)

    # ------------------------------------------------------------------ rounds of a worker

    def tell(self, *, begins: bool) -> bool:
        """Tell the worker that stands by to begin a round, or to end. False: none stands by."""
        try:
            stand_by = self.standing_by[-1]
            stand_by.begins = begins  # before the worker can find that it was taken out
            self.standing_by.remove(stand_by)
        except (IndexError, ValueError):  # none, or it ends by itself
            return False
        stand_by.told.release()
        return True

    def _confirm_in_worker(self) -> None:
        """Confirm rounds until the loop begins no further one."""
        is_in_loop = threading.get_ident() == self._thread_id
        stand_by = None if is_in_loop else StandBy()
        while self._confirm_round(stand_by) and stand_by is not None and self.is_told_to_begin(stand_by):
            stand_by = StandBy()

    def is_told_to_begin(self, stand_by: StandBy) -> bool:
        """Stand by until the loop begins a round; return False if it does not."""
        if not stand_by.told.acquire(timeout=STANDBY_SECONDS):
            try:
                self.standing_by.remove(stand_by)
            except ValueError:
                pass  # the loop has just taken it out, and was perhaps interrupted before it could release
            else:
                return False
        return stand_by.begins

    def _confirm_round(self, stand_by: StandBy | None) -> bool:
        """Confirm for all calls that have asked; if syncs overlap, repeat while others ask.

        Return False if the loop is closed. stand_by: how the worker stands by after its last sync; None: it ends.
        """
        if self._confirmed > self._woken:  # the last round has confirmed more than it woke
            self._call_in_loop(self._wake_confirmed)
        goes_on = True
        while goes_on:
            asked = self._asked
            failure: BaseException | None = None
            began = self._monotonic()
            try:
                self._thread_confirmer.confirm(self._journal_end)
            except BaseException as error:
                failure = error
            seconds = self._monotonic() - began
            goes_on = self._overlaps and failure is None and self._asked > asked
            if stand_by is not None and not goes_on:
                self.standing_by.append(stand_by)  # before the loop can ask
            if not self._call_in_loop(self._finish_round, asked, seconds, failure, goes_on):
                self.standing_by.clear()
                return False
        return True

    def _call_in_loop(self, function: Callable[..., None], *arguments: object) -> bool:
        """Make the loop call a function, from a worker. False: the loop is closed, and nobody waits any more."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    # ------------------------------------------------------------------ the end of a round

    def _finish_round(self, asked: int, sync_seconds: float, failure: BaseException | None, is_under_way: bool) -> None:
        """Wake the calls that a round has confirmed, or half of all."""
        if failure is not None:
            self._wake_confirmed()
            self._wake(asked - self._woken, failure)
        self._confirmed = asked
        waiting = len(self._waiting)
        self._sync_mean.add(sync_seconds)
        # A sync in the background often waits for the processor on which the loop writes: the two can't overlap.
        is_in_background = self._can_watch and self._thread_confirmer.syncs_in_background
        self._overlaps = not is_in_background and self._sync_mean.seconds < waiting * self._write_mean.seconds
        woken = min(asked - self._woken, (waiting + 1) // 2 if self._overlaps else waiting)
        self._wake(woken)
        # Run behind the calls that were just woken, so that what they write at once shares the next sync.
        self._loop.call_soon(self._go_on, woken, self._monotonic(), is_under_way)

    def _go_on(self, woken: int, began: float, is_under_way: bool) -> None:
        """Begin the next round, if the worker has not and a call has asked."""
        if woken:
            self._write_mean.add((self._monotonic() - began) / woken)
        if is_under_way:
            return
        if self._asked > self._confirmed:
            self._begin()
        else:
            self._is_under_way = False
            self.tell(begins=False)
            self._wake_confirmed()

    def _wake_confirmed(self) -> None:
        self._wake(self._confirmed - self._woken)

    def _wake(self, count: int, failure: BaseException | None = None) -> None:
        """Wake the first `count` waiting calls, unless they were cancelled."""
        self._woken += count
        waiting = self._waiting
        for _ in range(count):
            future = waiting.popleft()
            if future.done():
                continue
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)
