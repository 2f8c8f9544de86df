"""The budget: nothing is charged above the limit, and what is guaranteed is there when its holder wants it."""

from __future__ import annotations

from random import Random

import pytest

from forebay.cache.accounting.budget import Budget, Holder
from forebay.dispatch.core.memory.memory_statistics import MemoryStatistics


def test_a_charge_that_reaches_the_limit_is_admitted_and_one_above_is_refused_and_charges_nothing() -> None:
    budget = Budget(100)
    holder = budget.holder("lists")
    assert holder.reserve(100)
    assert not holder.reserve(1)
    assert (holder.held_bytes, budget.held_bytes, budget.free_bytes) == (100, 100, 0)


def test_what_is_released_can_be_reserved_by_anybody() -> None:
    budget = Budget(100)
    one, other = budget.holder("one"), budget.holder("other")
    assert one.reserve(80)
    assert not other.reserve(40)
    one.release(30)
    assert other.reserve(40)
    assert (one.held_bytes, other.held_bytes, budget.held_bytes) == (50, 40, 90)


def test_the_highest_level_is_remembered() -> None:
    budget = Budget(100)
    holder = budget.holder("lists")
    holder.reserve(70)
    holder.release(70)
    holder.reserve(10)
    assert MemoryStatistics.of(budget).held_bytes_max == 70


def test_statistics_name_each_holder_and_add_up() -> None:
    budget = Budget(100)
    budget.holder("one").reserve(10)
    budget.holder("other", guaranteed_bytes=50).reserve(20)
    statistics = MemoryStatistics.of(budget)
    assert statistics.holders == {"one": 10, "other": 20}
    assert statistics.held_bytes == sum(statistics.holders.values())
    assert statistics.limit_bytes == 100


def test_a_guarantee_is_kept_from_the_others_and_always_there_for_its_holder() -> None:
    budget = Budget(100)
    index, lists = budget.holder("index", guaranteed_bytes=40), budget.holder("lists")
    assert not lists.reserve(61)
    assert lists.reserve(60)
    assert index.reserve(40)
    assert budget.held_bytes == budget.limit_bytes


def test_beyond_its_guarantee_a_holder_competes_like_the_others() -> None:
    budget = Budget(100)
    index, lists = budget.holder("index", guaranteed_bytes=40), budget.holder("lists")
    assert lists.reserve(50)
    assert not index.reserve(51)
    assert index.reserve(50)
    assert not index.reserve(1)
    assert not lists.reserve(1)


def test_a_guarantee_that_came_back_is_set_aside_again() -> None:
    budget = Budget(100)
    index, lists = budget.holder("index", guaranteed_bytes=40), budget.holder("lists")
    index.reserve(45)
    lists.reserve(55)
    index.release(45)
    assert budget.free_bytes == 5
    assert not lists.reserve(6)
    assert index.reserve(40)
    budget._check()


def test_a_transfer_moves_a_charge_and_leaves_the_total() -> None:
    budget = Budget(100)
    lists, dispatch = budget.holder("lists"), budget.holder("dispatch")
    lists.reserve(100)
    lists.transfer(dispatch, 30)
    assert (lists.held_bytes, dispatch.held_bytes, budget.held_bytes) == (70, 30, 100)
    budget._check()


def test_releasing_more_than_was_held_is_our_own_mistake() -> None:
    holder = Budget(100).holder("lists")
    holder.reserve(10)
    with pytest.raises(AssertionError, match="lists released more"):
        holder.release(11)


def test_two_holders_of_one_name_or_more_guarantees_than_memory_are_our_own_mistakes() -> None:
    budget = Budget(100)
    budget.holder("index", guaranteed_bytes=60)
    with pytest.raises(AssertionError):
        budget.holder("index")
    with pytest.raises(AssertionError):
        budget.holder("reading", guaranteed_bytes=41)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_charges_keeps_the_ledger_below_the_limit(seed: int) -> None:
    random = Random(seed)
    budget = Budget(1000)
    guarantees = {"index": 200, "reading": 100, "lists": 0, "dispatch": 0}
    holders = {name: budget.holder(name, guaranteed_bytes=size) for name, size in guarantees.items()}
    held = dict.fromkeys(holders, 0)
    highest = 0

    def is_room(name: str, charge: int) -> bool:
        set_aside = sum(max(size - held[other], 0) for other, size in guarantees.items() if other != name)
        return sum(held.values()) + charge <= 1000 - set_aside or held[name] + charge <= guarantees[name]

    for step in range(2000):
        name = random.choice(list(holders))
        charge = random.choice((0, 1, 50, random.randrange(400)))
        if random.random() < 0.6:
            expected = is_room(name, charge)
            assert holders[name].reserve(charge) == expected, f"seed {seed}, step {step}"
            held[name] += charge if expected else 0
        elif random.random() < 0.8:
            holders[name].release(min(charge, held[name]))
            held[name] -= min(charge, held[name])
        else:
            charge = min(charge, held["lists"])
            holders["lists"].transfer(holders["dispatch"], charge)
            held["lists"] -= charge
            held["dispatch"] += charge
        highest = max(highest, sum(held.values()))
        assert {name: holder.held_bytes for name, holder in holders.items()} == held
        assert MemoryStatistics.of(budget).held_bytes_max == highest <= 1000
        budget._check()


def test_the_check_sees_a_charge_that_no_holder_has() -> None:
    budget = Budget(100)
    holder: Holder = budget.holder("lists")
    holder.reserve(10)
    budget.held_bytes += 1
    with pytest.raises(AssertionError):
        budget._check()
