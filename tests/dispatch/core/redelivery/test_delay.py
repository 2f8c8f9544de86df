"""Delay on send: a message is handed out when it is due, in its place, and no other message waits for it."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random
from typing import Any

import pytest
from closed_stores import verdict_of
from compiled import interpreted
from delivering import bodies
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, SettingsError
from forebay.store.format.times import DUE, NEVER
from forebay.store.inspect.dump import dump


def taken(simulated: SimulatedBay, name: str = "orders") -> list[bytes]:
    """What a consumer gets now; all of it is acknowledged."""
    simulated.step()
    with simulated.queue(name).subscribe() as consumer:
        found: list[bytes] = []
        while batch := consumer.take(1000):
            found += bodies(batch)
            consumer.ack(batch)
        simulated.check()
        return found


@pytest.mark.parametrize("persistent", [True, False])
def test_delayed_message_is_handed_out_when_it_is_due_and_not_before(persistent: bool) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        queue.send(b"later", delay=10, persistent=persistent)
        queue.send(b"now", persistent=persistent)
        assert queue.depth == 2
        assert bodies(consumer.take(5)) == [b"now"]
        simulated.clock.advance(9.999)
        simulated.step()
        assert consumer.take(5) == []
        simulated.clock.advance(0.001)
        assert bodies(consumer.take(5)) == [b"later"]
        assert consumer.take(5) == []
        simulated.check()


@pytest.mark.parametrize("persistent", [True, False])
def test_delayed_message_that_is_due_comes_before_all_that_arrived_later_and_is_not_handed_out(
    persistent: bool,
) -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        for n in range(6):
            queue.send(b"%d" % n, delay=5 if n == 2 else 0, persistent=persistent)
        assert bodies(consumer.take(2)) == [b"0", b"1"]
        assert bodies(consumer.take(1)) == [b"3"]
        simulated.clock.advance(5)
        simulated.step()
        assert bodies(consumer.take(5)) == [b"2", b"4", b"5"]
        simulated.check()


def test_delayed_message_that_is_due_comes_into_the_middle_of_what_is_loaded() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n, delay=5 if n == 3 else 0) for n in range(6))
    with queue.subscribe() as consumer:
        simulated.step()
        assert bodies(consumer.take(2)) == [b"0", b"1"]
        simulated.clock.advance(5)
        simulated.step()
        assert [body for _ in range(4) for body in bodies(consumer.take(1))] == [b"2", b"3", b"4", b"5"]
        simulated.check()


def test_message_of_a_group_that_was_sent_with_a_delay_holds_up_nobody_and_comes_next_when_it_is_due() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe(prefetch=1) as owner, queue.subscribe() as other:
        queue.send(b"delayed", group="a group", delay=5)
        for body in (b"first", b"second", b"third"):
            queue.send(body, group="a group")
        [first] = owner.take()
        assert bodies([first]) == [b"first"] and other.take() == []
        first.ack()
        [second] = owner.take()
        simulated.clock.advance(5)
        simulated.step()
        assert other.take() == []  # what is due is its group's owner's
        assert bodies([second]) == [b"second"]
        second.ack()
        [delayed] = owner.take()
        assert bodies([delayed]) == [b"delayed"]
        delayed.ack()
        assert bodies(owner.take()) == [b"third"]
        simulated.check()


def test_message_that_comes_due_while_a_load_has_passed_it_over_is_not_lost() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n, delay=5 if n == 3 else 0) for n in range(8))
    consumer = queue.subscribe()
    (target,) = simulated.lists()
    with simulated.lock:
        load = simulated.loader.begin(target, is_needed=True)
    assert load is not None and load.runs == [(0, 2), (4, 7)]
    simulated.clock.advance(5)
    with simulated.lock:
        simulated.release_due()
    simulated.loader.finish(load)
    simulated.check()
    found = [delivery.body for _ in range(8) for delivery in consumer.take(1)]
    assert found == [b"%d" % n for n in range(8)]


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_delay_survives_the_process_and_what_is_delayed_is_not_handed_out_early(
    is_clean: bool, is_index_lost: bool
) -> None:
    simulated = SimulatedBay()
    simulated.queue().send_many(Message(b"%d" % n, delay=60 if n % 2 else 0) for n in range(1000))
    simulated.clock.advance(20)
    if is_clean:
        simulated.bay.close()
    simulated.crash(is_index_lost=is_index_lost)
    assert taken(simulated) == [b"%d" % n for n in range(0, 1000, 2)]
    simulated.clock.advance(39.9)
    assert taken(simulated) == []
    simulated.clock.advance(0.2)
    assert taken(simulated) == [b"%d" % n for n in range(1, 1000, 2)]


def test_message_that_came_due_and_was_not_taken_stays_due_over_a_crash() -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"later", delay=1)
    simulated.clock.advance(2)
    simulated.step()
    simulated.bay.checkpoint()
    simulated.crash()
    assert taken(simulated) == [b"later"]


@pytest.mark.parametrize("hours", [-24, 24])
def test_setting_the_clock_changes_no_delay_while_the_store_is_open(hours: int) -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"later", delay=10)
    simulated.clock.set_back(hours * 3600)
    simulated.clock.advance(9)
    assert taken(simulated) == []
    simulated.clock.advance(1)
    assert taken(simulated) == [b"later"]


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_clock_that_was_set_back_meanwhile_delays_nothing_beyond_its_interval(is_index_lost: bool) -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"later", delay=10)
    simulated.clock.advance(4)
    simulated.queue().send(b"much later", delay=100)
    simulated.clock.set_back(365 * 86_400)
    simulated.crash(is_index_lost=is_index_lost)
    simulated.clock.advance(6)
    assert taken(simulated) == [b"later"]
    simulated.clock.advance(93.9)
    assert taken(simulated) == []
    simulated.clock.advance(0.2)
    assert taken(simulated) == [b"much later"]


def test_checkpoint_remembers_how_late_it_was() -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"later", delay=10)
    simulated.bay.checkpoint()
    simulated.clock.set_back(365 * 86_400)
    simulated.crash()
    simulated.clock.advance(10)
    assert taken(simulated) == [b"later"]


def test_delay_in_a_transaction_counts_from_its_commit() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    transaction = simulated.bay.transaction()
    queue.send(b"later", delay=10, transaction=transaction)
    queue.send(b"at once", transaction=transaction)
    queue.send_many((Message(b"much later", delay=20), Message(b"expired", expires_in=5)), transaction=transaction)
    simulated.clock.advance(8)
    transaction.commit()
    simulated.clock.advance(9)
    assert taken(simulated) == [b"at once"]
    simulated.clock.advance(1)
    assert taken(simulated) == [b"later"]
    simulated.clock.advance(10)
    assert taken(simulated) == [b"much later"]


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_delay_of_a_committed_message_survives(is_prepared: bool, is_index_lost: bool) -> None:
    simulated = SimulatedBay()
    transaction = simulated.bay.transaction()
    simulated.queue().send_many((Message(b"later", delay=10), Message(b"gone", expires_in=12)), transaction=transaction)
    simulated.clock.advance(1)
    if is_prepared:
        transaction.prepare(b"xid")
        simulated.crash(is_index_lost=is_index_lost)
        simulated.clock.advance(1)
        (transaction,) = simulated.bay.prepared()
    transaction.commit()
    simulated.clock.advance(9)
    simulated.crash(is_index_lost=is_index_lost)
    simulated.clock.advance(0.9)
    with simulated.queue().subscribe() as consumer:
        assert bodies(consumer.take(5)) in ([], [b"gone"])  # which has a second to live where nothing was prepared
    simulated.clock.advance(3)
    assert taken(simulated) == [b"later"]


def test_selector_is_asked_when_a_message_is_due() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    with queue.subscribe(selector="kg > 1") as picky, queue.subscribe() as other:
        queue.send(b"two", headers={"kg": 2}, delay=5)
        queue.send(b"one", headers={"kg": 1}, delay=5)
        assert picky.take(5) == other.take(5) == []
        simulated.clock.advance(5)
        simulated.step()
        assert bodies(picky.take(5)) == [b"two"]
        assert bodies(other.take(5)) == [b"one"]
        simulated.check()


def test_waiting_take_wakes_when_the_first_is_due() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send(b"later", delay=7)
    assert simulated.next_due() == pytest.approx(simulated.clock.monotonic() + 7, abs=0.01)
    simulated.clock.advance(7)
    with queue.subscribe() as consumer:
        assert bodies(consumer.take(1, timeout=None)) == [b"later"]
    assert simulated.next_due() is None


def test_ready_callback_is_called_when_a_message_is_due() -> None:
    simulated = SimulatedBay()
    rings: list[int] = []
    consumer = simulated.queue().subscribe(on_ready=lambda: rings.append(1))
    assert consumer.take(1) == []
    simulated.queue().send(b"later", delay=7)
    simulated.step()
    before = len(rings)
    assert consumer.take(1) == []
    simulated.clock.advance(7)
    simulated.step()
    assert len(rings) > before
    assert bodies(consumer.take(1)) == [b"later"]


def test_delay_of_a_topic_holds_for_each_subscription() -> None:
    simulated = SimulatedBay()
    topic = simulated.bay.topic("prices")
    audit = topic.subscribe(durable="audit")
    topic.subscribe(durable="offline").close()
    topic.send(b"later", delay=10)
    topic.send(b"now")
    plain = topic.subscribe()
    assert bodies(audit.take(5)) == [b"now"]
    simulated.clock.advance(10)
    simulated.step()
    assert bodies(audit.take(5)) == [b"later"] and plain.take(5) == []
    with topic.subscribe(durable="offline") as offline:
        assert bodies(offline.take(5)) == [b"later", b"now"]
    simulated.check()


def test_moved_message_keeps_its_delay() -> None:
    simulated = SimulatedBay()
    with simulated.bay.transaction() as transaction:
        simulated.queue().send(b"later", delay=10, transaction=transaction)
    simulated.queue().send(b"not kept", delay=10, persistent=False)
    simulated.clock.advance(4)
    assert simulated.queue().move(simulated.queue("others")) == 2
    assert taken(simulated, "others") == []
    simulated.clock.advance(6)
    assert sorted(taken(simulated, "others")) == [b"later", b"not kept"]


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("is_reopened", [False, True])
def test_moved_message_whose_delay_is_over_waits_for_nothing_and_keeps_its_place(
    persistent: bool, is_reopened: bool
) -> None:
    simulated = SimulatedBay()
    with simulated.bay.transaction() as transaction:
        simulated.queue().send_many(
            (Message(b"first", delay=10, persistent=persistent), Message(b"second", persistent=persistent)),
            transaction=transaction,
        )
    simulated.clock.advance(10)
    simulated.step()
    if is_reopened:
        simulated.reopen()
    found = [b"first", b"second"] if persistent or not is_reopened else []
    assert simulated.queue().move(simulated.queue("others")) == len(found)
    with simulated.queue("others").subscribe() as consumer:  # before a step of the background work
        assert bodies(consumer.take(5)) == found


def test_purge_and_delete_take_delayed_messages_too() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"", delay=5) for _ in range(700))
    assert queue.purge() == 700
    queue.send(b"again", delay=5)
    queue.delete()
    simulated.clock.advance(10)
    simulated.step()
    assert taken(simulated) == []


def test_delayed_messages_cost_memory_by_the_block_and_far_ahead_rows_alone() -> None:
    simulated = SimulatedBay(max_checkpoint_adds=2048)
    queue = simulated.queue()
    queue.send_many(Message(b"x", delay=86_400 + n) for n in range(40_000))
    simulated.bay.checkpoint()
    assert 5632 <= simulated.index.held_bytes < 1 << 20
    assert queue.depth == 40_000
    assert list(simulated.parked()) == []
    assert not any(target.returned for target in simulated.lists())
    simulated.clock.advance(86_400 + 40_000)
    found = 0
    with queue.subscribe(prefetch=0) as consumer:
        while found < 40_000:
            simulated.step()
            batch = consumer.take(1000)
            assert [delivery.sequence for delivery in batch] == list(range(found, found + len(batch)))
            consumer.ack(batch)
            found += len(batch)
        simulated.check()
    assert simulated.timed.first_due_ms == NEVER
    lane = simulated.queue_state("orders").lanes[4]
    assert lane is not None and lane.pending_lane.earliest[DUE] == NEVER


@pytest.mark.parametrize("seconds", [-1, float("nan"), 1e10, "5", True])
def test_delay_that_cannot_be_is_refused(seconds: Any) -> None:
    simulated = SimulatedBay()
    with pytest.raises(SettingsError, match="delay"):
        simulated.queue().send(b"", delay=seconds)
    with pytest.raises(SettingsError, match="delay"):
        simulated.queue().send_many([Message(b"", delay=seconds)])
    assert simulated.queue().depth == 0


def test_delayed_message_counts_for_the_limits_of_its_queue() -> None:
    simulated = SimulatedBay(policies={"orders": DestinationPolicy(max_messages=2, when_full="fail")})
    queue = simulated.queue()
    queue.send(b"1", delay=5)
    queue.send_many([Message(b"2", delay=5)])
    with pytest.raises(Exception, match="max_messages"):
        queue.send(b"3", delay=5)
    simulated.clock.advance(5)
    assert taken(simulated) == [b"1", b"2"]
    queue.send(b"3", delay=5)


def test_consumer_and_queue_say_what_waits_for_its_time_and_when_that_comes() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"x", delay=12 + n) for n in range(3))
    queue.send(b"expired", expires_in=1)
    simulated.clock.advance(1)
    with queue.subscribe() as consumer:
        assert simulated.bay.explain(consumer).sentence == (
            "The consumer of 0:orders gets nothing because 3 messages are due in 11 s at the earliest"
            " and 1 message has expired and leaves soon."
        )
        (later, late) = simulated.bay.explain(queue).causes
        assert (later.reason, later.messages, later.bytes) == ("due_later", 3, 3 * 24)
        assert later.frees == "time: the first is due in 11.0 s"
        assert (late.reason, late.messages) == ("expired", 1)
        assert consumer.take(5) == []
        simulated.clock.advance(11)
        assert simulated.bay.explain(consumer).causes[0].reason in ("loading", "ready")
        assert bodies(consumer.take(5)) == [b"x"]


def test_subscription_says_what_waits_for_its_time() -> None:
    simulated = SimulatedBay()
    topic = simulated.bay.topic("prices")
    with topic.subscribe(durable="audit") as consumer:
        topic.send(b"later", delay=5)
        topic.send(b"expired", expires_in=1)
        simulated.clock.advance(2)
        assert [cause.reason for cause in simulated.bay.explain(consumer).causes] == ["due_later", "expired"]
        assert consumer.take(5) == []


def test_dump_shows_when_a_message_is_due_and_expires() -> None:
    simulated = SimulatedBay()
    began = simulated.clock.time_ms()
    simulated.queue().send_many([Message(b"", delay=5), Message(b"", expires_in=7), Message(b"")])
    with simulated.bay.transaction() as transaction:
        simulated.queue().send(b"", delay=3, transaction=transaction)
    simulated.bay.close()
    rows = [row for row in dump(simulated.disk) if row["kind"] == "message"]
    assert [(row.get("due_at"), row.get("expires_at"), row.get("delay_ms")) for row in rows] == [
        (began + 5000, None, None),
        (None, began + 7000, None),
        (None, None, None),
        (None, None, 3000),
    ]
    assert verdict_of(simulated.disk).findings == ()


def test_delayed_messages_beyond_what_the_index_holds_come_due_with_checkpoints_between() -> None:
    simulated = SimulatedBay(index_cache_size="4MiB", memory_limit="16MiB", max_checkpoint_adds=4096)
    queue = simulated.queue()
    for begin in range(0, 60_000, 20_000):
        queue.send_many(Message(b"", delay=100) for _ in range(begin, begin + 20_000))
        simulated.step()
    simulated.clock.advance(100)
    seen = 0
    with queue.subscribe(prefetch=0) as consumer:
        for _ in range(400):
            simulated.step()
            while batch := consumer.take(1000):
                assert [delivery.sequence for delivery in batch] == list(range(seen, seen + len(batch)))
                seen += len(batch)
                consumer.ack(batch)
    assert seen == 60_000 and queue.depth == 0


# ------------------------------------------------------------------ many that wait


@interpreted("weighs Python objects")
@pytest.mark.parametrize("order", ["as they came", "at random"])
@pytest.mark.parametrize("kind", ["queue", "subscription", "non-persistent"])
def test_messages_that_wait_out_a_delay_take_no_memory_each(kind: str, order: str) -> None:
    random = Random(7)
    simulated = SimulatedBay(
        memory_limit="8MiB", policies={">": DestinationPolicy(max_attempts=None)}, max_checkpoint_adds=4096
    )
    queue, topic = simulated.queue("jobs"), simulated.bay.topic("orders")
    is_topic = kind == "subscription"
    consumer = topic.subscribe(prefetch=0, durable="audit") if is_topic else queue.subscribe(prefetch=0)
    send_many = topic.send_many if is_topic else queue.send_many
    delayed = 0

    def delay_more(messages: int) -> None:
        nonlocal delayed
        for _ in range(messages // 500):
            send_many([Message(b"", persistent=kind != "non-persistent") for _ in range(500)])
            simulated.step()
            deliveries = consumer.take(500)
            if order == "at random":
                random.shuffle(deliveries)
                for delivery in deliveries:
                    delivery.nack(delay=600.0 + random.random() * 1000)
            else:
                consumer.nack(deliveries, delay=600.0)
            delayed += len(deliveries)
            simulated.clock.advance(0.01)

    delay_more(5_000)
    simulated.bay.checkpoint()
    tracemalloc.start()
    try:
        before = simulated.index.held_bytes
        delay_more(10_000)
        simulated.bay.checkpoint()
        gc.collect()  # also what the interpreter keeps of freed tuples
        grown = tracemalloc.get_traced_memory()[0] - (simulated.index.held_bytes - before)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    own = [tracemalloc.Filter(True, f"*{name}.py") for name in ("delays", "sequence_set", "delivery_counts")]
    lines = snapshot.filter_traces(own).statistics("lineno")
    weighed = sum(line.size for line in lines)
    assert weighed < 10_000, f"{weighed} bytes for 10,000 messages, grown by {grown}: {lines[:5]}"
    assert simulated.index.held_bytes <= 1 << 20
    assert delayed == 15_000 and consumer.take(1) == []
    simulated.check()
    simulated.clock.advance(1700.0)
    found: list[int] = []
    while len(found) < 15_000:
        simulated.step()
        deliveries = consumer.take(1000)
        assert deliveries
        found += [delivery.sequence for delivery in deliveries]
        consumer.ack(deliveries)
    assert sorted(found) == list(range(15_000))
    simulated.check()


def test_no_part_of_a_millisecond_makes_a_message_come_back_early() -> None:
    simulated = SimulatedBay()
    queue = simulated.queue()
    queue.send_many(Message(b"x") for _ in range(3))
    consumer = queue.subscribe()
    for delivery in consumer.take(3):
        delivery.nack(delay=1.0)
        simulated.clock.advance(0.0004)
    simulated.clock.advance(1.0 - 3 * 0.0004)
    simulated.bay.step()
    assert [delivery.sequence for delivery in consumer.take(3)] == [0], "the others are due in less than a millisecond"
    simulated.clock.advance(0.002)
    simulated.bay.step()
    assert [delivery.sequence for delivery in consumer.take(3)] == [1, 2]
