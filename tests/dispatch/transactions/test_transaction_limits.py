"""Transactions beside what else decides about messages of a queue: its limits, and a purge."""

from __future__ import annotations

import pytest
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, StoreFull


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_a_limited_queue_keeps_room_for_what_has_no_outcome(outcome: str) -> None:
    policy = DestinationPolicy(max_messages=10, when_full="fail")
    bay = SimulatedBay(policies={"orders": policy})
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send_many([Message(b"a")] * 6, transaction=transaction)
    queue.send(b"b", transaction=transaction)
    queue.send_many([Message(b"c")] * 3)
    for sent_in in (None, transaction):
        with pytest.raises(StoreFull, match="max_messages"):
            queue.send(b"d", transaction=sent_in)
    getattr(transaction, outcome)()
    left = 0 if outcome == "commit" else 7
    queue.send_many([Message(b"e")] * left)
    with pytest.raises(StoreFull):
        queue.send(b"f")
    consumer = queue.subscribe()
    with bay.bay.transaction() as acks:
        consumer.ack(consumer.take(4), transaction=acks)
        with pytest.raises(StoreFull):
            queue.send(b"g")
    queue.send_many([Message(b"h")] * 4)
    assert queue.depth == 10
    bay.check()


def test_a_purge_leaves_out_what_a_transaction_acknowledged() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n) for n in range(6))
    consumer = queue.subscribe(prefetch=6)
    deliveries = consumer.take(4)
    rolled_back, prepared = bay.bay.transaction(), bay.bay.transaction()
    deliveries[0].ack(rolled_back)
    deliveries[2].ack(prepared)
    prepared.prepare(b"x")
    assert queue.purge() == 2
    rolled_back.rollback()
    prepared.rollback()
    assert [delivery.body for delivery in consumer.take(10)] == [b"0", b"2"]
    bay.check()


@pytest.mark.parametrize("is_prepared", [False, True])
def test_explain_names_the_transaction_that_keeps_a_data_log(is_prepared: bool) -> None:
    bay = SimulatedBay(max_file_length="64KiB")
    transaction = bay.bay.transaction()
    bay.queue().send_many((Message(bytes(20_000)) for _ in range(40)), transaction=transaction)
    if is_prepared:
        transaction.prepare(b"x")
    ((holder, data_logs),) = bay.store.branches.data_logs().items()
    bay.journal.roll()
    bay.bay.cleanup()
    for data_log in data_logs:
        causes = bay.bay.explain(data_log).causes
        assert [(cause.reason, cause.holder) for cause in causes] == [("transaction", holder)]
    transaction.rollback()
    bay.bay.cleanup()
    assert data_logs.isdisjoint(bay.journal.sizes)


@pytest.mark.parametrize("outcome", ["commit", "prepare", "rollback"])
def test_an_outcome_needs_no_memory(outcome: str) -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue, other = bay.queue(), bay.queue("other")
    transaction = bay.bay.transaction()
    for number in range(3):
        queue.send(b"%d" % number, transaction=transaction)
        other.send(b"%d" % number, transaction=transaction, priority=number)
    bay.check()
    with bay.full_memory():
        if outcome == "prepare":
            transaction.prepare(b"x")
            bay.check()
            transaction.commit()
        else:
            getattr(transaction, outcome)()
        bay.check()
    assert queue.depth == other.depth == (0 if outcome == "rollback" else 3)
    bay.check()


def test_what_a_transaction_sends_leaves_the_reserve_of_others_alone() -> None:
    policies = {"spare": DestinationPolicy(memory_reserve="5%")}
    bay = SimulatedBay(policies=policies)
    transaction = bay.bay.transaction()
    with pytest.raises(StoreFull, match="memory_limit"):
        for _ in range(10_000):
            bay.queue().send(bytes(1_000), persistent=False, transaction=transaction)
    assert bay.budget.kept_bytes > 0
    assert bay.budget.free_bytes >= 0
    transaction.rollback()
    bay.check()


@pytest.mark.parametrize("message_id", [None, "own"])
def test_slices_of_a_transaction_take_nothing_of_a_reserve(message_id: str | None) -> None:
    policies = {"spare": DestinationPolicy(memory_reserve="5%"), "orders": DestinationPolicy(duplicate_window=100)}
    bay = SimulatedBay(policies=policies)
    queue, transaction = bay.queue(), bay.bay.transaction()
    queue.send(b"")
    with bay.full_memory():
        with pytest.raises(StoreFull, match="memory_limit"):
            queue.send(b"", message_id=message_id, transaction=transaction)
        assert bay.budget.free_bytes == 0
    queue.send(b"", message_id=message_id, transaction=transaction)
    transaction.commit()
    assert queue.depth == 2
    bay.check()


def test_what_a_transaction_sends_is_not_charged_above_a_falling_limit() -> None:
    bay = SimulatedBay(memory_limit="8MiB")
    transaction = bay.bay.transaction()
    for _ in range(2_000):
        bay.queue().send(bytes(1_000), persistent=False, transaction=transaction)
    bay.bay.resize("4MiB")
    held_bytes = bay.budget.held_by("transactions")
    with pytest.raises(StoreFull, match="memory_limit"):
        bay.queue().send(bytes(1_000), persistent=False, transaction=transaction)
    assert bay.budget.held_by("transactions") == held_bytes
    transaction.rollback()
    bay.check()
