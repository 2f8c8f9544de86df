"""Many threads on one store, with the interpreter switching between them as often as it can.

Every outcome here is decided beforehand: whatever the order in which threads
run, each message is acknowledged once, nobody who waits is forgotten, and
the ledger stays below the limit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from random import Random

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import Closed, Consumer, Delivery, DestinationPolicy, Forebay, Message, StateError

KIB = 1024
PATIENCE_SECONDS = float(os.environ.get("FOREBAY_PATIENCE_SECONDS", "60"))
"""A thread that has not come on by then waits for ever."""
Key = tuple[int, int]


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.fixture
def bay(tmp_path: Path) -> Iterator[Forebay]:
    with open_in(tmp_path) as bay:
        yield bay


def open_in(directory: Path) -> Forebay:
    return forebay.open(
        directory,
        memory_limit="4MiB",
        sync="never",
        max_file_length="1MiB",
        max_checkpoint_adds=500,
        policies={">": DestinationPolicy(max_attempts=None), "full": DestinationPolicy(max_messages=1)},
    )


class Crew:
    """Threads that must all end, and whose errors are the test's own."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, *work: Callable[[], object]) -> None:
        for function in work:
            thread = threading.Thread(target=self._run, args=(function,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            self._errors.append(error)

    def join(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        for thread in self._threads:
            while thread.is_alive() and not self._errors and time.monotonic() < deadline:
                thread.join(0.05)
        if self._errors:
            raise self._errors[0]
        assert not any(thread.is_alive() for thread in self._threads), "a thread waits for ever"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never comes to that"
        os.sched_yield()


def check(bay: Forebay) -> None:
    memory = bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    inside(bay).audit()


# Traffic.


class Traffic:
    """Producers that number what they send, and consumers that write down what they have acknowledged."""

    def __init__(self, bay: Forebay, producers: int, each: int) -> None:
        self.bay = bay
        self.crew = Crew()
        self.keys = {(producer, number) for producer in range(producers) for number in range(each)}
        self.consumers: list[Consumer] = []
        self.acknowledged: list[list[Key]] = []
        self._each = each
        self._left = producers * each
        self._lock = threading.Lock()

    def produce(self, producer: int) -> None:
        queue, random = self.bay.queue("orders"), Random(producer)
        number = 0
        while number < self._each:
            count = min(random.choice((1, 1, 7, 40)), self._each - number)
            messages = [
                Message(random.randbytes(random.randrange(4 * KIB)), {"producer": producer, "n": n})
                for n in range(number, number + count)
            ]
            if count == 1:
                queue.send(messages[0].body, headers=messages[0].headers)
            else:
                queue.send_many(messages)
            number += count

    def subscribe(self, selector: str | None = None, prefetch: int = 1000) -> Consumer:
        consumer = self.bay.queue("orders").subscribe(selector=selector, prefetch=prefetch)
        self.consumers.append(consumer)
        return consumer

    def consume(self, consumer: Consumer, seed: int, return_share: float = 0.0) -> None:
        """Until all is acknowledged; then whoever sees it closes all consumers."""
        random, mine = Random(seed), list[Key]()
        self.acknowledged.append(mine)
        while True:
            try:
                deliveries = consumer.take(random.choice((1, 5, 50)), timeout=None)
            except Closed:
                return
            returned = [delivery for delivery in deliveries if random.random() < return_share and delivery.attempts < 5]
            done = [delivery for delivery in deliveries if delivery not in returned]
            random.choice((consumer.nack, self._nack_each))(returned)
            mine += map(key, done)
            random.choice((consumer.ack, self._ack_each))(done)
            self._finished(len(done))

    def _nack_each(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.nack()

    def _ack_each(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.ack()

    def _finished(self, count: int) -> None:
        with self._lock:
            self._left -= count
            is_end = self._left == 0
        if is_end:
            for consumer in self.consumers:
                consumer.close()

    def end(self) -> None:
        """Each was acknowledged exactly once."""
        self.crew.join()
        counts = Counter(key for mine in self.acknowledged for key in mine)
        assert counts == Counter(self.keys)
        assert self.bay.queue("orders").depth == 0
        check(self.bay)


def key(delivery: Delivery) -> Key:
    headers = delivery.headers
    producer, number = headers["producer"], headers["n"]
    assert isinstance(producer, int) and isinstance(number, int)
    return producer, number


MIXES: dict[str, list[str | None]] = {
    "one selector group": [None, None, None, None],
    "a selector each": ["producer = 0", "producer = 1", "producer = 2", "producer = 3"],
    "overlapping selectors": [None, "n >= 0", None, "producer < 2"],
}


@pytest.mark.parametrize("mix", MIXES)
def test_four_producers_and_four_consumers_deliver_each_message_once_and_in_order(bay: Forebay, mix: str) -> None:
    traffic = Traffic(bay, producers=4, each=800)
    traffic.produce(0)  # a backlog, so that the loader has work
    for seed, selector in enumerate(MIXES[mix]):
        consumer = traffic.subscribe(selector)
        traffic.crew.start(partial(traffic.consume, consumer, seed))
    for producer in range(1, 4):
        traffic.crew.start(partial(traffic.produce, producer))
    traffic.end()
    for mine in traffic.acknowledged:
        for producer in range(4):
            numbers = [number for sender, number in mine if sender == producer]
            assert numbers == sorted(numbers), f"out of order for producer {producer}"


def test_messages_that_come_back_meanwhile_are_neither_lost_nor_doubled(bay: Forebay) -> None:
    traffic = Traffic(bay, producers=2, each=800)
    for seed, selector in enumerate((None, "n >= 0", None)):
        consumer = traffic.subscribe(selector, prefetch=60)
        traffic.crew.start(partial(traffic.consume, consumer, seed, return_share=0.3))
    traffic.crew.start(partial(traffic.produce, 0), partial(traffic.produce, 1))
    traffic.end()


def test_consumers_that_come_and_go_take_nothing_along(bay: Forebay) -> None:
    traffic = Traffic(bay, producers=2, each=800)
    staying = traffic.subscribe()
    is_over = threading.Event()

    def come_and_go(seed: int) -> None:
        random = Random(seed)
        while not is_over.is_set():
            with bay.queue("orders").subscribe(selector=random.choice((None, "n >= 100"))) as consumer:
                consumer.take(random.choice((1, 20)), timeout=0.001)

    def stay() -> None:
        try:
            traffic.consume(staying, 0)
        finally:
            is_over.set()

    traffic.crew.start(stay, partial(come_and_go, 1), partial(come_and_go, 2))
    traffic.crew.start(partial(traffic.produce, 0), partial(traffic.produce, 1))
    traffic.end()


@pytest.mark.parametrize("round_", range(3))
def test_a_store_closed_in_full_traffic_keeps_what_was_confirmed(tmp_path: Path, round_: int) -> None:
    bay, crew = open_in(tmp_path), Crew()
    sent: list[list[str]] = [[], [], []]
    done: list[list[str]] = [[], []]
    enough = threading.Event()

    def produce(mine: list[str]) -> None:
        try:  # a thread that starts late finds the store closed
            queue = bay.queue("orders")
            while True:
                mine.append(queue.send(b"x" * 1000))
                if len(mine) > 200:
                    enough.set()
        except Closed:
            pass

    def consume(mine: list[str]) -> None:
        try:
            for delivery in bay.queue("orders").subscribe():
                delivery.ack()
                mine.append(delivery.id)
        except (Closed, StateError):  # StateError: the close took it back between take and ack
            pass

    crew.start(*(partial(produce, mine) for mine in sent), *(partial(consume, mine) for mine in done))
    assert enough.wait(PATIENCE_SECONDS)
    bay.close()
    crew.join()
    with open_in(tmp_path) as again:
        assert again.recovery.clean
        with again.queue("orders").subscribe(prefetch=0) as consumer:
            left: list[str] = []
            while deliveries := consumer.take(100, timeout=0.0):
                left += [delivery.id for delivery in deliveries]
                consumer.ack(deliveries)
    assert Counter(left + sum(done, [])) == Counter(sum(sent, []))


# Waiting.


def waiting(consumer: Consumer) -> int:
    """How many threads wait in the take of a consumer, or of its equals, for something to arrive."""
    with inside(consumer).lock:
        return consumer.selector_group.waiting


def waits_for_credit(consumer: Consumer) -> bool:
    with inside(consumer).lock:
        return consumer.waits.waits_for_credit


def test_a_take_that_waits_is_woken_by_a_send(bay: Forebay) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    with queue.subscribe() as consumer:
        for number in range(50):
            crew.start(lambda: taken.put(consumer.take(timeout=None)[0].id))
            if number % 2:
                until(lambda: waiting(consumer) == 1)
            assert queue.send(b"x") == taken.get(timeout=PATIENCE_SECONDS)
        crew.join()


def test_each_send_wakes_one_of_many_that_wait(bay: Forebay) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    consumers = [queue.subscribe() for _ in range(8)]

    def take(consumer: Consumer) -> None:
        taken.put(consumer.take(timeout=None)[0].id)

    crew.start(*(partial(take, consumer) for consumer in consumers))
    until(lambda: waiting(consumers[0]) == 8)
    sent = [queue.send(b"x") for _ in range(8)]
    crew.join()
    assert sorted(taken.get() for _ in range(8)) == sorted(sent)


def test_who_waits_for_credit_does_not_swallow_the_call_for_who_has_some(bay: Forebay) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    queue.send(b"held")
    without, ready = queue.subscribe(prefetch=1), queue.subscribe()
    (held,) = without.take(timeout=PATIENCE_SECONDS)
    crew.start(lambda: without.take(timeout=None))
    until(lambda: waits_for_credit(without))
    crew.start(lambda: taken.put(ready.take(timeout=None)[0].id))
    until(lambda: waiting(ready) == 1)
    assert queue.send(b"x") == taken.get(timeout=PATIENCE_SECONDS)
    held.ack()
    queue.send(b"y")
    crew.join()


@pytest.mark.parametrize("how", ["another thread's take", "prefetch"])
def test_who_lost_its_credit_while_it_waited_passes_the_call_on_to_who_has_some(bay: Forebay, how: str) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    without, ready = queue.subscribe(prefetch=2), queue.subscribe()

    def take(consumer: Consumer) -> None:
        taken.put(consumer.take(timeout=None)[0].id)

    for number, consumer in enumerate((without, without, ready), 1):
        crew.start(partial(take, consumer))
        until(lambda number=number: waiting(ready) == number)  # type: ignore[misc]
    if how == "prefetch":
        assert queue.send(b"first") == taken.get(timeout=PATIENCE_SECONDS)
        without.prefetch = 1
    else:
        without.prefetch = 1
        assert queue.send(b"first") == taken.get(timeout=PATIENCE_SECONDS)
    assert queue.send(b"second") == taken.get(timeout=PATIENCE_SECONDS)
    without.prefetch = 2
    queue.send(b"third")
    crew.join()


@pytest.mark.parametrize("how", ["ack", "batch", "nack", "prefetch"])
def test_a_take_that_waits_for_credit_is_woken_when_it_comes(bay: Forebay, how: str) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    first = queue.send(b"first")
    with queue.subscribe(prefetch=1) as consumer:
        (held,) = consumer.take(timeout=PATIENCE_SECONDS)
        second = queue.send(b"second")
        crew.start(lambda: taken.put(consumer.take(timeout=None)[0].id))
        until(lambda: waits_for_credit(consumer))
        if how == "prefetch":
            consumer.prefetch = 2
        elif how == "ack":
            held.ack()
        else:
            (consumer.ack if how == "batch" else consumer.nack)([held])
        assert taken.get(timeout=PATIENCE_SECONDS) == (first if how == "nack" else second)
        crew.join()


def test_a_take_that_waits_is_woken_by_what_others_return(bay: Forebay) -> None:
    queue, crew, taken = bay.queue("orders"), Crew(), SimpleQueue[str]()
    sent = [queue.send(b"x") for _ in range(3)]
    holder, consumer = queue.subscribe(), queue.subscribe()
    held: list[Delivery] = []
    while len(held) < 3:
        held += holder.take(3, timeout=PATIENCE_SECONDS)
    returns: tuple[Callable[[], None], ...] = (held[0].nack, lambda: held[1].nack(delay=0.01), holder.close)
    for expected, give_back in zip(sent, returns, strict=True):
        crew.start(lambda: taken.put(consumer.take(timeout=None)[0].id))
        until(lambda: waiting(consumer) == 1)
        give_back()
        assert taken.get(timeout=PATIENCE_SECONDS) == expected
    crew.join()


@pytest.mark.parametrize("what", ["consumer", "store"])
def test_closing_wakes_all_who_wait(bay: Forebay, what: str) -> None:
    queue, crew, ended = bay.queue("orders"), Crew(), SimpleQueue[bool]()
    queue.send(b"x")
    consumer = queue.subscribe(prefetch=1)
    consumer.take(timeout=PATIENCE_SECONDS)

    def wait_for_credit() -> None:
        with pytest.raises(Closed):
            consumer.take(timeout=None)
        ended.put(True)

    def wait_for_arrival() -> None:
        ended.put(list(other) == [])

    other = queue.subscribe(selector="n = 1")
    crew.start(wait_for_credit, wait_for_credit, wait_for_arrival, wait_for_arrival)
    until(lambda: waits_for_credit(consumer) and waiting(other) == 2)
    if what == "store":
        bay.close()
    else:
        consumer.close()
        other.close()
    crew.join()
    assert all(ended.get() for _ in range(4))


def test_on_ready_is_never_lost(bay: Forebay) -> None:
    """Hosts that take only when they are called, until nothing is left, get everything."""
    traffic = Traffic(bay, producers=4, each=400)
    hosts: list[SimpleQueue[None]] = []

    def host(prefetch: int, selector: str | None) -> None:
        calls, mine = SimpleQueue[None](), list[Key]()
        hosts.append(calls)
        traffic.acknowledged.append(mine)
        consumer = bay.queue("orders").subscribe(selector=selector, prefetch=prefetch, on_ready=lambda: calls.put(None))
        traffic.consumers.append(consumer)
        while True:
            calls.get(timeout=PATIENCE_SECONDS)
            try:
                while deliveries := consumer.take(20):
                    mine.extend(map(key, deliveries))
                    traffic.crew.start(partial(settle, consumer, deliveries))
            except Closed:
                return

    def settle(consumer: Consumer, deliveries: list[Delivery]) -> None:
        consumer.ack(deliveries)
        with traffic._lock:
            traffic._left -= len(deliveries)
            is_end = traffic._left == 0
        if is_end:
            for other in traffic.consumers:
                other.close()
            for calls in hosts:
                calls.put(None)

    traffic.crew.start(partial(host, 1000, None), partial(host, 5, None), partial(host, 30, "n >= 0"))
    until(lambda: len(traffic.consumers) == 3)
    for producer in range(4):
        traffic.crew.start(partial(traffic.produce, producer))
    traffic.end()


# Fork.


def in_child(work: Callable[[], None]) -> None:
    """Run it in a forked process, which must end by itself and well."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, "the child found something else than Closed"
            return
        if time.monotonic() > deadline:
            os.kill(child, 9)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        os.sched_yield()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork_the_childs_handles_are_dead_and_the_parent_is_unharmed(tmp_path: Path) -> None:
    bay = open_in(tmp_path)
    queue, full = bay.queue("orders"), bay.queue("full")
    full.send(b"x")
    sent = queue.send_many([Message(b"x" * 100)] * 50)
    consumer = queue.subscribe()
    held: list[Delivery] = []
    while len(held) < 10:
        held += consumer.take(10 - len(held), timeout=PATIENCE_SECONDS)
    calls: list[Callable[[], object]] = [
        lambda: queue.send(b"from the child"),
        lambda: queue.send_many([Message(b"from the child")]),
        lambda: full.send(b"from the child"),
        lambda: bay.queue("new"),
        lambda: queue.subscribe(),
        lambda: consumer.take(),
        lambda: consumer.take(10, timeout=None),
        lambda: held[0].ack(),
        lambda: consumer.ack(held),
        lambda: consumer.ack_up_to(held[1]),
        lambda: held[0].nack(),
        lambda: held[0].release(),
        lambda: held[0].reject(),
        lambda: held[0].extend(1),
        lambda: bay.checkpoint(),
        lambda: bay.cleanup(),
        lambda: bay.step(),
    ]

    def use_everything() -> None:
        for call in calls:
            with pytest.raises(Closed):
                call()
        assert list(consumer) == []
        consumer.close()
        bay.close()

    with inside(bay).lock:  # as another thread may hold it at the moment of the fork
        in_child(use_everything)
    sent.append(queue.send(b"from the parent"))
    consumer.ack(held)
    bay.close()
    with open_in(tmp_path) as again, again.queue("orders").subscribe() as later:
        assert again.recovery.clean
        left: list[str] = []
        while deliveries := later.take(100):
            left += [delivery.id for delivery in deliveries]
    assert left == sent[10:]


@interpreted("puts other locks, conditions and threads in the place of the store's")
def test_an_engine_whose_lock_cannot_be_made_anew_dies_as_well_and_lets_others_die() -> None:
    class PlainLock:
        """As what a host puts in the place of threading."""

        failure = None

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None: ...

        def break_by(self, error: BaseException) -> None: ...

    bay = SimulatedBay()
    queue = bay.queue()
    bay.lock = PlainLock()  # type: ignore[assignment]
    bay.disable_in_child()
    with pytest.raises(Closed):
        queue.send(b"from the child")
