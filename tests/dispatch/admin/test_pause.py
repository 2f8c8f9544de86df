"""Pause: nothing is handed out until resume, whoever waits is woken then, and everything else goes on."""

from __future__ import annotations

import threading

import pytest
from delivering import numbers
from simulated_bay import SimulatedBay

from forebay import Closed, Message


class CountingCallback:
    """An on_ready callback that counts."""

    def __init__(self) -> None:
        self.rings = 0

    def __call__(self) -> None:
        self.rings += 1


def filled(count: int) -> SimulatedBay:
    simulated = SimulatedBay()
    simulated.queue().send_many(Message(b"%d" % n) for n in range(count))
    return simulated


def test_paused_queue_hands_out_nothing_and_goes_on_where_it_was() -> None:
    simulated = filled(10)
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        held = consumer.take(3)
        queue.pause()
        assert queue.is_paused
        assert consumer.take(1) == [] and consumer.take(5) == []
        queue.resume()
        assert not queue.is_paused
        assert numbers(consumer.take(1)) + numbers(consumer.take(2)) == [3, 4, 5]
        consumer.ack(held)
        simulated.check()


def test_consumer_that_comes_meanwhile_gets_nothing_before_the_resume() -> None:
    simulated = filled(4)
    queue = simulated.queue()
    queue.pause()
    consumer, picky = queue.subscribe(prefetch=0), queue.subscribe(selector="JMSPriority = 4")
    assert consumer.take(4) == picky.take(4) == []
    queue.resume()
    assert numbers(consumer.take(2)) == [0, 1] and numbers(picky.take(4)) == [2, 3]


def test_sends_acks_and_nacks_go_on() -> None:
    simulated = filled(4)
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        first, second, third = consumer.take(3)
        queue.pause()
        first.ack()
        consumer.nack([second, third])
        queue.send(b"4")
        consumer.prefetch = 50
        assert queue.depth == 4 and consumer.take(9) == []
        queue.resume()
        assert numbers(consumer.take(9)) == [1, 2, 3, 4]


def test_other_queues_are_not_paused() -> None:
    simulated = filled(1)
    simulated.queue("prices").send(b"7")
    simulated.queue().pause()
    with simulated.queue("prices").subscribe() as consumer:
        assert numbers(consumer.take(1)) == [7]


def test_on_ready_is_not_called_while_paused_and_once_at_the_resume() -> None:
    simulated = filled(0)
    queue, bell = simulated.queue(), CountingCallback()
    with queue.subscribe(on_ready=bell) as consumer:
        assert consumer.take(1) == []
        queue.pause()
        queue.send(b"1")
        queue.send(b"2")
        assert consumer.take(1) == [] and bell.rings == 0
        queue.resume()
        assert bell.rings == 1
        assert numbers(consumer.take(5)) == [1, 2]


def test_resume_of_an_empty_queue_calls_nobody_until_a_message_comes() -> None:
    simulated = filled(0)
    queue, bell = simulated.queue(), CountingCallback()
    with queue.subscribe(on_ready=bell):
        queue.pause()
        queue.resume()
        assert bell.rings == 0
        queue.send(b"1")
        assert bell.rings == 1


def test_consumer_without_credit_has_none_after_the_resume_either() -> None:
    simulated = filled(5)
    queue, bell = simulated.queue(), CountingCallback()
    with queue.subscribe(prefetch=2, on_ready=bell) as consumer:
        rings = bell.rings
        held = consumer.take(2)
        queue.pause()
        queue.resume()
        assert consumer.take(1) == [] and bell.rings == rings
        consumer.ack(held)
        assert numbers(consumer.take(9)) == [2, 3]


def test_pause_and_resume_twice_are_once() -> None:
    simulated = filled(2)
    queue = simulated.queue()
    with queue.subscribe() as consumer:
        queue.resume()
        queue.pause()
        queue.pause()
        assert consumer.take(1) == []
        queue.resume()
        queue.resume()
        assert numbers(consumer.take(9)) == [0, 1]


def test_statistics_say_that_a_queue_is_paused() -> None:
    simulated = filled(1)
    simulated.queue().pause()
    assert simulated.bay.statistics().destinations["orders"].is_paused
    simulated.queue().resume()
    assert not simulated.bay.statistics().destinations["orders"].is_paused


def test_pause_ends_with_the_process() -> None:
    simulated = filled(1)
    simulated.queue().pause()
    simulated.reopen()
    assert not simulated.queue().is_paused
    assert numbers(simulated.queue().subscribe().take(1)) == [0]


def test_closed_store_cannot_be_paused() -> None:
    simulated = filled(1)
    queue = simulated.queue()
    simulated.bay.close()
    for call in (queue.pause, queue.resume):
        with pytest.raises(Closed):
            call()


def test_message_whose_first_waiter_gave_up_goes_to_the_next_one_at_the_resume() -> None:
    """While the queue is paused a message wakes the first, who finds no credit, and whose time is up then."""
    simulated = filled(0)
    queue = simulated.queue()
    queue.send(b"-1")
    with queue.subscribe() as consumer:
        consumer.ack(consumer.take(1))
        [selector_group] = simulated.queue_state("orders").selector_groups.values()
        found: list[list[int]] = []

        consumers = {timeout: queue.subscribe() for timeout in (1.0, 20.0)}

        def take(timeout: float) -> None:
            found.append(numbers(consumers[timeout].take(1, timeout=timeout)))

        threads = [threading.Thread(target=take, args=(timeout,)) for timeout in consumers]
        for count, thread in enumerate(threads, start=1):
            thread.start()
            while selector_group.waiting < count:
                pass
        queue.pause()
        queue.send(b"0")
        simulated.clock.advance(5)
        threads[0].join(30)
        assert found == [[]]
        queue.resume()
        threads[1].join(30)
        assert found == [[], [0]]


@pytest.mark.parametrize("is_late", [False, True], ids=["waits before the pause", "waits during the pause"])
def test_waiting_takes_are_woken_by_the_resume(is_late: bool) -> None:
    """Three threads wait; messages that come meanwhile must reach them, though each woke a take without credit."""
    simulated = filled(0)
    queue = simulated.queue()
    found: list[int] = []

    def take() -> None:
        with queue.subscribe() as consumer:
            deliveries = consumer.take(1, timeout=20.0)
            found.extend(numbers(deliveries))
            consumer.ack(deliveries)

    def waiting() -> int:
        with simulated.lock:
            consumers = list(simulated.queue_state("orders").consumers())
            return sum(bool(consumer.waits._credited._waiting) for consumer in consumers) + sum(  # type: ignore[attr-defined]
                selector_group.waiting for selector_group in simulated.queue_state("orders").selector_groups.values()
            )

    threads = [threading.Thread(target=take) for _ in range(3)]
    if is_late:
        queue.pause()
    for thread in threads:
        thread.start()
    while waiting() < 3:
        pass
    queue.pause()
    queue.send_many(Message(b"%d" % n) for n in range(3))
    assert not found
    queue.resume()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [0, 1, 2]
