"""What sends and acks of an event loop owe the disk is done once for all of a tick, and never in the loop's thread."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from inside import open_forebay
from loops import ByHand, Inline, LoopBay, ticks
from sampling import sampled
from simulated_disk import PowerCut, SimulatedDisk
from simulated_metadata import SimulatedMetadataStore

from forebay import Message, StoreFailed
from forebay.testing import ManualClock


class NoWorkers(Inline):
    def submit(self, function: Callable[..., Any], /, *arguments: Any, **fields: Any) -> Any:
        raise AssertionError("this needs no worker")


def test_sends_of_one_tick_share_one_sync() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        queue = await bay.aio.queue("orders")
        before = bay.syncs
        await asyncio.gather(*(queue.send(b"x") for _ in range(20)), queue.send_many([Message(b"y")] * 20))
        assert bay.syncs == before + 1 and queue.depth == 40
        consumer = await queue.subscribe()
        batch = await consumer.take(40)
        await asyncio.gather(*(delivery.ack() for delivery in batch[:20]), consumer.ack(batch[20:]))
        assert bay.syncs == before + 2 and queue.depth == 0

    asyncio.run(main())


def test_what_needs_no_sync_does_not_overtake_what_came_before_it_in_a_batch() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % number, persistent=number % 3 != 2) for number in range(7))
        assert [message.body async for message in queue.browse()] == [b"%d" % number for number in range(7)]

    asyncio.run(main())


def test_sends_that_come_before_a_worker_is_free_share_its_sync() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        before = bay.syncs
        first = asyncio.create_task(queue.send(b"first"))
        await ticks()
        rest = [asyncio.create_task(queue.send(b"x")) for _ in range(50)]
        await ticks()
        assert len(workers.waiting) == 1 and not first.done()
        workers.work()
        await ticks()
        assert first.done() and all(task.done() for task in rest)
        assert bay.syncs == before + 1 and not workers.waiting

    asyncio.run(main())


def test_nobody_is_given_what_a_power_cut_could_take_back() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        sending = asyncio.create_task(queue.send(b"x"))
        taking = asyncio.create_task(consumer.take(timeout=None))
        await ticks()
        assert not sending.done() and not taking.done()
        workers.work()
        await sending
        [delivery] = await taking
        acking = asyncio.create_task(delivery.ack())
        await ticks()
        assert not acking.done()
        workers.work()
        await acking

    asyncio.run(main())


def test_what_a_topics_consumer_owes_is_a_workers_too() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.bay.topic("prices")
        prices = await bay.aio.topic("prices")

        async def subscribe() -> Any:
            return await prices.subscribe(durable="audit")

        subscribing = asyncio.create_task(subscribe())
        await ticks()
        workers.work()
        consumer = await subscribing
        sending = asyncio.create_task(prices.send(b"x"))
        await ticks()
        workers.work()
        await sending
        [delivery] = await consumer.take()
        acking = asyncio.create_task(delivery.ack())
        await ticks()
        assert not acking.done()
        workers.work()
        await acking

    asyncio.run(main())


@pytest.mark.parametrize("sync", ["never", "interval"])
def test_without_a_sync_for_each_call_no_worker_is_used(sync: str) -> None:
    async def main() -> None:
        bay = LoopBay(sync=sync, workers=NoWorkers())
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        waiting = asyncio.create_task(consumer.take(timeout=None))
        await ticks()
        await queue.send(b"x")
        await queue.send_many([Message(b"x")] * 500)
        batch = [*(await waiting), *(await consumer.take(499))]
        await consumer.nack(batch[0])
        await consumer.ack(batch[1:])
        [delivery] = await consumer.take()
        await delivery.ack()

    asyncio.run(main())


def test_an_urgent_checkpoint_is_a_workers_and_waited_for() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(workers=workers, max_checkpoint_adds=100)
        queue = await bay.aio.queue("orders")
        for _ in range(99):
            await queue.send(b"x")
        sending = asyncio.create_task(queue.send(b"x"))
        await ticks()
        assert not sending.done()
        workers.work()
        await sending
        assert bay.store.index.checkpoint_need.due_adds == 200

    asyncio.run(main())


def test_acks_of_many_runs_make_room_in_the_index_on_the_way() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="4MiB", index_cache_size="256KiB", max_checkpoint_adds=1 << 20)
        queue = await bay.aio.queue("orders")
        count = 512 * 60
        await queue.send_many(Message(b"") for _ in range(count))
        consumer = await queue.subscribe(prefetch=0)
        wanted = []
        while True:
            batch = await consumer.take(512)
            if not batch:
                break
            wanted.append(batch[0])
            await consumer.ack(batch[2:])
        most = 0
        ack = bay.index

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, len(ack.cache.dirty))
                await asyncio.sleep(0)

        await bay.aio.checkpoint()
        watching = asyncio.create_task(watch())
        await consumer.ack(wanted)
        watching.cancel()
        assert len(wanted) >= 55 and 0 < most < 55
        bay.check()

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_the_loop_goes_on_while_the_disk_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bay = LoopBay(sync="always", workers=ThreadPoolExecutor(2))
        queue = await bay.aio.queue("orders")
        gate, threads = threading.Event(), set()
        sync = bay.syncer.sync

        def gated(end: int | None = None) -> None:
            threads.add(threading.get_ident())
            assert gate.wait(60)
            sync(end)

        monkeypatch.setattr(bay.syncer, "sync", gated)
        sending = asyncio.create_task(queue.send(b"x"))
        await ticks(100)
        assert not sending.done()
        gate.set()
        await sending
        assert threading.get_ident() not in threads

    asyncio.run(main())


def test_a_sync_that_fails_fails_all_who_waited_for_it() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        queue = await bay.aio.queue("orders")
        await queue.send(b"x")
        bay.disk.fail("sync", 1, errno.EIO)
        found = await asyncio.gather(*(queue.send(b"x") for _ in range(5)), return_exceptions=True)
        assert [type(error) for error in found] == [StoreFailed] * 5
        with pytest.raises(StoreFailed):
            await queue.send(b"x")

    asyncio.run(main())


def test_a_store_that_closes_while_sends_wait_leaves_none_waiting() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        sends = [asyncio.create_task(queue.send(b"x")) for _ in range(3)]
        await ticks()
        bay.bay.close()
        workers.work()
        assert len(await asyncio.gather(*sends)) == 3

    asyncio.run(main())


@pytest.mark.parametrize("seed", sampled(range(20), 8))
def test_cancelled_sends_and_acks_hurt_nobody_and_nothing_confirmed_is_lost(seed: int) -> None:
    """Cancelled after each possible number of ticks; then the power is cut."""

    async def main() -> None:
        random = Random(seed)
        workers = ByHand()
        bay = LoopBay(seed, sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        confirmed: set[bytes] = set()
        sent: set[bytes] = set()
        settling: set[bytes] = set()
        acked: set[bytes] = set()

        async def send(body: bytes) -> None:
            sent.add(body)
            await queue.send(body)
            confirmed.add(body)

        async def ack(delivery: Any) -> None:
            body = delivery.body
            settling.add(body)
            await delivery.ack()
            acked.add(body)

        tasks: list[asyncio.Task[None]] = []
        for number in range(300):
            tasks.append(asyncio.create_task(send(b"%d" % number)))
            if random.random() < 0.5:
                tasks += [asyncio.create_task(ack(delivery)) for delivery in await consumer.take(3)]
            await ticks(random.randrange(3))
            if random.random() < 0.3:
                random.choice(tasks[-10:]).cancel()
            if random.random() < 0.3:
                workers.work()
        while not all(task.done() for task in tasks):
            await ticks(5)
            workers.work()
        assert all(task.done() for task in tasks)
        bay.check()
        assert confirmed <= sent and len(confirmed) > 100 and len(acked) > 50
        cuts = [bay.disk.crash_power(random, mode) for mode in PowerCut for _ in range(20)]
        for disk in (bay.disk.crash_process(), *cuts):
            left = pending(bay, disk)
            assert len(left) == len(set(left)) and not acked & set(left)
            assert confirmed - settling <= set(left) <= sent

    asyncio.run(main())


def pending(bay: LoopBay, disk: SimulatedDisk) -> list[bytes]:
    """What the next open finds."""
    metadata = SimulatedMetadataStore()
    again = open_forebay(disk, metadata, bay.settings, ManualClock(1))
    bodies = []
    with again.queue("orders").subscribe(prefetch=0) as consumer:
        while batch := consumer.take(1000):
            bodies += [delivery.body for delivery in batch]
    return bodies
