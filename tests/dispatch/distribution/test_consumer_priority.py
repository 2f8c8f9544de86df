"""Consumers of higher priority get messages while they have credit, and the others get the rest."""

from __future__ import annotations

import pytest
from delivering import numbers
from simulated_bay import SimulatedBay

from forebay import DestinationPolicy, Message, Queue, SettingsError


def send(queue: Queue, *numbers: int, group: str | None = None) -> None:
    queue.send_many(Message(b"%d" % number, {"n": number}, group=group) for number in numbers)


def test_lower_ones_get_nothing_while_a_higher_one_has_credit_for_it(queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=3)
    send(queue, 1, 2, 3)
    assert low.take(10) == []
    assert numbers(high.take(10)) == [1, 2, 3]


def test_lower_ones_get_what_is_left(queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=3)
    send(queue, 1, 2, 3, 4, 5)
    assert numbers(low.take(10)) == [1, 2]
    assert low.take(10) == []
    assert numbers(high.take(10)) == [3, 4, 5]
    send(queue, 6)
    assert numbers(low.take(10)) == [6]  # the higher one has no credit


def test_credit_that_comes_back_counts(queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=1)
    send(queue, 1, 2)
    held = high.take()
    high.ack(held)
    assert low.take() == [] and numbers(high.take()) == [2]


def test_a_lower_one_is_called_when_the_higher_ones_credit_is_used_up(queue: Queue) -> None:
    calls: list[str] = []
    low = queue.subscribe(on_ready=lambda: calls.append("low"))
    high = queue.subscribe(priority=1, prefetch=1, on_ready=lambda: calls.append("high"))
    assert low.take() == [] and high.take() == []
    send(queue, 1)
    assert calls == ["high"]
    assert numbers(high.take()) == [1]
    send(queue, 2)
    assert calls == ["high", "low"]
    assert numbers(low.take()) == [2]


def test_a_higher_one_that_closes_leaves_all_to_the_others(queue: Queue) -> None:
    calls: list[str] = []
    low = queue.subscribe(on_ready=lambda: calls.append("low"))
    high = queue.subscribe(priority=1)
    send(queue, 1, 2)
    high.take()
    assert low.take(10) == []
    calls.clear()
    high.close()
    assert calls == ["low"]
    assert numbers(low.take(10)) == [1, 2]


def test_a_lower_prefetch_of_the_higher_one_leaves_more(queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=10)
    send(queue, 1, 2)
    assert low.take(10) == []
    high.prefetch = 1
    assert numbers(low.take(10)) == [1]


def test_one_that_pulls_comes_first_while_it_waits(queue: Queue) -> None:
    rings: list[int] = []
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=0, on_ready=lambda: rings.append(1))
    send(queue, 1)
    assert rings and numbers(low.take()) == [1]  # it was called and did not come
    assert high.take() == []
    send(queue, 2, 3)
    assert numbers(high.take()) == [2]


def test_what_the_higher_one_does_not_want_is_left(queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, selector="n > 100")
    send(queue, 1, 101, 2)
    assert numbers(low.take(10)) == [1, 2]
    assert numbers(high.take(10)) == [101]


def test_with_one_selector_for_both_the_higher_one_comes_first_however_deep_it_lies(queue: Queue) -> None:
    low = queue.subscribe(selector="n > 5000")
    high = queue.subscribe(priority=1, selector="n > 5000", prefetch=3)
    send(queue, *range(5004))
    assert low.take() == []
    assert numbers(high.take(10)) == [5001, 5002, 5003]
    send(queue, 5004)
    assert numbers(low.take()) == [5004]


def test_what_a_slow_one_keeps_from_others_is_theirs_when_it_is_noticed(bay: SimulatedBay, queue: Queue) -> None:
    low, high = queue.subscribe(), queue.subscribe(priority=1, selector="n > 0")
    send(queue, 1, 2)
    assert numbers(high.take()) == [1]
    assert low.take(10) == []
    for _ in range(32):
        bay.clock.advance(1.0)
        bay.bay.step()
    assert high.statistics().is_slow
    assert numbers(low.take(10)) == [2]


def test_groups_stay_with_a_lower_owner(queue: Queue) -> None:
    low = queue.subscribe()
    send(queue, 1, group="g")
    assert numbers(low.take()) == [1]
    high = queue.subscribe(priority=1)
    send(queue, 2, group="g")
    assert high.take() == [] and numbers(low.take()) == [2]
    send(queue, 3, group="another")
    assert low.take() == [] and numbers(high.take()) == [3]


def test_an_owner_whose_waiting_messages_have_expired_takes_nothing_from_a_higher_one(
    bay: SimulatedBay, queue: Queue
) -> None:
    owner = queue.subscribe()
    for number in (1, 2):
        queue.send(b"%d" % number, group="g", expires_in=5)
    owner.nack(owner.take(), delay=100)
    assert owner.take() == []
    high = queue.subscribe(priority=1)
    bay.clock.advance(31)
    bay.bay.step()
    assert queue.depth == 0
    send(queue, 3)
    bay.bay.step()
    assert owner.take() == [] and numbers(high.take()) == [3]


def test_equals_share_as_without_priorities(queue: Queue) -> None:
    consumers = [queue.subscribe(priority=3) for _ in range(4)]
    send(queue, *range(8))
    assert [numbers(consumer.take()) for consumer in consumers * 2] == [[number] for number in range(8)]


@pytest.mark.parametrize("priority", [-129, 128, 1.0, True, "high"])
def test_what_is_no_priority_is_refused(queue: Queue, priority: object) -> None:
    with pytest.raises(SettingsError):
        queue.subscribe(priority=priority)  # type: ignore[arg-type]
    queue.subscribe(priority=-128), queue.subscribe(priority=127)


def test_consumer_whose_credit_came_back_is_called_for_the_next_message(queue: Queue) -> None:
    called: list[str] = []
    high = queue.subscribe(priority=1, prefetch=1, on_ready=lambda: called.append("high"))
    queue.subscribe()
    send(queue, 1)
    (delivery,) = high.take()
    assert high.take() == []
    delivery.ack()
    called.clear()
    send(queue, 2)
    assert called == ["high"]


def test_a_dead_letter_that_is_about_to_leave_is_no_message_that_the_higher_one_leaves_to_others() -> None:
    simulated = SimulatedBay(policies={">": DestinationPolicy(max_attempts=1)})
    queue = simulated.bay.queue("orders")
    low, high = queue.subscribe(), queue.subscribe(priority=1, prefetch=1)
    send(queue, 1, 2, 3)
    high.nack(high.take())
    high.nack(high.take())
    assert low.take() == [] and numbers(high.take()) == [3]
