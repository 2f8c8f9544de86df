"""Back-off: a message that came back waits in its place, longer each time, and no other message waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Consumer, Delivery, DestinationPolicy, Message, SettingsError
from forebay.dispatch.config.redelivery_delays import RedeliveryRule, dead_letter_name, is_dead_letter_name
from forebay.store.inspect.dump import dump


def waiting(delay_seconds: float, backoff: float = 1.0, **fields: Any) -> SimulatedBay:
    policy = DestinationPolicy(
        redelivery_delay_seconds=delay_seconds,
        redelivery_backoff=backoff,
        max_attempts=fields.pop("max_attempts", None),
    )
    return SimulatedBay(policies={"orders": policy}, **fields)


def test_each_failure_waits_longer_than_the_one_before() -> None:
    simulated = waiting(2.0, 3.0)
    simulated.queue().send(b"1")
    consumer = simulated.queue().subscribe()
    for wait_seconds in (2, 6, 18, 54):
        (delivery,) = consumer.take()
        delivery.nack()
        simulated.clock.advance(wait_seconds - 0.1)
        simulated.bay.step()
        assert consumer.take() == []
        simulated.clock.advance(0.2)
    assert consumer.take()[0].attempts == 5


def test_what_lies_behind_does_not_wait_and_the_place_is_kept() -> None:
    simulated = waiting(5.0)
    simulated.queue().send_many(Message(b"%d" % n) for n in range(6))
    consumer = simulated.queue().subscribe()
    consumer.nack(consumer.take(2))
    assert [delivery.body for delivery in consumer.take(2)] == [b"2", b"3"]
    simulated.clock.advance(5.1)
    simulated.bay.step()
    assert [delivery.body for delivery in [*consumer.take(2), *consumer.take(9)]] == [b"0", b"1", b"4", b"5"]


def test_longer_of_the_two_delays_counts() -> None:
    simulated = waiting(5.0)
    simulated.queue().send(b"1")
    consumer = simulated.queue().subscribe()
    for own_seconds, seconds in ((1.0, 5.0), (8.0, 8.0)):
        consumer.nack(consumer.take(), delay=own_seconds)
        simulated.clock.advance(seconds - 0.1)
        assert consumer.take() == []
        simulated.clock.advance(0.2)
    assert consumer.take()[0].attempts == 3


def test_rollback_backs_off_and_a_closed_consumer_does_not() -> None:
    simulated = waiting(5.0)
    simulated.queue().send(b"1")
    with simulated.queue().subscribe() as consumer:
        [delivery] = consumer.take()
        assert (delivery.body, delivery.attempts) == (b"1", 1)
    with simulated.queue().subscribe() as consumer:
        deliveries = consumer.take()
        assert deliveries[0].attempts == 2
        transaction = simulated.bay.transaction()
        consumer.ack(deliveries, transaction=transaction)
        transaction.rollback()
        assert consumer.take() == []
        simulated.clock.advance(5.1)
        assert consumer.take()[0].attempts == 3


def test_last_attempt_waits_for_nothing() -> None:
    simulated = waiting(5.0, max_attempts=1)
    simulated.queue().send(b"1")
    with simulated.queue().subscribe() as consumer:
        consumer.take()[0].nack()
    simulated.bay.step()
    assert simulated.queue("DLQ.orders").depth == 1


def test_without_a_delay_it_comes_again_at_once() -> None:
    simulated = SimulatedBay()
    simulated.queue().send(b"1")
    with simulated.queue().subscribe() as consumer:
        consumer.take()[0].nack()
        assert consumer.take()[0].attempts == 2


def test_non_persistent_messages_wait_too() -> None:
    simulated = waiting(5.0)
    simulated.queue().send(b"1", persistent=False)
    with simulated.queue().subscribe() as consumer:
        consumer.take()[0].nack()
        assert consumer.take() == []
        simulated.check()
        simulated.clock.advance(5.1)
        assert consumer.take()[0].body == b"1"
    simulated.check()


def test_durable_subscription_waits_by_the_policy_of_its_topic() -> None:
    simulated = waiting(5.0)
    orders = simulated.bay.topic("orders")
    reader = orders.subscribe(durable="audit")
    orders.send(b"1")
    reader.take()[0].nack()
    assert reader.take() == []
    simulated.clock.advance(5.1)
    assert reader.take()[0].attempts == 2


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("is_clean", [False, True])
def test_wait_and_count_survive_the_process(is_clean: bool, has_checkpoint: bool, is_index_lost: bool) -> None:
    simulated = waiting(5.0)
    simulated.queue().send_many(Message(b"%d" % n) for n in range(3))
    consumer = simulated.queue().subscribe()
    consumer.nack(consumer.take(2))
    if has_checkpoint:
        simulated.bay.checkpoint()
    if is_clean:
        simulated.bay.close()
    simulated.crash(is_index_lost=is_index_lost)
    simulated.check()
    consumer = simulated.queue().subscribe()
    assert [delivery.body for delivery in consumer.take(9)] == [b"2"]
    simulated.clock.advance(4.9)
    simulated.bay.step()
    assert consumer.take(9) == []
    simulated.clock.advance(0.2)
    assert [(delivery.body, delivery.attempts) for delivery in consumer.take(9)] == [(b"0", 2), (b"1", 2)]
    simulated.check()


@pytest.mark.parametrize("is_index_lost", [False, True])
@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_wait_of_a_durable_subscription_survives_the_process_and_holds_up_no_other(
    has_checkpoint: bool, is_index_lost: bool
) -> None:
    simulated = waiting(5.0)
    orders = simulated.bay.topic("orders")
    reader, other = (orders.subscribe(durable=name) for name in ("audit", "billing"))
    orders.send(b"1")
    reader.take()[0].nack()
    other.take()[0].ack()
    orders.subscribe(durable="late").close()
    if has_checkpoint:
        simulated.bay.checkpoint()
    simulated.crash(is_index_lost=is_index_lost)
    reader, other = (simulated.bay.topic("orders").subscribe(durable=name) for name in ("audit", "billing"))
    assert reader.take() == other.take() == []
    simulated.clock.advance(5.1)
    assert [(delivery.body, delivery.attempts) for delivery in reader.take()] == [(b"1", 2)]
    assert other.take() == []
    simulated.check()


def test_wait_of_a_subscription_that_nobody_reads_is_over_when_somebody_comes() -> None:
    simulated = waiting(5.0)
    orders = simulated.bay.topic("orders")
    with orders.subscribe(durable="audit") as reader:
        orders.send_many(Message(b"%d" % n) for n in range(3))
        reader.nack(reader.take(2))
    simulated.clock.advance(5.1)
    simulated.bay.step()
    with orders.subscribe(durable="audit") as reader:
        assert [delivery.body for delivery in reader.take(9)] == [b"0", b"1", b"2"]
    simulated.check()


def test_wait_of_what_ends_leaves_no_row() -> None:
    simulated = waiting(5.0)
    orders, queue = simulated.bay.topic("orders"), simulated.queue("jobs")
    reader, other = orders.subscribe(durable="audit"), orders.subscribe()
    orders.send(b"1")
    queue.send_many((Message(b"1"), Message(b"2", persistent=False)))
    worker = queue.subscribe()
    for _ in range(2):
        worker.nack(worker.take(1), delay=5.0)
    reader.take()[0].nack()
    other.take()[0].nack()
    simulated.bay.checkpoint()
    assert len(simulated.index.delayed) == 4
    simulated.crash()
    simulated.bay.checkpoint()
    assert len(simulated.index.delayed) == 2, "a subscription that is not durable ends, and what is not persistent"
    simulated.bay.topic("orders").unsubscribe("audit")
    simulated.queue("jobs").delete()
    simulated.bay.checkpoint()
    simulated.bay.checkpoint()
    assert not simulated.index.delayed
    simulated.check()


def test_wait_ends_for_what_is_moved_and_goes_with_what_is_purged() -> None:
    simulated = waiting(5.0)
    queue = simulated.queue()
    queue.send_many(Message(b"%d" % n) for n in range(1500))
    consumer = queue.subscribe(prefetch=0)
    consumer.nack(consumer.take(1500))
    assert queue.depth == 1500 and sum(1 for _ in queue.browse()) == 1500
    assert queue.move(simulated.queue("others"), limit=700) == 700
    others = simulated.queue("others").subscribe(prefetch=0)
    assert len(others.take(512)) + len(others.take(512)) == 700
    assert queue.purge() == 800
    simulated.bay.checkpoint()
    assert simulated.next_due() is None and not simulated.index.delayed
    simulated.check()


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_what_was_moved_away_while_it_waited_is_not_waited_for_after_a_kill(is_index_lost: bool) -> None:
    simulated = waiting(5.0)
    queue = simulated.queue()
    queue.send(b"1")
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take(1))
    assert queue.move(simulated.queue("others")) == 1
    simulated.crash(is_index_lost=is_index_lost)
    simulated.check()
    assert simulated.queue().depth == 0 and simulated.next_due() is None
    assert len(simulated.queue("others").subscribe().take(5)) == 1


@pytest.mark.parametrize("is_index_lost", [False, True])
def test_what_expired_while_a_subscription_put_it_off_is_not_waited_for_after_a_kill(is_index_lost: bool) -> None:
    simulated = waiting(50.0)
    simulated.bay.topic("orders").subscribe(durable="audit").close()
    simulated.bay.topic("orders").send(b"1", expires_in=2.0)
    with simulated.bay.topic("orders").subscribe(durable="audit") as reader:
        reader.nack(reader.take(1))
    simulated.clock.advance(40)
    simulated.step()
    assert not simulated.index.ensure_lane(1, 4).pending_messages
    simulated.crash(is_index_lost=is_index_lost)
    with simulated.bay.topic("orders").subscribe(durable="audit"):
        simulated.check()
        assert simulated.next_due() is None


def test_message_that_expires_while_it_waits_does_not_come_back() -> None:
    simulated = waiting(5.0)
    queue = simulated.queue()
    queue.send_many((Message(b"short", expires_in=2.0), Message(b"long", expires_in=20.0)))
    consumer = queue.subscribe()
    consumer.nack(consumer.take(2))
    simulated.crash()
    simulated.clock.advance(5.1)
    simulated.bay.step()
    assert [delivery.body for delivery in simulated.queue().subscribe().take(2)] == [b"long"]
    simulated.check()


def test_dump_tells_when_a_message_comes_back() -> None:
    simulated = waiting(5.0)
    simulated.queue().send(b"1")
    simulated.queue().subscribe().take()[0].nack()
    simulated.bay.close()
    [row] = [row for row in dump(simulated.disk) if row["kind"] == "return"]
    assert (row["attempts"], row["due_at"]) == ([[0, 0, 1]], [simulated.clock.time_ms() + 5000])


def test_wait_is_bounded() -> None:
    rule = RedeliveryRule(None, 1.0, 10.0, None)
    assert [rule.wait_seconds(attempts) for attempts in (1, 2, 3, 4, 5, 65_535)] == [1, 10, 100, 1000, 3600, 3600]
    assert RedeliveryRule(None, 7200.0, 2.0, None).wait_seconds(9) == 7200
    assert RedeliveryRule(None, 0.0, 1000.0, None).wait_seconds(65_535) == 0


def test_defaults_are_as_documented() -> None:
    policy = DestinationPolicy()
    assert (policy.max_attempts, policy.redelivery_delay_seconds, policy.redelivery_backoff) == (6, 0.0, 1.0)
    assert policy.dead_letter_queue == "DLQ.{name}"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("max_attempts", [0, -1, 65_536, 1.5, True, "6"]),
        ("redelivery_delay_seconds", [-1, float("nan"), 1e7, None, True, "1"]),
        ("redelivery_backoff", [0.5, 0, 1001, float("nan"), None, "2"]),
        ("dead_letter_queue", ["", " ", "{name}", "{name}{name}", 7, "a\nb", "x" * 128, "\ud800"]),
    ],
)
def test_what_cannot_be_is_refused_by_name(field: str, wrong: list[object]) -> None:
    for value in wrong:
        with pytest.raises(SettingsError, match=field):
            DestinationPolicy(**{field: value})  # type: ignore[arg-type]


def test_names_of_dead_letter_queues() -> None:
    assert dead_letter_name("DLQ.{name}", "a.{b}") == "DLQ.a.{b}"
    assert dead_letter_name("graveyard", "a") == "graveyard"
    assert len(dead_letter_name("a{name}z", "ä" * 127).encode()) <= 255
    for name, is_one in (("DLQ.a", True), ("DLQ.", False), ("a.DLQ", False), ("graveyard", True), ("x.grave", True)):
        assert is_dead_letter_name(["DLQ.{name}", None, "graveyard", "{name}.grave"], name) is is_one


def taken_with_loads(simulated: SimulatedBay, consumer: Consumer) -> list[Delivery]:
    taken: list[Delivery] = []
    while (more := consumer.take(100)) or simulated.bay.step():
        taken += more
    return taken


def test_what_the_index_has_no_room_to_delay_is_kept_though_another_message_goes() -> None:
    simulated = SimulatedBay(memory_limit="4MiB", policies={">": DestinationPolicy(dead_letter_queue=None)})
    queue, blocks = simulated.queue(), 80
    queue.send_many([Message(b"", headers={"chosen": int(n % 512 == 0)}) for n in range(512 * blocks)])
    chosen = queue.subscribe(selector="chosen = 1", prefetch=blocks)
    deliveries = taken_with_loads(simulated, chosen)
    assert len(deliveries) == blocks
    chosen.nack(deliveries, delay=60)  # each makes another block differ, which is more than the index holds
    with queue.subscribe(selector="chosen = 0") as other:
        [delivery] = other.take(1)
        delivery.reject()
    simulated.check()
    simulated.clock.advance(59)
    assert taken_with_loads(simulated, chosen) == []
    simulated.clock.advance(1)
    assert [delivery.attempts for delivery in taken_with_loads(simulated, chosen)] == [2] * blocks
    simulated.check()
