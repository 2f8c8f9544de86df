"""How many waiting threads an arrival wakes: as many as messages came, and no message waits beside a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread

import pytest
from simulated_bay import SimulatedBay

from forebay import Closed, Consumer, Message
from forebay.store.environment.locks import OwnedCondition, OwnedLock

THREADS = 3
PATIENCE_SECONDS = 30.0


class NotedCondition(OwnedCondition):
    """Counts how many threads it was to wake."""

    __slots__ = ("woken",)

    def __init__(self, lock: OwnedLock) -> None:
        super().__init__(lock)
        self.woken = 0

    def notify(self, count: int = 1) -> None:
        self.woken += count
        super().notify(count)


def noted(simulated: SimulatedBay, consumer: Consumer) -> NotedCondition:
    """Have the threads that will wait for messages of a consumer counted."""
    condition = NotedCondition(simulated.lock)
    consumer.selector_group.arrived = condition
    return condition


def start_takes(simulated: SimulatedBay, *consumers: Consumer) -> tuple[list[Thread], SimpleQueue[bytes]]:
    """Start a thread a consumer that takes one message, one after the other, so that the first waits longest."""
    found: SimpleQueue[bytes] = SimpleQueue()

    def take(consumer: Consumer) -> None:
        try:
            (delivery,) = consumer.take(timeout=None)
        except Closed:
            return
        found.put(delivery.body)

    def are_waiting(count: int) -> bool:
        with simulated.lock:
            return consumers[0].selector_group.waiting == count

    threads: list[Thread] = []
    for consumer in consumers:
        threads.append(Thread(target=take, args=(consumer,), daemon=True))
        threads[-1].start()
        simulated.clock.wait_until(partial(are_waiting, len(threads)))
    return threads, found


def send_one(simulated: SimulatedBay) -> None:
    simulated.queue().send(b"1")


def send_one_that_is_not_persistent(simulated: SimulatedBay) -> None:
    simulated.queue().send(b"1", persistent=False)


def send_two(simulated: SimulatedBay) -> None:
    simulated.queue().send_many([Message(b"1"), Message(b"2")])


def send_two_in_a_transaction(simulated: SimulatedBay) -> None:
    with simulated.bay.transaction() as transaction:
        for body in (b"1", b"2"):
            simulated.queue().send(body, transaction=transaction)


@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize(
    ("send", "messages"),
    [(send_one, 1), (send_one_that_is_not_persistent, 1), (send_two, 2), (send_two_in_a_transaction, 2)],
)
@pytest.mark.parametrize("selector", [None, "n IS NULL"])
def test_arrivals_wake_as_many_threads_as_they_are(
    selector: str | None, send: Callable[[SimulatedBay], None], messages: int, sync: str
) -> None:
    simulated = SimulatedBay(sync=sync)
    consumer = simulated.queue().subscribe(selector=selector, prefetch=0)
    condition = noted(simulated, consumer)
    threads, found = start_takes(simulated, *[consumer] * THREADS)
    send(simulated)
    assert condition.woken == messages
    for _ in range(messages, THREADS):
        simulated.queue().send(b"3")
    bodies = sorted(found.get(timeout=PATIENCE_SECONDS) for _ in threads)
    assert bodies == [b"1", b"2"][:messages] + [b"3"] * (THREADS - messages)
    simulated.check()


@pytest.mark.parametrize("sync", ["always", "never"])
@pytest.mark.parametrize("persistent", [True, False])
def test_message_of_a_topic_wakes_one_thread_of_each_subscription(sync: str, persistent: bool) -> None:
    simulated = SimulatedBay(sync=sync)
    topic = simulated.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(2)]
    conditions = [noted(simulated, consumer) for consumer in consumers]
    takes = [start_takes(simulated, *[consumer] * THREADS) for consumer in consumers]
    topic.send(b"1", persistent=persistent)
    assert [condition.woken for condition in conditions] == [1, 1]
    assert [found.get(timeout=PATIENCE_SECONDS) for _, found in takes] == [b"1", b"1"]
    for consumer in consumers:
        consumer.close()
    simulated.check()


@pytest.mark.parametrize("sync", ["always", "never"])
def test_thread_that_is_woken_without_credit_wakes_the_next(sync: str) -> None:
    """Two messages wake both threads of a consumer that may hold one. The other message is for who waits behind."""
    simulated = SimulatedBay(sync=sync)
    queue = simulated.queue()
    narrow, other = queue.subscribe(prefetch=1), queue.subscribe()
    threads, found = start_takes(simulated, narrow, narrow, other)
    queue.send_many([Message(b"1"), Message(b"2")])
    assert {found.get(timeout=PATIENCE_SECONDS) for _ in range(2)} == {b"1", b"2"}
    assert (narrow.in_flight, other.in_flight) == (1, 1)
    narrow.close()
    threads[1].join(PATIENCE_SECONDS)
    simulated.check()


def test_callback_and_thread_that_wait_for_the_same_messages_are_both_told() -> None:
    simulated = SimulatedBay(sync="always")
    queue, ready = simulated.queue(), SimpleQueue[str]()
    consumer = queue.subscribe(prefetch=0)
    armed = queue.subscribe(on_ready=lambda: ready.put("ready"))
    assert not armed.take()
    condition = noted(simulated, consumer)
    _, found = start_takes(simulated, *[consumer] * THREADS)
    queue.send(b"1")
    assert condition.woken == 1 and ready.get_nowait() == "ready"
    assert found.get(timeout=PATIENCE_SECONDS) == b"1"
    consumer.close()
    simulated.check()
