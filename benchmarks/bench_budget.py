"""Benchmarks of the budget: a charge admitted and released, refused, and handed over. Each message pays for two."""

from __future__ import annotations

from forebay.benchmarks.calibration import AgainstFloor
from forebay.cache.accounting.budget import Budget

CHARGES = 20_000
MESSAGE_BYTES = 1408


def test_charges_come_and_go(against_floor: AgainstFloor) -> None:
    def charge(budget: Budget) -> None:
        holder = budget.holder("lists")
        for _ in range(CHARGES):
            holder.reserve(MESSAGE_BYTES)
            holder.release(MESSAGE_BYTES)

    against_floor(CHARGES, lambda: Budget(1 << 26), charge)


def test_charges_are_refused_at_the_limit(against_floor: AgainstFloor) -> None:
    def charge(budget: Budget) -> None:
        holder = budget.holder("lists")
        holder.reserve(budget.limit_bytes)
        for _ in range(CHARGES):
            holder.reserve(MESSAGE_BYTES)

    against_floor(CHARGES, lambda: Budget(1 << 26), charge)


def test_charges_are_handed_over(against_floor: AgainstFloor) -> None:
    def transfer(budget: Budget) -> None:
        lists, in_flight = budget.holder("lists"), budget.holder("in flight")
        lists.reserve(CHARGES * MESSAGE_BYTES)
        for _ in range(CHARGES):
            lists.transfer(in_flight, MESSAGE_BYTES)

    against_floor(CHARGES, lambda: Budget(1 << 26), transfer)
