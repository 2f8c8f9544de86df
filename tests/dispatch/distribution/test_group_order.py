"""A group stays in order even if one of its messages was not available for a while, and no consumer starves."""

from __future__ import annotations

import pytest
from delivering import bodies, take_all
from simulated_bay import SimulatedBay

from forebay import Message, Queue
from forebay.cache.accounting.charge import OVERHEAD_BYTES
from forebay.dispatch.distribution.message_groups import bucket_of


def send(queue: Queue, *values: int, group: str | None = "g") -> None:
    """Messages with these values of n; the body says which one it is, and the value."""
    for at, n in enumerate(values, 1):
        queue.send(b"%d: %d" % (at, n), headers={"n": n}, group=group)


@pytest.mark.parametrize("takes", [True, False])
def test_what_follows_a_message_of_its_group_that_is_left_to_a_higher_priority_waits(queue: Queue, takes: bool) -> None:
    low, high = queue.subscribe(), queue.subscribe(selector="n = 1", priority=1, prefetch=1)
    send(queue, 1, 0)
    queue.send(b"free")
    assert bodies(low.take(10)) == [b"free"]
    assert low.take(10) == []
    if takes:
        high.ack(high.take())
        assert low.take(10) == []  # the group is the other one's now
    high.close()
    assert bodies(low.take(10)) == [b"2: 0"] if takes else [b"1: 1", b"2: 0"]


def test_what_waits_behind_a_message_that_was_removed_goes_on(bay: SimulatedBay, queue: Queue) -> None:
    low = queue.subscribe()
    queue.subscribe(selector="n = 1", priority=1, prefetch=1)
    send(queue, 1, 0)
    assert low.take(10) == []
    assert queue.move("others", "n = 1") == 1
    assert bodies(low.take(10)) == [b"2: 0"]
    bay.check()


def test_what_one_of_lower_priority_passed_is_for_all_of_the_higher_one(queue: Queue) -> None:
    low, equal = queue.subscribe(priority=-1), queue.subscribe(prefetch=1)
    queue.subscribe(selector="n = 1")
    send(queue, 1, 1, 1, group=None)
    assert low.take(10) == []
    assert bodies(equal.take()) == [b"1: 1"]


def test_a_message_that_comes_due_is_before_later_ones_of_its_group(bay: SimulatedBay, queue: Queue) -> None:
    owner, other = queue.subscribe(), queue.subscribe()
    queue.send_many([Message(b"1", group="g", delay=1.0), Message(b"2", group="g"), Message(b"3", group="g")])
    assert bodies(owner.take()) == [b"2"]
    assert other.take() == []
    assert owner.statistics().direct_entries == 1, "the third one is at hand"
    bay.clock.advance(1.0)
    bay.housekeep()
    assert bodies(owner.take(10)) == [b"1", b"3"]


def test_what_a_prepared_transaction_gives_back_is_before_later_ones_of_its_group(
    bay: SimulatedBay, queue: Queue
) -> None:
    owner, other = queue.subscribe(), queue.subscribe()
    send(queue, 1, 2, 3)
    transaction = bay.bay.transaction()
    owner.ack(owner.take(), transaction=transaction)
    transaction.prepare(b"branch")
    assert other.take() == []
    transaction.rollback()
    assert bodies(owner.take(10)) == [b"1: 1", b"2: 2", b"3: 3"]


def test_what_comes_before_the_messages_that_fill_a_list_is_loaded_without_a_take(bay: SimulatedBay) -> None:
    queue = bay.queue()
    queue.send_many(Message(b"%3d" % n + bytes(40_000)) for n in range(100))
    with queue.subscribe() as consumer:
        consumer.nack(consumer.take(5), delay=1.0)
        bay.step()
        [target] = bay.lists()
        assert target.direct_bytes * 2 > target.high_watermark_bytes
        bay.clock.advance(1.0)
        bay.step()
        assert target.is_ready
        assert consumer.take()[0].body[:3] == b"  0"
    bay.check()


def test_a_message_that_came_back_is_in_its_group_where_its_body_found_no_room(bay: SimulatedBay, queue: Queue) -> None:
    other = next(f"h{n}" for n in range(9) if bucket_of(f"h{n}") != bucket_of("g"))
    zero, one, two = (digit * 4096 for digit in (b"0", b"1", b"2"))
    queue.send(zero, headers={"n": 0}, group=other)
    for body in (one, two):
        queue.send(body, headers={"n": 1}, group="g")
    bay.reopen()
    a, b = bay.queue().subscribe(selector="n = 1"), bay.queue().subscribe()
    others = bay.budget.holder("others")
    assert others.reserve(bay.budget.free_bytes - 10 * OVERHEAD_BYTES)
    assert bodies(b.take()) == [zero]
    others.release(others.held_bytes)
    [held] = a.take()
    held.nack()
    assert b.take(10) == []
    assert bodies(a.take(10)) == [one, two]
    a.close()
    assert bodies(b.take(10)) == [one, two]
    bay.check()


def delayed_second_of_three(bay: SimulatedBay) -> None:
    """Of the group "g", the second is delayed for five seconds; nobody consumes. Another group's stands before it."""
    queue = bay.queue()
    send(queue, 0, group="other")
    send(queue, 1, 2, 3)
    with queue.subscribe() as consumer:
        consumer.take(2)[1].nack(delay=5.0)


@pytest.mark.parametrize("reopens", [False, True])
def test_a_message_that_a_new_consumer_passed_over_while_it_was_delayed_is_before_later_ones_of_its_group(
    bay: SimulatedBay, reopens: bool
) -> None:
    delayed_second_of_three(bay)
    if reopens:
        bay.reopen()
    with bay.queue().subscribe() as consumer:
        while bay.loader.step():
            pass
        assert consumer.statistics().direct_entries == 3, "all but what was delayed"
        bay.clock.advance(5.0)
        bay.bay.step()
        assert bodies(consumer.take(10)) == [b"1: 0", b"1: 1", b"2: 2", b"3: 3"]
        bay.check()


def test_a_message_whose_delay_ends_while_a_load_has_passed_it_over_is_before_later_ones_of_its_group(
    bay: SimulatedBay,
) -> None:
    delayed_second_of_three(bay)
    with bay.queue().subscribe() as consumer:
        target = next(target for target in bay.lists() if target.frontier == 0)
        with bay.lock:
            load = bay.loader.begin(target, is_needed=True)
        assert load is not None and load.runs == [(0, 0), (2, 3)]
        bay.clock.advance(5.0)
        with bay.lock:
            bay.release_due()
        bay.loader.finish(load)
        assert bodies(take_all(consumer)) == [b"1: 0", b"1: 1", b"2: 2", b"3: 3"]
        bay.check()


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("as_slice", [True, False])
def test_a_message_that_a_list_has_is_nowhere_else_where_groups_have_owners(
    bay: SimulatedBay, queue: Queue, persistent: bool, as_slice: bool
) -> None:
    for _ in range(3):
        queue.subscribe()
    queue.send(b"the first group", group="g")
    messages = [Message(bytes(1000), group=f"g{number % 5}", persistent=persistent) for number in range(30)]
    if as_slice:
        queue.send_many(messages)
    else:
        for message in messages:
            queue.send(message.body, group=message.group, persistent=persistent)
    holders = bay.bay.statistics().memory.holders
    assert holders["target_lists"] > 30_000
    assert (holders["pending_cache"], holders["spill_buffer"]) == (0, 0)


def test_nobody_is_called_for_what_one_of_higher_priority_gets(queue: Queue) -> None:
    called: list[str] = []
    high = queue.subscribe(priority=5, on_ready=lambda: called.append("high"))
    low = queue.subscribe(priority=1, on_ready=lambda: called.append("low"))
    for _ in range(5):
        assert high.take() == low.take() == []
        queue.send(b"x")
        high.ack(high.take())
    assert called == ["high"] * 5
