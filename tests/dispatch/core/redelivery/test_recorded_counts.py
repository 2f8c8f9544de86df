"""Attempts: each delivery that did not end with an ack is counted, once, whatever ends the process in between."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from simulated_bay import SimulatedBay

import forebay
from forebay import Delivery, DestinationPolicy, Message
from forebay.store.index.delivery_counts import (
    LANE_CHARGE_BYTES,
    RUN_CHARGE_BYTES,
    runs_max,
)
from forebay.store.inspect.dump import dump

FOR_EVER = {">": DestinationPolicy(max_attempts=None)}


def filled(count: int, **fields: Any) -> SimulatedBay:
    simulated = SimulatedBay(**{"policies": FOR_EVER, **fields})
    simulated.queue().send_many(Message(b"%d" % n) for n in range(count))
    return simulated


def attempts(deliveries: list[Delivery]) -> list[int]:
    return [delivery.attempts for delivery in deliveries]


def returns(simulated: SimulatedBay) -> list[tuple[int, int, int]]:
    """What the journal was told, run by run."""
    rows = [row for row in dump(simulated.disk) if row["kind"] == "return"]
    return [(first, last, count) for row in rows for first, last, count in row["attempts"]]


# ---------------------------------------------------------------------- what survives


def test_attempts_survive_a_clean_restart_and_a_kill() -> None:
    simulated = filled(4)
    consumer = simulated.queue().subscribe()
    first = consumer.take(4)
    assert attempts(first) == [1, 1, 1, 1]
    consumer.nack(first[:2])
    assert [delivery.body for delivery in first[2:]] == [b"2", b"3"]
    simulated.reopen()  # gives the other two back as well
    consumer = simulated.queue().subscribe()
    deliveries = consumer.take(3)
    assert attempts(deliveries) == [2, 2, 2]
    consumer.nack(deliveries[0])
    simulated.crash()
    deliveries = simulated.queue().subscribe().take(4)
    assert attempts(deliveries) == [3, 3, 3, 2]
    simulated.check()


def test_in_a_failed_store_a_nack_counts_in_ram_alone_and_one_warning_tells_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    simulated = filled(2)
    consumer = simulated.queue().subscribe()
    first, second = consumer.take(2)
    simulated.disk.fail("write", 1, errno.EIO)
    consumer.nack(first)
    consumer.nack(second)
    told = [record.levelname for record in caplog.records if getattr(record, "event", None) == "attempts_in_ram"]
    assert told == ["WARNING"]
    assert attempts(consumer.take(2)) == [2, 2]
    simulated.crash()
    assert attempts(simulated.queue().subscribe().take(2)) == [1, 1]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_a_kill_between_return_and_redelivery_keeps_the_count(is_index_lost: bool) -> None:
    simulated = filled(2)
    for attempt in range(1, 5):
        with simulated.queue().subscribe() as consumer:
            delivery = consumer.take()[0]
            assert (delivery.body, delivery.attempts) == (b"0", attempt)
            delivery.nack()
            simulated.crash(is_index_lost=is_index_lost)


def test_redelivery_is_written_before_take_returns() -> None:
    simulated = filled(1)
    simulated.queue().subscribe().take()[0].nack()
    for attempt in range(2, 6):
        assert simulated.queue().subscribe().take()[0].attempts == attempt
        simulated.crash()


def test_first_delivery_that_ends_the_process_is_counted_from_the_next_open_on() -> None:
    """What was in flight for the first time is in no record. After a kill every hand-out is."""
    simulated = filled(3)
    seen = []
    for _ in range(4):
        delivery = simulated.queue().subscribe().take()[0]
        seen.append((delivery.body, delivery.attempts))
        simulated.crash()
    assert seen == [(b"0", 1), (b"0", 1), (b"0", 2), (b"0", 3)]


def test_first_deliveries_and_their_acks_write_nothing_more_and_keep_nothing() -> None:
    simulated = filled(300)
    journal = simulated.journal
    with simulated.queue().subscribe() as consumer:
        before = journal.next_log_sequence
        batch = consumer.take(100)
        one = consumer.take()
        assert journal.next_log_sequence == before
        consumer.ack(batch)
        consumer.ack(one)
        assert journal.next_log_sequence == before + 2
        (lane,) = simulated.queue_state("orders").all_lanes()
        assert lane.delivery_counts is None


def test_one_record_says_that_a_batch_came_back() -> None:
    simulated = filled(600)
    with simulated.queue().subscribe() as consumer:
        batch = [*consumer.take(600), *consumer.take(600)]
        before = simulated.journal.next_log_sequence
        consumer.nack(batch)
        assert simulated.journal.next_log_sequence == before + 1
    assert returns(simulated) == [(0, 599, 1)]


def test_closing_and_rolling_back_count_as_attempts() -> None:
    simulated = filled(3)
    with simulated.queue().subscribe() as consumer:
        assert consumer.take()[0].body == b"0"
    with simulated.queue().subscribe() as consumer:
        deliveries = consumer.take(2)
        assert attempts(deliveries) == [2, 1]
        transaction = simulated.bay.transaction()
        consumer.ack(deliveries, transaction=transaction)
        transaction.rollback()
        simulated.crash()
    assert attempts(simulated.queue().subscribe().take(3)) == [3, 2, 1]


def test_prepared_transaction_that_is_rolled_back_after_a_kill_keeps_the_counts() -> None:
    simulated = filled(2)
    with simulated.queue().subscribe() as consumer:
        consumer.take()[0].nack()
        transaction = simulated.bay.transaction()
        consumer.ack(consumer.take(2), transaction=transaction)
        transaction.prepare(b"x")
    simulated.crash()
    (prepared,) = simulated.bay.prepared()
    prepared.rollback()
    assert attempts(simulated.queue().subscribe().take(2)) == [3, 2]


def test_acknowledged_message_leaves_no_count() -> None:
    simulated = filled(10)
    random = Random(3)
    with simulated.queue().subscribe() as consumer:
        consumer.nack(consumer.take(10))
        deliveries = consumer.take(10)
        random.shuffle(deliveries)
        for delivery in deliveries:
            delivery.ack()
            simulated.index.delivery_count_table._check()
    table = simulated.index.delivery_count_table
    assert table.held_bytes == 0
    simulated.check()
    simulated.queue().send(b"new")
    assert simulated.queue().subscribe().take()[0].attempts == 1


@pytest.mark.parametrize("way", ["purge", "move", "delete", "commit"])
def test_count_goes_with_its_message(way: str) -> None:
    simulated = filled(5)
    orders = simulated.queue()
    with orders.subscribe() as consumer:
        consumer.nack(consumer.take(5))
        if way == "commit":
            with simulated.bay.transaction() as transaction:
                consumer.ack(consumer.take(5), transaction=transaction)
    {"purge": orders.purge, "move": lambda: orders.move("late"), "delete": orders.delete}.get(way, lambda: None)()
    assert simulated.index.delivery_count_table.held_bytes == 0
    assert way != "move" or simulated.queue("late").subscribe().take()[0].attempts == 1
    simulated.crash()
    simulated.bay.step()
    assert simulated.index.delivery_count_table.describe() == {}


def test_non_persistent_messages_are_counted_in_ram_alone() -> None:
    simulated = SimulatedBay(policies=FOR_EVER)
    simulated.queue().send(b"1", persistent=False)
    with simulated.queue().subscribe() as consumer:
        before = simulated.journal.next_log_sequence
        for attempt in range(1, 4):
            delivery = consumer.take()[0]
            assert delivery.attempts == attempt
            delivery.nack()
        assert simulated.journal.next_log_sequence == before
        consumer.take()[0].ack()
    assert simulated.index.delivery_count_table.held_bytes == 0
    simulated.check()


def test_durable_subscriptions_count_apart_and_across_restarts() -> None:
    simulated = SimulatedBay(policies=FOR_EVER)
    prices = simulated.bay.topic("prices")
    audit, mail = prices.subscribe(durable="audit"), prices.subscribe(durable="mail")
    other = prices.subscribe()
    prices.send(b"1")
    for _ in range(2):
        audit.take()[0].nack()
    other.take()[0].nack()
    assert (audit.take()[0].attempts, mail.take()[0].attempts, other.take()[0].attempts) == (3, 1, 2)
    simulated.crash()
    prices = simulated.bay.topic("prices")
    assert prices.subscribe(durable="audit").take()[0].attempts == 4
    prices.unsubscribe("mail")
    simulated.reopen()
    assert simulated.index.delivery_count_table.held_bytes == LANE_CHARGE_BYTES + RUN_CHARGE_BYTES


# ---------------------------------------------------------------------- cleanup and relocation


def churn(simulated: SimulatedBay, data_logs: int) -> None:
    """Traffic in another queue, until so many data logs were begun and most are gone."""
    store = simulated.store
    other = simulated.queue("other")
    end = store.journal.data_log + data_logs
    with other.subscribe(prefetch=0) as consumer:
        while store.journal.data_log < end:
            other.send_many(Message(bytes(1000)) for _ in range(20))
            consumer.ack(consumer.take(20))


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("relocates", [False, True])
def test_cleanup_and_relocation_lose_no_count(is_index_lost: bool, relocates: bool) -> None:
    simulated = filled(3, max_file_length="64KiB")
    churn(simulated, 1)
    with simulated.queue().subscribe() as consumer:
        for _ in range(3):
            consumer.nack(consumer.take(2))
        before = simulated.journal.data_log
        churn(simulated, 6)
    clean = simulated.bay.cleanup if relocates else simulated.store.cleanup.delete_data_logs
    clean()
    assert before not in simulated.store.disk_use.sizes(), "the return records are gone"
    simulated.crash(is_index_lost=is_index_lost)
    assert attempts(simulated.queue().subscribe().take(3)) == [4, 4, 1]


def test_random_returns_restarts_and_losses_of_the_index_agree_with_a_plain_dict() -> None:
    for seed in range(12):
        random = Random(seed)
        simulated = filled(60, max_file_length="64KiB")
        counts = dict.fromkeys(range(60), 0)
        consumer = simulated.queue().subscribe()
        held: list[Delivery] = []
        was_killed = False
        for _ in range(120):
            action = random.randrange(12)
            if action < 4 and (taken := consumer.take(random.randint(1, 9))):
                for delivery in taken:
                    number = int(delivery.body)
                    assert delivery.attempts == counts[number] + 1, (seed, number)
                    # What is known to come again, and what a killed process may have had, is written at the hand-out.
                    counts[number] += bool(counts[number] or was_killed)
                held += taken
            elif action < 8 and held:
                part = random.sample(held, random.randint(1, len(held)))
                held = [delivery for delivery in held if delivery not in part]
                counts |= {int(delivery.body): delivery.attempts for delivery in part}
                consumer.nack(part)
            elif action < 10 and held:
                delivery = held.pop(random.randrange(len(held)))
                delivery.ack()
                del counts[int(delivery.body)]
            elif action == 10:
                churn(simulated, 2)
                simulated.bay.cleanup()
            elif random.random() < 0.3:
                if random.random() < 0.5:
                    counts |= {int(delivery.body): delivery.attempts for delivery in held}
                    simulated.reopen()
                    was_killed = False
                else:
                    simulated.crash(is_index_lost=random.random() < 0.5)
                    was_killed = True
                held = []
                consumer = simulated.queue().subscribe()
            simulated.check()
            simulated.index.delivery_count_table._check()


def test_poison_message_whose_consumer_is_killed_ends_in_the_dead_letter_queue(tmp_path: Path) -> None:
    policies = {"orders": DestinationPolicy(max_attempts=3)}
    with forebay.open(tmp_path, memory_limit="8MiB", policies=policies) as bay:
        bay.queue("orders").send_many([Message(b"poison"), Message(b"good")])
    seen = []
    for _ in range(10):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                bay = forebay.open(tmp_path, memory_limit="8MiB", policies=policies)
                delivery = bay.queue("orders").subscribe().take(1, timeout=10)[0]
                os.write(writing, delivery.body + b" %d" % delivery.attempts)
                if delivery.body == b"poison":
                    os.kill(os.getpid(), signal.SIGKILL)
                bay.close()
            finally:
                os._exit(0)
        os.close(writing)
        seen.append(os.read(reading, 100))
        os.close(reading)
        os.waitpid(child, 0)
        if seen[-1].startswith(b"good"):
            break
    assert seen == [b"poison 1", b"poison 1", b"poison 2", b"poison 3", b"good 1"]
    with forebay.open(tmp_path, memory_limit="8MiB", policies=policies, background=False) as bay:
        bay.step()
        (dead,) = bay.queue("DLQ.orders").browse()
        assert dead.headers is not None
        assert dead.body == b"poison" and dead.headers["dead_letter_attempts"] == 3


def test_random_returns_of_a_deep_queue_stay_within_the_limit() -> None:
    simulated = filled(20_000, memory_limit="8MiB", max_file_length="256KiB")
    consumer = simulated.queue().subscribe(prefetch=0)
    for _ in range(20):
        batch = consumer.take(1_000)
        consumer.nack(batch[::2])
        consumer.ack(batch[1::2])
        batch = consumer.take(500)
        consumer.nack(batch[::3])
        consumer.ack([delivery for n, delivery in enumerate(batch) if n % 3])
        simulated.check()
    bound = runs_max(256 * 1024)
    assert simulated.bay.statistics().memory.holders["attempts"] <= bound * RUN_CHARGE_BYTES + LANE_CHARGE_BYTES
    simulated.crash(is_index_lost=True)
    simulated.check()
