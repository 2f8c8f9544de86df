"""SequenceSet: a set of whole numbers that never keeps two runs where one would do."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from forebay.store.structures.sequence_set import RUN_BYTES, SequenceSet

LARGEST = 2**63 - 1


def runs_of(*pairs: tuple[int, int]) -> SequenceSet:
    runs = SequenceSet()
    for first, last in pairs:
        runs.add(first, last)
        runs._check()
    return runs


def as_runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the runs that a SequenceSet should hold for these numbers, computed the slow way."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def test_an_empty_set_is_false_and_costs_nothing() -> None:
    runs = SequenceSet()
    assert not runs and runs.run_count == runs.count == runs.held_bytes == 0
    assert 0 not in runs and runs.next_from(0) is None
    runs.remove(0, LARGEST)
    runs._check()


def test_ten_million_consecutive_numbers_cost_what_one_costs() -> None:
    assert runs_of((0, 9_999_999)).held_bytes == runs_of((0, 0)).held_bytes == RUN_BYTES


def test_the_last_number_up_to_another_is_in_the_run_before_it_or_around_it() -> None:
    runs = runs_of((3, 7), (20, 30))
    asked = (2, 3, 5, 7, 19, 20, 25, LARGEST)
    assert [runs.last_up_to(number) for number in asked] == [None, 3, 5, 7, 7, 20, 25, 30]
    assert SequenceSet().last_up_to(5) is None


def test_coarsening_fills_the_smaller_half_of_the_gaps_and_no_more_if_they_are_alike() -> None:
    runs = runs_of((0, 0), (2, 2), (10, 10), (13, 13))
    runs.coarsen()
    runs._check()
    assert list(runs) == [(0, 2), (10, 13)]
    runs = runs_of(*((number, number) for number in range(0, 20, 2)))
    runs.coarsen()
    runs._check()
    assert list(runs) == [(0, 10), (12, 12), (14, 14), (16, 16), (18, 18)]


def test_touching_runs_become_one() -> None:
    assert list(runs_of((0, 1), (4, 5), (2, 3))) == [(0, 5)]
    assert list(runs_of((5, 9), (0, 4))) == [(0, 9)]
    assert list(runs_of((0, 4), (5, 9))) == [(0, 9)]
    assert list(runs_of((0, 4), (6, 9))) == [(0, 4), (6, 9)]


def test_adding_again_changes_nothing() -> None:
    runs = runs_of((3, 7), (20, 30))
    for pair in ((3, 7), (4, 5), (20, 20), (30, 30)):
        runs.add(*pair)
        runs._check()
    assert list(runs) == [(3, 7), (20, 30)] and runs.count == 16


def test_one_add_swallows_all_that_it_covers_or_touches() -> None:
    assert list(runs_of((0, 0), (2, 2), (4, 4), (8, 8), (1, 6))) == [(0, 6), (8, 8)]


def test_removing_from_the_middle_leaves_both_ends() -> None:
    runs = runs_of((0, 9))
    runs.remove(4, 5)
    runs._check()
    assert list(runs) == [(0, 3), (6, 9)] and runs.count == 8


def test_the_largest_number_that_is_promised_can_be_held() -> None:
    runs = runs_of((LARGEST - 3, LARGEST), (0, 0))
    assert LARGEST in runs and runs.last == LARGEST and runs.count == 5
    assert runs.next_from(LARGEST) == (LARGEST, LARGEST)
    runs.remove(LARGEST, LARGEST)
    runs.add(LARGEST - 2, LARGEST)
    runs._check()
    assert runs.pop_first(1) == (0, 0)
    assert runs.pop_first(9) == (LARGEST - 3, LARGEST)


def test_an_upside_down_run_is_our_own_mistake() -> None:
    for call in (SequenceSet().add, runs_of((0, 9)).remove):
        with pytest.raises(AssertionError):
            call(5, 4)


def test_pop_first_takes_from_one_run_only() -> None:
    runs = runs_of((0, 4), (6, 9))
    assert [runs.pop_first(3), runs.pop_first(3), runs.pop_first(100)] == [(0, 2), (3, 4), (6, 9)]
    assert not runs and runs.count == 0


def test_clear_forgets_the_count_too() -> None:
    runs = runs_of((0, 4))
    runs.clear()
    runs._check()
    assert runs.count == 0


def agree(runs: SequenceSet, model: set[int], random: Random) -> None:
    runs._check()
    expected = as_runs(model)
    assert list(runs) == expected
    assert (runs.run_count, runs.count, bool(runs)) == (len(expected), len(model), bool(model))
    assert runs.held_bytes == RUN_BYTES * len(expected)
    if model:
        assert (runs.first, runs.last) == (min(model), max(model))
    number = random.randrange(140)
    assert (number in runs) == (number in model)
    behind = [(max(number, first), last) for first, last in expected if last >= number]
    assert runs.next_from(number) == (behind[0] if behind else None)


@pytest.mark.parametrize("seed", range(12))
def test_random_operations_agree_with_a_set(seed: int) -> None:
    random = Random(seed)
    runs, model = SequenceSet(), set[int]()
    for _ in range(500):
        operation = random.choice("aaarrpc" if random.random() < 0.02 else "aaarrrp")
        first = random.randrange(128)
        last = min(first + int(random.expovariate(0.2)), 130)
        if operation == "a":
            runs.add(first, last)
            model.update(range(first, last + 1))
        elif operation == "r":
            runs.remove(first, last)
            model.difference_update(range(first, last + 1))
        elif operation == "p" and model:
            low, high = runs.pop_first(most := random.randint(1, 9))
            assert low == min(model) and 1 <= high - low + 1 <= most
            assert model.issuperset(range(low, high + 1)) and (high - low + 1 == most or high + 1 not in model)
            model.difference_update(range(low, high + 1))
        elif operation == "c":
            runs.clear()
            model.clear()
        agree(runs, model, random)
