"""Overdraft: what can't be refused is charged, or owed until there is room; a lasting charge ends with its object."""

from __future__ import annotations

import pytest

from forebay.cache.accounting.budget import Budget, Holder
from forebay.cache.accounting.overdraft import Overdraft


class Overdrawn:
    """An overdraft whose holder is in a budget of 100 bytes with another one."""

    def __init__(self) -> None:
        self.budget = Budget(100)
        self.other: Holder = self.budget.holder("others")
        self.overdraft = Overdraft(self.budget.holder("consumers"))

    def state(self) -> tuple[int, int]:
        """Return what is charged, and what is owed."""
        self.budget._check()
        return self.overdraft.holder.held_bytes, self.overdraft.owed_bytes


@pytest.fixture
def overdrawn() -> Overdrawn:
    return Overdrawn()


def test_what_has_room_is_charged_at_once(overdrawn: Overdrawn) -> None:
    overdrawn.overdraft.charge(60)
    assert overdrawn.state() == (60, 0)
    overdrawn.overdraft.release(60)
    assert overdrawn.state() == (0, 0)


def test_what_has_no_room_is_owed_until_it_is_paid(overdrawn: Overdrawn) -> None:
    assert overdrawn.other.reserve(90)
    overdrawn.overdraft.charge(20)
    overdrawn.overdraft.pay_owed()
    assert overdrawn.state() == (0, 20)
    overdrawn.other.release(10)
    assert overdrawn.state() == (0, 20), "nobody has told the overdraft"
    overdrawn.overdraft.pay_owed()
    assert overdrawn.state() == (20, 0)


def test_a_smaller_charge_does_not_wait_for_what_is_owed(overdrawn: Overdrawn) -> None:
    assert overdrawn.other.reserve(90)
    overdrawn.overdraft.charge(20)
    overdrawn.overdraft.charge(5)
    assert overdrawn.state() == (5, 20)


def test_what_is_owed_is_paid_together_or_not_at_all(overdrawn: Overdrawn) -> None:
    assert overdrawn.other.reserve(100)
    for charge_bytes in (10, 20):
        overdrawn.overdraft.charge(charge_bytes)
    overdrawn.other.release(29)
    overdrawn.overdraft.pay_owed()
    assert overdrawn.state() == (0, 30)
    overdrawn.other.release(1)
    overdrawn.overdraft.pay_owed()
    assert overdrawn.state() == (30, 0)


def test_a_release_ends_what_is_owed_before_what_is_charged(overdrawn: Overdrawn) -> None:
    overdrawn.overdraft.charge(40)
    assert overdrawn.other.reserve(60)
    overdrawn.overdraft.charge(30)
    overdrawn.overdraft.release(20)
    assert overdrawn.state() == (40, 10)
    overdrawn.overdraft.release(15)
    assert overdrawn.state() == (35, 0)


def test_a_release_pays_the_rest_of_what_is_owed_with_what_came_free(overdrawn: Overdrawn) -> None:
    overdrawn.overdraft.charge(40)
    assert overdrawn.other.reserve(60)
    overdrawn.overdraft.charge(30)
    overdrawn.other.release(10)
    overdrawn.overdraft.release(20)
    assert overdrawn.state() == (50, 0)


def test_a_lasting_charge_ends_with_its_object_once_somebody_with_the_lock_looks(overdrawn: Overdrawn) -> None:
    overdrawn.overdraft.charge(40)
    kept, dropped = overdrawn.overdraft.make_lasting(10), overdrawn.overdraft.make_lasting(15)
    overdrawn.overdraft.release(15)
    assert overdrawn.overdraft.release_ended() == 25 and overdrawn.state() == (25, 0)
    del dropped
    assert overdrawn.state() == (25, 0), "a finalizer takes no lock"
    assert overdrawn.overdraft.release_ended() == 10 and overdrawn.state() == (10, 0)
    del kept
    overdrawn.overdraft.pay_owed()
    assert overdrawn.state() == (0, 0) and overdrawn.overdraft.release_ended() == 0
