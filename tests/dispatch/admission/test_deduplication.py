"""The duplicate window: what a producer sends again is not stored again, whatever happened in between."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay, run_jumping
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, Settings, SettingsError, StoreFull, TransactionError
from forebay.store.index.deduplication import ID_CHARGE_BYTES

WINDOW = 8


def watched(window: int = WINDOW, *, seed: int = 0, max_messages: int | None = None, **fields: Any) -> SimulatedBay:
    policy = DestinationPolicy(duplicate_window=window, max_messages=max_messages)
    return SimulatedBay(seed, policies={"orders": policy, "prices": policy}, **fields)


# ------------------------------------------------------------------ what is a duplicate


def test_an_id_sent_again_is_returned_and_not_stored() -> None:
    bay = watched()
    queue = bay.queue()
    assert queue.send(b"1 kg tea", message_id="a") == "a"
    assert queue.send(b"something else", message_id="a") == "a"
    assert bodies(queue.browse()) == [b"1 kg tea"]
    assert queue.send(b"2 kg tea", message_id="b") == "b"
    assert queue.depth == 2
    bay.check()


def test_what_was_acknowledged_is_not_stored_again_either() -> None:
    queue = watched().queue()
    queue.send(b"x", message_id="a")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take())
    queue.send(b"x", message_id="a")
    assert queue.depth == 0


def test_without_a_window_every_message_is_stored() -> None:
    queue = SimulatedBay().queue()
    queue.send(b"x", message_id="a", producer="p")
    queue.send(b"x", message_id="a", producer="p")
    assert queue.depth == 2


def test_messages_without_an_id_of_their_own_are_never_duplicates() -> None:
    queue = watched().queue()
    ids = [queue.send(b"x"), queue.send(b"x"), *queue.send_many([Message(b"x"), Message(b"x", message_id="a")])]
    assert len(set(ids)) == 4 == queue.depth


def test_each_producer_and_each_destination_has_a_window_of_its_own() -> None:
    bay = watched()
    for queue in (bay.queue("orders"), bay.queue("prices")):
        for producer in (None, "p", "q"):
            queue.send(b"x", message_id="a", producer=producer)
            queue.send(b"x", message_id="a", producer=producer)
        assert queue.depth == 3


def test_the_window_holds_the_last_ids_of_a_producer_and_no_more() -> None:
    queue = watched(3).queue()
    for n in range(5):
        queue.send(b"%d" % n, message_id=f"{n}", producer="p")
    queue.send(b"other", message_id="0", producer="q")
    for n in (4, 3, 2):
        queue.send(b"again", message_id=f"{n}", producer="p")
    assert queue.depth == 6
    queue.send(b"forgotten", message_id="1", producer="p")
    assert queue.depth == 7


def test_a_batch_stores_each_id_once_and_returns_all_ids_in_order() -> None:
    bay = watched(1000)
    queue = bay.queue()
    queue.send(b"x", message_id="3")
    messages = [Message(b"%d" % n, message_id=f"{n % 5}" if n % 2 else None) for n in range(600)]
    ids = queue.send_many(messages)
    generated = [own for own, message in zip(ids, messages, strict=True) if message.message_id is None]
    assert [own for own, message in zip(ids, messages, strict=True) if message.message_id] == [
        message.message_id for message in messages if message.message_id
    ]
    assert len(set(generated)) == 300
    assert queue.depth == 1 + 300 + 4
    found = [message.message_id for message in queue.browse()]
    assert sorted(map(str, found)) == sorted(["3", *generated, "0", "1", "2", "4"])
    bay.check()


def test_a_message_that_was_refused_is_not_remembered() -> None:
    bay = watched(store_limit="1MiB", max_file_length="64KiB")
    queue = bay.queue()
    with pytest.raises(StoreFull):
        for n in range(2000):
            queue.send(bytes(1024), message_id=f"{n}")
    depth = queue.depth
    queue.purge()
    bay.bay.cleanup()
    assert queue.send(bytes(1024), message_id=f"{depth}") == f"{depth}"
    assert queue.depth == 1


def test_a_duplicate_in_a_full_batch_counts_as_stored() -> None:
    queue = SimulatedBay(
        policies={"orders": DestinationPolicy(duplicate_window=10, max_messages=2, when_full="fail")}
    ).queue()
    queue.send(b"x", message_id="a")
    with pytest.raises(StoreFull) as full:
        queue.send_many([Message(b"x", message_id="a"), Message(b"y", message_id="b"), Message(b"z", message_id="c")])
    assert full.value.stored == 2
    assert bodies(queue.browse()) == [b"x", b"y"]


@pytest.mark.parametrize("when_full", ["block", "fail", "drop_newest", "drop_oldest"])
def test_what_is_stored_already_needs_no_room(when_full: Any) -> None:
    bay = SimulatedBay(policies={"orders": DestinationPolicy(duplicate_window=10, max_messages=2, when_full=when_full)})
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n, message_id=f"{n}") for n in range(2))
    assert queue.send(b"1", message_id="1", timeout=0) == "1"
    assert queue.send_many([Message(b"0", message_id="0"), Message(b"1", message_id="1")], timeout=0) == ["0", "1"]
    assert bodies(queue.browse()) == [b"0", b"1"]
    assert bay.bay.statistics().destinations["orders"].dropped == 0


def test_an_id_twice_in_a_batch_makes_room_once() -> None:
    bay = SimulatedBay(
        policies={"orders": DestinationPolicy(duplicate_window=10, max_messages=3, when_full="drop_oldest")}
    )
    queue = bay.queue()
    queue.send_many(Message(b"%d" % n, message_id=f"{n}") for n in range(3))
    again = [Message(b"%d" % n, message_id=f"{n}") for n in (1, 3, 3, 2)]
    assert queue.send_many(again) == ["1", "3", "3", "2"]
    assert bodies(queue.browse()) == [b"1", b"2", b"3"]


def test_what_is_stored_already_needs_no_room_in_a_loop() -> None:
    async def main() -> None:
        policy = DestinationPolicy(duplicate_window=10, max_messages=2, when_full="drop_oldest")
        bay = LoopBay(policies={"orders": policy})
        queue = await bay.aio.queue("orders")
        await queue.send_many([Message(b"%d" % n, message_id=f"{n}") for n in range(2)])
        assert await queue.send(b"1", message_id="1") == "1"
        assert await queue.send_many([Message(b"9", message_id="0"), Message(b"", message_id="1")]) == ["0", "1"]
        assert [message.body async for message in queue.browse()] == [b"0", b"1"]

    run_jumping(main())


def test_a_queue_with_limits_gives_back_the_room_of_duplicates() -> None:
    queue = watched(max_messages=2).queue()
    for _ in range(10):
        queue.send(b"x", message_id="a")
    queue.send(b"y", message_id="b")
    assert queue.depth == 2
    limits = queue.current.limits
    assert limits is not None and limits.reserved_messages == limits.reserved_bytes == 0


def test_a_topic_delivers_an_id_once() -> None:
    bay = watched()
    topic = bay.bay.topic("prices")
    with topic.subscribe() as first, topic.subscribe(durable="audit") as second:
        topic.send(b"1", message_id="a")
        topic.send(b"2", message_id="a")
        topic.send_many([Message(b"3", message_id="a"), Message(b"4", message_id="b")])
        for consumer in (first, second):
            assert [delivery.body for delivery in consumer.take(10)] == [b"1", b"4"]


def test_a_deleted_queue_takes_its_windows_along() -> None:
    bay = watched()
    queue = bay.queue()
    queue.send(b"x", message_id="a")
    queue.send(b"x", message_id="b", persistent=False)
    queue.delete()
    bay.check()
    assert bay.windows.held_bytes == 0
    queue = bay.queue()
    queue.send(b"x", message_id="a")
    assert queue.depth == 1


def test_threads_that_send_the_same_ids_store_each_once() -> None:
    queue = watched(1000).queue()

    def send() -> None:
        for n in range(300):
            queue.send(b"%d" % n, message_id=f"{n}")

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(bodies(queue.browse())) == Counter(b"%d" % n for n in range(300))


@pytest.mark.parametrize("producer", ["", 7, b"p"])
def test_a_producer_must_be_text(producer: Any) -> None:
    queue = watched().queue()
    with pytest.raises(SettingsError, match="a producer must be"):
        queue.send(b"x", message_id="a", producer=producer)
    with pytest.raises(SettingsError, match="a producer must be"):
        queue.send_many([Message(b"x", message_id="a", producer=producer)])


def test_headers_and_ids_are_read_back_as_without_a_producer() -> None:
    queue = watched().queue()
    queue.send(b"x", headers={"kg": 1}, message_id="a", producer="p")
    [message] = queue.browse()
    assert (message.message_id, message.headers) == ("a", {"kg": 1})
    with queue.subscribe(selector="kg = 1") as consumer:
        [delivery] = consumer.take()
        assert (delivery.id, delivery.headers) == ("a", {"kg": 1})


# ------------------------------------------------------------------ non-persistent messages


def test_non_persistent_messages_are_stored_once_among_the_others() -> None:
    queue = watched().queue()
    queue.send(b"1", message_id="a", persistent=False)
    queue.send(b"2", message_id="a")
    queue.send(b"3", message_id="b")
    queue.send(b"4", message_id="b", persistent=False)
    queue.send_many([Message(b"5", message_id="c", persistent=False), Message(b"6", message_id="c", persistent=False)])
    assert sorted(bodies(queue.browse())) == [b"1", b"3", b"5"]


def test_an_id_ends_with_its_non_persistent_message() -> None:
    bay = watched()
    bay.queue().send(b"lost", message_id="a", persistent=False)
    bay.queue().send(b"kept", message_id="b")
    bay.journal.roll()
    bay.reopen()
    bay.queue().send(b"again", message_id="a", persistent=False)
    bay.queue().send(b"again", message_id="b", persistent=False)
    assert sorted(bodies(bay.queue().browse())) == [b"again", b"kept"]


# ------------------------------------------------------------------ transactions


def test_an_id_counts_with_its_commit() -> None:
    bay = watched()
    queue = bay.queue()
    with bay.bay.transaction() as transaction:
        assert queue.send(b"1", message_id="a", transaction=transaction) == "a"
        assert queue.send(b"2", message_id="a", transaction=transaction) == "a"
        bay.check()
    assert bodies(queue.browse()) == [b"1"]
    queue.send(b"3", message_id="a")
    with bay.bay.transaction() as transaction:
        queue.send_many([Message(b"4", message_id="a"), Message(b"5", message_id="b")], transaction=transaction)
    assert bodies(queue.browse()) == [b"1", b"5"]
    bay.check()


def test_an_id_of_a_transaction_that_is_rolled_back_is_free() -> None:
    bay = watched()
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"1", message_id="a", transaction=transaction)
    transaction.rollback()
    queue.send(b"2", message_id="a")
    assert bodies(queue.browse()) == [b"2"]
    bay.check()


def test_an_id_that_a_transaction_decides_about_is_refused_to_others() -> None:
    bay = watched()
    queue = bay.queue()
    transaction = bay.bay.transaction()
    queue.send(b"1", message_id="a", transaction=transaction)
    other = bay.bay.transaction()
    for of_other in (None, other):
        with pytest.raises(TransactionError, match="without an outcome"):
            queue.send(b"2", message_id="a", transaction=of_other)
    transaction.commit()
    queue.send(b"3", message_id="a", transaction=other)
    other.commit()
    assert bodies(queue.browse()) == [b"1"]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_a_prepared_transaction_keeps_its_ids_over_a_crash(is_index_lost: bool) -> None:
    bay = watched()
    queue = bay.queue()
    for xid, message_id in ((b"x", "a"), (b"y", "b")):
        transaction = bay.bay.transaction()
        queue.send(b"1", message_id=message_id, transaction=transaction)
        transaction.prepare(xid)
    bay.crash(is_index_lost=is_index_lost)
    queue = bay.queue()
    first, second = bay.bay.prepared()
    for message_id in ("a", "b"):
        with pytest.raises(TransactionError):
            queue.send(b"2", message_id=message_id)
    first.commit()
    second.rollback()
    bay.crash(is_index_lost=is_index_lost)
    queue = bay.queue()
    queue.send(b"3", message_id="a")
    queue.send(b"4", message_id="b")
    assert bodies(queue.browse()) == [b"1", b"4"]
    bay.check()


# ------------------------------------------------------------------ restart, cleanup, memory


@pytest.mark.parametrize("ends", ["reopen", "crash", "crash without index"])
def test_the_window_is_there_after_a_restart(ends: str) -> None:
    bay = watched(3)
    queue = bay.queue()
    for n in range(6):
        queue.send(b"%d" % n, message_id=f"{n}", producer="p")
    queue.send_many([Message(b"m", message_id=f"m{n}") for n in range(3)])
    with bay.bay.transaction() as transaction:
        queue.send(b"t", message_id="t", producer="t", transaction=transaction)
    if ends == "reopen":
        bay.reopen()
    else:
        bay.crash(is_index_lost=ends != "crash")
    queue = bay.queue()
    depth = queue.depth
    for n in (5, 4, 3):
        queue.send(b"again", message_id=f"{n}", producer="p")
    for message_id, producer in (("m0", None), ("m2", None), ("t", "t")):
        queue.send(b"again", message_id=message_id, producer=producer)
    assert queue.depth == depth
    queue.send(b"forgotten", message_id="2", producer="p")
    assert queue.depth == depth + 1
    bay.check()


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_the_window_outlives_the_data_logs_of_its_messages(is_index_lost: bool) -> None:
    bay = watched(20, max_file_length="64KiB")
    queue = bay.queue()
    with queue.subscribe() as consumer:
        for n in range(20):
            queue.send(bytes(20_000), message_id=f"{n}", producer="p")
            consumer.ack(consumer.take())
    for _ in range(5):
        bay.queue("filler").send(bytes(60_000))
    deleted = bay.bay.cleanup().deleted
    assert len(deleted) > 4
    bay.crash(is_index_lost=is_index_lost)
    for n in range(20):
        bay.queue().send(b"again", message_id=f"{n}", producer="p")
    assert bay.queue().depth == 0


def test_relocated_messages_are_not_new_ones() -> None:
    bay = watched(4, max_file_length="64KiB")
    queue = bay.queue()
    for n in range(4):
        queue.send(b"%d" % n, message_id=f"{n}", producer="p")
        for _ in range(4):
            bay.queue("filler").send(bytes(30_000))
    bay.queue("filler").purge()
    assert bay.bay.cleanup().relocated_messages
    queue.send(b"4", message_id="4", producer="p")
    bay.crash(is_index_lost=True)
    for n in (4, 3, 2, 1):
        bay.queue().send(b"again", message_id=f"{n}", producer="p")
    assert sorted(bodies(bay.queue().browse())) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_smaller_window_at_the_next_open_forgets_and_none_keeps_nothing() -> None:
    bay = watched(8)
    for n in range(8):
        bay.queue().send(b"x", message_id=f"{n}")
    bay.settings_given = Settings(
        background=False, memory_limit="4MiB", policies={"orders": DestinationPolicy(duplicate_window=2)}
    )
    bay.reopen()
    assert bay.windows.persistent.messages == 2
    bay.settings_given = Settings(background=False, memory_limit="4MiB")
    bay.reopen()
    assert bay.windows.persistent.messages == bay.windows.held_bytes == 0
    bay.queue().send(b"x", message_id="7")
    assert bay.queue().depth == 9


def test_windows_are_charged_and_bounded_and_the_oldest_ids_are_forgotten_first() -> None:
    bay = watched(1_000_000, max_file_length="256KiB")
    queue = bay.queue()
    limit_bytes = bay.windows.persistent.limit_bytes
    queue.send(b"x", message_id="quiet", producer="quiet")
    for n in range(limit_bytes // ID_CHARGE_BYTES * 2):
        queue.send(b"x", message_id=f"{n}", producer="loud")
        if n % 1000 == 0:
            queue.purge()
            bay.windows.persistent._check()
    held = bay.bay.statistics().memory.holders["duplicates"]
    assert limit_bytes - 2 * ID_CHARGE_BYTES < held <= limit_bytes < bay.bay.statistics().memory.limit_bytes / 16
    depth = queue.depth
    queue.send(b"x", message_id=f"{n}", producer="loud")
    assert queue.depth == depth
    queue.send(b"x", message_id="quiet", producer="quiet")
    assert queue.depth == depth + 1
    bay.check()


@pytest.mark.parametrize("ends", ["", "reopen", "crash", "crash without index"])
def test_of_many_producers_the_newest_ids_are_known_and_the_others_counted(
    ends: str, caplog: pytest.LogCaptureFixture
) -> None:
    bay = watched(5000, max_file_length="256KiB")
    most = bay.windows.persistent.limit_bytes // ID_CHARGE_BYTES
    bay.queue().send(b"x", message_id="only", producer="quiet")
    with caplog.at_level(logging.WARNING):
        for n in range(most):
            for producer in ("p", "q"):
                bay.queue().send(b"x", message_id=f"{n}", producer=producer)
            if n == most // 4:
                bay.bay.step()
                assert not caplog.records and not bay.bay.statistics().forgotten_ids
        bay.bay.step()
    assert [record.message.split()[0] for record in caplog.records] == [f"{bay.bay.statistics().forgotten_ids}"]
    assert most < bay.bay.statistics().forgotten_ids <= most + 200
    if ends == "reopen":
        bay.reopen()
    elif ends:
        bay.crash(is_index_lost=ends != "crash")
    for n in range(most, most + 300):
        for producer in ("p", "q"):
            bay.queue().send(b"x", message_id=f"{n}", producer=producer)
    depth = bay.queue().depth
    for n in range(most // 2 + 800, most + 300):
        for producer in ("p", "q"):
            bay.queue().send(b"again", message_id=f"{n}", producer=producer)
    assert bay.queue().depth == depth
    bay.queue().send(b"again", message_id="only", producer="quiet")
    assert bay.queue().depth == depth + 1
    bay.check()


def test_windows_get_memory_that_caches_hold() -> None:
    bay = watched(1000)
    for _ in range(6000):
        bay.queue("filler").send(bytes(1024))
    queue = bay.queue()
    for _ in range(2):
        queue.send_many([Message(b"x", message_id=f"{n}") for n in range(500)])
    assert queue.depth == 500
    bay.check()


def test_windows_shrink_with_the_memory_limit() -> None:
    bay = watched(1_000_000, memory_limit="16MiB")
    bay.queue().send_many([Message(b"x", message_id=f"{n}", producer=f"{n // 100}") for n in range(8000)])
    before = bay.windows.persistent.messages
    assert before == 8000
    report = bay.bay.resize("4MiB")
    assert report.is_settled
    bay.check()
    windows = bay.windows.persistent
    assert 0 < windows.messages < before
    windows._check()
    depth = bay.queue().depth
    bay.queue().send(b"x", message_id="7999", producer="79")
    assert bay.queue().depth == depth


# ------------------------------------------------------------------ asyncio


@pytest.mark.parametrize("max_messages", [None, 100])
def test_tasks_that_send_the_same_ids_store_each_once(max_messages: int | None) -> None:
    import asyncio

    async def main() -> None:
        policy = DestinationPolicy(duplicate_window=100, max_messages=max_messages)
        bay = LoopBay(policies={"orders": policy}, sync="always")
        queue = await bay.aio.queue("orders")
        sends = [queue.send(b"x", message_id=f"{n % 10}", producer="p") for n in range(40)]
        assert await asyncio.gather(*sends) == [f"{n % 10}" for n in range(40)]
        await queue.send_many([Message(b"x", message_id=f"{n}", producer="p") for n in range(20)])
        assert queue.depth == 20

    run_jumping(main())


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("is_index_lost", [False, True])
def test_messages_with_times_count_once_and_keep_their_times(is_batch: bool, is_index_lost: bool) -> None:
    bay = watched(8)

    def send_again() -> None:
        if is_batch:
            bay.queue().send_many([Message(b"x", message_id=f"{n}", delay=5.0, group="g") for n in range(3)])
        for n in range(3):
            bay.queue().send(b"x", message_id=f"{n}", delay=5.0, group="g")

    send_again()
    send_again()
    bay.crash(is_index_lost=is_index_lost)
    send_again()
    assert bay.queue().depth == 3
    consumer = bay.queue().subscribe()
    assert consumer.take(10) == []
    bay.clock.advance(6.0)
    bay.bay.step()
    assert [delivery.id for delivery in consumer.take(10)] == ["0", "1", "2"]
    bay.check()


def test_a_non_persistent_message_with_times_counts_once() -> None:
    bay = watched(8)
    for _ in range(2):
        bay.queue().send(b"x", message_id="a", delay=5.0, persistent=False)
    assert bay.queue().depth == 1
    assert bay.queue().subscribe().take() == []
