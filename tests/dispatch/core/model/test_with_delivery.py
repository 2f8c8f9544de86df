"""`with delivery:` settles at the end of the block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from delivering import bodies
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import Delivery, DestinationPolicy, Message


def numbered(count: int) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_attempts=3)})
    bay.queue().send_many(Message(b"%d" % n) for n in range(count))
    return bay


def test_a_block_that_ends_acknowledges_and_one_that_raises_gives_back() -> None:
    bay = numbered(2)
    with bay.queue().subscribe() as consumer:
        first, second = consumer.take(2)
        with first as entered:
            assert entered is first and bay.queue().depth == 2
        with pytest.raises(ZeroDivisionError), second:
            raise ZeroDivisionError
        assert bay.queue().depth == 1 and consumer.in_flight == 0
        [again] = consumer.take(2)
        assert (again.body, again.attempts) == (b"1", 2)
    bay.check()


def test_it_works_on_what_iteration_gives_and_an_interruption_gives_back_too() -> None:
    bay = numbered(3)
    with bay.queue().subscribe() as consumer:
        with pytest.raises(KeyboardInterrupt):
            for delivery in consumer:
                with delivery:
                    if delivery.body == b"1":
                        raise KeyboardInterrupt
        assert bodies(consumer.take(5)) == [b"1", b"2"]


SETTLED: dict[str, tuple[Callable[[Delivery], object], list[bytes]]] = {
    "ack": (lambda delivery: delivery.ack(), []),
    "nack": (lambda delivery: delivery.nack(), [b"0"]),
    "release": (lambda delivery: delivery.release(), [b"0"]),
}


@pytest.mark.parametrize("raises", [False, True])
@pytest.mark.parametrize("settled", list(SETTLED))
def test_what_the_block_settled_itself_is_left_as_it_is(settled: str, raises: bool) -> None:
    bay = numbered(1)
    settle, left = SETTLED[settled]
    with bay.queue().subscribe() as consumer:
        [delivery] = consumer.take()
        try:
            with delivery:
                settle(delivery)
                if raises:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        assert bodies(consumer.take()) == left
    bay.check()


def test_what_a_transaction_acknowledges_is_the_transactions() -> None:
    bay = numbered(1)
    with bay.queue().subscribe() as consumer:
        transaction = bay.bay.transaction()
        with consumer.take()[0] as delivery:
            delivery.ack(transaction)
        assert bay.queue().depth == 1
        transaction.rollback()
        assert [again.attempts for again in consumer.take()] == [2]


def test_what_went_back_with_its_consumer_comes_again() -> None:
    bay = numbered(1)
    consumer = bay.queue().subscribe()
    with consumer.take()[0]:
        consumer.close()
    assert [again.attempts for again in bay.queue().subscribe().take()] == [2]


def test_the_last_attempt_that_raises_makes_a_dead_letter() -> None:
    bay = numbered(1)
    with bay.queue().subscribe() as consumer:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError), consumer.take()[0]:
                raise ZeroDivisionError
    bay.bay.step()
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"0"]


def test_in_a_loop_a_block_does_the_same_and_a_cancelled_one_gives_back() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % n) for n in range(3))
        async with queue.subscribe() as consumer:
            first, second, third = await consumer.take(3)
            async with first as entered:
                assert entered is first
            with pytest.raises(ZeroDivisionError):
                async with second:
                    raise ZeroDivisionError

            async def work() -> None:
                async with third:
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert consumer.in_flight == 0
            again = await consumer.take(3)
            assert [(delivery.body, delivery.attempts) for delivery in again] == [(b"1", 2), (b"2", 2)]

    asyncio.run(main())
