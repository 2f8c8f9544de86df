"""Subscriptions that share copies and reads against the plain model: each gets what it wants, once and in order."""

from __future__ import annotations

import pytest
from crashing import FIRST_SEED
from topic_readers import TopicReaders

SEEDS_APART = 10_000
STEPS = 400
SHORT_SEEDS = 4
SOAK_SEEDS = 500


def run(number: int, steps: int) -> None:
    readers = TopicReaders(number)
    try:
        readers.run(steps)
    except BaseException as error:
        error.add_note(f"seed {number}")
        raise


def test_each_subscription_gets_what_it_wants_once_and_in_order_however_they_drift() -> None:
    for number in range(SHORT_SEEDS):
        run(FIRST_SEED * SEEDS_APART + number, STEPS)


@pytest.mark.soak
def test_soak_of_subscriptions_that_share() -> None:
    """FOREBAY_SEED draws others than the last time."""
    for number in range(SOAK_SEEDS):
        run((FIRST_SEED + 1) * SEEDS_APART + number, 2 * STEPS)
