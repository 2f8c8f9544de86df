"""Senders of an event loop that wait for room in a limited queue."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from delivering import numbered_messages
from loops import LoopBay, run_jumping, ticks

from forebay import Closed, DestinationPolicy, Message, StoreFull


def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


def limited(workers: Any = None, **policy: Any) -> LoopBay:
    return LoopBay(workers=workers, policies={"orders": DestinationPolicy(**policy)})


def test_a_full_queue_lets_senders_wait_in_order_and_the_loop_go_on() -> None:
    async def main() -> None:
        bay = limited(max_messages=2)
        queue = await bay.aio.queue("orders")
        sends = [start(queue.send(b"%d" % number)) for number in range(4)]
        sends.append(start(queue.send_many([Message(b"%d" % number) for number in range(4, 9)])))
        await ticks()
        assert [task.done() for task in sends] == [True, True, False, False, False]
        got = []
        async with queue.subscribe() as consumer:
            async for delivery in consumer:
                assert queue.depth <= 2
                got.append(delivery.body)
                await delivery.ack()
                if len(got) == 9:
                    break
        assert got == [b"%d" % number for number in range(9)]
        assert len(await sends[-1]) == 5
        assert bay.bay.statistics().destinations["orders"].blocked_sends >= 3

    run_jumping(main())


def test_a_cancelled_sender_leaves_its_place_and_its_room() -> None:
    async def main() -> None:
        bay = limited(max_messages=1)
        queue = await bay.aio.queue("orders")
        await queue.send(b"0")
        first, second = start(queue.send(b"1")), start(queue.send(b"2"))
        await ticks()
        first.cancel()
        async with queue.subscribe() as consumer:
            [delivery] = await consumer.take()
            await delivery.ack()
            await second
            [delivery] = await consumer.take()
            assert delivery.body == b"2"
            third = start(queue.send(b"3"))
            await ticks()
            acking = start(delivery.ack())
            await asyncio.sleep(0)
            third.cancel()  # when room was given to it already, or not yet
            await acking
            await ticks()
            await queue.send(b"4")
        assert queue.depth in (1, 2)

    run_jumping(main())


def test_a_full_queue_refuses_where_its_policy_says_so_and_says_how_much_is_in() -> None:
    async def main() -> None:
        bay = limited(max_messages=3, when_full="fail")
        queue = await bay.aio.queue("orders")
        with pytest.raises(StoreFull) as refused:
            await queue.send_many(numbered_messages(5))
        assert refused.value.stored == 3 == queue.depth
        with pytest.raises(StoreFull):
            await queue.send(b"x")
        bay = limited(max_messages=1, block_timeout_seconds=5.0)
        queue = await bay.aio.queue("orders")
        await queue.send(b"x")
        waiting = start(queue.send(b"y"))
        await ticks()
        bay.clock.advance(6.0)
        with pytest.raises(StoreFull):
            await waiting

    run_jumping(main())


def test_a_sender_that_waits_for_room_ends_with_the_store() -> None:
    async def main() -> None:
        bay = limited(max_messages=1)
        queue = await bay.aio.queue("orders")
        await queue.send(b"x")
        waiting = start(queue.send(b"y"))
        await ticks()
        bay.bay.close()
        with pytest.raises(Closed):
            await waiting

    run_jumping(main())
