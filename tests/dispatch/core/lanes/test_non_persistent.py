"""Non-persistent messages: order, overflow to tmp-storage, what ends them, and that they cost the journal nothing."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from random import Random

import pytest
from compiled import interpreted
from delivering import numbered_body, tmp_bytes
from inside import open_forebay
from simulated_bay import SimulatedBay
from simulated_metadata import SimulatedMetadataStore

from forebay import Consumer, Delivery, Message
from forebay.store.disk.layout import TMP_STORAGE
from forebay.store.errors import Closed, SettingsError, SpillFailed, StoreFull

KIB = 1024
BODY = Random(3).randbytes(KIB)


def send(store: SimulatedBay, count: int, *, begin: int = 0, size: int = KIB) -> list[str]:
    """Numbered messages of that size, none of them persistent."""
    queue = store.queue()
    return [queue.send(numbered_body(n, size), persistent=False) for n in range(begin, begin + count)]


def drained(consumer: Consumer, batch: int = 100) -> Iterator[Delivery]:
    while deliveries := consumer.take(batch):
        yield from deliveries
        consumer.ack(deliveries)


# What they are.


def test_nothing_of_a_non_persistent_message_reaches_the_journal() -> None:
    store = SimulatedBay()
    store.queue().send(b"p")
    end = store.journal.end
    send(store, 20)
    with store.queue().subscribe() as consumer:
        [persistent] = consumer.take(1)
        for delivery in consumer.take(10):
            delivery.ack()
        consumer.ack(consumer.take(10))
        assert (store.journal.end, store.disk.list(TMP_STORAGE)) == (end, [])
        assert (persistent.persistent, delivery.persistent) == (True, False)
        assert store.queue().depth == 1
    store.check()


def test_selectors_see_the_delivery_mode() -> None:
    store = SimulatedBay()
    for n in range(10):
        store.queue().send(b"%d" % n, persistent=n % 2 == 0)
    with store.queue().subscribe(selector="JMSDeliveryMode = 'NON_PERSISTENT'") as consumer:
        store.bay.step()
        assert [delivery.body for delivery in drained(consumer)] == [b"1", b"3", b"5", b"7", b"9"]
    with store.queue().subscribe() as consumer:
        assert [delivery.body for delivery in drained(consumer)] == [b"0", b"2", b"4", b"6", b"8"]


@pytest.mark.parametrize("persistent", [None, 0, 1, "no"])
def test_only_true_and_false_are_accepted(persistent: bool) -> None:
    queue = SimulatedBay().queue()
    with pytest.raises(SettingsError, match="persistent must be True or False"):
        queue.send(b"x", persistent=persistent)
    with pytest.raises(SettingsError, match="persistent must be True or False"):
        queue.send_many([Message(b"x", persistent=persistent)])
    with pytest.raises(SettingsError, match="priority must be"):
        queue.send(b"x", persistent=False, priority=10)
    assert queue.depth == 0


def test_a_closed_store_takes_none_and_shows_none() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    send(store, 6_000)
    queue, consumer = store.queue(), store.queue().subscribe(prefetch=0)
    while (lazy := consumer.take(500)[-1]).held_body is not None:
        pass
    store.bay.close()
    with pytest.raises(Closed):
        queue.send(b"x", persistent=False)
    with pytest.raises(Closed):
        queue.send_many([Message(b"x", persistent=False)])
    with pytest.raises(Closed):
        _ = lazy.body
    assert store.disk.list(TMP_STORAGE) == []


# What ends them.


def test_a_restart_loses_them_and_only_them_and_order_stays() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    kept = [store.queue().send(BODY, persistent=n % 3 == 0) for n in range(9_000)][::3]
    assert tmp_bytes(store) > 0
    store.reopen()
    assert (store.queue().depth, tmp_bytes(store), store.disk.list(TMP_STORAGE)) == (3_000, 0, [])
    with store.queue().subscribe(prefetch=0) as consumer:
        assert [delivery.id for delivery in drained(consumer)] == kept


def test_a_killed_process_leaves_files_that_the_next_open_deletes() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    send(store, 5_000)
    persistent = store.queue().send(b"kept")
    left = store.disk.crash_process()
    assert left.list(TMP_STORAGE)
    bay = open_forebay(left, SimulatedMetadataStore(), store.settings_given, store.clock)
    assert (left.list(TMP_STORAGE), bay.statistics().tmp_storage.bytes) == ([], 0)
    with bay.queue("orders").subscribe() as consumer:
        assert [delivery.id for delivery in consumer.take(10)] == [persistent]


def test_no_id_comes_twice_however_often_the_store_is_opened() -> None:
    store = SimulatedBay()
    ids: list[str] = []
    for _ in range(3):
        ids += send(store, 10)
        ids.append(store.queue().send(b"p"))
        store.reopen()
    assert len(set(ids)) == len(ids)


# Order.


@pytest.mark.parametrize("limit", ["4MiB", "64MiB"])
@pytest.mark.parametrize("is_consumer_first", [True, False])
def test_both_kinds_come_in_the_order_in_which_they_were_sent(limit: str, is_consumer_first: bool) -> None:
    store = SimulatedBay(memory_limit=limit)
    queue, random = store.queue(), Random(5)
    consumer = queue.subscribe(prefetch=0) if is_consumer_first else None
    sent: list[str] = []
    while len(sent) < 12_000:
        is_persistent = random.random() < 0.5
        for _ in range(random.choice((1, 1, 2, 300))):
            sent.append(queue.send(BODY[: random.randrange(KIB)], persistent=is_persistent))
    consumer = consumer or queue.subscribe(prefetch=0)
    assert [delivery.id for delivery in drained(consumer, 77)] == sent
    store.check()
    assert tmp_bytes(store) == 0


def test_what_came_back_takes_its_place_between_messages_of_the_other_kind() -> None:
    store = SimulatedBay()
    sent = [store.queue().send(b"x", persistent=n % 2 == 0) for n in range(10)]
    consumer = store.queue().subscribe()
    store.bay.step()
    taken = consumer.take(6)
    consumer.ack([taken[1], taken[4]])
    consumer.nack([taken[3], taken[0]])
    consumer.nack(taken[2], delay=3)
    store.bay.step()
    assert [(delivery.id, delivery.attempts) for delivery in consumer.take(3)] == [
        (sent[0], 2),
        (sent[3], 2),
        (sent[6], 1),
    ]
    store.clock.advance(3)
    store.bay.step()
    assert [delivery.id for delivery in consumer.take(9)] == [sent[2], *sent[7:]]
    consumer.close()
    with store.queue().subscribe() as other:
        assert [delivery.id for delivery in drained(other)] == [sent[n] for n in (0, 2, 3, 5, 6, 7, 8, 9)]
    store.check()


def test_a_higher_priority_goes_first_whatever_its_kind() -> None:
    store = SimulatedBay()
    queue = store.queue()
    order = [(4, True), (5, False), (4, False), (9, True), (5, True)]
    sent = [queue.send(b"x", priority=priority, persistent=persistent) for priority, persistent in order]
    with queue.subscribe() as consumer:
        assert [delivery.id for delivery in drained(consumer)] == [sent[n] for n in (3, 1, 4, 0, 2)]


def test_send_many_takes_both_kinds_in_order() -> None:
    store = SimulatedBay()
    ids = store.queue().send_many(Message(b"%d" % n, persistent=n % 7 > 2) for n in range(500))
    with store.queue().subscribe() as consumer:
        deliveries = list(drained(consumer))
    assert [delivery.id for delivery in deliveries] == ids
    assert [delivery.body for delivery in deliveries] == [b"%d" % n for n in range(500)]
    assert [delivery.persistent for delivery in deliveries] == [n % 7 > 2 for n in range(500)]


# Overflow.


@pytest.mark.parametrize("limit", ["4MiB", "16MiB"])
def test_much_goes_through_a_small_limit_while_the_consumer_is_slow(limit: str) -> None:
    """At 4 MiB the memory for places bounds the backlog, so there it is shorter."""
    store = SimulatedBay(memory_limit=limit, max_file_length="1MiB")
    lead = 40_000 if limit == "4MiB" else 120_000
    count, budget = 200_000, store.budget
    queue = store.queue()
    consumer = queue.subscribe(prefetch=0)
    sent = expected = 0
    while expected < count:
        for _ in range(min(1_000, count - sent)):
            queue.send(numbered_body(sent), persistent=False)
            sent += 1
        for _ in range(2 if sent - expected < lead and sent < count else 5):
            deliveries = consumer.take(250)
            for delivery in deliveries:
                assert delivery.body.startswith(b"%d " % expected)
                expected += 1
            consumer.ack(deliveries)
        assert budget.held_bytes_max <= budget.limit_bytes
        store.clock.advance(0.1)
        store.bay.step()
    statistics = store.bay.statistics().tmp_storage
    assert (statistics.bytes, statistics.messages, store.disk.list(TMP_STORAGE)) == (0, 0, [])
    assert statistics.bytes_max > (lead - 20_000) * KIB
    store.check()


@interpreted("replaces what compiled code has linked")
def test_what_is_taken_before_it_makes_a_batch_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else it takes what the batch needs.
    monkeypatch.setattr("forebay.cache.accounting.shares.PENDING_CACHE_SHARE", 0.25)
    store = SimulatedBay(memory_limit="16MiB")
    consumer = store.queue().subscribe(prefetch=0)
    while not store.overflow.buffer:
        send(store, 1)
    list(drained(consumer))
    assert (store.bay.statistics().tmp_storage.bytes_max, len(store.overflow.buffer)) == (0, 0)


def test_overflow_is_written_in_batches() -> None:
    store = SimulatedBay(memory_limit="16MiB")
    send(store, 20_000)
    spilled = store.bay.statistics().tmp_storage.messages
    assert spilled > 10_000
    writes = store.disk.calls["write"]
    send(store, 2_560)
    assert store.disk.calls["write"] - writes <= 13


def test_bodies_in_flight_leave_ram_when_they_hold_half_of_it() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    send(store, 6_000)
    consumer = store.queue().subscribe(prefetch=0)
    deliveries: list[Delivery] = []
    while batch := consumer.take(500):
        deliveries += batch
        store.check()
    assert len(deliveries) > 4_000
    assert store.dispatch_area.dispatch_holder.held_bytes <= store.dispatch_area.in_flight_bytes_max
    lazy = [delivery for delivery in deliveries if delivery.held_body is None]
    assert lazy
    for n, delivery in enumerate(deliveries):
        assert delivery.body == numbered_body(n)
    consumer.nack(deliveries[::2])
    consumer.ack(deliveries[1::2])
    taken = consumer.take(10)
    assert [delivery.body for delivery in taken] == [numbered_body(n) for n in range(0, 20, 2)]
    store.check()


@pytest.mark.parametrize("is_installed", [True, False])
def test_what_went_back_with_its_consumer_can_still_be_looked_at_in_the_list_of_another(is_installed: bool) -> None:
    store = SimulatedBay(memory_limit="4MiB")
    send(store, 19, size=40 * KIB)
    consumer = store.queue().subscribe(prefetch=0)
    taken = [delivery for _ in range(19) for delivery in consumer.take()]
    [lazy] = [delivery for delivery in taken if delivery.held_body is None]
    consumer.close()
    store.queue().subscribe()
    [target] = store.lists()
    while (load := store.loader.begin(target, is_needed=False)) and lazy.sequence not in load.from_cache:
        store.loader.finish(load)
    assert load is not None
    if is_installed:
        store.loader.finish(load)
    assert lazy.body == numbered_body(lazy.sequence, 40 * KIB)
    if not is_installed:
        store.loader.finish(load)
    store.check()


def test_messages_larger_than_every_share_go_through() -> None:
    store = SimulatedBay(memory_limit="4MiB", max_message_bytes="3MiB")
    sizes = [3 << 20, 600 << 10, 100, 1 << 20, 300 << 10, 2 << 20]
    for size in sizes:
        store.queue().send(bytes(size), persistent=False)
        store.check()
    with store.queue().subscribe() as consumer:
        assert [len(delivery.body) for delivery in drained(consumer, 1)] == sizes
    store.check()


def test_a_purge_takes_both_kinds_wherever_they_are() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    for n in range(9_000):
        store.queue().send(BODY, persistent=n % 2 == 0)
    consumer = store.queue().subscribe(prefetch=0)
    store.bay.step()
    held = consumer.take(10)
    assert store.queue().purge() == 8_990
    assert consumer.take(10) == []
    consumer.ack(held)
    assert (store.queue().depth, tmp_bytes(store)) == (0, 0)
    store.check()


# Where tmp-storage takes nothing more.


def test_a_full_tmp_storage_refuses_and_takes_again_what_room_came_for() -> None:
    store = SimulatedBay(memory_limit="4MiB", temp_limit="2MiB")
    sent: list[str] = []
    with pytest.raises(StoreFull, match="temp_limit"):
        while True:
            sent.append(store.queue().send(numbered_body(len(sent)), persistent=False))
    assert store.queue().depth == len(sent) and tmp_bytes(store) <= 2 << 20
    persistent = store.queue().send(b"journaled")
    store.check()
    consumer = store.queue().subscribe(prefetch=0)
    for n in range(1_000):
        [delivery] = consumer.take(1)
        assert delivery.body == numbered_body(n)
        delivery.ack()
        store.check() if n % 100 == 0 else None
    more = store.queue().send(b"again", persistent=False)
    assert [delivery.id for delivery in drained(consumer)] == [*sent[1_000:], persistent, more]
    assert tmp_bytes(store) == 0


def test_send_many_says_how_many_are_in_when_tmp_storage_is_full() -> None:
    store = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    with pytest.raises(StoreFull) as full:
        store.queue().send_many(Message(BODY, persistent=False) for _ in range(10_000))
    assert 0 < full.value.stored == store.queue().depth
    store.check()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_disk_that_fails_concerns_new_messages_only(error: int) -> None:
    store = SimulatedBay(memory_limit="4MiB")
    sent = send(store, 3_000)
    store.disk.fail("write", 1, error, sticky=True)
    with pytest.raises(SpillFailed if error == errno.EIO else StoreFull):
        while True:
            sent += send(store, 1, begin=len(sent))
    store.check()
    consumer = store.queue().subscribe(prefetch=0)
    taken = consumer.take(2_000)
    consumer.nack(taken[:100])
    consumer.ack(taken[100:])
    store.check()
    store.disk.cure()
    sent.append(store.queue().send(b"journaled"))
    sent += send(store, 10)
    got = [delivery.id for delivery in drained(consumer)]
    assert got == sent[:100] + sent[len(taken) :]
    assert tmp_bytes(store) == 0
    store.check()


def test_a_second_selector_group_finds_all_even_where_tmp_storage_takes_nothing() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    queue = store.queue()
    store.disk.fail("write", 1, errno.EIO, sticky=True)
    first = queue.subscribe(prefetch=0)
    ids = [queue.send(b"x", headers={"n": n}, persistent=False) for n in range(100)]
    held = first.take(10)
    with queue.subscribe(selector="n >= 5 AND n < 50") as second:
        got = [delivery.id for delivery in drained(second)]
        assert got == ids[10:50]
        first.nack(held)
        assert [delivery.id for delivery in drained(second)] == ids[5:10]
    assert [delivery.id for delivery in drained(first)] == ids[:5] + ids[50:]
    store.check()


def test_a_message_that_does_not_verify_costs_itself_alone() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    sent = send(store, 5_000)
    name = f"{TMP_STORAGE}/{store.disk.list(TMP_STORAGE)[0]}"
    store.disk.flip_bit(name, 1_500, 3)
    with store.queue().subscribe(prefetch=0) as consumer:
        got = [delivery.id for delivery in drained(consumer)]
    assert len(got) == len(sent) - 1 and set(got) < set(sent) and got == sorted(got, key=sent.index)
    assert store.bay.statistics().destinations["orders"].unreadable == 1
    assert (store.queue().depth, tmp_bytes(store)) == (0, 0)
    store.check()


def test_what_comes_back_is_kept_where_no_cache_takes_it() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    store.memories.common.pending_cache.resize(0)
    sent = send(store, 10)
    with store.queue().subscribe() as consumer:
        consumer.nack(consumer.take(10))
        store.check()
        assert [delivery.id for delivery in drained(consumer)] == sent


def test_a_selector_group_that_joins_while_another_loads_finds_what_is_loaded() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    queue = store.queue()
    sent = [queue.send(b"x", headers={"n": n}, persistent=False) for n in range(20)]
    with queue.subscribe() as first:
        [target] = store.lists()
        load = store.loader.begin(target, is_needed=True)
        assert load is not None and len(load.from_cache) == 20
        with queue.subscribe(selector="n < 5") as second:
            store.loader.finish(load)
            store.bay.step()
            assert [delivery.id for delivery in drained(second)] == sent[:5]
        assert [delivery.id for delivery in drained(first)] == sent[5:]
    store.check()


def test_who_found_nothing_because_another_was_loading_it_hears_of_it_when_that_comes_to_nothing() -> None:
    store = SimulatedBay(memory_limit="8MiB")
    queue = store.queue()
    sent = [queue.send(b"x", headers={"n": n}, persistent=False) for n in range(20)]
    called: list[str] = []
    with queue.subscribe():
        [target] = store.lists()
        load = store.loader.begin(target, is_needed=True)
        assert load is not None and len(load.from_cache) == 20
        with queue.subscribe(selector="n < 5", on_ready=lambda: called.append("ready")) as second:
            assert not second.take()
            called.clear()
            store.loader.finish(load)
            store.call_ready()
            assert called == ["ready"]
            assert [delivery.id for delivery in drained(second)] == sent[:5]
    store.check()


def test_browse_find_move_and_delete_know_them_wherever_they_are() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    sent = send(store, 5_000)
    queue, other = store.queue(), store.queue("other")
    assert [message.message_id for message in queue.browse()] == sent
    for n in (0, 2_500, 4_999):
        found = queue.find(sent[n])
        assert found is not None and found.body == numbered_body(n)
    assert queue.move(other, limit=4_000) == 4_000
    store.check()
    with other.subscribe(prefetch=0) as consumer:
        assert [delivery.body for delivery in drained(consumer)] == [numbered_body(n) for n in range(4_000)]
    queue.delete()
    with pytest.raises(Closed):
        queue.send(b"x", persistent=False)
    assert (other.depth, tmp_bytes(store)) == (0, 0)
    store.check()


def test_what_leaves_a_cache_is_kept_where_places_were_paid_from_its_memory() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    queue = store.queue()
    sent = queue.send(bytes(40 * KIB), persistent=False)
    overflow, caches = (
        store.overflow,
        (store.memories.common.pending_cache, store.memories.common.head_queue_cache),
    )
    with store.lock:
        [(number, lane)] = overflow.lanes.items()
        [message] = [found for cache in (*caches, overflow.buffer) if (found := cache.take(number, 0)) is not None]
        overflow.account.give_ahead()
        others = store.budget.holder("others")
        assert others.reserve(store.budget.free_bytes - 41 * KIB)
        overflow.account.refill()
        overflow.keep(lane, [message])
    store.check()
    others.release(others.held_bytes)
    with queue.subscribe() as consumer:
        assert [delivery.id for delivery in drained(consumer)] == [sent]
    store.check()


def test_messages_whose_places_fill_memory_are_handed_out_while_others_send() -> None:
    store = SimulatedBay(memory_limit="4MiB")
    queue, budget = store.queue(), store.budget
    sent = [queue.send(b"0", persistent=False)]
    assert budget.holder("others").reserve(budget.free_bytes - 100 * KIB)
    with pytest.raises(StoreFull, match="memory_limit"):
        while True:
            sent.append(queue.send(b"%d" % len(sent), persistent=False))
    with queue.subscribe() as consumer:
        taken = []
        for delivery in islice(drained(consumer), len(sent)):
            taken.append(delivery.id)
            with suppress(StoreFull):
                queue.send(b"x", persistent=False)
            if not len(taken) % 1000:
                store.check()
    assert taken == sent
    store.check()


def test_the_first_message_of_a_queue_finds_memory_that_others_can_give_back() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    for _ in range(1000):
        bay.queue("backlog").send(bytes(1000))
    budget = bay.budget
    assert budget.holders["head_queue_cache"].held_bytes > 64 * 1024
    elsewhere, taken_bytes = budget.holders["browsers"], budget.free_bytes
    assert elsewhere.reserve(taken_bytes)
    queue = bay.queue("fresh")
    queue.send(b"price", persistent=False)
    elsewhere.release(taken_bytes)
    with queue.subscribe(prefetch=0) as consumer:
        assert consumer.take(1)[0].body == b"price"
    bay.check()
