"""Delay and expiry in an event loop: a task that waits is woken when its message is due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loops import LoopBay, ticks

from forebay import DestinationPolicy, Message


@pytest.mark.parametrize("policy", [{}, {"max_messages": 100}])
def test_delayed_and_expired_messages_are_those_of_the_synchronous_store(policy: dict[str, Any]) -> None:
    async def main() -> None:
        bay = LoopBay(sync="always", policies={"orders": DestinationPolicy(**policy)})
        queue = await bay.aio.queue("orders")
        await queue.send(b"later", delay=5)
        await queue.send(b"old", expires_in=3)
        await queue.send_many([Message(b"both", delay=1, expires_in=20), Message(b"now", persistent=False, delay=0)])
        async with queue.subscribe() as consumer:
            held = [found for _ in range(3) for found in await consumer.take(9)]
            assert [(found.body, found.expires_at is None) for found in held] == [(b"old", False), (b"now", True)]
            await consumer.ack(held)
            bay.clock.advance(5)
            await bay.aio.step()
            assert sorted([found.body for _ in range(3) for found in await consumer.take(9)]) == [b"both", b"later"]
        bay.check()

    asyncio.run(main())


def test_a_take_that_waits_gets_what_comes_due() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        async with queue.subscribe() as consumer:
            waiting = asyncio.create_task(consumer.take(timeout=None))
            await ticks()
            await queue.send(b"later", delay=5)
            await ticks()
            assert not waiting.done()
            bay.clock.advance(5)
            await bay.aio.step()
            [delivery] = await waiting
            assert delivery.body == b"later"

    asyncio.run(main())


def test_a_topic_takes_times_in_a_loop_too() -> None:
    async def main() -> None:
        bay = LoopBay()
        topic = await bay.aio.topic("prices")
        async with topic.subscribe() as consumer:
            await topic.send(b"later", delay=5, expires_in=100)
            assert await consumer.take() == []
            bay.clock.advance(5)
            await bay.aio.step()
            [delivery] = await consumer.take()
            assert delivery.expires_at == delivery.timestamp + 100_000

    asyncio.run(main())
