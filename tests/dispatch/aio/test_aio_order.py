"""What one event loop sends to one destination is stored in the order of the calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from loops import ticks

import forebay.aio
from forebay import DestinationPolicy, Message, StoreFull
from forebay.dispatch.aio.send_order import SendOrder

CALLS = 1000
LARGE = 5000
"""More than a batch stores in one turn of the loop."""


async def bodies(queue: Any, count: int) -> list[int]:
    found: list[int] = []
    async with queue.subscribe(prefetch=0) as consumer:
        while len(found) < count:
            deliveries = await consumer.take(1000, timeout=10)
            found += [int(delivery.body) for delivery in deliveries]
            await consumer.ack(deliveries)
    return found


POLICIES = {"limited": DestinationPolicy(max_messages=100_000)}


@pytest.mark.parametrize("sync", ["never", "always"])
@pytest.mark.parametrize("name", ["orders", "limited"])
def test_sends_that_are_gathered_are_stored_in_the_order_of_their_calls(tmp_path: Path, sync: Any, name: str) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB", sync=sync, policies=POLICIES) as bay:
            queue = await bay.queue(name)
            await asyncio.gather(*(queue.send(b"%d" % n) for n in range(CALLS)))
            assert await bodies(queue, CALLS) == list(range(CALLS))

    asyncio.run(main())


@pytest.mark.parametrize("name", ["orders", "limited"])
def test_a_send_does_not_overtake_a_batch_that_takes_several_turns(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB", sync="never", policies=POLICIES) as bay:
            queue, again = await bay.queue(name), await bay.queue(name)
            calls: list[Any] = [queue.send(b"0")]
            calls.append(queue.send_many(Message(b"%d" % n) for n in range(1, LARGE)))
            calls.append(again.send(b"%d" % LARGE))
            calls.append(queue.send_many([Message(b"%d" % (LARGE + 1))]))
            other = await bay.queue("other")
            calls.append(other.send(b"free"))
            await asyncio.gather(*calls)
            assert await bodies(queue, LARGE + 2) == list(range(LARGE + 2))

    asyncio.run(main())


def test_a_batch_to_one_queue_keeps_nobody_from_another(tmp_path: Path) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB", sync="never") as bay:
            queue, other = await bay.queue("orders"), await bay.queue("other")
            batch = asyncio.create_task(queue.send_many(Message(b"%d" % n) for n in range(LARGE)))
            await asyncio.sleep(0)
            assert not batch.done()
            await other.send(b"x")
            assert not batch.done(), "the send to the other queue did not wait for it"
            await batch

    asyncio.run(main())


def test_a_send_whose_time_is_up_behind_a_batch_is_not_stored(tmp_path: Path) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB", sync="never") as bay:
            queue = await bay.queue("orders")
            batch = asyncio.create_task(queue.send_many(Message(b"%d" % n) for n in range(LARGE)))
            await asyncio.sleep(0)
            with pytest.raises(StoreFull):
                await queue.send(b"late", timeout=0.0)
            assert len(await batch) == LARGE
            assert queue.depth == LARGE

    asyncio.run(main())


def test_a_send_that_is_cancelled_behind_a_batch_is_not_stored_and_holds_nobody_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="16MiB", sync="never") as bay:
            queue = await bay.queue("orders")
            batch = asyncio.create_task(queue.send_many(Message(b"%d" % n) for n in range(LARGE)))
            sends = [asyncio.create_task(queue.send(b"%d" % (LARGE + n))) for n in range(3)]
            await asyncio.sleep(0)
            sends[1].cancel()
            await batch
            assert [type(found) for found in await asyncio.gather(*sends, return_exceptions=True)] == [
                str,
                asyncio.CancelledError,
                str,
            ]
            assert await bodies(queue, LARGE + 2) == [*range(LARGE + 1), LARGE + 2]

    asyncio.run(main())


@pytest.mark.parametrize("ticks_after", range(6))
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_send_that_is_cancelled_as_its_turn_comes_is_cancelled(timeout: float | None, ticks_after: int) -> None:
    async def main() -> None:
        order = SendOrder()

        async def send() -> None:
            async with order.turn("orders", timeout):
                pass

        async with order.turn("orders", None):
            waiting = asyncio.create_task(send())
            await ticks()
        for _ in range(ticks_after):
            await asyncio.sleep(0)
        is_cancelled = waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled() == is_cancelled
        assert order.held == {}

    asyncio.run(main())


def test_a_task_that_went_on_after_a_cancellation_is_told_that_its_time_is_over() -> None:
    """A cancellation that came before the send has nothing to do with it."""

    async def main() -> None:
        order = SendOrder()

        async def send() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                async with order.turn("orders", 0.001):
                    pass

        async with order.turn("orders", None):
            notice = asyncio.create_task(send())
            await ticks()
            notice.cancel()
            with pytest.raises(StoreFull):
                await notice
        assert order.held == {}

    asyncio.run(main())


def test_who_sends_again_at_once_comes_behind_those_that_wait_and_keeps_its_timeout() -> None:
    async def main() -> None:
        order, told = SendOrder(), list[str]()
        is_free = asyncio.Event()

        async def wait_for_room() -> None:
            async with order.turn("orders", None):
                told.append("the one that waited")
                await is_free.wait()

        async with order.turn("orders", None):
            waiting = asyncio.create_task(wait_for_room())
            await ticks()
        with pytest.raises(StoreFull):
            async with order.turn("orders", 0.001):
                told.append("the one that sends again")
        is_free.set()
        await waiting
        assert told == ["the one that waited"]
        assert order.held == {}

    asyncio.run(main())


def test_who_waits_no_longer_leaves_nothing_behind() -> None:
    async def main() -> None:
        order = SendOrder()
        async with order.turn("orders", None):
            for _ in range(3):
                with pytest.raises(StoreFull):
                    async with order.turn("orders", 0.0):
                        pass
            assert not order.held["orders"]._waiting

    asyncio.run(main())
