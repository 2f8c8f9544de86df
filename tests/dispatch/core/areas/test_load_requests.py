"""LoadRequests: which lists the loader serves, and when it leaves one to a consumer that never pauses."""

from __future__ import annotations

import pytest
from loose_areas import MIB, Areas

from forebay.dispatch.core.areas.consumer_trials import (
    FED_SECONDS,
    FED_SECONDS_MAX,
    FILLS_MAX,
    JUDGED_BYTES,
    JUDGED_SECONDS,
    LOOK_SECONDS,
    TRIAL_SECONDS,
)
from forebay.dispatch.core.areas.load_requests import LoadRequests
from forebay.dispatch.core.model.destination import TargetList


class Backlog:
    """A list with a few messages in RAM, and more behind them than it may hold."""

    def __init__(self) -> None:
        self.areas = Areas(MIB)
        queue = self.areas.queue()
        lane = self.areas.lane(queue)
        [self.target] = self.areas.subscribe(queue).lists
        self.areas.arrive(lane, 150)
        self.areas.arrive_unloaded(lane, 500)
        self.loads.running_low.clear()
        self.areas.woken = 0

    @property
    def loads(self) -> LoadRequests:
        return self.areas.loads

    @property
    def is_left(self) -> bool:
        return self.target in self.loads.left_alone

    def load_in_vain(self) -> None:
        """Let so much have been loaded, without filling the list, that its consumer may be one that never pauses."""
        self.target.loaded_bytes = FILLS_MAX * self.target.high_watermark_bytes

    def take(self, seconds: float, computed: float, others: float = 0.0) -> None:
        """Let a consumer take for some time, as much as is judged at once.

        Its thread computes for a part of the time, and others of the process for another part.
        """
        own, everybody = self.areas.clock.computed
        self.areas.clock.advance(seconds)
        self.areas.clock.computed = own + computed, everybody + computed + others
        self.target.taken_bytes += JUDGED_BYTES
        self.loads.runs_low(self.target)


@pytest.fixture
def backlog() -> Backlog:
    return Backlog()


# ------------------------------------------------------------------ requests


def test_a_list_is_requested_once_and_wakes_the_loader_once(backlog: Backlog) -> None:
    backlog.loads.request(backlog.target)
    backlog.loads.request(backlog.target)
    assert list(backlog.loads.running_low) == [backlog.target] and backlog.areas.woken == 1


def test_a_list_for_which_there_is_nothing_to_load_is_not_requested() -> None:
    areas = Areas()
    areas.loads.request(areas.list_of("orders"))
    assert not areas.loads.running_low and not areas.woken


def test_a_list_that_has_ended_is_forgotten(backlog: Backlog) -> None:
    backlog.loads.leave(backlog.target)
    backlog.loads.trials.end(backlog.target)
    backlog.loads.forget(backlog.target)
    assert not (backlog.loads.running_low or backlog.loads.left_alone or backlog.loads.trials.feed_periods)


# ------------------------------------------------------------------ lists that are left to their consumers


def test_a_list_that_was_never_full_is_left_when_a_take_misses(backlog: Backlog) -> None:
    backlog.loads.missed(backlog.target)
    assert not backlog.is_left, "little was loaded for it"
    backlog.load_in_vain()
    backlog.loads.missed(backlog.target)
    assert backlog.is_left
    backlog.loads.request(backlog.target)
    assert not backlog.loads.running_low, "the loader loads nothing for it"


def test_without_a_clock_no_list_is_left(backlog: Backlog) -> None:
    backlog.loads.trials.judge_by(None)
    backlog.load_in_vain()
    backlog.loads.missed(backlog.target)
    assert not backlog.is_left


def test_the_loader_leaves_a_list_only_while_it_has_something(backlog: Backlog) -> None:
    backlog.load_in_vain()
    assert backlog.loads.leave_if_never_full(backlog.target)
    empty = Backlog()
    empty.load_in_vain()
    while empty.target.direct:
        empty.target.release(empty.target.drop_first())
    assert not empty.loads.leave_if_never_full(empty.target), "its consumer would miss before it is judged"


def left(backlog: Backlog) -> TargetList:
    backlog.load_in_vain()
    backlog.loads.missed(backlog.target)
    assert backlog.is_left
    return backlog.target


def test_a_consumer_that_computes_all_the_time_keeps_its_list(backlog: Backlog) -> None:
    target = left(backlog)
    backlog.take(0.0, 0.0)
    assert not backlog.loads.left_alone[target].is_passed, "the trial has just begun"
    backlog.take(TRIAL_SECONDS, TRIAL_SECONDS)
    assert backlog.loads.left_alone[target].is_passed
    backlog.take(JUDGED_SECONDS, JUDGED_SECONDS)
    assert backlog.is_left


@pytest.mark.parametrize("others", [0.0, TRIAL_SECONDS], ids=["alone", "others_compute"])
def test_the_list_of_a_consumer_that_pauses_is_fed_again(backlog: Backlog, others: float) -> None:
    target = left(backlog)
    backlog.take(0.0, 0.0)
    backlog.take(TRIAL_SECONDS, TRIAL_SECONDS * 0.4, others)
    assert not backlog.is_left and list(backlog.loads.running_low) == [target]


def test_the_clocks_are_not_read_before_so_much_was_taken(backlog: Backlog) -> None:
    target = left(backlog)
    backlog.take(0.0, 0.0)
    target.taken_bytes += JUDGED_BYTES - 1
    backlog.areas.clock.advance(TRIAL_SECONDS)
    backlog.loads.runs_low(target)
    assert backlog.is_left
    target.taken_bytes += 1
    backlog.loads.runs_low(target)
    assert not backlog.is_left


def test_after_a_trial_that_did_not_pass_a_list_is_fed_for_a_while_and_each_time_longer(backlog: Backlog) -> None:
    fed_seconds = FED_SECONDS
    while fed_seconds < FED_SECONDS_MAX:
        backlog.loads.trials.end(left(backlog))
        for waited in (fed_seconds - 0.01, 0.02):
            assert not backlog.is_left
            backlog.areas.clock.advance(waited)
            backlog.load_in_vain()
            backlog.loads.missed(backlog.target)
        assert backlog.is_left
        fed_seconds *= 2
    for _ in range(2):
        backlog.loads.trials.end(backlog.target)
        assert backlog.loads.trials.feed_periods[backlog.target].seconds == FED_SECONDS_MAX
        backlog.loads.leave(backlog.target)


def test_a_list_from_which_nobody_takes_any_more_is_fed_at_the_next_look(backlog: Backlog) -> None:
    target = left(backlog)
    backlog.loads.poll()
    backlog.loads.poll()
    assert backlog.is_left, "it is not time to look again"
    target.taken_bytes += 1
    backlog.areas.clock.advance(LOOK_SECONDS)
    backlog.loads.poll()
    assert backlog.is_left, "somebody took since the last look"
    backlog.areas.clock.advance(LOOK_SECONDS)
    backlog.loads.poll()
    assert not backlog.is_left and list(backlog.loads.running_low) == [target]
