"""The whole public interface against the plain model: whatever is called in whatever order, both say the same.

Hypothesis chooses the calls. After each of them the ledger agrees with the
live objects and stays below its limit; at intervals, and after each open, all
that can be asked of the store is what the model says; and at the end every
message is taken once more, in order, and nothing else is there.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from state_machine import StateMachine

FIRST_SEED = int(os.environ.get("FOREBAY_SEED", "1"))
SEEDS_APART = 1_000
STEPS = 150
"""Of one example."""
SHORT_STEPS = 6_000
SOAK_PARTS = 20
SOAK_STEPS = 1_000_000
RUN_STEPS = 15_000
"""Of the examples that one seed draws."""


def run(number: int, steps: int) -> int:
    """At most so many steps, in examples that the number draws; returns how many there were."""
    before = StateMachine.steps
    chosen = settings(
        max_examples=steps // STEPS,
        stateful_step_count=STEPS,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(seed(number)(type("Seeded", (StateMachine,), {})), settings=chosen)
    except BaseException as error:
        error.add_note(f"run({number}, {steps})")
        raise
    return StateMachine.steps - before


def test_whatever_is_called_the_library_does_what_the_plain_model_says() -> None:
    assert run(FIRST_SEED, SHORT_STEPS) > SHORT_STEPS // 2


@pytest.mark.soak
@pytest.mark.parametrize("part", range(1, 1 + SOAK_PARTS))
def test_soak_of_the_whole_interface(part: int) -> None:
    """A million steps in all. FOREBAY_SEED draws others than the last time."""
    number, done = (FIRST_SEED * SOAK_PARTS + part) * SEEDS_APART, 0
    while done < SOAK_STEPS // SOAK_PARTS:
        done += run(number, RUN_STEPS)
        number += 1
