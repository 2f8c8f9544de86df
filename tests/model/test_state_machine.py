"""The whole public interface against the plain model: whatever is called in whatever order, both say the same.

Hypothesis chooses the calls. After each of them the ledger agrees with the
live objects and stays below its limit; at intervals, and after each open, all
that can be asked of the store is what the model says; and at the end every
message is taken once more, in order, and nothing else is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from crashing import FIRST_SEED
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.stateful import run_state_machine_as_test
from machine_calls import Shape
from state_machine import StateMachine

SEEDS_APART = 10_000
STEPS = 200
"""Steps of one example."""
EXAMPLES = 12
"""Examples of one seed. Hypothesis makes most further ones by small changes of these."""
SHORT_SEEDS = 3
SOAK_PARTS = 20
SOAK_STEPS = 1_000_000
SOAK_STEPS_UNTIL_AUDITED = 4
TOLD_STEPS = 10_000
PLAIN: Shape = (40, 0, 4, True, None, 0, None)


def run(number: int, phases: Sequence[Phase] = (Phase.generate,), **fields: int) -> int:
    """The examples that the number draws; returns how many steps there were. fields: of the machine.

    What fails is as long as it was drawn: with Phase.shrink too Hypothesis looks for less, which may take minutes.

    Hypothesis also draws numbers that it reads in whatever modules are loaded:
    without that a seed means the same beside any other test, and after a change.
    """
    before = StateMachine.steps
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    try:
        with mock.patch.object(HypothesisProvider, "_maybe_draw_constant", return_value=None):
            run_state_machine_as_test(seed(number)(type("Seeded", (StateMachine,), fields)), settings=chosen)
    except BaseException as error:
        error.add_note(f"seed {number}")
        raise
    return StateMachine.steps - before


def test_whatever_is_called_the_library_does_what_the_plain_model_says() -> None:
    for number in range(SHORT_SEEDS):
        assert run(FIRST_SEED * SEEDS_APART + number) > STEPS


def opened(**fields: Any) -> StateMachine:
    machine = StateMachine()
    defaults: dict[str, Any] = {
        "sync": "never",
        "adds": 50,
        "file_length": "1MiB",
        "queues": ["prices"],
        "topics": ["tape"],
        "number": 0,
    }
    machine.opened(**(defaults | fields), left_out=set())
    return machine


def test_dead_letters_that_several_consumers_are_late_with_at_once_come_in_some_order() -> None:
    machine = opened()
    for _ in range(2):
        machine.subscribe(0, None, 1, 0, False, 2)
    machine.send_many(0, [PLAIN, PLAIN], 1)
    for _ in range(2):  # as many attempts as the queue admits
        for second_or_first in (1, 0):
            machine.take(second_or_first, 1)
        machine.wait(4.0)
    assert machine.model.queues["DLQ.prices"].entries
    machine.drain()


@pytest.mark.parametrize(("synced", "lost"), [(1, 0), (2, 0), (1, 1)])
def test_what_a_subscription_without_dead_letters_dropped_is_seen_from_its_count_after_a_power_cut(
    synced: int, lost: int
) -> None:
    machine = opened(sync="always", number=1)
    machine.subscribe_topic("all", 1000)
    machine.publish([PLAIN, PLAIN, PLAIN], 1)
    for _ in range(2):
        machine.take(0, synced + lost)
        machine.nack(64, synced + lost, 0)
    machine.take(0, synced)  # the last attempt, which is synced with what is sent next
    machine.publish([PLAIN], 1)
    if lost:
        machine.take(0, lost)
    machine.open_again("power cut", is_index_lost=False)
    # Its count tells nothing where it dropped some of several: then it ends.
    assert ("all" in machine.model.topics["tape"].places) == (not lost)
    machine.drain()


def test_a_destination_that_nobody_uses_goes_and_comes_again_for_who_sends() -> None:
    machine = opened(queues=["idle"], topics=["idle"])
    for _ in range(2):
        machine.send(0, PLAIN)
        machine.publish([PLAIN], 1)
        machine.take(0, 1)
        machine.ack(64, 1)
        machine.close_consumer(0)
        machine.wait(40.0)
        assert not machine.model.queues and not machine.model.topics
    machine.drain()


def test_a_consumer_that_comes_and_goes_between_two_looks_need_not_keep_a_queue() -> None:
    machine = opened(queues=["idle"], topics=["tape"])
    machine.get(0)
    machine.wait(4.0)
    machine.subscribe(0, None, 0, 0, False, 0)
    machine.wait(0.25)
    machine.close_consumer(0)
    machine.wait(1.0)
    machine.drain()


@pytest.mark.soak
@pytest.mark.parametrize("part", range(1, 1 + SOAK_PARTS))
def test_soak_of_the_whole_interface(part: int) -> None:
    """A million steps in all. FOREBAY_SEED draws others than the last time."""
    first = number = (FIRST_SEED + part) * SEEDS_APART
    done = told = 0
    while done < SOAK_STEPS // SOAK_PARTS:
        number += 1
        done += run(number, steps_until_audited=SOAK_STEPS_UNTIL_AUDITED)
        if done >= told + TOLD_STEPS:
            told = done
            print(f"seeds {first + 1} to {number}: {done} steps", flush=True)
