"""Syncs of an event loop overlap with what it writes where the disk is the faster one, and cover all where it is not.

The clock moves when a test says so: in a task before it writes, or in a sync.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from compiled import interpreted
from loops import ByHand, LoopBay, ticks

from forebay import Closed, StoreFailed
from forebay.aio import Queue
from forebay.dispatch.aio import group_commit
from forebay.dispatch.aio.group_commit import GroupCommit, StandBy

TASKS = 8
ROUNDS = 16


class Producers:
    """Tasks that send one message after the other; each takes a second to write one."""

    def __init__(self, bay: LoopBay, queue: Queue) -> None:
        self._bay = bay
        self._queue = queue
        self.begun = 0
        self.ended = 0
        self.tasks = [asyncio.create_task(self._produce()) for _ in range(TASKS)]

    async def _produce(self) -> None:
        while True:
            self._bay.clock.advance(1.0)
            self.begun += 1
            await self._queue.send(b"x")
            self.ended += 1

    async def end(self) -> list[Any]:
        for task in self.tasks:
            task.cancel()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def overlapping(workers: ByHand) -> tuple[LoopBay, Producers]:
    """Return tasks half of which wait for the second sync, which is done, and half for the third."""
    bay = LoopBay(sync="always", workers=workers)
    bay.queue()
    producers = Producers(bay, await bay.aio.queue("orders"))
    await ticks()
    for _ in range(2):
        workers.work()
        await ticks()
    assert (producers.begun, producers.ended) == (2 * TASKS + TASKS // 2, TASKS + TASKS // 2)
    return bay, producers


def test_where_the_disk_is_faster_half_wait_until_a_sync_for_the_other_half_begins() -> None:
    async def main() -> None:
        workers = ByHand()
        bay, producers = await overlapping(workers)
        syncs, ended = bay.syncs, producers.ended
        assert len(workers.waiting) == 1
        workers.work()
        await ticks()
        assert bay.syncs == syncs + 1 and producers.ended >= ended + TASKS // 2
        await producers.end()
        workers.work()

    asyncio.run(main())


def test_half_that_is_durable_is_told_so_though_the_sync_for_the_other_half_fails() -> None:
    async def main() -> None:
        workers = ByHand()
        bay, producers = await overlapping(workers)
        ended = producers.ended
        bay.disk.fail("sync", 1, errno.EIO, sticky=True)
        while workers.work():
            await ticks()
        assert producers.ended == ended + TASKS // 2
        assert {type(error) for error in await producers.end()} == {StoreFailed}

    asyncio.run(main())


class Ending(ByHand):
    """Takes no more than two calls, as workers that end meanwhile."""

    submitted = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **fields: Any) -> Any:
        self.submitted += 1
        if self.submitted > 2:
            raise RuntimeError("ended")
        return super().submit(function, *arguments, **fields)


def test_half_that_is_durable_is_told_so_though_no_worker_is_left_for_the_other_half() -> None:
    async def main() -> None:
        workers = Ending()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        producers = Producers(bay, await bay.aio.queue("orders"))
        await ticks()
        while workers.work():
            await ticks()
        assert producers.ended == 2 * TASKS
        assert {type(error) for error in await producers.end()} == {Closed}

    asyncio.run(main())


def test_half_that_is_durable_is_woken_when_nobody_writes_any_more() -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")

        async def send(count: int) -> None:
            for _ in range(count):
                bay.clock.advance(1.0)
                await queue.send(b"x")

        sends = [asyncio.create_task(send(2)) for _ in range(TASKS)]
        await ticks()
        for _ in range(2):
            workers.work()
            await ticks()
        assert all(task.done() for task in sends) and not workers.waiting

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_where_the_disk_is_slower_a_sync_waits_for_all_who_were_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        sync = bay.syncer.sync

        def slow(end: int | None = None) -> None:
            bay.clock.advance(2.0 * TASKS)
            sync(end)

        monkeypatch.setattr(bay.syncer, "sync", slow)
        producers = Producers(bay, await bay.aio.queue("orders"))
        await ticks()
        for number in range(1, 6):
            workers.work()
            await ticks()
            assert producers.ended == number * TASKS and len(workers.waiting) == 1
        await producers.end()
        workers.work()

    asyncio.run(main())


def time_syncs(bay: LoopBay, durations: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each sync take the next of these seconds, and drop it from the list."""
    sync = bay.syncer.sync

    def timed(end: int | None = None) -> None:
        bay.clock.advance(durations.pop(0))
        sync(end)

    monkeypatch.setattr(bay.syncer, "sync", timed)


@interpreted("replaces what compiled code has linked")
def test_one_sync_that_is_late_makes_no_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        durations = [1.0] * 5 + [1000.0 * TASKS] + [1.0] * 5
        time_syncs(bay, durations, monkeypatch)
        producers = Producers(bay, await bay.aio.queue("orders"))
        await ticks()
        ended: list[int] = []
        while durations:
            before = producers.ended
            workers.work()
            await ticks()
            ended.append(producers.ended - before)
        assert max(ended[2:]) < TASKS  # or all who wait would be woken together
        await producers.end()
        while workers.work():
            await ticks()

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_a_disk_that_a_coarse_clock_took_for_fast_is_found_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        durations = [0.0] * 6 + [1000.0 * TASKS] * 4
        time_syncs(bay, durations, monkeypatch)
        producers = Producers(bay, await bay.aio.queue("orders"))
        await ticks()
        before = 0
        while durations:
            before = producers.ended
            workers.work()
            await ticks()
        assert producers.ended - before == TASKS
        monkeypatch.undo()
        await producers.end()
        while workers.work():
            await ticks()

    asyncio.run(main())


class Counting(ThreadPoolExecutor):
    submitted = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **fields: Any) -> Any:
        self.submitted += 1
        return super().submit(function, *arguments, **fields)


def test_one_worker_stands_by_from_round_to_round_and_ends_with_the_last_wait() -> None:
    async def main() -> None:
        workers = Counting(1)
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        syncs = bay.syncs
        for _ in range(ROUNDS):
            await queue.send(b"x")
        assert bay.syncs == syncs + ROUNDS and workers.submitted < ROUNDS
        await asyncio.get_running_loop().run_in_executor(workers, int)  # the only worker is free again
        workers.shutdown()

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_the_worker_begins_the_next_sync_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = Counting(2)
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        begun, gate = threading.Semaphore(0), threading.Semaphore(0)
        sync = bay.syncer.sync

        def gated(end: int | None = None) -> None:
            begun.release()
            assert gate.acquire(timeout=60)
            sync(end)

        monkeypatch.setattr(bay.syncer, "sync", gated)
        producers = Producers(bay, queue)
        # The second sync wakes one half, so the third is for that half, and the other half writes meanwhile: unless it
        # has written before the worker begins, as chance may have it, the worker goes on without being told.
        for _ in range(ROUNDS):
            await asyncio.to_thread(begun.acquire)
            for _ in range(TASKS):
                await asyncio.sleep(0)
            gate.release()
        await asyncio.to_thread(begun.acquire)
        assert workers.submitted < ROUNDS
        ending = asyncio.create_task(producers.end())
        gate.release(100)
        await ending
        workers.shutdown()

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_what_is_written_while_a_sync_is_under_way_is_not_published_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        workers = ByHand()
        bay = LoopBay(sync="always", workers=workers)
        bay.queue()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        sync = bay.syncer.sync
        late = [queue.send(b"late")]

        def writes_late(end: int | None = None) -> None:
            sync(end)
            while late:
                late.pop().send(None)  # as a task does: it is written, and waits

        monkeypatch.setattr(bay.syncer, "sync", writes_late)
        sends = [asyncio.create_task(queue.send(b"%d" % number)) for number in range(3)]
        await ticks()
        workers.work()
        await asyncio.gather(*sends)
        assert [delivery.body for delivery in await consumer.take(10)] == [b"0", b"1", b"2"]
        workers.work()
        assert [delivery.body for delivery in await consumer.take(10)] == [b"late"]

    asyncio.run(main())


def group_without_rounds(monkeypatch: pytest.MonkeyPatch) -> GroupCommit:
    """Return a group commit of which a test plays the loop and the workers."""
    monkeypatch.setattr(group_commit, "STANDBY_SECONDS", 0.0)
    monitor: Any = SimpleNamespace(monotonic=float)
    nothing: Any = None
    return GroupCommit(monitor, nothing, nothing, nothing)


@interpreted("replaces what compiled code has linked")
def test_a_worker_hears_what_it_was_told_though_the_next_one_stands_by_already(monkeypatch: pytest.MonkeyPatch) -> None:
    group, first, second = group_without_rounds(monkeypatch), StandBy(), StandBy()
    for stand_by, begins in ((first, False), (second, True)):
        group.standing_by.append(stand_by)
        assert group.tell(begins=begins)
    assert group.is_told_to_begin(second) and not group.is_told_to_begin(first)


@interpreted("replaces what compiled code has linked")
def test_a_worker_to_which_nobody_speaks_ends_and_is_told_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    group, stand_by = group_without_rounds(monkeypatch), StandBy()
    group.standing_by.append(stand_by)
    assert not group.is_told_to_begin(stand_by)
    assert not group.tell(begins=True)


@interpreted("replaces what compiled code has linked")
def test_a_worker_does_what_the_loop_decided_even_if_the_loop_was_interrupted_before_it_woke_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, stand_by = group_without_rounds(monkeypatch), StandBy()
    group.standing_by.append(stand_by)
    interrupting: Any = Interrupting()
    stand_by.told = interrupting
    with pytest.raises(KeyboardInterrupt):
        group.tell(begins=True)
    assert group.is_told_to_begin(stand_by)


class Interrupting:
    """A lock at whose release the thread is interrupted."""

    def acquire(self, timeout: float) -> bool:
        return False

    def release(self) -> None:
        raise KeyboardInterrupt
