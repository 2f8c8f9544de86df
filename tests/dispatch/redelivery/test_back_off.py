"""Back-off: what came back waits in its place, longer each time, and nothing else waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, SettingsError
from forebay.dispatch.config.redelivery import RedeliveryRule, dead_letter_name, is_dead_letter_name


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


def test_wait_ends_with_the_process_and_the_count_does_not() -> None:
    simulated = waiting(5.0)
    simulated.queue().send(b"1")
    simulated.queue().subscribe().take()[0].nack()
    simulated.crash()
    assert simulated.queue().subscribe().take()[0].attempts == 2


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
