"""Ack deadlines: what is not settled in time comes back as a failed attempt; what settles it too late changes nothing.

A look may be an eighth of the deadline late, and is never early.
"""

from __future__ import annotations

import asyncio
import pickle
from random import Random
from typing import Any

import pytest
from delivering import bodies, numbered_messages
from loops import LoopBay
from sampling import sampled
from simulated_bay import SimulatedBay

from forebay import AckTooLate, Consumer, Delivery, DestinationPolicy, Message, SettingsError, StateError, StoreFull
from forebay.dispatch.core.redelivery.deadlines import EXTENSION_BYTES, LOOKS, WATCH_BYTES
from forebay.testing import MemoryForebay

DEADLINE = 8.0
LATEST = DEADLINE + DEADLINE / LOOKS


def staged(count: int = 3, seed: int = 0, **policy: Any) -> SimulatedBay:
    bay = SimulatedBay(seed, policies={">": DestinationPolicy(**{"ack_deadline_seconds": DEADLINE} | policy)})
    bay.queue().send_many(numbered_messages(count))
    return bay


def let_pass(bay: SimulatedBay, seconds: float) -> None:
    """Time passes, and what is due is done in small steps."""
    for _ in range(int(seconds * 4)):
        bay.clock.advance(0.25)
        bay.bay.step()


def tries(deliveries: list[Delivery]) -> list[tuple[bytes, int]]:
    return [(delivery.body, delivery.attempts) for delivery in deliveries]


def charge(bay: SimulatedBay) -> int:
    return bay.bay.statistics().memory.holders["deadlines"]


# ------------------------------------------------------------------ coming back


def test_what_is_not_settled_in_time_comes_back_with_one_more_attempt_and_never_early() -> None:
    bay = staged()
    with bay.queue().subscribe() as consumer, bay.queue().subscribe() as other:
        first, *_ = consumer.take(2)
        first.ack()
        let_pass(bay, DEADLINE - 0.25)
        assert consumer.in_flight == 1 and bodies(other.take(9)) == [b"2"]
        let_pass(bay, LATEST - DEADLINE + 0.5)
        assert consumer.in_flight == 0
        assert tries(consumer.take(1)) == [(b"1", 2)]
    bay.check()


def test_the_policy_delays_it_and_ends_it_as_any_failed_attempt() -> None:
    bay = staged(1, max_attempts=2, redelivery_delay_seconds=5.0, dead_letter_queue="dead")
    with bay.queue().subscribe() as consumer:
        consumer.take()
        let_pass(bay, LATEST + 0.5)
        assert consumer.in_flight == 0 and consumer.take() == []
        let_pass(bay, 5.0)
        assert tries(consumer.take()) == [(b"0", 2)]
        let_pass(bay, LATEST + 1.0)
        assert bay.queue("dead").depth == 1 and bay.queue().depth == 0
    bay.check()


def test_subscribe_says_it_for_one_consumer_and_zero_is_no_deadline() -> None:
    bay = staged(2)
    with (
        bay.queue().subscribe(ack_deadline_seconds=2) as short,
        bay.queue().subscribe(ack_deadline_seconds=0) as endless,
    ):
        assert (short.ack_deadline_seconds, endless.ack_deadline_seconds) == (2.0, None)
        short.take()
        endless.take()
        let_pass(bay, 100)
        assert (short.in_flight, endless.in_flight) == (0, 1)
        assert tries(short.take()) == [(b"0", 2)]
    for wrong in (0.5, -1, "soon", float("nan"), True):
        with pytest.raises(SettingsError):
            bay.queue().subscribe(ack_deadline_seconds=wrong)  # type: ignore[arg-type]
        with pytest.raises(SettingsError):
            DestinationPolicy(ack_deadline_seconds=wrong)  # type: ignore[arg-type]
    bay.check()


def test_a_group_goes_on_with_another_consumer_and_in_order() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(ack_deadline_seconds=DEADLINE, group_rebalance=True)})
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n, group="tea") for n in range(4))
    with queue.subscribe(prefetch=2) as stuck, queue.subscribe() as healthy:
        assert bodies(stuck.take(2)) == [b"0", b"1"] and healthy.take(9) == []
        let_pass(bay, LATEST + 0.5)
        stuck.close()
        assert tries(healthy.take(9)) == [(b"0", 2), (b"1", 2), (b"2", 1), (b"3", 1)]
    bay.check()


def test_a_durable_subscription_and_non_persistent_messages_have_it_too() -> None:
    bay = staged(0)
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as audit, topic.subscribe(ack_deadline_seconds=2.0) as passing:
        topic.send(b"kept")
        topic.send(b"lost", persistent=False)
        assert len(audit.take(9)) == 2 == len(passing.take(9))
        let_pass(bay, 3.0)
        assert (audit.in_flight, passing.in_flight) == (2, 0)
        let_pass(bay, DEADLINE)
        assert sorted(tries(audit.take(9))) == [(b"kept", 2), (b"lost", 2)]
    bay.check()


def test_more_than_are_given_back_at_one_go_come_back_in_order() -> None:
    bay = SimulatedBay(memory_limit="16MiB", policies={">": DestinationPolicy(ack_deadline_seconds=DEADLINE)})
    bay.queue().send_many(numbered_messages(2_500))
    with bay.queue().subscribe(prefetch=0) as consumer:
        taken: list[Delivery] = []
        while batch := consumer.take(1000):
            taken += batch
        assert len(taken) == 2_500
        let_pass(bay, LATEST + 1.0)
        assert consumer.in_flight == 0
        again: list[Delivery] = []
        while batch := consumer.take(1000):
            again += batch
        assert tries(again) == [(b"%d" % n, 2) for n in range(2_500)]
        consumer.release(again)
    bay.check()


def test_a_take_that_waits_gets_it_where_no_thread_looks() -> None:
    bay = staged(1)
    with bay.queue().subscribe() as stuck, bay.queue().subscribe() as other:
        stuck.take()
        assert other.take() == []
        bay.clock.advance(DEADLINE / LOOKS)
        assert other.take() == []  # it notes who has what
        bay.clock.advance(DEADLINE)
        assert tries(other.take()) == [(b"0", 2)]
    bay.check()


@pytest.mark.parametrize("timeout", [10 * DEADLINE, None])
def test_a_take_that_waits_looks_by_itself_where_no_thread_does(timeout: float | None) -> None:
    with MemoryForebay() as bay:
        orders = bay.queue("orders")
        orders.send(b"0")
        with orders.subscribe(ack_deadline_seconds=DEADLINE) as stuck, orders.subscribe() as other:
            stuck.take()
            assert tries(other.take(timeout=timeout)) == [(b"0", 2)]
            assert DEADLINE <= bay.clock.monotonic() <= DEADLINE * 9 / 8 + 0.01


def test_time_that_a_test_lets_pass_at_once_ends_deadlines_of_any_length() -> None:
    with MemoryForebay() as bay:
        orders = bay.queue("orders")
        orders.send_many(numbered_messages(2))
        brief, long = orders.subscribe(ack_deadline_seconds=1), orders.subscribe(ack_deadline_seconds=100)
        deliveries = [*brief.take(), *long.take()]
        bay.advance(113)
        for delivery in deliveries:
            with pytest.raises(AckTooLate):
                delivery.ack()


# ------------------------------------------------------------------ too late


def late(bay: SimulatedBay) -> tuple[Consumer, Delivery]:
    consumer = bay.queue().subscribe()
    [delivery] = consumer.take()
    let_pass(bay, LATEST + 0.5)
    return consumer, delivery


@pytest.mark.parametrize("settle", ["ack", "nack", "release", "reject"])
def test_what_settles_it_too_late_raises_with_numbers_and_changes_nothing(settle: str) -> None:
    bay = staged(1)
    consumer, delivery = late(bay)
    with pytest.raises(AckTooLate, match=r"delivery 0 of 'orders' was not settled within its 8 s") as caught:
        getattr(delivery, settle)()
    error = caught.value
    assert isinstance(error, StateError)
    assert (error.destination, error.sequence, error.attempts, error.deadline_seconds) == ("orders", 0, 1, DEADLINE)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    [again] = consumer.take()
    with pytest.raises(AckTooLate):
        consumer.ack([again, delivery])
    assert tries([again]) == [(b"0", 2)] and bay.queue().depth == 1
    again.ack()
    with pytest.raises(AckTooLate):
        delivery.ack()
    with pytest.raises(AckTooLate):
        delivery.extend(5)
    consumer.close()
    with pytest.raises(AckTooLate):
        delivery.ack()
    bay.check()


def test_a_block_that_ends_too_late_says_so_and_one_that_raises_lets_its_own_error_through() -> None:
    bay = staged(1, max_attempts=None)
    for error in (AckTooLate, ZeroDivisionError):
        with bay.queue().subscribe() as consumer, pytest.raises(error):
            [delivery] = consumer.take()
            with delivery:
                let_pass(bay, LATEST + 0.5)
                if error is ZeroDivisionError:
                    raise ZeroDivisionError
    bay.check()


def test_a_handler_that_works_too_long_goes_on_with_the_next_attempt() -> None:
    bay = staged(1)
    seen: list[int] = []

    def work(delivery: Delivery) -> None:
        seen.append(delivery.attempts)
        if delivery.attempts == 1:
            let_pass(bay, LATEST + 0.5)
        else:
            consumer.drain(timeout=0)

    with bay.queue().subscribe() as consumer:
        consumer.process(work)
    assert seen == [1, 2] and bay.queue().depth == 0
    bay.check()


def test_the_log_says_it_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    bay = staged(2, max_attempts=None)
    with bay.queue().subscribe() as consumer:
        for _ in range(4):
            consumer.take(2)
            let_pass(bay, LATEST + 0.5)
        let_pass(bay, 60.0)
        consumer.take(1)
        let_pass(bay, LATEST + 0.5)
    said = [record for record in caplog.records if record.__dict__.get("event") == "ack_deadline_passed"]
    assert [record.getMessage() for record in said] == [
        f"deliveries were not settled before their ack deadline and come again: {count}, one of them of 'orders'"
        for count in (2, 7)
    ]


# ------------------------------------------------------------------ more time


def test_extend_gives_so_many_seconds_from_now_on_again_and_again() -> None:
    bay = staged(2)
    with bay.queue().subscribe() as consumer:
        long, short = consumer.take(2)
        for _ in range(5):
            let_pass(bay, DEADLINE - 1)
            long.extend(DEADLINE)
        assert consumer.in_flight == 1
        with pytest.raises(AckTooLate):
            short.ack()
        assert charge(bay) == WATCH_BYTES + EXTENSION_BYTES
        let_pass(bay, DEADLINE - 0.5)
        long.ack()
        let_pass(bay, 2 * LATEST)
        assert charge(bay) == WATCH_BYTES
        [again] = consumer.take(9)
        again.extend(1.0)
        let_pass(bay, 1.0 + LATEST - DEADLINE)
        assert consumer.in_flight == 0
        assert tries(consumer.take()) == [(b"1", 3)]
    assert charge(bay) == 0
    bay.check()


def test_an_earlier_deadline_wakes_maintenance_and_a_later_one_does_not() -> None:
    bay = staged()
    with bay.queue().subscribe() as consumer:
        [delivery] = consumer.take()
        for seconds, wakes in ((DEADLINE, False), (DEADLINE / LOOKS / 2, True)):
            bay.background_requests.housekeeper.clear()
            delivery.extend(seconds)
            assert bay.background_requests.housekeeper.is_set() is wakes


def test_extend_without_a_deadline_does_nothing_and_checks_what_it_is_given() -> None:
    bay = staged(1)
    with bay.queue().subscribe(ack_deadline_seconds=0) as consumer:
        [delivery] = consumer.take()
        delivery.extend(5)
        for wrong in (-1, "soon", None):
            with pytest.raises(SettingsError):
                delivery.extend(wrong)  # type: ignore[arg-type]
        delivery.ack()
        with pytest.raises(StateError):
            delivery.extend(5)
    bay.check()


def test_extended_deliveries_that_are_settled_take_no_memory_for_long() -> None:
    bay = staged(2_000)
    with bay.queue().subscribe() as consumer:
        most = 0
        while taken := consumer.take(10):
            for delivery in taken:
                delivery.extend(1_000_000)
            consumer.ack(taken)
            most = max(most, charge(bay))
        assert most < WATCH_BYTES + 200 * EXTENSION_BYTES
    assert charge(bay) == 0
    bay.check()


def test_without_room_in_memory_subscribe_and_extend_say_so_and_change_nothing() -> None:
    bay = staged(1)
    consumer = bay.queue().subscribe()
    [delivery] = consumer.take()
    filler = bay.budget.holder("filler")
    while filler.reserve(64):
        pass
    with pytest.raises(StoreFull):
        delivery.extend(5)
    consumers: list[Consumer] = []
    with pytest.raises(StoreFull):
        while len(consumers) < 10_000:
            consumers.append(bay.bay.topic("prices").subscribe())
    filler.release(filler.held_bytes)
    delivery.ack()
    assert charge(bay) == (1 + len(consumers)) * WATCH_BYTES


# ------------------------------------------------------------------ transactions, close, kill, drain


def test_a_transaction_settles_what_it_acknowledges_however_long_it_takes() -> None:
    bay = staged(2)
    with bay.queue().subscribe() as consumer:
        first, second = consumer.take(2)
        with bay.bay.transaction() as transaction:
            first.ack(transaction)
            second.extend(1000)
            let_pass(bay, 3 * LATEST)
        assert bay.queue().depth == 1
        transaction = bay.bay.transaction()
        second.ack(transaction)
        let_pass(bay, 3 * LATEST)
        transaction.rollback()
        [again] = consumer.take(9)
        assert tries([again]) == [(b"1", 2)]
        let_pass(bay, LATEST + 0.5)
        with pytest.raises(AckTooLate):
            again.ack(bay.bay.transaction())
    bay.check()


def test_a_close_ends_it_and_a_kill_brings_it_back_as_ever() -> None:
    bay = staged(2)
    consumer = bay.queue().subscribe()
    consumer.take(2)
    let_pass(bay, 2.0)
    consumer.close()
    let_pass(bay, 2 * LATEST)
    assert charge(bay) == 0
    consumer = bay.queue().subscribe()
    assert tries(consumer.take(1)) == [(b"0", 1)]
    let_pass(bay, LATEST + 0.5)
    bay.crash()
    with bay.queue().subscribe() as consumer:
        assert tries(consumer.take(9)) == [(b"0", 2), (b"1", 1)]
    bay.check()


def test_a_drain_ends_when_the_deadline_of_what_is_in_flight_has_passed() -> None:
    bay = staged(1)
    with bay.queue().subscribe() as consumer:
        consumer.take()
        assert not consumer.drain(timeout=0)
        let_pass(bay, LATEST + 0.5)
        assert consumer.drain(timeout=0)
    bay.check()


def test_in_a_loop_it_is_the_same() -> None:
    async def main() -> None:
        bay = LoopBay(policies={">": DestinationPolicy(ack_deadline_seconds=DEADLINE)})
        queue = await bay.aio.queue("orders")
        await queue.send_many(numbered_messages(2))
        async with queue.subscribe() as consumer:
            assert consumer.ack_deadline_seconds == DEADLINE
            first, second = await consumer.take(2)
            waiting = asyncio.create_task(consumer.take(timeout=None))
            let_pass(bay, DEADLINE - 1)
            await second.extend(100)
            let_pass(bay, LATEST)
            [again] = await waiting
            assert (again.body, again.attempts) == (b"0", 2)
            with pytest.raises(AckTooLate):
                await first.ack()
            with pytest.raises(AckTooLate):
                async with first:
                    pass
            await consumer.ack([again, second])
            assert queue.depth == 0
        async with queue.subscribe(ack_deadline_seconds=0) as consumer:
            assert consumer.ack_deadline_seconds is None
        bay.check()

    asyncio.run(main())


# ------------------------------------------------------------------ any order of calls


@pytest.mark.parametrize("seed", sampled(range(12), 5))
def test_each_delivery_is_late_between_its_deadline_and_an_eighth_more(seed: int) -> None:
    random = Random(seed)
    bay = staged(0, seed, max_attempts=None)
    queue = bay.queue()
    consumers: list[Consumer] = []
    until: dict[Delivery, float] = {}
    sent = done = 0
    for _ in range(1_500):
        match random.randrange(12):
            case 0 | 1 | 2:
                queue.send(b"x", persistent=random.random() < 0.7, priority=random.choice([4, 4, 6]))
                sent += 1
            case 3 if len(consumers) < 4:
                consumers.append(queue.subscribe(prefetch=random.choice([0, 5])))
            case 4 if consumers and random.random() < 0.1:
                gone = consumers.pop(random.randrange(len(consumers)))
                gone.close()
                until = {delivery: at for delivery, at in until.items() if delivery.consumer is not gone}
            case 5 | 6 | 7 if consumers:
                for delivery in random.choice(consumers).take(random.randrange(1, 4)):
                    until[delivery] = bay.clock.monotonic() + DEADLINE
            case 8 | 9 if until:
                delivery = random.choice(list(until))
                now, at = bay.clock.monotonic(), until.pop(delivery)
                try:
                    if random.random() < 0.3:
                        seconds = random.uniform(1, 20)
                        delivery.extend(seconds)
                        until[delivery] = now + seconds
                    elif random.random() < 0.2:
                        delivery.release()
                    else:
                        delivery.ack()
                        done += 1
                    assert now <= at + DEADLINE / LOOKS + 0.5, f"seed {seed}: {now} is too late for {at}"
                except AckTooLate:
                    assert now >= at, f"seed {seed}: {now} is too early for {at}"
            case _:
                let_pass(bay, 0.25)
        bay.check()
    assert queue.depth == sent - done, f"seed {seed}"
