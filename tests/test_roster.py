"""What it costs that destinations and subscriptions exist."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

import forebay
from forebay import SettingsError, StoreFull
from forebay.dispatch.roster import ENTRY_BYTES
from simulated_bay import SimulatedBay

MANY = 10_000


def charged(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["destinations"]


def test_each_destination_and_subscription_is_charged_until_it_ends() -> None:
    assert ENTRY_BYTES <= 256
    bay = SimulatedBay()
    bay.queue("orders")
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    assert charged(bay) == 3 * ENTRY_BYTES
    with prices.subscribe():
        assert charged(bay) == 4 * ENTRY_BYTES
        bay.check()
    bay.reopen()
    assert charged(bay) == 3 * ENTRY_BYTES
    bay.bay.topic("prices").unsubscribe("audit")
    bay.queue("orders").delete()
    assert charged(bay) == ENTRY_BYTES
    bay.check()
    bay.crash(is_index_lost=True)
    assert charged(bay) == ENTRY_BYTES
    bay.check()


@pytest.mark.parametrize("what", ["queue", "topic", "durable"])
def test_where_memory_has_no_room_for_another_it_is_refused_and_the_store_goes_on(what: str) -> None:
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
    assert charged(bay) == number * ENTRY_BYTES + 2 * ENTRY_BYTES
    bay.check()
    with orders.subscribe() as consumer:
        consumer.take()[0].ack()
    bay.reopen()
    assert charged(bay) == number * ENTRY_BYTES + 2 * ENTRY_BYTES
    orders, prices = bay.queue("orders"), bay.bay.topic("prices")
    with pytest.raises(StoreFull):
        make(MANY)
    orders.delete()
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


def real_bytes(make: object) -> int:
    """What stays in RAM of it, by the interpreter's own count."""
    gc.collect()
    tracemalloc.start()
    try:
        make()  # type: ignore[operator]
        gc.collect()
        return tracemalloc.get_traced_memory()[0] // MANY
    finally:
        tracemalloc.stop()


def test_ten_thousand_idle_destinations_and_offline_subscriptions(tmp_path: Path) -> None:
    with forebay.open(tmp_path, memory_limit="64MiB", sync="never", background=False) as bay:
        prices = bay.topic("prices")

        def queues() -> None:
            for number in range(MANY):
                bay.queue(f"q{number}")

        def used() -> None:
            for number in range(MANY):
                queue = bay.queue(f"q{number}")
                queue.send(b"x")
                with queue.subscribe() as consumer:
                    consumer.take()[0].ack()

        def subscriptions() -> None:
            for number in range(MANY):
                prices.subscribe(durable=f"s{number}").close()

        def behind() -> None:
            prices.send_many(forebay.Message(b"x") for _ in range(2000))
            bay.checkpoint()

        idle = real_bytes(queues)
        after_use = real_bytes(used)
        assert idle < 1024 and idle + after_use < 4096, (idle, after_use)
        fresh = real_bytes(subscriptions)
        with_backlog = real_bytes(behind)
        assert fresh < 600 and fresh + with_backlog < 1280, (fresh, with_backlog)
        assert bay.statistics().memory.holders["destinations"] == (2 * MANY + 1) * ENTRY_BYTES
        bay._engine.audit()


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
