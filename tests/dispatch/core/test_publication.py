"""With sync="always" nobody sees a message that a power cut could still take back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread

import pytest
from simulated_bay import SimulatedBay

from forebay import Consumer, Message, Queue

SECONDS_MAX = 30


@pytest.fixture
def bay() -> SimulatedBay:
    return SimulatedBay(sync="always")


def taken(consumer: Consumer) -> list[bytes]:
    return [delivery.body for delivery in consumer.take(10)]


def before_each_sync(bay: SimulatedBay, look: Callable[[], None]) -> None:
    bay.disk.on_call = lambda call, name: look() if call == "sync" else None


@pytest.mark.parametrize("batch", [1, 2])
def test_message_is_delivered_once_its_sync_has_returned_and_not_before(
    bay: SimulatedBay, queue: Queue, batch: int
) -> None:
    bodies = [b"%d" % number for number in range(batch)]
    found: list[list[bytes]] = []
    with queue.subscribe() as consumer:
        before_each_sync(bay, lambda: found.append(taken(consumer)))
        if batch == 1:
            queue.send(bodies[0])
        else:
            queue.send_many(map(Message, bodies))
        assert found == [[]]
        assert taken(consumer) == bodies


def test_slice_waits_for_the_sync_though_the_batch_goes_on(queue: Queue) -> None:
    found: list[list[bytes]] = []
    with queue.subscribe() as consumer:

        def messages() -> Iterator[Message]:
            yield Message(b"a slice of its own", priority=9)
            yield Message(b"the next one")
            found.append(taken(consumer))

        queue.send_many(messages())
        assert found == [[]]
        assert taken(consumer) == [b"a slice of its own", b"the next one"]


@pytest.mark.parametrize("first", [2, 256, 300])
def test_what_needs_no_sync_does_not_overtake_what_came_before_it_in_a_batch(queue: Queue, first: int) -> None:
    """Wherever a slice ends."""
    batch = [Message(b"%d" % number, persistent=number < first or number % 3 != 2) for number in range(first + 5)]
    batch[first].persistent = False
    queue.send_many(batch)
    assert [message.body for message in queue.browse()] == [message.body for message in batch]
    with queue.subscribe() as consumer:
        found: list[bytes] = []
        while part := taken(consumer):
            found += part
        assert found == [message.body for message in batch]


def test_what_is_written_during_a_sync_waits_for_the_next(bay: SimulatedBay, queue: Queue) -> None:
    """Two threads send: the second one writes while the first one's sync is under way."""
    writing, looked = Event(), Event()
    first, second = current_thread(), Thread(target=queue.send, args=(b"during the sync",))

    def meet(call: str, name: str) -> None:
        if current_thread() is not first:
            if call == "write":
                writing.set()
            assert call != "sync" or looked.wait(SECONDS_MAX)
        elif call == "sync":
            second.start()
            assert writing.wait(SECONDS_MAX)
            with bay.lock:
                pass  # it was held from before the write until the message waits for its sync

    with queue.subscribe() as consumer:
        bay.disk.on_call = meet
        try:
            queue.send(b"before the sync")
            assert taken(consumer) == [b"before the sync"]
        finally:
            looked.set()
        second.join()
        assert taken(consumer) == [b"during the sync"]
