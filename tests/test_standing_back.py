"""Standing back: the loader leaves lists to consumers that never pause, and to nobody else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forebay import Consumer, Message
from forebay.dispatch.standing_back import FED_SECONDS, JUDGED_SECONDS
from forebay.dispatch.target_list import TargetList
from simulated_bay import SimulatedBay

BODY = bytes(1024)
BATCH = 1000
TURN_SECONDS = JUDGED_SECONDS / 5
"""What a consumer needs for a turn."""


class Drain:
    """A backlog, a consumer of it, and a loader whose every turn a test gives."""

    def __init__(self, messages: int = 40_000, selector: str | None = None, *, has_loader: bool = True) -> None:
        self.bay = SimulatedBay(memory_limit="4MiB")
        queue = self.bay.queue()
        queue.send_many(Message(BODY, {"n": number}) for number in range(messages))
        self.bay.reopen()  # so that no cache has anything
        self.queue = self.bay.queue()
        self.left = self.bay.engine.targets.standing_back
        if has_loader:
            self.left.switch_on(self.bay.clock)
        self.consumer = self.queue.subscribe(selector=selector)
        self.taken: list[str] = []
        self.is_paused = False

    @property
    def target(self) -> TargetList:
        return next(iter(self.consumer.interest.lists))

    @property
    def is_left(self) -> bool:
        return self.target in self.left.lists

    def compute(self, seconds: float, share: float = 1.0, others: float = 0.0) -> None:
        """The consumer's thread computes for that share of the time, and others of the process as said."""
        clock = self.bay.clock
        clock.advance(seconds)
        own, all_of_it = clock.computed
        clock.computed = own + share * seconds, all_of_it + (share + others) * seconds

    def turn(self, share: float = 1.0, others: float = 0.0) -> bool:
        """The consumer takes faster than the loader loads; whether that had something to load."""
        loads = self.bay.engine.loader.step()
        for _ in range(2):
            deliveries = self.consumer.take(BATCH)
            self.taken += [delivery.id for delivery in deliveries]
            self.consumer.ack(deliveries)
        self.compute(TURN_SECONDS, share, others)
        return loads

    def until(self, reached: Callable[[], bool], share: float = 1.0, turns: int = 300) -> None:
        for _ in range(turns):
            if reached():
                return
            self.turn(share)
        pytest.fail("it never came to that")


def steady() -> Drain:
    """One whose list was left to it, and stays so."""
    drain = Drain()
    drain.until(lambda: drain.is_left)
    for _ in range(20):
        drain.turn()
    assert drain.is_left
    return drain


def test_a_consumer_that_never_pauses_loads_for_itself() -> None:
    drain = steady()
    loads = drain.bay.engine.loader.loads
    assert not any(drain.turn() for _ in range(20)), "the loader has nothing to do"
    assert drain.bay.engine.loader.loads > loads, "the consumer loads"
    drain.bay.check()


def test_all_of_it_comes_in_order() -> None:
    drain = Drain(20_000)
    drain.until(lambda: drain.queue.depth == 0)
    assert [int(name.rpartition("-")[2]) for name in drain.taken] == sorted(
        int(name.rpartition("-")[2]) for name in drain.taken
    )
    assert len(set(drain.taken)) == 20_000
    drain.bay.check()


def test_a_consumer_that_pauses_is_served_by_the_loader() -> None:
    drain = Drain()
    drain.until(lambda: drain.is_left, share=0.8)
    drain.until(lambda: not drain.is_left, share=0.8, turns=15)
    assert drain.turn(0.8), "the loader loads again"


def test_one_that_begins_to_pause_is_served_again() -> None:
    drain = steady()
    drain.until(lambda: not drain.is_left, share=0.5, turns=15)
    assert drain.turn(0.5)


def test_one_pause_among_many_turns_changes_nothing() -> None:
    drain = steady()
    for _ in range(5):
        drain.turn(share=0.0)
        for _ in range(12):
            drain.turn()
    assert drain.is_left


def test_where_others_compute_in_its_pauses_the_loader_would_gain_nothing() -> None:
    drain = steady()
    for _ in range(30):
        drain.turn(share=0.7, others=0.3)
    assert drain.is_left
    for _ in range(30):
        drain.turn(share=0.3, others=0.7)
    assert not drain.is_left, "but where it mostly waits, it is served"


def test_after_a_pause_there_is_no_trial_for_a_while_and_each_time_longer() -> None:
    drain = Drain()
    gaps = []
    for _ in range(3):
        drain.until(lambda: drain.is_left, share=0.8)
        drain.until(lambda: not drain.is_left, share=0.8, turns=15)
        gaps.append(drain.target.fed_until - drain.bay.clock.monotonic())
        for _ in range(10):
            drain.turn()
            assert not drain.is_left
        drain.compute(gaps[-1])
    assert gaps == pytest.approx([FED_SECONDS, 2 * FED_SECONDS, 4 * FED_SECONDS], abs=2 * TURN_SECONDS)


def test_a_list_that_nobody_takes_from_any_more_is_fed() -> None:
    drain = steady()
    with drain.bay.engine.lock:
        drain.left.look()
        assert drain.is_left, "somebody took since the last look"
        drain.left.look()
    assert not drain.is_left
    while drain.bay.engine.loader.step():
        pass
    assert drain.target.direct_bytes > drain.target.low_watermark_bytes
    drain.bay.check()


def test_a_consumer_whose_list_the_loader_fills_is_never_on_trial() -> None:
    drain = Drain()
    for _ in range(200):
        drain.turn()
        while drain.bay.engine.loader.step():
            pass
        assert not drain.is_left


@pytest.mark.parametrize("drain", [Drain(selector="n >= 0"), Drain(has_loader=False)], ids=["selector", "no_thread"])
def test_with_a_selector_or_without_a_thread_that_loads_nothing_is_left(drain: Drain) -> None:
    for _ in range(200):
        drain.turn()
        assert not drain.is_left


def test_who_takes_in_an_event_loop_has_its_loads_done_by_others() -> None:
    drain = Drain()
    drain.consumer.is_synchronous = False
    for _ in range(200):
        drain.turn()
        assert not drain.is_left


def test_a_second_interest_ends_it() -> None:
    drain = steady()
    other: Consumer = drain.queue.subscribe(selector="n < 0")
    for _ in range(15):
        drain.turn()
    assert not drain.is_left
    other.close()
    drain.bay.check()


def test_what_is_left_is_forgotten_with_its_list() -> None:
    drain = steady()
    drain.consumer.close()
    assert not drain.left.lists
    drain.bay.check()
    again = drain.queue.subscribe()
    assert again.take(BATCH)


def test_a_purge_and_another_limit_find_such_a_list_as_any_other() -> None:
    drain = steady()
    drain.bay.bay.resize("8MiB")
    drain.turn()
    drain.bay.check()
    drain.queue.purge()
    assert drain.queue.depth == 0
    drain.queue.send(BODY)
    assert len(drain.consumer.take(BATCH)) == 1
    drain.bay.check()
