"""The DispatchArea: deliveries in flight are charged and bounded, and other consumers still get messages."""

from __future__ import annotations

import pytest
from delivering import send_equal, take_all
from simulated_bay import SimulatedBay

from forebay import Closed, Delivery, DestinationPolicy, Message, Queue, StateError
from forebay.cache.accounting.charge import OVERHEAD_BYTES

KIB = 1024
BODY = bytes(KIB)


def test_deliveries_beyond_half_of_memory_are_lazy_and_whole(bay: SimulatedBay, queue: Queue) -> None:
    sent = send_equal(queue, 2000, bytes(range(256)) * 4)
    with queue.subscribe(prefetch=0) as consumer:
        deliveries: list[Delivery] = []
        while len(deliveries) < 1500:
            deliveries += consumer.take(100)
        half, most = bay.dispatch_area.dispatch_bytes_max, bay.dispatch_area.in_flight_bytes_max
        assert half < bay.bay.statistics().memory.holders["dispatch_area"] <= most
        for number, delivery in enumerate(deliveries):
            assert delivery.body == bytes(range(256)) * 4
            assert (delivery.id, delivery.headers, delivery.attempts) == (sent[number], {"n": number}, 1)
            assert delivery.timestamp == bay.clock.time_ms()
        bay.check()
        consumer.ack(deliveries)
        assert bay.bay.statistics().memory.holders["dispatch_area"] == 0


def test_a_lazy_delivery_that_is_settled_says_so_instead_of_its_body(bay: SimulatedBay) -> None:
    bay.queue().send(bytes(600 * KIB))
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        (delivery,) = consumer.take()
        delivery.ack()
        with pytest.raises(StateError, match="settled"):
            _ = delivery.body


def test_a_lazy_delivery_of_a_closed_store_says_so(bay: SimulatedBay) -> None:
    bay.queue().send(bytes(600 * KIB))
    bay.reopen()
    (delivery,) = bay.queue().subscribe().take()
    bay.bay.close()
    with pytest.raises(Closed):
        _ = delivery.body


def test_max_bytes_of_a_take_counts_no_message_that_memory_refuses() -> None:
    bay = SimulatedBay(policies={"prices.kept": DestinationPolicy(memory_reserve="512KiB")})
    crowded, kept = bay.bay.topic("prices.crowded"), bay.bay.topic("prices.kept")
    consumer = bay.bay.topic("prices.*").subscribe(prefetch=0)
    send_equal(bay.queue(), 4000, BODY)
    take_all(bay.queue().subscribe(prefetch=0))
    assert bay.dispatch_area.is_short
    for topic in (crowded, kept):
        topic.send_many([Message(bytes(100)), Message(bytes(100))])
    taken = consumer.take(10, max_bytes=250)
    assert [delivery.destination for delivery in taken] == ["prices.crowded", "prices.kept"]
    bay.check()


def test_at_full_usage_every_other_consumer_still_gets_something(bay: SimulatedBay) -> None:
    names = ("one", "two", "three")
    sent = {name: send_equal(bay.queue(name), 4000, BODY) for name in names}
    hog = bay.queue("one").subscribe(prefetch=0)
    held = take_all(hog)
    assert 1000 < len(held) < 4000, "memory is full of what it holds"
    others = [bay.queue(name).subscribe(selector=selector) for name in names for selector in (None, "n >= 0")]
    for other in others:
        for _ in range(3):
            (delivery,) = other.take(10, timeout=1000.0)
            assert len(delivery.body) == KIB
            assert delivery.id in sent[delivery.destination]
            delivery.ack()
    assert hog.take() == []
    hog.ack(held[:1000])
    assert len(hog.take(100)) == 100
    memory = bay.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    bay.check()


def test_who_waits_for_memory_is_called_when_others_settle(bay: SimulatedBay, queue: Queue) -> None:
    send_equal(queue, 4000, BODY)
    hog, called = queue.subscribe(prefetch=0), []
    with queue.subscribe(on_ready=lambda: called.append(1)) as other:
        assert len(other.take(1)) == 1
        held = take_all(hog)
        assert other.take() == []
        called.clear()
        hog.ack(held[:500])
        assert called == [1]
        assert other.take()


def test_what_is_in_flight_is_charged_with_all_that_stands_around_it(bay: SimulatedBay, queue: Queue) -> None:
    queue.send(BODY)
    with queue.subscribe() as consumer:
        consumer.take()
        assert bay.bay.statistics().memory.holders["dispatch_area"] == KIB + OVERHEAD_BYTES
