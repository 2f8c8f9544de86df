"""What a full queue does with the next message, where its policy gives messages up."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay, run_jumping
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk

from forebay import DestinationPolicy, Message, MessageTooLarge, StoreFull


def limited(when_full: Any, **fields: Any) -> SimulatedBay:
    policy = DestinationPolicy(when_full=when_full, **fields)
    return SimulatedBay(policies={"orders": policy, "prices": policy})


def dropped(bay: SimulatedBay, name: str = "orders") -> int:
    return bay.bay.statistics().destinations[name].dropped


# ------------------------------------------------------------------ the newest


def test_drop_newest_keeps_what_is_there_and_counts_what_it_gives_up() -> None:
    bay = limited("drop_newest", max_messages=3)
    queue = bay.queue()
    ids = [queue.send(b"%d" % n) for n in range(6)]
    assert len(set(ids)) == 6
    assert bodies(queue.browse()) == [b"0", b"1", b"2"]
    assert dropped(bay) == 3
    assert bay.bay.statistics().destinations["orders"].enqueued == 3
    assert queue.find(ids[4]) is None and queue.find(ids[2]) is not None
    bay.reopen()
    assert bodies(bay.queue().browse()) == [b"0", b"1", b"2"]


def test_drop_newest_gives_up_of_a_batch_what_has_no_room() -> None:
    bay = limited("drop_newest", max_bytes=16)
    queue = bay.queue()
    ids = queue.send_many([Message(bytes(4), message_id=f"{n}") for n in range(4)])
    assert ids == ["0", "1", "2", "3"]
    assert [message.message_id for message in queue.browse()] == ["0", "1"]
    assert dropped(bay) == 2


def test_what_is_given_up_is_no_duplicate_later() -> None:
    bay = limited("drop_newest", max_messages=1, duplicate_window=10)
    queue = bay.queue()
    queue.send(b"1", message_id="a")
    queue.send(b"2", message_id="b")
    queue.purge()
    queue.send(b"2", message_id="b")
    queue.send(b"2", message_id="b")
    assert bodies(queue.browse()) == [b"2"]


# ------------------------------------------------------------------ the oldest


def test_drop_oldest_makes_room_for_the_newest() -> None:
    bay = limited("drop_oldest", max_messages=3)
    queue = bay.queue()
    for n in range(6):
        queue.send(b"%d" % n)
    assert bodies(queue.browse()) == [b"3", b"4", b"5"]
    assert dropped(bay) == 3
    bay.crash(is_index_lost=True)
    assert bodies(bay.queue().browse()) == [b"3", b"4", b"5"]
    bay.check()


def test_drop_oldest_counts_what_it_dropped_before_the_disk_was_full() -> None:
    bay = limited("drop_oldest", max_messages=4)
    queue = bay.queue()
    for n in range(4):
        queue.send(b"%d" % n, priority=n // 2)
    bay.disk.fail("write", 2, errno.ENOSPC)  # the record that removes those of the other priority
    with pytest.raises(StoreFull):
        queue.send_many([Message(b"new")] * 4, timeout=0)
    assert dropped(bay) == 4 - queue.depth == 2
    bay.check()


def test_drop_oldest_frees_as_many_bytes_as_the_message_has() -> None:
    bay = limited("drop_oldest", max_bytes=100)
    queue = bay.queue()
    for n in range(10):
        queue.send(b"%010d" % n)
    queue.send(bytes(35))
    assert bodies(queue.browse()) == [b"%010d" % n for n in range(4, 10)] + [bytes(35)]
    with pytest.raises(MessageTooLarge):
        queue.send(bytes(101))
    assert queue.depth == 7


def test_drop_oldest_makes_room_for_a_batch_at_once() -> None:
    bay = limited("drop_oldest", max_messages=10)
    queue = bay.queue()
    queue.send_many([Message(b"old") for _ in range(10)])
    records = bay.journal.next_log_sequence
    ids = queue.send_many([Message(b"%d" % n) for n in range(25)])
    assert len(ids) == 25
    assert bodies(queue.browse()) == [b"%d" % n for n in range(15, 25)]
    assert dropped(bay) == 25
    assert bay.journal.next_log_sequence - records < 10


def test_drop_oldest_for_a_large_message_writes_few_records() -> None:
    bay = limited("drop_oldest", max_bytes=10_000)
    queue = bay.queue()
    queue.send_many([Message(b"%010d" % n) for n in range(1000)])
    records = bay.journal.next_log_sequence
    queue.send(bytes(5000))
    assert bodies(queue.browse()) == [*(b"%010d" % n for n in range(500, 1000)), bytes(5000)]
    assert dropped(bay) == 500
    assert bay.journal.next_log_sequence - records <= 12
    bay.crash(is_index_lost=True)
    assert bay.queue().depth == 501
    bay.check()


def test_the_lowest_priority_goes_first_and_both_kinds_by_age() -> None:
    queue = limited("drop_oldest", max_messages=6).queue()
    queue.send(b"high", priority=9)
    for n in range(5):
        queue.send(b"%d" % n, persistent=n % 2 == 0)
    for n in range(5, 8):
        queue.send(b"%d" % n)
    assert bodies(queue.browse()) == [b"high", b"3", b"4", b"5", b"6", b"7"]
    for _ in range(5):
        queue.send(b"higher", priority=9)
    assert bodies(queue.browse()) == [b"high", *[b"higher"] * 5]


def test_what_somebody_holds_stays_and_where_all_is_held_the_newest_goes() -> None:
    bay = limited("drop_oldest", max_messages=4)
    queue = bay.queue()
    for n in range(4):
        queue.send(b"%d" % n)
    with queue.subscribe() as consumer:
        taken = consumer.take(2)
        queue.send(b"4")
        assert bodies(queue.browse()) == [b"0", b"1", b"3", b"4"]
        taken += consumer.take(2)
        queue.send(b"5")
        assert bodies(queue.browse()) == [b"0", b"1", b"3", b"4"]
        assert dropped(bay) == 2
        consumer.ack(taken)
        queue.send(b"6")
        assert [delivery.body for delivery in consumer.take(10)] == [b"6"]
    bay.check()


def test_what_a_transaction_decides_about_stays() -> None:
    bay = limited("drop_oldest", max_messages=2)
    queue = bay.queue()
    queue.send(b"0")
    queue.send(b"1")
    transaction = bay.bay.transaction()
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take(), transaction=transaction)
    queue.send(b"2")
    assert bodies(queue.browse()) == [b"0", b"2"]
    transaction.rollback()
    queue.send(b"3")
    assert bodies(queue.browse()) == [b"2", b"3"]
    bay.check()


def test_delayed_messages_are_dropped_and_never_come_back() -> None:
    bay = limited("drop_oldest", max_messages=2)
    queue = bay.queue()
    queue.send(b"0")
    queue.send(b"1")
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take(2), delay=5.0)
        queue.send(b"2")
        queue.send(b"3")
        bay.clock.advance(6.0)
        bay.bay.step()
        assert [delivery.body for delivery in consumer.take(10)] == [b"2", b"3"]
    bay.check()


@pytest.mark.parametrize("when_full", ["drop_newest", "drop_oldest", "dead_letter"])
def test_a_transaction_is_refused_and_loses_nothing(when_full: str) -> None:
    bay = limited(when_full, max_messages=2)
    queue = bay.queue()
    queue.send(b"0")
    transaction = bay.bay.transaction()
    queue.send(b"1", transaction=transaction)
    with pytest.raises(StoreFull):
        queue.send(b"2", transaction=transaction)
    transaction.rollback()
    assert bodies(queue.browse()) == [b"0"] and dropped(bay) == 0


@pytest.mark.parametrize("when_full", ["drop_newest", "drop_oldest", "dead_letter"])
def test_a_move_is_refused_and_loses_nothing(when_full: str) -> None:
    bay = limited(when_full, max_messages=2)
    for n in range(5):
        bay.queue("other").send(b"%d" % n)
    with pytest.raises(StoreFull):
        bay.queue("other").move("orders")
    assert bay.queue("other").depth + bay.queue().depth == 5
    assert dropped(bay) == 0


@pytest.mark.parametrize("when_full", ["drop_newest", "drop_oldest"])
def test_a_full_topic_gives_up_the_newest(when_full: str) -> None:
    bay = limited(when_full, max_messages=2)
    topic = bay.bay.topic("prices")
    with topic.subscribe() as consumer:
        for n in range(5):
            topic.send(b"%d" % n)
        assert [delivery.body for delivery in consumer.take(10)] == [b"0", b"1"]
    assert bay.bay.statistics().topics["prices"].dropped == 3


def test_random_sends_and_acks_leave_what_a_plain_list_leaves() -> None:
    random = Random(11)
    bay = limited("drop_oldest", max_messages=8, max_bytes=200)
    queue, model, held = bay.queue(), [], []  # type: ignore[var-annotated]
    consumer = queue.subscribe()
    for n in range(400):
        choice = random.random()
        if choice < 0.6:
            body = b"%d" % n + bytes(random.randrange(60))
            queue.send(body, persistent=random.random() < 0.5)
            free = [found for found in model if found not in held]
            while len(model) >= 8 or len(b"".join(model)) + len(body) > 200:
                if not free:
                    break
                model.remove(free.pop(0))
            else:
                model.append(body)
        elif choice < 0.8:
            taken = consumer.take(random.randint(1, 3))
            held += [delivery.body for delivery in taken]
            if random.random() < 0.5:
                consumer.ack(taken)
                for delivery in taken:
                    model.remove(delivery.body)
                    held.remove(delivery.body)
        elif choice < 0.9:
            consumer.close()
            consumer = queue.subscribe()
            held.clear()
        assert bodies(queue.browse()) == model, n
        if n % 20 == 0:
            bay.check()


def test_a_cut_at_any_call_leaves_the_queue_within_its_limit_and_the_confirmed_newest_in_it() -> None:
    bay = SimulatedBay(
        policies={"orders": DestinationPolicy(when_full="drop_oldest", max_messages=3)},
        sync="always",
        max_file_length="64KiB",
    )
    confirmed: list[bytes] = []
    images: list[tuple[SimulatedDisk, list[bytes]]] = []
    random = Random(3)

    def cut(call: str, name: str) -> None:
        images.append((bay.disk.crash_process(), list(confirmed)))
        images.append((bay.disk.crash_power(random, PowerCut.ANY), list(confirmed)))

    queue = bay.queue()
    bay.disk.on_call = cut
    for n in range(12):
        queue.send(b"%d" % n)
        confirmed.append(b"%d" % n)
    bay.disk.on_call = None
    assert len(images) > 40
    for image, known in images:
        left = SimulatedBay(sync="always", max_file_length="64KiB")
        left.disk, left.metadata = image, type(left.metadata)()
        left.open_again()
        found = bodies(left.queue().browse())
        assert len(found) <= 4 and found == sorted(found, key=int)
        assert set(known[-2:]) <= set(found)


# ------------------------------------------------------------------ asyncio


@pytest.mark.parametrize("when_full, left", [("drop_newest", [b"0", b"1"]), ("drop_oldest", [b"8", b"9"])])
def test_a_full_queue_gives_messages_up_in_a_loop_too(when_full: Any, left: list[bytes]) -> None:
    async def main() -> None:
        bay = LoopBay(policies={"orders": DestinationPolicy(when_full=when_full, max_messages=2)})
        queue = await bay.aio.queue("orders")
        ids = list(await asyncio.gather(*[queue.send(b"%d" % n) for n in range(5)]))
        ids += await queue.send_many([Message(b"%d" % n) for n in range(5, 10)])
        assert len(set(ids)) == 10
        assert [message.body async for message in queue.browse()] == left
        assert bay.bay.statistics().destinations["orders"].dropped == 8

    run_jumping(main())
