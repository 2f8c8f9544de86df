"""Calls of an event loop share a sync in the background, for which no thread waits."""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from loops import ByHand, Inline, LoopBay, ticks
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut, SimulatedDisk
from simulated_sync import SimulatedSync

import forebay.aio
from forebay import Closed, StoreFailed
from forebay.aio import Queue

TASKS = 8


async def opened(workers: Inline | None = None, *, is_held: bool = True, **fields: Any) -> tuple[LoopBay, Queue]:
    """Return a store in which no name waits for a sync any more, and a queue of it."""
    disk = SimulatedDisk(fills=True, in_background=True)
    bay = LoopBay(sync="always", disk=disk, workers=workers, **fields)
    bay.queue("orders")
    bay.syncer.sync()
    queue = await bay.aio.queue("orders")
    disk.holds_background_syncs = is_held
    return bay, queue


def sends(queue: Queue, count: int = TASKS) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(queue.send(b"%d" % number)) for number in range(count)]


def make(bay: LoopBay) -> None:
    """Make the sync in the background that is under way."""
    bay.disk.background_syncs[-1].make()


def begun(bay: LoopBay) -> int:
    """Return how many syncs were begun in the background."""
    return sum(sync.begun for sync in bay.disk.background_syncs)


def test_sends_of_many_tasks_wait_for_one_sync_and_use_no_worker() -> None:
    async def main() -> None:
        workers = Inline()
        bay, queue = await opened(workers)
        calls = workers.calls
        tasks = sends(queue)
        await ticks()
        assert not any(task.done() for task in tasks) and begun(bay) == 1
        make(bay)
        await ticks()
        assert all(task.done() for task in tasks) and begun(bay) == 1 and workers.calls == calls

    asyncio.run(main())


def test_what_is_sent_during_a_sync_waits_for_the_next_one() -> None:
    async def main() -> None:
        bay, queue = await opened()
        consumer = await queue.subscribe()
        first = sends(queue, 1)
        await ticks()
        second = sends(queue, 1)
        await ticks()
        make(bay)
        await ticks()
        assert first[0].done() and not second[0].done()
        assert [delivery.body for delivery in await consumer.take(10)] == [b"0"]
        make(bay)
        await ticks()
        assert second[0].done() and begun(bay) == 2

    asyncio.run(main())


def test_every_send_that_returned_survives_a_power_cut_at_any_moment() -> None:
    async def main() -> None:
        random, returned = Random(1), 0
        bay, queue = await opened(is_held=False)

        def cut(call: str, name: str) -> None:
            image = bay.disk.crash_power(random, PowerCut.SYNCED)
            images.append((returned, image))

        images: list[tuple[int, SimulatedDisk]] = []
        bay.disk.on_call = cut

        async def produce() -> None:
            nonlocal returned
            for _ in range(3):
                await queue.send(b"x")
                returned += 1

        await asyncio.gather(*(produce() for _ in range(TASKS)))
        bay.disk.on_call = None
        assert returned == 3 * TASKS and len({count for count, _ in images}) == 3
        for count, image in images:
            bay.disk, bay.metadata = image, type(bay.metadata)()  # the index is that of a later moment
            bay.open_again()
            assert bay.bay.queue("orders").statistics().depth >= count

    asyncio.run(main())


def test_a_sync_that_fails_fails_all_who_wait_for_it() -> None:
    async def main() -> None:
        bay, queue = await opened()
        bay.disk.fail("sync", 1, errno.EIO)
        tasks = sends(queue)
        await ticks()
        make(bay)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(error) for error in found} == {StoreFailed}
        with pytest.raises(StoreFailed):
            await queue.send(b"more")

    asyncio.run(main())


def test_a_store_that_failed_meanwhile_fails_the_next_round() -> None:
    async def main() -> None:
        bay, queue = await opened()
        task = sends(queue, 1)[0]
        await asyncio.sleep(0)  # it has written, and its round begins after this tick
        with bay.lock:
            bay.journal.fail("something else happened")
        with pytest.raises(StoreFailed, match="something else happened"):
            await task
        assert begun(bay) == 0

    asyncio.run(main())


def test_a_sync_of_a_thread_confirms_calls_that_wait_for_one_in_the_background() -> None:
    async def main() -> None:
        bay, queue = await opened()
        consumer = await queue.subscribe()
        tasks = sends(queue)
        await ticks()
        bay.bay.queue("other").send(b"of a thread")
        await ticks()
        assert all(task.done() for task in tasks) and begun(bay) == 1
        assert len(await consumer.take(TASKS)) == TASKS

    asyncio.run(main())


def test_a_sync_at_a_standstill_confirms_and_publishes_what_waits_for_one_in_the_background() -> None:
    async def main() -> None:
        bay, queue = await opened()
        consumer = await queue.subscribe()
        tasks = sends(queue)
        await ticks()
        with bay.store.locks.sync, bay.lock:
            bay.syncer.sync_at_standstill()
        await ticks()
        assert all(task.done() for task in tasks) and len(await consumer.take(TASKS)) == TASKS

    asyncio.run(main())


def test_while_another_thread_syncs_a_worker_ends_the_round() -> None:
    async def main() -> None:
        workers = ByHand()
        bay, queue = await opened(workers)
        workers.work()
        tasks = sends(queue)
        await ticks()
        make(bay)
        with bay.store.locks.sync:
            await ticks()
        assert len(workers.waiting) == 1 and not any(task.done() for task in tasks)
        workers.work()
        await ticks()
        assert all(task.done() for task in tasks)

    asyncio.run(main())


def test_a_round_that_owes_a_checkpoint_is_ended_by_a_worker() -> None:
    async def main() -> None:
        workers = ByHand()
        bay, queue = await opened(workers, max_checkpoint_adds=TASKS)
        tasks = sends(queue)
        await ticks()
        make(bay)
        await ticks()
        assert len(workers.waiting) == 1 and not any(task.done() for task in tasks)
        workers.work()
        await ticks()
        assert all(task.done() for task in tasks) and bay.stored_blocks()

    asyncio.run(main())


def test_close_ends_the_sync_that_is_under_way_and_confirms_who_waits_for_it() -> None:
    async def main() -> None:
        bay, queue = await opened()
        tasks = sends(queue)
        await ticks()
        await bay.aio.close()
        await ticks()
        assert all(task.done() and task.exception() is None for task in tasks)
        with pytest.raises(Closed):
            await queue.send(b"more")
        bay.open_again()
        assert bay.queue().statistics().depth == TASKS

    asyncio.run(main())


def test_a_close_of_the_store_by_a_thread_confirms_who_waits_for_a_sync() -> None:
    async def main() -> None:
        bay, queue = await opened()
        tasks = sends(queue)
        await ticks()
        bay.bay.close()
        await ticks()
        assert all(task.done() and task.exception() is None for task in tasks)
        await bay.aio.close()

    asyncio.run(main())


def test_a_loop_that_ends_in_a_sync_hinders_nobody_and_leaves_no_descriptor() -> None:
    kept: list[LoopBay] = []

    async def main() -> None:
        bay, queue = await opened()
        kept.append(bay)
        sends(queue)  # cancelled with the loop
        await ticks()

    asyncio.run(main())
    bay = kept[0]
    bay.queue().send(b"of a thread")
    assert bay.queue().statistics().depth == TASKS + 1
    assert bay.journal.durable_end == bay.journal.end
    bay.bay.close()


def test_a_store_that_syncs_never_has_no_sync_in_the_background() -> None:
    async def main() -> None:
        disk = SimulatedDisk(in_background=True)
        bay = LoopBay(sync="never", disk=disk)
        await (await bay.aio.queue("orders")).send(b"x")
        assert disk.background_syncs == []

    asyncio.run(main())


def test_a_loop_that_cannot_watch_descriptors_has_workers_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NotImplementedError  # as the ProactorEventLoop of Windows

    async def main() -> None:
        bay, queue = await opened()
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
        await asyncio.gather(*sends(queue))
        await asyncio.gather(*sends(queue))
        assert begun(bay) == 1 and bay.journal.durable_end == bay.journal.end

    asyncio.run(main())


def test_without_a_descriptor_for_a_signal_a_worker_syncs_until_there_is_one() -> None:
    async def main() -> None:
        bay, queue = await opened(is_held=False)
        before = begun(bay)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(SimulatedSync, "new_signal", Mock(side_effect=OSError(errno.EMFILE, "none left")))
            view = await forebay.aio.Forebay(bay.bay, workers=Inline()).queue("orders")
            await asyncio.gather(*sends(view))
        assert begun(bay) == before and bay.journal.durable_end == bay.journal.end
        await asyncio.gather(*sends(view))
        assert begun(bay) == before + 1

    asyncio.run(main())


def test_an_error_that_begins_no_round_is_told_to_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        _, queue = await opened()

        def fail(*_: object) -> bool:
            raise MemoryError

        monkeypatch.setattr(SimulatedSync, "begin", fail)
        found = await asyncio.gather(*sends(queue), return_exceptions=True)
        assert {type(error) for error in found} == {MemoryError}
        with pytest.raises(StoreFailed):
            await queue.send(b"more")

    asyncio.run(main())


def test_many_loops_that_end_leave_no_descriptor_behind() -> None:
    async def main() -> None:
        await asyncio.gather(*sends(await forebay.aio.Forebay(bay.bay).queue("orders")))

    bay = SimulatedBay(sync="always", disk=SimulatedDisk(fills=True, in_background=True))
    for _ in range(5):
        asyncio.run(main())
    assert len(bay.disk.background_syncs) == 1
    assert bay.queue().statistics().depth == 5 * TASKS


def test_two_views_of_a_store_in_one_loop_take_no_signal_from_each_other() -> None:
    async def main() -> None:
        bay, queue = await opened(is_held=False)
        third = bay.bay.queue("third")
        other = await forebay.aio.Forebay(bay.bay, workers=Inline()).queue("other")
        bay.disk.holds_background_syncs = True
        task = sends(queue, 1)[0]
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its sync has begun
        third.send(b"of a thread")  # ends that sync, of which the first view has not heard yet
        bay.disk.holds_background_syncs = False
        await other.send(b"second")  # begins the next one in this turn of the loop
        await ticks()
        assert task.done()

    asyncio.run(main())
