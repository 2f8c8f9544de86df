"""What it costs that destinations and subscriptions exist."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
from forebay import SettingsError, StoreFull
from forebay.dispatch.core.overhead import QUEUE_BYTES, SUBSCRIPTION_BYTES, TOPIC_BYTES

MANY = 10_000


def charged(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["destinations"]


def test_each_destination_and_subscription_is_charged_until_it_ends() -> None:
    bay = SimulatedBay()
    bay.queue("orders")
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    three = QUEUE_BYTES + TOPIC_BYTES + SUBSCRIPTION_BYTES
    assert charged(bay) == three
    with prices.subscribe():
        assert charged(bay) == three + SUBSCRIPTION_BYTES
        bay.check()
    bay.reopen()
    assert charged(bay) == three
    bay.bay.topic("prices").unsubscribe("audit")
    bay.queue("orders").delete()
    assert charged(bay) == TOPIC_BYTES
    bay.check()
    bay.crash(is_index_lost=True)
    assert charged(bay) == TOPIC_BYTES
    bay.check()


@pytest.mark.parametrize(
    ("what", "each_bytes"), [("queue", QUEUE_BYTES), ("topic", TOPIC_BYTES), ("durable", SUBSCRIPTION_BYTES)]
)
def test_where_memory_has_no_room_for_another_it_is_refused_and_the_store_goes_on(what: str, each_bytes: int) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    orders, prices = bay.queue("orders"), bay.bay.topic("prices")
    orders.send(b"x")

    def make(number: int) -> None:
        if what == "queue":
            bay.queue(f"q{number}")
        elif what == "topic":
            bay.bay.topic(f"t{number}")
        else:
            prices.subscribe(durable=f"s{number}").close()

    with pytest.raises(StoreFull) as full:
        for number in range(MANY):
            make(number)
    assert full.value.limit == "memory_limit"
    assert charged(bay) == number * each_bytes + QUEUE_BYTES + TOPIC_BYTES
    bay.check()
    with orders.subscribe() as consumer:
        consumer.take()[0].ack()
    bay.reopen()
    assert charged(bay) == number * each_bytes + QUEUE_BYTES + TOPIC_BYTES
    orders, prices = bay.queue("orders"), bay.bay.topic("prices")
    with pytest.raises(StoreFull):
        make(MANY)
    orders.delete()
    if each_bytes <= QUEUE_BYTES:
        make(MANY)
    bay.check()


def test_a_limit_too_low_for_those_that_exist_is_refused_at_open(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="32MiB", sync="never", background=False) as bay:
        prices = bay.topic("prices")
        for number in range(MANY):
            prices.subscribe(durable=f"s{number}").close()
    with pytest.raises(SettingsError, match="10,001 destinations"):
        forebay.open(tmp_path, memory_limit="4MiB")
    with forebay.open(tmp_path, memory_limit="32MiB", background=False) as bay:
        assert len(bay.topic("prices").subscriptions()) == MANY


def real_bytes(make: Callable[[int], object], count: int) -> int:
    """What stays in RAM of each, by the interpreter's own count."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(count):
            make(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // count
    finally:
        tracemalloc.stop()


COUNTS = [1_000, pytest.param(MANY, marks=pytest.mark.soak)]


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", COUNTS)
def test_idle_destinations_are_charged_what_they_take(tmp_path: Path, count: int) -> None:
    with forebay.open(tmp_path, memory_limit="64MiB", sync="never", background=False) as bay:

        def use(number: int) -> None:
            queue = bay.queue(f"q{number}")
            queue.send(b"x")
            with queue.subscribe() as consumer:
                consumer.take()[0].ack()

        topic = real_bytes(lambda number: bay.topic(f"t{number}"), count)
        queue = real_bytes(lambda number: bay.queue(f"q{number}"), count)
        assert TOPIC_BYTES // 2 < topic <= TOPIC_BYTES, topic
        assert QUEUE_BYTES // 2 < queue <= QUEUE_BYTES, queue
        assert bay.statistics().memory.holders["destinations"] == count * (QUEUE_BYTES + TOPIC_BYTES)
        assert queue + real_bytes(use, count) < 4096
        inside(bay).audit()


@interpreted("weighs Python objects")
@pytest.mark.parametrize("count", COUNTS)
def test_offline_subscriptions_are_charged_what_they_take(tmp_path: Path, count: int) -> None:
    """However many messages wait for them: here some of one priority."""
    with forebay.open(tmp_path, memory_limit="64MiB", sync="never", background=False) as bay:
        prices = bay.topic("prices")
        alone = real_bytes(lambda number: prices.subscribe(durable=f"s{number}").close(), count)
        assert bay.statistics().memory.holders["destinations"] == TOPIC_BYTES + count * SUBSCRIPTION_BYTES
        with_backlog = alone + real_bytes(lambda number: prices.send(b"x") if number < 10 else None, count)
        assert SUBSCRIPTION_BYTES // 2 < with_backlog <= SUBSCRIPTION_BYTES, (alone, with_backlog)
        inside(bay).audit()


@pytest.mark.parametrize("count", [200, pytest.param(MANY, marks=pytest.mark.soak)])
def test_destinations_and_subscriptions_that_ended_leave_nothing(count: int) -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    prices = bay.bay.topic("prices")

    def churn(count: int) -> None:
        for number in range(count):
            queue = bay.queue(f"q{number}")
            queue.send(b"x")
            audit, screen = prices.subscribe(durable=f"s{number}"), prices.subscribe(selector="n = 1")
            prices.send(b"x", headers={"n": number % 2})
            with queue.subscribe() as consumer:
                audit.take()[0].ack()
                consumer.take()
            audit.close()
            screen.close()
            prices.unsubscribe(f"s{number}")
            queue.delete()
            if number % 100 == 0:
                bay.clock.advance(1.0)
                bay.bay.step()
        bay.bay.cleanup()
        bay.bay.step()
        bay.check()
        gc.collect()

    churn(200)
    before, objects = bay.bay.statistics().memory, len(gc.get_objects())
    churn(count)
    after = bay.bay.statistics().memory
    assert len(gc.get_objects()) - objects < 200
    assert after.holders == before.holders | {"index": after.holders["index"]}
    assert after.holders["index"] <= before.holders["index"] + 2 * 5632
