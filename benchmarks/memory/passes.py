"""Passes: play traffic against a store and measure it, each pass in a fresh process and an empty directory.

A pass has one thread of the caller, which works as fast as possible, and the two threads of the library. Each pass
checks that it got the messages that it sent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import forebay
from forebay.cache.process.process_memory import unique_set_bytes
from forebay.dispatch.config.sizes import KIB, MIB
from forebay.dispatch.core.memory.watermarks import LiveCurve
from forebay.store.numbering import UNLIMITED

from ..inside import lock_of, store_of, watermarks_of
from .traffic import BEGIN, SEND, Step, Traffic

Facts = dict[str, float]
WAIT_SECONDS: Final = 30.0
BATCH_MESSAGES: Final = 256
LOOKS: Final = 40
"""Seconds between two samples of the size of the process."""
_NOISE: Final = random.Random(42).randbytes(MIB)


class _Bodies:
    """Makes random bodies, each a new object, as a broker gets them."""

    def __init__(self, body_bytes: int) -> None:
        self._bytes = body_bytes
        self._places = cycle(range(0, len(_NOISE) - body_bytes, 977))

    def messages(self, count: int, *, persistent: bool = True) -> list[forebay.Message]:
        size = self._bytes
        return [forebay.Message(_NOISE[at : at + size], persistent=persistent) for at in islice(self._places, count)]


def _opened(directory: Path, limit_bytes: int) -> forebay.Forebay:
    return forebay.open(directory / "store", memory_limit=limit_bytes, sync="never")


# ---------------------------------------------------------------------- the three traffics


def play(traffic: Traffic, directory: Path, limit_bytes: int, part: float) -> Facts:
    """Play a traffic and return its facts.

    deliveries, seconds; waited: deliveries for which a take waited; read: messages read back from the journal;
    grew_bytes: the most by which the process was larger than before.
    """
    before_bytes = unique_set_bytes()
    with _opened(directory, limit_bytes) as bay:
        read = _ReadMessages(bay)
        stage = _Stage(bay, traffic)
        steps = list(traffic.steps(part))
        begun = steps.index(Step(BEGIN, 0, 0))
        for step in steps[:begun]:
            stage.play(step)
        bay.checkpoint()
        measured, look_each = steps[begun + 1 :], -(-(len(steps) - begun) // LOOKS)
        waited, already_read, deliveries = stage.waited, read.messages, stage.deliveries
        grew_bytes, seconds = 0, 0.0
        for at in range(0, len(measured), look_each):
            began = time.perf_counter()
            for step in measured[at : at + look_each]:
                stage.play(step)
            seconds += time.perf_counter() - began
            grew_bytes = max(grew_bytes, unique_set_bytes() - before_bytes)
        return {
            "deliveries": stage.deliveries - deliveries,
            "seconds": seconds,
            "waited": stage.waited - waited,
            "read": read.messages - already_read,
            "grew_bytes": grew_bytes,
        }


class _Stage:
    """The destinations and consumers of a traffic in a store."""

    def __init__(self, bay: forebay.Forebay, traffic: Traffic) -> None:
        self._bay = bay
        self._bodies = _Bodies(traffic.body_bytes)
        self._is_topic = traffic.is_topic
        self._consumers: dict[int, forebay.Consumer] = {}
        self._homes = traffic.consumers
        self._destinations: list[Any] = [
            bay.topic(f"t{number}") if traffic.is_topic else bay.queue(f"q{number}")
            for number in range(traffic.destinations)
        ]
        for consumer in range(len(traffic.consumers)) if traffic.is_topic else ():
            self._subscribe(consumer).close()
        self.deliveries = 0

    def _subscribe(self, number: int) -> forebay.Consumer:
        destination = self._destinations[self._homes[number]]
        fields = {"durable": f"s{number}"} if self._is_topic else {}
        consumer: forebay.Consumer = destination.subscribe(**fields)
        return consumer

    def play(self, step: Step) -> None:
        if step.kind == SEND:
            for begin in range(0, step.messages, BATCH_MESSAGES):
                batch = self._bodies.messages(min(BATCH_MESSAGES, step.messages - begin))
                self._destinations[step.who].send_many(batch)
            return
        consumer = self._consumers.get(step.who)
        if consumer is None:
            consumer = self._consumers[step.who] = self._subscribe(step.who)
        missing = step.messages
        while missing:
            deliveries = consumer.take(min(missing, BATCH_MESSAGES), timeout=WAIT_SECONDS)
            assert deliveries, "a message that was sent did not come"
            consumer.ack(deliveries)
            missing -= len(deliveries)
        self.deliveries += step.messages

    @property
    def waited(self) -> int:
        """Number of deliveries for which a take had to wait for the disk."""
        statistics = self._bay.statistics()
        of_topics = (found for topic in statistics.topics.values() for found in topic.subscriptions.values())
        return sum(found.misses for found in (*statistics.destinations.values(), *of_topics))


class _ReadMessages:
    """Counts the messages that a store reads from its journal."""

    def __init__(self, bay: forebay.Forebay) -> None:
        self.messages = 0
        store: Any = store_of(bay)
        read = store.read

        def counted(regions: Sequence[Any]) -> Any:
            found = read(regions)
            self.messages += len(found[0])
            return found

        try:
            store.read = counted
        except AttributeError:
            raise SystemExit("what a store reads can be counted in Python only, not in machine code") from None


# ---------------------------------------------------------------------- what KahaDB can be compared with


def overflow(directory: Path, limit_bytes: int, messages: int) -> Facts:
    """Return fill and drain, messages a second of non-persistent batches far above the limit (KahaDB's W7)."""
    with _opened(directory, limit_bytes) as bay:
        queue = bay.queue("bench")
        bodies = _Bodies(KIB)
        began = time.perf_counter()
        for _ in range(messages // BATCH_MESSAGES):
            queue.send_many(bodies.messages(BATCH_MESSAGES, persistent=False))
        filled = time.perf_counter()
        with queue.subscribe() as consumer:
            _drain(consumer, queue.depth)
        drained = time.perf_counter()
        moved = messages // BATCH_MESSAGES * BATCH_MESSAGES
        return {"fill": moved / (filled - began), "drain": moved / (drained - filled)}


def depth(directory: Path, limit_bytes: int, backlog: int, messages: int) -> Facts:
    """consume, messages a second, at the head of a persistent backlog; path: the same beside as many that are sent
    (KahaDB's W8)."""
    with _opened(directory, limit_bytes) as bay:
        queue = bay.queue("bench")
        bodies = _Bodies(KIB)
        for _ in range(backlog // BATCH_MESSAGES):
            queue.send_many(bodies.messages(BATCH_MESSAGES))
        bay.checkpoint()
        with queue.subscribe() as consumer:
            began = time.perf_counter()
            _drain(consumer, messages)
            consumed = time.perf_counter()
            for _ in range(messages // BATCH_MESSAGES):
                queue.send_many(bodies.messages(BATCH_MESSAGES))
                _drain(consumer, BATCH_MESSAGES)
            crossed = time.perf_counter()
        moved = messages // BATCH_MESSAGES * BATCH_MESSAGES
        return {"consume": messages / (consumed - began), "path": moved / (crossed - consumed)}


def _drain(consumer: forebay.Consumer, messages: int) -> None:
    while messages:
        deliveries = consumer.take(min(messages, BATCH_MESSAGES), timeout=WAIT_SECONDS)
        assert deliveries, "a message that was sent did not come"
        consumer.ack(deliveries)
        messages -= len(deliveries)


# ---------------------------------------------------------------------- resize, and the price of the curve


def resizes(directory: Path, limits: Sequence[int], rounds: int) -> Facts:
    """Return down_seconds and up_seconds, the slowest resizes beside a sender and a consumer at full speed.

    unsettled: number of resizes that were not complete when the call returned.
    """
    low, high = min(limits), max(limits)
    facts: Facts = {"down_seconds": 0.0, "up_seconds": 0.0, "unsettled": 0, "moved": 0}
    with _opened(directory, high) as bay:
        queue = bay.queue("bench")
        bodies = _Bodies(KIB)
        for _ in range(2 * high // (KIB * BATCH_MESSAGES)):
            queue.send_many(bodies.messages(BATCH_MESSAGES))
        is_over = threading.Event()
        moved = [0]

        def work() -> None:
            own = _Bodies(KIB)
            with queue.subscribe() as consumer:
                while not is_over.is_set():
                    queue.send_many(own.messages(BATCH_MESSAGES))
                    _drain(consumer, BATCH_MESSAGES)
                    moved[0] += BATCH_MESSAGES

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for _ in range(rounds):
            for limit, kind in ((low, "down_seconds"), (high, "up_seconds")):
                time.sleep(0.5)  # let caches and lists fill
                report = bay.resize(limit)
                facts[kind] = max(facts[kind], report.seconds)
                facts["unsettled"] += not report.is_settled
        is_over.set()
        for worker in workers:
            worker.join()
        facts["moved"] = moved[0]
    return facts


def curve_cost(directory: Path, limit_bytes: int, batch: int, stretches: int, messages: int) -> Facts:
    """Return cpu_us with and without the live curve, and the curve's share: medians of stretches that take turns.

    messages: of a stretch, over a standing backlog that is larger than the limit.
    """
    with _opened(directory, limit_bytes) as bay:
        queue = bay.queue("bench")
        bodies = _Bodies(KIB)
        for _ in range(2 * limit_bytes // (KIB * BATCH_MESSAGES)):
            queue.send_many(bodies.messages(BATCH_MESSAGES))
        watermarks: Any = watermarks_of(bay)
        watching, looking_away = watermarks.live_curve, LiveCurve()
        seconds: dict[bool, list[float]] = {True: [], False: []}
        with queue.subscribe() as consumer:
            _drain(consumer, BATCH_MESSAGES)
            (target,) = watermarks.lists
            for number in range(2 * stretches):
                is_watched = number % 4 in (0, 3)
                with lock_of(bay):
                    watermarks.live_curve = watching if is_watched else looking_away
                    target.sample_next_at(0 if is_watched else UNLIMITED)
                began = time.process_time()
                for _ in range(messages // batch):
                    queue.send_many(bodies.messages(batch))
                    _drain(consumer, batch)
                seconds[is_watched].append(time.process_time() - began)
            watermarks.live_curve = watching
        with_curve, without = median(seconds[True]), median(seconds[False])
        return {
            "with_us": with_curve / messages * 1e6,
            "without_us": without / messages * 1e6,
            "part": with_curve / without - 1,
        }
