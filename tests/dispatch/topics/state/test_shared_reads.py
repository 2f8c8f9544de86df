"""Subscriptions that are near each other share what is in RAM and what is read: one copy, one read."""

from __future__ import annotations

from random import Random

import pytest
from simulated_bay import SimulatedBay

from forebay import Consumer, Message
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.dispatch.topics.subscriptions.unmatched import READ_RUN_BYTES_MAX

KIB = 1024
SEED = 7
BACKLOG = 3000


def lagging(subscriptions: int, memory_limit: str, selector: str | None = None) -> tuple[SimulatedBay, list[Consumer]]:
    """Durable subscriptions of a topic that are all at the beginning of a backlog, with nothing in RAM."""
    bay = SimulatedBay(memory_limit=memory_limit)
    topic = bay.bay.topic("prices")
    for number in range(subscriptions):
        topic.subscribe(durable=f"s{number}", selector=selector).close()
    for first in range(0, BACKLOG, 100):
        topic.send_many(Message(bytes(KIB), {"n": n}) for n in range(first, first + 100))
    bay.reopen()
    topic = bay.bay.topic("prices")
    return bay, [
        topic.subscribe(durable=f"s{number}", selector=selector, prefetch=0) for number in range(subscriptions)
    ]


def read_all(bay: SimulatedBay, consumers: list[Consumer], random: Random | None = None) -> list[list[int]]:
    """Take everything in turns, and let the background do its part; what each got."""
    got: list[list[int]] = [[] for _ in consumers]
    waiting = list(range(len(consumers)))
    rounds = 0
    while waiting:
        for number in list(waiting):
            deliveries = consumers[number].take(random.choice((1, 5, 20)) if random is not None else 10)
            got[number] += [delivery.headers["n"] for delivery in deliveries]  # type: ignore[misc]
            consumers[number].ack(deliveries)
            if not deliveries:
                waiting.remove(number)
        rounds += 1
        if rounds % 10 == 0:
            bay.bay.step()
        if rounds % 100 == 0:
            bay.clock.advance(1.0)
            bay.housekeep()
    bay.check()
    return got


@pytest.mark.parametrize("memory_limit", ["4MiB", "8MiB", "64MiB"])
def test_ten_subscriptions_side_by_side_read_what_one_reads(memory_limit: str) -> None:
    reads = []
    for subscriptions in (1, 10):
        bay, consumers = lagging(subscriptions, memory_limit)
        before = bay.reads
        assert read_all(bay, consumers) == [list(range(BACKLOG))] * subscriptions
        reads.append(bay.reads - before)
    one, ten = reads
    assert ten <= 1.1 * one


def test_ten_subscriptions_with_selectors_side_by_side_read_little_more_than_one() -> None:
    reads = []
    for subscriptions in (1, 10):
        bay, consumers = lagging(subscriptions, "4MiB", selector="n >= 0")
        before = bay.reads
        assert read_all(bay, consumers) == [list(range(BACKLOG))] * subscriptions
        reads.append(bay.reads - before)
    one, ten = reads
    assert ten <= 2.5 * one


def test_what_different_selectors_do_not_match_is_read_once_and_kept_by_nobody() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    for number in range(10):
        topic.subscribe(durable=f"s{number}", selector=f"n < {number}00" if number % 2 else "n < 0").close()
    late = topic.subscribe(durable="late", selector="n < 0")
    for first in range(0, BACKLOG, 100):
        topic.send_many(Message(bytes(KIB), {"n": n}) for n in range(first, first + 100))
    late.close()
    bay.reopen()
    before = bay.reads
    for _ in range(2000):
        bay.bay.step()
    assert bay.reads - before < 2 * BACKLOG * KIB / READ_RUN_BYTES_MAX
    depths = {name: found.depth for name, found in bay.bay.topic("prices").statistics().subscriptions.items()}
    assert depths == {f"s{number}": 100 * number if number % 2 else 0 for number in range(10)} | {"late": 0}
    bay.check()


def read_by_groups(memory_limit: str, sizes: tuple[int, ...], groups: int, members: int, messages: int) -> int:
    """How many bytes groups of subscriptions read, each of them side by side and all far from each other."""
    bay = SimulatedBay(memory_limit=memory_limit)
    topic = bay.bay.topic("prices")
    names = [f"g{group}-{number}" for number in range(members) for group in range(groups)]
    for name in names:
        topic.subscribe(durable=name).close()
    for n in range(messages):
        topic.send(bytes(sizes[n % len(sizes)]), headers={"n": n})
    begins = [messages * (at % groups) // (groups + 1) for at in range(len(names))]
    for name, begin in zip(names, begins, strict=True):
        with topic.subscribe(durable=name, prefetch=0) as consumer:
            while begin > 0:
                deliveries = consumer.take(min(begin, 20))
                consumer.ack(deliveries)
                begin -= len(deliveries)
    bay.reopen()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=name, prefetch=0) for name in names]
    before = bay.read_bytes
    assert read_all(bay, consumers) == [list(range(begin, messages)) for begin in begins]
    return bay.read_bytes - before


@pytest.mark.parametrize("groups", [2, 3])
def test_groups_of_subscriptions_far_apart_read_what_one_of_each_group_reads(groups: int) -> None:
    sizes = 16, KIB, 64 * KIB
    alone = read_by_groups("8MiB", sizes, groups, 1, 600)
    assert read_by_groups("8MiB", sizes, groups, 8, 600) <= 1.1 * alone


@pytest.mark.parametrize("size", [16 * KIB, 64 * KIB, 128 * KIB])
def test_subscriptions_side_by_side_share_large_messages_where_each_list_has_room_for_none(size: int) -> None:
    sizes = 16, KIB, size
    alone = read_by_groups("4MiB", sizes, 1, 1, 200)
    assert read_by_groups("4MiB", sizes, 1, 16, 200) <= 1.2 * alone


def test_so_many_lists_leave_the_cache_room_for_what_all_of_them_want() -> None:
    alone = read_by_groups("4MiB", (KIB,), 1, 1, 600)
    assert read_by_groups("4MiB", (KIB,), 1, 60, 600) <= 1.2 * alone


def two_places(members: tuple[int, int], between: int) -> tuple[SimulatedBay, list[Consumer]]:
    """So many subscriptions at the beginning of a backlog in records of 20, and so many in the middle of it."""
    bay = SimulatedBay(memory_limit="4MiB")
    for place, number in enumerate(members):
        topic = bay.bay.topic("prices")
        for each in range(number):
            topic.subscribe(durable=f"{place}-{each}").close()
        for first in range(between * place, between * place + between, 20):
            topic.send_many(Message(bytes(KIB), {"n": n}) for n in range(first, first + 20))
    bay.reopen()
    topic = bay.bay.topic("prices")
    consumers = [
        topic.subscribe(durable=f"{place}-{each}") for place, number in enumerate(members) for each in range(number)
    ]
    return bay, consumers


def test_a_hundred_lists_leave_the_cache_what_all_of_them_want_though_the_loader_is_quick() -> None:
    bay, consumers = two_places((50, 50), 200)
    before = bay.read_bytes
    waiting = dict.fromkeys(consumers, 0)
    while waiting:
        for turn, consumer in enumerate(list(waiting)):
            deliveries = consumer.take(20)
            consumer.ack(deliveries)
            if not deliveries:
                del waiting[consumer]
            if turn % 10 == 0:
                bay.bay.step()
    assert bay.read_bytes - before <= 2 * 400 * KIB
    bay.check()


def test_one_that_is_behind_the_others_reads_each_record_about_once() -> None:
    bay, (stray, *others) = two_places((1, 99), 400)
    for consumer in others:
        consumer.ack(consumer.take(1))
    before = bay.read_bytes
    taken = 0
    while taken < 380:
        deliveries = stray.take(20)
        stray.ack(deliveries)
        taken += len(deliveries)
    assert bay.read_bytes - before <= 1.6 * 380 * KIB


def test_lists_have_no_copies_of_a_large_message_before_somebody_takes_it() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=f"s{number}", prefetch=0) for number in range(16)]
    for _ in range(10):
        topic.send(bytes(64 * KIB))
    for _ in range(100):
        bay.bay.step()
    for consumer in consumers:
        consumer.ack(consumer.take(1))
    before = bay.reads
    for _ in range(100):
        bay.bay.step()
    assert bay.reads == before
    assert max(target.high_watermark_bytes for target in bay.lists()) < 64 * KIB
    assert sum(target.direct_bytes for target in bay.lists()) == 0
    for consumer in consumers:
        assert len(consumer.take(1)) == 1
    assert bay.reads == before


def large_backlog(subscriptions: int, sizes: tuple[int, ...], messages: int) -> tuple[SimulatedBay, list[Consumer]]:
    """Durable subscriptions at the beginning of a backlog of which 4 MiB hold a dozen large messages at a time."""
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    for number in range(subscriptions):
        topic.subscribe(durable=f"s{number}").close()
    for n in range(messages):
        topic.send(bytes(sizes[n % len(sizes)]), headers={"n": n})
    bay.reopen()
    topic = bay.bay.topic("prices")
    return bay, [topic.subscribe(durable=f"s{number}", prefetch=100) for number in range(subscriptions)]


@pytest.mark.parametrize("seed", [3, 5])
def test_a_hundred_share_large_messages_though_the_loader_is_quick(seed: int) -> None:
    random, messages = Random(seed), 24
    bay, consumers = large_backlog(100, (64 * KIB,), messages)
    before = bay.read_bytes
    threads = [list(consumers[number::4]) for number in range(4)]  # so they drift apart, by a dozen messages
    while any(threads):
        driven = random.choice([thread for thread in threads if thread])
        for _ in range(random.randrange(1, 30)):
            consumer = driven.pop(0)
            deliveries = consumer.take(1)
            assert all(len(delivery.body) == 64 * KIB for delivery in deliveries)
            consumer.ack(deliveries)
            if deliveries:
                driven.append(consumer)
            bay.bay.step()
            if not driven:
                break
    found = bay.bay.topic("prices").statistics().subscriptions.values()
    assert all(subscription.depth == 0 for subscription in found)
    assert bay.read_bytes - before <= 1.5 * 64 * KIB * messages
    bay.check()


def test_what_is_too_large_for_each_of_many_lists_is_not_read_before_somebody_takes_it() -> None:
    bay, consumers = large_backlog(100, (64 * KIB,), 24)
    bay.clock.advance(1.0)
    bay.housekeep()
    before = bay.reads
    for _ in range(200):
        bay.bay.step()
    assert bay.reads == before
    assert sum(target.direct_bytes for target in bay.lists()) == 0
    assert all(len(consumer.take(1)) == 1 for consumer in consumers[:8])


def test_what_is_too_large_for_a_list_is_read_ahead_where_ram_has_room_for_a_copy_in_each() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=f"s{number}", prefetch=100) for number in range(2)]
    for _ in range(8):
        topic.send(bytes(512 * KIB))
    for consumer in consumers:
        consumer.close()
    bay.reopen()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(durable=f"s{number}", prefetch=100) for number in range(2)]
    bay.clock.advance(1.0)
    bay.housekeep()
    assert max(target.high_watermark_bytes for target in bay.lists()) < 512 * KIB
    for _ in range(20):
        bay.bay.step()
    before = bay.reads
    assert all(len(consumer.take(1)) == 1 for consumer in consumers)
    assert bay.reads == before


def test_what_ram_has_is_not_read_ahead_of_need_because_a_list_has_no_room_for_it() -> None:
    bay, consumers = lagging(2, "8MiB")
    for consumer in consumers:
        consumer.ack(consumer.take(20))
    target = next(target for target in bay.lists() if target.lane.is_cached(target.first_to_load))
    with bay.lock:
        holder, free_bytes = bay.budget.holders["browsers"], bay.budget.free_bytes
        assert holder.reserve(free_bytes)
        load = bay.loader.begin(target, is_needed=False)
        assert load is None and target.lane.is_cached(target.first_to_load)
        holder.release(free_bytes)
    assert read_all(bay, consumers) == [list(range(20, BACKLOG))] * 2


def test_subscriptions_that_drift_apart_get_all_in_order() -> None:
    print(f"seed {SEED}")
    bay, consumers = lagging(7, "4MiB")
    assert read_all(bay, consumers, Random(SEED)) == [list(range(BACKLOG))] * 7


def test_what_one_does_not_want_is_kept_for_those_who_do() -> None:
    bay, consumers = lagging(1, "8MiB")
    bay.bay.topic("prices").subscribe(durable="odd", selector="n = 2999").close()
    odd = bay.bay.topic("prices").subscribe(durable="odd", selector="n = 2999", prefetch=0)
    bay.bay.topic("prices").send(bytes(KIB), headers={"n": 2999})
    assert read_all(bay, [odd]) == [[2999]]
    assert read_all(bay, consumers) == [[*range(BACKLOG), 2999]]


@pytest.mark.parametrize("memory_limit", ["16MiB", "64MiB"])
def test_what_fits_in_ram_stays_there_once_however_many_subscribe(memory_limit: str) -> None:
    bay = SimulatedBay(memory_limit=memory_limit)
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(20)]
    for n in range(5000):
        topic.send(bytes(300), headers={"n": n})
    once_bytes = 5000 * (300 + 10 + OVERHEAD_BYTES)
    holders = bay.bay.statistics().memory.holders
    lists_bytes = 20 * max(target.high_watermark_bytes for target in bay.lists())
    assert holders["pending_cache"] <= once_bytes and holders["target_lists"] <= lists_bytes < once_bytes
    before = bay.reads
    assert read_all(bay, consumers) == [list(range(5000))] * 20
    assert bay.reads == before
    assert bay.bay.statistics().memory.holders["pending_cache"] == 0


def test_a_second_subscriber_shortens_the_list_of_the_first() -> None:
    bay = SimulatedBay(memory_limit="16MiB")
    topic = bay.bay.topic("prices")
    first = topic.subscribe(prefetch=0)
    for n in range(2000):
        topic.send(bytes(KIB), headers={"n": n})
    (target,) = bay.lists()
    alone_bytes = target.direct_bytes
    second = topic.subscribe(prefetch=0)
    assert target.direct_bytes < alone_bytes // 4
    before = bay.reads
    assert read_all(bay, [first]) == [list(range(2000))]
    assert bay.reads == before, "what the list gave up is in the cache"
    assert second.take() == []


def test_nothing_is_kept_when_nobody_subscribes_any_more() -> None:
    bay, consumers = lagging(3, "8MiB")
    consumers[0].ack(consumers[0].take(500))
    assert bay.bay.statistics().memory.holders["pending_cache"] > 0
    for consumer in consumers:
        consumer.close()
    assert bay.bay.statistics().memory.holders["pending_cache"] == 0
    bay.check()


def test_a_load_that_is_given_up_when_nobody_subscribes_any_more_leaves_nothing() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe(prefetch=0) for _ in range(2)]
    for _ in range(2000):
        topic.send(bytes(KIB))
    consumers.pop().close()
    (target,) = bay.lists()
    with bay.lock:
        load = bay.loader.begin(target, is_needed=False)
    assert load is not None and load.from_cache
    consumers.pop().close()
    bay.loader.abandon_interrupted(load)
    assert bay.bay.statistics().memory.holders["pending_cache"] == 0
    bay.check()


def test_a_message_that_comes_back_to_one_is_not_given_to_another_again() -> None:
    bay, consumers = lagging(2, "8MiB")
    one, other = consumers
    deliveries = one.take(50)
    other.ack(other.take(50))
    one.nack(deliveries)
    assert [delivery.headers["n"] for delivery in other.take(1)] == [50]
    assert read_all(bay, [one]) == [list(range(BACKLOG))]


def test_a_consumer_is_told_of_a_match_behind_large_messages_that_came_due() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic, calls = bay.bay.topic("prices"), list[int]()
    for number in range(10):
        topic.subscribe(durable=f"s{number}", selector="wanted = 1" if number == 0 else None).close()
    for delay in (0.5, 0.5, 0.5, 0.0, 0.0, 0.0):
        topic.send(bytes(64 * KIB), headers={"wanted": 2 if delay else 1}, delay=delay)
    others = [topic.subscribe(durable=f"s{number}") for number in range(1, 10)]
    told = topic.subscribe(durable="s0", selector="wanted = 1", prefetch=1, on_ready=lambda: calls.append(0))
    while not (first := told.take(1)):
        bay.bay.step()
    assert told.take(1) == [] and len(others) == 9
    bay.bay.step()
    bay.let_pass(1.0)  # those that are not wanted are due, and come before the next one that is
    told.ack(first)
    bay.call_ready()
    assert told.take(1) == []  # one load brought nothing; the search goes on in the background
    calls.clear()
    for _ in range(5):
        bay.bay.step()
        bay.call_ready()
    assert calls == [0]
    assert len(told.take(1)) == 1
    bay.check()


def test_a_load_that_ends_after_its_subscription_leaves_the_others_what_they_need_next() -> None:
    store = SimulatedBay()
    topic = store.bay.topic("prices")
    fast, slow = topic.subscribe(), topic.subscribe()
    for _ in range(100):
        topic.send_many([Message(b"x" * 600)] * 200)
    for consumer, messages in ((slow, 1000), (fast, 1400)):
        take(consumer, messages)
    target = fast.selector_group.lists[0]
    while target.direct:
        fast.ack(fast.take(50))
    with store.lock:
        load = store.loader.begin(target, is_needed=True)
    assert load is not None and load.regions
    fast.close()
    store.loader.finish(load)
    reads = store.reads
    take(slow, 300)
    assert store.reads == reads, "all of these were in the cache"


def take(consumer: Consumer, messages: int) -> None:
    """Take and acknowledge this many messages."""
    while messages:
        deliveries = consumer.take(min(messages, 200))
        consumer.ack(deliveries)
        messages -= len(deliveries)
