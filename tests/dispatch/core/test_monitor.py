"""The sections of an open store: what enters them, and what an exception does to the lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_bay import SimulatedBay

from forebay import Closed, Message, StoreFailed
from forebay.dispatch.core.monitor import Monitor
from forebay.store.environment.clock import SystemClock


def test_a_section_while_open_is_not_entered_once_the_store_is_closed() -> None:
    monitor = Monitor(SystemClock())
    entered: list[str] = []
    with monitor.lock, monitor.while_open:
        entered.append("open")
    monitor.is_closed = True
    with pytest.raises(Closed), monitor.lock, monitor.while_open:
        entered.append("closed")
    assert entered == ["open"]
    assert monitor.lock.failure is None and not monitor.lock.is_owned()


def test_what_breaks_into_a_section_while_open_breaks_the_lock() -> None:
    monitor = Monitor(SystemClock())
    with pytest.raises(KeyboardInterrupt), monitor.lock, monitor.while_open:
        raise KeyboardInterrupt
    assert monitor.lock.failure is not None and not monitor.lock.is_owned()


CALLS: dict[str, Callable[[Any, Any, Any], object]] = {
    "send": lambda queue, consumer, held: queue.send(b"x"),
    "send without the journal": lambda queue, consumer, held: queue.send(b"x", persistent=False),
    "send_many": lambda queue, consumer, held: queue.send_many([Message(b"x")]),
    "take": lambda queue, consumer, held: consumer.take(),
    "ack": lambda queue, consumer, held: consumer.ack(held),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_each_call_of_a_broken_store_raises_an_error_of_its_own(call: Callable[[Any, Any, Any], object]) -> None:
    bay = SimulatedBay()
    queue = bay.queue()
    queue.send(b"x")
    queue.send(b"x", persistent=False)
    consumer = queue.subscribe()
    held = consumer.take()
    with bay.lock:
        bay.lock.break_by(KeyboardInterrupt())
    raised = []
    for _ in range(2):
        with pytest.raises(StoreFailed) as caught:
            call(queue, consumer, held)
        raised.append(caught.value)
    kept = bay.lock.failure
    assert raised[0] is not raised[1] and kept not in raised
    assert kept is not None and kept.__traceback__ is None and "stored" not in vars(kept)
