"""Consumer: who gets which message, in which order, how often, and what becomes of those that are not done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from compiled import interpreted
from counting import counted_calls
from delivering import drain, ids, send_equal, take_all
from simulated_bay import SimulatedBay

from forebay import (
    AckTooLate,
    Closed,
    Consumer,
    Delivery,
    Message,
    Queue,
    SettingsError,
    StateError,
    TransactionError,
)
from forebay.dispatch.consumer.settlements import Settlements
from forebay.store.environment.locks import OwnedCondition

KIB = 1024
BODY = bytes(KIB)


# Who gets it.


def test_competing_consumers_get_each_message_once_and_each_of_them_in_order(queue: Queue) -> None:
    sent = send_equal(queue, 100)
    with queue.subscribe() as one, queue.subscribe() as other:
        taken: dict[Consumer, list[str]] = {one: [], other: []}
        for number in range(40):
            consumer = (one, other)[number % 2]
            taken[consumer] += ids(consumer.take(3))
        assert sorted(taken[one] + taken[other], key=sent.index) == sent
        assert all(sorted(part, key=sent.index) == part for part in taken.values())
        assert one.take() == other.take() == []


@pytest.mark.parametrize("selector", [None, "n >= 0"])
def test_a_slow_consumer_holds_what_it_was_handed_and_stops_nobody(queue: Queue, selector: str | None) -> None:
    sent = send_equal(queue, 500, BODY)
    with queue.subscribe(prefetch=10, selector=selector) as slow, queue.subscribe() as quick:
        held = slow.take(100)
        assert len(held) == 10
        assert drain(quick) == sent[10:]
        assert ids(held) == sent[:10]


def test_a_second_consumer_gets_all_that_the_first_has_not_taken(bay: SimulatedBay, queue: Queue) -> None:
    with queue.subscribe() as first:
        sent = send_equal(queue, 100)
        bay.bay.step()
        assert ids(first.take(10)) == sent[:10]
        with queue.subscribe() as second:
            assert ids(second.take(100)) == sent[10:]
            assert first.take() == []


def test_overlapping_selectors_share_the_messages_and_never_deliver_one_twice(queue: Queue) -> None:
    sent = send_equal(queue, 300)
    with (
        queue.subscribe(selector="n >= 100") as upper,
        queue.subscribe(selector="n < 200") as lower,
        queue.subscribe() as everything,
    ):
        taken = [
            delivery for _ in range(10) for consumer in (upper, lower, everything) for delivery in consumer.take(7)
        ]
        assert len(set(ids(taken))) == len(taken) > 150
        for delivery in taken:
            delivery.ack()
        rest = drain(lower) + drain(upper) + drain(everything)
    assert sorted(ids(taken) + rest, key=sent.index) == sent
    assert queue.depth == 0


def test_a_message_that_one_in_a_hundred_wants_is_found_behind_all_that_nobody_wants(bay: SimulatedBay) -> None:
    bay.queue().send_many(Message(BODY, {"kind": "tea" if number % 100 == 99 else "salt"}) for number in range(5000))
    bay.reopen()
    with bay.queue().subscribe(selector="kind = 'tea'") as consumer:
        for _ in range(50):
            (delivery,) = consumer.take(timeout=1000.0)
            assert delivery.headers == {"kind": "tea"}
            delivery.ack()
        bay.bay.step()
        assert consumer.take() == []
    assert bay.queue().depth == 4950


def test_a_take_that_does_not_wait_leaves_a_long_scan_to_the_background(bay: SimulatedBay) -> None:
    send_equal(bay.queue(), 3000, BODY)
    bay.queue().send(b"the one", headers={"kind": "tea"})
    bay.reopen()
    called: list[int] = []
    with bay.queue().subscribe(selector="kind = 'tea'", on_ready=lambda: called.append(1)) as consumer:
        before = bay.reads
        assert consumer.take() == []
        assert bay.reads - before < 10
        called.clear()
        bay.bay.step()
        assert called == [1]
        assert [delivery.body for delivery in consumer.take()] == [b"the one"]


def test_selectors_see_the_fields_of_the_message(queue: Queue) -> None:
    message_id = queue.send(b"x", priority=7)
    queue.send(b"y", priority=2, message_id="mine")
    with queue.subscribe(selector=f"JMSPriority = 7 AND JMSMessageID = '{message_id}'") as consumer:
        assert ids(consumer.take(10, timeout=1000.0)) == [message_id]
    with queue.subscribe(selector="JMSMessageID = 'mine' AND JMSTimestamp > 0") as consumer:
        assert ids(consumer.take(10, timeout=1000.0)) == ["mine"]


# What comes back.


def test_a_closed_consumers_messages_go_back_to_their_places(queue: Queue) -> None:
    sent = send_equal(queue, 20)
    with queue.subscribe() as staying:
        leaving = queue.subscribe()
        first, second, third = leaving.take(5), staying.take(5), leaving.take(5)
        leaving.ack(first[2])
        assert all(delivery.body for delivery in (*first, *third))  # it has looked at them
        leaving.close()
        again = take_all(staying)
        assert ids(again) == [*sent[:2], *sent[3:5], *sent[10:]]
        assert [delivery.attempts for delivery in again] == [2] * 9 + [1] * 5
        assert ids(second) == sent[5:10] and len(third) == 5


def test_messages_come_back_though_the_last_consumer_has_gone(queue: Queue) -> None:
    sent = send_equal(queue, 10)
    with queue.subscribe() as consumer:
        consumer.take(5)
    with queue.subscribe() as consumer:
        deliveries = take_all(consumer)
        assert ids(deliveries) == sent


def test_what_was_not_done_comes_before_what_was_never_delivered(queue: Queue) -> None:
    sent = send_equal(queue, 20)
    with queue.subscribe() as consumer:
        deliveries = consumer.take(10)
        consumer.nack([deliveries[7], deliveries[2], deliveries[4]])
        assert ids(take_all(consumer)) == [sent[2], sent[4], sent[7], *sent[10:]]


@pytest.mark.parametrize("steps", [True, False])
def test_messages_that_come_back_one_after_another_all_come_again_in_order(bay: SimulatedBay, steps: bool) -> None:
    queue = bay.queue()
    sent = send_equal(queue, 15)
    with queue.subscribe() as consumer:
        deliveries = consumer.take(10)
        for number in (3, 5, 4, 9, 0):
            deliveries[number].nack()
            if steps:
                bay.bay.step()
                bay.check()
        assert ids(consumer.take(1) + take_all(consumer)) == [sent[n] for n in (0, 3, 4, 5, 9)] + sent[10:]


def test_what_came_back_between_two_that_came_back_earlier_is_delivered_between_them(bay: SimulatedBay) -> None:
    queue = bay.queue()
    sent = send_equal(queue, 30)
    with queue.subscribe() as consumer:
        deliveries = consumer.take(20)
        consumer.nack([deliveries[5], deliveries[15]])
        bay.bay.step()
        deliveries[10].nack()
        assert ids(take_all(consumer, 2)) == [sent[n] for n in (5, 10, 15, *range(20, 30))]


def test_attempts_count_every_delivery_of_one_message(queue: Queue) -> None:
    queue.send(b"poison")
    with queue.subscribe() as consumer:
        for attempt in range(1, 6):
            (delivery,) = consumer.take()
            assert delivery.attempts == attempt
            delivery.nack()
    with queue.subscribe() as consumer:
        (delivery,) = consumer.take()
        assert delivery.attempts == 6
        delivery.ack()
        queue.send(b"another")
        assert consumer.take()[0].attempts == 1


def test_a_delayed_message_comes_back_after_its_delay_and_not_before(bay: SimulatedBay, queue: Queue) -> None:
    sent = send_equal(queue, 3)
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take(1), delay=5.0)
        assert ids(consumer.take(10)) == sent[1:]
        bay.clock.advance(4.9)
        bay.bay.step()
        assert consumer.take() == []
        bay.clock.advance(0.2)
        (delivery,) = consumer.take()
        assert (delivery.id, delivery.attempts) == (sent[0], 2)


def test_a_delay_holds_for_every_other_consumer_too(bay: SimulatedBay, queue: Queue) -> None:
    sent = send_equal(queue, 3)
    with queue.subscribe(selector="n >= 0") as later:
        consumer = queue.subscribe()
        consumer.nack(consumer.take(1), delay=5.0)
        assert ids(later.take(1)) == sent[1:2]
        consumer.close()
        with queue.subscribe() as newcomer:
            assert ids(newcomer.take(10)) == sent[2:]
            bay.clock.advance(6.0)
            bay.bay.step()
            assert ids(newcomer.take(10)) == sent[:1]
            assert later.take(10) == []
    bay.check()


def test_a_delayed_message_that_others_have_yet_to_reach_is_delivered_once(bay: SimulatedBay, queue: Queue) -> None:
    sent = send_equal(queue, 2)
    consumer = queue.subscribe()
    consumer.nack(consumer.take(1), delay=5.0)
    consumer.close()
    with queue.subscribe() as newcomer:
        bay.clock.advance(6.0)
        bay.bay.step()
        assert ids(take_all(newcomer)) == sent


# Acknowledging.


def test_what_was_acknowledged_never_comes_again(bay: SimulatedBay) -> None:
    sent = send_equal(bay.queue(), 20)
    with bay.queue().subscribe() as consumer:
        deliveries = consumer.take(20)
        consumer.ack(deliveries[10:])
        deliveries[0].ack()
        consumer.ack([deliveries[5], deliveries[3]])
    rest = [*sent[1:3], sent[4], *sent[6:10]]
    with bay.queue().subscribe() as consumer:
        assert ids(take_all(consumer)) == rest
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        assert ids(take_all(consumer)) == rest


def test_ack_up_to_settles_what_was_taken_before_and_nothing_else(queue: Queue) -> None:
    send_equal(queue, 10)
    with queue.subscribe() as consumer, queue.subscribe() as other:
        first, foreign, rest = consumer.take(3), other.take(2), consumer.take(5)
        consumer.nack(first[1])
        consumer.ack_up_to(rest[1])
        assert (consumer.in_flight, other.in_flight, queue.depth) == (3, 2, 6)
        consumer.ack(rest[2:])
        other.ack(foreign)


def let_go(bay: SimulatedBay, consumer: Consumer, delivery: Delivery, how: str) -> None:
    """Take a delivery from its consumer, as another thread or the time may do at any moment."""
    if how == "deadline":
        consumer.extend(delivery, 0)
        bay.clock.advance(1)
        bay.bay.step()
    elif how == "transaction":
        delivery.ack(bay.bay.transaction())
    else:
        consumer.release(delivery)


@pytest.mark.parametrize("how", ["deadline", "transaction", "release"])
@pytest.mark.parametrize("gone", [0, 1, 2])
@interpreted("replaces a method")
def test_ack_up_to_passes_over_what_goes_while_it_begins_but_for_the_delivery_that_it_names(
    bay: SimulatedBay, monkeypatch: pytest.MonkeyPatch, gone: int, how: str
) -> None:
    queue = bay.queue()
    send_equal(queue, 3)
    consumer = queue.subscribe(ack_deadline_seconds=10)
    held = consumer.take(3)
    ack = Settlements.ack

    def come_between(settlements: Settlements, *args: Any, **fields: Any) -> None:
        monkeypatch.undo()
        let_go(bay, consumer, held[gone], how)
        ack(settlements, *args, **fields)

    monkeypatch.setattr(Settlements, "ack", come_between)
    if gone < 2:
        consumer.ack_up_to(held[2])
        assert queue.depth == 1
    else:
        errors = {"deadline": AckTooLate, "transaction": TransactionError, "release": StateError}
        with pytest.raises(errors[how]) as caught:
            consumer.ack_up_to(held[2])
        error = caught.value
        if isinstance(error, AckTooLate):
            assert (error.destination, error.sequence, error.attempts, error.deadline_seconds) == ("orders", 2, 1, 10)
        assert queue.depth == 3, "nothing is settled"
        consumer.ack(held[:2])
    if how != "transaction":
        assert [again.id for again in consumer.take(3)] == [held[gone].id]
    bay.check()


def test_ack_up_to_leaves_a_higher_priority_that_was_taken_later(queue: Queue) -> None:
    low = [queue.send(b"low", priority=1) for _ in range(3)]
    with queue.subscribe() as consumer:
        first, second = consumer.take(), consumer.take()
        queue.send(b"high", priority=9)
        high = consumer.take()
        assert high[0].priority == 9
        consumer.ack_up_to(second[0])
        assert consumer.in_flight == 1
        high[0].ack()
        assert ids(consumer.take(10)) == low[2:] and first[0].id == low[0]


def unsettled(bay: SimulatedBay, consumer: Consumer) -> tuple[object, ...]:
    statistics = bay.bay.statistics()
    return consumer.statistics(), statistics.destinations, statistics.store, statistics.memory.held_bytes


@pytest.mark.parametrize("call", [Consumer.ack, Consumer.nack])
def test_what_is_not_a_consumers_own_unsettled_delivery_is_refused_and_settles_nothing(
    bay: SimulatedBay, queue: Queue, call: Callable[[Consumer, Any], None]
) -> None:
    send_equal(queue, 20)
    other_queue = bay.queue("prices")
    send_equal(other_queue, 1)
    with queue.subscribe() as consumer, queue.subscribe() as other, other_queue.subscribe() as elsewhere:
        own, foreign, far = consumer.take(5), other.take(5), elsewhere.take(1)
        settled, returned = consumer.take(1)[0], consumer.take(1)[0]
        settled.ack()
        returned.nack()
        (again,) = consumer.take(1)
        assert again.id == returned.id
        before = unsettled(bay, consumer)
        for bad in (foreign[0], far[0], settled, returned, None, 5, "x", b"x", {}, set(own), iter(own), object()):
            for batch in (bad, [bad], [*own, bad], [bad, *own], (own[0], bad)):
                with pytest.raises((SettingsError, StateError)):
                    call(consumer, batch)
        for bad in (settled, returned):
            with pytest.raises(StateError, match="settled already"):
                call(consumer, bad)
        for nested in ([[own[0]]], [own], [(own[0],)]):
            with pytest.raises(SettingsError):
                call(consumer, nested)
        for duplicates in ([own[0], own[0]], [*own, own[-1]]):
            with pytest.raises(SettingsError, match="twice"):
                call(consumer, duplicates)
        for bad in (foreign[0], settled, None, own):
            with pytest.raises((SettingsError, StateError)):
                consumer.ack_up_to(bad)  # type: ignore[arg-type]
        assert unsettled(bay, consumer) == before
        consumer.ack([])
        consumer.nack([])
        consumer.ack([*own, again])
        bay.check()


@pytest.mark.parametrize("call", [Consumer.ack, Consumer.nack])
def test_a_batch_of_as_many_as_are_in_flight_is_refused_unless_it_is_all_of_them(
    bay: SimulatedBay, queue: Queue, call: Callable[[Consumer, Any], None]
) -> None:
    send_equal(queue, 6)
    with queue.subscribe() as consumer, queue.subscribe() as other:
        own, foreign = consumer.take(3), other.take(3)
        for batch in ([*own, *foreign], [*foreign, *own], [*own, *own], [*own, own[0], own[1], None]):
            with pytest.raises((SettingsError, StateError)):
                call(consumer, batch)
        other.ack(foreign)
        for batch in (foreign, [own[0], own[1], own[1]], [own[0], own[1], foreign[2]]):
            with pytest.raises((SettingsError, StateError)):
                call(consumer, batch)
        assert consumer.in_flight == 3
        call(consumer, own[::-1])
        assert consumer.in_flight == 0
        assert len(drain(consumer)) == (0 if call is Consumer.ack else 3)
        bay.check()


def test_a_batch_over_more_index_blocks_than_memory_holds_is_acknowledged(bay: SimulatedBay, queue: Queue) -> None:
    for block in range(600):
        queue.send(b"", headers={"kind": "tea"})
        queue.send_many([Message(b"")] * 255)
        queue.send_many([Message(b"")] * 256)
        if block % 10 == 0:
            bay.bay.step()
    with queue.subscribe(selector="kind = 'tea'") as consumer:
        deliveries: list[Delivery] = []
        while len(deliveries) < 600:
            deliveries += consumer.take(600, timeout=1000.0)
        consumer.ack(deliveries)
        assert queue.depth == 600 * 511
    bay.check()


# How much at once.


def test_prefetch_bounds_what_is_unsettled_and_may_be_changed(queue: Queue) -> None:
    send_equal(queue, 100)
    with queue.subscribe(prefetch=10) as consumer:
        assert len(consumer.take(50)) == 10
        assert consumer.take(50) == []
        consumer.prefetch = 15
        deliveries = consumer.take(50)
        assert len(deliveries) == 5
        consumer.prefetch = 1
        consumer.ack(deliveries)
        assert consumer.take(50) == []
        consumer.prefetch = 0
        assert len(consumer.take(60)) == 60


def test_without_prefetch_nothing_is_assigned_before_take(queue: Queue) -> None:
    sent = send_equal(queue, 50)
    with queue.subscribe(prefetch=0) as idle, queue.subscribe(prefetch=0) as busy:
        assert ids(busy.take(30)) + ids(busy.take(30)) == sent
        assert idle.in_flight == 0


def test_max_bytes_bounds_a_take_but_for_its_first_message(queue: Queue) -> None:
    queue.send_many(Message(bytes(size)) for size in (500, 100, 100, 100, 300, 1))
    with queue.subscribe() as consumer:
        assert [len(delivery.body) for delivery in consumer.take(10, max_bytes=200)] == [500]
        assert [len(delivery.body) for delivery in consumer.take(10, max_bytes=200)] == [100, 100]
        assert [len(delivery.body) for delivery in consumer.take(10, max_bytes=400)] == [100, 300]
        assert [len(delivery.body) for delivery in consumer.take(10, max_bytes=1)] == [1]


def test_max_bytes_bounds_deliveries_that_are_read_later_too(bay: SimulatedBay, queue: Queue) -> None:
    queue.send_many(Message(bytes(600 * KIB)) for _ in range(4))
    bay.reopen()
    with bay.queue().subscribe() as consumer:
        bay.bay.step()
        assert len(consumer.take(10, max_bytes=1300 * KIB)) == 2
    small = bay.queue("small")
    send_equal(small, 2000, BODY)
    with small.subscribe(prefetch=0) as consumer:
        while bay.dispatch_area.dispatch_holder.held_bytes < bay.dispatch_area.dispatch_bytes_max - 2 * KIB:
            consumer.take(1)
        assert len(consumer.take(100, max_bytes=10 * KIB + 500)) <= 10


BAD_SECONDS: list[Any] = [-1, -0.001, math.nan, math.inf, "1", "", [], True, False, 10**400, 1j]
BAD_SIZES: list[Any] = [0, -1, 1.5, "1", True, math.nan, []]
BAD_TAKES: list[dict[str, Any]] = [
    *({"max_messages": count} for count in (0, -1, True, 1.0, "1", None, math.nan)),
    *({"timeout": seconds} for seconds in BAD_SECONDS),
    *({"max_bytes": size} for size in BAD_SIZES),
]


@pytest.mark.parametrize("fields", BAD_TAKES, ids=lambda fields: ascii(fields)[:40])
@pytest.mark.parametrize("count", [0, 5])
def test_a_bad_argument_of_take_is_refused_and_nothing_is_handed_out(
    bay: SimulatedBay, queue: Queue, fields: dict[str, Any], count: int
) -> None:
    with queue.subscribe() as consumer:
        send_equal(queue, count)  # what is in RAM already is not handed out either
        before = unsettled(bay, consumer)
        with pytest.raises(SettingsError):
            consumer.take(**fields)
        assert unsettled(bay, consumer) == before
        bay.check()


@pytest.mark.parametrize("delay", [-1, math.nan, math.inf, "1", None, True, 10**400, [], 1e300])
def test_a_bad_delay_is_refused_and_the_delivery_stays_in_flight(queue: Queue, delay: Any) -> None:
    queue.send(b"x")
    with queue.subscribe() as consumer:
        (delivery,) = consumer.take()
        with pytest.raises(SettingsError):
            delivery.nack(delay=delay)
        delivery.ack()


@pytest.mark.parametrize("prefetch", [-1, True, 1.5, "10", None, 1_000_001, math.nan])
def test_a_bad_prefetch_is_refused_and_the_old_one_stays(queue: Queue, prefetch: Any) -> None:
    with queue.subscribe(prefetch=7) as consumer:
        with pytest.raises(SettingsError):
            consumer.prefetch = prefetch
        assert consumer.prefetch == 7


# The end.


def test_iteration_yields_until_the_consumer_is_closed(queue: Queue) -> None:
    sent = send_equal(queue, 5)
    seen: list[str] = []
    with queue.subscribe() as consumer:
        for delivery in consumer:
            seen.append(delivery.id)
            delivery.ack()
            if len(seen) == 5:
                consumer.close()
    assert seen == sent


def test_iteration_ends_when_the_store_is_closed(bay: SimulatedBay, queue: Queue) -> None:
    send_equal(queue, 5)
    for _ in queue.subscribe():
        bay.bay.close()


def test_no_deliveries_at_all_may_be_settled_after_the_store_is_closed(bay: SimulatedBay, queue: Queue) -> None:
    """Whoever settles what is left in a finally clause is not told of a close that has nothing to do with it."""
    consumer = queue.subscribe()
    bay.bay.close()
    consumer.ack([])
    consumer.nack([])
    consumer.release([])
    consumer.extend([], 5.0)


def test_a_closed_consumer_takes_and_settles_nothing(bay: SimulatedBay, queue: Queue) -> None:
    send_equal(queue, 5)
    consumer = queue.subscribe()
    deliveries = consumer.take(2)
    consumer.close()
    consumer.close()
    for fields in ({}, {"max_messages": 10}, {"timeout": None}):
        with pytest.raises(Closed):
            consumer.take(**fields)
    assert list(consumer) == []
    settles: list[Callable[[], None]] = [
        deliveries[0].ack,
        deliveries[0].nack,
        lambda: consumer.ack_up_to(deliveries[0]),
    ]
    for settle in settles:
        with pytest.raises(StateError):
            settle()
    assert queue.depth == 5
    bay.check()


class _Hook:
    """Stands for the state lock and does something just before it is first taken."""

    def __init__(self, bay: SimulatedBay, work: Callable[[], None]) -> None:
        self._bay, self._lock, self._work = bay, bay.lock, work

    def __enter__(self) -> None:
        self._bay.lock = self._lock
        self._work()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("most", [1, 10])
def test_a_consumer_closed_just_before_a_take_has_the_lock_is_handed_nothing(bay: SimulatedBay, most: int) -> None:
    queue = bay.queue()
    consumer, other = queue.subscribe(), queue.subscribe()
    sent = send_equal(queue, 5)
    bay.lock = _Hook(bay, consumer.close)  # type: ignore[assignment]
    with pytest.raises(Closed):
        consumer.take(most)
    assert ids(take_all(other)) == sent


def test_a_take_that_may_not_wait_does_not_wait_for_what_others_have_settled(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_equal(queue, 5)
    with queue.subscribe() as one, queue.subscribe(selector="n >= 0") as other:
        assert len(drain(one)) == 5

        def wait(condition: OwnedCondition, seconds: float | None) -> None:
            pytest.fail(f"it waits {seconds} seconds")

        monkeypatch.setattr(OwnedCondition, "wait", wait)
        assert other.take() == []


def test_statistics_tell_one_consumer_from_another(bay: SimulatedBay, queue: Queue) -> None:
    send_equal(queue, 100, BODY)
    with queue.subscribe() as one, queue.subscribe() as other:
        one.ack(one.take(10))
        one.take(5)
        other.take(20)
        assert (one.statistics().delivered, other.statistics().delivered) == (15, 20)
        assert (one.statistics().in_flight, other.statistics().in_flight) == (5, 20)
        assert one.statistics().direct_entries == 65
        one.close()
        destination = bay.bay.statistics().destinations["orders"]
        assert (destination.consumers, destination.delivered, destination.redelivered) == (1, 35, 5)
        assert (destination.enqueued, destination.acknowledged, destination.depth) == (100, 10, 90)
        assert one.statistics().delivered == 15


# Syncs.


@pytest.mark.parametrize(("persistent", "syncs"), [(False, 0), (True, 1)])
def test_a_batch_is_synced_once_where_its_ack_is_in_the_journal_and_never_where_nothing_is(
    persistent: bool, syncs: int
) -> None:
    bay = SimulatedBay(sync="always")
    queue = bay.bay.queue("q")
    queue.send_many(Message(b"%d" % n, persistent=persistent) for n in range(10))
    bay.bay.queue("other").send(b"durable")
    with queue.subscribe() as consumer:
        held = consumer.take(10)
        others = bay.lane(bay.queue_state("other"), 4).destination_lane
        with bay.lock:
            bay.store.message_store.add(others, 0, b"", b"of a call that has not synced yet")
        before = bay.syncer.durations.count
        consumer.ack(held)
        assert bay.syncer.durations.count == before + syncs


@interpreted("counts calls of Python functions")
def test_a_take_of_one_that_finds_nothing_looks_into_the_list_once_before_it_looks_whether_to_wait() -> None:
    bay = SimulatedBay()
    with bay.queue().subscribe() as consumer, counted_calls() as calls:
        assert consumer.take() == []
    assert calls["DispatchArea.dispatch_one"] == 1
    assert calls["DispatchArea.dispatch"] == 2, "under the lock of that look, and once it is known that nothing is due"
