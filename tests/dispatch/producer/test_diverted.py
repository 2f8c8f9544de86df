"""when_full="dead_letter": what a full destination has no room for is in its dead-letter queue, and says why."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay, run_jumping
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk

from forebay import DestinationPolicy, Message, MessageTooLarge, SettingsError, StoreFull
from forebay.store.format.record import PROPERTIES_BYTES_MAX


def policy(**fields: Any) -> DestinationPolicy:
    return DestinationPolicy(when_full="dead_letter", **fields)


def limited(**fields: Any) -> SimulatedBay:
    return SimulatedBay(policies={"orders": policy(**fields), "prices": policy(**fields)})


def counts(bay: SimulatedBay) -> tuple[int, int]:
    found = bay.bay.statistics().destinations["orders"]
    return found.dead_lettered, found.dropped


@pytest.mark.parametrize("persistent", [True, False])
def test_what_has_no_room_is_a_dead_letter_that_says_where_it_was_sent(persistent: bool) -> None:
    bay = limited(max_messages=1)
    queue, dead = bay.queue(), bay.queue("DLQ.orders")
    queue.send(b"0")
    id = queue.send(b"1", headers={"kind": 1}, priority=7, persistent=persistent, group="g", expires_in=5.0, delay=2.0)
    assert bodies(queue.browse()) == [b"0"]
    [found] = dead.browse()
    assert (found.body, found.priority, found.persistent, found.group) == (b"1", 7, persistent, "g")
    assert found.headers == {
        "kind": 1,
        "dead_letter_from": "orders",
        "dead_letter_reason": "full",
        "dead_letter_attempts": 0,
        "dead_letter_time": bay.clock.time_ms(),
    }
    assert found.message_id == id and dead.find(id) is not None
    assert counts(bay) == (1, 0)
    with dead.subscribe() as undertaker:
        [delivery] = undertaker.take()  # at once, and it expires no more
        assert delivery.expires_at is None
        delivery.ack()
    bay.check()


def test_of_a_batch_what_finds_room_is_in_the_queue_and_the_rest_in_the_other_in_order() -> None:
    bay = limited(max_messages=3)
    ids = bay.queue().send_many(
        Message(b"%d" % n, message_id=f"own {n}" if n % 2 else None, persistent=n % 3 > 0) for n in range(10)
    )
    assert len(set(ids)) == 10 and ids[5] == "own 5"
    assert bodies(bay.queue().browse()) == [b"0", b"1", b"2"]
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"%d" % n for n in range(3, 10)]
    assert [message.message_id for message in bay.queue("DLQ.orders").browse()] == ids[3:]
    bay.crash(is_index_lost=True)
    assert bodies(bay.queue().browse()) == [b"1", b"2"]
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"4", b"5", b"7", b"8"]
    bay.check()


def test_room_that_comes_is_used_again() -> None:
    bay = limited(max_bytes=10)
    queue = bay.queue()
    for n in range(3):
        queue.send(b"%08d" % n)
    queue.purge()
    queue.send(b"%08d" % 3)
    assert bodies(queue.browse()) == [b"%08d" % 3]
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"%08d" % 1, b"%08d" % 2]
    with pytest.raises(MessageTooLarge):
        queue.send(bytes(11))


def test_without_a_dead_letter_queue_it_is_lost_and_counted() -> None:
    bay = limited(max_messages=1, dead_letter_queue=None)
    bay.queue().send(b"0")
    assert bay.queue().send(b"1")
    assert bodies(bay.queue().browse()) == [b"0"] and bay.bay.destinations() == ["orders"]
    assert counts(bay) == (0, 1)


def test_limits_of_a_dead_letter_queue_refuse_what_is_sent_to_it_alone() -> None:
    bay = SimulatedBay(policies={">": policy(max_messages=1)})
    for n in range(3):
        bay.queue().send(b"%d" % n)
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"1", b"2"]
    with pytest.raises(StoreFull):
        bay.queue("DLQ.orders").send(b"3")
    assert sorted(bay.bay.destinations()) == ["DLQ.orders", "orders"]


def test_what_a_full_topic_has_no_room_for_is_a_dead_letter_too() -> None:
    bay = limited(max_messages=2)
    topic = bay.bay.topic("prices")
    with topic.subscribe() as consumer:
        for n in range(4):
            topic.send(b"%d" % n)
        assert [delivery.body for delivery in consumer.take(10)] == [b"0", b"1"]
    assert bodies(bay.queue("DLQ.prices").browse()) == [b"2", b"3"]


@pytest.mark.parametrize("wrong", [{"priority": 10}, {"persistent": 1}, {"headers": {"a": ()}}, {"delay": -1.0}])
def test_what_makes_no_sense_is_refused_also_where_there_is_no_room(wrong: dict[str, Any]) -> None:
    bay = limited(max_messages=1)
    bay.queue().send(b"0")
    with pytest.raises(SettingsError):
        bay.queue().send(b"1", **wrong)
    assert bay.bay.destinations() == ["orders"] and counts(bay) == (0, 0)


def test_what_was_diverted_is_no_duplicate_later() -> None:
    bay = limited(max_messages=1, duplicate_window=10)
    queue = bay.queue()
    queue.send(b"0")
    assert queue.send(b"1", message_id="a") == "a"
    queue.purge()
    queue.send(b"1", message_id="a")
    queue.send(b"1", message_id="a")
    assert bodies(queue.browse()) == bodies(bay.queue("DLQ.orders").browse()) == [b"1"]


def test_headers_without_room_for_the_reason_stay_as_they_are() -> None:
    bay = SimulatedBay(policies={"orders": policy(max_messages=1)}, memory_limit="64MiB")
    bay.queue().send(b"0")
    headers = {"a": bytes(PROPERTIES_BYTES_MAX - 20)}
    bay.queue().send(b"1", headers=headers)
    [found] = bay.queue("DLQ.orders").browse()
    assert found.headers == headers


def test_on_a_full_disk_dead_letters_go_on_where_sends_are_refused() -> None:
    bay = SimulatedBay(policies={"orders": policy(max_messages=1)}, max_file_length="64KiB")
    queue, other = bay.queue(), bay.queue("other")
    queue.send(b"0")
    bay.queue("DLQ.orders").send(b"there is one")
    bay.disk.capacity_bytes = 16 * 65_536
    with pytest.raises(StoreFull):
        while True:
            other.send(bytes(1_000))
    queue.send(bytes(1_000))
    with pytest.raises(StoreFull):
        other.send(bytes(1_000))
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"there is one", bytes(1_000)]
    with pytest.raises(StoreFull):
        while True:
            queue.send(bytes(1_000))
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())  # acks have the rest of the reserve
    bay.check()


def test_a_cut_at_any_call_leaves_each_confirmed_message_in_one_of_the_two() -> None:
    settings: dict[str, Any] = {"sync": "always", "max_file_length": "64KiB"}
    bay = SimulatedBay(policies={"orders": policy(max_messages=3)}, **settings)
    confirmed: list[bytes] = []
    images: list[tuple[SimulatedDisk, list[bytes]]] = []
    random = Random(3)

    def cut(call: str, name: str) -> None:
        images.append((bay.disk.crash_process(), list(confirmed)))
        images.append((bay.disk.crash_power(random, PowerCut.ANY), list(confirmed)))

    queue = bay.queue()
    bay.disk.on_call = cut
    for n in range(9):
        queue.send(b"%d" % n, group="g" if n == 5 else None)
        confirmed.append(b"%d" % n)
    bay.disk.on_call = None
    assert len(images) > 30
    for image, known in images:
        left = SimulatedBay(**settings)
        left.disk, left.metadata = image, type(left.metadata)()
        left.open_again()
        found = bodies(left.queue().browse()) + bodies(left.queue("DLQ.orders").browse())
        assert found == sorted(set(found), key=int) and found[: len(known)] == known


@pytest.mark.parametrize("sync", ["never", "always"])
def test_a_full_queue_diverts_in_a_loop_too(sync: str) -> None:
    async def main() -> None:
        bay = LoopBay(policies={"orders": policy(max_messages=2)}, sync=sync)
        queue = await bay.aio.queue("orders")
        ids = list(await asyncio.gather(*[queue.send(b"%d" % n) for n in range(4)]))
        ids += await queue.send_many([Message(b"%d" % n, persistent=n < 6) for n in range(4, 8)])
        assert len(set(ids)) == 8
        assert [message.body async for message in queue.browse()] == [b"0", b"1"]
        dead = await bay.aio.queue("DLQ.orders")
        assert [message.body async for message in dead.browse()] == [b"%d" % n for n in range(2, 8)]
        assert [message.message_id async for message in dead.browse()] == ids[2:]

    run_jumping(main())
