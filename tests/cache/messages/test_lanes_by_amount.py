"""LanesByAmount: a lane that has more than half of what the fullest has is found without a look at the others."""

from __future__ import annotations

from random import Random

import pytest

from forebay.cache.messages.lanes_by_amount import LanesByAmount


class Lanes:
    """Lanes with amounts, as a cache has them: it tells when one reaches a power of two, and when one is empty."""

    def __init__(self) -> None:
        self.amounts: dict[int, int] = {}
        self.asked: list[int] = []
        self.by_amount = LanesByAmount(self._amount_of)

    def _amount_of(self, lane: int) -> int:
        self.asked.append(lane)
        return self.amounts[lane]

    def add(self, lane: int, amount: int = 1) -> None:
        for _ in range(amount):
            now = self.amounts[lane] = self.amounts.get(lane, 0) + 1
            if not now & (now - 1):
                self.by_amount.note_amount(lane, now)

    def take(self, lane: int, amount: int = 1) -> None:
        self.amounts[lane] -= amount
        if not self.amounts[lane]:
            del self.amounts[lane]
            self.by_amount.forget(lane)

    def found(self) -> int | None:
        lane = self.by_amount.fullest()
        self.by_amount._check()
        return lane


def test_without_lanes_none_is_the_fullest() -> None:
    assert Lanes().found() is None
    lanes = Lanes()
    lanes.add(3)
    lanes.take(3)
    assert lanes.found() is None and len(lanes.by_amount) == 0


def test_the_fullest_is_found_where_it_has_twice_as_much_as_any_other() -> None:
    lanes = Lanes()
    for lane, amount in ((1, 3), (2, 16), (3, 7)):
        lanes.add(lane, amount)
    assert lanes.found() == 2


def test_a_lane_that_was_the_fullest_and_shrank_is_passed_over() -> None:
    lanes = Lanes()
    lanes.add(1, 64)
    lanes.add(2, 20)
    assert lanes.found() == 1
    lanes.take(1, 63)
    assert lanes.found() == 2
    lanes.take(2, 20)
    assert lanes.found() == 1, "it is still there"


def test_growing_within_a_power_of_two_changes_nothing_and_asks_nobody() -> None:
    lanes = Lanes()
    lanes.add(1, 9)
    lanes.by_amount.note_amount(1, 8)
    lanes.by_amount.note_amount(1, 15)
    assert lanes.asked == [] and len(lanes.by_amount) == 1


def test_a_look_asks_few_lanes_however_many_there_are() -> None:
    lanes = Lanes()
    for lane in range(1000):
        lanes.add(lane, 3)
    lanes.add(1000, 8)
    assert lanes.by_amount.fullest() == 1000
    assert lanes.asked == [1000]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_found_has_more_than_half_of_the_fullest(seed: int) -> None:
    random, lanes = Random(seed), Lanes()
    for _ in range(400):
        lane = random.randrange(12)
        if random.random() < 0.55 or lane not in lanes.amounts:
            lanes.add(lane, random.choice((1, 1, 5, 40)))
        else:
            lanes.take(lane, random.randint(1, lanes.amounts[lane]))
        if random.random() < 0.3:
            found = lanes.found()
            if found is None:
                assert not lanes.amounts
            else:
                assert 2 * lanes.amounts[found] > max(lanes.amounts.values())
