"""Takes of an event loop that wait: woken in order, one an arrival; cancelled at any point they lose nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from compiled import interpreted
from delivering import bodies, numbered_messages
from inside import inside
from loops import ByHand, InThread, LoopBay, run_jumping, ticks

import forebay
import forebay.aio
from forebay import Closed, Message
from forebay.dispatch.admin.browse import Browsers
from forebay.dispatch.consumer.search import Search

Taken = list[forebay.aio.Delivery]


def start(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(coroutine)


# ------------------------------------------------------------------ order and number of wakes


def test_takes_of_one_consumer_are_served_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        takes = [start(consumer.take(timeout=None)) for _ in range(50)]
        await ticks()
        for message in numbered_messages(25):
            await queue.send(message.body)
        await queue.send_many(numbered_messages(50)[25:])
        assert [bodies(await take) for take in takes] == [[message.body] for message in numbered_messages(50)]
        assert consumer.in_flight == 50
        bay.check()

    asyncio.run(main())


def test_a_thousand_consumers_of_one_queue_are_served_in_turn_and_few_are_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="64MiB")
        queue = await bay.aio.queue("orders")
        consumers = [await queue.subscribe() for _ in range(1000)]
        got: list[int] = []
        steps = 0

        async def work(number: int, consumer: forebay.aio.Consumer) -> None:
            async for delivery in consumer:
                got.append(number)
                await delivery.ack()

        works = [start(work(number, consumer)) for number, consumer in enumerate(consumers)]
        await ticks()
        step = Search.step

        def counted(search: Search, *, is_timed_out: bool) -> Any:
            nonlocal steps
            steps += 1
            return step(search, is_timed_out=is_timed_out)

        with monkeypatch.context() as patched:
            patched.setattr(Search, "step", counted)
            for _ in range(1000):
                await queue.send(b"x")
                await ticks(4)
        assert sorted(got) == list(range(1000)), "nobody twice before everybody once"
        assert steps <= 3 * 1000
        await queue.send_many([Message(b"x")] * 1000)
        while len(got) < 2000:
            await ticks()
        assert sorted(got[1000:]) == list(range(1000))
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*works)
        bay.check()

    asyncio.run(main())


def test_a_thousand_consumers_of_as_many_queues_are_told_of_a_burst_at_once() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        loop = asyncio.get_running_loop()
        queues = [await bay.aio.queue(f"orders.{number}") for number in range(1000)]
        consumers = [await queue.subscribe() for queue in queues]
        takes = [start(consumer.take(timeout=None)) for consumer in consumers]
        await ticks()
        handed_over = 0
        call = loop.call_soon_threadsafe

        def counted(*arguments: Any, **fields: Any) -> Any:
            nonlocal handed_over
            handed_over += 1
            return call(*arguments, **fields)

        def send() -> None:
            for number in range(1000):
                bay.queue(f"orders.{number}").send(b"%d" % number)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()  # the loop stands meanwhile: all that comes is one burst
        del loop.call_soon_threadsafe
        assert handed_over == 1
        assert [bodies(await take) for take in takes] == [[b"%d" % number] for number in range(1000)]

    asyncio.run(main())


def test_who_has_no_credit_does_not_keep_messages_from_who_has() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        full, free = await queue.subscribe(prefetch=1), await queue.subscribe()
        first, second = start(full.take(timeout=None)), start(full.take(timeout=None))
        await ticks()
        third = start(free.take(timeout=None))
        await ticks()
        for message in numbered_messages(2):
            await queue.send(message.body)
        [delivery] = await first
        assert bodies(await third) == [b"1"]
        fourth = start(free.take(timeout=None))
        await ticks()
        await delivery.ack()
        await ticks()
        await queue.send(b"2")
        await queue.send(b"3")
        assert {*bodies(await second), *bodies(await fourth)} == {b"2", b"3"}
        fifth = start(full.take(timeout=None))
        await ticks()
        await queue.send(b"4")
        await ticks()
        assert not fifth.done()
        full.prefetch = 2
        assert bodies(await fifth) == [b"4"]
        bay.check()

    asyncio.run(main())


def test_nobody_relies_on_a_consumer_that_lost_its_credit() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        full, free = await queue.subscribe(prefetch=2), await queue.subscribe()
        await queue.send(b"0")
        [held] = await full.take()
        assert await full.take(timeout=1.0) == []  # the next arrival would call it
        full.prefetch = 1
        waiting = start(full.take(timeout=None))
        await ticks()
        taking = start(free.take(timeout=None))
        await ticks()
        await queue.send(b"1")
        await ticks()
        assert taking.done() and bodies(taking.result()) == [b"1"] and not waiting.done()
        await held.ack()
        await queue.send(b"2")
        assert bodies(await waiting) == [b"2"]

    run_jumping(main())


def test_a_message_that_comes_back_wakes_a_take() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        holder, consumer = await queue.subscribe(), await queue.subscribe()
        await queue.send_many(numbered_messages(3))
        held = await holder.take(3)
        taking = start(consumer.take(timeout=None))
        await ticks()
        await held[0].nack()
        assert bodies(await taking) == [b"0"]
        taking = start(consumer.take(timeout=None))
        await ticks()
        await held[1].nack(delay=5.0)
        await ticks()
        assert not taking.done()
        bay.clock.advance(6.0)
        await bay.aio.step()
        assert bodies(await taking) == [b"1"]
        taking = start(consumer.take(timeout=None))
        await ticks()
        await holder.close()
        assert bodies(await taking) == [b"2"]

    asyncio.run(main())


# ------------------------------------------------------------------ timeouts


def test_a_take_ends_when_its_time_is_up_and_not_before() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        for seconds in (0.0, 1.5, 60):
            began = loop.time()
            assert await consumer.take(5, timeout=seconds) == []
            assert seconds <= loop.time() - began < seconds + 0.1
        taking = start(consumer.take(5, timeout=10.0))
        await asyncio.sleep(9.0)
        await queue.send(b"x")
        assert bodies(await taking) == [b"x"]

    run_jumping(main())


@pytest.mark.parametrize("seed", range(10))
def test_timeouts_and_messages_cross_and_each_message_is_somebodys_once(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        bay = LoopBay(seed)
        queue = await bay.aio.queue("orders")
        consumers = [await queue.subscribe(prefetch=random.choice((2, 50))) for _ in range(5)]
        got: list[bytes] = []
        in_time = late = 0

        async def take(consumer: forebay.aio.Consumer) -> None:
            nonlocal in_time, late
            while len(got) < 500:
                seconds = random.randrange(1, 4) / 10
                try:
                    if random.random() < 0.5:
                        batch = await asyncio.wait_for(consumer.take(2, timeout=None), seconds)
                    else:
                        batch = await consumer.take(2, timeout=seconds)
                except TimeoutError:
                    late += 1
                    continue
                in_time += bool(batch)
                got.extend(bodies(batch))
                if batch:
                    await consumer.ack(batch)

        takes = [start(take(consumer)) for consumer in consumers for _ in range(3)]
        for message in numbered_messages(500):
            await queue.send(message.body)
            if random.random() < 0.5:
                await asyncio.sleep(random.randrange(4) / 10)
        await asyncio.gather(*takes)
        assert sorted(got) == sorted(message.body for message in numbered_messages(500))
        assert in_time > 50 and late > 50 and queue.depth == 0
        bay.check()

    run_jumping(main())


# ------------------------------------------------------------------ cancellation


@pytest.mark.parametrize("selector", [None, "n >= 0"])
@pytest.mark.parametrize("backlog", [0, 20])
def test_a_take_cancelled_at_any_of_its_waits_is_given_nothing(backlog: int, selector: str | None) -> None:
    """With a backlog it meets references, and waits for their load too."""

    async def main(after: int) -> bool:
        workers = ByHand()
        bay = LoopBay(workers=workers)
        bay.queue().send_many(numbered_messages(backlog))
        bay.reopen()
        bay.aio = forebay.aio.Forebay(bay.bay, workers=workers)
        queue = await bay.aio.queue("orders")
        consumer, other = await queue.subscribe(selector=selector), await queue.subscribe(selector=selector)
        cancelled = start(consumer.take(5, timeout=None))
        waiting = start(other.take(5, timeout=None))
        sent = workers.work()
        for tick in range(40):
            if tick == after:
                cancelled.cancel()
            if tick == 12:
                await queue.send_many(numbered_messages(10))
            if tick % 3 == 0:
                sent += workers.work()
            await asyncio.sleep(0)
        assert cancelled.done()
        was_cancelled = cancelled.cancelled()
        assert was_cancelled or len(cancelled.result()) == 5
        assert consumer.in_flight == (0 if was_cancelled else 5)
        assert bodies(await waiting) == [b"%d" % number for number in range(*((0, 5) if was_cancelled else (5, 10)))]
        assert {delivery.attempts for delivery in waiting.result()} == {1}
        bay.check()
        return was_cancelled

    outcomes = [asyncio.run(main(after)) for after in range(30)]
    assert outcomes[0] and not outcomes[-1] and sum(outcomes) >= 3


@pytest.mark.parametrize("seed", range(30))
def test_takes_cancelled_at_random_lose_nothing_and_are_given_nothing_twice(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        workers = ByHand()
        bay = LoopBay(seed, workers=workers)
        queue = await bay.aio.queue("orders")
        consumers = [await queue.subscribe(prefetch=random.choice((3, 100))) for _ in range(4)]
        got: list[bytes] = []
        sent = cancelled = 0

        async def take(consumer: forebay.aio.Consumer) -> None:
            batch = await consumer.take(random.randrange(1, 4), timeout=None)
            got.extend(bodies(batch))
            consumer._consumer.ack([delivery._delivery for delivery in batch])  # at once: nothing comes in between

        takes: list[asyncio.Task[None]] = []
        for _ in range(600):
            takes.append(start(take(random.choice(consumers))))
            if random.random() < 0.5:
                count = random.randrange(1, 3)
                await queue.send_many([Message(b"%d" % number) for number in range(sent, sent + count)])
                sent += count
            await ticks(random.randrange(4))
            if random.random() < 0.7:
                cancelled += random.choice(takes[-12:]).cancel()
            if random.random() < 0.05:
                number = random.randrange(4)
                await consumers[number].close()
                consumers[number] = await queue.subscribe(prefetch=3)
            if random.random() < 0.5:
                workers.work()
        while len(got) < sent:
            takes += [start(take(consumer)) for consumer in consumers]
            await ticks(5)
            workers.work()
        assert cancelled > 100
        assert sorted(got) == sorted(b"%d" % number for number in range(sent))
        bay.check()
        for task in takes:
            task.cancel()
        await asyncio.gather(*takes, return_exceptions=True)

    asyncio.run(main())


# ------------------------------------------------------------------ ends


@pytest.mark.parametrize("who", ["consumer", "store", "thread", "context"])
def test_waiting_takes_and_iterations_end_when_consumer_or_store_closes(who: str, tmp_path: Path) -> None:
    async def main() -> None:
        bay = await forebay.aio.open(tmp_path, memory_limit="4MiB", sync="never")
        queue = await bay.queue("orders")
        consumer, other = await queue.subscribe(prefetch=1), await queue.subscribe()
        await queue.send(b"x")
        [held] = await consumer.take()

        async def iterate(consumer: forebay.aio.Consumer) -> int:
            return len([delivery async for delivery in consumer])

        takes = [start(consumer.take(timeout=None)) for _ in range(3)]
        iterations = [start(iterate(consumer)), start(iterate(other))]
        await ticks()
        if who == "consumer":
            await consumer.close()
            await ticks()
            await other.close()
        elif who == "store":
            await bay.close()
        elif who == "thread":
            await InThread(bay.synchronous.close)
        else:
            async with bay, consumer:
                pass
        assert {type(error) for error in await asyncio.gather(*takes, return_exceptions=True)} == {Closed}
        # What the closed consumer held went to the other one.
        ended = await asyncio.gather(*iterations)
        assert ended[0] == 0 and ended[1] in ({1} if who == "consumer" else {0, 1})
        await bay.close()

    asyncio.run(main())


def test_a_consumer_that_closes_leaves_no_other_waiting_in_vain() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        first, second = await queue.subscribe(), await queue.subscribe()
        relied_on = start(first.take(timeout=None))
        await ticks()
        waiting = start(second.take(timeout=None))
        await ticks()
        await first.close()
        with pytest.raises(Closed):
            await relied_on
        await queue.send(b"x")
        assert bodies(await waiting) == [b"x"]

    asyncio.run(main())


def test_a_loop_that_ends_while_takes_wait_breaks_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with forebay.open(tmp_path, memory_limit="4MiB") as bay:
        queue = bay.queue("orders")

        async def wait() -> None:
            inside = await forebay.aio.Forebay(bay).queue("orders")
            consumer = await inside.subscribe()
            tasks.append(start(consumer.take(timeout=None)))
            tasks[-1]._log_destroy_pending = False  # type: ignore[attr-defined]
            await ticks()

        tasks: list[asyncio.Task[Any]] = []
        loop = asyncio.new_event_loop()
        loop.run_until_complete(wait())
        loop.close()
        with queue.subscribe() as consumer:
            queue.send(b"x")
            thread = threading.Thread(target=queue.send, args=(b"y",))
            thread.start()
            thread.join()
            assert [delivery.body for delivery in consumer.take(2, timeout=60)] == [b"x", b"y"]

        async def go_on() -> None:
            inside = await forebay.aio.Forebay(bay).queue("orders")
            async with inside.subscribe() as other:
                assert bodies(await other.take(2, timeout=60)) == [b"x", b"y"]

        asyncio.run(go_on())
    events = [vars(record)["event"] for record in caplog.records if record.name.startswith("forebay")]
    assert events == ["ack_forgotten"], "the first consumer acknowledged nothing"


# ------------------------------------------------------------------ with threads


def test_threads_use_the_same_store_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="4MiB", sync="never") as bay:
            queue = await bay.queue("orders")
            there, back = bay.synchronous.queue("orders"), bay.synchronous.queue("back")
            got: list[bytes] = []

            def send() -> None:
                for message in numbered_messages(3000):
                    there.send(message.body)

            def answer() -> None:
                with back.subscribe() as consumer:
                    for _ in range(3000):
                        for delivery in consumer.take(1, timeout=60):
                            delivery.ack()

            threads = [InThread(send), InThread(answer)]
            returns = await bay.queue("back")
            async with queue.subscribe() as consumer:
                while len(got) < 3000:
                    batch = await consumer.take(50, timeout=60)
                    got += bodies(batch)
                    await consumer.ack(batch)
                    await returns.send_many([Message(b"x")] * len(batch))
            for thread in threads:
                await thread
            assert got == [message.body for message in numbered_messages(3000)]
            assert queue.depth == returns.depth == 0

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_a_backlog_is_read_beside_the_loop_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open(tmp_path, memory_limit="4MiB", sync="never") as before:
        before.queue("orders").send_many(Message(b"%d" % number + bytes(1024)) for number in range(20_000))

    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="4MiB", sync="never") as bay:
            store, readers = inside(bay.synchronous).store, set()
            read = store.message_store.read

            def spied(*arguments: Any) -> Any:
                readers.add(threading.get_ident())
                return read(*arguments)

            monkeypatch.setattr(store.message_store, "read", spied)
            queue = await bay.queue("orders")
            number = 0
            async with queue.subscribe() as consumer:
                while batch := await consumer.take(100):
                    for delivery in batch:
                        assert delivery.body.startswith(b"%d\0" % number)
                        number += 1
                    await consumer.ack(batch)
            assert number == 20_000
            assert readers and threading.get_ident() not in readers

    asyncio.run(main())


def test_a_scan_that_finds_nothing_ends_with_the_timeout_and_stops_nobody() -> None:
    async def main() -> None:
        bay = LoopBay()
        bay.queue().send_many(numbered_messages(3000))
        bay.reopen()
        bay.aio = forebay.aio.Forebay(bay.bay, workers=bay.workers)
        queue = await bay.aio.queue("orders")
        async with queue.subscribe(selector="n = 2999") as consumer:
            takes = 0
            while not (found := await consumer.take()):
                takes += 1
            assert bodies(found) == [b"2999"] and takes > 1
        async with queue.subscribe(selector="n = 2998") as consumer:
            assert bodies(await consumer.take(timeout=None)) == [b"2998"]

    asyncio.run(main())


def test_a_browse_cancelled_while_it_reads_ends_with_that_read_and_keeps_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with forebay.aio.open(tmp_path, memory_limit="4MiB", sync="never") as bay:
            queue = await bay.queue("orders")
            await queue.send_many(numbered_messages(10))
            reads, go_on, read = asyncio.Event(), threading.Event(), Browsers._read
            loop = asyncio.get_running_loop()

            def read_slowly(*arguments: Any) -> None:
                loop.call_soon_threadsafe(reads.set)
                assert go_on.wait(60)
                read(*arguments)

            monkeypatch.setattr(Browsers, "_read", read_slowly)

            async def browse() -> list[bytes]:
                return [message.body async for message in queue.browse()]

            browsing = start(browse())
            await reads.wait()
            browsing.cancel()
            await ticks()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await browsing
            assert len(await browse()) == 10
            inside(bay.synchronous).audit()
            assert (await bay.statistics()).memory.holders["browsers"] == 0

    asyncio.run(main())
