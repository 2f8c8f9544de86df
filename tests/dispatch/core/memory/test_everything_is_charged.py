"""Each thing beside messages that takes memory is charged for exactly as long as it exists."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message
from forebay.cache.accounting.shares import CURVE_SHARE
from forebay.dispatch.core.lists.consumer_memory import RUNS_STEP_BYTES, STEP_RUNS
from forebay.dispatch.core.publisher import HELD_STEP_BYTES
from forebay.dispatch.engine.curve_watch import LIMIT_BYTES, TRACK_BYTES
from forebay.dispatch.topics.eviction.latest_per_key import PLACE_BYTES, STEP_PLACES
from forebay.store.journal.regions import PIECE_BYTES

MANY = 100
MIB = 1 << 20
BODY = b"7" * 50_000


def charged(bay: SimulatedBay, name: str) -> int:
    return bay.bay.statistics().memory.holders[name]


def test_the_curve_follows_as_many_lists_as_its_share_has_room_for() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    bay.queue().send(b"x", headers={"k": 0})
    consumers = [bay.queue().subscribe(selector=f"k = {number}") for number in range(MANY)]
    most = int(bay.budget.limit_bytes * CURVE_SHARE)
    limits = len(bay.bay.statistics().memory.curve.points)
    assert most - TRACK_BYTES - limits * LIMIT_BYTES < charged(bay, "curve") <= most
    bay.check()
    bay.bay.resize("16MiB")
    bay.bay.resize("4MiB")
    assert charged(bay, "curve") <= most
    for consumer in consumers:
        consumer.close()
    assert charged(bay, "curve") == 0
    bay.check()


def test_runs_of_what_came_back_are_charged_until_it_is_taken() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    queue.send_many(Message(b"x") for _ in range(10 * STEP_RUNS))
    with queue.subscribe(prefetch=0) as consumer:
        deliveries = consumer.take(10 * STEP_RUNS)
        before = charged(bay, "consumers")
        consumer.ack(deliveries[::2])
        consumer.release(deliveries[1::2])
        assert charged(bay, "consumers") - before == 5 * RUNS_STEP_BYTES
        bay.check()
        taken = 0
        while taken < 5 * STEP_RUNS:
            found = consumer.take(5 * STEP_RUNS)
            taken += len(found)
            consumer.ack(found)
        assert charged(bay, "consumers") <= before + RUNS_STEP_BYTES
        bay.check()
    assert charged(bay, "consumers") == 0


def test_messages_that_wait_for_their_sync_are_charged_until_it_is_done() -> None:
    bay = SimulatedBay(sync="always")
    queue = bay.queue("orders")
    queue.send(b"before")
    with bay.lock:
        lane = bay.queue_state("orders").lanes[4]
        assert lane is not None
        sequence = bay.store.message_store.add(lane.destination_lane, 0, b"", BODY)
        bay.hold_unsynced(lane, ((sequence, b"", BODY, 0),))
    assert charged(bay, "unsynced") == 2 * HELD_STEP_BYTES
    bay.check()
    queue.send(b"after")
    assert charged(bay, "unsynced") == HELD_STEP_BYTES
    with queue.subscribe() as consumer:
        assert [delivery.body for delivery in consumer.take(10)] == [b"before", BODY, b"after"]
    bay.check()


def test_where_memory_is_full_messages_are_synced_without_a_place_in_it() -> None:
    bay = SimulatedBay(sync="always", memory_limit="4MiB")
    queue = bay.queue()
    assert queue.send(b"before") and queue.get(0).body == b"before"
    with bay.full_memory():
        queue.send(b"alone")
        queue.send_many(Message(b"%d" % number) for number in range(3 * MANY))
        assert charged(bay, "unsynced") <= HELD_STEP_BYTES
    with queue.subscribe(prefetch=0) as consumer:
        bodies: list[bytes] = []
        while len(bodies) <= 3 * MANY:
            found = consumer.take(MANY)
            bodies += [delivery.body for delivery in found]
            consumer.ack(found)
    assert bodies == [b"alone", *(b"%d" % number for number in range(3 * MANY))]
    bay.check()


def latest_per_key() -> SimulatedBay:
    policy = DestinationPolicy(subscriber_max_messages=10, eviction="latest_per_key", eviction_key="part")
    return SimulatedBay(memory_limit="4MiB", policies={"prices": policy})


def test_the_keys_of_what_waits_are_charged_until_their_subscriber_has_gone() -> None:
    bay = latest_per_key()
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(prefetch=0)
    for number in range(STEP_PLACES + 1):
        topic.send(b"%d" % number, headers={"part": number})
    assert charged(bay, "keys") == 2 * STEP_PLACES * PLACE_BYTES
    bay.check()
    consumer.close()
    assert charged(bay, "keys") == 0
    bay.check()


def test_where_memory_is_full_keys_are_forgotten_and_messages_are_not() -> None:
    bay = latest_per_key()
    topic = bay.bay.topic("prices")
    topic.send(b"before")
    with topic.subscribe(prefetch=0) as consumer:
        with bay.full_memory():
            for number in range(10):
                topic.send(b"%d" % number, headers={"part": number % 2})
        assert charged(bay, "keys") == 0
        bay.check()
        bodies: list[bytes] = []
        while len(bodies) < 10:
            bodies += [delivery.body for delivery in consumer.take(10)]
        assert bodies == [b"%d" % number for number in range(10)]


class Calls(dict[str, int]):
    """The calls of a SimulatedDisk; each read of it is told of before."""

    def __init__(self, calls: dict[str, int], on_read: Callable[[], None]) -> None:
        super().__init__(calls)
        self.on_read = on_read

    def __setitem__(self, call: str, count: int) -> None:
        super().__setitem__(call, count)
        if call == "read":
            self.on_read()


@pytest.mark.parametrize("is_persistent", [True, False])
def test_headers_of_a_message_that_memory_can_not_hold_are_read_in_pieces_that_are_charged(
    *, is_persistent: bool
) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue = bay.queue()
    for number in range(3):
        queue.send(bytes(3 * MIB), headers={"n": number}, persistent=is_persistent)
    found = list[int]()
    bay.disk.calls = Calls(bay.disk.calls, lambda: found.append(charged(bay, "read_buffers")))
    with queue.subscribe(selector="n = 2") as consumer:
        tracemalloc.start()
        try:
            bay.bay.step()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert len(found) > 3 * 3 * MIB // PIECE_BYTES and set(found) == {PIECE_BYTES}
        assert peak < MIB and charged(bay, "read_buffers") == 0
        assert [delivery.headers for delivery in consumer.take()] == [{"n": 2}]
    bay.check()


def test_a_subscription_that_nobody_reads_passes_over_large_messages_in_pieces_that_are_charged() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit", selector="n = 2").close()
    for number in range(3):
        topic.send(bytes(3 * MIB), headers={"n": number})
    found = list[int]()
    bay.disk.calls = Calls(bay.disk.calls, lambda: found.append(charged(bay, "read_buffers")))
    bay.bay.step()
    assert set(found) == {PIECE_BYTES} and charged(bay, "read_buffers") == 0
    assert topic.statistics().subscriptions["audit"].depth == 1
    bay.check()
