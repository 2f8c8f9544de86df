"""A forgotten `await` or `async` ends in a sentence that says what to write, and does nothing."""

from __future__ import annotations

import asyncio
import gc
import inspect
import pickle
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from loops import LoopBay

import forebay.aio
from forebay import ForebayError, NotAwaited
from forebay.testing import MemoryDisk


def run(main: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await main(LoopBay().aio)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(whole())
        gc.collect()


def iterated(what: Any) -> None:
    for _ in what:
        raise AssertionError("it went on")


def entered(what: Any) -> None:
    with what:
        raise AssertionError("it went on")


def said(what: Any, use: Callable[[Any], object]) -> str:
    with pytest.raises(NotAwaited) as caught:
        use(what)
    assert isinstance(caught.value, ForebayError | TypeError | AttributeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def test_a_store_that_was_not_awaited_says_so() -> None:
    disk = MemoryDisk()
    opening: Any = forebay.aio.open(disk=disk, memory_limit="4MiB")
    for use in (lambda bay: bay.queue("orders"), lambda bay: bay.close(), iterated, entered):
        text = said(opening, use)
        assert "await forebay.aio.open(…)" in text and "async with" in text
    assert disk.list("") == []
    assert not hasattr(opening, "queue") and not hasattr(opening, "__len__")
    assert inspect.isawaitable(opening)


def test_a_queue_that_was_not_awaited_says_so() -> None:
    async def main(bay: Any) -> None:
        assert "write `await bay.queue(name)`" in said(bay.queue("orders"), lambda queue: queue.subscribe())
        assert "write `await bay.queue(name)`" in said(bay.queue("orders"), lambda queue: queue.send(b"x"))
        assert "write `await bay.topic(name)`" in said(bay.topic("t"), lambda topic: topic.send_many([]))
        assert bay.destinations() == []

    run(main)


def test_messages_that_were_not_awaited_say_so() -> None:
    async def main(bay: Any) -> None:
        queue = await bay.queue("orders")
        await queue.send(b"x")
        assert "write `await queue.get()`" in said(queue.get(), lambda message: message.body)
        assert "write `await queue.peek()`" in said(queue.peek(), lambda message: message.body)
        assert "write `await queue.subscribe()`" in said(queue.subscribe(), iterated)
        assert "write `await queue.subscribe()`" in said(queue.subscribe(), lambda consumer: consumer.take())
        async with queue.subscribe() as consumer:
            for use in (iterated, len, bool, lambda batch: batch[0]):
                assert "write `await consumer.take()`" in said(consumer.take(5), use)
            assert consumer.in_flight == 0 and queue.depth == 1

    run(main)


def test_a_loop_or_block_without_async_says_so() -> None:
    async def main(bay: Any) -> None:
        queue = await bay.queue("orders")
        async with queue.subscribe() as consumer:
            assert "write `async for delivery in consumer:`" in said(consumer, iterated)
            assert "write `async with queue.subscribe() as consumer:`" in said(consumer, entered)
            await queue.send(b"x")
            [delivery] = await consumer.take()
            assert "write `async with delivery:`" in said(delivery, entered)
            await delivery.ack()
        async with (await bay.topic("prices")).reader("begin") as reader:
            assert "write `async for message in reader:`" in said(reader, iterated)
            assert "write `async with topic.reader(…) as reader:`" in said(reader, entered)
        async with bay.temporary_queue() as replies:
            assert "write `async with bay.temporary_queue() as replies:`" in said(replies, entered)
        assert "write `async with forebay.aio.open(…) as bay:`" in said(bay, entered)
        transaction = bay.transaction()
        assert "write `async with bay.transaction()" in said(transaction, entered)
        await transaction.rollback()

    run(main)


def test_what_is_awaited_is_a_coroutine_as_before() -> None:
    async def main(bay: Any) -> None:
        queue = await asyncio.create_task(bay.queue("orders"))
        await queue.send(b"x")
        async with queue.subscribe() as consumer:
            taking = asyncio.create_task(consumer.take(timeout=None))
            assert asyncio.iscoroutine(coroutine := consumer.take()) and "take" in repr(taking)
            coroutine.close()
            [delivery] = await taking
            waiting = asyncio.create_task(consumer.take(timeout=None))
            await asyncio.sleep(0)
            assert "take" in repr(waiting), "looking at it changes nothing"
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await delivery.ack()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.take(timeout=None), 0.01)
            nothing, none = await asyncio.gather(consumer.take(), queue.peek())
            assert nothing == [] and none is None

    run(main)


def test_one_that_nobody_looks_at_warns_as_coroutines_do() -> None:
    async def main() -> None:
        bay = LoopBay().aio
        with pytest.warns(RuntimeWarning, match=r"AsyncForebay\.queue. was never awaited"):
            bay.queue("orders")  # type: ignore[unused-coroutine]
            gc.collect()

    asyncio.run(main())
