"""Whoever goes on when, nothing is lost, doubled or charged above the limit, and nobody waits for ever.

One interleaving is one seed: the failure names it, and the same seed gives the same turns again.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from random import Random

import pytest
from compiled import interpreted
from interleaved_traffic import InterleavedTraffic
from interleavings import Condition, Lock, Schedule, Stuck, Thread, Turns, any_thread, by_priority

from forebay.testing import ManualClock

pytestmark = interpreted("puts other locks, conditions and threads in the place of the store's")
"""Compiled code has linked its locks, conditions and threads, and can't be stepped through by lines."""

SEEDS = 100
"""Seeds of each ordinary part."""
PARTS = 4
SEEDS_BY_LINE = 15
PARTS_BY_LINE = 2
SOAK_PARTS = 100
SOAK_SEEDS = 950
SOAK_SEEDS_BY_LINE = 50


def run(seeds: range, *, by_line: bool = False) -> None:
    for seed in seeds:
        try:
            InterleavedTraffic(seed, by_line=by_line).run()
        except BaseException as error:
            error.add_note(f"again: InterleavedTraffic({seed}, by_line={by_line}).run()")
            raise


def part(number: int, seeds: int) -> range:
    return range(number * seeds, (number + 1) * seeds)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_whoever_goes_on_at_locks_waits_and_calls_of_the_disk(number: int) -> None:
    run(part(number, SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS_BY_LINE))
def test_whoever_goes_on_between_two_lines_of_the_library(number: int) -> None:
    run(part(number, SEEDS_BY_LINE), by_line=True)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(SOAK_PARTS))
def test_a_hundred_thousand_interleavings(number: int) -> None:
    run(part(1000 + number, SOAK_SEEDS))
    run(part(1000 + number, SOAK_SEEDS_BY_LINE), by_line=True)


@pytest.mark.parametrize("by_line", [False, True])
def test_the_same_seed_gives_the_same_turns(by_line: bool) -> None:
    def run_once(seed: int) -> InterleavedTraffic:
        gc.collect()  # a store that nobody holds any more is still there until then, and a lock asks each of them
        traffic = InterleavedTraffic(seed, by_line=by_line)
        traffic.run()
        return traffic

    for seed in range(5):
        run_once(seed)  # what a process does once only, such as filling the cache of selectors, is done
        first, again = run_once(seed), run_once(seed)
        assert first.turns.order == again.turns.order and first.turns.steps == again.turns.steps


# What finds all that is tested itself.

SCHEDULES: dict[str, Callable[[Random], Schedule]] = {
    "any thread": lambda random: any_thread(random, 0.3),
    "by priority": lambda random: by_priority(random, changes=2, steps=10),
}


def failures(make: Callable[[Turns], tuple[Callable[[], object], ...]], schedule: str) -> list[AssertionError]:
    """What goes wrong in 100 runs of the threads that make gives."""
    found = []
    for seed in range(100):
        random = Random(seed)
        turns = Turns(random, SCHEDULES[schedule](random), ManualClock())

        def main(turns: Turns = turns) -> None:
            threads = [Thread(turns, target=work) for work in make(turns)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        try:
            turns.run(main)
        except AssertionError as error:
            found.append(error)
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_locks_taken_in_both_orders_are_found_and_told_with_who_has_which(schedule: str) -> None:
    def make(turns: Turns) -> tuple[Callable[[], object], ...]:
        first, second = Lock(turns), Lock(turns)

        def work(one: Lock, other: Lock) -> None:
            with one, other:
                pass

        return lambda: work(first, second), lambda: work(second, first)

    found = failures(make, schedule)
    assert 0 < len(found) < 100
    assert isinstance(found[0], Stuck)
    assert re.search(
        "thread 1 in .* waits for the lock of test_interleavings.py:[0-9]+, which thread 2 has", str(found[0])
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_that_was_notified_before_it_began_is_found(schedule: str) -> None:
    def make(turns: Turns) -> tuple[Callable[[], object], ...]:
        lock = Lock(turns)
        condition, is_there = Condition(turns, lock), list[bool]()

        def wait() -> None:
            if not is_there:  # and without the lock
                with lock:
                    condition.wait()

        def give() -> None:
            with lock:
                is_there.append(True)
                condition.notify()

        return wait, give

    found = failures(make, schedule)
    assert 0 < len(found) < 100
    assert "waits for the condition of test_interleavings.py" in str(found[0])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_was_looked_at_before_the_lock_was_given_back_is_found(schedule: str) -> None:
    def make(turns: Turns) -> tuple[Callable[[], object], ...]:
        lock, counts = Lock(turns), [0]

        def count() -> None:
            with lock:
                seen = counts[0]
            with lock:
                counts[0] = seen + 1

        def check() -> None:
            first.join()
            second.join()
            assert counts == [2]

        first, second = Thread(turns, target=count), Thread(turns, target=count)
        return first.start, second.start, check

    assert 0 < len(failures(make, schedule)) < 100


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_what_is_right_is_right_in_each_order(schedule: str) -> None:
    def make(turns: Turns) -> tuple[Callable[[], object], ...]:
        lock = Lock(turns)
        condition, stock = Condition(turns, lock), list[int]()

        def take() -> None:
            with lock:
                while not stock:
                    condition.wait()
                stock.pop()

        def give() -> None:
            with lock:
                stock.append(1)
                condition.notify()

        return take, take, give, give

    assert not failures(make, schedule)


def test_time_passes_only_when_nobody_can_go_on() -> None:
    def make(turns: Turns) -> tuple[Callable[[], object], ...]:
        lock = Lock(turns)
        condition = Condition(turns, lock)

        def wait(seconds: float) -> None:
            with lock:
                assert not condition.wait(seconds)
                assert turns.clock.monotonic() == seconds

        def work() -> None:
            for _ in range(10):
                turns.pause()
                assert turns.clock.monotonic() == 0.0

        return lambda: wait(2.0), lambda: wait(1.0), work

    assert not failures(make, "any thread")
