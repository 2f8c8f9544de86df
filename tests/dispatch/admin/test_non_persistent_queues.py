"""Non-persistent messages in what is done with whole queues: browse, find, move, purge, delete."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import Closed, Message, Queue

COUNT = 6000


def number_of(message: Message) -> int:
    return int(message.body.rstrip(b"\0"))


def is_persistent(number: int) -> bool:
    return number % 2 == 0


@pytest.fixture
def bay() -> SimulatedBay:
    """More than RAM holds, of both kinds and two priorities."""
    bay = SimulatedBay(memory_limit="4MiB")
    for number in range(COUNT):
        bay.queue("mixed").send(
            b"%d" % number + bytes(1000), persistent=is_persistent(number), priority=4 if number % 3 else 5
        )
    assert bay.bay.statistics().tmp_storage.messages > 1000
    return bay


def numbers_in(queue: Queue) -> list[int]:
    messages = list(queue.browse())
    for message in messages:
        assert message.persistent == is_persistent(number_of(message))
    return [number_of(message) for message in messages]


def in_order(numbers: list[int]) -> list[int]:
    return sorted(numbers, key=lambda number: (number % 3 != 0, number))


def test_browse_yields_both_kinds_by_arrival(bay: SimulatedBay) -> None:
    assert numbers_in(bay.queue("mixed")) == in_order(list(range(COUNT)))
    bay.check()


def test_browse_finds_what_a_load_has_taken_from_the_caches() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    for number in range(100):
        queue.send(b"%d" % number, persistent=False)
    with queue.subscribe():
        (target,) = bay.lists()
        with bay.lock:
            load = bay.loader.begin(target, is_needed=False)
        assert load is not None and load.held
        assert len(list(queue.browse())) == 100
        bay.loader.finish(load)
    bay.check()


def test_find_knows_both_kinds_by_their_ids(bay: SimulatedBay) -> None:
    queue = bay.queue("mixed")
    for message in list(queue.browse())[::500]:
        assert message.message_id is not None
        assert queue.find(message.message_id) == message


def test_move_brings_each_message_into_one_queue(bay: SimulatedBay) -> None:
    queue, other = bay.queue("mixed"), bay.queue("other")
    assert queue.move("other", limit=3000) == 3000
    assert (queue.depth, other.depth) == (3000, 3000)
    bay.check()
    assert sorted(numbers_in(queue) + numbers_in(other)) == list(range(COUNT))
    assert queue.move("other") == 3000 and queue.depth == 0
    bay.check()
    bay.reopen()
    assert sorted(numbers_in(bay.queue("other"))) == [number for number in range(COUNT) if is_persistent(number)]


def test_what_is_in_flight_is_not_moved(bay: SimulatedBay) -> None:
    queue = bay.queue("mixed")
    with queue.subscribe(prefetch=0) as consumer:
        held = consumer.take(100)
        while len(held) < 100:
            held += consumer.take(100 - len(held))
        assert {delivery.persistent for delivery in held} == {True, False}
        assert queue.move("other") == COUNT - 100
        consumer.ack(held)
    assert queue.depth == 0
    bay.check()


def test_purge_takes_both_kinds_and_gives_tmp_storage_back(bay: SimulatedBay) -> None:
    assert bay.queue("mixed").purge() == COUNT
    bay.check()
    assert bay.bay.statistics().tmp_storage.bytes == 0


def test_deleted_queue_leaves_nothing_in_tmp_storage_and_takes_nothing_more(bay: SimulatedBay) -> None:
    queue = bay.queue("mixed")
    consumer = queue.subscribe()
    assert consumer.take(10)
    queue.delete()
    with pytest.raises(Closed):
        queue.send(b"late", persistent=False)
    bay.check()
    assert bay.bay.statistics().tmp_storage.bytes == 0
    assert not bay.overflow.lanes
    assert bay.queue("mixed").depth == 0
