"""Groups, exclusive consumers, priorities and slow consumers in an event loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from loops import ticks
from simulated_bay import SimulatedBay

import forebay.aio
from forebay.aio import Consumer, Delivery, Queue
from forebay.dispatch.aio.async_forebay import AsyncForebay
from forebay.dispatch.aio.loop_inbox import LoopInbox


async def take(consumer: Consumer, count: int = 10) -> list[bytes]:
    return [delivery.body for delivery in await consumer.take(count, timeout=60)]


async def waiting(*consumers: Consumer) -> list[asyncio.Task[list[Delivery]]]:
    """A take of each, which waits."""
    tasks = [asyncio.create_task(consumer.take(1, timeout=60)) for consumer in consumers]
    await ticks()
    assert not any(task.done() for task in tasks)
    return tasks


async def opened(path: Path) -> tuple[AsyncForebay, Queue]:
    bay = await forebay.aio.open(path, memory_limit="4MiB", sync="never")
    return bay, await bay.queue("orders")


def test_takes_that_wait_for_the_first_group_are_served_by_owner(tmp_path: Path) -> None:
    async def main() -> None:
        bay, orders = await opened(tmp_path)
        consumers = [await orders.subscribe() for _ in range(3)]
        tasks = await waiting(*consumers)
        for number in range(9):
            await orders.send(b"%d" % number, group="g")
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        [first] = done
        owner = consumers[tasks.index(first)]
        [delivery] = first.result()
        assert (delivery.group, delivery.body) == ("g", b"0")
        assert await take(owner) == [b"%d" % number for number in range(1, 9)]
        assert len(pending) == 2
        await owner.close()
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert [delivery.body for task in done for delivery in task.result()] == [b"0"]
        await bay.close()
        for task in pending:
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())


def test_each_of_many_groups_reaches_its_owner_who_waits(tmp_path: Path) -> None:
    async def main() -> None:
        bay, orders = await opened(tmp_path)
        seen: dict[str, list[tuple[int, int]]] = {}
        left = 400

        async def work(number: int) -> None:
            nonlocal left
            async with orders.subscribe() as consumer:
                while left:
                    for delivery in await consumer.take(3, timeout=0.05):
                        seen.setdefault(str(delivery.group), []).append((number, int(delivery.body)))
                        await asyncio.sleep(0)
                        await delivery.ack()
                        left -= 1

        workers = [asyncio.create_task(work(number)) for number in range(4)]
        await asyncio.sleep(0)
        for number in range(400):
            await orders.send(b"%d" % number, group=f"g{number % 20}")
            if number % 7 == 0:
                await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*workers), 60)
        for found in seen.values():
            assert [number for _, number in found] == sorted(number for _, number in found)
        assert sum(map(len, seen.values())) == 400 and orders.depth == 0
        await bay.close()

    asyncio.run(main())


def test_an_exclusive_consumer_that_waits_takes_over(tmp_path: Path) -> None:
    async def main() -> None:
        bay, orders = await opened(tmp_path)
        ordinary = await orders.subscribe()
        first, second = await orders.subscribe(exclusive=True), await orders.subscribe(exclusive=True)
        tasks = await waiting(ordinary, second)
        await orders.send(b"x")
        assert await take(first) == [b"x"]
        await first.close()
        [delivery] = await asyncio.wait_for(tasks[1], 60)
        assert delivery.body == b"x" and not tasks[0].done()
        await delivery.ack()
        await second.close()
        await orders.send(b"y")
        [delivery] = await asyncio.wait_for(tasks[0], 60)
        assert delivery.body == b"y"
        await bay.close()

    asyncio.run(main())


def test_a_lower_one_that_waits_gets_what_is_left(tmp_path: Path) -> None:
    async def main() -> None:
        bay, orders = await opened(tmp_path)
        low, high = await orders.subscribe(), await orders.subscribe(priority=1, prefetch=1)
        [task] = await waiting(low)
        await orders.send(b"1")
        await ticks()
        assert not task.done()
        assert await take(high) == [b"1"]
        await orders.send(b"2")
        assert [delivery.body for delivery in await asyncio.wait_for(task, 60)] == [b"2"]
        await bay.close()

    asyncio.run(main())


def test_on_slow_is_called_in_the_loop() -> None:
    async def main() -> None:
        simulated = SimulatedBay()
        bay = forebay.aio.Forebay(simulated.bay)
        orders, told = await bay.queue("orders"), list[Consumer]()
        consumer = await orders.subscribe(on_slow=told.append)
        await orders.send(b"x")
        await consumer.take()
        for _ in range(32):
            simulated.clock.advance(1.0)
            await bay.step()
        await ticks()
        assert told == [consumer] and consumer.statistics().is_slow
        await consumer.close()

    asyncio.run(main())


def test_a_callback_that_raises_is_logged_and_those_behind_it_are_called_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        inbox, told = LoopInbox(asyncio.get_running_loop()), list[str]()

        def raise_error() -> None:
            raise ValueError("of the host")

        inbox.post(raise_error)
        inbox.post(lambda: told.append("the take behind it"))
        await ticks()
        assert told == ["the take behind it"]

    asyncio.run(main())
    assert [(record.name, record.getMessage()) for record in caplog.records] == [
        ("forebay.dispatch", "a callback raised")
    ]
