"""Event loops for tests: stores in them whose workers run at once or when a test says so, and time that jumps."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from simulated_bay import SimulatedBay

import forebay.aio

T = TypeVar("T")


class Inline(Executor):
    """An executor that works at once, in the loop's thread, so that every run of a test is the same."""

    calls = 0

    def submit(self, function: Callable[..., T], /, *arguments: Any, **fields: Any) -> Future[T]:
        self.calls += 1
        future: Future[T] = Future()
        try:
            future.set_result(function(*arguments, **fields))
        except BaseException as error:
            future.set_exception(error)
        return future


class ByHand(Inline):
    """An executor that works only when a test calls `work`."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def submit(self, function: Callable[..., T], /, *arguments: Any, **fields: Any) -> Future[T]:
        future: Future[T] = Future()
        run = super().submit

        def work() -> None:
            done = run(function, *arguments, **fields)
            error = done.exception()
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

        self.waiting.append(work)
        return future

    def work(self) -> int:
        """Do the waiting calls; return how many there were."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()
        return len(waiting)


class _Jump(selectors.SelectSelector):
    """A selector that lets the loop's time jump instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self.seconds += timeout
            timeout = 0.0
        return super().select(timeout)


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to the next timer when nothing else is to do. Not for tests that wait for threads."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.seconds


def run_jumping(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


class LoopBay(SimulatedBay):
    """A SimulatedBay in the running loop: `aio` is its interface there, `workers` do what waits."""

    def __init__(self, seed: int = 0, *, workers: Executor | None = None, **fields: Any) -> None:
        super().__init__(seed, **({"max_file_length": "1MiB"} | fields))
        self.workers = workers if workers is not None else Inline()
        self.aio = forebay.aio.Forebay(self.bay, workers=self.workers)

    @property
    def syncs(self) -> int:
        return self.syncer.durations.count


async def ticks(count: int = 10) -> None:
    """Let the loop run this many iterations."""
    for _ in range(count):
        await asyncio.sleep(0)


class InThread:
    """Calls a function in a thread; `await` waits for its end without stopping the loop."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._function = function
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self._function()
        finally:
            self._loop.call_soon_threadsafe(self._done.set_result, None)

    def __await__(self) -> Any:
        return self._done.__await__()
