"""An exclusive consumer gets all; the next one in line takes over at its close, in order."""

from __future__ import annotations

import threading

import pytest
from delivering import numbers
from simulated_bay import SimulatedBay

from forebay import Delivery, Queue, SettingsError


def send(queue: Queue, *numbers: int, group: str | None = None) -> None:
    for number in numbers:
        queue.send(b"%d" % number, group=group)


def test_the_first_exclusive_consumer_gets_all(queue: Queue) -> None:
    ordinary = queue.subscribe()
    first, second = queue.subscribe(exclusive=True), queue.subscribe(exclusive=True)
    late = queue.subscribe()
    send(queue, 1, 2, 3)
    for other in (ordinary, second, late):
        assert other.take() == [] and other.take(10) == []
    assert numbers(first.take(10)) == [1, 2, 3]


def test_the_next_takes_over_at_its_close_in_order(queue: Queue) -> None:
    first, ordinary = queue.subscribe(exclusive=True), queue.subscribe()
    second, third = queue.subscribe(exclusive=True), queue.subscribe(exclusive=True)
    send(queue, 1, 2, 3, 4)
    held = first.take(3)
    first.ack(held[1])
    first.close()
    assert third.take() == [] and ordinary.take() == []
    assert numbers(second.take(10)) == [1, 3, 4]
    third.close()
    second.close()
    assert numbers(ordinary.take(10)) == [1, 3, 4]


def test_of_those_in_line_the_highest_priority_takes_over(queue: Queue) -> None:
    first, low = queue.subscribe(exclusive=True), queue.subscribe(exclusive=True)
    high = queue.subscribe(exclusive=True, priority=5)
    send(queue, 1)
    assert high.take() == []
    first.close()
    assert low.take() == [] and numbers(high.take()) == [1]


def test_what_others_hold_stays_with_them_and_comes_to_it_when_given_back(queue: Queue) -> None:
    ordinary = queue.subscribe()
    send(queue, 1, 2, 3)
    held = ordinary.take(2)
    exclusive = queue.subscribe(exclusive=True)
    assert numbers(exclusive.take(10)) == [3]
    ordinary.ack(held[1])
    assert ordinary.take() == []
    held[0].nack()
    assert ordinary.take() == []
    assert numbers(exclusive.take(10)) == [1]


def test_it_takes_over_the_groups_of_others_as_they_are_settled(bay: SimulatedBay, queue: Queue) -> None:
    owner = queue.subscribe()
    send(queue, 1, 2, 3, group="g")
    held = owner.take(2)
    send(queue, 4, group="other")
    exclusive = queue.subscribe(exclusive=True)
    assert numbers(exclusive.take(10)) == [4]
    owner.ack(held[0])
    assert exclusive.take(10) == []  # 2 is still in another's hands
    owner.ack(held[1])
    assert numbers(exclusive.take(10)) == [3]
    send(queue, 5, group="g")
    assert owner.take() == [] and numbers(exclusive.take(10)) == [5]
    bay.check()


def test_a_callback_tells_who_takes_over(queue: Queue) -> None:
    calls: list[str] = []
    first = queue.subscribe(exclusive=True, on_ready=lambda: calls.append("first"))
    second = queue.subscribe(exclusive=True, on_ready=lambda: calls.append("second"))
    assert second.take() == [] and first.take() == []
    send(queue, 1)
    assert calls == ["first"]
    first.close()
    assert calls == ["first", "second"]
    assert numbers(second.take()) == [1]


def test_a_thread_that_waits_takes_over(bay: SimulatedBay, queue: Queue) -> None:
    first, second = queue.subscribe(exclusive=True), queue.subscribe(exclusive=True)
    taken: list[Delivery] = []
    thread = threading.Thread(target=lambda: taken.extend(second.take(10, timeout=60)))
    thread.start()
    bay.clock.wait_until(lambda: second.is_waiting)
    send(queue, 1)
    first.close()
    thread.join(60)
    assert numbers(taken) == [1]


def test_a_thread_that_waited_before_swallows_nothing(bay: SimulatedBay, queue: Queue) -> None:
    ordinary = queue.subscribe()
    thread = threading.Thread(target=lambda: ordinary.take(timeout=60))
    thread.start()
    bay.clock.wait_until(lambda: ordinary.selector_group.waiting > 0)
    exclusive = queue.subscribe(exclusive=True)
    taken: list[Delivery] = []
    other = threading.Thread(target=lambda: taken.extend(exclusive.take(timeout=60)))
    other.start()
    send(queue, 1)
    other.join(60)
    assert numbers(taken) == [1] and thread.is_alive()
    exclusive.close()
    thread.join(60)
    assert ordinary.in_flight == 1


def test_a_pause_and_an_exclusive_consumer_are_two_things(queue: Queue) -> None:
    exclusive, ordinary = queue.subscribe(exclusive=True), queue.subscribe()
    send(queue, 1)
    queue.pause()
    assert exclusive.take() == [] and ordinary.take() == []
    queue.resume()
    assert ordinary.take() == []
    queue.pause()
    exclusive.close()
    assert ordinary.take() == []
    queue.resume()
    assert numbers(ordinary.take()) == [1]


@pytest.mark.parametrize("exclusive", [1, None, "yes"])
def test_only_true_and_false_are_taken(queue: Queue, exclusive: object) -> None:
    with pytest.raises(SettingsError):
        queue.subscribe(exclusive=exclusive)  # type: ignore[arg-type]
