"""Expiry: nobody is handed what is too old, and it leaves the queue whoever consumes, without a message being read."""

from __future__ import annotations

from typing import Any

import pytest
from delivering import bodies
from simulated_bay import SimulatedBay
from simulated_disk import SimulatedFile

from forebay import Delivery, DestinationPolicy, Message, SettingsError

SWEEP_SECONDS = 30


def sweep(simulated: SimulatedBay) -> None:
    simulated.clock.advance(SWEEP_SECONDS)
    simulated.step()
    simulated.check()


def expired(simulated: SimulatedBay, name: str = "orders") -> int:
    return simulated.bay.statistics().destinations[name].expired


@pytest.mark.parametrize("persistent", [True, False])
def test_expired_message_is_not_handed_out_whether_it_is_in_ram_or_not(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        queue.send_many(Message(b"%d" % n, persistent=persistent, expires_in=5 if n % 2 else None) for n in range(10))
        simulated.clock.advance(4.9)
        assert bodies(consumer.take(2)) == [b"0", b"1"]
        simulated.clock.advance(0.1)
        assert bodies(consumer.take(1)) == [b"2"]
        assert bodies(consumer.take(9)) == [b"4", b"6", b"8"]
        assert consumer.take(9) == []
        simulated.check()
        simulated.step()
        assert queue.depth == 6 and expired(simulated) == 4
        simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("group", ["a group", None])
def test_expired_message_is_not_handed_out_where_a_dealer_deals(persistent: bool, group: str | None) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe(priority=1) as owner, queue.subscribe() as other:
        queue.send(b"first", group=group)
        [first] = owner.take()
        queue.send_many(
            Message(b"%d" % n, persistent=persistent, group=group, expires_in=5 if n % 2 else None) for n in range(6)
        )
        assert other.take() == []
        simulated.clock.advance(5)
        assert bodies(owner.take(9)) == [b"0", b"2", b"4"]
        first.ack()
        simulated.step()
        assert queue.depth == 3 and expired(simulated) == 3
        simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_expired_message_behind_those_that_another_selector_took_is_not_handed_out(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as first, queue.subscribe(selector="n >= 0") as second:
        for n in range(4):
            queue.send(b"%d" % n, headers={"n": n}, expires_in=5 if n == 2 else None, persistent=persistent)
        assert bodies(first.take(1)) == [b"0"]
        simulated.clock.advance(5)
        assert bodies(second.take(2)) == [b"1", b"3"]
        simulated.check()


def test_message_that_came_back_and_expired_is_passed_over_where_selectors_share() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as consumer, queue.subscribe(selector="n >= 0"):
        for n in range(4):
            queue.send(b"%d" % n, headers={"n": n}, expires_in=5 if n == 1 else None, persistent=False)
        consumer.nack(consumer.take(2)[1])
        simulated.clock.advance(5)
        assert bodies(consumer.take(3)) == [b"2", b"3"]
        simulated.check()


def test_expired_message_that_lies_in_the_journal_alone_is_not_handed_out() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(bytes(1000), expires_in=5 if n < 4000 else None) for n in range(4003))
    simulated.clock.advance(5)
    with queue.subscribe() as consumer:
        found: list[Delivery] = []
        for _ in range(20):
            found += consumer.take(9)
            simulated.step()
        assert [delivery.sequence for delivery in found] == [4000, 4001, 4002]
    assert queue.depth == 3 and expired(simulated) == 4000
    simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_expired_messages_leave_without_any_consumer_at_the_next_sweep(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"", persistent=persistent, expires_in=5) for _ in range(2000))
    queue.send(b"stays", persistent=persistent, expires_in=SWEEP_SECONDS + 1)
    queue.send(b"stays too", persistent=persistent)
    sweep(simulated)
    assert queue.depth == 2 and expired(simulated) == 2000
    sweep(simulated)
    assert queue.depth == 1 and expired(simulated) == 2001
    assert [message.body for message in queue.browse()] == [b"stays too"]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_expiry_survives_the_process_and_what_has_expired_does_not_come_back(is_index_lost: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n, expires_in=20 if n < 700 else 100) for n in range(1400))
    simulated.crash(is_index_lost=is_index_lost)
    sweep(simulated)
    assert simulated.queue().depth == 700 and expired(simulated) == 700
    simulated.crash(is_index_lost=is_index_lost)
    assert simulated.queue().depth == 700
    simulated.clock.advance(80)
    with simulated.queue().subscribe() as consumer:
        assert consumer.take(5) == []
    simulated.check()


def test_ack_of_what_expired_is_one_record_for_a_run() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(bytes(100), expires_in=5) for _ in range(20_000))
    before = simulated.journal.journal_bytes
    sweep(simulated)
    assert queue.depth == 0
    assert simulated.journal.journal_bytes - before < 20_000
    rows = [row for row in simulated.bay.statistics().destinations.values()]
    assert rows[0].expired == 20_000


class _Counter:
    """How many bytes are read of the simulated disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read_bytes = 0
        read = SimulatedFile.read

        def counted(file: SimulatedFile, offset: int, length: int) -> bytes:
            data = read(file, offset, length)
            self.read_bytes += len(data)
            return data

        monkeypatch.setattr(SimulatedFile, "read", counted)


def _expire_behind_a_stuck_consumer(count: int, counter: _Counter) -> int:
    """Bytes read of the journal while so many messages expire."""
    simulated = SimulatedBay(memory_limit="8MiB")
    queue = simulated.queue()
    stuck = queue.subscribe(prefetch=10)
    queue.send_many(Message(bytes(100), expires_in=60) for _ in range(count))
    held = stuck.take(10)
    assert len(held) == 10
    simulated.step()
    before = counter.read_bytes
    simulated.clock.advance(60)
    simulated.step()
    read_bytes = counter.read_bytes - before
    assert queue.depth == 10 and expired(simulated) == count - 10
    stuck.ack(held)
    assert queue.depth == 0
    simulated.check()
    return read_bytes


def test_expired_messages_behind_a_stuck_consumer_leave_and_next_to_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _expire_behind_a_stuck_consumer(100_000, _Counter(monkeypatch)) < 1 << 20


@pytest.mark.soak
def test_a_million_expired_messages_behind_a_stuck_consumer_leave_and_next_to_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _expire_behind_a_stuck_consumer(1_000_000, _Counter(monkeypatch)) < 10 << 20


def test_delivery_in_flight_is_its_consumers_until_it_comes_back() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send(b"acknowledged", expires_in=5)
    queue.send(b"given back", expires_in=5)
    with queue.subscribe() as consumer:
        first, second = consumer.take(2)
        assert first.expires_at == first.timestamp + 5000
        sweep(simulated)
        assert queue.depth == 2
        consumer.ack(first)
        consumer.nack(second)
        assert consumer.take(1) == []
        sweep(simulated)
        assert queue.depth == 0 and expired(simulated) == 1


@pytest.mark.parametrize("persistent", [True, False])
def test_delivery_in_flight_is_its_consumers_though_another_selector_meets_it_expired(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as first, queue.subscribe(selector="n = 1") as second:
        queue.send(b"1", headers={"n": 1}, expires_in=5, persistent=persistent)
        (delivery,) = first.take()
        simulated.clock.advance(5)
        assert second.take() == []
        assert queue.depth == 1
        delivery.ack()
        assert queue.depth == 0 and expired(simulated) == 0
        simulated.check()


def test_what_a_transaction_acknowledges_does_not_expire_under_it() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send(b"one", expires_in=5)
    with queue.subscribe() as consumer:
        transaction = simulated.bay.transaction()
        consumer.ack(consumer.take(1), transaction=transaction)
        sweep(simulated)
        assert queue.depth == 1
        transaction.commit()
        assert queue.depth == 0 and expired(simulated) == 0


@pytest.mark.parametrize("hours", [-24, 24])
def test_setting_the_clock_expires_nothing_early_or_late_while_the_store_is_open(hours: int) -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"one", expires_in=10)
    simulated.clock.set_back(hours * 3600)
    simulated.clock.advance(9)
    with simulated.queue().subscribe() as consumer:
        (delivery,) = consumer.take(5)
        consumer.nack(delivery)
        simulated.clock.advance(1)
        assert consumer.take(5) == []


def test_delivery_says_when_it_expires_whether_its_body_is_in_ram_or_not() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send(bytes(1 << 20), expires_in=5, headers={"kg": 1}, message_id="mine")
    queue.send(b"never")
    with queue.subscribe() as consumer:
        (large,) = consumer.take(1)
        assert large.held_body is None
        assert large.expires_at == large.timestamp + 5000
        assert large.headers == {"kg": 1} and large.id == "mine"
        (never,) = consumer.take(1)
        assert never.expires_at is None


def test_large_message_expires_in_its_list() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        queue.send(bytes(1 << 20), expires_in=5)
        simulated.step()
        simulated.clock.advance(5)
        assert consumer.take(1) == []
        simulated.step()
        assert queue.depth == 0
        simulated.check()


def test_policy_says_how_often_a_queue_is_swept() -> None:
    policies = {
        "often": DestinationPolicy(expiry_sweep_seconds=1),
        "seldom": DestinationPolicy(expiry_sweep_seconds=100),
    }
    simulated = SimulatedBay(policies=policies)
    for name in ("often", "seldom", "usual"):
        simulated.queue(name).send(b"", expires_in=0.5)
    depths = []
    for seconds in (1, 29, 70):
        simulated.clock.advance(seconds)
        simulated.step()
        depths.append([simulated.queue(name).depth for name in ("often", "usual", "seldom")])
    assert depths == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]


def test_expired_message_of_a_topic_leaves_every_subscription() -> None:
    simulated = SimulatedBay()
    topic = simulated.bay.topic("prices")
    reader = topic.subscribe(durable="audit")
    topic.subscribe(durable="offline", selector="kg > 1").close()
    topic.send_many(Message(bytes(100), headers={"kg": 2}, expires_in=5) for _ in range(1000))
    topic.send(b"stays", headers={"kg": 2})
    (held,) = reader.take(1)
    sweep(simulated)
    subscriptions = topic.statistics().subscriptions
    assert [subscriptions[name].depth for name in ("audit", "offline")] == [2, 2]
    assert [subscriptions[name].expired for name in ("audit", "offline")] == [999, 999]
    reader.ack(held)
    assert bodies(reader.take(5)) == [b"stays"]
    simulated.crash(is_index_lost=True)
    with simulated.bay.topic("prices").subscribe(durable="offline", selector="kg > 1") as offline:
        simulated.step()
        assert bodies(offline.take(5)) == [b"stays"]
    simulated.check()


def test_expired_messages_make_room_for_who_waits_for_it() -> None:
    simulated = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=2, when_full="fail")})
    queue = simulated.queue()
    queue.send_many([Message(b"", expires_in=5), Message(b"", expires_in=5)])
    sweep(simulated)
    assert queue.send_many([Message(b""), Message(b"")])


def test_moved_messages_keep_their_expiry() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send(b"", expires_in=50)
    queue.send(b"", expires_in=50, persistent=False)
    simulated.clock.advance(10)
    queue.move(simulated.queue("others"))
    simulated.clock.advance(39)
    simulated.step()
    assert simulated.queue("others").depth == 2
    sweep(simulated)
    assert simulated.queue("others").depth == 0 and expired(simulated, "others") == 2


def test_relocation_carries_times_along() -> None:
    simulated = SimulatedBay(max_file_length="128KiB")
    queue = simulated.queue()
    consumer = queue.subscribe(prefetch=0)
    for n in range(40):
        queue.send(bytes(100), expires_in=1000) if n % 2 else queue.send(bytes(100), delay=500)
        queue.send_many(Message(bytes(1000)) for _ in range(100))
        while batch := consumer.take(1000):
            consumer.ack([found for found in batch if len(found.body) > 100])
    held = consumer.in_flight
    assert held == 20
    consumer.close()
    assert simulated.bay.cleanup().relocated_messages >= 40
    simulated.crash(is_index_lost=True)
    simulated.clock.advance(500)
    with simulated.queue().subscribe() as reader:
        simulated.step()
        assert sum(len(reader.take(100)) for _ in range(10)) == 40
    simulated.clock.advance(500)
    simulated.step()
    assert simulated.queue().depth == 20 and expired(simulated) == 20
    simulated.check()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 1e10, "5", True])
def test_expiry_that_cannot_be_is_refused(seconds: Any) -> None:
    simulated = SimulatedBay()
    with pytest.raises(SettingsError, match="expires_in"):
        simulated.queue().send(b"", expires_in=seconds)
    assert simulated.queue().depth == 0


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), "5", True])
def test_interval_of_sweeps_that_cannot_be_is_refused(seconds: Any) -> None:
    with pytest.raises(SettingsError, match="expiry_sweep_seconds"):
        DestinationPolicy(expiry_sweep_seconds=seconds)


def test_relocated_messages_of_transactions_and_topics_keep_their_times() -> None:
    simulated = SimulatedBay(max_file_length="128KiB")
    queue, topic = simulated.queue(), simulated.bay.topic("prices")
    topic.subscribe(durable="audit").close()
    with queue.subscribe(prefetch=0) as consumer:
        for _ in range(20):
            transaction = simulated.bay.transaction()
            queue.send(b"later", delay=500, transaction=transaction)
            topic.send(b"later", delay=500)
            topic.send(b"expires", expires_in=500)
            simulated.clock.advance(1)
            transaction.commit()
            queue.send_many(Message(bytes(1000)) for _ in range(200))
            while batch := consumer.take(1000):
                consumer.ack(batch)
    assert simulated.bay.cleanup().relocated_messages > 20
    simulated.crash(is_index_lost=True)
    simulated.clock.advance(479)
    simulated.step()
    with simulated.queue().subscribe() as reader, simulated.bay.topic("prices").subscribe(durable="audit") as other:
        assert reader.take(1) == [] and bodies(other.take(100)) == [b"expires"] * 20
        simulated.clock.advance(2)
        simulated.step()
        assert 1 <= len(bodies(reader.take(100))) <= 3
        simulated.clock.advance(20)
        simulated.step()
        assert reader.take(100) and other.take(100)
    simulated.check()
