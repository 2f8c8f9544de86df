"""Measure what watching costs a busy store, in CPU time of its own process.

    python -m forebay.benchmarks.watching --queues 3 --looks 60

One process has the store open and passes messages as fast as it can. Others look at it about once a second: `forebay
top`, `queues --watch`, `health`, and the console, beside it or mounted in it. The output is the CPU time that one look
costs the process, in milliseconds with their interval: the time around a look of the thread that passes messages, and
of the threads that serve the look, less the time that the same messages take just before and after it. 10 ms are a
hundredth of a second of one core. In brackets is the part of the serving threads. The rest is lost by the thread that
passes messages, which waits for them and finds its caches cold. Threads of the store are left out, because their
checkpoints come at any time, except for the status, which one of them writes.

The last rows are checks of the measurement itself: moments at which nobody looks cost nothing, and 10 ms that are spent
on purpose cost 10 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

import forebay
from forebay import Message
from forebay.dispatch.engine.status_file import STATUS
from forebay.store.disk.layout import store_root

from .excess import LOOKS_MIN, Estimate, Slices, Spent, estimate

BATCH: Final = 64
BATCHES: Final = 8
"""Batches of a slice, which takes about 2 ms."""
BODY: Final = b"x" * 1024
EVERY_SECONDS: Final = 1.1
"""Least seconds between looks, because a mounted console shares a look for a second."""
EVERY_SECONDS_MAX: Final = 1.6
"""Most seconds between looks. Their times are irregular, so that they do not coincide with work once a second."""
LOOK_SECONDS: Final = 0.15
"""Least seconds after a look in which its cost is measured."""
STATUS_SECONDS: Final = 0.05
"""The same for a status. It is shorter, because the thread that writes the status also does other work."""
KNOWN_SECONDS: Final = 0.01
TOKEN: Final = "nobody asks this for its token"


# ---------------------------------------------------------------------- the process that is watched


def watched(directory: str, queues: int, pipe: Connection) -> None:
    """Open a store, serve its console, and work from one word of the pipe to the next until there is none."""
    import uvicorn

    import forebay.console

    signal.signal(signal.SIGUSR1, spend)
    with forebay.open(directory, memory_limit="64MiB", sync="never") as bay:
        for n in range(queues - 1):
            bay.queue(f"queue-{n:05}").send(BODY)
        console = forebay.console.app(bay, token=TOKEN, open_reading=True)
        server = uvicorn.Server(uvicorn.Config(console, log_level="error", lifespan="off", ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listener, bay.queue("busy").subscribe() as consumer:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            pipe.send(listener.getsockname()[1])
            try:
                while pipe.recv():
                    pipe.send(work(bay.queue("busy"), consumer, pipe))
            finally:
                server.should_exit = True
                thread.join()


def work(queue: forebay.Queue, consumer: forebay.Consumer, pipe: Connection) -> Slices:
    """Pass messages from a sender to a consumer until the pipe says something."""
    names = ("forebay-housekeeper", "forebay-loader")
    clocks = [time.pthread_getcpuclockid(one.ident) for one in threading.enumerate() if one.ident and one.name in names]
    slices, messages = Slices(), 0
    while not pipe.poll():
        for _ in range(BATCHES):
            queue.send_many([Message(BODY)] * BATCH)
            taken = consumer.take(BATCH)
            consumer.ack(taken)
            messages += len(taken)
        worker, background = time.thread_time(), sum(map(time.clock_gettime, clocks))
        slices.add(time.monotonic(), messages, Spent(worker, background, time.process_time() - worker - background))
    pipe.recv()
    return slices


def spend(*_: object) -> None:
    """Spend KNOWN_SECONDS of CPU time."""
    end = time.thread_time() + KNOWN_SECONDS
    while time.thread_time() < end:
        pass


# ---------------------------------------------------------------------- those that watch

Look = Callable[[], float]
"""Looks at the store; returns when the look began, in monotonic seconds. Its effects are over when it returns."""


def begun(look: Callable[[], object]) -> float:
    """Look, and return when the look began."""
    began = time.monotonic()
    look()
    return began


@contextmanager
def by_command(*arguments: str) -> Iterator[Look]:
    """Run a command of forebay that looks repeatedly, and stop the process between looks."""
    command = [sys.executable, "-m", "forebay", *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:

        def go_on() -> None:
            process.send_signal(signal.SIGCONT)  # its pause is over by now, so it looks at once
            time.sleep(LOOK_SECONDS)
            process.send_signal(signal.SIGSTOP)

        try:
            time.sleep(EVERY_SECONDS)  # until it is loaded
            process.send_signal(signal.SIGSTOP)
            yield partial(begun, go_on)
        finally:
            process.kill()


def health(directory: str) -> None:
    """Ask for the health of a store, as a probe does."""
    command = [sys.executable, "-m", "forebay", "health", directory]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def get(port: int, *paths: str) -> None:
    """Load pages of a console."""
    for path in paths:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            answer.read()


@contextmanager
def console_beside(directory: str) -> Iterator[Look]:
    """Serve the console by a process of its own, and look at it."""
    command = [sys.executable, "-m", "forebay", "console", directory, "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
            yield partial(begun, partial(get, port, "/", "/queues", "/metrics"))
        finally:
            process.terminate()


def status_written(path: str) -> float:
    """Wait until the store has written its status."""
    before = os.stat(path).st_mtime_ns
    while os.stat(path).st_mtime_ns == before:
        time.sleep(0.005)
    return time.monotonic() - 0.8 * STATUS_SECONDS


class Watcher(NamedTuple):
    """A way to watch a store."""

    name: str
    watch: Callable[[], AbstractContextManager[Look]]
    look_seconds: float = LOOK_SECONDS
    """Least seconds after a look in which its cost is measured."""
    is_background: bool = False
    """Whether threads of the store serve the look, which also do other work."""


def watchers(directory: str, port: int, pid: int) -> list[Watcher]:
    """Return all that is measured. port: of the console that is mounted in the process. pid: of the process."""

    def each_time(look: Callable[[], object]) -> Callable[[], AbstractContextManager[Look]]:
        return lambda: nullcontext(partial(begun, look))

    written = partial(status_written, os.path.join(store_root(directory, "localhost"), STATUS))
    return [
        Watcher("the status file, watched or not", lambda: nullcontext(written), STATUS_SECONDS, is_background=True),
        Watcher("forebay top", lambda: by_command("top", directory)),
        Watcher("forebay queues --watch", lambda: by_command("queues", directory, "--watch")),
        Watcher("forebay health", each_time(lambda: health(directory))),
        Watcher("forebay console beside it: two pages and /metrics", lambda: console_beside(directory)),
        Watcher("console mounted in it: a page", each_time(lambda: get(port, "/queues"))),
        Watcher("console mounted in it: /metrics", each_time(lambda: get(port, "/metrics"))),
        Watcher("check: nobody looks", each_time(lambda: None)),
        Watcher("check: 10 ms are spent", each_time(lambda: os.kill(pid, signal.SIGUSR1))),
    ]


# ---------------------------------------------------------------------- measuring


class Cost(NamedTuple):
    """The cost of a look of one watcher, in milliseconds of CPU time of the process at work."""

    watcher: str
    ms: Estimate
    serving_ms: Estimate
    """The part of that time in threads that serve the look."""


def measure(queues: int, looks: int, directory: str, only: str = "") -> Iterator[Cost]:
    """Yield the cost of each watcher that has `only` in its name."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=watched, args=(directory, queues, theirs))
    process.start()
    try:
        port = ours.recv()
        assert process.pid is not None
        for watcher in watchers(directory, port, process.pid):
            if only in watcher.name:
                yield cost_of(watcher, looks, ours)
    finally:
        ours.send(False)
        process.join()


def cost_of(watcher: Watcher, looks: int, pipe: Connection) -> Cost:
    """Let a watcher look this often at a busy process, and return the cost of a look."""
    chance = random.Random(watcher.name)
    moments: list[tuple[float, float]] = []
    with watcher.watch() as look:
        pipe.send(True)
        time.sleep(EVERY_SECONDS)
        for _ in range(looks):
            began = look()
            ended = max(time.monotonic(), began + watcher.look_seconds)
            moments.append((began, ended))
            next_at = max(began + chance.uniform(EVERY_SECONDS, EVERY_SECONDS_MAX), 2 * ended - began + LOOK_SECONDS)
            time.sleep(max(next_at - time.monotonic(), 0.0))
        pipe.send(True)
        slices: Slices = pipe.recv()
    costs, served = [], []
    for begin, end in moments:
        beyond = slices.excess(begin, end)
        serving = beyond.background if watcher.is_background else beyond.serving
        served.append(1000 * serving)
        costs.append(1000 * (serving + beyond.worker))
    return Cost(watcher.name, estimate(costs), estimate(served))


def line_of(cost: Cost) -> str:
    """Return a line about one watcher."""
    ms, serving = cost.ms, cost.serving_ms
    return f"{cost.watcher:50} {ms.middle:6.2f} ms a look, {ms.low:6.2f} to {ms.high:5.2f} ({serving.middle:5.2f})"


def row_of(cost: Cost) -> dict[str, str | float]:
    """Return a cost as plain values for JSON."""
    ms, serving = cost.ms, cost.serving_ms
    return {
        "watcher": cost.watcher,
        "ms": ms.middle,
        "low_ms": ms.low,
        "high_ms": ms.high,
        "serving_ms": serving.middle,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what it costs a busy store to be watched.")
    parser.add_argument("--queues", type=int, default=3)
    parser.add_argument("--looks", type=int, default=60, help="of each watcher")
    parser.add_argument("--only", default="", help="watchers with this in their name")
    parser.add_argument("--json", action="store_true", help="print an object a watcher")
    arguments = parser.parse_args()
    if arguments.looks < LOOKS_MIN:
        parser.error(f"--looks: fewer than {LOOKS_MIN} decide nothing")
    with tempfile.TemporaryDirectory() as directory:
        print(f"{arguments.queues:,} queues", file=sys.stderr)
        for cost in measure(arguments.queues, arguments.looks, directory, arguments.only):
            print(json.dumps(row_of(cost)) if arguments.json else line_of(cost), flush=True)


if __name__ == "__main__":
    main()
