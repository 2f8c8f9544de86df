"""What the close of a consumer counts as an attempt: what somebody looked at, not what was only taken ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, DestinationPolicy, Message, SettingsError


def numbered(count: int = 10, **policy: Any) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(**policy)})
    bay.queue().send_many(Message(b"%d" % n) for n in range(count))
    return bay


def attempts(consumer: Consumer, count: int = 10) -> list[int]:
    return [delivery.attempts for delivery in consumer.take(count)]


@pytest.mark.parametrize("ends", ["consumer", "store"])
def test_messages_that_nobody_looked_at_never_become_dead_letters(ends: str) -> None:
    bay = numbered()
    for _ in range(10):
        consumer = bay.queue().subscribe()
        assert attempts(consumer) == [1] * 10
        if ends == "store":
            bay.reopen()
        else:
            consumer.close()
        bay.bay.step()
        bay.check()
    assert bay.queue().depth == 10 and "DLQ.orders" not in bay.bay.destinations()


LOOKS: dict[str, Callable[[Delivery], object]] = {
    "body": lambda delivery: delivery.body,
    "headers": lambda delivery: delivery.headers,
}


@pytest.mark.parametrize("look", list(LOOKS))
def test_what_was_looked_at_counts_and_what_was_taken_with_it_does_not(look: str) -> None:
    bay = numbered(max_attempts=2)
    with bay.queue().subscribe() as consumer:
        LOOKS[look](consumer.take(10)[3])
    with bay.queue().subscribe() as consumer:
        taken = consumer.take(10)
        assert [delivery.attempts for delivery in taken] == [1, 1, 1, 2] + [1] * 6
        LOOKS[look](taken[3])
    bay.bay.step()
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"3"] and bay.queue().depth == 9
    bay.check()


def test_what_is_only_named_was_not_looked_at() -> None:
    bay = numbered(1)
    with bay.queue().subscribe() as consumer:
        [delivery] = consumer.take()
        assert delivery.id and delivery.timestamp and delivery.priority == 4 and repr(delivery)
    assert attempts(bay.queue().subscribe()) == [1]


def test_iteration_counts_without_a_look() -> None:
    bay = numbered(3)
    with bay.queue().subscribe() as consumer:
        next(iter(consumer))
    assert attempts(bay.queue().subscribe()) == [2, 1, 1]


def test_in_a_loop_the_same_counts() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % n) for n in range(4))
        async with queue.subscribe() as consumer:
            await anext(consumer)
            taken = await consumer.take(3)
            assert (await taken[1].read()).body == b"2"
        async with queue.subscribe() as consumer:
            assert [delivery.attempts for delivery in await consumer.take(4)] == [2, 1, 2, 1]

    asyncio.run(main())


@pytest.mark.parametrize(("count_on_close", "expected"), [("all", [2, 2]), ("none", [1, 1])])
def test_the_policy_may_count_all_or_nothing(count_on_close: str, expected: list[int]) -> None:
    bay = numbered(2, count_on_close=count_on_close)
    with bay.queue().subscribe() as consumer:
        assert consumer.take(2)[0].body == b"0"
    assert attempts(bay.queue().subscribe()) == expected


def test_a_nack_and_a_rollback_count_without_a_look() -> None:
    bay = numbered(2)
    with bay.queue().subscribe() as consumer:
        first, second = consumer.take(2)
        first.nack()
        with bay.bay.transaction() as transaction:
            second.ack(transaction)
            transaction.rollback()
        assert attempts(consumer) == [2, 2]


def test_after_a_nack_a_close_that_was_not_looked_at_takes_its_count_back() -> None:
    bay = numbered(2)
    with bay.queue().subscribe() as consumer:
        consumer.nack(consumer.take(2))
    for _ in range(9):
        with bay.queue().subscribe() as consumer:
            assert attempts(consumer) == [2, 2]
        bay.check()
    bay.reopen()
    assert attempts(bay.queue().subscribe()) == [2, 2]


def test_after_a_kill_what_nobody_looks_at_is_counted_once_at_most() -> None:
    """It may have been the cause, and no more with each close."""
    bay = numbered(2)
    bay.queue().subscribe().take(2)
    bay.crash()
    for turn in range(9):
        with bay.queue().subscribe() as consumer:
            assert attempts(consumer) == [min(turn, 1) + 1] * 2
        bay.check()
    bay.crash()
    for _ in range(9):
        with bay.queue().subscribe() as consumer:
            assert attempts(consumer) == [2, 2]
    assert bay.queue().depth == 2


def test_a_durable_subscription_keeps_what_nobody_looked_at() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(max_attempts=2)})
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send_many(Message(b"x") for _ in range(3))
    for _ in range(5):
        with topic.subscribe(durable="audit") as consumer:
            assert attempts(consumer) == [1, 1, 1]
        bay.bay.step()
    bay.check()


@pytest.mark.parametrize("value", ["some", None, True])
def test_what_is_no_such_rule_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="count_on_close"):
        DestinationPolicy(count_on_close=value)
