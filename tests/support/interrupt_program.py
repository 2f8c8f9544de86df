"""A process that is interrupted by real signals wherever it is, and checks itself after each life of its store.

    interrupt_program.py DIRECTORY SEED INTERRUPTIONS

The main thread calls a store, and the signal of a timer raises an exception in the middle of a call. A second thread
sends and takes all the time. After StoreFailed the store is closed and opened again. Each confirmed message must be
there once, acknowledged messages must be gone, and messages of an interrupted call may be there or not. The program
prints its counts as JSON. Its parent kills it if it hangs.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import forebay
from forebay import Closed, Consumer, DestinationPolicy, Forebay, ForebayError, Message, StoreFailed
from forebay.store.environment.locks import owned_locks

WAIT_SECONDS = 20.0


class Interruption(BaseException):
    """Raised by the signal. Like KeyboardInterrupt, it passes `except Exception`."""


class Program:
    def __init__(self, directory: str, seed: int, interruptions: int) -> None:
        self.random = Random(seed)
        self.directory = directory
        self.wanted = interruptions
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.is_armed = False
        self.last = 0
        self.must: set[int] = set()
        self.may: set[int] = set()
        self.gone: set[int] = set()
        signal.signal(signal.SIGALRM, self.interrupt)

    def interrupt(self, *_: object) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Interruption

    def attempt(self, name: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Make a call with a signal somewhere in it; return whether it ended by itself, and its result."""
        random = self.random
        seconds = random.choice(
            (1e-6, random.uniform(1e-6, 3e-5), random.uniform(1e-6, 3e-4), random.uniform(1e-6, 3e-3))
        )
        try:
            try:
                self.is_armed = True
                signal.setitimer(signal.ITIMER_REAL, seconds)
                result = call()
                self.is_armed = False
                return True, result
            finally:
                self.is_armed = False
        except Interruption:
            if left := owned_locks():
                self.problems.append(f"{name} left {len(left)} locks: {traceback.format_exc()}")
                raise
            self.counts["interrupted"] += 1
            self.counts[f"interrupted {name}"] += 1
            return False, None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    # ------------------------------------------------------------------ one life

    def open(self) -> Forebay:
        return forebay.open(
            self.directory,
            memory_limit="6MiB",
            sync=self.random.choice(("never", "interval", "always")),
            max_file_length="256KiB",
            checkpoint_interval_seconds=0.5,
            cleanup_interval_seconds=1.0,
            policies={
                "limited": DestinationPolicy(max_messages=10_000, max_attempts=None, count_on_close="none"),
                ">": DestinationPolicy(max_attempts=None, count_on_close="none"),
            },
        )

    def live(self) -> None:
        self.counts["lives"] += 1
        bay = self.open()
        self.compare(bay)
        stop = threading.Event()
        beside = threading.Thread(target=self.call_beside, args=(bay, stop))
        beside.start()
        held: dict[int, Any] = {}
        queue = bay.queue("limited")
        consumer = queue.subscribe(prefetch=self.random.choice((5, 100, 1000)))
        try:
            for _ in range(self.random.choice((20, 200, 600))):
                if self.counts["interrupted"] >= self.wanted:
                    break
                consumer = self.step(bay, consumer, held)
        except StoreFailed:
            self.counts["failed"] += 1
            self.check_refusal(bay, consumer)
        stop.set()
        beside.join(WAIT_SECONDS)
        if beside.is_alive():
            self.problems.append("the thread beside hangs")
        if self.random.random() < 0.3:
            self.attempt("close", bay.close)
        try:
            bay.close()
        except StoreFailed:  # an interrupted checkpoint left an incomplete index, which the next open makes anew
            self.counts["failed"] += 1
            bay.close()

    def step(self, bay: Forebay, consumer: Consumer, held: dict[int, Any]) -> Consumer:
        random, queue = self.random, bay.queue("limited")
        kind = random.random()
        if kind < 0.35:
            (number,) = self.new(1)
            body = b"%d|" % number + bytes(random.choice((10, 1000, 20_000)))
            if self.attempt("send", lambda: queue.send(body, persistent=True))[0]:
                self.confirm([number])
        elif kind < 0.45:
            numbers = self.new(19)
            if self.attempt("send_many", lambda: queue.send_many([Message(b"%d|" % number) for number in numbers]))[0]:
                self.confirm(numbers)
        elif kind < 0.7:
            most, timeout = random.choice((1, 1, 10, 100)), random.choice((0.0, 0.0, 0.001))
            ended, taken = self.attempt("take", lambda: consumer.take(most, timeout=timeout))
            held.update((number_of(delivery.body), delivery) for delivery in taken or () if ended)
        elif kind < 0.9 and held:
            numbers = random.sample(sorted(held), min(len(held), random.choice((1, 1, 5, 50))))
            deliveries = [held.pop(number) for number in numbers]
            self.must.difference_update(numbers)
            self.may.update(numbers)
            if self.attempt("ack", lambda: consumer.ack(deliveries if len(deliveries) > 1 else deliveries[0]))[0]:
                self.may.difference_update(numbers)
                self.gone.update(numbers)
        elif kind < 0.93 and held:
            deliveries = [held.pop(number) for number in random.sample(sorted(held), min(len(held), 3))]
            self.attempt("nack", lambda: consumer.nack(deliveries, random.choice((0.0, 0.001))))
        elif kind < 0.96:
            numbers = self.new(2)

            def commit() -> None:
                with bay.transaction() as transaction:
                    for number in numbers:
                        queue.send(b"%d|" % number, transaction=transaction)

            if self.attempt("commit", commit)[0]:
                self.confirm(numbers)
        elif kind < 0.98:
            call: Callable[[], Any] = random.choice(
                (bay.checkpoint, bay.cleanup, bay.statistics, lambda: list(queue.browse()))
            )
            self.attempt("maintenance", call)
        else:
            self.attempt("close of a consumer", consumer.close)
            consumer.close()
            held.clear()
            return queue.subscribe(prefetch=random.choice((5, 100, 1000)))
        return consumer

    def new(self, count: int) -> list[int]:
        numbers = list(range(self.last + 1, self.last + 1 + count))
        self.last += count
        self.may.update(numbers)
        return numbers

    def confirm(self, numbers: list[int]) -> None:
        self.may.difference_update(numbers)
        self.must.update(numbers)

    def call_beside(self, bay: Forebay, stop: threading.Event) -> None:
        """Send and take in a thread without interruptions: each call returns or raises a documented error."""
        try:
            queue = bay.queue("beside")
            with queue.subscribe(prefetch=10) as consumer:
                while not stop.is_set():
                    queue.send(b"0|", persistent=False)
                    for delivery in consumer.take(5, timeout=0.01):
                        delivery.ack()
        except (StoreFailed, Closed):
            pass
        except BaseException as error:
            self.problems.append(f"beside: {error!r}")

    # ------------------------------------------------------------------ what must be true

    def check_refusal(self, bay: Forebay, consumer: Consumer) -> None:
        for call in (lambda: bay.queue("limited").send(b"x"), lambda: consumer.take(1, timeout=None), bay.statistics):
            try:
                call()
                self.problems.append("a store that has failed goes on")
            except StoreFailed:
                pass

    def compare(self, bay: Forebay) -> None:
        """Compare the messages in the store with those that the previous lives must have left."""
        queue = bay.queue("limited")
        bodies = [number_of(message.body) for message in queue.browse()]
        found = set(bodies)
        if len(bodies) != len(found) or queue.depth != len(found):
            self.problems.append(f"{len(bodies)} messages of {len(found)} numbers, depth {queue.depth}")
        if lost := self.must - found:
            self.problems.append(f"lost {sorted(lost)[:5]}")
        if back := found & self.gone:
            self.problems.append(f"came back {sorted(back)[:5]}")
        if strange := found - self.must - self.may:
            self.problems.append(f"from nowhere {sorted(strange)[:5]}")
        self.gone |= (self.must | self.may) - found
        self.must, self.may = found, set()

    def run(self) -> None:
        while self.counts["interrupted"] < self.wanted and not self.problems:
            self.live()
        with self.open() as bay:
            self.compare(bay)


def number_of(body: bytes) -> int:
    return int(body.partition(b"|")[0])


def main() -> None:
    faulthandler.enable()
    logging.getLogger("forebay").setLevel(logging.CRITICAL)
    directory, seed, interruptions = sys.argv[1:]
    program = Program(directory, int(seed), int(interruptions))
    try:
        program.run()
    except ForebayError as error:
        program.problems.append(f"{error!r}")
        raise
    print(json.dumps({"problems": program.problems, "counts": program.counts}))


if __name__ == "__main__":
    main()
