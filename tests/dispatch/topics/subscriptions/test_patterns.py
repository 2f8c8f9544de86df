"""Wildcard subscriptions: one consumer of every topic whose name matches, now or later."""

from __future__ import annotations

import asyncio
import threading

import pytest
from delivering import bodies, numbered_messages
from loops import LoopBay
from simulated_bay import SimulatedBay
from waiting_senders import Woken

from forebay import Closed, Consumer, Delivery, DestinationPolicy, Message, SettingsError, StateError, TransactionError


def told(deliveries: list[Delivery]) -> list[tuple[str, bytes]]:
    return sorted((delivery.destination, delivery.body) for delivery in deliveries)


def listening(bay: SimulatedBay, pattern: str = "prices.>", **options: object) -> Consumer:
    return bay.bay.topic(pattern).subscribe(**options)  # type: ignore[arg-type]


def test_consumer_of_a_pattern_gets_what_is_sent_to_each_topic_that_matches(bay: SimulatedBay) -> None:
    names = ("prices", "prices.tea", "prices.tea.green", "prices.rice", "news")
    topics = {name: bay.bay.topic(name) for name in names}
    everything, one_word, middle = listening(bay), listening(bay, "prices.*"), listening(bay, "*.tea.>")
    for name, topic in topics.items():
        topic.send(name.encode())
    assert told(everything.take(10)) == sorted((name, name.encode()) for name in names if name != "news")
    assert told(one_word.take(10)) == [("prices.rice", b"prices.rice"), ("prices.tea", b"prices.tea")]
    assert told(middle.take(10)) == [("prices.tea", b"prices.tea"), ("prices.tea.green", b"prices.tea.green")]
    bay.check()


def test_topics_that_are_made_later_are_heard_too(bay: SimulatedBay) -> None:
    consumer = listening(bay)
    assert not consumer.take()
    bay.bay.topic("prices.tea").send(b"1")
    bay.bay.topic("news").send(b"2")
    with bay.bay.temporary_topic() as own, listening(bay, ">") as all_of_them:
        own.send(b"3")
        bay.bay.topic("late").send(b"4")
        assert told(all_of_them.take(10)) == [("late", b"4")]
    (delivery,) = consumer.take(10)
    assert (delivery.destination, delivery.body) == ("prices.tea", b"1")
    consumer.ack(delivery)
    bay.check()


def test_what_was_sent_before_is_not_heard(bay: SimulatedBay) -> None:
    topic = bay.bay.topic("prices.tea")
    topic.subscribe(durable="audit").close()
    topic.send(b"1")
    consumer = listening(bay)
    topic.send(b"2")
    assert bodies(consumer.take(10)) == [b"2"]


def test_each_topic_is_in_order_and_a_busy_one_holds_up_no_other(bay: SimulatedBay) -> None:
    busy, calm = bay.bay.topic("prices.busy"), bay.bay.topic("prices.calm")
    consumer = listening(bay, prefetch=0)
    busy.send_many(numbered_messages(300))
    calm.send_many(numbered_messages(3))
    heard = [delivery for _ in range(6) for delivery in consumer.take(1)]
    assert {delivery.destination for delivery in heard} == {"prices.busy", "prices.calm"}
    heard += consumer.take(1000)
    for name, count in (("prices.busy", 300), ("prices.calm", 3)):
        found = [delivery.body for delivery in heard if delivery.destination == name]
        assert found == [b"%d" % n for n in range(count)]
    bay.check()


def test_higher_priorities_come_first_whatever_their_topic(bay: SimulatedBay) -> None:
    consumer = listening(bay)
    for name in ("prices.a", "prices.b"):
        bay.bay.topic(name).send_many(Message(b"%d" % n, priority=n) for n in (1, 5, 9))
    assert [delivery.priority for delivery in consumer.take(10)] == [9, 9, 5, 5, 1, 1]


def test_prefetch_is_of_the_whole_consumer(bay: SimulatedBay) -> None:
    topics = [bay.bay.topic(f"prices.{n}") for n in range(3)]
    consumer = listening(bay, prefetch=4)
    for topic in topics:
        topic.send_many(numbered_messages(5))
    held = consumer.take(100)
    assert len(held) == 4 and consumer.in_flight == 4 and not consumer.take(100)
    consumer.ack(held)
    assert len(consumer.take(100)) == 4
    consumer.nack(consumer.take(100))
    bay.check()


def test_backlogs_above_memory_are_loaded_for_each_topic() -> None:
    bay = SimulatedBay(memory_limit="4MiB")
    topics = [bay.bay.topic(f"prices.{n}") for n in range(4)]
    consumer = listening(bay, prefetch=0)
    for topic in topics:
        topic.send_many(Message(b"%d " % n + bytes(2000)) for n in range(700))
    numbers: dict[str, list[int]] = {topic.name: [] for topic in topics}
    while heard := consumer.take(50, timeout=5.0) if sum(map(len, numbers.values())) < 2800 else []:
        for delivery in heard:
            numbers[delivery.destination].append(int(delivery.body.split()[0]))
        consumer.ack(heard)
    assert all(found == list(range(700)) for found in numbers.values())
    bay.check()


def test_persistent_and_other_messages_of_one_topic_keep_their_order(bay: SimulatedBay) -> None:
    consumer = listening(bay)
    for n in range(20):
        for name in ("prices.a", "prices.b"):
            bay.bay.topic(name).send(b"%d" % n, persistent=n % 3 != 1)
    heard = consumer.take(100)
    for name in ("prices.a", "prices.b"):
        assert [int(each.body) for each in heard if each.destination == name] == list(range(20))
    bay.check()


def test_selector_applies_to_every_topic(bay: SimulatedBay) -> None:
    consumer = listening(bay, selector="n > 2")
    for name in ("prices.a", "prices.b"):
        bay.bay.topic(name).send_many(numbered_messages(5))
        bay.bay.topic(name).send(b"9", headers={"n": 1}, persistent=False)
    bay.bay.step()
    assert told(consumer.take(100)) == [(f"prices.{name}", b"%d" % n) for name in "ab" for n in (3, 4)]
    bay.check()


def test_acknowledged_messages_are_freed_and_unacknowledged_ones_come_again(bay: SimulatedBay) -> None:
    topics = [bay.bay.topic(f"prices.{n}") for n in range(3)]
    consumer = listening(bay)
    for topic in topics:
        topic.send_many(numbered_messages(4))
    held = consumer.take(100)
    consumer.nack(held[:1])
    consumer.ack(held[1:])
    (again,) = consumer.take(10)
    assert again.attempts == 2 and again.body == held[0].body
    again.ack()
    bay.bay.checkpoint()
    assert bay.bay.statistics().store.pending_messages == 0
    consumer.close()
    bay.check()


def test_close_ends_it_everywhere_and_gives_its_memory_back(bay: SimulatedBay) -> None:
    topics = [bay.bay.topic(f"prices.{n}") for n in range(3)]
    for topic in topics:
        topic.send(b"for nobody")
    before = bay.bay.statistics().memory.holders
    consumer = listening(bay, selector="n >= 0")
    for topic in topics:
        topic.send_many(numbered_messages(4))
        assert topic.statistics().consumers == 1
    consumer.take(5)
    consumer.close()
    consumer.close()
    with pytest.raises(Closed):
        consumer.take()
    bay.bay.topic("prices.new").send(b"1")
    assert [topic.statistics().consumers for topic in topics] == [0, 0, 0]
    bay.bay.topic("prices.new").delete()
    bay.bay.checkpoint()
    after = bay.bay.statistics()
    for name in ("destinations", "target_lists", "dispatch_area", "pending_cache"):
        assert after.memory.holders[name] == before[name]
    assert after.store.pending_messages == 0
    bay.check()


def test_deleted_topic_leaves_the_pattern_with_what_was_held_of_it(bay: SimulatedBay) -> None:
    doomed, other = bay.bay.topic("prices.doomed"), bay.bay.topic("prices.other")
    consumer = listening(bay, prefetch=3)
    doomed.send_many(numbered_messages(10))
    held = consumer.take(10)
    assert len(held) == 3
    other.send(b"other")
    doomed.delete()
    assert consumer.in_flight == 0
    with pytest.raises(StateError):
        held[0].ack()
    assert bodies(consumer.take(10)) == [b"other"]
    bay.bay.topic("prices.doomed").send(b"anew")
    assert bodies(consumer.take(10)) == [b"anew"]
    bay.check()


def test_transaction_acknowledges_over_topics(bay: SimulatedBay) -> None:
    topics = [bay.bay.topic(f"prices.{n}") for n in range(2)]
    consumer = listening(bay)
    for topic in topics:
        topic.send(b"1")
    with bay.bay.transaction() as transaction:
        consumer.ack(consumer.take(10), transaction=transaction)
        with pytest.raises(TransactionError):
            topics[0].delete()
    bay.bay.checkpoint()
    assert bay.bay.statistics().store.pending_messages == 0
    bay.check()


def test_late_deliveries_come_again_from_each_topic() -> None:
    bay = SimulatedBay()
    topics = [bay.bay.topic(f"prices.{n}") for n in range(2)]
    consumer = listening(bay, ack_deadline_seconds=5)
    for topic in topics:
        topic.send(b"1")
    assert len(consumer.take(10)) == 2
    for _ in range(12):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert [delivery.attempts for delivery in consumer.take(10)] == [2, 2]
    bay.check()


def test_nothing_of_it_is_left_after_a_kill_or_a_close(bay: SimulatedBay) -> None:
    for end in (bay.crash, bay.reopen):
        consumer = listening(bay)
        bay.bay.topic("prices.tea").send(b"1")
        consumer.take(1)
        end()
        assert bay.bay.topics() == ["prices.tea"]
        bay.bay.checkpoint()
        assert bay.bay.statistics().store.pending_messages == 0
        bay.check()


def test_slow_consumer_of_a_pattern_loses_what_the_policy_says() -> None:
    bay = SimulatedBay(policies={">": DestinationPolicy(subscriber_max_messages=8, slow_consumer_seconds=5)})
    slow: list[Consumer] = []
    consumer = listening(bay, on_slow=slow.append)
    topic = bay.bay.topic("prices.tea")
    topic.send_many(numbered_messages(50))
    for _ in range(3):
        bay.clock.advance(4.0)
        bay.bay.step()
    assert slow == [consumer] and topic.statistics().evicted >= 40
    assert bodies(consumer.take(100))[-1] == b"49"
    bay.check()


@pytest.mark.parametrize("acks_all_at_once", [False, True])
@pytest.mark.parametrize("is_made_later", [False, True])
def test_ack_wakes_who_waits_for_room_in_the_topic(*, is_made_later: bool, acks_all_at_once: bool) -> None:
    bay = SimulatedBay(policies={"prices.limited.*": DestinationPolicy(max_messages=1)})
    names = ("prices.free", "prices.limited.tea", "prices.limited.rice")
    if is_made_later:
        consumer = listening(bay)
    topics = [bay.bay.topic(name) for name in names]
    if not is_made_later:
        consumer = listening(bay)
    for topic in topics:
        topic.send(b"1")
    with bay.lock:
        tea, rice = (Woken(bay.topic_state(name).limits) for name in names[1:])
    free, *limited = sorted(consumer.take(10), key=lambda delivery: names.index(delivery.destination))
    consumer.ack(free)
    assert (tea.times, rice.times) == (0, 0)
    if acks_all_at_once:
        consumer.ack(limited)
    else:
        consumer.ack(limited[0])
        assert (tea.times, rice.times) == (1, 0)
        consumer.ack(limited[1])
    assert (tea.times, rice.times) == (1, 1)
    bay.check()


def test_what_waits_for_messages_is_woken_by_any_topic() -> None:
    bay = SimulatedBay()
    ready: list[str] = []
    first, second = bay.bay.topic("prices.a"), bay.bay.topic("prices.b")
    armed, waiting = listening(bay, on_ready=lambda: ready.append("ready")), listening(bay)
    found: list[Delivery] = []
    thread = threading.Thread(target=lambda: found.extend(waiting.take(1, timeout=None)))
    thread.start()
    bay.clock.wait_until(lambda: waiting.selector_group.waiting > 0)
    assert not armed.take()
    second.send(b"1")
    thread.join(30)
    assert ready == ["ready"] and bodies(found) == [b"1"]
    assert bodies(armed.take(5)) == [b"1"]
    first.send(b"2")
    assert "Nothing keeps the consumer of 1:prices.> from 1 message" in bay.bay.explain(armed).sentence
    bay.check()


def test_pattern_takes_no_messages_and_has_no_durable_subscription(bay: SimulatedBay) -> None:
    pattern = bay.bay.topic("prices.*")
    for send in (
        lambda: pattern.send(b"1"),
        lambda: pattern.send(b"1", persistent=False),
        lambda: pattern.send(b"1", group="a", delay=2.0),
        lambda: pattern.send_many([Message(b"1")]),
    ):
        with pytest.raises(SettingsError, match="is a pattern, to which nothing can be sent: send to one topic"):
            send()
    with bay.bay.transaction() as transaction, pytest.raises(SettingsError, match="is a pattern"):
        pattern.send(b"1", transaction=transaction)
    for call in (
        lambda: pattern.subscribe(durable="audit"),
        lambda: pattern.subscribe(durable="audit", shared=True),
        lambda: pattern.unsubscribe("audit"),
        pattern.delete,
        pattern.statistics,
        pattern.subscriptions,
        lambda: bay.bay.explain(pattern),
    ):
        with pytest.raises(SettingsError, match=r"'prices\.\*' is a pattern: "):
            call()
    for wrong in ("prices.>.tea", "pri*.*"):
        with pytest.raises(SettingsError, match="pattern"):
            bay.bay.topic(wrong)
    assert bay.bay.topics() == []
    bay.check()


def test_in_a_loop_a_pattern_is_subscribed_to() -> None:
    async def main() -> None:
        bay = LoopBay(sync="always")
        pattern = await bay.aio.topic("prices.>")
        with pytest.raises(SettingsError, match="is a pattern"):
            await pattern.send(b"1")
        async with pattern.subscribe(prefetch=5) as consumer:
            taking = asyncio.create_task(consumer.take(10, timeout=None))
            await asyncio.sleep(0)
            topic = await bay.aio.topic("prices.tea")
            await topic.send(b"1")
            (delivery,) = await taking
            assert delivery.destination == "prices.tea"
            await delivery.ack()
        bay.check()

    asyncio.run(main())


def test_what_went_to_disk_is_overtaken_by_no_lower_priority_of_another_topic(bay: SimulatedBay) -> None:
    consumer = listening(bay)
    urgent, idle = bay.bay.topic("prices.tea"), bay.bay.topic("prices.rice")
    urgent.send(b"0", priority=9)
    urgent.send_many(Message(b"%d" % n + b"." * 50_000, priority=9, persistent=False) for n in range(1, 60))
    idle.send(b"60", priority=0)
    assert bay.bay.statistics().tmp_storage.bytes or bay.bay.statistics().memory.holders["spill_buffer"]
    found: list[int] = []
    for _ in range(200):
        deliveries = consumer.take(100)
        found += [int(delivery.body[:2].rstrip(b".")) for delivery in deliveries]
        consumer.ack(deliveries)
        bay.bay.step()
    assert found == list(range(61))
    bay.check()
