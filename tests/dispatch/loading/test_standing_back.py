"""The loader leaves lists to consumers that never pause, and to no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from compiled import interpreted
from inside import inside
from simulated_bay import SimulatedBay

import forebay
import forebay.aio
from forebay import Consumer, Message
from forebay.dispatch.core.areas import consumer_trials
from forebay.dispatch.core.areas.consumer_trials import (
    FED_SECONDS,
    FED_SECONDS_MAX,
    JUDGED_SECONDS,
    LOOK_SECONDS,
    TRIAL_SECONDS,
)
from forebay.dispatch.core.model.destination import TargetList

BODY = bytes(1024)
BATCH = 1000
TURN_SECONDS = TRIAL_SECONDS / 5
"""What a consumer needs for a turn."""
PASSED = round(JUDGED_SECONDS / TURN_SECONDS) + 1
"""Turns behind which who passed is judged again."""
PATIENCE = 1000
"""Looks, of 10 ms each, before a thread is given up."""


class Drain:
    """A backlog, a consumer of it, and a loader whose every turn a test gives."""

    def __init__(self, messages: int = 40_000, selector: str | None = None, *, has_loader: bool = True) -> None:
        self.bay = SimulatedBay(memory_limit="4MiB")
        queue = self.bay.queue()
        queue.send_many(Message(BODY, {"n": number}) for number in range(messages))
        self.bay.reopen()  # so that no cache has anything
        self.queue = self.bay.queue()
        self.left = self.bay.loads
        if has_loader:
            self.bay.let_loader_stand_back(self.bay.clock)
        self.consumer = self.queue.subscribe(selector=selector)
        self.taken: list[str] = []

    @property
    def target(self) -> TargetList:
        return next(iter(self.consumer.selector_group.lists))

    @property
    def is_left(self) -> bool:
        return self.target in self.left.left_alone

    def compute(self, seconds: float, share: float = 1.0, others: float = 0.0) -> None:
        """The consumer's thread computes for that share of the time, and others of the process as said."""
        clock = self.bay.clock
        clock.advance(seconds)
        own, all_of_it = clock.computed
        clock.computed = own + share * seconds, all_of_it + (share + others) * seconds

    def turn(self, share: float = 1.0, others: float = 0.0) -> bool:
        """The consumer takes faster than the loader loads; whether that had something to load."""
        loads = self.bay.loader.step()
        for _ in range(2):
            deliveries = self.consumer.take(BATCH)
            self.taken += [delivery.id for delivery in deliveries]
            self.consumer.ack(deliveries)
        self.compute(TURN_SECONDS, share, others)
        return loads

    def until(self, reached: Callable[[], bool], share: float = 1.0, turns: int = 200) -> None:
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
    loads = drain.bay.loader.durations.count
    assert not any(drain.turn() for _ in range(20)), "the loader has nothing to do"
    assert drain.bay.loader.durations.count > loads, "the consumer loads"
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
    drain.until(lambda: not drain.is_left, share=0.8, turns=8)
    assert drain.turn(0.8), "the loader loads again"


def test_one_that_begins_to_pause_is_served_again() -> None:
    drain = steady()
    drain.until(lambda: not drain.is_left, share=0.7, turns=2 * PASSED)
    assert drain.turn(0.7)


def test_a_short_pause_among_many_turns_changes_nothing() -> None:
    drain = steady()
    for _ in range(3):
        drain.turn(share=0.0)
        for _ in range(PASSED):
            drain.turn()
    assert drain.is_left


def test_where_others_compute_in_its_pauses_the_loader_would_gain_nothing() -> None:
    drain = steady()
    for _ in range(PASSED):
        drain.turn(share=0.7, others=0.3)
    assert drain.is_left
    for _ in range(PASSED + PASSED // 2):
        if not drain.is_left:
            break
        drain.turn(share=0.1, others=0.9)
    assert not drain.is_left, "but where it mostly waits, it is served"
    assert drain.queue.depth > 2_000


def left_by_the_loader() -> Drain:
    """It keeps up, and never fills the list."""
    drain = Drain()
    while drain.bay.loader.step():
        pass
    for _ in range(200):
        while drain.target.direct_bytes > drain.target.low_watermark_bytes * 3 // 4:
            drain.consumer.ack(drain.consumer.take(50))
        drain.bay.loader.step()
        if drain.is_left:
            break
    assert drain.is_left and not drain.consumer.statistics().misses
    return drain


@pytest.mark.parametrize("most", [1, 20])
def test_a_consumer_that_misses_nothing_is_judged_before_it_does(most: int) -> None:
    drain = left_by_the_loader()
    while drain.is_left:
        drain.consumer.ack(drain.consumer.take(most))
        drain.compute(TURN_SECONDS, share=0.5)
    assert not drain.consumer.statistics().misses


def test_a_list_that_is_nearly_empty_is_loaded_for_until_a_take_misses() -> None:
    drain = Drain()
    drain.target.loaded_bytes = 3 * drain.target.high_watermark_bytes
    assert drain.bay.loader.step() and not drain.is_left
    drain.consumer.take(BATCH)
    drain.consumer.take(BATCH)
    assert drain.is_left


def test_the_thread_that_loads_is_woken_to_look() -> None:
    drain = Drain()
    woken: list[bool] = []
    drain.bay.loads.wake_loader = lambda: woken.append(drain.is_left)
    drain.until(lambda: drain.is_left)
    assert woken[-1]


def test_the_rest_of_a_backlog_that_fits_into_the_list_is_the_loaders() -> None:
    drain = Drain(8_000)
    drain.until(lambda: drain.is_left)
    drain.until(lambda: not drain.is_left)
    assert 0 < drain.queue.depth < 1_000


def test_one_message_at_a_time_is_judged_as_well() -> None:
    drain = Drain()
    drain.until(lambda: drain.is_left)
    for _ in range(3000):
        for delivery in drain.consumer.take(1):
            drain.consumer.ack(delivery)
        drain.compute(TURN_SECONDS / 100, share=0.5)
        if not drain.is_left:
            break
    assert not drain.is_left


def test_taking_one_at_a_time_calls_the_loader_where_the_list_is_its() -> None:
    drain = Drain()
    while drain.bay.loader.step():
        pass
    while drain.target.direct_bytes >= drain.target.low_watermark_bytes:
        drain.consumer.ack(drain.consumer.take(1))
    assert drain.bay.loader.step()


def test_after_a_pause_there_is_no_trial_for_a_while_and_each_time_longer() -> None:
    drain = Drain()
    for doubled in (1, 2, 4):
        drain.until(lambda: drain.is_left, share=0.8)
        drain.until(lambda: not drain.is_left, share=0.8, turns=8)
        for _ in range(10):
            drain.turn()
            assert not drain.is_left
        drain.compute(doubled * FED_SECONDS - 13 * TURN_SECONDS)
        drain.turn()
        assert not drain.is_left
        drain.compute(3 * TURN_SECONDS)
    drain.until(lambda: drain.is_left)
    for _ in range(10):
        drain.turn()
    drain.until(lambda: not drain.is_left, share=0.5, turns=2 * PASSED)
    drain.compute(FED_SECONDS)
    drain.turn()
    assert not drain.is_left, "much must be loaded for it once more"
    drain.until(lambda: drain.is_left, turns=20)


def test_who_always_pauses_is_on_trial_once_a_minute_at_least() -> None:
    drain = steady()
    for _ in range(20):
        drain.left.trials.end(drain.target)
        drain.left.leave(drain.target)
    drain.left.trials.end(drain.target)
    drain.compute(FED_SECONDS_MAX)
    drain.until(lambda: drain.is_left)


def test_a_list_that_nobody_takes_from_any_more_is_fed() -> None:
    drain = steady()
    loader = drain.bay.loader
    drain.compute(LOOK_SECONDS)
    assert not loader.step() and drain.is_left, "somebody took since the last look"
    drain.compute(LOOK_SECONDS / 2)
    assert not loader.step() and drain.is_left, "it is not time"
    drain.compute(LOOK_SECONDS)
    assert loader.step() and not drain.is_left
    while loader.step():
        pass
    assert drain.target.direct_bytes > drain.target.low_watermark_bytes
    drain.bay.check()


def test_the_loader_looks_also_while_it_has_other_lists_to_load_for() -> None:
    drain = steady()
    other = drain.bay.queue("others")
    other.send_many(Message(BODY, {"n": number}) for number in range(20_000))
    other.subscribe(selector="n < 0")  # a long scan that finds nothing
    for _ in range(5):
        assert drain.bay.loader.step()
        drain.compute(LOOK_SECONDS)
    assert not drain.is_left


def test_a_consumer_whose_list_the_loader_fills_is_never_on_trial() -> None:
    drain = Drain()
    for _ in range(200):
        drain.turn()
        while drain.bay.loader.step():
            pass
        assert not drain.is_left


def test_a_backlog_that_fits_into_the_list_is_never_left() -> None:
    """The loader catches up with it, and then what is sent goes straight into the list."""
    drain = Drain(400)
    for _ in range(100):
        drain.queue.send_many(Message(BODY) for _ in range(50))
        drain.turn()
        assert not drain.is_left


def test_without_a_thread_that_loads_nothing_is_left() -> None:
    drain = Drain(has_loader=False)
    for _ in range(200):
        drain.turn()
        assert not drain.is_left


@pytest.mark.parametrize("selector", ["n >= 0", "n = 7 OR n > 30000"], ids=["all match", "few match"])
def test_the_list_of_a_selector_that_is_alone_is_left_like_any_other(selector: str) -> None:
    drain = Drain(selector=selector)
    drain.until(lambda: drain.is_left)
    drain.bay.check()


def test_a_take_that_gives_up_a_long_search_has_the_loader_go_on_with_it() -> None:
    drain = Drain(selector="n = 7 OR n = 39999")
    drain.consumer.ack(drain.consumer.take(1))
    drain.left.leave(drain.target)
    assert not drain.bay.loader.step(), "the list is its consumer's"
    drain.compute(LOOK_SECONDS)
    assert not drain.consumer.take(1), "a take without a timeout examines one piece"
    while drain.bay.loader.step():
        pass
    assert not drain.is_left and drain.target.direct, "the loader has found the last one"


def test_where_threads_compute_at_the_same_time_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    drain = Drain()
    for _ in range(200):
        drain.turn()
        assert not drain.is_left


def test_who_is_called_when_something_is_ready_may_be_an_event_loop() -> None:
    drain = Drain()
    drain.consumer.close()
    drain.consumer = drain.queue.subscribe(on_ready=lambda: None)
    for _ in range(200):
        drain.turn()
        assert not drain.is_left


@pytest.mark.parametrize(
    "comes",
    [
        lambda queue: queue.subscribe(selector="n < 0"),
        lambda queue: queue.subscribe(on_ready=lambda: None),
        lambda queue: queue.send(BODY, persistent=False),
        lambda queue: queue.subscribe(priority=1),
    ],
    ids=["another_selector_group", "an_event_loop", "a_twin", "a_dealer"],
)
def test_the_list_is_fed_as_soon_as_others_have_to_do_with_it(comes: Callable[[forebay.Queue], object]) -> None:
    drain = steady()
    comes(drain.queue)
    drain.compute(2 * LOOK_SECONDS)
    drain.bay.loader.step()
    assert not drain.left.left_alone
    drain.bay.check()


def test_another_thread_that_takes_must_be_judged_itself() -> None:
    drain = steady()
    thread = threading.Thread(target=drain.turn)
    thread.start()
    thread.join()
    assert not drain.is_left


def test_what_is_left_is_forgotten_with_its_list() -> None:
    drain = steady()
    drain.left.trials.end(drain.target)
    drain.left.leave(drain.target)
    drain.consumer.close()
    assert not drain.left.left_alone and not drain.left.trials.feed_periods
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


# With threads.


def taken_until_left(consumer: Consumer) -> None:
    """The first miss is enough, where no list need be filled before."""
    left = inside(consumer).loads
    for _ in range(200):
        consumer.ack(consumer.take(1000, timeout=10.0))
        if left.left_alone:
            return
    pytest.fail("nothing was left")


@interpreted("replaces what compiled code has linked")
def test_the_loaders_thread_feeds_a_list_that_nobody_takes_from(tmp_path: Path) -> None:
    with (
        patch.object(consumer_trials, "FILLS_MAX", 0),
        forebay.open(tmp_path / "data", memory_limit="4MiB", sync="never") as bay,
    ):
        queue = bay.queue("orders")
        queue.send_many(Message(BODY) for _ in range(20_000))
        with queue.subscribe() as consumer:
            taken_until_left(consumer)
            target = next(iter(consumer.selector_group.lists))
            for _ in range(PATIENCE):
                if target.direct_bytes > target.low_watermark_bytes:
                    break
                threading.Event().wait(LOOK_SECONDS)
            assert target.direct_bytes > target.low_watermark_bytes


def test_a_consumer_of_an_event_loop_does_not_count_as_a_thread(tmp_path: Path) -> None:
    async def subscribe() -> None:
        async with forebay.aio.open(tmp_path / "data", memory_limit="4MiB", sync="never") as bay:
            queue = await bay.queue("orders")
            async with await queue.subscribe() as consumer:
                assert not consumer._consumer.is_polling

    asyncio.run(subscribe())
