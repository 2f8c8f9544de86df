"""BrokerProcess: the process that embeds the library, and may be killed at any moment.

It opens the store, sends what is left to send, consumes until nothing is
left, and tells each step through a pipe (see events.py). Where its plan says
so it kills itself with SIGKILL: the main thread does, while the others are in
the middle of whatever they do. It keeps nothing: the next process gets a new
plan from what its supervisor knows.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final

import forebay
from forebay.cache.process_memory import unique_set_bytes
from forebay.store.errors import ForebayError, SettingsError

from .events import Kind, encode
from .scenarios import ConsumerPlan
from .workload import from_plan

GAUGE_SECONDS: Final = 0.5
POLL_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Plan:
    """What one broker process is to do. Crosses to it as JSON."""

    directory: str
    limit_bytes: int
    workload: Mapping[str, Any]
    destinations: Sequence[str]
    starts: Sequence[int]
    """The first n that each producer has still to send."""
    batch_messages: int
    """The most that one call sends, takes or acknowledges."""
    consumers: Sequence[ConsumerPlan]
    joins_after: Sequence[int]
    """Messages sent and settled, in this process, before each consumer subscribes."""
    kill_after: int | None
    """The same for the kill; None: work to the end."""
    backlog_first: bool

    def as_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Plan:
        fields = json.loads(text)
        fields["consumers"] = [ConsumerPlan(**consumer) for consumer in fields["consumers"]]
        return cls(**fields)


class Pipe:
    """The way to the supervisor. An event is in the pipe when `tell` returns, and a kill does not take it back."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def tell(self, kind: Kind, who: int = 0, payload: bytes | int | Mapping[str, object] = b"") -> None:
        frame = memoryview(encode(kind, who, payload))
        with self._lock:
            while frame:
                frame = frame[os.write(self._descriptor, frame) :]


class BrokerProcess:
    def __init__(self, plan: Plan, pipe: Pipe) -> None:
        self._plan = plan
        self._tell = pipe.tell
        self._workload = from_plan(plan.workload)
        self._lock = threading.Lock()
        self._moved_messages = 0
        self._all_sent = threading.Event()
        self._begun: set[int] = set()
        self._kill: Future[None] = Future()
        self._uss_bytes_before = unique_set_bytes()

    def run(self) -> None:
        """Open, work, close. What a thread raises is raised here, and then the other threads still run."""
        bay = forebay.open(self._plan.directory, memory_limit=self._plan.limit_bytes)
        self._tell(Kind.OPENED, 0, _recovery(bay))
        self._gauge(bay)
        producers, consumers = range(len(self._plan.starts)), range(len(self._plan.consumers))
        threads = ThreadPoolExecutor(len(producers) + len(consumers))
        senders = {threads.submit(self._send, bay, producer) for producer in producers}
        takers = {threads.submit(self._consume, bay, consumer) for consumer in consumers}
        self._watch(bay, senders, takers)
        self._gauge(bay)
        bay.close()
        self._tell(Kind.DONE)

    def _watch(self, bay: forebay.Forebay, senders: set[Future[None]], takers: set[Future[None]]) -> None:
        """Until all threads are through: gauge, and kill when it is time."""
        working = senders | takers | {self._kill}
        gauged = time.monotonic()
        while working != {self._kill}:
            ended, working = wait(working, timeout=GAUGE_SECONDS, return_when=FIRST_COMPLETED)
            if self._kill in ended:
                os.kill(os.getpid(), signal.SIGKILL)
            for thread in ended:
                thread.result()
            if not senders & working:
                self._all_sent.set()
            if time.monotonic() - gauged >= GAUGE_SECONDS:
                self._gauge(bay)
                gauged = time.monotonic()

    def _send(self, bay: forebay.Forebay, producer: int) -> None:
        for batch in self._workload.batches(producer, self._plan.starts[producer], self._plan.batch_messages):
            self._tell(Kind.SENDING, producer, batch.stop)
            for destination, messages in batch.messages.items():
                bay.queue(destination).send_many(messages)
            self._tell(Kind.SENT, producer)
            self._moved(sum(map(len, batch.messages.values())))

    def _consume(self, bay: forebay.Forebay, number: int) -> None:
        """Join when it is time, and drain one destination after the other."""
        plan = self._plan.consumers[number]
        if self._plan.backlog_first:
            self._all_sent.wait()
        queues = [bay.queue(destination) for destination in self._plan.destinations]
        while self._moved_messages < self._plan.joins_after[number]:
            if self._drained(queues):
                return
            time.sleep(POLL_SECONDS)
        for queue in queues:
            with queue.subscribe(selector=plan.selector, prefetch=plan.prefetch) as consumer:
                self._drain(queue, consumer, number)

    def _drain(self, queue: forebay.Queue, consumer: forebay.Consumer, number: int) -> None:
        """Take, check and acknowledge at the consumer's pace, until everything is sent and nothing is left."""
        pace = self._plan.consumers[number].pace
        batch_messages = self._plan.batch_messages
        if pace is not None:
            batch_messages = min(batch_messages, max(1, int(pace * POLL_SECONDS)))
        subscribed = time.monotonic()
        while True:
            batch = consumer.take(batch_messages, timeout=POLL_SECONDS)
            if not batch:
                if self._drained([queue]):
                    return
                continue
            if number not in self._begun:
                self._begun.add(number)
                seconds = time.monotonic() - subscribed
                self._tell(Kind.FIRST, number, {"seconds": seconds, "backlog": queue.depth})
            keys, damaged = self._workload.check(batch)
            for text in damaged:
                self._tell(Kind.DAMAGED, number, {"text": text})
            self._tell(Kind.SETTLING, number, keys.tobytes())
            consumer.ack(batch)
            self._tell(Kind.SETTLED, number)
            self._moved(len(batch))
            if pace is not None:
                time.sleep(len(batch) / pace)

    def _drained(self, queues: Sequence[forebay.Queue]) -> bool:
        return self._all_sent.is_set() and not any(queue.depth for queue in queues)

    def _moved(self, messages: int) -> None:
        """Count what was sent or settled, and ask for the kill when enough was."""
        with self._lock:
            self._moved_messages += messages
            kill_after = self._plan.kill_after
            if kill_after is not None and self._moved_messages >= kill_after and not self._kill.done():
                self._kill.set_result(None)

    def _gauge(self, bay: forebay.Forebay) -> None:
        statistics = bay.statistics()
        destinations = statistics.destinations.values()
        self._tell(
            Kind.GAUGES,
            0,
            {
                "held_bytes": statistics.memory.held_bytes,
                "held_bytes_max": statistics.memory.held_bytes_max,
                "limit_bytes": statistics.memory.limit_bytes,
                "uss_bytes": unique_set_bytes() - self._uss_bytes_before,
                "depth": sum(destination.depth for destination in destinations),
                "delivered": sum(destination.delivered for destination in destinations),
                "misses": sum(destination.misses for destination in destinations),
                "blocked_seconds": sum(destination.blocked_seconds for destination in destinations),
            },
        )


def _recovery(bay: forebay.Forebay) -> dict[str, object]:
    report = bay.recovery
    return {
        "clean": report.clean,
        "index_rebuilt": report.index_rebuilt,
        "replayed_records": report.replayed_records,
        "truncated_bytes": report.truncated_bytes,
        "quarantined": report.quarantined,
        "seconds": report.seconds,
        "pending_messages": bay.statistics().store.pending_messages,
    }


def main() -> None:
    """Read a plan from standard input and carry it out; events go to standard output."""
    pipe = Pipe(sys.stdout.fileno())
    # Warnings are of what recovery cut or rebuilt, which its report tells.
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    try:
        BrokerProcess(Plan.from_json(sys.stdin.buffer.read()), pipe).run()
    except BrokenPipeError:  # the supervisor is gone, and with it the sense of this process
        os._exit(1)
    except BaseException as error:
        if not isinstance(error, (ForebayError, OSError)):
            traceback.print_exc()  # a mistake of ours
        text = str(error) if isinstance(error, ForebayError) else f"{type(error).__name__}: {error}"
        pipe.tell(Kind.FAILED, 0, {"text": text, "usage": isinstance(error, SettingsError)})
        os._exit(1)  # an ordinary end would wait for the other threads


if __name__ == "__main__":
    main()
