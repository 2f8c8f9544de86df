"""What another memory limit costs, in calls instead of seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from simulated_bay import SimulatedBay

from forebay import Message


def calls_of(act: Callable[[], object]) -> int:
    """How many functions of the library are called meanwhile."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def filled(messages: int) -> SimulatedBay:
    """A quarter of them in the HeadQueueCache, the others in lists and the PendingCache."""
    bay = SimulatedBay(memory_limit="64MiB")
    bay.queue("idle").send_many(Message(bytes(600)) for _ in range(messages // 4))
    for number in range(3):
        bay.queue(f"q{number}").subscribe()
        bay.queue(f"q{number}").send_many(Message(bytes(600)) for _ in range(messages // 4))
    return bay


def test_a_smaller_limit_takes_a_few_calls_for_each_message_that_goes_and_a_larger_one_none() -> None:
    down: list[int] = []
    up: list[int] = []
    for messages in (8_000, 16_000):
        bay = filled(messages)
        held = bay.bay.statistics().memory.held_bytes
        down.append(calls_of(lambda bay=bay: bay.bay.resize("4MiB")))  # type: ignore[misc]
        given_back = (held - bay.bay.statistics().memory.held_bytes) // 984
        assert given_back > messages // 2
        assert down[-1] < 8 * given_back + 5_000
        up.append(calls_of(lambda bay=bay: bay.bay.resize("64MiB")))  # type: ignore[misc]
        bay.check()
    assert down[1] < 2.5 * down[0], "each message is looked at once"
    assert max(up) < 1_000


@pytest.mark.parametrize("has_consumers", [False, True])
def test_a_smaller_limit_costs_the_same_for_each_of_few_and_of_many_queues(has_consumers: bool) -> None:
    def calls_a_queue(queues: int) -> float:
        bay = SimulatedBay(memory_limit="64MiB")
        for number in range(queues):
            queue = bay.queue(f"q{number}")
            if has_consumers:
                queue.subscribe()
            queue.send_many(Message(bytes(600)) for _ in range(4))
        calls = calls_of(lambda: bay.bay.resize("4MiB"))
        bay.check()
        return calls / queues

    assert calls_a_queue(1600) < 2 * calls_a_queue(800)
