"""A Backlog knows which runs behind a list are in RAM, and where the gaps are."""

from __future__ import annotations

from random import Random

import pytest

from forebay.dispatch.core.memory.backlog import Backlog


def test_what_arrives_behind_a_gap_is_handed_out_behind_it() -> None:
    backlog = Backlog()
    for size, kept in ((100.0, 100.0), (50.0, 0.0), (30.0, 30.0)):
        backlog.append(size, kept)
    assert backlog.is_front_kept and backlog.is_newest_kept
    assert [backlog.take(1000.0) for _ in range(3)] == [(100.0, 100.0), (50.0, 0.0), (30.0, 30.0)]
    assert backlog.waiting == backlog.kept == 0.0


def test_ram_gives_up_the_newest_first() -> None:
    backlog = Backlog()
    for size, kept in ((100.0, 100.0), (50.0, 0.0), (30.0, 30.0)):
        backlog.append(size, kept)
    assert backlog.evict(40.0) == 40.0
    assert not backlog.is_newest_kept
    assert [backlog.take(1000.0) for _ in range(3)] == [(100.0, 90.0), (50.0, 0.0), (30.0, 0.0)]


def test_what_comes_back_from_a_list_is_next_and_its_oldest_part_in_ram() -> None:
    backlog = Backlog()
    backlog.append(10.0, 0.0)
    backlog.put_back(20.0, 15.0)
    assert [backlog.take(1000.0) for _ in range(3)] == [(15.0, 15.0), (5.0, 0.0), (10.0, 0.0)]


@pytest.mark.parametrize("seed", range(5))
def test_sums_hold_and_runs_stay_few_whatever_comes(seed: int) -> None:
    random = Random(seed)
    backlog = Backlog()
    for _ in range(2000):
        size = random.choice((1.0, 100.0, 5000.0))
        what = random.randrange(5)
        if what < 2:
            backlog.append(size, size * random.choice((0.0, 0.5, 1.0)))
        elif what == 2:
            backlog.put_back(size, size * random.random())
        elif what == 3:
            assert backlog.evict(size) <= size
        elif backlog.waiting:
            backlog.take(size) if random.random() < 0.5 else backlog.cut(size)
        backlog._check()
