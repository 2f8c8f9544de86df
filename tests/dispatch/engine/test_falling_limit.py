"""The ledger while its limit falls: nothing new is charged, what is guaranteed is there, and nobody is stuck."""

from __future__ import annotations

from random import Random

import pytest

from forebay.cache.accounting.budget import SPARE_BYTES, Budget

KIB = 1024


def test_a_limit_above_what_is_held_is_there_at_once() -> None:
    budget = Budget(100)
    holder = budget.holder("lists")
    assert holder.reserve(40)
    budget.resize(50)
    assert (budget.limit_bytes, budget.free_bytes) == (50, 10)
    assert not holder.reserve(11)
    assert holder.reserve(10)
    budget.resize(200)
    assert holder.reserve(150)
    budget._check()


def test_a_limit_below_what_is_held_falls_with_it_and_admits_nothing_meanwhile() -> None:
    held = 100 * SPARE_BYTES
    budget = Budget(held)
    holder = budget.holder("lists")
    assert holder.reserve(held)
    budget.resize(held // 2)
    assert budget.limit_bytes == held
    assert not holder.reserve(1)
    holder.release(10 * SPARE_BYTES)
    assert not holder.reserve(1)
    budget.approach_target()
    assert budget.limit_bytes == held - 9 * SPARE_BYTES
    holder.release(40 * SPARE_BYTES)
    budget.approach_target()
    assert budget.limit_bytes == held // 2
    assert not holder.reserve(1)
    holder.release(1)
    assert holder.reserve(1)
    budget._check()


def test_while_the_limit_falls_the_last_bytes_are_there_for_those_who_could_not_go_on_and_no_others() -> None:
    held = 100 * SPARE_BYTES
    budget = Budget(held)
    holder = budget.holder("lists")
    assert holder.reserve(held)
    budget.resize(held // 2)
    assert not holder.reserve_for_progress(1)
    holder.release(10 * SPARE_BYTES)
    budget.approach_target()
    assert holder.reserve_for_progress(SPARE_BYTES)
    assert not holder.reserve_for_progress(1)
    budget.approach_target()
    assert budget.held_bytes == budget.limit_bytes
    budget._check()


def test_a_guarantee_is_kept_while_the_limit_falls() -> None:
    budget = Budget(1000)
    index, lists = budget.holder("index", guaranteed_bytes=300), budget.holder("lists")
    assert lists.reserve(700)
    budget.resize(500)
    assert budget.limit_bytes == 1000
    assert not index.reserve(301)
    assert index.reserve(300) and index.reserve(0)
    assert not lists.reserve(1)
    index.release(300)
    assert index.reserve(100)
    budget._check()


def test_a_guarantee_grows_only_into_what_is_free() -> None:
    budget = Budget(1000)
    index, lists = budget.holder("index", guaranteed_bytes=300), budget.holder("lists")
    assert lists.reserve(600)
    assert not index.guarantee(401)
    assert index.guarantee(400) and index.guaranteed_bytes == 400
    assert not lists.reserve(1)
    assert index.guarantee(100)
    assert lists.reserve(300)
    budget._check()


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_charges_and_limits_keeps_what_is_held_below_the_limit(seed: int) -> None:
    random = Random(seed)
    budget = Budget(1_000 * KIB)
    holders = [budget.holder(name, guaranteed_bytes=size) for name, size in (("index", 200 * KIB), ("lists", 0))]
    index = holders[0]
    for _ in range(3000):
        holder, charge, dice = random.choice(holders), random.randrange(100 * KIB), random.random()
        limit, target, was_above = budget.limit_bytes, budget.target_bytes, budget.free_bytes < 0
        if dice < 0.5:
            is_covered = index.guaranteed_bytes - index.held_bytes >= charge if holder is index else False
            admitted = holder.reserve(charge)
            assert admitted >= is_covered, "a guarantee was not there"
            assert not (admitted and was_above and not is_covered)
        elif dice < 0.9:
            holder.release(min(charge, holder.held_bytes))
        elif dice < 0.95:
            budget.resize(random.randrange(300 * KIB, 2_000 * KIB))
            target = budget.target_bytes
        else:
            index.guarantee(random.choice((100, 200, 250)) * KIB)
        budget.approach_target()
        assert budget.limit_bytes <= max(limit, target)
        budget._check()
