"""A pass is measured again where others had the machine, never because of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from forebay.benchmarks.works.disturbance import Undisturbed
from forebay.benchmarks.works.stopwatch import Facts, others_share


def passes(*others_seconds: float) -> Callable[[], Facts]:
    """Each call is the next pass of ten seconds, of which others used a core for so long."""
    given = iter(others_seconds)
    return lambda: {"seconds": 10.0, "others_seconds": next(given)}


def paces(seconds: Iterable[float]) -> Callable[[], float]:
    given = iter(seconds)
    return lambda: next(given)


def test_a_pass_that_was_left_alone_is_measured_once() -> None:
    found = Undisturbed(pace=lambda: 1.0).measure(passes(1.0), others_share)
    assert found["others_seconds"] == 1.0


def test_a_pass_during_which_others_used_a_core_is_measured_again() -> None:
    undisturbed = Undisturbed(pace=lambda: 1.0)
    assert undisturbed.measure(passes(9.0, 0.5), others_share)["others_seconds"] == 0.5
    assert undisturbed.sentence().startswith("1 repetition of 1 measurement, because")
    assert undisturbed.sentence().endswith("0 stayed disturbed")


def test_a_pass_beside_which_the_machine_was_slower_than_at_its_best_is_measured_again() -> None:
    undisturbed = Undisturbed(pace=paces([1.0, 1.0, 1.3, 1.0, 1.05]))
    assert undisturbed.measure(passes(0.0, 0.1), others_share)["others_seconds"] == 0.1


@pytest.mark.parametrize("others", [(9.0, 4.0, 6.0), (4.0, 9.0, 6.0), (9.0, 6.0, 4.0)])
def test_of_three_disturbed_passes_the_least_disturbed_counts(others: tuple[float, ...]) -> None:
    undisturbed = Undisturbed(pace=lambda: 1.0)
    assert undisturbed.measure(passes(*others), others_share)["others_seconds"] == 4.0
    assert undisturbed.sentence().endswith("1 stayed disturbed")


def test_a_pass_that_can_not_tell_what_others_used_counts() -> None:
    assert Undisturbed(pace=lambda: 1.0).measure(lambda: {"peak_bytes": 5.0}, others_share) == {"peak_bytes": 5.0}
