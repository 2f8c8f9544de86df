"""Benchmarks of dispatch: messages sent, taken and settled through the public interface, alone and in batches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

import forebay
from forebay.benchmarks.calibration import AgainstFloor

MESSAGES = 2048
BATCH = 256
BODY = bytes(range(256)) * 4


@pytest.fixture
def new_queue(bay: forebay.Forebay) -> Callable[[], forebay.Queue]:
    numbers = count()
    return lambda: bay.queue(f"bench-{next(numbers)}")


def settle(consumer: forebay.Consumer, messages: int, batch: int) -> None:
    for _ in range(messages // batch):
        deliveries = consumer.take(batch)
        assert len(deliveries) == batch
        consumer.ack(deliveries)


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
def test_one_by_one(against_floor: AgainstFloor, new_queue: Callable[[], forebay.Queue], persistent: bool) -> None:
    def go(queue: forebay.Queue) -> None:
        with queue.subscribe() as consumer:
            for _ in range(MESSAGES):
                queue.send(BODY, persistent=persistent)
                [delivery] = consumer.take(1)
                consumer.ack(delivery)

    against_floor(MESSAGES, new_queue, go)


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "non_persistent"])
def test_in_batches(against_floor: AgainstFloor, new_queue: Callable[[], forebay.Queue], persistent: bool) -> None:
    messages = [forebay.Message(BODY, persistent=persistent)] * BATCH

    def go(queue: forebay.Queue) -> None:
        with queue.subscribe() as consumer:
            for _ in range(MESSAGES // BATCH):
                queue.send_many(messages)
                settle(consumer, BATCH, BATCH)

    against_floor(MESSAGES, new_queue, go)


def test_among_a_hundred_consumers(against_floor: AgainstFloor, new_queue: Callable[[], forebay.Queue]) -> None:
    def go(queue: forebay.Queue) -> None:
        consumers = [queue.subscribe() for _ in range(100)]
        for number in range(MESSAGES):
            queue.send(BODY)
            consumer = consumers[number % 100]
            [delivery] = consumer.take(1)
            consumer.ack(delivery)
        for consumer in consumers:
            consumer.close()

    against_floor(MESSAGES, new_queue, go)


def test_given_back_and_taken_again(against_floor: AgainstFloor, new_queue: Callable[[], forebay.Queue]) -> None:
    def go(queue: forebay.Queue) -> None:
        queue.send_many([forebay.Message(BODY)] * MESSAGES)
        with queue.subscribe(prefetch=0) as consumer:
            for _ in range(MESSAGES // BATCH):
                consumer.nack(consumer.take(BATCH))
                settle(consumer, BATCH, BATCH)

    against_floor(MESSAGES, new_queue, go)
