"""Transactions over topics, subscriptions and non-persistent messages: what their users see."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from delivering import take_up_to
from simulated_bay import SimulatedBay
from simulated_disk import PowerCut

from forebay import (
    Consumer,
    DestinationPolicy,
    Message,
    Queue,
    StoreFull,
    TransactionError,
)

SYNC_MODES = ("never", "always")


def bodies(consumer: Consumer) -> list[bytes]:
    return [delivery.body for delivery in take_up_to(consumer, 10_000)]


@pytest.mark.parametrize("sync", SYNC_MODES)
@pytest.mark.parametrize("persistent", [True, False])
def test_each_subscription_gets_what_a_transaction_sent_to_its_topic_with_the_commit(
    sync: str, persistent: bool
) -> None:
    bay = SimulatedBay(sync=sync)
    prices, orders = bay.bay.topic("prices"), bay.queue()
    readers = [prices.subscribe(durable="audit"), prices.subscribe(), orders.subscribe()]
    with bay.bay.transaction() as transaction:
        prices.send(b"a", transaction=transaction, persistent=persistent)
        prices.send_many([Message(b"b", persistent=persistent), Message(b"c")], transaction=transaction)
        orders.send(b"d", transaction=transaction, persistent=persistent)
        assert [reader.take(9) for reader in readers] == [[], [], []]
        bay.check()
    assert [sorted(bodies(reader)) for reader in readers] == [[b"a", b"b", b"c"]] * 2 + [[b"d"]]
    bay.check()


@pytest.mark.parametrize("sync", SYNC_MODES)
@pytest.mark.parametrize("persistent", [True, False])
def test_what_a_transaction_acknowledged_comes_back_with_a_rollback_and_never_after_a_commit(
    sync: str, persistent: bool
) -> None:
    bay = SimulatedBay(sync=sync)
    prices, orders = bay.bay.topic("prices"), bay.queue()
    readers = [prices.subscribe(durable="audit"), prices.subscribe(), orders.subscribe()]
    for destination in (prices, orders):
        destination.send(b"x", persistent=persistent)
    for attempt in (1, 2, 3):
        transaction = bay.bay.transaction()
        for reader in readers:
            [delivery] = reader.take(9)
            assert delivery.attempts == attempt
            delivery.ack(transaction)
            with pytest.raises(TransactionError, match="acknowledged in a transaction"):
                delivery.nack()
        bay.check()
        if attempt < 3:
            transaction.rollback()
    transaction.commit()
    assert [reader.take(9) for reader in readers] == [[], [], []]
    assert orders.depth == prices.statistics().subscriptions["audit"].depth == 0
    bay.check()


def test_an_offline_subscription_gets_what_a_transaction_sent_and_one_that_comes_after_the_commit_does_not() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    transaction = bay.bay.transaction()
    prices.send(b"a", transaction=transaction)
    prices.subscribe(durable="in between").close()
    transaction.commit()
    prices.subscribe(durable="later").close()
    bay.crash()
    prices = bay.bay.topic("prices")
    found = {name: bodies(prices.subscribe(durable=name)) for name in prices.subscriptions()}
    assert found == {"audit": [b"a"], "in between": [b"a"], "later": []}


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_prepared_ack_of_a_durable_subscription_survives_and_waits_for_its_outcome(
    is_committed: bool, is_index_lost: bool
) -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    consumer = prices.subscribe(durable="audit")
    prices.send_many([Message(b"%d" % number) for number in range(3)])
    first, second, _ = consumer.take(9)
    transaction = bay.bay.transaction()
    consumer.ack([second], transaction=transaction)
    prices.send(b"sent", transaction=transaction)
    transaction.prepare(b"branch")
    first.ack()
    bay.crash(is_index_lost=is_index_lost)
    prices = bay.bay.topic("prices")
    consumer = prices.subscribe(durable="audit")
    assert bodies(consumer) == [b"2"]
    bay.check()
    [branch] = bay.bay.prepared()
    branch.commit() if is_committed else branch.rollback()
    assert [(delivery.body, delivery.attempts) for delivery in take_up_to(consumer, 9)] == (
        [(b"sent", 1)] if is_committed else [(b"1", 2)]
    )
    bay.check()


@pytest.mark.parametrize("act", ["send", "send to a topic", "ack", "ack of no durable subscription"])
def test_what_no_restart_leaves_is_not_prepared_and_the_transaction_stays_open(act: str) -> None:
    bay = SimulatedBay()
    orders, prices = bay.queue(), bay.bay.topic("prices")
    nameless, consumer = prices.subscribe(), orders.subscribe()
    orders.send(b"a", persistent=False)
    prices.send(b"b")
    transaction = bay.bay.transaction()
    orders.send(b"c", transaction=transaction)
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: orders.send(b"d", persistent=False, transaction=transaction),
        "send to a topic": lambda: prices.send(b"d", persistent=False, transaction=transaction),
        "ack": lambda: consumer.ack(consumer.take(), transaction=transaction),
        "ack of no durable subscription": lambda: nameless.ack(nameless.take(), transaction=transaction),
    }
    calls[act]()
    with pytest.raises(TransactionError, match="can't be prepared, because a restart would lose that part"):
        transaction.prepare(b"branch")
    assert not bay.bay.prepared()
    transaction.commit()
    assert orders.depth == {"send": 3, "ack": 1}.get(act, 2)
    bay.check()


def test_no_consumer_has_a_non_persistent_message_of_a_commit_that_a_power_cut_could_take_back() -> None:
    bay = SimulatedBay(sync="always")
    queue = bay.queue()
    consumer = queue.subscribe()
    seen: list[object] = []

    def look(call: str, name: str) -> None:
        if call == "sync" and not seen:
            seen.append(consumer.take(9))

    transaction = bay.bay.transaction()
    queue.send(b"kept", persistent=False, transaction=transaction)
    queue.send(b"stored", transaction=transaction)
    bay.disk.on_call = look
    transaction.commit()
    bay.disk.on_call = None
    assert seen == [[]]
    assert sorted(bodies(consumer)) == [b"kept", b"stored"]
    bay.power_cut(Random(1), PowerCut.SYNCED)
    assert bodies(bay.queue().subscribe()) == [b"stored"]


def fill(queue: Queue) -> int:
    """Send until neither memory nor tmp-storage takes more; how many messages."""
    sent = 0
    with pytest.raises(StoreFull):
        while True:
            queue.send(bytes(200), persistent=False, timeout=0)
            sent += 1
    return sent


def test_non_persistent_messages_of_a_commit_wait_for_memory_and_none_is_lost() -> None:
    bay = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    queues = [bay.queue(f"queue {number}") for number in range(100)]
    filler = bay.queue("filler")
    filled = fill(filler)
    consumer = filler.subscribe()
    consumer.ack(consumer.take(600))
    transaction = bay.bay.transaction()
    for queue in queues:
        queue.send(b"x", persistent=False, transaction=transaction)
    filled += fill(filler)
    transaction.commit()
    bay.check()
    waiting = [queue for queue in queues if not queue.depth]
    assert waiting, "the first message of a lane takes more than its own charge"
    acknowledged = 600
    while acknowledged < filled:
        taken = consumer.take(1_000)
        consumer.ack(taken)
        acknowledged += len(taken)
    for _ in range(3):
        bay.bay.step()
    assert [queue.depth for queue in queues] == [1] * 100
    bay.check()


def test_the_deletion_of_a_queue_ends_the_charge_of_what_waits_for_memory_there() -> None:
    bay = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    queues = [bay.queue(f"queue {number}") for number in range(100)]
    filler = bay.queue("filler")
    transaction = bay.bay.transaction()
    for queue in queues:
        queue.send(b"x", persistent=False, transaction=transaction)
    fill(filler)
    transaction.commit()
    waiting = [queue for queue in queues if not queue.depth]
    assert waiting
    for queue in waiting:
        queue.delete()
    bay.check()
    assert bay.bay.statistics().memory.holders["transactions"] == 0


def test_the_charge_of_non_persistent_messages_ends_with_a_rollback() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    before = bay.bay.statistics().memory.holders["transactions"]
    transaction = bay.bay.transaction()
    queue.send_many([Message(bytes(1_000), persistent=False) for _ in range(100)], transaction=transaction)
    assert bay.bay.statistics().memory.holders["transactions"] > before + 100_000
    transaction.rollback()
    assert bay.bay.statistics().memory.holders["transactions"] == before
    assert queue.depth == 0
    bay.check()


def test_a_delay_of_a_non_persistent_message_counts_from_the_commit() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    transaction = bay.bay.transaction()
    queue.send(b"later", persistent=False, delay=10, transaction=transaction)
    bay.clock.advance(60)
    transaction.commit()
    bay.clock.advance(9)
    bay.bay.step()
    assert consumer.take(9) == []
    bay.clock.advance(2)
    bay.bay.step()
    assert bodies(consumer) == [b"later"]
    bay.check()


def test_the_id_of_a_non_persistent_message_counts_once_in_a_transaction_too() -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(duplicate_window=10)})
    queue = bay.queue()
    for is_committed in (False, True):
        transaction = bay.bay.transaction()
        for _ in range(2):
            assert queue.send(b"x", message_id="one", persistent=False, transaction=transaction) == "one"
        with pytest.raises(TransactionError, match="has sent this message id"):
            queue.send(b"x", message_id="one")
        transaction.commit() if is_committed else transaction.rollback()
        bay.check()
    queue.send(b"x", message_id="one", persistent=False)
    assert queue.depth == 1


@pytest.mark.parametrize("persistent", [True, False])
def test_a_subscription_without_a_name_may_end_before_the_transaction_that_acknowledged_for_it(
    persistent: bool,
) -> None:
    for is_committed in (True, False):
        bay = SimulatedBay()
        prices = bay.bay.topic("prices")
        transaction = bay.bay.transaction()
        with prices.subscribe() as consumer:
            prices.send_many([Message(b"a", persistent=persistent), Message(b"b", persistent=persistent)])
            consumer.ack(take_up_to(consumer, 2)[:1], transaction=transaction)
        transaction.commit() if is_committed else transaction.rollback()
        bay.check()
        bay.crash(is_index_lost=True)
        bay.check()


@pytest.mark.parametrize("has_prepared", [False, True])
def test_a_topic_or_subscription_that_a_transaction_knows_is_neither_deleted_nor_ended(has_prepared: bool) -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    with prices.subscribe(durable="audit") as consumer:
        prices.send(b"a")
        transaction = bay.bay.transaction()
        consumer.ack(consumer.take(), transaction=transaction)
    if has_prepared:
        transaction.prepare(b"branch")
        bay.reopen()
        prices, [transaction] = bay.bay.topic("prices"), bay.bay.prepared()
    with pytest.raises(TransactionError, match="knows the durable subscription 'audit' of topic 'prices'"):
        prices.unsubscribe("audit")
    with pytest.raises(TransactionError, match="knows the topic 'prices'"):
        prices.delete()
    transaction.commit()
    prices.unsubscribe("audit")
    prices.delete()
    bay.check()


def test_a_topic_to_which_a_transaction_sent_is_not_deleted() -> None:
    bay = SimulatedBay()
    topics = [bay.bay.topic("prices"), bay.bay.topic("ticks")]
    transaction = bay.bay.transaction()
    for topic, persistent in zip(topics, (True, False), strict=True):
        topic.send(b"a", persistent=persistent, transaction=transaction)
        with pytest.raises(TransactionError, match="knows the topic"):
            topic.delete()
    transaction.rollback()
    for topic in topics:
        topic.delete()


def test_a_non_persistent_message_that_a_transaction_rejects_is_a_dead_letter_with_the_commit() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(dead_letter_queue="dead")})
    queue = bay.queue()
    consumer, dead = queue.subscribe(), bay.queue("dead")
    queue.send(b"x", persistent=False)
    for is_committed in (False, True):
        transaction = bay.bay.transaction()
        consumer.reject(consumer.take(), "bad", transaction=transaction)
        assert dead.depth == 0
        transaction.commit() if is_committed else transaction.rollback()
        bay.check()
    [letter] = dead.subscribe().take()
    assert (letter.body, letter.persistent, letter.headers["dead_letter_reason"]) == (b"x", False, "bad")
    assert (queue.depth, queue.statistics().dead_lettered) == (0, 1)


def test_what_a_transaction_sends_to_a_topic_that_nobody_subscribed_to_is_not_stored() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    prices.subscribe(durable="audit").close()
    prices.send(b"a")
    prices.unsubscribe("audit")
    with bay.bay.transaction() as transaction:
        prices.send_many([Message(b"b", expires_in=9.0, delay=1.0), Message(b"c")], transaction=transaction)
    bay.check()
    consumer = prices.subscribe()
    bay.clock.advance(5)
    bay.bay.step()
    prices.send(b"d")
    assert bodies(consumer) == [b"d"]
    bay.crash(is_index_lost=True)
    bay.check()


def test_transactions_that_cross_blocks_leave_no_subscription_waiting() -> None:
    bay = SimulatedBay()
    prices = bay.bay.topic("prices")
    readers = [prices.subscribe(durable="audit"), prices.subscribe()]
    expected: list[bytes] = []
    for number in range(40):
        batch = [Message(b"%d" % at) for at in range(number * 100, number * 100 + 100)]
        expected += [message.body for message in batch]
        with bay.bay.transaction() as transaction:
            prices.send_many(batch, transaction=transaction)
    for reader in readers:
        found: list[bytes] = []
        while taken := reader.take(500):
            found += [delivery.body for delivery in taken]
            reader.ack(taken)
        assert found == expected
    audit = prices.statistics().subscriptions["audit"]
    assert (audit.enqueued, audit.depth) == (4_000, 0)
    bay.check()


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("persistent", [True, False])
def test_an_ack_in_an_open_transaction_holds_back_no_other_message_from_a_selector(
    persistent: bool, is_early: bool
) -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    plain = queue.subscribe()
    picky = queue.subscribe(selector="part = 1") if is_early else None
    queue.send_many([Message(b"%d" % n, {"part": 1}, persistent=persistent) for n in range(3)])
    bay.bay.step()
    [first] = plain.take()
    transaction = bay.bay.transaction()
    first.ack(transaction)
    picky = picky or queue.subscribe(selector="part = 1")
    plain.close()
    got: list[bytes] = []
    for _ in range(4):
        bay.bay.step()
        got += [delivery.body for delivery in picky.take(5)]
    assert got == [b"1", b"2"]
    transaction.rollback()
    bay.bay.step()
    assert [delivery.body for delivery in picky.take(5)] == [b"0"]
    bay.check()


def test_a_load_reads_what_was_acknowledged_in_a_transaction_since_it_began() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    plain = queue.subscribe()
    queue.send_many([Message(b"x", {"part": 1}, persistent=False) for _ in range(3)])
    [first] = plain.take()
    picky = queue.subscribe(selector="part = 1")
    with bay.lock:
        target = next(found for found in bay.lists() if found.selector_group.selector is not None)
        load = bay.loader.begin(target, is_needed=True)
    first.ack(bay.bay.transaction())
    assert load is not None
    bay.loader.finish(load)
    assert len(picky.take(5)) == 2
    bay.check()
