"""`process` in a loop: tasks that await a handler; cancelled, they give back what they work on, uncounted."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest
from delivering import bodies, numbered_messages
from loops import LoopBay, run_jumping, ticks

import forebay.aio
from forebay import ArgumentError, DestinationPolicy, Message

FAILS = {">": DestinationPolicy(max_attempts=3, dead_letter_queue="dead", redelivery_delay_seconds=0.0)}


async def staged(count: int, **fields: Any) -> tuple[LoopBay, forebay.aio.Queue]:
    bay = LoopBay(policies=FAILS, **fields)
    queue = await bay.aio.queue("orders")
    await queue.send_many(numbered_messages(count))
    return bay, queue


def test_handlers_are_awaited_side_by_side_and_what_they_return_from_is_acknowledged() -> None:
    async def main() -> None:
        bay, queue = await staged(10)
        seen: list[bytes] = []
        together = asyncio.Event()

        async def handle(delivery: forebay.aio.Delivery) -> None:
            seen.append(delivery.body)
            if len(seen) == 4:
                together.set()
            await together.wait()
            if len(seen) == 10:
                await consumer.drain(timeout=0)

        async with queue.subscribe() as consumer:
            await consumer.process(handle, 4)
            assert seen == [b"%d" % n for n in range(10)] and queue.depth == 0 == consumer.in_flight
        bay.check()

    asyncio.run(main())


def test_one_after_the_other_they_are_in_order_and_a_function_may_be_plain() -> None:
    async def main() -> None:
        bay, queue = await staged(5)
        seen: list[tuple[bytes, int]] = []

        def handle(delivery: forebay.aio.Delivery) -> None:
            seen.append((delivery.body, delivery.attempts))
            if seen == [(b"0", 1)]:
                raise ValueError
            if delivery.body == b"3":
                raise KeyError
            if delivery.body == b"4":
                asyncio.get_running_loop().create_task(consumer.drain())

        async with queue.subscribe() as consumer:
            await consumer.process(handle, reject_on=KeyError)
        assert seen == [(b"0", 1), (b"0", 2), (b"1", 1), (b"2", 1), (b"3", 1), (b"4", 1)]
        dead = await bay.aio.queue("dead")
        assert [(message.headers or {})["dead_letter_reason"] async for message in dead.browse()] == ["KeyError"]
        bay.check()

    asyncio.run(main())


@pytest.mark.parametrize("rounds", range(8))
def test_one_that_is_cancelled_gives_back_uncounted_and_the_consumer_goes_on(rounds: int) -> None:
    async def main() -> None:
        bay, queue = await staged(6)

        async def handle(delivery: forebay.aio.Delivery) -> None:
            await asyncio.Event().wait()

        async with queue.subscribe() as consumer:
            processing = asyncio.create_task(consumer.process(handle, 3))
            await ticks(rounds)
            processing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await processing
            assert consumer.in_flight == 0
            taken = await consumer.take(9)
            assert bodies(taken) == [b"%d" % n for n in range(6)]
            assert {delivery.attempts for delivery in taken} == {1}
        bay.check()

    asyncio.run(main())


def test_a_cancellation_inside_a_handler_is_a_failure_of_it() -> None:
    async def main() -> None:
        bay, queue = await staged(1)

        async def handle(delivery: forebay.aio.Delivery) -> None:
            if delivery.attempts == 2:
                await consumer.drain(timeout=0)
                return
            other = asyncio.create_task(asyncio.sleep(10))
            await asyncio.sleep(0)
            other.cancel()
            await other

        async with queue.subscribe() as consumer:
            await consumer.process(handle)
        assert queue.depth == 0
        bay.check()

    run_jumping(main())


def test_an_exit_goes_up_and_counts_as_an_attempt() -> None:
    async def main() -> None:
        bay, queue = await staged(1)
        holder.append(bay)

        async def handle(delivery: forebay.aio.Delivery) -> None:
            raise SystemExit(3)

        consumer = await queue.subscribe()
        await consumer.process(handle, 2)

    holder: list[LoopBay] = []
    with pytest.raises(SystemExit):
        asyncio.run(main())
    with holder[0].queue().subscribe() as consumer:
        assert [delivery.attempts for delivery in consumer.take()] == [2]


def test_what_is_no_function_is_refused() -> None:
    async def main() -> None:
        _, queue = await staged(1)
        async with queue.subscribe() as consumer:
            with pytest.raises(ArgumentError):
                await consumer.process(7)  # type: ignore[arg-type]
            assert consumer.in_flight == 0

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(10))
def test_messages_of_a_group_are_handled_one_after_the_other_and_in_order_also_where_some_fail(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        bay = LoopBay(seed, policies={">": DestinationPolicy(max_attempts=None)})
        queue = await bay.aio.queue("orders")
        groups = [random.choice(["tea", "rice", "oil", None]) for _ in range(200)]
        await queue.send_many(Message(b"%d" % n, group=group) for n, group in enumerate(groups))
        fails = {(b"%d" % n, 1) for n in random.sample(range(200), 40)}
        busy: set[str | None] = set()
        done: dict[str | None, list[int]] = {}
        count = 0

        async def handle(delivery: forebay.aio.Delivery) -> None:
            nonlocal count
            group, key = delivery.group, (delivery.body, delivery.attempts)
            assert group is None or group not in busy, f"seed {seed}"
            busy.add(group)
            await asyncio.sleep(random.random())
            busy.discard(group)
            if key in fails:
                fails.discard(key)
                if random.random() < 0.3:
                    await delivery.release()
                    return
                raise ValueError
            count += 1
            done.setdefault(group, []).append(int(delivery.body))
            if count == 200:
                await consumer.drain(timeout=0)

        logging.disable()
        try:
            async with queue.subscribe(prefetch=random.choice([0, 5, 50])) as consumer:
                await consumer.process(handle, 5)
        finally:
            logging.disable(logging.NOTSET)
        assert count == 200 and queue.depth == 0
        assert all(done[group] == sorted(done[group]) for group in done if group is not None), f"seed {seed}: {done}"
        bay.check()

    run_jumping(main())
