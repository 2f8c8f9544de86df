"""fileno: a descriptor that select can wait for, made when asked for and closed with the consumer."""

from __future__ import annotations

import os
import select
import threading

import pytest
from simulated_bay import SimulatedBay

from forebay import Closed, Consumer, ForebayError, Queue, TooManyFiles
from forebay.dispatch.consumer import ready_signal


def is_readable(consumer: Consumer) -> bool:
    return bool(select.select([consumer], [], [], 0)[0])


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_it_is_readable_from_the_first_message_until_a_take_finds_nothing(queue: Queue) -> None:
    with queue.subscribe() as consumer:
        assert is_readable(consumer), "nobody knows yet whether there is something"
        assert consumer.take() == [] and not is_readable(consumer)
        for _ in range(2):
            queue.send(b"x")
            queue.send(b"x")
            assert is_readable(consumer)
            consumer.ack(consumer.take(1))
            assert is_readable(consumer), "there is more"
            consumer.ack(consumer.take(10))
            assert consumer.take() == [] and not is_readable(consumer)


def test_it_is_made_once_and_wakes_beside_on_ready(queue: Queue) -> None:
    called: list[int] = []

    def on_ready() -> None:
        called.append(1)
        raise ValueError

    with queue.subscribe(on_ready=on_ready) as consumer:
        assert consumer.fileno() == consumer.fileno()
        assert consumer.take() == [] and not is_readable(consumer)
        queue.send(b"x")
        assert called == [1] and is_readable(consumer)


def test_what_comes_back_and_credit_make_it_readable(bay: SimulatedBay, queue: Queue) -> None:
    queue.send(b"x")
    queue.send(b"x")
    with queue.subscribe(prefetch=1) as consumer:
        consumer.fileno()
        held = consumer.take()
        assert consumer.take() == [] and not is_readable(consumer)
        consumer.ack(held)
        assert is_readable(consumer)


def test_who_waits_in_another_thread_is_woken(queue: Queue) -> None:
    with queue.subscribe() as consumer:
        descriptor = consumer.fileno()
        assert consumer.take() == []
        woken: list[bool] = []
        thread = threading.Thread(target=lambda: woken.append(bool(select.select([descriptor], [], [], 60)[0])))
        thread.start()
        queue.send(b"x")
        thread.join(60)
        assert woken == [True]


def test_it_is_closed_with_the_consumer(queue: Queue) -> None:
    consumer = queue.subscribe()
    descriptor = consumer.fileno()
    assert is_open(descriptor)
    consumer.close()
    consumer.close()
    assert not is_open(descriptor)
    with pytest.raises(Closed):
        consumer.fileno()


@pytest.mark.parametrize("end", ["delete", "close"])
def test_the_end_of_queue_or_store_makes_it_readable_for_ever(bay: SimulatedBay, queue: Queue, end: str) -> None:
    consumer = queue.subscribe()
    descriptor = consumer.fileno()
    assert consumer.take() == [] and not is_readable(consumer)
    if end == "delete":
        queue.delete()
    else:
        bay.bay.close()
    assert select.select([descriptor], [], [], 0)[0], "whoever waits has to hear of it"
    with pytest.raises(Closed):
        consumer.take()
    consumer.close()
    assert not is_open(descriptor)


def test_many_rings_fill_nothing(queue: Queue) -> None:
    signal = ready_signal.ReadySignal()
    for _ in range(10_000):
        signal.ring()
    assert select.select([signal], [], [], 0)[0]
    signal.clear()
    assert not select.select([signal], [], [], 0)[0]
    signal.close()
    signal.ring()
    signal.clear()
    signal.stay_ready()


def test_without_descriptors_it_says_so_and_the_consumer_goes_on(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(24, "Too many open files")

    queue.send(b"x")
    with queue.subscribe() as consumer:
        with monkeypatch.context() as patched:
            patched.setattr("socket.socketpair", none_left)
            with pytest.raises(TooManyFiles) as caught:
                consumer.fileno()
        assert isinstance(caught.value, ForebayError)
        assert is_readable(consumer)
        consumer.ack(consumer.take())
        assert consumer.take() == [] and not is_readable(consumer)
