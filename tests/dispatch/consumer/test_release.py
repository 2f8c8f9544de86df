"""What a host gives back untried: `release`, and a close that names what was processed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, DestinationPolicy, Message, SettingsError, StateError, TransactionError


def numbered(count: int = 10, **policy: Any) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(**policy)})
    bay.queue().send_many(Message(b"%d" % n) for n in range(count))
    return bay


def attempts(consumer: Consumer, count: int = 10) -> list[int]:
    return [delivery.attempts for delivery in consumer.take(count)]


def test_what_is_released_comes_again_in_its_place_and_counts_no_attempt() -> None:
    bay = numbered(10, max_attempts=2)
    with bay.queue().subscribe() as consumer:
        for _ in range(5):
            taken = consumer.take(6)
            assert bodies(taken) == [b"0", b"1", b"2", b"3", b"4", b"5"]
            assert [delivery.attempts for delivery in taken] == [1] * 6
            consumer.release([taken[4], taken[1], taken[0]])
            taken[2].release()
            consumer.release((taken[3], taken[5]))
            assert consumer.in_flight == 0
        assert bodies(consumer.take(10)) == [b"%d" % n for n in range(10)]
    bay.check()


def test_what_came_back_before_keeps_its_count_when_it_is_released() -> None:
    bay = numbered(2)
    with bay.queue().subscribe() as consumer:
        consumer.nack(consumer.take(2))
        for _ in range(9):
            taken = consumer.take(2)
            assert [delivery.attempts for delivery in taken] == [2, 2]
            consumer.release(taken)
    bay.crash()
    assert attempts(bay.queue().subscribe()) == [2, 2]
    bay.check()


def test_a_release_gives_credit_and_wakes_the_other_consumers() -> None:
    bay = numbered(1)
    calls: list[int] = []
    first = bay.queue().subscribe(prefetch=1)
    second = bay.queue().subscribe(on_ready=lambda: calls.append(1))
    taken = first.take()
    assert second.take() == []
    calls.clear()
    first.release(taken)
    assert calls == [1] and bodies(second.take()) == [b"0"]
    second.close()
    assert bodies(first.take()) == [b"0"]


def test_a_released_message_that_is_not_persistent_comes_again_too() -> None:
    bay = numbered(0)
    bay.queue().send(b"non_persistent", persistent=False)
    with bay.queue().subscribe() as consumer:
        consumer.release(consumer.take())
        [again] = consumer.take()
        assert (again.body, again.attempts) == (b"non_persistent", 1)


def test_what_is_settled_or_a_transactions_or_anothers_is_not_released() -> None:
    bay = numbered(4)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    done, held, kept, foreign = *consumer.take(3), *other.take()
    done.ack()
    with bay.bay.transaction() as transaction:
        held.ack(transaction)
        wrong: list[tuple[Any, type[Exception]]] = [
            (done, StateError),
            ([kept, held], TransactionError),
            ([kept, foreign], SettingsError),
            ([kept, kept], SettingsError),
            ("kept", TypeError),
        ]
        for deliveries, error in wrong:
            with pytest.raises(error):
                consumer.release(deliveries)
        kept.ack()
    bay.check()


PROCESSED: dict[str, Callable[[list[Delivery]], Any]] = {
    "one": lambda taken: taken[1],
    "some": lambda taken: [taken[1]],
    "with what is settled": lambda taken: (taken[1], taken[9]),
}


@pytest.mark.parametrize("policy", ["processed", "all", "none"])
@pytest.mark.parametrize("named", list(PROCESSED))
def test_a_close_counts_what_it_names_as_processed_and_nothing_else(named: str, policy: Any) -> None:
    bay = numbered(count_on_close=policy)
    consumer = bay.queue().subscribe()
    taken = consumer.take(10)
    assert [delivery.body for delivery in taken] == [b"%d" % n for n in range(10)]
    taken[9].ack()
    consumer.close(processed=PROCESSED[named](taken))
    assert attempts(bay.queue().subscribe()) == [1, 2] + [1] * 7
    bay.check()


def test_a_close_that_names_nothing_counts_nothing() -> None:
    bay = numbered(3)
    consumer = bay.queue().subscribe()
    assert next(iter(consumer)).body == b"0"
    consumer.close(processed=[])
    assert attempts(bay.queue().subscribe()) == [1, 1, 1]


def test_a_close_that_names_anothers_delivery_or_none_at_all_does_not_close() -> None:
    bay = numbered(3)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    taken = other.take()
    refused: list[Any] = [taken, taken[0], "x", [b"0"], 5]
    for wrong in refused:
        with pytest.raises(SettingsError):
            consumer.close(processed=wrong)
    assert bodies(consumer.take()) == [b"1"]


def test_a_client_that_comes_again_and_again_and_works_on_one_makes_no_dead_letters_of_the_rest() -> None:
    bay = numbered(10)
    for _ in range(20):
        consumer = bay.queue().subscribe()
        for delivery in consumer.take(10):
            assert delivery.body
        consumer.close(processed=())
        bay.bay.step()
    assert bay.queue().depth == 10 and "DLQ.orders" not in bay.bay.destinations()


def test_in_a_loop_releases_and_named_closes_do_the_same() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % n) for n in range(4))
        consumer = await queue.subscribe()
        taken = await consumer.take(4)
        await taken[0].release()
        await consumer.release(taken[1:])
        taken = await consumer.take(4)
        assert [(delivery.body, delivery.attempts) for delivery in taken] == [(b"%d" % n, 1) for n in range(4)]
        await consumer.close(processed=taken[2])
        async with queue.subscribe() as consumer:
            taken = await consumer.take(4)
            assert [delivery.attempts for delivery in taken] == [1, 1, 2, 1]
            await consumer.close(processed=taken[:1])
        async with queue.subscribe() as consumer:
            assert [delivery.attempts for delivery in await consumer.take(4)] == [2, 1, 2, 1]

    asyncio.run(main())
