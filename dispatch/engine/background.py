"""Background work: loading and periodic tasks, as steps that a thread or a caller runs.

All background work is a step, which the host calls if the store has no threads (`background=False`). A thread goes on
after an error of its work. A failure of the store ends the threads, and the next call of the host raises that failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from ...store.checkpoint.checkpointer import Checkpointer
from ...store.environment.late_log import LateLogger
from ...store.environment.locks import Wakeup
from ...store.errors import ForebayError, StoreFailed
from ..core.areas.consumer_trials import LOOK_SECONDS
from ..core.areas.load_requests import LoadRequests
from ..core.monitor import Monitor
from .periodic_tasks import FailingTask, PeriodicTask

logger = LateLogger("forebay.dispatch")


class BackgroundRequests:
    """Requests to the background threads. This object is made before all parts that make such requests.

    Callable under any lock.
    """

    def __init__(self, *, has_threads: bool) -> None:
        """Make the requests. has_threads: False: the host's calls of `step`, and other callers, do what is due."""
        self.has_threads = has_threads
        self.loader = Wakeup()
        self.housekeeper = Wakeup()
        self._wants_cleanup = False

    def wake_loader(self) -> None:
        """Make the loader look for lists that run low."""
        self.loader.set()

    def wake_housekeeper(self) -> None:
        """Make the housekeeper look for tasks that are due."""
        self.housekeeper.set()

    def ask_for_cleanup(self) -> bool:
        """Have the housekeeper clean up now. False: there is no thread."""
        if not self.has_threads:
            return False
        self._wants_cleanup = True
        self.housekeeper.set()
        return True

    def take_cleanup_request(self) -> bool:
        """Return whether anybody has asked for a cleanup since the last call."""
        is_requested = self._wants_cleanup
        if is_requested:  # write False only then: another thread may set the flag between the read and the write
            self._wants_cleanup = False
        return is_requested

    def leave_checkpoint(self, checkpointer: Checkpointer) -> bool:
        """Leave a due checkpoint to the housekeeper; return whether that was possible.

        False: the caller must make the checkpoint itself, because there is no thread, or because it is urgent.
        """
        if not self.has_threads or checkpointer.is_urgent:
            return False
        if not self.housekeeper.is_set():  # each message asks again until the checkpoint is made
            self.housekeeper.set()
        return True


class Background:
    """The two background threads of an open store."""

    def __init__(
        self,
        monitor: Monitor,
        background_requests: BackgroundRequests,
        loads: LoadRequests,
        load: Callable[[], bool],
        maintain: Callable[[], int],
        pause: Callable[[], float],
    ) -> None:
        """Make the threads; `start` starts them.

        load: loads once; returns whether there was something to load.
        maintain: does what is due; returns how many things were done.
        pause: returns the seconds until something is due.
        """
        self._monitor = monitor
        self._background_requests = background_requests
        self._loads = loads
        self._load_task = PeriodicTask("loader", load)
        self._maintain = maintain
        self._pause = pause
        self._threads: list[threading.Thread] = []
        self._is_stopping = False

    def start(self, on_failure: Callable[[], object]) -> None:
        """Start the threads. on_failure: called when a failed store ends them."""
        self._background_requests.loader.set()
        for name, loop in (("loader", self._load_loop), ("housekeeper", self._task_loop)):
            until_failed = partial(self._until_failed, loop, on_failure)
            thread = threading.Thread(target=until_failed, name=f"forebay-{name}", daemon=True)
            self._threads.append(thread)  # before the start, because an interruption may come right behind it
            thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the threads and wait for those that were started. timeout: seconds for each; None: no limit."""
        self.forget()
        self._background_requests.loader.set()
        self._background_requests.housekeeper.set()
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        """Whether all started threads still run."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def has_current_thread(self) -> bool:
        """Whether the caller is a background thread: a close waits for it, so it must not wait for a close."""
        return threading.current_thread() in self._threads

    def failing(self) -> dict[str, FailingTask]:
        """Return the loader's failing task by its name; empty if loading works."""
        return {} if self._load_task.failing is None else {self._load_task.name: self._load_task.failing}

    def forget(self) -> None:
        """Tell the threads to end, without waiting for them: in the child of a fork they do not exist."""
        self._is_stopping = True

    def _until_failed(self, loop: Callable[[], None], on_failure: Callable[[], object]) -> None:
        """Run a loop until the store is closed or has failed. The host's next call raises the failure."""
        try:
            loop()
        except StoreFailed:
            self._is_stopping = True
            on_failure()
        if self._monitor.lock.failure is not None:
            self._monitor.run_last()

    def _load_loop(self) -> None:
        wanted, monitor, task = self._background_requests.loader, self._monitor, self._load_task
        while not self._is_stopping:
            if task.failing is not None:
                wanted.wait(max(task.next_at(0.0) - monitor.monotonic(), LOOK_SECONDS))
            else:
                wanted.wait(LOOK_SECONDS if self._loads.left_alone else None)
            wanted.clear()
            while not self._is_stopping and self._guarded(self.load_once):
                if monitor.deferred:
                    monitor.run_deferred()
            if monitor.deferred:
                monitor.run_deferred()

    def load_once(self) -> int:
        """Load once; return 1 if there was something to load, else 0. A failure is kept, as for any task."""
        monitor = self._monitor
        return self._load_task.run_if_due(monitor.monotonic(), monitor.clock_ms(), is_closed=lambda: monitor.is_closed)

    def _task_loop(self) -> None:
        wanted, monitor = self._background_requests.housekeeper, self._monitor
        while not self._is_stopping:
            wanted.wait(self._pause())
            wanted.clear()
            if not self._is_stopping:
                self._guarded(self._maintain)
                if monitor.deferred or monitor.nested_calls:
                    monitor.run_deferred()

    def _guarded(self, work: Callable[[], int]) -> int:
        try:
            return work()
        except StoreFailed:
            raise
        except ForebayError as error:
            logger.warning("background work: %s", error, event="background_work_failing")
        except Exception:
            logger.exception("background work failed", event="background_work_failing")
        return 0
