"""The cursor of a durable subscription goes where it is told, as far as messages exist, and says where it landed."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from delivering import bodies
from loops import LoopBay
from simulated_bay import SimulatedBay
from staged_stores import newest, roll, small_bay

from forebay import (
    ArgumentError,
    Closed,
    DestinationPolicy,
    Message,
    SettingsError,
    SubscriptionInUse,
    Topic,
    TransactionError,
)
from forebay.store.format.record import RecordDamaged, decode_header, encode
from forebay.store.format.seek_record import decode_seek, seek_payload

HOUR = 3600.0


def retaining(**fields: Any) -> SimulatedBay:
    return small_bay(policies={"prices": DestinationPolicy(retain_seconds=HOUR)}, **fields)


def drain(topic: Topic, name: str = "audit", **fields: Any) -> list[int]:
    """What the subscription has, acknowledged."""
    found: list[int] = []
    with topic.subscribe(durable=name, **fields) as consumer:
        while deliveries := consumer.take(1000):
            found += [int(delivery.body) for delivery in deliveries]
            consumer.ack(deliveries)
    return found


def numbered(topic: Topic, *numbers: int, **fields: Any) -> None:
    topic.send_many(Message(b"%d" % number, **fields) for number in numbers)


def test_cursor_goes_back_to_the_begin_and_everything_comes_again() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, *range(1200))
    assert drain(topic) == list(range(1200))
    landing = topic.subscription("audit").seek("begin")
    assert (landing.sequences, landing.messages) == ({4: 0}, 1200)
    assert landing.timestamp == bay.clock.time_ms()
    bay.check()
    assert drain(topic) == list(range(1200))
    bay.check()


def test_cursor_goes_to_a_sequence_back_and_forward() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, *range(1200))
    audit = topic.subscription("audit")
    assert audit.seek(sequence=1100).messages == 100
    assert audit.seek(sequence=700).messages == 500
    bay.check()
    assert drain(topic) == list(range(700, 1200))
    assert audit.seek(sequence=1150).sequences == {4: 1150}
    assert drain(topic) == list(range(1150, 1200))


def test_cursor_goes_to_the_end_and_gets_what_is_sent_next() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, 1, 2)
    landing = topic.subscription("audit").seek("end")
    assert (landing.sequences, landing.messages, landing.timestamp) == ({4: 2}, 0, None)
    assert topic.subscription("audit").seek(sequence=10**9).sequences == {4: 2}
    numbered(topic, 3)
    assert drain(topic) == [3]
    bay.check()


@pytest.mark.parametrize("form", ["seconds", "datetime"])
def test_cursor_goes_to_the_first_message_of_a_time_in_every_priority(form: str) -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    begin = bay.clock.time_ms() / 1000
    for second in range(60):
        numbered(topic, second, priority=second % 3)
        bay.clock.advance(1)
    wanted: Any = begin + 40
    if form == "datetime":
        wanted = datetime.fromtimestamp(wanted, UTC)
    landing = topic.subscription("audit").seek(time=wanted)
    assert landing.messages == 20 and landing.timestamp == (begin + 40) * 1000
    assert sorted(drain(topic)) == list(range(40, 60))
    assert topic.subscription("audit").seek(time=begin + 10_000).messages == 0
    assert topic.subscription("audit").seek(time=0).messages == 60
    bay.check()


def test_time_is_found_in_every_block_and_record() -> None:
    bay = retaining(memory_limit="16MiB")
    topic = bay.bay.topic("prices")
    begin = bay.clock.time_ms() / 1000
    random = Random(1)
    sent: list[float] = []
    for _ in range(400):
        numbers = range(len(sent), len(sent) + random.choice((1, 1, 3, 40)))
        numbered(topic, *numbers)
        sent += [bay.clock.time_ms() / 1000] * len(numbers)
        bay.clock.advance(random.choice((0.0, 0.5, 2.0)))
        if random.random() < 0.02:
            bay.bay.checkpoint()
    topic.subscribe(durable="audit").close()
    for _ in range(100):
        wanted = begin + random.random() * 420
        first = next((at for at, time in enumerate(sent) if time * 1000 >= round(wanted * 1000)), len(sent))
        assert topic.subscription("audit").seek(time=wanted).sequences == {4: first}
    assert topic.subscription("audit").seek(time=sent[-1]).messages == sent.count(sent[-1])


def test_back_it_goes_as_far_as_messages_exist_and_says_so() -> None:
    bay = small_bay()
    topic = bay.bay.topic("prices")
    for name in ("audit", "slow"):
        topic.subscribe(durable=name).close()
    numbered(topic, *range(10))
    drain(topic)
    with topic.subscribe(durable="slow") as consumer:
        consumer.ack(consumer.take(6))
    landing = topic.subscription("audit").seek("begin")
    assert (landing.sequences, landing.messages) == ({4: 6}, 4)
    assert drain(topic) == [6, 7, 8, 9]
    drain(topic, "slow")
    assert topic.subscription("audit").seek("begin").messages == 0
    bay.check()


def test_new_subscription_reads_what_was_sent_before_it() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    numbered(topic, *range(5))
    topic.subscribe(durable="late").close()
    assert topic.subscription("late").seek("begin").messages == 5
    assert drain(topic, "late") == list(range(5))


def test_cursor_that_goes_forward_frees_the_disk() -> None:
    bay = small_bay()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    for number in range(3):
        numbered(topic, number)
        roll(bay)
    topic.subscription("audit").seek("end")
    assert set(bay.bay.cleanup().remaining) == {newest(bay)}
    bay.check()


def test_selector_is_asked_again() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit", selector="n > 5").close()
    topic.send_many(Message(b"%d" % n, headers={"n": n}) for n in range(10))
    for _ in range(20):
        bay.bay.step()
    assert drain(topic, selector="n > 5") == [6, 7, 8, 9]
    topic.subscription("audit").seek("begin")
    assert drain(topic, selector="n > 5") == [6, 7, 8, 9]
    for _ in range(20):
        bay.bay.step()
    assert topic.statistics().subscriptions["audit"].depth == 0
    bay.check()


def test_attempts_and_delays_begin_anew() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, 1)
    with topic.subscribe(durable="audit") as consumer:
        for _ in range(3):
            consumer.nack(consumer.take(1))
        consumer.nack(consumer.take(1), delay=1000.0)
    topic.subscription("audit").seek("begin")
    with topic.subscribe(durable="audit") as consumer:
        [delivery] = consumer.take(10)
        assert delivery.attempts == 1
    bay.check()


def test_online_consumer_a_transaction_or_no_such_name_refuses_it() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        numbered(topic, 1)
        with pytest.raises(SubscriptionInUse):
            topic.subscription("audit").seek("begin")
        transaction = bay.bay.transaction()
        consumer.ack(consumer.take(1), transaction=transaction)
    with pytest.raises(TransactionError):
        topic.subscription("audit").seek("begin")
    transaction.rollback()
    assert topic.subscription("audit").seek("begin").messages == 1
    with pytest.raises(SettingsError, match="no durable subscription 'nobody'"):
        topic.subscription("nobody").seek("begin")
    bay.bay.close()
    with pytest.raises(Closed):
        topic.subscription("audit").seek("begin")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"to": "middle"},
        {"to": "begin", "sequence": 1},
        {"sequence": -1},
        {"sequence": "1"},
        {"time": datetime(2026, 1, 1)},  # without a time zone
        {"time": "noon"},
        {"time": -1},
        {"sequence": 1, "priority": 10},
    ],
)
def test_place_that_is_none_is_refused_and_nothing_moves(fields: dict[str, Any]) -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, 1)
    with pytest.raises((ArgumentError, SettingsError)):
        topic.subscription("audit").seek(**fields)
    assert drain(topic) == [1]


def test_seek_survives_a_restart_a_kill_and_a_lost_index() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, *range(1000))
    drain(topic)
    topic.subscription("audit").seek(sequence=600)
    for again in (bay.crash, bay.reopen, lambda: bay.crash(is_index_lost=True)):
        again()
        assert bay.bay.topic("prices").statistics().subscriptions["audit"].depth == 400
        bay.check()
    assert drain(bay.bay.topic("prices")) == list(range(600, 1000))
    bay.crash(is_index_lost=True)
    assert bay.bay.topic("prices").statistics().subscriptions["audit"].depth == 0


def test_in_a_loop_a_cursor_moves_too() -> None:
    async def main() -> None:
        bay = LoopBay(policies={"prices": DestinationPolicy(retain_seconds=HOUR)})
        topic = await bay.aio.topic("prices")
        await topic.send(b"1")
        async with topic.subscribe(durable="audit"):
            pass
        audit = topic.subscription("audit")
        assert audit.name == "audit"
        assert (await audit.seek("begin")).messages == 1
        async with topic.subscribe(durable="audit") as consumer:
            assert [delivery.body for delivery in await consumer.take(10)] == [b"1"]
            with pytest.raises(SubscriptionInUse):
                await audit.seek("end")
        bay.check()

    asyncio.run(main())


def test_record_of_a_seek_stays_as_long_as_messages_of_before() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    numbered(topic, *range(10))
    roll(bay)
    drain(topic)
    roll(bay)
    topic.subscription("audit").seek("begin")
    roll(bay)
    drain(topic)
    roll(bay)
    topic.subscription("audit").seek(sequence=3)
    roll(bay)
    bay.bay.cleanup()
    bay.crash(is_index_lost=True)
    assert bay.bay.topic("prices").statistics().subscriptions["audit"].depth == 7
    bay.clock.advance(2 * HOUR)
    drain(bay.bay.topic("prices"))
    assert set(bay.bay.cleanup().remaining) == {newest(bay)}
    bay.crash(is_index_lost=True)
    assert bay.bay.topic("prices").statistics().subscriptions["audit"].depth == 0
    bay.check()


def test_cursor_of_many_messages_is_moved_without_a_look_at_each_block() -> None:
    bay = retaining(memory_limit="64MiB")
    topic = bay.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    topic.send_many(Message(b"12345") for _ in range(600 * 512))
    bay.bay.checkpoint()
    topic.subscription("audit").seek("end")
    landing = topic.subscription("audit").seek("begin")
    assert landing.messages == 600 * 512
    assert topic.statistics().subscriptions["audit"].bytes == 5 * 600 * 512
    landing = topic.subscription("audit").seek(sequence=1000)
    assert topic.statistics().subscriptions["audit"].bytes == 5 * landing.messages
    bay.check()


def test_seek_record_that_says_what_cannot_be_is_refused() -> None:
    def read(payload: bytes, count: int) -> None:
        record = encode(7, 1 << 16 | 0xBAF0, 1, 0, 22, 0, count, payload)
        decode_seek(decode_header(record), record)

    read(seek_payload(3, [(4, 7)]), 1)
    for payload, count in ((seek_payload(3, [(4, 7)]), 2), (seek_payload(3, [(10, 7)]), 1)):
        with pytest.raises(RecordDamaged):
            read(payload, count)


@pytest.mark.parametrize("seed", range(8))
def test_random_seeks_between_all_else_deliver_what_exists_from_there(seed: int) -> None:
    random = Random(seed)
    bay = retaining(seed=seed, sync=random.choice(("always", "never")))
    names = ("audit", "slow")
    topic = bay.bay.topic("prices")
    waiting: dict[str, list[int]] = {name: [] for name in names}
    for name in names:
        topic.subscribe(durable=name).close()
    sent: list[tuple[float, int]] = []
    for _ in range(80):
        topic = bay.bay.topic("prices")
        name = random.choice(names)
        action = random.choice(("send", "send", "send", "take", "seek", "seek", "step", "reopen", "clean"))
        if action == "send":
            numbers = range(len(sent), len(sent) + random.choice((1, 30, 600)))
            sent += [(bay.clock.time_ms() / 1000, number) for number in numbers]
            numbered(topic, *numbers)
            for each in waiting.values():
                each += numbers
        elif action == "take":
            with topic.subscribe(durable=name) as consumer:
                taken = consumer.take(random.choice((1, 100)))
                assert bodies(taken) == [b"%d" % number for number in waiting[name][: len(taken)]]
                consumer.ack(taken)
                del waiting[name][: len(taken)]
        elif action == "seek" and sent:
            time, first = random.choice(sent)
            if random.random() < 0.5:
                first = next(number for sent_at, number in sent if sent_at >= time)
                landing = topic.subscription(name).seek(time=time)
            else:
                landing = topic.subscription(name).seek(sequence=first)
            waiting[name] = list(range(first, len(sent)))
            assert landing.messages == len(waiting[name])
        elif action == "step":
            bay.clock.advance(1.0)
            bay.bay.step()
        elif action == "reopen":
            random.choice((bay.reopen, bay.crash, lambda: bay.crash(is_index_lost=True)))()
        elif action == "clean":
            bay.bay.cleanup()
        bay.check()
    for name in names:
        assert drain(bay.bay.topic("prices"), name) == waiting[name]


def test_what_is_not_persistent_keeps_its_attempts_and_its_delay() -> None:
    bay = retaining()
    topic = bay.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        topic.send(b"1", persistent=False)
        for _ in range(2):
            [delivery] = consumer.take()
            delivery.nack()
        [delivery] = consumer.take()
        delivery.nack(delay=5.0)
    topic.subscription("audit").seek("begin")
    with topic.subscribe(durable="audit") as consumer:
        assert not consumer.take(1, timeout=0)
        bay.clock.advance(6.0)
        bay.bay.step()
        [delivery] = consumer.take(1, timeout=0)
        assert (delivery.body, delivery.attempts) == (b"1", 4)
    bay.check()
