"""The limit holds after each of ten million steps, and at each charge between them: see memory_walk.

`make soak PYTEST_TARGET=tests/model/test_memory_walk.py` walks all of them. Each
seed is a walk of its own, so that processes share them; `memory_walk.py` walks
some without pytest, and tells what they did.
"""

from __future__ import annotations

import pytest
from memory_walk import MemoryWalk, Report, walk

from forebay import StoreFull

STEPS = 10_000_000
SEEDS = 100
SHORT_STEPS = 12_000
SHORT_SEEDS = (1, 2, 3)
"""In the third one the limit changes."""


def test_held_bytes_stay_below_the_limit_whatever_takes_memory() -> None:
    total = Report()
    for seed in SHORT_SEEDS:
        total.add(walk(seed, SHORT_STEPS))
    is_worth_it(total)


def test_a_send_may_be_refused_only_at_the_end_of_memory() -> None:
    found = MemoryWalk(1)
    with found.store.full_memory(), found.refused_at_the_end_of_memory(persistent=False):
        found.store.queue("orders").send(b"", persistent=False)
    assert found.report.refused_sends == 1
    with pytest.raises(AssertionError, match="are free"), found.refused_at_the_end_of_memory(persistent=False):
        raise StoreFull(1, 0, "memory_limit")
    with pytest.raises(StoreFull), found.refused_at_the_end_of_memory(persistent=True):
        raise StoreFull(1, 0, "memory_limit")
    with pytest.raises(StoreFull), found.refused_at_the_end_of_memory(persistent=False):
        raise StoreFull(1, 0, "temp_limit")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(SEEDS))
def test_held_bytes_stay_below_the_limit_in_ten_million_steps(seed: int) -> None:
    report = walk(seed, STEPS // SEEDS)
    print(report)
    is_worth_it(report)


def is_worth_it(report: Report) -> None:
    """Memory was full, gave back, was filled again from the disk, and everything was delivered all the same."""
    assert report.full > report.steps // 50, report
    assert report.loads > report.steps // 50, report
    assert report.delivered > report.steps // 3, report
    assert report.refused < report.steps // 50, report
    assert report.delayed, report
    assert len(report.done) > 25, report
