"""get, peek, join and len: what a user of queue.Queue expects of a queue, in threads and in a loop."""

from __future__ import annotations

import asyncio
import queue as standard
import threading

import pytest
from compiled import interpreted
from delivering import send_equal
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import Closed, Empty, ForebayError, Message, Queue
from forebay.dispatch.consumer.consumer import Consumer


def consumers_of(bay: SimulatedBay) -> int:
    return bay.bay.statistics().destinations["orders"].consumers


def test_get_hands_out_each_message_once_in_order_and_leaves_no_consumer(bay: SimulatedBay, queue: Queue) -> None:
    sent = [queue.send(b"%d" % number, headers={"n": number}, group="g", priority=7) for number in range(3)]
    for number, own_id in enumerate(sent):
        assert queue.get() == Message(b"%d" % number, {"n": number}, 7, own_id, group="g")
        assert consumers_of(bay) == 0 and queue.depth == 2 - number
    bay.crash()
    assert bay.queue().depth == 0, "what get returned is acknowledged"
    bay.check()


def test_get_says_what_kind_of_message_it_was(queue: Queue) -> None:
    queue.send(b"x", persistent=False)
    assert queue.get(timeout=0).persistent is False


@pytest.mark.parametrize("timeout", [0, 0.0])
def test_get_of_an_empty_queue_raises_empty_and_leaves_no_consumer(
    bay: SimulatedBay, queue: Queue, timeout: float
) -> None:
    with pytest.raises(standard.Empty) as caught:
        queue.get(timeout=timeout)
    assert isinstance(caught.value, Empty) and isinstance(caught.value, ForebayError)
    assert (caught.value.queue, caught.value.waited_seconds) == ("orders", 0.0)
    assert consumers_of(bay) == 0
    bay.check()


def test_get_waits_for_a_message(queue: Queue) -> None:
    found: list[Message] = []
    thread = threading.Thread(target=lambda: found.append(queue.get()))
    thread.start()
    queue.send(b"x")
    thread.join(60)
    assert [message.body for message in found] == [b"x"]


@interpreted("replaces what compiled code has linked")
def test_a_message_whose_ack_fails_goes_back(bay: SimulatedBay, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.send(b"x")

    def interrupted(self: Consumer, deliveries: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Consumer, "ack", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.get()
    assert consumers_of(bay) == 0
    assert queue.get(timeout=0).body == b"x"


def test_peek_shows_the_first_message_and_takes_nothing(bay: SimulatedBay, queue: Queue) -> None:
    assert queue.peek() is None
    send_equal(queue, 2)
    first = queue.send(b"first", priority=9)
    for _ in range(2):
        message = queue.peek()
        assert message is not None and (message.body, message.message_id) == (b"first", first)
    assert queue.depth == 3 and consumers_of(bay) == 0
    bay.check()


def test_length_is_depth_and_an_empty_queue_is_true_all_the_same(queue: Queue) -> None:
    assert len(queue) == 0 and queue
    send_equal(queue, 3)
    with queue.subscribe() as consumer:
        consumer.take()
        assert len(queue) == queue.depth == 3


def test_join_waits_until_nothing_is_left(bay: SimulatedBay, queue: Queue) -> None:
    assert queue.join()
    queue.send(b"x")
    assert not queue.join(timeout=0)
    joined: list[bool] = []
    thread = threading.Thread(target=lambda: joined.append(queue.join()))
    thread.start()
    queue.get()
    thread.join(60)
    assert joined == [True]
    queue.send(b"x")
    bay.bay.close()
    with pytest.raises(Closed):
        queue.join()


def test_batches_end_when_nothing_came_in_time_or_the_consumer_was_closed(queue: Queue) -> None:
    send_equal(queue, 7)
    with queue.subscribe() as consumer:
        sizes = []
        for batch in consumer.batches(3, timeout=0):
            sizes.append(len(batch))
            consumer.ack(batch)
        assert sizes == [3, 3, 1]
        queue.send(b"x")
        for batch in consumer.batches(3):
            assert len(batch) == 1
            consumer.ack(batch)
            consumer.close()


def test_a_batch_that_nobody_looked_at_counts_as_no_attempt(queue: Queue) -> None:
    send_equal(queue, 1)
    for _ in range(2):
        with queue.subscribe() as consumer:
            ((delivery,),) = consumer.batches(10, timeout=0)
            assert delivery.attempts == 1


def test_all_of_it_in_a_loop() -> None:
    async def main() -> None:
        bay = LoopBay()
        orders = await bay.aio.queue("orders")
        assert await orders.peek() is None and len(orders) == 0 and orders and await orders.join()
        with pytest.raises(Empty, match="'orders'"):
            await orders.get(timeout=0)
        waiting = asyncio.ensure_future(orders.get())
        await asyncio.sleep(0)
        first = await orders.send(b"1", headers={"n": 1}, persistent=False)
        assert await waiting == Message(b"1", {"n": 1}, 4, first, False)
        waiting = asyncio.ensure_future(orders.get())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await orders.send_many([Message(b"x")] * 5)
        peeked = await orders.peek()
        assert peeked is not None and peeked.body == b"x" and len(orders) == 5
        assert not await orders.join(timeout=0)
        assert consumers_of(bay) == 0
        async with orders.subscribe() as consumer:
            sizes = []
            async for batch in consumer.batches(2, timeout=0):
                sizes.append(len(batch))
                await consumer.ack(batch)
        assert sizes == [2, 2, 1] and await orders.join()
        bay.check()

    asyncio.run(main())
