"""Non-persistent messages of topics: each subscriber gets its own, a slow one spills, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, cast

import pytest
from compiled import interpreted
from delivering import numbered_body, tmp_bytes
from loops import LoopBay, run_jumping
from sampling import sampled
from simulated_bay import SimulatedBay
from waiting_senders import Woken

from forebay import Consumer, DestinationPolicy, Message, StateError, StoreFull, Topic
from forebay.cache.spill.spill_account import AHEAD_BYTES, REFERENCES_BYTES
from forebay.dispatch.topics.eviction.arrival_order import SPARE_RUNS
from forebay.dispatch.topics.eviction.evictor import Evictor
from forebay.store.tmp.non_persistent_lane import NonPersistentLane

KIB = 1024
BODY = Random(5).randbytes(KIB)


def send(topic: Topic, count: int, *, begin: int = 0, **fields: Any) -> list[str]:
    return [topic.send(numbered_body(n), persistent=False, **fields) for n in range(begin, begin + count)]


def numbers(consumer: Consumer, most: int = 1 << 30) -> list[int]:
    """Of all that it can have now; they are acknowledged."""
    found: list[int] = []
    while len(found) < most and (taken := consumer.take(min(100, most - len(found)))):
        found += [int(delivery.body.split()[0]) for delivery in taken]
        consumer.ack(taken)
    return found


# What they are.


def test_each_subscriber_gets_them_in_order_and_nothing_reaches_the_journal() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    one, other = topic.subscribe(), topic.subscribe(durable="ledger")
    end = bay.journal.end
    send(topic, 300)
    assert numbers(one) == numbers(other) == list(range(300))
    assert bay.journal.end == end
    bay.check()


def test_a_message_has_the_id_that_send_returned_whoever_gets_it() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    early = topic.subscribe()
    ids = send(topic, 3)
    late, picky = topic.subscribe(), topic.subscribe(selector="number = 4")
    ids += [topic.send(numbered_body(n), headers={"number": n}, persistent=False) for n in (3, 4)]
    assert [delivery.id for delivery in early.take(10)] == ids
    assert [delivery.id for delivery in late.take(10)] == ids[3:]
    assert [delivery.id for delivery in picky.take(10)] == ids[4:]
    assert len(set(ids)) == 5
    bay.check()


def test_a_delivery_says_what_it_is() -> None:
    topic = SimulatedBay().bay.topic("prices")
    consumer = topic.subscribe(selector="JMSDeliveryMode = 'NON_PERSISTENT' AND JMSPriority = 7")
    topic.send(b"persistent", priority=7)
    topic.send(b"other", priority=3, persistent=False)
    topic.send(b"wanted", headers={"a": 1}, priority=7, persistent=False, group="g")
    [delivery] = consumer.take(10)
    assert (delivery.body, delivery.persistent, delivery.priority) == (b"wanted", False, 7)
    assert (delivery.destination, delivery.headers, delivery.group) == ("prices", {"a": 1}, "g")


def test_what_nobody_subscribes_to_is_kept_nowhere() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    assert len(set(send(topic, 100))) == 100
    assert bay.overflow.lanes == {}
    assert topic.statistics().enqueued == 100
    assert numbers(topic.subscribe()) == []
    bay.check()


def test_both_kinds_of_one_priority_come_by_arrival_and_a_higher_priority_first() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumer, ledger = topic.subscribe(), topic.subscribe(durable="ledger")
    random = Random(7)
    for n in range(400):
        topic.send(numbered_body(n), persistent=random.random() < 0.5, priority=random.choice((4, 4, 4, 9)))
    taken, priorities = [], []
    while deliveries := consumer.take(64):
        taken += [int(delivery.body.split()[0]) for delivery in deliveries]
        priorities += [delivery.priority for delivery in deliveries]
        consumer.ack(deliveries)
    assert priorities == sorted(priorities, reverse=True)
    high = priorities.count(9)
    assert taken[:high] == sorted(taken[:high]) and taken[high:] == sorted(taken[high:])
    assert numbers(ledger) == taken
    bay.check()


def test_many_are_sent_among_persistent_ones() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    ids = topic.send_many([Message(numbered_body(n), persistent=n % 3 != 0) for n in range(90)])
    taken = consumer.take(100)
    assert [delivery.id for delivery in taken] == ids
    assert [delivery.persistent for delivery in taken] == [n % 3 != 0 for n in range(90)]
    consumer.ack(taken)
    bay.check()


# Slow subscribers.


def test_a_slow_subscriber_spills_and_a_quick_one_never_waits_for_it() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    slow, quick = topic.subscribe(), topic.subscribe()
    for n in range(0, 12_000, 50):
        send(topic, 50, begin=n)
        assert numbers(quick) == list(range(n, n + 50))
        assert bay.budget.held_bytes <= 4 * KIB * KIB
    assert tmp_bytes(bay) > 4 * KIB * KIB
    bay.check()
    assert numbers(slow) == list(range(12_000))
    assert tmp_bytes(bay) == 0
    bay.check()


def test_the_files_of_a_subscriber_go_when_it_closes() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    slow = topic.subscribe()
    slow.take(1)
    send(topic, 10_000)
    assert tmp_bytes(bay) > 4 * KIB * KIB
    slow.close()
    assert tmp_bytes(bay) == 0
    assert bay.overflow.lanes == {} and bay.overflow.buffer.keys == []
    bay.check()


def test_where_one_subscriber_has_no_room_nobody_gets_it() -> None:
    bay = SimulatedBay(memory_limit="4MiB", temp_limit="1MiB")
    topic = bay.bay.topic("prices")
    quick, slow = topic.subscribe(), topic.subscribe()
    sent: list[int] = []
    with pytest.raises(StoreFull):
        for n in range(20_000):
            topic.send(numbered_body(n), persistent=False)
            sent.append(n)
            if n % 50 == 0:
                sent_to_quick = numbers(quick)
                assert sent_to_quick == sent[-len(sent_to_quick) :]
    bay.check()
    sent_to_quick = numbers(quick)
    assert sent_to_quick == sent[-len(sent_to_quick) :] and len(sent_to_quick) <= 50
    assert numbers(slow) == sent
    topic.send(b"20000 again", persistent=False)
    assert numbers(quick) == numbers(slow) == [20_000]
    bay.check()


@contextmanager
def refused_by(full: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have one lane of a topic refuse the send in the block, as if memory had no room for its message."""
    add = NonPersistentLane.add

    def refuse(lane: NonPersistentLane, length: int) -> int:
        if lane is full:
            raise StoreFull(length, 0, "memory_limit")
        return add(lane, length)

    with monkeypatch.context() as patch, pytest.raises(StoreFull):
        patch.setattr(NonPersistentLane, "add", refuse)
        yield


@interpreted("replaces what compiled code has linked")
def test_what_the_last_of_them_has_no_room_for_is_taken_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumers = [topic.subscribe() for _ in range(3)]
    send(topic, 3)
    [last] = [lane for lane in list(bay.topic_state("prices").online)[2].non_persistent_lanes if lane is not None]
    before = topic.statistics()
    with refused_by(last.pending_lane, monkeypatch):
        topic.send(numbered_body(3), persistent=False)
    assert topic.statistics() == before, "what was refused counts as sent"
    bay.check()
    send(topic, 1, begin=4)
    assert topic.statistics().enqueued == before.enqueued + 1 == 4
    assert [numbers(consumer) for consumer in consumers] == [[0, 1, 2, 4]] * 3
    bay.check()


@interpreted("replaces what compiled code has linked")
def test_a_subscription_counts_what_it_got_and_nothing_that_was_refused_or_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    for name in ("audit", "ledger"):
        topic.subscribe(durable=name)
    topic.subscribe(durable="picky", selector="number = 1")
    sent = [topic.send(b"%d" % n, headers={"number": n}, persistent=False) for n in range(3)]
    last = list(bay.topic_state("prices").online)[1].non_persistent_lanes[4]
    assert last is not None
    before = topic.statistics()
    with refused_by(last.pending_lane, monkeypatch):
        topic.send(b"refused", persistent=False)
    assert topic.statistics() == before
    sent.append(topic.send(b"1 again", headers={"number": 1}, persistent=False))
    found = topic.statistics().subscriptions
    assert {name: found[name].enqueued for name in found} == {"audit": len(sent), "ledger": len(sent), "picky": 2}
    assert all(each.enqueued_bytes == each.bytes and not each.dequeued_bytes for each in found.values())
    bay.check()


def test_no_lane_pays_for_what_its_selector_leaves_out() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(selector="number = 5")
    for n in range(20_000):
        topic.send(b"%d" % n, headers={"number": n % 10_000}, persistent=False)
    assert bay.overflow.lanes != {}
    assert bay.budget.holders["tmp_storage"].held_bytes < AHEAD_BYTES + REFERENCES_BYTES + 14 * KIB
    assert numbers(consumer) == [5, 10_005]
    bay.check()


@pytest.mark.parametrize("eviction", ["oldest", "newest", "lowest_priority", "latest_per_key"])
def test_a_slow_subscriber_loses_what_its_policy_says(eviction: Any) -> None:
    policy = DestinationPolicy(subscriber_max_messages=16, eviction=eviction, eviction_key="key")
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    slow, ledger = topic.subscribe(), topic.subscribe(durable="ledger")
    for n in range(160):
        fields: dict[str, Any] = {"headers": {"key": n % 4}} if eviction == "latest_per_key" else {}
        if eviction == "lowest_priority":
            fields["priority"] = 9 if n < 10 else 2
        topic.send(numbered_body(n), persistent=n % 2 == 0, **fields)
    left = numbers(slow)
    assert 16 <= len(left) <= 18
    expected = {
        "oldest": list(range(160 - len(left), 160)),
        "newest": list(range(16)),
        "lowest_priority": [*range(10), *range(160 - len(left) + 10, 160)],
        "latest_per_key": list(range(160 - len(left), 160)),
    }
    assert left == expected[eviction]
    assert bay.bay.statistics().topics["prices"].evicted == 160 - len(left)
    assert sorted(numbers(ledger)) == list(range(160))
    bay.check()


@pytest.mark.parametrize("kinds", ["both", "not persistent", "then persistent", "then not persistent"])
def test_the_oldest_of_all_priorities_and_kinds_goes(kinds: str) -> None:
    policy = DestinationPolicy(subscriber_max_messages=16, eviction="oldest")
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    topic.send(numbered_body(0), persistent=False, priority=9)
    [held] = consumer.take(1)
    for n in range(1, 100):
        persistent = {"both": n % 3 == 0, "not persistent": False, "then persistent": n > 50}.get(kinds, n <= 50)
        topic.send(numbered_body(n), persistent=persistent, priority=(9, 4)[n > 50] if n % 5 else 7)
    consumer.ack(held)
    left = sorted(numbers(consumer))
    assert left == list(range(100 - len(left), 100)) and 16 <= len(left) <= 18
    bay.check()


def test_what_is_remembered_of_the_order_of_arrival_goes_with_what_waits() -> None:
    policy = DestinationPolicy(subscriber_max_messages=1_000)
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    topic.send(numbered_body(0), persistent=False)
    [held] = consumer.take(1)
    for n in range(1_000):
        topic.send(numbered_body(n, 10), persistent=n % 2 == 0)
        consumer.ack(consumer.take(10))
    topic_state = bay.topic_state("prices")
    [subscription] = topic_state.online
    assert isinstance(topic_state.evictor, Evictor)
    assert topic_state.evictor.arrival_order_of(subscription).run_count < 3 * SPARE_RUNS
    consumer.ack(held)
    bay.check()


# What ends them.


def test_a_durable_subscription_keeps_what_it_has_while_it_is_offline_and_gets_no_more() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    ledger = topic.subscribe(durable="ledger")
    send(topic, 5)
    [first] = ledger.take(1)
    ledger.ack(first)
    ledger.close()
    send(topic, 5, begin=5)
    assert topic.statistics().subscriptions["ledger"].depth == 4
    bay.check()
    ledger = topic.subscribe(durable="ledger")
    send(topic, 1, begin=10)
    assert numbers(ledger) == [1, 2, 3, 4, 10]
    bay.check()


def test_the_process_ends_and_so_do_they() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="ledger")
    before = send(topic, 3)
    topic.send(numbered_body(3))
    bay.crash()
    topic = bay.bay.topic("prices")
    ledger = topic.subscribe(durable="ledger")
    assert not set(send(topic, 1, begin=4)) & set(before)
    assert numbers(ledger) == [3, 4]
    bay.check()


def test_unsubscribing_forgets_them() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="ledger")
    send(topic, 10_000)
    topic.subscribe(durable="other").close()
    cast(Consumer, next(list(bay.topic_state("prices").online)[0].consumers())).close()
    topic.unsubscribe("ledger")
    assert bay.overflow.lanes == {} and tmp_bytes(bay) == 0
    bay.check()


def test_what_expires_leaves_and_what_is_delayed_comes_in_time() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    one, other = topic.subscribe(), topic.subscribe(selector="a IS NULL")
    send(topic, 1, begin=0, expires_in=5)
    send(topic, 1, begin=1, delay=3)
    send(topic, 1, begin=2)
    assert numbers(one) == [0, 2]
    bay.clock.advance(4)
    bay.bay.step()
    assert numbers(one) == [1]
    bay.clock.advance(40)
    bay.bay.step()
    assert numbers(other) == [1, 2] or numbers(other) == [2, 1]
    bay.check()


def test_what_comes_back_comes_again_and_at_last_goes_to_the_dead_letters() -> None:
    policy = DestinationPolicy(max_attempts=2)
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    one, other = topic.subscribe(), topic.subscribe()
    [message_id] = send(topic, 1)
    for attempt in (1, 2):
        [delivery] = one.take(1)
        assert delivery.attempts == attempt
        one.nack(delivery)
        bay.bay.step()
    assert one.take(1) == [] and numbers(other) == [0]
    queue = bay.bay.queue(next(name for name in bay.bay.destinations() if name.startswith("DLQ")))
    [letter] = queue.subscribe().take(1)
    assert (letter.id, letter.persistent, letter.body) == (message_id, False, numbered_body(0))
    bay.check()


def test_what_a_closed_subscriber_still_holds_is_refused() -> None:
    bay = SimulatedBay()
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    send(topic, 20)
    taken = consumer.take(5)
    consumer.close()
    with pytest.raises(StateError, match="closed"):
        consumer.ack(taken)
    bay.check()


# Limits, duplicates, loops, traces.


def test_a_limited_topic_counts_what_its_slowest_subscriber_has() -> None:
    policy = DestinationPolicy(max_messages=10, when_full="fail")
    bay = SimulatedBay(policies={"prices": policy})
    topic = bay.bay.topic("prices")
    quick, slow = topic.subscribe(), topic.subscribe()
    for n in range(10):
        send(topic, 1, begin=n)
        assert numbers(quick) == [n]
    with pytest.raises(StoreFull, match="max_messages=10"):
        send(topic, 1)
    assert numbers(slow, 1) == [0]
    send(topic, 1, begin=10)
    with pytest.raises(StoreFull):
        topic.send(b"11")
    assert numbers(slow) == list(range(1, 11))
    bay.check()


@pytest.mark.parametrize("ending", ["ack", "close", "unsubscribe", "sweep", "expiry", "dead letter"])
@pytest.mark.parametrize("persistent", [False, True])
def test_whatever_makes_room_wakes_who_waits_for_it(ending: str, persistent: bool) -> None:
    bay = SimulatedBay(policies={"prices": DestinationPolicy(max_messages=4, max_attempts=1)})
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe(durable="ledger" if ending == "unsubscribe" else None)
    expires_in = 5.0 if ending in ("sweep", "expiry") else None
    for n in range(4):
        topic.send(numbered_body(n), persistent=persistent, expires_in=expires_in)
    if ending == "unsubscribe":
        consumer.close()
    with bay.lock:
        woken = Woken(bay.topic_state("prices").limits)
    if ending == "ack":
        consumer.ack(consumer.take(1))
    elif ending == "dead letter":
        consumer.nack(consumer.take(1))
    elif ending == "close":
        consumer.close()
    elif ending == "unsubscribe":
        topic.unsubscribe("ledger")
    else:
        bay.clock.advance(6 if ending == "expiry" else 100)
        if ending == "expiry":
            assert consumer.take(1) == []
    bay.bay.step()
    assert woken.times == 1


def test_a_message_id_that_was_sent_is_not_sent_again() -> None:
    bay = SimulatedBay(policies={"prices": DestinationPolicy(duplicate_window=100)})
    topic = bay.bay.topic("prices")
    consumer = topic.subscribe()
    for _ in range(3):
        assert topic.send(numbered_body(1), message_id="one", persistent=False) == "one"
    topic.send_many([Message(numbered_body(n), message_id=str(n), persistent=False) for n in (2, 2, 3)])
    assert numbers(consumer) == [1, 2, 3]
    bay.check()


def test_in_a_loop_a_subscriber_waits_for_them() -> None:
    async def main() -> None:
        topic = await LoopBay().aio.topic("prices")
        consumer = await topic.subscribe()
        waiting = asyncio.ensure_future(consumer.take(10, timeout=5))
        await asyncio.sleep(0)
        await topic.send(b"1", persistent=False)
        assert [delivery.body for delivery in await waiting] == [b"1"]

    run_jumping(main())


@pytest.mark.parametrize("seed", sampled(range(12), 5))
def test_any_traffic_gives_each_subscriber_what_it_should_have(seed: int) -> None:
    """A plain model of lists beside it: subscribers that come, go, lag, give back and are picky; two limits."""
    print(f"seed {seed}")
    random = Random(seed)
    policies = {"prices": DestinationPolicy(max_attempts=None)}
    bay = SimulatedBay(memory_limit="4MiB", sync=random.choice(("never", "always")), policies=policies)
    topic = bay.bay.topic("prices")
    selectors = [None, None, "third = 0", "third = 1"]
    live: dict[Consumer, list[int]] = {}
    wants: dict[Consumer, str | None] = {}
    for step in range(1_500):
        what = random.random()
        if what < 0.04 and len(live) < 5:
            consumer = topic.subscribe(selector=(text := random.choice(selectors)), prefetch=1 << 16)
            live[consumer], wants[consumer] = [], text
        elif what < 0.06 and live:
            consumer = random.choice(list(live))
            consumer.close()
            del live[consumer], wants[consumer]
        elif what < 0.6:
            for _ in range(random.choice((1, 1, 60))):
                n, persistent = step * 100 + _, random.random() < 0.3
                topic.send(
                    numbered_body(n, random.choice((10, KIB, 8 * KIB))), headers={"third": n % 3}, persistent=persistent
                )
                for consumer, backlog in live.items():
                    text = wants[consumer]
                    if text is None or n % 3 == int(text[-1]):
                        backlog.append(n)
        elif live:
            consumer = random.choice(list(live))
            expected = live[consumer]
            # Without a timeout a selector may have found nothing yet.
            taken = consumer.take(random.choice((1, 7, 300)), timeout=1 if expected else 0)
            found = [int(delivery.body.split()[0]) for delivery in taken]
            assert found == expected[: len(found)] and bool(found) == bool(expected)
            if random.random() < 0.2:
                for delivery in taken:
                    consumer.nack(delivery)
            else:
                consumer.ack(taken)
                del expected[: len(found)]
        if step % 50 == 0:
            bay.bay.step()
            bay.check()
    for consumer, backlog in live.items():
        found = numbers(consumer)
        while len(found) < len(backlog):
            taken = consumer.take(100, timeout=1)
            found += [int(delivery.body.split()[0]) for delivery in taken]
            consumer.ack(taken)
        assert found == backlog and numbers(consumer) == []
        consumer.close()
    bay.check()
    assert bay.overflow.lanes == {} and tmp_bytes(bay) == 0
