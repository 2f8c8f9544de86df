"""BrokerProcess: the process that embeds the library, and may be killed at any moment.

The process opens the store, sends the messages that are left to send, consumes until nothing is left, and does the acts
of the scenario. It reports each step through a pipe (events.py). If the plan says so, its main thread kills the process
with SIGKILL while the other threads work. After the plan it may get orders (orders.py). It keeps no state: the
supervisor makes a new plan for the next process.
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import forebay
from forebay.cache.process.process_memory import return_free_memory, unique_set_bytes
from forebay.dispatch.config.settings import MEMORY_LIMIT_BYTES_MIN
from forebay.store.errors import ForebayError, SettingsError

from .consuming import POLL_SECONDS, Consuming, drive, shared_out
from .events import Kind, encode
from .gauges import Gauges
from .input_file import InputFile
from .orders import Order, lines
from .progress import Progress
from .scenario import Act, ConsumerPlan, DestinationPlan
from .schedule import Schedule, Turns
from .sources import QueueSource, SubscriptionSource, TopicDepths
from .workload import Generated, Room, Workload

GAUGE_SECONDS: Final = 0.5
FILL_SECONDS: Final = 0.005
"""Seconds between two checks whether a queue can be filled again."""
CLEANUPS: Final = 3
"""Cleanups in a row, because each frees data logs whose messages the previous one has copied forward."""
_LEFT_MESSAGES: Final = 1000  # most messages of one event


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of one broker process, which gets it as JSON."""

    directory: str
    limit_bytes: int
    sync: Literal["always", "interval", "never"]
    workload: Mapping[str, Any]
    destinations: Sequence[DestinationPlan]
    starts: Sequence[int]
    """The number of the first message that each producer still has to send."""
    producers_after: Sequence[int]
    """Messages that this process moves before each producer begins to send."""
    backlogs: Sequence[int | None]
    """Messages with which each producer fills its queue repeatedly; None: it does not."""
    batch_messages: int
    """Most messages that one call sends, takes or acknowledges."""
    rate: str | None
    """The schedule of all producers; None: as fast as they can."""
    began: float | None
    """When the schedule began, a time as in events; None: it begins now."""
    consumers: Sequence[ConsumerPlan]
    joins_after: Sequence[int]
    """Messages that this process moves before each consumer subscribes."""
    paces_after: Sequence[Sequence[tuple[int, float]]]
    """The later paces of each consumer, each with the messages that this process moves before it."""
    acts: Sequence[Act]
    acts_after: Sequence[int]
    """Messages moved before each act. Acts that are not reached are done when the threads have finished."""
    left_messages: int
    """Messages in each queue that no consumer takes, at most."""
    backlog_first: bool

    @property
    def producers(self) -> list[DestinationPlan]:
        """Where each producer sends."""
        return [destination for destination in self.destinations for _ in range(destination.producers)]

    def as_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Plan:
        fields = json.loads(text)
        fields["destinations"] = [DestinationPlan(**destination) for destination in fields["destinations"]]
        fields["consumers"] = [ConsumerPlan(**consumer) for consumer in fields["consumers"]]
        fields["acts"] = [Act(**act) for act in fields["acts"]]
        return cls(**fields)


def from_plan(plan: Mapping[str, Any]) -> Workload:
    """Make the workload that `Workload.as_plan` described."""
    return InputFile(plan["path"]) if "path" in plan else Generated.from_plan(plan)


class Pipe:
    """The way to the supervisor. An event is in the pipe when `tell` returns, and a kill does not take it back."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def tell(
        self, kind: Kind, who: int = 0, payload: bytes | int | Mapping[str, object] = b"", at: float | None = None
    ) -> None:
        frame = memoryview(encode(kind, who, payload, at))
        with self._lock:
            while frame:
                frame = frame[os.write(self._descriptor, frame) :]


class BrokerProcess:
    def __init__(self, plan: Plan, pipe: Pipe, orders: Iterable[bytes] = ()) -> None:
        """Make the process's work. orders: lines, which may arrive at any time."""
        self._plan = plan
        self._order_lines = orders
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._tell = pipe.tell
        self._workload = from_plan(plan.workload)
        self._schedule = None if plan.rate is None else Schedule.parse(plan.rate)
        self._progress = Progress()
        self._uss_bytes_before = _warm_bytes()

    def run(self) -> None:
        """Open the store, work and close it. An error of a thread is raised here while other threads still run."""
        plan = self._plan
        policies = _policies(plan.destinations)
        bay = forebay.open(plan.directory, memory_limit=plan.limit_bytes, sync=plan.sync, policies=policies)
        opened = time.monotonic()
        self._began = opened if plan.began is None else plan.began
        self._tell(Kind.OPENED, 0, _recovery(bay), opened)
        self._gauges = Gauges(bay, plan.destinations, self._uss_bytes_before)
        self._gauge()
        threading.Thread(target=self._listen, daemon=True).start()
        consumers = self._consumers(bay)  # before any send, because a topic keeps no message for later subscriptions
        threads = ThreadPoolExecutor(len(plan.starts) + len(consumers))
        senders = {threads.submit(self._send, bay, producer) for producer in range(len(plan.starts))}
        takers = {threads.submit(drive, driven) for driven in consumers}
        self._watch(bay, senders, takers)
        self._tell_what_is_left(bay)
        self._gauge()
        bay.close()
        self._tell(Kind.DONE)

    def _watch(self, bay: forebay.Forebay, senders: set[Future[None]], takers: set[Future[None]]) -> None:
        """Send gauges and do acts when they are due, until all threads have finished."""
        acts = list(zip(self._plan.acts, self._plan.acts_after, strict=True))
        bell = self._progress.bell(acts[0][1] if acts else None)
        working = senders | takers
        gauged = time.monotonic()
        while working or acts:
            ended, _ = wait(working | {bell}, timeout=GAUGE_SECONDS if working else 0, return_when=FIRST_COMPLETED)
            if acts and (bell in ended or not working):
                self._perform(bay, acts.pop(0)[0])
                bell = self._progress.bell(acts[0][1] if acts else None)
            self._carry_out_orders(bay)
            for thread in ended & working:
                thread.result()
            working -= ended
            if not senders & working:
                self._progress.all_sent.set()
            if time.monotonic() - gauged >= GAUGE_SECONDS:
                self._gauge()
                gauged = time.monotonic()

    def _listen(self) -> None:
        """Receive orders until their end. Runs in a thread of its own."""
        for line in self._order_lines:
            order = Order.from_line(line)
            if order.do == "pace":
                self._progress.pace = order.pace
            else:
                self._orders.put(order)

    def _carry_out_orders(self, bay: forebay.Forebay) -> None:
        while not self._orders.empty():
            order = self._orders.get()
            assert order.do in ("resize", "explain", "cleanup")
            self._perform(bay, Act(0, order.do, order.memory), is_ordered=True)

    def _send(self, bay: forebay.Forebay, producer: int) -> None:
        plan = self._plan
        senders: dict[str, forebay.Queue | forebay.Topic] = {
            name: bay.topic(name) if destination.kind == "topic" else bay.queue(name)
            for destination in plan.destinations
            for name in destination.names
        }
        while self._progress.moved_messages < plan.producers_after[producer]:
            time.sleep(POLL_SECONDS)
        if plan.producers_after[producer] > 0:
            self._gauge()  # of what was before
        for batch in self._workload.batches(producer, plan.starts[producer], self._room(bay, producer)):
            self._tell(Kind.SENDING, producer, batch.stop)
            for destination, messages in batch.messages.items():
                senders[destination].send_many(messages)
            self._tell(Kind.SENT, producer)
            self._progress.moved(sum(map(len, batch.messages.values())))

    def _room(self, bay: forebay.Forebay, producer: int) -> Room:
        """Return a function that tells a producer how many messages it may send now."""
        most, backlog = self._plan.batch_messages, self._plan.backlogs[producer]
        if backlog is not None:
            return self._fill(bay.queue(self._plan.producers[producer].name), backlog)
        if self._schedule is None:
            return lambda n: most
        turns = Turns(self._schedule, self._began, producer, len(self._plan.starts))
        return lambda n: min(turns.wait(n), most)

    def _fill(self, queue: forebay.Queue, backlog: int) -> Room:
        """Return a Room with which a producer fills a queue, then waits until all of that is consumed, and so on."""
        filled = backlog

        def room(n: int) -> int:
            nonlocal filled
            if filled >= backlog:
                while queue.depth:
                    time.sleep(FILL_SECONDS)
                filled = 0
            messages = min(backlog - filled, self._plan.batch_messages)
            filled += messages  # if a batch is full with fewer messages, the backlog is smaller
            return messages

        return room

    def _consumers(self, bay: forebay.Forebay) -> list[list[Iterator[float]]]:
        """Return the consumers that each thread drives. Their durable subscriptions exist when this returns."""
        plan = self._plan
        queues = {queue.name: QueueSource(queue, plan.left_messages) for queue in self._queues(bay)}
        topics = {
            name: TopicDepths(bay.topic(name))
            for destination in plan.destinations
            if destination.kind == "topic"
            for name in destination.names
        }
        shared_threads = shared_out(len(plan.consumers))
        return [
            [self._consumer(bay, number, queues, topics, shares_thread=len(numbers) > 1) for number in numbers]
            for numbers in shared_threads
        ]

    def _consumer(
        self,
        bay: forebay.Forebay,
        number: int,
        queues: Mapping[str, QueueSource],
        topics: Mapping[str, TopicDepths],
        *,
        shares_thread: bool,
    ) -> Iterator[float]:
        plan = self._plan
        consumer = plan.consumers[number]
        consumed = [each for each in plan.destinations if consumer.at in (None, each.name)]
        consuming = Consuming(
            bay,
            number,
            consumer,
            plan.paces_after[number],
            self._workload,
            plan.batch_messages,
            self._progress,
            self._tell,
            shares_thread=shares_thread,
            is_timed=any(destination.memory_reserve is not None for destination in consumed),
        )
        sources = [
            SubscriptionSource(topics[name], consumer.title) if destination.kind == "topic" else queues[name]
            for destination in consumed
            for name in destination.names
        ]
        first = consumer.number % len(sources)  # consumers of one name begin at different sources
        sources[:] = sources[first:] + sources[:first]
        return consuming.steps(sources, plan.joins_after[number], after_all=plan.backlog_first)

    def _queues(self, bay: forebay.Forebay) -> list[forebay.Queue]:
        destinations = self._plan.destinations
        return [bay.queue(name) for each in destinations if each.kind == "queue" for name in each.names]

    def _perform(self, bay: forebay.Forebay, act: Act, *, is_ordered: bool = False) -> None:
        began = time.monotonic()
        facts: dict[str, object] = {}
        match act.do:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "purge":
                purged = sum(queue.purge() for queue in self._queues(bay))
                self._progress.moved(purged)
                facts = {"purged": purged}
            case "resize":
                facts = {"held_bytes": bay.resize(act.memory).held_bytes}
            case "explain":
                facts = {"sentence": "Disk:" + bay.explain().sentence.rpartition("Disk:")[2]}
            case "cleanup":
                live_bytes = bay.statistics().store.live_bytes
                deleted = sum(len(bay.cleanup().deleted) for _ in range(CLEANUPS))
                store = bay.statistics().store
                facts = {
                    "live_bytes": live_bytes,
                    "journal_bytes": store.journal_bytes,
                    "data_logs": store.data_logs,
                    "deleted": deleted,
                    "data_log_bytes": bay.settings.max_file_length_bytes,
                }
        kind = Kind.OBEYED if is_ordered else Kind.ACTED
        self._tell(kind, 0, {"seconds": time.monotonic() - began, "do": act.do, "memory": act.memory, **facts})
        self._gauge()

    def _tell_what_is_left(self, bay: forebay.Forebay) -> None:
        for queue in self._queues(bay):
            if queue.depth:
                left = queue.browse()
                while messages := list(islice(left, _LEFT_MESSAGES)):
                    keys, damaged = self._workload.check(messages)
                    for text in damaged:
                        self._tell(Kind.DAMAGED, 0, {"text": text})
                    self._tell(Kind.LEFT, 0, keys.tobytes())

    def _gauge(self) -> None:
        self._tell(Kind.GAUGES, 0, self._gauges.facts())


def _warm_bytes() -> int:
    """Return the bytes of this process once the library is there and has done what each run does.

    The library imports its parts where they are first used, 13 MiB of modules and pages of the C libraries, that no
    limit is about. What follows is what messages cost.
    """
    with (
        TemporaryDirectory(prefix="forebay-warm-") as directory,
        forebay.open(directory, memory_limit=MEMORY_LIMIT_BYTES_MIN, sync="never") as bay,
        bay.queue("queue").subscribe() as queued,
        bay.topic("topic").subscribe(durable="durable") as published,
    ):
        bay.queue("queue").send_many([forebay.Message(b"stored"), forebay.Message(b"in RAM", persistent=False)])
        bay.topic("topic").send(b"stored")
        for consumer in (queued, published):
            with bay.transaction() as transaction:
                consumer.ack(consumer.take(2), transaction=transaction)
        bay.cleanup()
        bay.statistics()
    return_free_memory()
    return unique_set_bytes()


def _policies(destinations: Sequence[DestinationPlan]) -> dict[str, forebay.DestinationPolicy]:
    """Return the policies. Under them a message never becomes a dead letter, which the verdict would miss."""
    policies = {">": forebay.DestinationPolicy(max_attempts=None)}
    for each in destinations:
        policies[f"{each.name}.>"] = forebay.DestinationPolicy(
            max_attempts=None, memory_share=each.memory_share, memory_reserve=each.memory_reserve
        )
    return policies


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
    """Read a plan and then orders from standard input and carry them out; events go to standard output."""
    pipe = Pipe(sys.stdout.fileno())
    # No warnings: they tell what recovery cut or rebuilt, which is in its report.
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    try:
        given = lines(sys.stdin.fileno())
        BrokerProcess(Plan.from_json(next(given)), pipe, given).run()
    except BrokenPipeError:  # the supervisor is gone, so nobody needs this process
        os._exit(1)
    except BaseException as error:
        if not isinstance(error, (ForebayError, OSError)):
            traceback.print_exc()  # a bug in this program
        text = str(error) if isinstance(error, ForebayError) else f"{type(error).__name__}: {error}"
        pipe.tell(Kind.FAILED, 0, {"text": text, "usage": isinstance(error, SettingsError)})
        os._exit(1)  # an ordinary end would wait for the other threads


if __name__ == "__main__":
    main()
