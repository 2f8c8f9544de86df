"""The order of the lists of a selector group: by priority, by destination, and both kinds in order of arrival."""

from __future__ import annotations

from loose_areas import Areas, pass_first

from forebay.dispatch.core.areas.list_order import arrange, next_by_arrival
from forebay.dispatch.core.lanes.non_persistent_lane_state import NonPersistentLaneState
from forebay.dispatch.core.lanes.persistent_lane_state import PersistentLaneState
from forebay.dispatch.core.model.destination import SelectorGroup, TargetList
from forebay.store.numbering import BEHIND_ALL


def test_the_highest_priority_comes_first_and_there_persistent_messages() -> None:
    areas = Areas()
    queue = areas.queue()
    for priority in (4, 9, 0):
        areas.lane(queue, priority)
    areas.non_persistent_lane(queue, 4)
    lists = areas.subscribe(queue).lists
    assert [(target.lane.priority, target.lane.is_persistent) for target in lists] == [
        (9, True),
        (4, True),
        (4, False),
        (0, True),
    ]


def test_of_one_priority_the_destination_that_was_made_first_comes_first() -> None:
    areas = Areas()
    lanes = [areas.lane(areas.queue(name)) for name in ("a", "b", "c")]
    selector_group = SelectorGroup(None)
    for lane in (lanes[2], lanes[0], lanes[1]):
        selector_group.add_list(TargetList(lane, selector_group, areas.memory.consumer_memory))
    arrange(selector_group)
    assert [target.lane for target in selector_group.lists] == lanes
    assert not any(target.counterpart for target in selector_group.lists)


def test_only_lists_of_one_priority_and_one_destination_are_counterparts() -> None:
    areas = Areas()
    queue = areas.queue()
    areas.lane(queue, 4)
    areas.lane(queue, 5)
    areas.non_persistent_lane(queue, 4)
    above, persistent, non_persistent = areas.subscribe(queue).lists
    assert above.counterpart is None
    assert persistent.counterpart is non_persistent and non_persistent.counterpart is persistent


def both_kinds() -> tuple[Areas, PersistentLaneState, NonPersistentLaneState, TargetList, TargetList]:
    areas = Areas()
    queue = areas.queue()
    persistent_lane = areas.lane(queue)
    non_persistent_lane = areas.non_persistent_lane(queue)
    persistent, non_persistent = areas.subscribe(queue).lists
    return areas, persistent_lane, non_persistent_lane, persistent, non_persistent


def test_both_kinds_take_turns_in_order_of_arrival() -> None:
    areas, persistent_lane, non_persistent_lane, persistent, non_persistent = both_kinds()
    areas.arrive(persistent_lane, 2)
    non_persistent_lane.add(1, b"", b"x")
    areas.arrive(persistent_lane)
    non_persistent_lane.add(1, b"", b"x")
    order = []
    for _ in range(5):
        chosen, _ = next_by_arrival(persistent)
        order.append((chosen is persistent, pass_first(chosen)[0]))
    assert order == [(True, 0), (True, 1), (False, 0), (True, 2), (False, 1)]
    areas.check()


def test_a_list_goes_no_further_than_to_the_next_message_of_its_counterpart() -> None:
    areas, persistent_lane, non_persistent_lane, persistent, non_persistent = both_kinds()
    areas.arrive(persistent_lane, 2)
    non_persistent_lane.add(1, b"", b"x")
    areas.arrive(persistent_lane, 3)
    assert next_by_arrival(non_persistent) == (persistent, 2)


def test_a_list_whose_counterpart_is_empty_has_no_bound() -> None:
    areas, persistent_lane, non_persistent_lane, persistent, non_persistent = both_kinds()
    areas.arrive(persistent_lane, 3)
    assert next_by_arrival(persistent) == (persistent, BEHIND_ALL)
    while persistent.direct:
        pass_first(persistent)
    non_persistent_lane.add(1, b"", b"x")
    assert next_by_arrival(persistent) == (non_persistent, BEHIND_ALL)
