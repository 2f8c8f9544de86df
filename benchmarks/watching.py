"""What it costs a busy store to be watched, in CPU time of its own process.

    python -m forebay.benchmarks.watching --queues 1000 --rounds 5

One process has the store open and passes messages as fast as it can. Others watch it each second: `forebay top`,
`queues --watch`, `health`, and the console, beside it or mounted in it. The process takes turns with and without each
of them, at work and at rest. Printed are milliseconds of CPU time that it spends each second because of the watcher,
medians of all rounds: at work (beyond what its messages take without it) and at rest. 10 ms are a hundredth of what a
process does that has a core to itself. At rest there is less of the machine's noise in it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing.connection import Connection
from statistics import median
from typing import Final, NamedTuple

import forebay
from forebay import Message

BATCH: Final = 64
BODY: Final = b"x" * 1024
EVERY_SECONDS: Final = 1.0
TOKEN: Final = "nobody asks this for its token"


# ---------------------------------------------------------------------- the process that is watched


class Turn(NamedTuple):
    """What the process is to do next."""

    seconds: float
    works: bool


class Spent(NamedTuple):
    """What it did in one turn."""

    messages: int
    seconds: float
    cpu_seconds: float


def watched(directory: str, queues: int, pipe: Connection) -> None:
    """Open a store, serve its console, and take turns at working until there is no further one."""
    import uvicorn

    import forebay.console

    with forebay.open(directory, memory_limit="64MiB", sync="never") as bay:
        for n in range(queues - 1):
            bay.queue(f"queue-{n:05}").send(BODY)
        app = forebay.console.app(bay, token=TOKEN, open_reading=True)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
        with socket.create_server(("127.0.0.1", 0)) as listener, bay.queue("busy").subscribe() as consumer:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            pipe.send(listener.getsockname()[1])
            try:
                while (turn := pipe.recv()) is not None:
                    pipe.send(take_turn(bay.queue("busy"), consumer, turn))
            finally:
                server.should_exit = True
                thread.join()


def take_turn(queue: forebay.Queue, consumer: forebay.Consumer, turn: Turn) -> Spent:
    """Pass messages from a sender to a consumer, or rest."""
    messages, began, computed = 0, time.monotonic(), time.process_time()
    if not turn.works:
        time.sleep(turn.seconds)
    while turn.works and time.monotonic() - began < turn.seconds:
        queue.send_many([Message(BODY)] * BATCH)
        taken = consumer.take(BATCH)
        consumer.ack(taken)
        messages += len(taken)
    return Spent(messages, time.monotonic() - began, time.process_time() - computed)


# ---------------------------------------------------------------------- those that watch


def by_command(*arguments: str) -> AbstractContextManager[object]:
    """Return a command of forebay that watches as long as it runs."""
    return _ended([sys.executable, "-m", "forebay", *arguments])


@contextmanager
def _ended(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def again(look: Callable[[], object]) -> Iterator[None]:
    """Look once a second, from a thread of this process."""
    is_over = threading.Event()

    def loop() -> None:
        while not is_over.is_set():
            look()
            is_over.wait(EVERY_SECONDS)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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
def console_beside(directory: str) -> Iterator[None]:
    """Serve the console by a process of its own, and look at it."""
    command = [sys.executable, "-m", "forebay", "console", directory, "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
            with again(lambda: get(port, "/", "/queues", "/metrics")):
                yield
        finally:
            process.terminate()


def watchers(directory: str, port: int) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """Return what may watch, by name. port: of the console that is mounted in the process."""
    return {
        "forebay top": lambda: by_command("top", directory),
        "forebay queues --watch": lambda: by_command("queues", directory, "--watch"),
        "forebay health, each second": lambda: again(lambda: health(directory)),
        "forebay console beside it: pages and /metrics": lambda: console_beside(directory),
        "console mounted in it: a page": lambda: again(lambda: get(port, "/queues")),
        "console mounted in it: /metrics": lambda: again(lambda: get(port, "/metrics")),
    }


# ---------------------------------------------------------------------- measuring


class Cost(NamedTuple):
    """What one watcher costs."""

    watcher: str
    at_work_ms: float
    """Milliseconds of CPU time that the process at work spends each second because of it."""
    at_rest_ms: float


def measure(queues: int, rounds: int, seconds: float, directory: str) -> Iterator[Cost]:
    """Yield the cost of each watcher."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=watched, args=(directory, queues, theirs))
    process.start()
    try:
        port = ours.recv()

        def spend(watcher: Callable[[], AbstractContextManager[object]], works: bool) -> Spent:
            with watcher():
                time.sleep(EVERY_SECONDS)  # until it looks
                ours.send(Turn(seconds, works))
                spent: Spent = ours.recv()
                return spent

        for name, watcher in watchers(directory, port).items():
            works, rests = [], []
            for _ in range(rounds):
                without, with_it, after = (spend(one, True) for one in (nullcontext, watcher, nullcontext))
                expected = with_it.messages * (cpu_of(without) + cpu_of(after)) / 2
                works.append(1000 * (with_it.cpu_seconds - expected) / with_it.seconds)
                alone, beside = spend(nullcontext, False), spend(watcher, False)
                rests.append(1000 * (beside.cpu_seconds / beside.seconds - alone.cpu_seconds / alone.seconds))
            yield Cost(name, median(works), median(rests))
    finally:
        ours.send(None)
        process.join()


def cpu_of(spent: Spent) -> float:
    """Return the CPU time for a message."""
    return spent.cpu_seconds / max(spent.messages, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what it costs a busy store to be watched.")
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--json", action="store_true", help="print an object a watcher")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(f"{arguments.queues:,} queues", file=sys.stderr)
        for cost in measure(arguments.queues, arguments.rounds, arguments.seconds, directory):
            if arguments.json:
                print(json.dumps(cost._asdict()), flush=True)
                continue
            said = f"{cost.at_work_ms:7.1f} ms a second at work, {cost.at_rest_ms:6.1f} at rest"
            print(f"{cost.watcher:46} {said}", flush=True)


if __name__ == "__main__":
    main()
