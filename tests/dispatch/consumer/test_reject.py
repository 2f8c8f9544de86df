"""`reject`: a consumer makes dead letters of what nobody shall process, however few attempts it had."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay
from simulated_bay import SimulatedBay

from forebay import Delivery, DestinationPolicy, Message, SettingsError, StateError, StoreFull, TransactionError


def numbered(count: int = 6, **policy: Any) -> SimulatedBay:
    bay = SimulatedBay(policies={">": DestinationPolicy(**policy)})
    bay.queue().send_many(Message(b"%d" % n, {"n": n}) for n in range(count))
    return bay


@pytest.mark.parametrize("ends", ["nothing", "crash", "reopen"])
def test_what_is_rejected_is_a_dead_letter_at_once_and_says_why(ends: str) -> None:
    bay = numbered(6)
    consumer = bay.queue().subscribe()
    taken = consumer.take(6)
    id = taken[4].id
    consumer.reject([taken[4], taken[1]], reason="no such customer")
    taken[2].reject()
    assert consumer.in_flight == 3
    consumer.ack([taken[0], taken[3], taken[5]])
    bay.check()
    if ends != "nothing":
        getattr(bay, ends)()
    assert bay.queue().depth == 0
    dead = bay.queue("DLQ.orders").subscribe().take(9)
    reasons = ["no such customer", "no such customer", "rejected"]
    assert [(each.body, each.headers["dead_letter_reason"]) for each in dead] == list(
        zip((b"1", b"4", b"2"), reasons, strict=True)
    )
    assert dead[1].id == id and dead[1].headers["n"] == 4
    assert dead[1].headers["dead_letter_from"] == "orders" and dead[1].headers["dead_letter_attempts"] == 1
    bay.check()


def test_where_no_dead_letters_are_kept_what_is_rejected_is_gone() -> None:
    bay = numbered(3, dead_letter_queue=None)
    with bay.queue().subscribe() as consumer:
        consumer.reject(consumer.take(2))
    bay.crash()
    assert bodies(bay.queue().browse()) == [b"2"]
    assert bay.bay.destinations() == ["orders"]


def test_from_a_dead_letter_queue_what_is_rejected_is_gone() -> None:
    bay = numbered(2)
    with bay.queue().subscribe() as consumer:
        consumer.reject(consumer.take(2))
    with bay.queue("DLQ.orders").subscribe() as consumer:
        consumer.take(2)[0].reject("seen")
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"1"]
    assert sorted(bay.bay.destinations()) == ["DLQ.orders", "orders"]
    bay.check()


def test_what_is_not_persistent_is_rejected_too() -> None:
    bay = numbered(1)
    bay.queue().send(b"non_persistent", persistent=False)
    with bay.queue().subscribe() as consumer:
        consumer.reject([*consumer.take(5), *consumer.take(5)], reason="no")
        assert consumer.in_flight == bay.queue().depth == 0
    reader = bay.queue("DLQ.orders").subscribe()
    dead = [*reader.take(5), *reader.take(5)]
    assert [(each.body, each.persistent) for each in dead] == [(b"0", True), (b"non_persistent", False)]
    assert bay.bay.statistics().destinations["orders"].dead_lettered == 2
    bay.check()


def test_a_rejected_message_frees_its_consumer_and_its_group() -> None:
    bay = SimulatedBay()
    bay.queue().send_many(Message(b"%d" % n, group="a") for n in range(3))
    consumer = bay.queue().subscribe(prefetch=1)
    for n in range(3):
        [delivery] = consumer.take(3)
        assert delivery.body == b"%d" % n
        delivery.reject("no")
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"0", b"1", b"2"]
    bay.check()


def test_a_durable_subscription_rejects_for_itself_alone() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    audit, other = topic.subscribe(durable="audit"), topic.subscribe()
    topic.send(b"1")
    audit.reject(audit.take(), reason="no")
    [dead] = bay.queue("DLQ.prices").subscribe().take()
    assert (dead.body, dead.headers["dead_letter_subscription"]) == (b"1", "audit")
    other.reject(other.take(), reason="neither")
    assert bay.queue("DLQ.prices").depth == 2
    bay.check()


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_in_a_transaction_it_is_so_with_the_commit(commits: bool, is_kept: bool) -> None:
    bay = numbered(3, **({} if is_kept else {"dead_letter_queue": None}))
    consumer = bay.queue().subscribe()
    first, second, _ = consumer.take(3)
    transaction = bay.bay.transaction()
    consumer.reject([first], reason="no", transaction=transaction)
    second.reject("never", transaction)
    assert bay.queue().depth == 3
    with pytest.raises(TransactionError):
        first.ack()
    transaction.commit() if commits else transaction.rollback()
    bay.check()
    bay.crash()
    dead = bay.queue("DLQ.orders").subscribe().take(9) if is_kept else []
    expected = [(b"0", "no"), (b"1", "never")] if commits and is_kept else []
    assert [(each.body, each.headers["dead_letter_reason"]) for each in dead] == expected
    assert bay.queue().depth == (1 if commits else 3)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_a_dead_letter_is_kept_whatever_id_its_queue_knows(is_in_transaction: bool) -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(duplicate_window=100, dead_letter_queue="dead")})
    for name in ("orders", "parcels"):
        bay.queue(name).send(name.encode(), message_id="1")
    for is_again in (False, True):
        for name in ("orders", "parcels"):
            if is_again:
                assert bay.queue("dead").move(name, limit=1) == 1
            with bay.queue(name).subscribe() as consumer:
                transaction = bay.bay.transaction() if is_in_transaction else None
                consumer.reject(consumer.take(), transaction=transaction)
                if transaction is not None:
                    transaction.commit()
    bay.crash()
    assert sorted(bodies(bay.queue("dead").browse())) == [b"orders", b"parcels"]
    bay.check()


def test_with_the_commit_it_counts_as_a_dead_letter_and_as_no_acknowledgement() -> None:
    bay = numbered(4)
    consumer = bay.queue().subscribe()
    first, second, third, _ = consumer.take(4)
    with bay.bay.transaction() as transaction:
        consumer.reject([first, second], transaction=transaction)
        consumer.ack(third, transaction=transaction)
        found = bay.bay.statistics().destinations["orders"]
        assert (found.acknowledged, found.dead_lettered) == (0, 0)
    found = bay.bay.statistics().destinations["orders"]
    assert (found.acknowledged, found.dead_lettered, found.depth) == (1, 2, 1)


@pytest.mark.parametrize("is_in_transaction", [False, True])
def test_a_rejected_message_keeps_its_timestamp_whatever_it_is_rejected_with(is_in_transaction: bool) -> None:
    bay = SimulatedBay()
    for n in range(3):
        bay.queue().send(b"%d" % n)
        bay.clock.advance(0.3 if n else 100.0)
    consumer = bay.queue().subscribe()
    taken = consumer.take(3)
    sent = {delivery.body: delivery.timestamp for delivery in taken}
    transaction = bay.bay.transaction() if is_in_transaction else None
    consumer.reject(taken[::-1], transaction=transaction)
    if transaction is not None:
        transaction.commit()
    dead = bay.queue("DLQ.orders").subscribe().take(3)
    assert {delivery.body: delivery.timestamp for delivery in dead} == sent


def test_where_a_transaction_has_no_room_for_the_dead_letter_the_message_stays_in_hand() -> None:
    bay = numbered(2)
    consumer = bay.queue().subscribe()
    first, second = consumer.take(2)
    with bay.bay.transaction() as transaction:
        browsers = bay.budget.holders["browsers"]
        filled_bytes = bay.budget.free_bytes
        assert browsers.reserve(filled_bytes)
        with pytest.raises(StoreFull):
            consumer.reject(first, transaction=transaction)
        browsers.release(filled_bytes)
        consumer.reject(second, transaction=transaction)
    assert consumer.in_flight == 1
    first.ack()
    assert bodies(bay.queue("DLQ.orders").browse()) == [b"1"]
    bay.check()


def test_rejecting_far_more_than_memory_holds_reads_little_at_a_time() -> None:
    bay = SimulatedBay()
    size, count = 200_000, 60
    for _ in range(count):
        bay.queue().send(bytes(size))
    consumer = bay.queue().subscribe(prefetch=0)
    held: list[Delivery] = []
    while taken := consumer.take(count):
        held += taken
    assert len(held) == count
    reads = [bay.reads]
    bay.disk.on_call = lambda *_: reads.append(bay.reads)
    consumer.reject(held)
    assert reads[-1] - reads[0] > count // 2 > 20 > max(after - before for before, after in pairwise(reads))
    assert bay.queue("DLQ.orders").depth == count and consumer.in_flight == 0
    bay.check()


@pytest.mark.parametrize("how", ["reject", "transaction", "no room"])
def test_a_dead_letter_that_fails_elsewhere_names_no_subscription_any_more(how: str) -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=1, when_full="dead_letter")})
    audit = bay.bay.topic("prices").subscribe(durable="audit")
    bay.bay.topic("prices").send(b"1")
    audit.reject(audit.take(), reason="no")
    if how == "no room":
        [dead] = bay.queue("DLQ.prices").subscribe().take()
        bay.queue().send(b"before")
        bay.queue().send(dead.body, headers=dead.headers)
    else:
        assert bay.queue("DLQ.prices").move("orders") == 1
        with bay.queue().subscribe() as consumer, bay.bay.transaction() as transaction:
            consumer.reject(consumer.take(), transaction=transaction if how == "transaction" else None)
    [dead] = bay.queue("DLQ.orders").subscribe().take()
    assert dead.body == b"1" and dead.headers["dead_letter_from"] == "orders"
    assert "dead_letter_subscription" not in dead.headers


def test_what_is_settled_or_anothers_is_not_rejected_and_nothing_is_changed() -> None:
    bay = numbered(3)
    bay.queue().send(b"non_persistent", persistent=False)
    consumer, other = bay.queue().subscribe(), bay.queue().subscribe()
    done, kept, foreign, _ = *consumer.take(2), *other.take(2), *other.take(2)
    done.ack()
    refused: list[tuple[Any, type[Exception]]] = [
        ([kept, done], StateError),
        ([kept, foreign], SettingsError),
        ([kept, kept], SettingsError),
        ("kept", TypeError),
    ]
    for deliveries, error in refused:
        with pytest.raises(error):
            consumer.reject(deliveries)
    assert "DLQ.orders" not in bay.bay.destinations() and other.in_flight == 2 and consumer.in_flight == 1
    bay.check()


def test_in_a_loop_it_does_the_same() -> None:
    async def main() -> None:
        bay = LoopBay()
        queue = await bay.aio.queue("orders")
        await queue.send_many(Message(b"%d" % n) for n in range(3))
        async with queue.subscribe() as consumer:
            first, second, third = await consumer.take(3)
            await first.reject("no")
            async with bay.aio.transaction() as transaction:
                await consumer.reject([second], transaction=transaction)
            await third.ack()
        dead = await bay.aio.queue("DLQ.orders")
        async with dead.subscribe() as consumer:
            found = await consumer.take(3)
            assert [delivery.headers["dead_letter_reason"] for delivery in found] == ["no", "rejected"]

    asyncio.run(main())
