"""The process that test_hostile_soak.py runs: a store whose host calls it from everywhere, or has no descriptor left.

Arguments: the kind of trouble, the store's directory, a seed, the seconds to run, and a file for the confirmed
messages. The same thread calls the store again from signal handlers, finalizers and log handlers, while other threads
work.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from crashing import SYNC_MODES
from descriptors import descriptors_left

import forebay
from forebay import (
    Closed,
    Consumer,
    Delivery,
    DestinationPolicy,
    Forebay,
    Message,
    NestedCall,
    SpillFailed,
    StateError,
    StoreFull,
    TooManyFiles,
)
from forebay.dispatch.config.settings import SyncMode

QUEUES = ("orders", "prices")
LOGS = "logs"
POLICIES = {">": DestinationPolicy(max_attempts=None, slow_consumer_seconds=0.05)}
DIGITS = 8
BODY_BYTES = 3_000
SIGNAL_SECONDS = 0.0004
QUIET_SECONDS = 20.0
"""Seconds after which background work that failed for want of descriptors has been done again."""


def open_store(directory: str, **fields: Any) -> Forebay:
    return forebay.open(
        directory,
        memory_limit="8MiB",
        max_file_length="64KiB",
        policies=POLICIES,
        checkpoint_interval_seconds=0.05,
        cleanup_interval_seconds=0.1,
        **fields,
    )


class Ledger:
    """The confirmed calls. Adding to a set is one step, so threads and handlers share it without a lock."""

    def __init__(self, sync: SyncMode) -> None:
        self._syncs_always = sync == "always"
        self._numbers = itertools.count()
        self.sent: set[int] = set()
        # Sends that the store refused.
        self.refused: set[int] = set()
        self.acked: set[int] = set()
        # Acks that began and whose outcome is not known.
        self.in_doubt: set[int] = set()
        self.problems: list[str] = []

    def send(self, send: Callable[[bytes], object], size: int = 0) -> None:
        number = next(self._numbers)
        try:
            send(b"%0*d" % (DIGITS, number) + bytes(size))
        except NestedCall:
            if not self._syncs_always:  # otherwise the message may be stored without a confirmation
                self.refused.add(number)
        except StoreFull:
            self.refused.add(number)
        except Closed:
            raise
        else:
            self.sent.add(number)

    def ack(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        numbers = [int(delivery.body[:DIGITS]) for delivery in deliveries]
        again = self.acked.intersection(numbers)
        if again:
            self.problems.append(f"delivered behind their ack: {sorted(again)}")
        self.in_doubt.update(numbers)
        consumer.ack(deliveries)
        self.acked.update(numbers)

    def write(self, path: str) -> None:
        begun = range(next(self._numbers))
        facts = {
            "must": sorted(self.sent - self.acked - self.in_doubt),
            "may": sorted(set(begun) - self.refused - self.acked),
            "refused": len(self.refused),
            "sent": len(self.sent),
            "problems": self.problems,
        }
        Path(path).write_text(json.dumps(facts))


# ---------------------------------------------------------------------- signals, finalizers and log handlers


class Session:
    """A consumer in a reference cycle, so that the garbage collector closes it wherever it runs."""

    def __init__(self, host: Host) -> None:
        self.me = self
        self.host = host
        self.is_subscribed = False
        self.consumer = host.queue().subscribe(prefetch=5)
        self.is_subscribed = True

    def __del__(self) -> None:
        if not self.is_subscribed:
            return  # the store was closed already
        self.consumer.close()
        if self.host.random.random() < 0.2 and not self.host.is_ending:
            self.host.ledger.send(self.host.queue().send)


class Shipper(logging.Handler):
    """A log handler that sends log records of the store through the store itself."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self._inside = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._inside, "is_shipping", False) or self._host.is_ending:
            return
        self._inside.is_shipping = True
        try:
            self._host.shipped += 1
            self._host.ledger.send(self._host.bay.queue(LOGS).send)
        except Closed:
            pass
        finally:
            self._inside.is_shipping = False


class Host:
    def __init__(self, directory: str, seed: int) -> None:
        self.random = Random(seed)
        sync = self.random.choice(SYNC_MODES)
        self.ledger = Ledger(sync)
        self.is_ending = False
        self.shipped = self.signalled = 0
        self.bay = open_store(directory, sync=sync)
        self._is_handling = False
        self._spare: list[Consumer] = []
        self._queues = {name: self.bay.queue(name) for name in (*QUEUES, LOGS)}

    def queue(self) -> forebay.Queue:
        return self._queues[self.random.choice(QUEUES)]

    def handle(self, *_: object) -> None:
        """Handle a signal, perhaps while another one is handled."""
        if self._is_handling:
            return
        self._is_handling = True
        try:
            self._handle(self.random)
        finally:
            self._is_handling = False

    def _handle(self, random: Random) -> None:
        self.signalled += 1
        try:
            if self.is_ending:
                self.bay.close()
                return
            match random.randrange(6):
                case 0:
                    self.ledger.send(self.queue().send)
                case 1:
                    self.bay.statistics()
                case 2:
                    self._spare.append(self.queue().subscribe(prefetch=3))
                case 3 if self._spare:
                    self._spare.pop().close()
                case 4:
                    self.bay.checkpoint()
                case _:
                    gc.collect(0)
        except (NestedCall, Closed):
            pass

    def work(self, seed: int, until: float) -> None:
        """Send and take until a time, or until the store is closed."""
        random = Random(seed)
        try:
            with self._queues[random.choice(QUEUES)].subscribe(prefetch=50) as consumer:
                while time.monotonic() < until or self.is_ending:
                    self._step(random, consumer)
        except (Closed, StateError):
            if not self.is_ending:
                raise

    def _step(self, random: Random, consumer: Consumer) -> None:
        match random.randrange(6):
            case 0:
                self.ledger.send(self.queue().send, random.choice((0, BODY_BYTES)))
            case 1:
                session = Session(self)
                taken = session.consumer.take(5)
                self.ledger.ack(session.consumer, taken[:2])
            case 2:
                name = random.choice((*QUEUES, LOGS))
                with self._queues[name].subscribe(prefetch=0) as once:
                    self.ledger.ack(once, once.take(20))
            case 3:
                with self.bay.transaction() as transaction:
                    taken = consumer.take(3)
                    if taken:
                        self.ledger.in_doubt.update(int(delivery.body[:DIGITS]) for delivery in taken)
                        consumer.ack(taken, transaction=transaction)
                self.ledger.acked.update(int(delivery.body[:DIGITS]) for delivery in taken)
            case 4:
                consumer.nack(consumer.take(4))
            case _:
                self.ledger.ack(consumer, consumer.take(random.choice((1, 10)), timeout=0.001))


def nested(directory: str, seed: int, seconds: float) -> Ledger:
    gc.set_threshold(300, 5, 5)
    host = Host(directory, seed)
    logger = logging.getLogger("forebay")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Shipper(host))
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=host.work, args=(seed + n, until)) for n in (1, 2)]
    signal.signal(signal.SIGALRM, host.handle)
    signal.setitimer(signal.ITIMER_REAL, SIGNAL_SECONDS, SIGNAL_SECONDS)
    for thread in threads:
        thread.start()
    host.work(seed, until)
    for thread in threads:
        thread.join()
    if host.random.random() < 0.7:
        host.is_ending = True  # the next signal closes, in the midst of this
        host.work(seed + 3, until)
    signal.setitimer(signal.ITIMER_REAL, 0)
    host.is_ending = True
    host.bay.close()
    assert host.signalled and host.shipped, (host.signalled, host.shipped)
    return host.ledger


# ---------------------------------------------------------------------- descriptors


def short(directory: str, seed: int, seconds: float) -> Ledger:
    """Run a store while descriptors run out and come back. The store is also opened in a shortage."""
    random = Random(seed)
    sync = random.choice(SYNC_MODES)
    ledger = Ledger(sync)
    until = time.monotonic() + seconds
    while True:
        with descriptors_left(random.randrange(24)):
            try:
                bay = open_store(directory, sync=sync)
                break
            except TooManyFiles:
                if time.monotonic() > until:
                    bay = None
                    break
    bay = bay or open_store(directory, sync=sync)
    queues = [bay.queue(name) for name in QUEUES]
    consumers = [queue.subscribe(prefetch=200) for queue in queues]
    held: list[list[Delivery]] = [[] for _ in queues]
    while time.monotonic() < until:
        with descriptors_left(random.randrange(8)) as taken:
            for _ in range(random.randrange(1, 300)):
                at = random.randrange(len(queues))
                try:
                    _short_step(random, ledger, bay, queues[at], consumers[at], held[at])
                except (StoreFull, SpillFailed):
                    pass  # refused in words
                if taken and random.random() < 0.01:
                    os.close(taken.pop())
        ledger.send(queues[0].send, BODY_BYTES)  # there is room again, and so it goes on at once
    end = time.monotonic() + QUIET_SECONDS
    while bay.statistics().failing and time.monotonic() < end:
        threading.Event().wait(0.05)
    assert not bay.statistics().failing, bay.statistics().failing
    assert all(not found.unreadable for found in bay.statistics().destinations.values())
    bay.checkpoint()
    bay.close()
    return ledger


def _short_step(
    random: Random, ledger: Ledger, bay: Forebay, queue: forebay.Queue, consumer: Consumer, held: list[Delivery]
) -> None:
    match random.randrange(8):
        case 0:
            bay.checkpoint()
        case 1:
            bay.cleanup()
        case 2:
            for _ in zip(range(20), queue.browse(), strict=False):
                pass
        case 3:
            queue.send_many(Message(bytes(BODY_BYTES), persistent=False) for _ in range(5))
        case 4:
            held += consumer.take(30)
            while held:  # one by one: one that is refused is held still, and acknowledged later
                if held[-1].body[:DIGITS].isdigit():
                    ledger.ack(consumer, held[-1:])
                else:
                    consumer.ack(held[-1])
                held.pop()
        case _:
            for _ in range(10):
                ledger.send(queue.send, random.choice((0, BODY_BYTES)))


# ----------------------------------------------------------------------


def main(kind: str, directory: str, seed: str, seconds: str, facts: str) -> None:
    faulthandler.enable()
    programs = {"nested": nested, "short": short}
    programs[kind](directory, int(seed), float(seconds)).write(facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
