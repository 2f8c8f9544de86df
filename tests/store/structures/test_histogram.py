"""DurationHistogram: buckets that double, and what is read off them."""

from __future__ import annotations

import pytest

from forebay.store.structures.histogram import BOUNDS_SECONDS, DurationHistogram, DurationStatistics


def recorded(*durations: float) -> DurationStatistics:
    histogram = DurationHistogram()
    for seconds in durations:
        histogram.record(seconds)
    return histogram.statistics()


@pytest.mark.parametrize("at", range(len(BOUNDS_SECONDS)))
def test_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed(at: int) -> None:
    bound = BOUNDS_SECONDS[at]
    found = recorded(bound, bound * 0.51, bound * 1.01).buckets
    assert found[at] == 2 and found[at + 1] == 1 and sum(found) == 3


def test_what_takes_no_time_or_very_long_counts_in_the_outer_buckets() -> None:
    found = recorded(0.0, 1e-9, 10_000.0)
    assert found.buckets[0] == 2 and found.buckets[-1] == 1
    assert (found.count, found.max_seconds) == (3, 10_000.0)
    assert found.total_seconds == pytest.approx(10_000.0)


def test_quantile_is_at_most_twice_the_true_one_and_never_above_the_longest() -> None:
    found = recorded(*(n / 1_000 for n in range(1, 1_001)))
    for share in (0.01, 0.5, 0.9, 0.99):
        assert share <= found.quantile_seconds(share) <= 2 * share
    assert found.quantile_seconds(1.0) == 1.0
    assert recorded(200.0).quantile_seconds(0.5) == 200.0
    assert recorded().quantile_seconds(0.99) == 0.0


def test_statistics_are_of_their_moment() -> None:
    histogram = DurationHistogram()
    before = histogram.statistics()
    histogram.record(1.0)
    assert before.count == sum(before.buckets) == 0 and histogram.count == 1
