"""Transactions as their users see them: all or nothing, seen by nobody before, and used in order or refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from delivering import take_up_to
from simulated_bay import SimulatedBay

from forebay import (
    ArgumentError,
    Closed,
    Consumer,
    DestinationPolicy,
    ForebayError,
    Message,
    Settings,
    SettingsError,
    StoreFull,
    TransactionError,
)


def bodies(consumer: Consumer, most: int = 10_000) -> list[bytes]:
    return [delivery.body for delivery in take_up_to(consumer, most)]


def test_nothing_of_a_transaction_is_seen_before_its_commit() -> None:
    bay = SimulatedBay()
    orders, prices = bay.queue("orders"), bay.queue("prices")
    first, second = orders.subscribe(), prices.subscribe()
    with bay.bay.transaction() as transaction:
        orders.send(b"a", transaction=transaction)
        prices.send_many([Message(b"b"), Message(b"c", priority=9)], transaction=transaction)
        assert (orders.depth, prices.depth) == (0, 0)
        assert first.take() == second.take() == []
        bay.check()
    assert (orders.depth, prices.depth) == (1, 2)
    assert bodies(first) == [b"a"]
    assert bodies(second) == [b"c", b"b"]
    bay.check()


def test_an_exception_in_the_block_rolls_back() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"before")
    consumer = queue.subscribe()
    (delivery,) = consumer.take()
    with pytest.raises(ZeroDivisionError), bay.bay.transaction() as transaction:
        queue.send(b"never", transaction=transaction)
        delivery.ack(transaction)
        raise ZeroDivisionError
    (again,) = consumer.take(10)
    assert again.body == b"before" and again.attempts == 2
    bay.check()
    bay.reopen()
    assert bodies(bay.queue().subscribe()) == [b"before"]


def test_acks_count_with_the_commit() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n) for n in range(10))
    consumer = queue.subscribe(prefetch=10)
    deliveries = consumer.take(10)
    transaction = bay.bay.transaction()
    consumer.ack(deliveries[::2], transaction=transaction)
    deliveries[1].ack(transaction=transaction)
    assert queue.depth == 10 and consumer.in_flight == 10
    assert consumer.take() == []
    bay.check()
    transaction.commit()
    assert queue.depth == 4 and consumer.in_flight == 4
    bay.check()
    bay.reopen()
    assert bodies(bay.queue().subscribe()) == [b"3", b"5", b"7", b"9"]


def test_what_a_rollback_gives_back_takes_its_old_place() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n) for n in range(6))
    consumer = queue.subscribe()
    first, second, third = consumer.take(3)
    transaction = bay.bay.transaction()
    consumer.ack([first, third], transaction=transaction)
    assert bodies(consumer, 1) == [b"3"]
    transaction.rollback()
    deliveries = consumer.take(10)
    assert [delivery.body for delivery in deliveries] == [b"0", b"2", b"4", b"5"]
    assert [delivery.attempts for delivery in deliveries] == [2, 2, 1, 1]
    second.ack()
    bay.check()


def test_a_closed_consumer_leaves_its_deliveries_to_the_transaction() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n) for n in range(4))
    leaving, staying = queue.subscribe(), queue.subscribe()
    held = leaving.take(3)
    committed, rolled_back = bay.bay.transaction(), bay.bay.transaction()
    held[0].ack(committed)
    held[1].ack(rolled_back)
    leaving.close()
    assert bodies(staying) == [b"2", b"3"]
    bay.check()
    committed.commit()
    assert staying.take() == []
    rolled_back.rollback()
    assert bodies(staying) == [b"1"]
    bay.check()


def test_a_consumer_that_comes_later_is_not_given_what_a_transaction_holds() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n) for n in range(4))
    consumer = queue.subscribe()
    first = consumer.take(2)[0]
    transaction = bay.bay.transaction()
    first.ack(transaction)
    consumer.close()
    later = queue.subscribe()
    assert bodies(later) == [b"1", b"2", b"3"]
    transaction.rollback()
    assert bodies(later) == [b"0"]
    bay.check()


def test_a_delivery_in_a_transaction_cannot_be_settled_again() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send_many([Message(b"a"), Message(b"b")])
    consumer = queue.subscribe()
    delivery, other = consumer.take(2)
    transaction, second = bay.bay.transaction(), bay.bay.transaction()
    delivery.ack(transaction)
    settles: tuple[Callable[[], object], ...] = (
        delivery.ack,
        delivery.nack,
        partial(delivery.ack, transaction),
        partial(delivery.ack, second),
    )
    for settle in settles:
        with pytest.raises(TransactionError, match="acknowledged in a transaction"):
            settle()
    with pytest.raises(TransactionError):
        consumer.ack([other, delivery])
    with pytest.raises(TransactionError):
        consumer.ack_up_to(delivery)
    assert consumer.in_flight == 2
    transaction.prepare(b"x")
    with pytest.raises(TransactionError):
        delivery.ack()
    other.ack()
    bay.check()


def test_a_transaction_that_has_ended_is_refused() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"a")
    (delivery,) = queue.subscribe().take()
    for end in ("commit", "rollback"):
        transaction = bay.bay.transaction()
        getattr(transaction, end)()
        uses: tuple[Callable[[], object], ...] = (
            transaction.commit,
            transaction.rollback,
            partial(transaction.prepare, b"x"),
            partial(queue.send, b"b", transaction=transaction),
            partial(queue.send_many, [Message(b"b")], transaction=transaction),
            partial(delivery.ack, transaction=transaction),
        )
        for use in uses:
            with pytest.raises(TransactionError, match="was (committed|rolled back)"):
                use()
    assert queue.depth == 1
    delivery.ack()


def test_what_is_no_transaction_of_this_store_is_refused() -> None:
    bay, other = SimulatedBay(), SimulatedBay(1)
    queue = bay.queue()
    queue.send(b"a")
    (delivery,) = queue.subscribe().take()
    wrongs: list[tuple[Any, type[ForebayError], str]] = [
        (other.bay.transaction(), TransactionError, "another store"),
        ("tx", ArgumentError, "expected, not str"),
    ]
    for wrong, error, match in wrongs:
        with pytest.raises(error, match=match):
            queue.send(b"b", transaction=wrong)
        with pytest.raises(error, match=match):
            queue.send_many([Message(b"b")], transaction=wrong)
        with pytest.raises(error, match=match):
            delivery.ack(transaction=wrong)
    assert queue.depth == 1
    delivery.ack()


def test_a_prepared_transaction_takes_no_more() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"a", transaction=transaction)
    transaction.prepare(b"x")
    with pytest.raises(TransactionError, match="is prepared"):
        queue.send(b"b", transaction=transaction)
    with pytest.raises(TransactionError, match="is prepared"):
        transaction.prepare(b"y")
    assert transaction.xid == b"x"
    transaction.commit()
    assert bodies(queue.subscribe()) == [b"a"]


def test_an_xid_is_unique_among_the_prepared() -> None:
    bay = SimulatedBay()
    first, second = bay.bay.transaction(), bay.bay.transaction()
    first.prepare(b"x")
    with pytest.raises(TransactionError, match="prepared as b'x' already"):
        second.prepare(b"x")
    for wrong in (b"", b"x" * 256, "x", None, bytearray(b"x")):
        with pytest.raises(SettingsError, match="1 to 255 bytes"):
            second.prepare(wrong)  # type: ignore[arg-type]
    second.prepare(b"x" * 255)
    assert [found.xid for found in bay.bay.prepared()] == [b"x", b"x" * 255]
    first.rollback()
    third = bay.bay.transaction()
    third.prepare(b"x")
    third.commit()


def test_a_block_that_prepares_leaves_the_outcome_open() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    with bay.bay.transaction() as transaction:
        queue.send(b"a", transaction=transaction)
        transaction.prepare(b"x")
    assert queue.depth == 0
    (prepared,) = bay.bay.prepared()
    prepared.commit()
    assert queue.depth == 1


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("reopens", [True, False])
def test_a_prepared_branch_waits_for_its_outcome(commits: bool, reopens: bool) -> None:
    bay = SimulatedBay()
    orders, prices = bay.queue("orders"), bay.queue("prices")
    orders.send_many(Message(b"%d" % n) for n in range(5))
    consumer = orders.subscribe(prefetch=5)
    deliveries = consumer.take(5)
    transaction = bay.bay.transaction()
    consumer.ack(deliveries[1:3], transaction=transaction)
    prices.send_many([Message(b"%d" % n, headers={"n": n}) for n in range(700)], transaction=transaction)
    transaction.prepare(b"branch")
    assert consumer.in_flight == 3, "the credit of what it acknowledged is free"
    bay.check()
    if reopens:
        bay.reopen()
        assert bay.bay.recovery.prepared == 1
    else:
        consumer.close()
    orders, prices = bay.queue("orders"), bay.queue("prices")
    consumer = orders.subscribe()
    assert bodies(consumer) == [b"0", b"3", b"4"]
    assert (orders.depth, prices.depth) == (5, 0)
    (prepared,) = bay.bay.prepared()
    bay.check()
    if commits:
        prepared.commit()
        assert (orders.depth, prices.depth) == (3, 700)
        found = take_up_to(prices.subscribe())
        assert [delivery.headers["n"] for delivery in found] == list(range(700))
        assert consumer.take() == []
    else:
        prepared.rollback()
        assert (orders.depth, prices.depth) == (5, 0)
        again = consumer.take(10)
        assert [delivery.body for delivery in again] == [b"1", b"2"]
        assert [delivery.attempts for delivery in again] == [2, 2]
    assert not bay.bay.prepared()
    bay.check()
    bay.reopen()
    assert not bay.bay.prepared() and bay.bay.recovery.prepared == 0
    assert (bay.queue("orders").depth, bay.queue("prices").depth) == ((3, 700) if commits else (5, 0))


def test_a_clean_close_rolls_back_what_is_open() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"a")
    (delivery,) = queue.subscribe().take()
    transaction = bay.bay.transaction()
    delivery.ack(transaction)
    queue.send_many((Message(b"x" * 1000) for _ in range(1000)), transaction=transaction)
    bay.reopen()
    assert bodies(bay.queue().subscribe()) == [b"a"]
    with pytest.raises(Closed):
        transaction.commit()


def test_ids_are_known_when_a_message_is_sent() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    with bay.bay.transaction() as transaction:
        ids = [queue.send(b"a", transaction=transaction), queue.send(b"b", transaction=transaction, message_id="own")]
        ids += queue.send_many([Message(b"c", headers={"n": 1})] * 3, transaction=transaction)
    ids.append(queue.send(b"d"))
    found = queue.subscribe().take(10)
    assert [delivery.id for delivery in found] == ids
    assert len(set(ids)) == len(ids) and ids[1] == "own"
    assert found[2].headers == {"n": 1}


def test_order_is_that_of_the_commits() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    consumer = queue.subscribe()
    early, late = bay.bay.transaction(), bay.bay.transaction()
    queue.send(b"early 1", transaction=early)
    queue.send(b"alone 1")
    queue.send(b"late", transaction=late)
    queue.send(b"early 2", transaction=early)
    late.commit()
    queue.send(b"alone 2")
    early.commit()
    assert bodies(consumer) == [b"alone 1", b"late", b"alone 2", b"early 1", b"early 2"]


def test_numbers_that_a_block_leaves_over_are_nobody_s() -> None:
    """A slice never crosses a block of 512: where one would, it begins with the next."""
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    consumer = queue.subscribe(prefetch=0)
    wanted: list[bytes] = []
    for number, size in enumerate((300, 250, 256, 1, 511, 255, 256)):
        sent = [b"%d %d" % (number, n) for n in range(size)]
        with bay.bay.transaction() as transaction:
            queue.send_many(map(Message, sent), transaction=transaction)
        wanted += sent
        queue.send(b"%d alone" % number)
        wanted.append(b"%d alone" % number)
    statistics = bay.bay.statistics().destinations["orders"]
    assert statistics.enqueued == statistics.depth == len(wanted)
    assert bodies(consumer) == wanted
    bay.check()
    bay.reopen()
    consumer = bay.queue().subscribe(prefetch=0)
    deliveries = take_up_to(consumer)
    assert [delivery.body for delivery in deliveries] == wanted
    consumer.ack(deliveries)
    assert bay.queue().depth == 0
    bay.check()


def test_a_list_goes_on_in_ram_behind_the_numbers_left_over() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queue = bay.queue()
    consumer = queue.subscribe(prefetch=0)
    queue.send_many(Message(b"x") for _ in range(300))
    assert len(consumer.take(1000)) == 300
    with bay.bay.transaction() as transaction:
        queue.send_many((Message(b"x") for _ in range(250)), transaction=transaction)
    reads = bay.reads
    assert len(consumer.take(1000)) == 250
    queue.send(b"y")
    assert len(consumer.take(1000)) == 1
    assert bay.reads == reads


def test_a_large_body_needs_no_room_in_ram() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue = bay.queue()
    large = bytes(range(256)) * 4 * 2048
    with bay.bay.transaction() as transaction:
        queue.send(b"before", transaction=transaction)
        queue.send(large, transaction=transaction)
        queue.send(b"behind", transaction=transaction)
        bay.check()
    assert bodies(queue.subscribe()) == [b"before", large, b"behind"]


def test_a_hundred_thousand_messages_fit_under_four_mebibytes() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    queue = bay.queue()
    bay.queue("crowd").send_many(Message(b"x" * 300) for _ in range(10_000))
    transaction = bay.bay.transaction()
    for begin in range(0, 100_000, 1_000):
        queue.send_many((Message(b"%d" % n) for n in range(begin, begin + 1_000)), transaction=transaction)
    bay.check()
    memory = bay.bay.statistics().memory
    assert memory.holders["transactions"] < 256 * 1024
    transaction.commit()
    bay.check()
    memory = bay.bay.statistics().memory
    assert memory.held_bytes_max <= memory.limit_bytes
    assert memory.holders["transactions"] == 0
    assert queue.depth == 100_000
    bay.reopen()
    consumer = bay.queue().subscribe(prefetch=0)
    number = 0
    while deliveries := consumer.take(1_000):
        assert [delivery.body for delivery in deliveries] == [
            b"%d" % n for n in range(number, number + len(deliveries))
        ]
        number += len(deliveries)
        consumer.ack(deliveries)
    assert number == 100_000
    bay.check()


def test_many_transactions_are_refused_before_memory_is_short() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    begun = []
    with pytest.raises(StoreFull, match="memory_limit"):
        for _ in range(10_000):
            begun.append(bay.bay.transaction())
    bay.check()
    for transaction in begun:
        transaction.rollback()
    assert bay.bay.statistics().memory.holders["transactions"] == 0
    bay.bay.transaction().commit()


def test_timestamps_in_one_slice_are_less_than_a_second_apart() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    times = []
    with bay.bay.transaction() as transaction:
        for _ in range(5):
            times.append(bay.clock.time_ms())
            queue.send(b"a", transaction=transaction)
            bay.clock.advance(0.7)
    found = [delivery.timestamp for delivery in queue.subscribe().take(10)]
    assert all(0 <= time - timestamp <= 1000 for time, timestamp in zip(times, found, strict=True))


def test_an_error_in_send_many_says_how_many_are_in() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    transaction = bay.bay.transaction()
    messages = [Message(b"a")] * 300 + [Message("no bytes")]  # type: ignore[arg-type]
    with pytest.raises(SettingsError) as caught:
        queue.send_many(messages, transaction=transaction)
    assert caught.value.stored == 256
    transaction.commit()
    assert queue.depth == 256


def test_an_empty_transaction_writes_nothing() -> None:
    bay = SimulatedBay()
    end = bay.journal.end
    with bay.bay.transaction():
        pass
    bay.bay.transaction().rollback()
    assert bay.journal.end == end


def test_a_waiting_consumer_hears_of_a_commit() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    heard: list[str] = []
    consumer = queue.subscribe(on_ready=lambda: heard.append("ready"))
    assert consumer.take() == []
    transaction = bay.bay.transaction()
    queue.send_many((Message(b"x" * 2000) for _ in range(600)), transaction=transaction)
    assert not heard
    transaction.commit()
    assert heard == ["ready"]
    assert len(consumer.take(1000)) > 0


def test_selectors_find_what_a_commit_brought() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    odd, even = queue.subscribe(selector="n = 1"), queue.subscribe(selector="n = 0")
    with bay.bay.transaction() as transaction:
        queue.send_many((Message(b"%d" % n, headers={"n": n % 2}) for n in range(600)), transaction=transaction)
    assert [int(delivery.body) for delivery in odd.take(1000)][:3] == [1, 3, 5]
    assert [int(delivery.body) for delivery in even.take(1000)][:3] == [0, 2, 4]
    bay.check()


def test_transactions_of_many_threads_do_not_mix() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    queues = [bay.queue(f"queue {n}") for n in range(3)]

    def work(thread: int) -> None:
        for number in range(30):
            transaction = bay.bay.transaction()
            for queue in queues:
                queue.send_many([Message(b"%d %d" % (thread, number))] * 5, transaction=transaction)
            if number % 3:
                transaction.commit()
            else:
                transaction.rollback()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for queue in queues:
        found = bodies(queue.subscribe(prefetch=0))
        assert sorted(found) == sorted([b"%d %d" % (t, n) for t in range(4) for n in range(30) if n % 3] * 5)
        assert all(len(set(found[at : at + 5])) == 1 for at in range(0, len(found), 5))
    bay.check()


@pytest.mark.parametrize("outcome", ["commit", "rollback"])
def test_nothing_is_dispatched_that_a_power_cut_could_take_back(outcome: str) -> None:
    bay = SimulatedBay(sync="always")
    queue = bay.queue()
    queue.send_many([Message(b"a"), Message(b"b")])
    consumer = queue.subscribe()
    transaction = bay.bay.transaction()
    consumer.ack(consumer.take(2), transaction=transaction)
    queue.send_many((Message(b"c") for _ in range(300)), transaction=transaction)
    transaction.prepare(b"x")
    seen: list[int] = []

    def look(call: str, name: str) -> None:
        if call == "sync":
            seen.append(len(consumer.take(1000)))

    bay.disk.on_call = look
    getattr(transaction, outcome)()
    bay.disk.on_call = None
    assert seen == [0]
    assert len(take_up_to(consumer)) == (300 if outcome == "commit" else 2)
    bay.check()


def test_what_was_written_early_and_committed_late_is_read_back_in_its_place() -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    early = [bay.bay.transaction() for _ in range(4)]
    for number, transaction in enumerate(early):
        queue.send(b"early %d" % number, transaction=transaction)
        transaction.write_gathered()
    wanted = []
    for number in (2, 3, 0, 1):
        queue.send(b"alone %d" % number)
        early[number].commit()
        wanted += [b"alone %d" % number, b"early %d" % number]
    bay.reopen()
    consumer = bay.queue().subscribe()
    assert bodies(consumer) == wanted
    bay.check()


def test_a_memory_limit_too_small_for_what_is_prepared_is_refused() -> None:
    bay = SimulatedBay(memory_limit="32MiB")
    queue = bay.queue()
    queue.send_many(Message(b"x") for _ in range(20_000))
    consumer = queue.subscribe(prefetch=0)
    transaction = bay.bay.transaction()
    consumer.ack(take_up_to(consumer, 20_000), transaction=transaction)
    transaction.prepare(b"x")
    bay.check()
    enough = bay.settings_given
    bay.settings_given = Settings(background=False, memory_limit="4MiB", sync="never")
    with pytest.raises(SettingsError, match="raise it"):
        bay.reopen()
    bay.settings_given = enough
    bay.open_again()
    (branch,) = bay.bay.prepared()
    branch.commit()
    assert bay.queue().depth == 0
    bay.check()


def test_rolling_back_what_waits_for_its_time_leaves_room_in_the_index() -> None:
    slow = DestinationPolicy(max_attempts=None, redelivery_delay_seconds=1_000)
    bay = SimulatedBay(index_cache_size="256KiB", memory_limit="8MiB", policies={">": slow})
    for _ in range(100):
        bay.queue().send_many(Message(b"") for _ in range(512))
    bay.bay.checkpoint()
    consumer = bay.queue().subscribe(prefetch=0)
    while held := take_up_to(consumer, 512):
        transaction = bay.bay.transaction()
        consumer.ack(held, transaction=transaction)
        transaction.rollback()
        assert not bay.index.is_crowded
    bay.check()
