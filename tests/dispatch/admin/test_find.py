"""Find: a pending message by its id, at once where the id tells the place; nothing for whatever is no id."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Closed, Message, MessagesUnreadable, SettingsError
from forebay.store.disk.layout import data_log_name


def test_generated_id_is_found_with_one_read_at_any_depth() -> None:
    simulated = SimulatedBay(max_file_length="64KiB")
    queue = simulated.queue()
    ids = queue.send_many(Message(b"%d" % n, headers={"n": n}, priority=n % 2) for n in range(50_000))
    simulated.reopen()
    queue = simulated.queue()
    before = simulated.reads
    for n in (0, 1, 49_999, 33_333):
        found = queue.find(ids[n])
        assert found is not None
        assert (found.body, found.headers, found.priority, found.message_id) == (b"%d" % n, {"n": n}, n % 2, ids[n])
    assert simulated.reads - before <= 8  # each a record, and once the header of its data log
    assert queue.depth == 50_000
    simulated.check()


def test_message_in_flight_is_found_and_one_that_is_acknowledged_is_not() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    ids = queue.send_many([Message(b"1"), Message(b"2")])
    with queue.subscribe() as consumer:
        [delivery] = consumer.take(1)
        found = queue.find(ids[0])
        assert found is not None and found.body == b"1"
        delivery.ack()
        assert queue.find(ids[0]) is None
        assert queue.find(ids[1]) is not None


@pytest.mark.parametrize("persistent", [True, False])
def test_own_id_is_found_at_any_depth(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"", message_id=f"id {n}") for n in range(25_000))
    queue.send(b"behind", message_id="behind", persistent=persistent, priority=2)
    for wanted in ("id 24999", "id 0", "behind"):
        found = queue.find(wanted)
        assert found is not None and found.message_id == wanted
    assert queue.find("id") is None  # a part of many
    simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_an_id_that_a_transaction_gave_is_found_from_the_commit_on_and_never_after_a_rollback(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"") for _ in range(11_000))
    committed, rolled_back = simulated.bay.transaction(), simulated.bay.transaction()
    ids = [queue.send(b"x", persistent=persistent, transaction=found) for found in (committed, rolled_back)]
    assert [queue.find(found) for found in ids] == [None, None]
    committed.commit()
    rolled_back.rollback()
    found = queue.find(ids[0])
    assert found is not None and (found.body, found.message_id) == (b"x", ids[0])
    assert queue.find(ids[1]) is None


def test_a_message_that_came_back_from_the_dead_letter_queue_is_found_by_the_id_that_it_had() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    generated = queue.send(b"x")
    with queue.subscribe() as consumer:
        consumer.reject(consumer.take())
    dead = simulated.queue("DLQ.orders")
    assert queue.find(generated) is None
    for place in (dead, queue):
        found = place.find(generated)
        assert found is not None and found.body == b"x", f"{place} does not know {generated}"
        dead.move(queue)


def test_where_a_message_can_not_be_read_find_does_not_say_that_it_is_not_there() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    ids = [queue.send(b"body %d" % number, message_id=f"own {number}") for number in range(3)] + [queue.send(b"body 3")]
    simulated.reopen()
    queue = simulated.queue()
    image = simulated.disk.image()[data_log_name(1)]
    for number in (1, 3):
        simulated.disk.flip_bit(data_log_name(1), image.index(b"body %d" % number), 0)
    assert [queue.find(ids[number]) is not None for number in (0, 2)] == [True, True]
    for number in (1, 3):
        with pytest.raises(MessagesUnreadable) as caught:
            queue.find(ids[number])
        assert (caught.value.unreadable, caught.value.message_id) == (2, ids[number])


def test_id_that_imitates_a_place_finds_no_other_message() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    generated = queue.send(b"1")
    queue.send(b"2", message_id="own")
    prefix = generated.removesuffix("0")
    assert queue.find(f"{prefix}1") is None
    assert queue.find(f"{prefix}01") is queue.find(f"{prefix}00") is None


def test_ids_of_other_queues_and_priorities_find_nothing() -> None:
    simulated = SimulatedBay()
    orders, prices = simulated.queue(), simulated.queue("prices")
    assert prices.find(orders.send(b"1")) is None
    assert orders.find(prices.send(b"1", priority=9)) is None


@pytest.mark.parametrize(
    "garbage", ["", "-", "x" * 100_000, "\udc80", "²", "٣", "0", "9" * 30, "-1", " 1", "1_0", "\0", "0x1", "1e3"]
)
def test_garbage_finds_nothing_and_raises_nothing(garbage: str) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    prefix = queue.send(b"1").removesuffix("0")
    queue.send(b"2", message_id="own")
    assert queue.find(garbage) is None or garbage == "0"
    assert queue.find(prefix + garbage) is None or garbage == "0"


@pytest.mark.parametrize("message_id", [None, 7, b"1"])
def test_what_is_no_str_is_refused(message_id: Any) -> None:
    with pytest.raises(SettingsError):
        SimulatedBay().queue().find(message_id)


def test_closed_store_finds_nothing() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    message_id = queue.send(b"1")
    simulated.bay.close()
    with pytest.raises(Closed):
        queue.find(message_id)
