"""The TargetArea: what arrives in the lists, what comes back to them, and what they forget."""

from __future__ import annotations

import pytest
from loose_areas import KIB, Areas, pass_first, sequences

from forebay.cache.accounting import holder_names
from forebay.cache.accounting.charge import OVERHEAD_BYTES, charge_of_all
from forebay.dispatch.core.areas.target_area import UNREADABLE_MAX
from forebay.store.structures.sequence_set import SequenceSet


@pytest.fixture
def areas() -> Areas:
    return Areas()


def runs(*given: tuple[int, int]) -> SequenceSet:
    made = SequenceSet()
    for first, last in given:
        made.add(first, last)
    return made


# ------------------------------------------------------------------ arrivals


@pytest.mark.parametrize("selectors", [[None], [None, "n = 1"], ["n = 1"]])
def test_an_arrival_goes_into_each_list_that_has_read_everything_before_it(
    areas: Areas, selectors: list[str | None]
) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    groups = [areas.subscribe(queue, selector) for selector in selectors]
    areas.arrive(lane, 2, n=1)
    for selector_group in groups:
        assert [sequences(target) for target in selector_group.lists] == [[0, 1]]
    areas.check()


def test_a_list_passes_an_arrival_that_its_selector_does_not_match(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue, "n = 1").lists
    areas.arrive(lane, 1, n=2)
    areas.arrive(lane, 1, n=1)
    assert sequences(target) == [1] and target.frontier == 2
    assert not areas.budget.held_by(holder_names.PENDING_CACHE)


def test_a_slice_is_offered_as_its_messages_are_one_by_one(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target], [other] = areas.subscribe(queue, "n = 1").lists, areas.subscribe(queue, "n = 2").lists
    areas.target_area.publish(lane, [*areas.store(lane, 2, n=1), *areas.store(lane, 1, n=2)])
    assert (sequences(target), sequences(other)) == ([0, 1], [2])
    assert lane.published_end == target.frontier == other.frontier == 3


def test_without_a_consumer_the_head_of_a_queue_is_kept_until_one_message_does_not_fit(areas: Areas) -> None:
    lane = areas.lane(areas.queue())
    head = lane.memory.head_queue_cache
    while not head.is_stopped(lane.pending_lane.number):
        areas.arrive(lane)
    kept = lane.published_end - 1
    areas.arrive(lane, 1, size=1)
    assert [head.peek(lane.pending_lane.number, at) is not None for at in (kept - 1, kept, kept + 1)] == [
        True,
        False,
        False,
    ]


def test_a_head_stays_stopped_while_messages_behind_it_are_in_the_journal_alone(areas: Areas) -> None:
    lane = areas.lane(areas.queue())
    head = lane.memory.head_queue_cache
    while not head.is_stopped(lane.pending_lane.number):
        areas.arrive(lane)
    areas.remove(lane, 0, 1)
    areas.target_area.forget(lane, runs((0, 1)))
    areas.arrive(lane, 1, size=1)
    assert head.is_stopped(lane.pending_lane.number)
    assert head.peek(lane.pending_lane.number, lane.published_end - 1) is None
    areas.remove(lane, 2, lane.published_end - 1)
    areas.target_area.forget(lane, runs((2, lane.published_end - 1)))
    assert not head.is_stopped(lane.pending_lane.number)
    areas.check()


def test_what_arrives_without_being_in_ram_is_requested_from_the_loader(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive_unloaded(lane, 3)
    assert list(areas.loads.running_low) == [target] and areas.woken == 1
    assert not target.direct and target.frontier == 0 and lane.published_end == 3


@pytest.mark.parametrize("selector", [None, "n = 1"])
def test_an_arrival_behind_a_small_gap_waits_in_the_pending_cache(areas: Areas, selector: str | None) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue, selector).lists
    areas.arrive_unloaded(lane, 1)
    [message] = areas.arrive(lane, 1, n=1)
    assert not target.direct and target.frontier == 0
    assert lane.pending_cache.peek(lane.pending_lane.number, 1) == message
    areas.check()


def test_lists_that_have_read_everything_go_on_behind_sequences_that_no_message_has(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive(lane, 2)
    [*_, last] = areas.store(lane, 4)
    areas.remove(lane, 2, 4)
    areas.target_area.publish(lane, (last,))
    assert sequences(target) == [0, 1, 5] and target.frontier == lane.published_end == 6


def test_a_list_that_is_behind_does_not_skip_what_it_has_not_read(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive_unloaded(lane, 2)
    areas.target_area.pass_holes(lane, 5)
    assert target.frontier == 0 and lane.published_end == 5


# ------------------------------------------------------------------ what comes back


def test_a_message_that_comes_back_is_noted_by_each_list_that_has_passed_it(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target], [selective] = areas.subscribe(queue).lists, areas.subscribe(queue, "n = 2").lists
    areas.arrive(lane, 2, n=1)
    message = pass_first(target)
    areas.target_area.reoffer_returned(lane, message)
    assert list(target.returned) == [(0, 0)] and not selective.returned
    assert target in areas.loads.running_low, "a load brings it to its place"
    assert lane.pending_cache.peek(lane.pending_lane.number, 0) == message
    areas.check()


def test_a_message_that_is_gone_does_not_come_back(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive(lane)
    message = pass_first(target)
    areas.remove(lane, 0, 0)
    areas.target_area.reoffer_returned(lane, message)
    assert not target.returned and not areas.budget.held_by(holder_names.PENDING_CACHE)


def test_what_is_due_comes_to_its_place_only_in_lists_that_have_passed_it(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive(lane, 4)
    pass_first(target)
    pass_first(target)
    areas.target_area.reoffer_runs(lane, [(1, 2), (9, 9)])
    assert list(target.returned) == [(1, 1)], "message 2 is direct, and 9 is still to come"


# ------------------------------------------------------------------ what is gone


def test_what_was_removed_is_forgotten_by_lists_and_caches(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    messages = areas.arrive(lane, 5)
    assert lane.pending_cache.put(lane.pending_lane.number, messages[0])
    areas.remove(lane, 0, 2)
    areas.target_area.forget(lane, runs((0, 2)))
    assert sequences(target) == [3, 4]
    assert areas.budget.held_by(holder_names.TARGET_LISTS) == charge_of_all(messages[3:])
    assert not areas.budget.held_by(holder_names.PENDING_CACHE)
    areas.check()


def test_a_load_under_way_learns_that_messages_were_removed(areas: Areas) -> None:
    lane = areas.lane(areas.queue())
    before = lane.recheck_count
    areas.target_area.forget(lane, runs((0, 0)))
    assert lane.recheck_count == before + 1


def test_of_messages_that_cannot_be_read_the_last_ones_are_remembered(areas: Areas) -> None:
    lane = areas.lane(areas.queue())
    for sequence in range(UNREADABLE_MAX + 1):
        lane.lose_unreadable(sequence)
    assert len(areas.target_area.unreadable) == UNREADABLE_MAX
    assert areas.target_area.unreadable[0] == (lane, 1)


# ------------------------------------------------------------------ memory


def test_a_list_that_was_given_up_is_requested_again_once_so_much_memory_is_free(areas: Areas) -> None:
    queue = areas.queue()
    lane = areas.lane(queue)
    [target] = areas.subscribe(queue).lists
    areas.arrive_unloaded(lane, 1)
    areas.loads.running_low.clear()
    others = areas.budget.holder("others")
    assert others.reserve(areas.budget.free_bytes - KIB)
    target.note_wanted(KIB + OVERHEAD_BYTES)
    areas.dispatch_area.wait_for_memory(target)
    areas.dispatch_area.retry_waiters()
    assert areas.dispatch_area.is_waiting(target) and not areas.loads.running_low
    others.release(OVERHEAD_BYTES)
    areas.dispatch_area.retry_waiters()
    assert not areas.dispatch_area.is_waiting(target) and list(areas.loads.running_low) == [target]
