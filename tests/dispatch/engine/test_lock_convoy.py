"""Who has waited for the lock steps aside after its section, so that two busy threads take turns of many messages."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from compiled import interpreted

import forebay
from forebay.dispatch.core.monitor import ASIDE_SECONDS
from forebay.store.disk.memory_disk import MemoryDisk
from forebay.store.environment.manual_clock import ManualClock


class WatchedClock(ManualClock):
    """Notes who stepped aside."""

    def __init__(self) -> None:
        super().__init__(0)
        self.aside: list[str] = []

    def wait(self, waiter: threading.Lock, seconds: float) -> bool:
        if seconds == ASIDE_SECONDS:
            self.aside.append(threading.current_thread().name)
            return False
        return super().wait(waiter, seconds)


def calls(bay: forebay.Forebay) -> dict[str, Callable[[], object]]:
    queue = bay.queue("orders")
    queue.send(b"x")
    consumer = queue.subscribe()
    [delivery] = consumer.take()
    return {
        "_store_persistent": lambda: queue.send(b"x"),
        "_store_non_persistent": lambda: queue.send(b"x", persistent=False),
        "ack": lambda: consumer.ack(delivery),
    }


CALLS = ["_store_persistent", "_store_non_persistent", "ack"]


def in_between(function: str, do: Callable[[], object]) -> Callable[[FrameType, str, object], Any]:
    """Return a trace that does it once, where the function is about to ask whether its thread has the lock."""
    is_done = False

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal is_done
        if frame.f_code.co_name == function and "entries" in frame.f_locals and not is_done:
            is_done = True
            do()
        return trace

    return trace


@interpreted("another thread comes between the lines of what is called")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_before_which_another_message_passed_steps_aside_once(name: str) -> None:
    clock = WatchedClock()
    with forebay.open(disk=MemoryDisk(), memory_limit="4MiB", sync="never", background=False, clock=clock) as bay:
        call = calls(bay)[name]

        def another() -> None:
            thread = threading.Thread(target=bay.queue("invoices").send, args=(b"y",), name="another")
            thread.start()
            thread.join()

        sys.settrace(in_between(name, another))
        try:
            call()
        finally:
            sys.settrace(None)
        assert bay.queue("invoices").depth == 1
        assert clock.aside == ["MainThread"]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_found_the_lock_free_does_not(name: str) -> None:
    clock = WatchedClock()
    with forebay.open(disk=MemoryDisk(), memory_limit="4MiB", sync="never", background=False, clock=clock) as bay:
        calls(bay)[name]()
        assert clock.aside == []
