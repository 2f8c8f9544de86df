"""forebay.aio: every public call in asyncio, with the meaning that it has for threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from compiled import interpreted
from inside import inside
from loops import Inline, LoopBay, ticks

import forebay
import forebay.aio
from forebay import (
    Closed,
    DestinationPolicy,
    Message,
    SelectorError,
    SettingsError,
    StateError,
    StoreFailed,
    StoreLocked,
    SubscriptionInUse,
    TransactionError,
)
from forebay.dispatch.aio import async_forebay
from forebay.dispatch.aio.async_consumer import MESSAGES_A_PART
from forebay.dispatch.aio.loop import WORK_A_TURN, finished


def open_in(directory: Path, **fields: Any) -> Any:
    return forebay.aio.open(directory, **({"memory_limit": "4MiB", "sync": "never"} | fields))


def test_importing_forebay_leaves_asyncio_alone() -> None:
    program = (
        "import forebay, sys; print('asyncio' in sys.modules); import forebay.aio; print('asyncio' in sys.modules)"
    )
    path = str(Path(str(forebay.__file__)).parents[1])
    program = f"import sys; sys.path.insert(0, {path!r}); {program}"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["False", "True"]


def test_a_message_goes_through(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_in(tmp_path, sync="always") as bay:
            orders = await bay.queue("orders")
            sent = await orders.send(b"1 kg tea", headers={"kg": 1}, priority=7, message_id="mine")
            assert sent == "mine"
            async with orders.subscribe(selector="kg = 1", prefetch=5) as consumer:
                [delivery] = await consumer.take(256, timeout=60)
                assert (delivery.id, delivery.body, delivery.headers) == ("mine", b"1 kg tea", {"kg": 1})
                assert (delivery.priority, delivery.destination, delivery.attempts) == (7, "orders", 1)
                assert await delivery.read() == Message(b"1 kg tea", {"kg": 1}, 7, "mine")
                await delivery.nack()
                [delivery] = await consumer.take(timeout=60)
                assert delivery.attempts == 2 and consumer.in_flight == 1
                await delivery.ack()
                assert await consumer.take() == []
            assert orders.depth == 0 and bay.destinations() == ["orders"]
            assert (await bay.statistics()).destinations["orders"].acknowledged == 1
            await bay.checkpoint()
            await bay.cleanup()
            assert (await bay.explain()).sentence
            assert (await bay.resize("8MiB")).is_settled
            async with orders.subscribe() as consumer:
                for subject in (orders, consumer):
                    assert "0:orders" in (await bay.explain(subject)).sentence
        assert bay.synchronous.settings is bay.settings

    asyncio.run(main())
    with forebay.open(tmp_path, memory_limit="4MiB") as bay:
        assert bay.recovery.clean and bay.queue("orders").depth == 0


def test_what_is_opened_may_be_awaited_as_well(tmp_path: Path) -> None:
    async def main() -> None:
        bay = await open_in(tmp_path)
        consumer = await (await bay.queue("orders")).subscribe()
        await consumer.close()
        await consumer.close()
        await bay.close()
        await bay.close()
        with pytest.raises(Closed):
            await bay.queue("other")

    asyncio.run(main())


def test_a_directory_that_is_held_is_refused_and_free_again_after_an_opening_that_was_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_in(tmp_path):
            with pytest.raises(StoreLocked):
                await open_in(tmp_path)
            waiting = asyncio.create_task(_open(tmp_path, lock_wait_seconds=60.0))
            await ticks()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with open_in(tmp_path, lock_wait_seconds=60.0) as bay:
            assert bay.destinations() == []

    async def _open(directory: Path, **fields: Any) -> None:
        await open_in(directory, **fields)

    asyncio.run(main())


def test_a_directory_is_free_again_after_an_opening_that_failed_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(async_forebay, "LoopInbox", Mock(side_effect=MemoryError))
            with pytest.raises(MemoryError):
                await open_in(tmp_path)
        async with open_in(tmp_path):
            pass

    asyncio.run(main())


def test_a_close_that_is_cancelled_goes_on_to_its_end_for_which_the_next_one_waits(tmp_path: Path) -> None:
    async def main() -> None:
        bay = await open_in(tmp_path)
        with inside(bay.synchronous).lock:  # for which the close waits in its thread
            closing = asyncio.create_task(bay.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            again = asyncio.create_task(bay.close())
            await ticks()
            assert not again.done()
        await again
        await bay.close()

    asyncio.run(main())
    with forebay.open(tmp_path, memory_limit="4MiB") as bay:
        assert bay.recovery.clean


@pytest.mark.parametrize("is_made", [False, True])
def test_a_call_that_is_cancelled_after_the_workers_were_shut_down_is_undone(is_made: bool) -> None:
    workers, may_end, undone = ThreadPoolExecutor(1), threading.Event(), list[bool]()

    async def main() -> None:
        submitted = workers.submit(may_end.wait)
        calling = asyncio.create_task(finished(workers, submitted, undone.append))
        await asyncio.sleep(0)
        workers.shutdown(wait=False)
        if is_made:
            may_end.set()
            assert submitted.result()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        may_end.set()

    try:
        asyncio.run(main())
    finally:
        may_end.set()
        workers.shutdown()
    assert undone == [True]


def test_a_close_that_fails_after_it_was_cancelled_tells_the_next_one_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_in(tmp_path / "data") as bay:
            (tmp_path / "data").rename(tmp_path / "away")
            with inside(bay.synchronous).lock:
                closing = asyncio.create_task(bay.close())
                await asyncio.sleep(0)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
            with pytest.raises(StoreFailed):
                await bay.close()
        assert closing.cancelled()

    asyncio.run(main())


BAD_CALLS: list[Callable[[Any, Any], Any]] = [
    lambda queue, consumer: queue.send("text"),
    lambda queue, consumer: queue.send(b"", priority=10),
    lambda queue, consumer: queue.send(b"", headers={"x": object()}),
    lambda queue, consumer: queue.send(b"", message_id=""),
    lambda queue, consumer: queue.send(bytes(5 << 20)),
    lambda queue, consumer: queue.send(b"", timeout=-1),
    lambda queue, consumer: queue.send_many([], timeout="1"),
    lambda queue, consumer: queue.send_many(7),
    lambda queue, consumer: queue.send_many([Message(b"x"), b"y"]),
    lambda queue, consumer: consumer.take(0),
    lambda queue, consumer: consumer.take(True),
    lambda queue, consumer: consumer.take(1, timeout=-1),
    lambda queue, consumer: consumer.take(1, timeout=float("nan")),
    lambda queue, consumer: consumer.take(1, timeout=False),
    lambda queue, consumer: consumer.take(1, max_bytes=0),
    lambda queue, consumer: consumer.ack(7),
    lambda queue, consumer: consumer.ack([7]),
    lambda queue, consumer: consumer.ack([None] * 100),
    lambda queue, consumer: consumer.ack_up_to(None),
    lambda queue, consumer: consumer.nack("x"),
    lambda queue, consumer: consumer.nack([], delay=-1),
]


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_input_is_refused_in_the_same_words(call: Callable[[Any, Any], Any]) -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        synchronous = bay.queue()
        with pytest.raises(forebay.ForebayError) as expected, synchronous.subscribe() as other:
            call(synchronous, other)
        with pytest.raises(type(expected.value)) as refused:
            await call(queue, consumer)
        assert str(refused.value) == str(expected.value)
        bay.check()

    asyncio.run(main())


def test_bad_names_and_selectors_are_refused() -> None:
    async def main() -> None:
        bay = LoopBay()
        for make in (bay.aio.queue, bay.aio.topic):
            with pytest.raises(SettingsError):
                await make("")
        queue = await bay.aio.queue("orders")
        with pytest.raises(SelectorError):
            await queue.subscribe(selector="= 1")
        with pytest.raises(SettingsError):
            await queue.subscribe(prefetch=-1)

    asyncio.run(main())


def test_a_delivery_is_settled_once_and_by_its_own_consumer() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 100)
        consumer, other = await queue.subscribe(), await queue.subscribe()
        batch = await consumer.take(100)
        for wrong in (batch[0], [*batch[1:], batch[0]]):
            with pytest.raises(SettingsError):
                await other.ack(wrong)
        with pytest.raises(SettingsError):
            await consumer.ack([*batch[::2], batch[0]])
        assert consumer.in_flight == 100
        await consumer.ack(batch[::2])
        with pytest.raises(StateError):
            await consumer.ack(batch[::2])
        await consumer.ack_up_to(batch[-1])
        assert queue.depth == 0
        bay.check()

    asyncio.run(main())


def test_a_batch_has_its_ids_in_order_and_says_how_much_of_it_is_in() -> None:
    def generated(count: int) -> Iterator[Message]:
        for number in range(count):
            yield Message(b"%d" % number)
        raise ZeroDivisionError

    async def main() -> None:
        bay = LoopBay(memory_limit="8MiB", sync="always")
        queue = await bay.aio.queue("orders")
        ids = await queue.send_many(Message(b"%d" % number) for number in range(5000))
        assert len(set(ids)) == 5000 and not bay.unpublished
        with pytest.raises(SettingsError) as refused:
            await queue.send_many([*[Message(b"x")] * 3000, None])  # type: ignore[list-item]
        assert refused.value.stored == queue.depth - 5000
        with pytest.raises(ZeroDivisionError):
            await queue.send_many(generated(300))
        assert not bay.unpublished and bay.journal.durable_end == bay.journal_end()
        bay.check()

    asyncio.run(main())


def test_a_large_batch_lets_others_run_and_waits_in_ram_in_part_only() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="8MiB", sync="always")
        queue = await bay.aio.queue("orders")
        seen = []

        async def watch() -> None:
            while True:
                seen.append((64 << 10) * sum(len(messages) for _, _, messages, _ in bay.unpublished))
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await queue.send_many(Message(bytes(64 << 10)) for _ in range(256))
        watching.cancel()
        assert len(seen) > 8 and 0 < max(seen) <= 3 << 20

    asyncio.run(main())


@interpreted("replaces what compiled code has linked")
def test_a_lazy_delivery_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        body = bytes(range(256)) * 4096
        await queue.send(body)
        consumer = await queue.subscribe()
        [delivery] = await consumer.take()
        assert delivery.is_lazy
        threads = set()
        read = bay.store.message_store.read

        def spied(*arguments: Any) -> Any:
            threads.add(threading.get_ident())
            return read(*arguments)

        monkeypatch.setattr(bay.store.message_store, "read", spied)
        assert (await delivery.read()).body == body
        assert threads and threading.get_ident() not in threads
        assert delivery.body == body
        await delivery.ack()

    asyncio.run(main())


def test_a_topic_gives_each_message_to_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_in(tmp_path, sync="always") as bay:
            prices = await bay.topic("prices")
            assert bay.topics() == ["prices"]
            async with prices.subscribe() as screen, prices.subscribe(durable="audit", selector="n = 1") as audit:
                with pytest.raises(SubscriptionInUse):
                    await prices.subscribe(durable="audit", selector="n = 1")
                await prices.send_many([Message(b"%d" % n, {"n": n}) for n in range(3)])
                taken = await screen.take(10, timeout=60)
                assert [delivery.body for delivery in taken] == [b"0", b"1", b"2"]
                await screen.ack(taken)
                [delivery] = await audit.take(10, timeout=60)
                assert delivery.body == b"1"
                await audit.ack_up_to(delivery)
            assert prices.subscriptions() == ["audit"]
            await prices.unsubscribe("audit")
            assert prices.statistics().subscriptions == {}

    asyncio.run(main())


def test_a_cancelled_subscription_is_nobodys(tmp_path: Path) -> None:
    async def main() -> None:
        bay = LoopBay()
        prices = await bay.aio.topic("prices")

        async def subscribe() -> None:
            await prices.subscribe(durable="audit")

        task = asyncio.create_task(subscribe())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ticks()
        async with prices.subscribe(durable="audit"):
            pass

    asyncio.run(main())


@pytest.mark.parametrize("call", ["send", "take", "ack"])
def test_a_task_that_never_waits_lets_others_run(call: str) -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 800)
        consumer = await queue.subscribe(prefetch=0)
        held: list[forebay.aio.Delivery] = []
        while call == "ack" and len(held) < 700:
            held += await consumer.take(700)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "send": lambda: queue.send(b"x"),
            "take": lambda: consumer.take(),
            "ack": lambda: held.pop().ack(),
        }
        beside = asyncio.create_task(ticks(2))
        for _ in range(700):
            await calls[call]()
        assert beside.done()

    asyncio.run(main())


class Turns:
    """How many turns the loop makes beside a test, and the most messages that were dealt with in one of them."""

    def __init__(self, dealt_with: Callable[[], int]) -> None:
        self._dealt_with = dealt_with
        self._before = dealt_with()
        self.most = self.count = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            now = self._dealt_with()
            self.most = max(self.most, now - self._before)
            self._before = now
            self.count += 1
            await asyncio.sleep(0)

    async def stop(self) -> None:
        await ticks(2)
        self._task.cancel()


@pytest.mark.parametrize("batch", [1, 100, 1000])
def test_a_turn_ends_by_the_messages_it_dealt_with(batch: int) -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 4000)
        async with queue.subscribe(prefetch=0) as consumer:
            (lane,) = queue._sender._destination.all_lanes()
            turns = Turns(lambda: consumer._consumer.delivered + lane.acknowledged)
            while taken := await consumer.take(batch):
                await consumer.ack(taken)
            await turns.stop()
        assert turns.most <= WORK_A_TURN + batch and queue.depth == 0

    asyncio.run(main())


@pytest.mark.parametrize(("sent", "taken"), [(1, 1), (1, 256), (256, 256)])
def test_a_consumer_keeps_up_with_a_producer_where_neither_waits(sent: int, taken: int) -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        depths: list[int] = []

        async def produce() -> None:
            for _ in range(51_200 // sent):
                await (queue.send(b"x") if sent == 1 else queue.send_many([Message(b"x")] * sent))

        async with queue.subscribe() as consumer:
            producer = asyncio.create_task(produce())
            while len(depths) < 51_200 // taken or queue.depth:
                await consumer.ack(await consumer.take(taken))
                depths.append(queue.depth)
            await producer
        assert max(depths) <= WORK_A_TURN

    asyncio.run(main())


def test_a_turn_ends_by_the_messages_that_were_sent() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        turns = Turns(lambda: queue.depth)
        for _ in range(20):
            await queue.send_many([Message(b"x")] * 200)
        await turns.stop()
        assert turns.most <= WORK_A_TURN + 200 and queue.depth == 4000

    asyncio.run(main())


def test_tasks_that_never_wait_have_equal_parts_of_a_turn() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 20_000)
        taken: Counter[int] = Counter({number: 0 for number in range(4)})
        apart: list[int] = []

        async def drain(number: int) -> None:
            async with queue.subscribe(prefetch=0) as consumer:
                for _ in range(200):
                    deliveries = await consumer.take(10)
                    await consumer.ack(deliveries)
                    taken[number] += len(deliveries)
                    apart.append(max(taken.values()) - min(taken.values()))

        await asyncio.gather(*(drain(number) for number in range(4)))
        assert min(taken.values()) > 1900
        assert max(apart) <= 2 * WORK_A_TURN, "the first task has every turn, and the others what is left"

    asyncio.run(main())


def test_many_tasks_that_never_wait_share_the_work_of_a_turn() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 4000)
        async with queue.subscribe(prefetch=0) as consumer:

            async def drain() -> None:
                while taken := await consumer.take(20):
                    await consumer.ack(taken)

            turns = Turns(lambda: consumer._consumer.delivered)
            await asyncio.gather(*(drain() for _ in range(10)))
            await turns.stop()
        assert turns.most <= WORK_A_TURN + 10 * 20 and queue.depth == 0

    asyncio.run(main())


@pytest.mark.parametrize("call", ["ack", "nack"])
def test_a_large_batch_is_settled_in_parts_between_which_others_run(call: str) -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 5000)
        async with queue.subscribe(prefetch=0) as consumer:
            held = [delivery for _ in range(10) for delivery in await consumer.take(512)]
            turns = Turns(lambda: -consumer.in_flight)
            await getattr(consumer, call)(held)
            await turns.stop()
            assert len(held) == 5000 and consumer.in_flight == 0 and turns.most <= MESSAGES_A_PART
        assert queue.depth == (0 if call == "ack" else 5000)

    asyncio.run(main())


def test_a_batch_of_many_runs_is_settled_in_parts_however_few_its_messages_are() -> None:
    async def main() -> None:
        bay = LoopBay(memory_limit="16MiB")
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"x")] * 2 * MESSAGES_A_PART)
        async with queue.subscribe(prefetch=0) as consumer:
            held = [delivery for _ in range(4) for delivery in await consumer.take(MESSAGES_A_PART // 2)]
            turns = Turns(lambda: -consumer.in_flight)
            await consumer.ack(held[::2])
            await turns.stop()
            assert consumer.in_flight == MESSAGES_A_PART and turns.most <= WORK_A_TURN
        assert queue.depth == MESSAGES_A_PART

    asyncio.run(main())


def test_a_transaction_counts_with_its_commit_and_not_before() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always", policies={"limited": DestinationPolicy(max_messages=10)})
        queue, limited = await bay.aio.queue("orders"), await bay.aio.queue("limited")
        await queue.send(b"in")
        async with queue.subscribe() as consumer, limited.subscribe() as other:
            [delivery] = await consumer.take()
            async with bay.aio.transaction() as transaction:
                assert transaction.is_open
                await delivery.ack(transaction)
                await queue.send(b"out", transaction=transaction)
                await limited.send(b"0", transaction=transaction)
                await limited.send_many([Message(b"1"), Message(b"2")], transaction=transaction)
                waiting = asyncio.create_task(consumer.take(timeout=None))
                await ticks()
                assert not waiting.done() and await other.take(5) == []
            [delivery] = await waiting
            assert delivery.body == b"out" and not transaction.is_open
            assert [found.body for found in await other.take(5)] == [b"0", b"1", b"2"]
            with pytest.raises(ZeroDivisionError):
                async with bay.aio.transaction() as transaction:
                    await consumer.ack([delivery], transaction=transaction)
                    await queue.send_many([Message(b"never")] * 3, transaction=transaction)
                    raise ZeroDivisionError
            [delivery] = await consumer.take()
            assert (delivery.body, delivery.attempts) == (b"out", 2)
            async with bay.aio.transaction() as transaction:
                await queue.send(b"later", transaction=transaction)
                await transaction.prepare(b"x")
            [found] = bay.aio.prepared()
            assert found.xid == b"x" and found.is_prepared
            await found.commit()
            [delivery] = await consumer.take()
            assert delivery.body == b"later"
            with pytest.raises(TransactionError):
                await queue.send(b"x", transaction=transaction)
            with pytest.raises(TransactionError):
                await found.rollback()
        bay.check()

    asyncio.run(main())


def test_a_queue_is_browsed_searched_moved_paused_and_deleted() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        queue, other = await bay.aio.queue("orders"), await bay.aio.queue("other")
        ids = await queue.send_many(Message(b"%d" % n, {"n": n}) for n in range(10))
        await queue.send(b"fleeting", persistent=False)
        assert [message.body async for message in queue.browse("n >= 8")] == [b"8", b"9"]
        found = await queue.find(ids[3])
        assert found is not None and found.body == b"3"
        assert await queue.move(other, "n < 4") == 4 and await queue.move("third", limit=1) == 1
        queue.pause()
        async with other.subscribe() as consumer, queue.subscribe() as waiting:
            assert queue.is_paused and await waiting.take() == []
            taking = asyncio.create_task(waiting.take(timeout=None))
            await ticks()
            queue.resume()
            assert len(await taking) == 1
            await consumer.ack(await consumer.take(10))
            ends = [asyncio.create_task(consumer.take(timeout=None)) for _ in range(2)]
            await ticks()
            bay.queue("other").delete()
            assert [type(error) for error in await asyncio.gather(*ends, return_exceptions=True)] == [Closed] * 2
        assert await queue.purge() > 0
        await queue.delete()
        with pytest.raises(Closed):
            await queue.send(b"x")
        bay.check()

    asyncio.run(main())


def test_a_browse_hops_to_a_thread_for_each_load_and_not_for_each_message() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % n, {"n": n}) for n in range(2000))
        assert isinstance(bay.workers, Inline)
        before = bay.workers.calls
        assert [message.body async for message in queue.browse()] == [b"%d" % n for n in range(2000)]
        assert [message.body async for message in queue.browse("n = 1999")] == [b"1999"]
        assert bay.workers.calls - before <= 2 * (2000 // 512 + 3)
        browsing = queue.browse()
        assert (await anext(browsing)).body == b"0"
        assert bay.bay.statistics().memory.holders["browsers"] >= 512  # what is in the task's hands is charged
        await browsing.aclose()
        assert bay.bay.statistics().memory.holders["browsers"] == 0

    asyncio.run(main())


def test_a_topic_that_is_deleted_sends_no_more() -> None:
    async def main() -> None:
        workers = Inline()
        bay = LoopBay(workers=workers)
        topic = await bay.aio.topic("prices")
        consumer = await topic.subscribe()
        calls = workers.calls
        await topic.delete()
        assert workers.calls == calls, "its two workers sync and load"
        for call in (topic.send(b"x"), consumer.take()):
            with pytest.raises(Closed):
                await call
        bay.check()

    asyncio.run(main())


def test_a_block_that_is_cancelled_is_rolled_back() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        queue = await bay.aio.queue("orders")

        async def work() -> None:
            async with bay.aio.transaction() as transaction:
                await queue.send(b"x", transaction=transaction)
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await ticks()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert queue.depth == 0 and not bay.transactions.undecided
        bay.check()

    asyncio.run(main())


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        consumer = await queue.subscribe()
        await bay.aio.topic("prices")
        bay.bay.close()
        sends = queue.send(b"x"), queue.send_many([Message(b"x")])
        takes = consumer.take(), consumer.take(timeout=None)
        for call in (*sends, *takes, bay.aio.queue("orders"), bay.aio.topic("prices"), bay.aio.topic("new")):
            with pytest.raises(Closed):
                await call
        assert [delivery async for delivery in consumer] == []

    asyncio.run(main())
