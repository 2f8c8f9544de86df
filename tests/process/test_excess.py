"""Excess: what a look costs a process at work is told from its work, whatever the machine does meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from forebay.benchmarks.excess import Slices, Spent, estimate

SLICE_SECONDS = 0.001


def at_work(messages_per_slice: Callable[[float], int], seconds_per_message: Callable[[float], float]) -> Slices:
    """Work for three seconds; from 1.5 on a hundredth is spent on serving, in which nothing is passed for a while."""
    slices, messages, worker, serving = Slices(), 0, 0.0, 0.0
    for number in range(3_000):
        time = number * SLICE_SECONDS
        passed = messages_per_slice(time)
        messages += passed
        worker += passed * seconds_per_message(time)
        if 1.5 <= time < 1.51:
            serving += SLICE_SECONDS
            worker += SLICE_SECONDS / 2
        slices.add(time, messages, Spent(worker, time / 100, serving))
    return slices


def test_what_is_spent_around_a_moment_is_told_from_the_work() -> None:
    found = at_work(lambda time: 400, lambda time: 2e-6).excess(1.45, 1.6)
    assert found.serving == pytest.approx(0.01, abs=1e-4)
    assert found.worker == pytest.approx(0.005, abs=1e-4)
    assert found.background == pytest.approx(0.0, abs=1e-6), "it goes on all the time"


def test_fewer_messages_than_around_it_are_no_cost_by_themselves() -> None:
    found = at_work(lambda time: 200 if 1.45 < time < 1.6 else 400, lambda time: 2e-6).excess(1.45, 1.6)
    assert found.worker == pytest.approx(0.005, abs=1e-4)


def test_machine_that_grows_slower_all_the_time_is_no_cost() -> None:
    found = at_work(lambda time: 400, lambda time: 2e-6 * (1 + time)).excess(2.0, 2.15)
    assert found.worker == pytest.approx(0.0, abs=1e-5)


def test_moment_at_the_end_of_the_work_is_compared_with_what_there_was() -> None:
    slices = at_work(lambda time: 400, lambda time: 2e-6)
    for begin, end in ((-1.0, 0.2), (2.9, 4.0)):
        assert slices.excess(begin, end).worker == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(("count", "below"), [(6, 0), (10, 8), (20, 52)])
def test_interval_leaves_out_as_many_means_as_wilcoxon_s_table_says(count: int, below: int) -> None:
    differences = [float(2**number) for number in range(count)]
    means = sorted((one + other) / 2 for at, one in enumerate(differences) for other in differences[at:])
    found = estimate(differences)
    assert (found.low, found.high) == (means[below], means[-1 - below])


def test_few_differences_have_no_interval() -> None:
    assert estimate([1.0, 2.0, 3.0]) == (2.0, -inf, inf)


def test_one_difference_far_off_hardly_moves_the_middle() -> None:
    assert estimate([1.0] * 20 + [500.0]).middle == 1.0
