"""SpillAccount: places of spilled messages can be paid also where memory is used up."""

from __future__ import annotations

from forebay.cache.accounting.budget import Budget
from forebay.cache.spill.spill_account import (
    AHEAD_BYTES,
    FIRST_REFERENCES_BYTES,
    OWNER_AHEAD_BYTES,
    REFERENCES_BYTES,
    ArrivalAccount,
    OwnedAccount,
    SpillAccount,
)


def test_nothing_arrives_before_what_a_consumer_was_lent_is_back() -> None:
    budget = Budget(1 << 20)
    account, lists, other = (SpillAccount(budget.holder("tmp_storage")), *map(budget.holder, ("lists", "other")))
    arrivals = ArrivalAccount(account, lambda wanted_bytes: None)
    account.refill()
    assert other.reserve(budget.free_bytes)
    assert account.lend(lists, REFERENCES_BYTES, 0) and not account.lend(lists, 1, 0)
    other.release(100)
    assert not arrivals.reserve(20)
    lists.release(REFERENCES_BYTES)
    assert arrivals.reserve(20) and account.last_bytes == REFERENCES_BYTES
    account.give_ahead()
    assert account.holder.held_bytes == 20, "a message that has no other place comes first"
    budget._check()


def test_places_can_be_paid_when_memory_is_used_up() -> None:
    budget = Budget(1 << 20)
    account, other = SpillAccount(budget.holder("tmp_storage")), budget.holder("other")
    account.refill()
    assert other.reserve(budget.free_bytes)
    assert account.reserve(AHEAD_BYTES - 100) and not account.reserve(101)
    assert account.reserve(100) and account.ahead_bytes == 0
    account.release(500)
    assert account.ahead_bytes == 500
    other.release(AHEAD_BYTES)
    account.refill()
    assert account.ahead_bytes == AHEAD_BYTES
    account.release(AHEAD_BYTES - 500)
    assert account.holder.held_bytes == account.ahead_bytes + REFERENCES_BYTES
    budget._check()


def test_what_is_held_ahead_is_not_refilled_from_a_reserve_but_with_what_was_just_released() -> None:
    budget = Budget(1 << 20)
    account, other = SpillAccount(budget.holder("tmp_storage")), budget.holder("other")
    arrivals = ArrivalAccount(account, lambda wanted_bytes: None)
    account.refill()
    quota = budget.quota("kept")
    quota.resize(budget.limit_bytes, 1 << 18)
    assert other.reserve(budget.free_bytes)
    assert arrivals.reserve(AHEAD_BYTES) and not arrivals.reserve(1)
    assert account.ahead_bytes == budget.free_bytes == 0
    other.release(1000)
    account.refill_from(1000)
    assert account.ahead_bytes == 1000 and budget.free_bytes == 0
    assert other.reserve_for_progress(AHEAD_BYTES)
    other.release(500)
    account.refill()
    assert account.ahead_bytes == 1000
    account.refill_from(500)
    assert account.ahead_bytes == 1500 and budget.free_bytes == -AHEAD_BYTES
    budget._check()


def test_a_reserve_pays_where_what_is_free_goes_to_the_last_bytes() -> None:
    budget = Budget(1 << 20)
    account, other = SpillAccount(budget.holder("tmp_storage")), budget.holder("other")
    quota = budget.quota("kept")
    quota.resize(budget.limit_bytes, 1 << 18)
    owner = budget.quota_holder("tmp_storage", quota)
    owned = OwnedAccount(owner, ArrivalAccount(account, lambda wanted_bytes: None))
    assert other.reserve(budget.free_bytes - FIRST_REFERENCES_BYTES - 999)
    assert account.last_bytes == 0
    assert owned.reserve(1000)
    assert (account.last_bytes, budget.free_bytes, owner.held_bytes) == (FIRST_REFERENCES_BYTES, 999, 1000)
    owned.release(1000)
    budget._check()


def test_places_of_a_batch_of_many_lanes_can_be_paid_when_memory_is_used_up() -> None:
    budget = Budget(1 << 20)
    account, other = SpillAccount(budget.holder("tmp_storage")), budget.holder("other")
    account.hold_for(100)
    assert not account.missing_bytes and other.reserve(budget.free_bytes)
    assert account.reserve(AHEAD_BYTES + 99 * OWNER_AHEAD_BYTES)
    assert account.missing_bytes == AHEAD_BYTES + 99 * OWNER_AHEAD_BYTES
    account.release(AHEAD_BYTES + 99 * OWNER_AHEAD_BYTES)
    assert not account.missing_bytes
    account.hold_for(1)
    assert account.ahead_bytes == AHEAD_BYTES == account.holder.held_bytes - REFERENCES_BYTES
