"""What a slow subscriber of a topic loses, and who is not touched by it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from loops import LoopBay, run_jumping
from simulated_bay import SimulatedBay

from forebay import Consumer, DestinationPolicy, Message, SettingsError
from forebay.dispatch.topics.eviction.evictor import Evictor
from forebay.dispatch.topics.eviction.latest_per_key import SPARE_PLACES


def limited(most: int = 8, eviction: Any = "oldest", **fields: Any) -> SimulatedBay:
    policy = DestinationPolicy(subscriber_max_messages=most, eviction=eviction)
    return SimulatedBay(policies={"prices": policy}, **fields)


def numbers(consumer: Consumer) -> list[int]:
    """Of all that it can have now; they are acknowledged."""
    found = []
    while taken := consumer.take(100):
        found += [int(delivery.body) for delivery in taken]
        consumer.ack(taken)
    return found


def send(bay: SimulatedBay, first: int, last: int, **fields: Any) -> None:
    for n in range(first, last + 1):
        bay.bay.topic("prices").send(b"%d" % n, **fields)


def evicted(bay: SimulatedBay) -> int:
    return bay.bay.statistics().topics["prices"].evicted


def test_a_slow_subscriber_loses_the_oldest_and_a_quick_one_nothing() -> None:
    bay = limited(8)
    topic = bay.bay.topic("prices")
    slow, quick = topic.subscribe(), topic.subscribe()
    got = []
    for n in range(50):
        send(bay, n, n)
        got += numbers(quick)
    left = numbers(slow)
    assert got == list(range(50))
    assert left == list(range(50 - len(left), 50)) and 8 <= len(left) <= 9
    assert evicted(bay) == 50 - len(left)
    bay.check()


def test_what_fits_is_not_touched() -> None:
    bay = limited(8)
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 7)
    assert numbers(consumer) == list(range(8))
    assert evicted(bay) == 0


def test_a_batch_is_evicted_as_single_messages_are() -> None:
    for eviction, expected in (("oldest", range(992, 1000)), ("newest", range(8))):
        bay = limited(8, eviction)
        topic = bay.bay.topic("prices")
        consumer = topic.subscribe()
        topic.send_many([Message(b"%d" % n) for n in range(1000)])
        assert numbers(consumer) == list(expected)
        assert evicted(bay) == 992
        bay.check()


def test_a_durable_subscription_misses_nothing() -> None:
    bay = limited(4)
    topic = bay.bay.topic("prices")
    durable, slow = topic.subscribe(durable="audit"), topic.subscribe()
    send(bay, 0, 99)
    assert numbers(durable) == list(range(100))
    assert len(numbers(slow)) == 4


def test_what_is_in_the_consumers_hands_stays_and_does_not_count() -> None:
    bay = limited(4)
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 3)
    taken = consumer.take(4)
    send(bay, 4, 20)
    assert [int(delivery.body) for delivery in taken] == [0, 1, 2, 3]
    consumer.ack(taken)
    assert numbers(consumer) == [17, 18, 19, 20]
    bay.check()


def test_the_newest_goes_where_the_policy_says_so_and_later_ones_come_again() -> None:
    bay = limited(4, "newest")
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 9)
    assert numbers(consumer) == [0, 1, 2, 3]
    send(bay, 10, 12)
    assert numbers(consumer) == [10, 11, 12]
    assert evicted(bay) == 6
    bay.check()


def test_the_oldest_of_all_priorities_goes_or_that_of_the_lowest() -> None:
    for eviction, expected in (("oldest", [9, 11, 8, 10]), ("lowest_priority", [1, 3, 5, 7, 9, 11])):
        bay = limited(4 if eviction == "oldest" else 6, eviction)
        consumer = bay.bay.topic("prices").subscribe()
        for n in range(12):
            send(bay, n, n, priority=9 if n % 2 else 1)
        assert numbers(consumer) == expected


def test_of_each_key_the_newest_stays() -> None:
    bay = limited(8, "latest_per_key")
    slow, durable = bay.bay.topic("prices").subscribe(), bay.bay.topic("prices").subscribe(durable="all")
    for n in range(40):
        send(bay, n, n, group="quiet" if n == 3 else f"symbol {n % 4}")
    assert evicted(bay) == 40 - 8
    left = numbers(slow)
    assert len(left) == 8 and left[0] == 3 and left[-4:] == [36, 37, 38, 39]
    assert numbers(durable) == list(range(40))
    bay.check()


@pytest.mark.parametrize("eviction", ["oldest", "latest_per_key"])
def test_what_an_open_transaction_decides_about_is_not_lost(eviction: str) -> None:
    bay = limited(4, eviction)
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 0, group="tea")
    with bay.bay.transaction() as transaction:
        consumer.ack(consumer.take(1), transaction=transaction)
        for n in range(1, 9):
            send(bay, n, n, group="tea")
        assert evicted(bay) == 4
        transaction.rollback()
    assert numbers(consumer) == [0, 5, 6, 7, 8]
    bay.check()


def test_with_more_keys_than_there_is_room_the_oldest_goes() -> None:
    bay = limited(8, "latest_per_key")
    consumer = bay.bay.topic("prices").subscribe()
    for n in range(40):
        send(bay, n, n, group=f"symbol {n}" if n % 2 else None)
    left = numbers(consumer)
    assert left == list(range(40 - len(left), 40)) and 8 <= len(left) <= 9


def test_any_header_may_be_the_key_and_only_what_a_selector_matches_is_newer() -> None:
    policy = DestinationPolicy(subscriber_max_messages=4, eviction="latest_per_key", eviction_key="symbol")
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(selector="kind = 'trade'")
    topic.send_many(Message(b"%d" % n, {"symbol": "TEA", "kind": "trade"}) for n in range(3))
    topic.send_many(Message(b"%d" % n, {"symbol": 1.0, "kind": "trade"}) for n in range(3, 6))
    for n in range(6, 20):
        topic.send(b"%d" % n, headers={"symbol": "TEA", "kind": "offer"})
        bay.bay.step()
    left = numbers(consumer)
    assert {2, 5} <= set(left) <= set(range(6)) and len(left) == 4
    bay.check()


def test_what_is_remembered_of_keys_goes_with_what_waits() -> None:
    bay = limited(8, "latest_per_key")
    consumer = bay.bay.topic("prices").subscribe()
    for n in range(2000):
        send(bay, n, n, group=f"symbol {n % 700}")
        if n % 3:
            consumer.ack(consumer.take(2))
    topic_state = bay.topic_state("prices")
    [subscription] = topic_state.online
    assert isinstance(topic_state.evictor, Evictor)
    assert topic_state.evictor.latest_of(subscription).places < 4 * SPARE_PLACES
    assert evicted(bay) + len(numbers(consumer)) + consumer.statistics().delivered >= 2000


def test_what_was_lost_does_not_keep_its_data_log() -> None:
    bay = limited(4, max_file_length="64KiB")
    topic = bay.bay.topic("prices")
    with topic.subscribe():
        for _ in range(100):
            topic.send(bytes(10_000))
        assert len(bay.bay.cleanup().remaining) < 5
        assert bay.bay.statistics().store.journal_bytes < 300_000


def test_a_delayed_message_that_is_lost_does_not_come_back() -> None:
    bay = limited(2)
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 1)
    consumer.nack(consumer.take(2), delay=5.0)
    send(bay, 2, 9)
    bay.clock.advance(6.0)
    bay.bay.step()
    assert numbers(consumer) == [8, 9]
    bay.check()


@pytest.mark.parametrize("sync", ["never", "always"])
@pytest.mark.parametrize("eviction", ["oldest", "newest", "lowest_priority", "latest_per_key"])
def test_random_traffic_stays_within_the_limit_and_in_order(eviction: str, sync: str) -> None:
    random = Random(5)
    bay = limited(16, eviction, sync=sync, memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    consumer, seen, number = topic.subscribe(), [], 0
    for _ in range(300):
        if random.random() < 0.7:
            count = random.choice((1, 1, 3, 40))
            messages = [
                Message(b"%d" % (number + n) + b" " * random.choice((0, 5000)), group=random.choice((None, "a", "b")))
                for n in range(count)
            ]
            number += count
            if count == 1:
                topic.send(messages[0].body, group=messages[0].group)
            else:
                topic.send_many(messages)
        else:
            taken = consumer.take(random.randint(1, 10))
            seen += [int(delivery.body) for delivery in taken]
            if random.random() < 0.3:
                seen = seen[: len(seen) - len(taken)]
                consumer.nack(taken)
            else:
                consumer.ack(taken)
        [subscription] = bay.topic_state("prices").online
        assert subscription.depth - consumer.statistics().in_flight <= 18
    seen += numbers(consumer)
    assert seen == sorted(set(seen))
    assert len(seen) + evicted(bay) == number
    bay.check()


@pytest.mark.parametrize(
    "fields",
    [{"subscriber_max_messages": 0}, {"subscriber_max_messages": 1.5}, {"eviction": "any"}, {"eviction_key": ""}],
)
def test_a_limit_or_a_choice_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(fields))):
        DestinationPolicy(**fields)


def test_without_a_limit_nothing_is_lost() -> None:
    bay = SimulatedBay()
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 999)
    assert numbers(consumer) == list(range(1000))


def test_a_slow_task_loses_the_oldest_too() -> None:
    async def main() -> None:
        bay = LoopBay(policies={"prices": DestinationPolicy(subscriber_max_messages=4)})
        topic = await bay.aio.topic("prices")
        async with topic.subscribe() as consumer:
            await asyncio.gather(*[topic.send(b"%d" % n) for n in range(50)])
            assert [int(delivery.body) for delivery in await consumer.take(100)] == [46, 47, 48, 49]
        assert topic.statistics().evicted == 46

    run_jumping(main())


@pytest.mark.parametrize(("eviction", "left"), [("oldest", [6, 7, 8, 9]), ("newest", [0, 1, 2, 3])])
def test_messages_that_are_due_later_count_as_those_that_wait(eviction: str, left: list[int]) -> None:
    bay = limited(4, eviction)
    consumer = bay.bay.topic("prices").subscribe()
    send(bay, 0, 9, delay=5.0)
    assert numbers(consumer) == []
    assert evicted(bay) == 6
    bay.clock.advance(6.0)
    bay.bay.step()
    assert numbers(consumer) == left
    bay.check()


@pytest.mark.parametrize("eviction", ["oldest", "newest", "lowest_priority"])
def test_consumers_with_selectors_lose_what_those_without_lose(eviction: str) -> None:
    bay = limited(4, eviction)
    topic = bay.bay.topic("prices")
    plain, choosy = topic.subscribe(), topic.subscribe(selector="kg > 0")
    send(bay, 0, 9, headers={"kg": 1})
    topic.send_many([Message(b"%d" % n, {"kg": 1}) for n in range(10, 20)])
    found = numbers(choosy)
    assert found == numbers(plain)
    assert len(found) == 4
    bay.check()
